"""Validation → Calibration: how logits become probabilities, and what a place in the tail costs.

Validation takes test pairs for missing, since nobody may know them. So what it finds, p, is the share of validation
pairs among all that are not in training; without the validation pairs themselves, a test part of the same size has a
share of p/(1-p), and that is the probability. Prices are those of lists that leave out validation items too.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression
from torch import Tensor

from milrec.data.splits import HeldOut, Split
from milrec.evaluation.pairs import PairCounts
from milrec.evaluation.pricing import popularity_curve, share_curve
from milrec.kernels.ranking import hide
from milrec.lists.scores import Scorer, first_logits, leave_out, score_blocks
from milrec.lists.tail_order import Candidates
from milrec.metrics import tail
from milrec.models.contract import Model
from milrec.models.inputs import Users
from milrec.probability.calibration import LARGEST, Calibration, Chances, Doubles, counts_rejected, own_link
from milrec.probability.prices import TailPrices
from milrec.training.settings import FitSettings
from milrec.training.targets import n_missing_drawn

_CELLS = 100_000_000  # users × items that are looked at
_FEWEST_USERS, _MOST_USERS = 500, 5_000
_PRICED_USERS = 1_500
_ONE_IN = 3  # of these, for mean popularity, whose curve takes longest
_LEAST, _FARTHEST_FACTOR = -700.0, 600.0  # ln of the lowest odds that a number can hold, and of the largest factor
_KNOTS, _FEWEST_AT_A_KNOT = 32, 40  # of a curve, and held-out pairs at each
_FEWEST_FOR_A_CURVE = 80  # held-out pairs; with fewer, one factor says as much
_STEEPEST = 40.0  # fall of ln(probability) over the first bin
_TILT = 0.01  # by which ln(probability) rises over a curve's knots at least: no two logits are worth quite the same
_LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200)


def calibrate(model: Model, settings: FitSettings, split: Split) -> Calibration | None:
    """Of a model that was fitted to the training part; None if the split has no validation part."""
    users = np.flatnonzero(np.diff(split.validation.targets.indptr))
    if len(users) == 0:
        return None
    look = _look(Scorer(model, settings, split.train), settings, split, _sampled(users, split.train.n_items))
    if not look.counts.held_out.any():
        return None
    calibration = _fitted(look.counts)
    return calibration.model_copy(update={"prices": look.prices(replace(look.counts.chances, calibration=calibration))})


def _sampled(users: npt.NDArray[np.int64], n_items: int) -> npt.NDArray[np.int64]:
    most = min(max(_CELLS // max(n_items, 1), _FEWEST_USERS), _MOST_USERS)
    return users[_some(len(users), most)]


def _some(n: int, most: int) -> npt.NDArray[np.int64]:
    """Up to so many of n places, drawn at random, in order."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng([0, n, most]).choice(n, most, replace=False))


class _Validation:
    """What one pass over validation users finds."""

    def __init__(self, scorer: Scorer, counts: PairCounts, part: HeldOut, popularity: npt.NDArray[np.int64]) -> None:
        self.scorer, self.counts, self.part, self.popularity = scorer, counts, part, popularity
        self.members = tail.tail_classes(popularity)
        self.lengths = [n for n in _LENGTHS if n <= len(popularity)] or [len(popularity)]
        self.priced = _some(part.audience.n_users, _PRICED_USERS)
        shape = (len(self.priced), max(self.lengths))
        self.items = [np.full(shape, -1, dtype=np.int64) for _ in self.members]
        self.logits = [np.full(shape, -np.inf, dtype=np.float32) for _ in self.members]

    def run(self) -> None:
        size = self.scorer.largest_block
        score_blocks(self.scorer, slice(0, self.part.audience.n_users), size, self._score)

    def _score(self, block: slice, memory: Tensor) -> None:
        users = Users.of(self.part.audience, block)
        proposed = self.scorer.propose_steadily(users, memory, self.scorer.largest_block)
        self.counts.add(proposed.logits, self.part.audience, self.part.targets, block)
        places = slice(*np.searchsorted(self.priced, (block.start, block.stop)).tolist())
        rows = self.priced[places] - block.start
        if not len(rows):
            return
        leave_out(proposed.logits, self.part.audience, block)
        if self.counts.chances.calibration.rest_counts:
            hide(proposed.logits, self.part.targets.indptr[block.start : block.stop + 1], self.part.targets.indices)
        found = Candidates.of(self.scorer, self.members, proposed, max(self.lengths))
        for own, (items, logits) in enumerate(zip(found.items, found.logits, strict=True)):
            self.items[own][places], self.logits[own][places] = items[rows], logits[rows]

    def prices(self, chances: Chances) -> TailPrices:
        """The curves of the tail's dials."""
        audience = self.part.audience
        counts = [np.diff(pairs.indptr)[self.priced] for pairs in (audience.adopted, audience.rejected)]
        shifts = chances.shifts(*counts)[:, None]
        worth = [
            np.where(items >= 0, chances.probabilities(logits, shifts), np.nan)
            for items, logits in zip(self.items, self.logits, strict=True)
        ]
        curves = {
            one.name.lower(): tuple(share_curve(worth, one, n) for n in self.lengths) for one in tail.TailInterval
        }
        adopters = [float(self.popularity[own].mean()) if len(own) else 0.0 for own in self.members]
        listed = [self.popularity[items[::_ONE_IN]] for items in self.items]
        some = [own[::_ONE_IN] for own in worth]
        popular = tuple(popularity_curve(some, listed, adopters, n) for n in self.lengths)
        short, medium, long, single = adopters
        return TailPrices(**curves, popularity=popular, adopters=(short, medium, long, single))


