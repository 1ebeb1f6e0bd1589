"""Paired comparisons of models: the mean difference between two models over the same users.

With several seeds, a user's value is the mean over them. The interval is a bootstrap over users; p comes from a paired
t-test, with Holm's correction for the number of comparisons.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from milrec.metrics.ranking import bootstrap_interval

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """Two models over the same users: the mean of first minus second, its interval, and p."""

    first: str
    second: str
    difference: float
    low: float
    high: float
    p: float
    users: int


def compare(per_user: Mapping[str, Values]) -> list[Difference]:
    """Every model against every other, in the order given: first minus second."""
    pairs = list(itertools.combinations(per_user, 2))
    if not pairs:
        return []
    columns = np.stack([per_user[first] - per_user[second] for first, second in pairs], axis=1)
    defined = [column[~np.isnan(column)] for column in columns.T]
    p_values = holm([_p_value(column) for column in defined])
    lows, highs = bootstrap_interval(columns, np.random.default_rng(0)).tolist()
    return [
        Difference(first, second, float(column.mean()), low, high, p, len(column))
        for (first, second), column, low, high, p in zip(pairs, defined, lows, highs, p_values, strict=True)
    ]


def _p_value(difference: Values) -> float:
    if len(difference) < 2 or not difference.any():
        return 1.0  # nothing differs
    if np.ptp(difference) == 0:
        return 0.0  # all differ by the same amount
    return float(stats.ttest_1samp(difference, 0.0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: the smallest p is multiplied by the number of p values, the next by one less, and so on."""
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(len(p_values))
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected.tolist()
