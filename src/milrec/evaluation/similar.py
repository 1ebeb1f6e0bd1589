"""What lists of similar items are worth: how many items that users adopted together in a held-out part they find.

For a user with held-out items T, every ordered pair (i, j) of different items in T is a question: is j in the list of
items similar to i? A pair counts w_j = 1/√n_j, with n_j the training adopters of j, and the user's hit rate is

    Σ over pairs, j listed for i, of w_j  /  Σ over pairs of w_j

Without weights the best sellers would be the best answer to every question, whatever i is. With 1/n_j, items with a
single adopter would decide. With 1/√n_j the best answer to i is the order by P(j|i)/√n_j: the cosine of co-occurrence,
if it were known without noise. The plain rate has w_j = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from milrec.data.splits import HeldOut
from milrec.errors import DataError
from milrec.kernels.ranking import count_resampled
from milrec.metrics.ranking import bootstrap_interval

_USERS_AT_ONCE = 4096

Doubles = npt.NDArray[np.float64]
Similar = Callable[[int], npt.NDArray[np.int64]]  # an item → the items listed for it


@dataclass(frozen=True)
class SimilarEvaluation:
    """How many items that go together lists of similar items find."""

    measures: dict[str, float]  # mean over users
    intervals: dict[str, tuple[float, float]]  # 95 % bootstrap interval of each mean
    n_users: int  # with two held-out items or more
    n_items: int  # that a list was made for
    n_pairs: int
    per_user: dict[str, Doubles] = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        counts = {"n_users": self.n_users, "n_items": self.n_items, "n_pairs": self.n_pairs}
        return {**self.measures, "intervals": {name: list(ends) for name, ends in self.intervals.items()}, **counts}


def judge_similar(
    similar: Similar, held_out: HeldOut, popularity: npt.NDArray[np.int64], n: int = 20
) -> SimilarEvaluation:
    """Judge the first n items that `similar` lists for each item that a user adopted together with another one."""
    targets = _several_each(held_out.targets)
    if targets.shape[0] == 0:
        raise DataError("no user has two held-out items, so nothing says which items go together; hold out more")
    items = np.unique(targets.indices)
    lists = _lists(similar, items, targets.shape[1], n)
    weights = {"": 1 / np.sqrt(np.maximum(popularity, 1)), "plain_": np.ones(len(popularity))}
    rates = {f"similar_{name}hit_rate@{n}": _rates(targets, lists, weight) for name, weight in weights.items()}
    table = np.stack(list(rates.values()), axis=1)  # (n_users, 2)
    low, high = bootstrap_interval(table, np.random.default_rng(0), resample=count_resampled)
    counts = np.diff(targets.indptr).astype(np.int64)
    return SimilarEvaluation(
        measures=dict(zip(rates, table.mean(axis=0).tolist(), strict=True)),
        intervals=dict(zip(rates, zip(low.tolist(), high.tolist(), strict=True), strict=True)),
        n_users=len(counts),
        n_items=len(items),
        n_pairs=int((counts * (counts - 1)).sum()),
        per_user=rates,
    )


def _several_each(targets: csr_array) -> csr_array:
    """The users with two held-out items or more; each item counts 1."""
    chosen = csr_array(targets[np.flatnonzero(np.diff(targets.indptr) >= 2)])
    return csr_array((np.ones(chosen.nnz), chosen.indices, chosen.indptr), shape=chosen.shape)


def _lists(similar: Similar, items: npt.NDArray[Any], n_items: int, n: int) -> csr_array:
    """(n_items, n_items) 1 where the column is listed for the row."""
    found = [similar(int(item))[:n] for item in items]
    lengths = np.zeros(n_items, dtype=np.int64)
    lengths[items] = [len(one) for one in found]
    listed = np.concatenate([np.zeros(0, dtype=np.int64), *found])
    return csr_array((np.ones(len(listed)), listed, np.concatenate([[0], np.cumsum(lengths)])), shape=(n_items,) * 2)


def _rates(targets: csr_array, lists: csr_array, weight: Doubles) -> Doubles:
    """The hit rate of each user, some thousands of users at a time."""
    return np.concatenate(
        [
            _rates_of(csr_array(targets[start : start + _USERS_AT_ONCE]), lists, weight)
            for start in range(0, targets.shape[0], _USERS_AT_ONCE)
        ]
    )


def _rates_of(targets: csr_array, lists: csr_array, weight: Doubles) -> Doubles:
    hits = (targets @ lists).multiply(targets) @ weight  # no item is listed for itself
    others = np.diff(targets.indptr) - 1  # items that each held-out item may be found from
    rates: Doubles = hits / (others * (targets @ weight))
    return rates