def _look(scorer: Scorer, settings: FitSettings, split: Split, users: npt.NDArray[np.int64]) -> _Validation:
    train, held_out = split.train, split.validation
    part = replace(held_out, audience=held_out.audience.part(users), targets=held_out.targets[users])
    link = own_link(settings)
    weighted = link is not None and settings.target_set is not None and settings.target_set.target_set != "all"
    drawn = min(n_missing_drawn(train.adopted, settings.target_factor), train.n_items) if weighted else None
    begun = Calibration(link=link is not None, n_drawn=drawn, rest_counts=split.protocol != "users", held_out=0)
    chances = Chances(begun, link, train.n_items, counts_rejected(settings))
    counts = PairCounts.of(chances) if link else PairCounts.like(chances, first_logits(scorer, part.audience))
    look = _Validation(scorer, counts, part, train.popularity())
    look.run()
    return look


# ---- from counts to probabilities ----


def _fitted(counts: PairCounts) -> Calibration:
    begun = counts.chances.calibration.model_copy(update={"held_out": int(counts.held_out.sum())})
    if begun.link:
        begun = begun.model_copy(update={"ln_factor": one_factor(counts)})
        if begun.held_out < _FEWEST_FOR_A_CURVE:
            return begun
    return _by_curve(begun, counts)


def one_factor(counts: PairCounts) -> float:
    """ln of the factor under which the held-out pairs are likeliest: as many are then expected as there are."""
    low, high = -_FARTHEST_FACTOR, _FARTHEST_FACTOR
    for _ in range(80):
        middle = (low + high) / 2
        expected = counts.pairs @ np.exp(-np.logaddexp(0.0, -(counts.centres + middle)))
        low, high = (low, middle) if expected > counts.held_out.sum() else (middle, high)
    return low


def _by_curve(begun: Calibration, counts: PairCounts) -> Calibration:
    """A curve through the shares that were held out, in bins of about as many held-out pairs each."""
    n_bins = max(1, min(_KNOTS, begun.held_out // _FEWEST_AT_A_KNOT))
    ends = np.searchsorted(np.cumsum(counts.held_out), np.arange(1, n_bins) * begun.held_out / n_bins) + 1
    parts = [part for part in np.split(np.arange(len(counts.pairs)), np.unique(ends)) if counts.held_out[part].sum()]
    sums = [(int(counts.pairs[part].sum()), int(counts.held_out[part].sum())) for part in parts]
    shares = isotonic_regression([held / pairs for pairs, held in sums], weights=[pairs for pairs, _ in sums]).x
    if begun.rest_counts:
        shares = shares / np.maximum(1 - shares, 1 - LARGEST)
    values = np.log(np.minimum(shares, LARGEST))
    places = _places(counts, parts, values)
    places, values = _with_first(counts, parts[0], places, values, begun.rest_counts)
    values = np.minimum(values + np.linspace(-_TILT / 2, _TILT / 2, len(values)), math.log(LARGEST))
    knots = dict(zip(places, values.tolist(), strict=True))  # a place once, with the higher value
    return begun.model_copy(update={"knots": tuple(sorted(knots.items()))})


def _with_first(
    counts: PairCounts, part: npt.NDArray[np.int64], places: list[float], values: Doubles, rest_counts: bool
) -> tuple[list[float], Doubles]:
    """The knots with one more, where the pairs of the first bin begin: so high that as many of them are expected to be
    held out as were (MIL's own link is far too steep there). Pairs below ½ have no odds, and do not count.
    """
    centres, pairs, held_out = (row[part] for row in (counts.centres, counts.pairs, counts.held_out))
    there = (pairs > 0) & np.isfinite(centres)
    if not there.any() or centres[there][0] >= places[0]:
        return places, values
    low, high = float(values[0]) - _STEEPEST, float(values[0])
    for _ in range(60):
        middle = (low + high) / 2
        chance = np.exp(np.interp(centres[there], [centres[there][0], *places], [middle, *values]))
        expected = pairs[there] @ (chance / (1 + chance) if rest_counts else chance)
        low, high = (low, middle) if expected > held_out[there].sum() else (middle, high)
    return [float(centres[there][0]), *places], np.append(low, values)


def _places(counts: PairCounts, parts: list[npt.NDArray[np.int64]], values: Doubles) -> list[float]:
    """Where bins stand: at their mean odds. Without a link, the bins next to one say how odds rise with the logit."""
    if counts.chances.link is not None or len(parts) < 3:
        return [_place(counts, part, 1.0) for part in parts]
    means = [float(counts.pairs[part] @ counts.centres[part] / counts.pairs[part].sum()) for part in parts]
    slopes = np.diff(values) / np.maximum(np.diff(means), 1e-9)
    near = [max(float(slopes[max(number, 1) if number < len(slopes) else -1]), 1e-3) for number in range(len(parts))]
    return [_place(counts, part, slope) for part, slope in zip(parts, near, strict=True)]


def _place(counts: PairCounts, part: npt.NDArray[np.int64], slope: float) -> float:
    """Where a bin has its mean odds, if ln(odds) rise like this."""
    there = np.isfinite(counts.centres[part]) & (counts.pairs[part] > 0)
    pairs, steps = counts.pairs[part], slope * np.where(there, counts.centres[part], 0.0)
    if not there.any():
        return _LEAST
    highest = float(steps[there].max())
    mean = float(pairs @ np.where(there, np.exp(np.maximum(steps - highest, _LEAST)), 0.0)) / int(pairs.sum())
    return (highest + math.log(max(mean, math.exp(_LEAST)))) / slope
