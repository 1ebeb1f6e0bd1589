"""The probabilities of users' best items → curves that say which bonus leads to which share, and what it costs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from milrec.metrics.tail import TailInterval
from milrec.probability.calibration import Doubles
from milrec.probability.prices import PriceCurve

_SMALLEST = 1e-9  # bonus of a list that is not as the model lists it
_SHARES = np.linspace(0, 1, 21)
_PENALTIES = 24  # points of the curve for mean popularity
_SINGLE = len(TailInterval)  # the class of long-tail items with a single adopter


def share_curve(worth: list[Doubles], interval: TailInterval, n: int) -> PriceCurve:
    """The bonus of an interval for each share of lists of n items; `worth` has the best probabilities of each class,
    falling from left to right, NaN where no item is left.

    Below the share that lists have by themselves, a bonus below 0 holds for single adopters too; above it they have
    none, but still count.
    """
    if interval != TailInterval.LONG:
        return _curve(*_steps(worth, [interval], [], n), n)
    fewer = _curve(*_steps(worth, [interval, _SINGLE], [], n), n)
    more = _curve(*_steps(worth, [interval], [_SINGLE], n), n)
    points = [one for one in zip(fewer.bonuses, fewer.amounts, fewer.hits, strict=True) if one[0] < 0]
    points += [one for one in zip(more.bonuses, more.amounts, more.hits, strict=True) if one[0] >= 0]
    bonuses, amounts, hits = (tuple(column) for column in zip(*points, strict=True))
    return PriceCurve(n=n, amounts=amounts, bonuses=bonuses, hits=hits)


def _steps(worth: list[Doubles], favoured: list[int], counted: list[int], n: int) -> tuple[Doubles, Doubles, Doubles]:
    """At which bonus one more item of the favoured classes enters a list, what the share and the hits gain by it.

    With k of them in a list, one more takes the place of the (n-k)-th best other item as soon as the bonus is the
    difference of their probabilities. These differences rise with k, so that those of all users, put in order, say at
    once which bonus leads to which share, and what it costs. The first entry is a list without any of them.
    """
    own, _ = _merged(worth, favoured, [], n)
    others, count = _merged(worth, [one for one in range(len(worth)) if one not in favoured], counted, n)
    out, counts_out = others[:, ::-1], count[:, ::-1]  # what the k-th of them takes the place of
    limits = np.where(np.isnan(own), 1.0, np.where(np.isnan(out), -1.0, out - own))
    enters = ~np.isnan(own)
    shares = np.where(enters, 1.0 - np.where(np.isnan(out), 0.0, counts_out), 0.0)
    hits = np.where(enters, own - np.nan_to_num(out), 0.0)
    order = np.argsort(limits, axis=None, kind="stable")
    size = own.size
    base_share, base_hits = count.sum() / size, np.nansum(others) / len(own)
    share = base_share + np.concatenate([[0.0], np.cumsum(shares.ravel()[order])]) / size
    return (
        np.concatenate([[-1.0], limits.ravel()[order]]),
        share,
        base_hits + np.concatenate([[0.0], np.cumsum(hits.ravel()[order])]) / len(own),
    )


def _curve(limits: Doubles, shares: Doubles, hits: Doubles, n: int) -> PriceCurve:
    """A few points of it: shares in steps of 5 %, and lists as they are, with a bonus of 0."""
    last = len(shares) - 1
    natural = max(int(np.searchsorted(limits, 0.0)) - 1, 0)  # the last step below 0
    wanted = np.minimum(np.searchsorted(shares, _SHARES, side="left"), last)
    places = np.unique(np.concatenate([wanted, [0, natural, last]]))
    bonuses = np.where(places == natural, 0.0, limits[places])
    bonuses = np.where(places < natural, np.minimum(bonuses, 0.0), bonuses)
    bonuses = np.where(places > natural, np.maximum(bonuses, _SMALLEST), bonuses)
    return PriceCurve(
        n=n, amounts=_row(shares[places]), bonuses=_row(np.maximum.accumulate(bonuses)), hits=_row(hits[places])
    )


def _merged(worth: list[Doubles], classes: list[int], counted: list[int], n: int) -> tuple[Doubles, Doubles]:
    """The n best of some classes, NaN where none is left, and which of them belong to the counted ones."""
    together = np.concatenate([worth[one][:, :n] for one in classes], axis=1)
    marks = np.concatenate([np.full(worth[one][:, :n].shape[1], float(one in counted)) for one in classes])
    order = np.argsort(-together, axis=1, kind="stable")[:, :n]  # NaN last
    best = np.take_along_axis(together, order, axis=1)
    return best, np.where(np.isnan(best), 0.0, marks[order])


def popularity_curve(
    worth: list[Doubles], listed: list[npt.NDArray[np.int64]], adopters: list[float], n: int
) -> PriceCurve:
    """Mean popularity and hits of lists of n items under rising penalties on popular classes."""
    chance = np.concatenate([part[:, :n] for part in worth], axis=1)
    popularity = np.concatenate([part[:, :n] for part in listed], axis=1)
    weight = np.concatenate([np.full(part[:, :n].shape[1], mean) for part, mean in zip(worth, adopters, strict=True)])
    largest = max(adopters) or 1.0
    penalties = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, _PENALTIES - 1)]) / largest
    means, hits = [], []
    for penalty in penalties:
        order = np.argsort(-(chance - penalty * weight), axis=1, kind="stable")[:, :n]  # NaN last
        best = np.take_along_axis(chance, order, axis=1)
        there = ~np.isnan(best)
        means.append(float(np.take_along_axis(popularity, order, axis=1)[there].mean()) if there.any() else 0.0)
        hits.append(float(np.nansum(best, axis=1).mean()))
    falling = np.minimum.accumulate(means)
    return PriceCurve(n=n, amounts=_row(falling), bonuses=_row(penalties), hits=_row(np.array(hits)))


def _row(values: Doubles) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)
