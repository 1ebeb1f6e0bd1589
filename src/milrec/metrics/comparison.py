"""Paired comparisons of models: the mean difference between two models over the same users.

With several seeds, a user's value is the mean over them. The interval is a bootstrap over users; p comes from a paired
t-test, with Holm's correction for the number of comparisons.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
    return _corrected(_differences(per_user, pairs)) if pairs else []


def compare_with_first(per_user: Mapping[str, Mapping[str, Values]]) -> dict[str, list[Difference]]:
    """For each measure, every model minus the first one; p is corrected for all of these comparisons together."""
    found = []
    for by_model in per_user.values():
        first, *others = by_model
        found += _differences(by_model, [(other, first) for other in others])
    corrected = iter(_corrected(found))
    return {measure: [next(corrected) for _ in range(len(models) - 1)] for measure, models in per_user.items()}


def _differences(per_user: Mapping[str, Values], pairs: Sequence[tuple[str, str]]) -> list[Difference]:
    """First minus second for each pair, p not corrected yet."""
    columns = np.stack([per_user[first] - per_user[second] for first, second in pairs], axis=1)
    defined = [column[~np.isnan(column)] for column in columns.T]
    lows, highs = bootstrap_interval(columns, np.random.default_rng(0)).tolist()
    return [
        Difference(first, second, _mean(column), low, high, _p_value(column), len(column))
        for (first, second), column, low, high in zip(pairs, defined, lows, highs, strict=True)
    ]


def _mean(column: Values) -> float:
    return float(column.mean()) if len(column) else float("nan")


def _corrected(found: Sequence[Difference]) -> list[Difference]:
    corrected = holm([one.p for one in found])
    return [replace(one, p=p) for one, p in zip(found, corrected, strict=True)]


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
