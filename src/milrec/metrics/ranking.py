"""Ranking measures, one value per user (NumPy only).

`Hits` says where in a user's list the held-out items are; every measure is a function of it. A user without targets
has no value: NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_BOOTSTRAP_CELLS = 4_000_000  # users × samples drawn at once


@dataclass(frozen=True)
class Hits:
    """Lists, and which of their items were held out."""

    top_items: npt.NDArray[np.int64]  # (n_users, n) best first, -1 if a list is shorter
    found: npt.NDArray[np.bool_]  # (n_users, n)
    indptr: npt.NDArray[np.int64]  # (n_users + 1,) where each user's targets are
    targets: npt.NDArray[np.int64]  # the held-out items, user by user

    @property
    def n_targets(self) -> npt.NDArray[np.int64]:
        return np.diff(self.indptr)


def find_hits(top_items: npt.ArrayLike, targets: Sequence[npt.ArrayLike]) -> Hits:
    """Mark the places of each list that hold one of the user's targets."""
    lists = np.asarray(top_items, dtype=np.int64)
    wanted = [np.asarray(items, dtype=np.int64) for items in targets]
    indptr = np.concatenate([[0], np.cumsum([len(items) for items in wanted])]).astype(np.int64)
    items = np.concatenate([np.zeros(0, np.int64), *wanted])
    width = 1 + max(int(lists.max(initial=0)), int(items.max(initial=0)))
    cells = np.repeat(np.arange(len(wanted)), np.diff(indptr)) * width + items
    listed = np.arange(len(lists))[:, None] * width + lists
    return Hits(lists, (lists >= 0) & np.isin(listed, cells), indptr, items)


def recall(hits: Hits, cutoff: int) -> Floats:
    """hits / min(cutoff, |targets|): the paper's divisor, following Liang et al."""
    return _ratio(hits.found[:, :cutoff].sum(axis=1), np.minimum(hits.n_targets, cutoff))


def recall_of_all(hits: Hits, cutoff: int) -> Floats:
    """hits / |targets|: the divisor of pytrec-eval and of most papers on graphs."""
    return _ratio(hits.found[:, :cutoff].sum(axis=1), hits.n_targets)


def ndcg(hits: Hits, cutoff: int) -> Floats:
    """DCG / IDCG with log2(s+1), the ideal list as long as min(cutoff, |targets|)."""
    discount = discounts(cutoff)
    gained = hits.found[:, :cutoff] @ discount[: hits.found.shape[1]]
    ideal = np.concatenate([[0.0], np.cumsum(discount)])[np.minimum(hits.n_targets, cutoff)]
    return _ratio(gained, ideal)


def novelty_ndcg(hits: Hits, novelty: Floats, cutoff: int, ideal: str = "sorted") -> Floats:
    """NDCG with each hit weighted by its novelty -ln ν(i) (equation 18; decision D4).

    The ideal list is the user's targets, most novel first (`sorted`), or the user's largest novelty at every place
    (`maximum`), as the paper's formula has it.
    """
    discount = discounts(cutoff)
    shown = hits.top_items[:, :cutoff]
    weights = np.where(hits.found[:, :cutoff], novelty[shown], 0.0)
    gained = weights @ discount[: shown.shape[1]]
    return _ratio(gained, _ideal_novelty(hits, novelty, discount, ideal))


def novelties(popularity: npt.NDArray[np.integer[Any]]) -> Floats:
    """-ln ν(i), ν the item's share of the training interactions; at least one, as nobody may have rejected it."""
    result: Floats = -np.log(np.maximum(popularity, 1) / popularity.sum())
    return result


def graded_ndcg(gains: Floats, ideal_gains: Floats, cutoff: int) -> Floats:
    """NDCG of lists whose items have graded gains, against the gains of the ideal list, both best first."""
    discount = discounts(cutoff)
    gained, ideal = gains[:, :cutoff], ideal_gains[:, :cutoff]
    return _ratio(gained @ discount[: gained.shape[1]], ideal @ discount[: ideal.shape[1]])


def discounts(cutoff: int) -> Floats:
    """1/log2(s+1) for places s = 1 … cutoff."""
    result: Floats = 1 / np.log2(np.arange(2, cutoff + 2))
    return result


def count_resampled(random: np.random.Generator, counts: Floats) -> None:
    """For each row, how often each of its places is drawn if as many are drawn as there are, each equally likely."""
    n = counts.shape[1]
    for row in counts:
        row[:] = np.bincount(random.integers(n, size=n), minlength=n)


def bootstrap_interval(
    values: Floats,
    random: np.random.Generator,
    n_samples: int = 1000,
    level: float = 0.95,
    resample: Callable[[np.random.Generator, Floats], None] = count_resampled,
) -> npt.NDArray[np.float64]:
    """Percentile interval of each column's mean over users, NaN left out: (2, n_measures).

    `resample` fills an array as `count_resampled` does; `kernels.ranking` has a faster one, with the same numbers.
    """
    defined = ~np.isnan(values)
    filled = np.where(defined, values, 0.0)
    partly = np.flatnonzero(~defined.all(axis=0))  # measures that some users do not have
    counted, n_users = defined[:, partly].astype(np.float64), len(values)
    means = np.full((n_samples, values.shape[1]), np.nan)
    at_once = max(1, min(n_samples, _BOOTSTRAP_CELLS // max(n_users, 1)))
    for first in range(0, n_samples if n_users else 0, at_once):
        samples = range(first, min(first + at_once, n_samples))
        weight = np.empty((len(samples), n_users))
        resample(random, weight)
        drawn = np.full((len(samples), values.shape[1]), float(n_users))
        drawn[:, partly] = weight @ counted
        means[first : samples.stop] = _ratio(weight @ filled, drawn)
    tail = (1 - level) / 2
    if not n_users:
        return np.full((2, values.shape[1]), np.nan)
    kept = np.where(np.isnan(means).all(axis=0), 0.0, means)
    interval = np.nanquantile(kept, [tail, 1 - tail], axis=0)
    return np.where(np.isnan(means).all(axis=0), np.nan, interval)


def _ideal_novelty(hits: Hits, novelty: Floats, discount: Floats, ideal: str) -> Floats:
    """The discounted novelty of each user's ideal list."""
    users = np.repeat(np.arange(len(hits.n_targets)), hits.n_targets)
    own = novelty[hits.targets]
    keys = np.minimum(own, 1e6)  # an item that nobody adopted is infinitely novel
    apart = 2 * float(np.abs(keys).max(initial=0)) + 1  # further than any two of them
    own = own[np.argsort(users * apart - keys)]  # most novel first, user by user
    place = np.arange(len(users)) - hits.indptr[users]
    if ideal == "maximum":
        own = own[hits.indptr[users]]
    gain = np.where(place < len(discount), own * discount[np.minimum(place, len(discount) - 1)], 0.0)
    total: Floats = np.bincount(users, weights=gain, minlength=len(hits.n_targets)).astype(np.float64)
    return total


def _ratio(above: npt.NDArray[Any], below: npt.NDArray[Any]) -> Floats:
    """above / below, NaN where below is 0."""
    ratio = np.full(np.shape(below), np.nan)
    np.divide(above, below, out=ratio, where=np.asarray(below) != 0)
    return ratio
