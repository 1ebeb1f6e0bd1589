"""The popularity tail: its three intervals, and how lists and preferences are spread over it (NumPy only)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Popularity = npt.NDArray[np.integer[Any]]
Lists = npt.NDArray[np.int64]

PREFERENCE_THRESHOLDS = (0.0, 0.01, 0.25, 0.5, 0.7, 0.9, 1.0)


class TailInterval(IntEnum):
    """Short: the few most popular items with a third of all interactions; medium: the next third; long: the rest."""

    SHORT = 0
    MEDIUM = 1
    LONG = 2


def popularity_order(popularity: Popularity) -> npt.NDArray[np.int64]:
    """Items from the most to the least popular, ties in item order."""
    return np.argsort(-popularity.astype(np.int64), kind="stable").astype(np.int64)


def log_popularity(popularity: Popularity) -> npt.NDArray[np.float64]:
    """ln(popularity) of each item; 0 for one that nobody has."""
    logs: npt.NDArray[np.float64] = np.log(np.maximum(popularity, 1))
    return logs


def popularity_curve(falling: Popularity, n_points: int) -> tuple[npt.NDArray[np.int64], Popularity]:
    """Ranks spread evenly on a logarithmic scale, and the adopters at each; `falling` has the most popular first."""
    ranks = np.unique(np.geomspace(1, len(falling), n_points).round().astype(np.int64))
    return ranks, falling[ranks - 1]


def interval_cuts(popularity: Popularity) -> tuple[int, int]:
    """N33 and N66: how many of the most popular items hold one and two thirds of all interactions (table 7)."""
    cumulative = np.cumsum(popularity[popularity_order(popularity)])
    thirds = [cumulative[-1] * part for part in (1, 2)]
    first, second = (int(np.searchsorted(3 * cumulative, third)) + 1 for third in thirds)
    return first, second


def tail_intervals(popularity: Popularity) -> npt.NDArray[np.int8]:
    """The interval of every item."""
    short, medium = interval_cuts(popularity)
    intervals = np.full(len(popularity), TailInterval.LONG, dtype=np.int8)
    order = popularity_order(popularity)
    intervals[order[:medium]] = TailInterval.MEDIUM
    intervals[order[:short]] = TailInterval.SHORT
    return intervals


def tail_classes(popularity: Popularity) -> list[npt.NDArray[np.int64]]:
    """The items of each interval, ascending; those of the long tail with a single adopter are a fourth class."""
    intervals = tail_intervals(popularity).astype(np.int64)
    intervals[(intervals == TailInterval.LONG) & (popularity <= 1)] = len(TailInterval)
    return [np.flatnonzero(intervals == one) for one in range(len(TailInterval) + 1)]


def interval_counts(top_items: Lists, intervals: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    """How many lists have an item of each interval at each place: (3, n)."""
    shown = np.where(top_items >= 0, intervals[top_items], -1)
    return np.stack([(shown == interval).sum(axis=0) for interval in TailInterval]).astype(np.int64)


def list_shares(top_items: Lists, intervals: npt.NDArray[np.int8]) -> npt.NDArray[np.float64]:
    """Share of each user's list that is in each interval: (n_users, 3); NaN for an empty list."""
    shown = np.where(top_items >= 0, intervals[top_items], -1)
    counts = np.stack([(shown == interval).sum(axis=1) for interval in TailInterval], axis=1)
    length = (top_items >= 0).sum(axis=1, keepdims=True)
    return _ratio(counts, np.broadcast_to(length, counts.shape))


def list_popularity(top_items: Lists, popularity: Popularity) -> npt.NDArray[np.float64]:
    """Mean number of adopters of each user's listed items; NaN for an empty list."""
    listed = top_items >= 0
    total, length = np.where(listed, popularity[top_items], 0).sum(axis=1), listed.sum(axis=1)
    return _ratio(total, length)


def exposure(top_items: Lists, n_items: int) -> npt.NDArray[np.int64]:
    """How many list places each item has."""
    return np.bincount(top_items[top_items >= 0], minlength=n_items).astype(np.int64)


def gini(exposures: npt.NDArray[np.integer[Any]]) -> float:
    """0 when every item has the same number of list places, near 1 when one item has all; NaN if there are none."""
    ordered = np.sort(exposures).astype(np.float64)
    if ordered.sum() == 0:
        return float("nan")
    rank = np.arange(1, len(ordered) + 1)
    return float((2 * rank - len(ordered) - 1) @ ordered / (len(ordered) * ordered.sum()))


def preference_shares(preference: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
    """Share of each user's items in [0,.01), [.01,.25), [.25,.5), [.5,.7), [.7,.9), [.9,1] (table 6): (n_users, 6)."""
    inner = np.array(PREFERENCE_THRESHOLDS[1:-1], dtype=preference.dtype)
    below = np.stack([(preference < threshold).sum(axis=1) for threshold in inner], axis=1)  # (n_users, 5)
    n_users, n_items = preference.shape
    edges = np.concatenate([np.zeros((n_users, 1)), below, np.full((n_users, 1), n_items)], axis=1)
    shares: npt.NDArray[np.float64] = np.diff(edges, axis=1) / n_items
    return shares


def _ratio(above: npt.NDArray[Any], below: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """above / below, NaN where below is 0."""
    ratio = np.full(np.shape(below), np.nan)
    np.divide(above, below, out=ratio, where=below != 0)
    return ratio
