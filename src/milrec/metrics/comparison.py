"""Paired comparisons of models: the same users, judged by two models, and the mean of their differences.

With several seeds a user's value is its mean over them. The interval is a bootstrap over users; p is of a paired
t-test, corrected for the number of comparisons after Holm.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from milrec.metrics.ranking import bootstrap_interval

Values = npt.NDArray[np.float64]


def compare(per_user: Mapping[str, Values]) -> list[dict[str, Any]]:
    """Every model against every other, in the order given: first less second."""
    pairs = list(itertools.combinations(per_user, 2))
    if not pairs:
        return []
    differences = np.stack([per_user[first] - per_user[second] for first, second in pairs], axis=1)
    lows, highs = bootstrap_interval(differences, np.random.default_rng(0))
    rows: list[dict[str, Any]] = []
    for (first, second), column, low, high in zip(pairs, differences.T, lows, highs, strict=True):
        difference = column[~np.isnan(column)]
        rows.append(
            {
                "first": first,
                "second": second,
                "difference": float(difference.mean()),
                "low": float(low),
                "high": float(high),
                "p": _p_value(difference),
                "users": len(difference),
            }
        )
    for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p"] = p
    return rows


def _p_value(difference: Values) -> float:
    if len(difference) < 2 or not difference.any():
        return 1.0  # nothing differs
    if np.ptp(difference) == 0:
        return 0.0  # all differ by the same
    return float(stats.ttest_1samp(difference, 0.0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """p values made larger for how many there are: the smallest by all of them, the next by one less, and so on."""
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(len(p_values))
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected.tolist()
