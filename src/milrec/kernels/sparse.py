"""Rows: a few rows cut out of a sparse matrix, such as a batch of users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from milrec.kernels.rows import taken_rows, transposed

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Transposed:
    """Pairs by item instead of by user: the rows of a weight that they touch, each with its users."""

    rows: npt.NDArray[np.int32]  # (n_rows,) items
    indptr: npt.NDArray[np.int64]  # (n_rows + 1,)
    users: npt.NDArray[np.int32]  # (n_pairs,)
    coefficients: Floats  # (n_pairs,)


@dataclass(frozen=True)
class Rows:
    """Rows cut out of a sparse matrix, items in ascending order."""

    indptr: npt.NDArray[np.int64]  # (n_rows + 1,)
    items: npt.NDArray[np.int32]  # (n_pairs,)
    values: Floats  # (n_pairs,)

    @classmethod
    def of(cls, pairs: csr_array, users: npt.NDArray[np.integer[Any]]) -> Rows:
        """The given rows of a matrix."""
        return cls(*taken_rows(pairs.indptr, pairs.indices, pairs.data, users))

    @classmethod
    def none(cls, n_rows: int) -> Rows:
        nothing = np.zeros(0)
        return cls(np.zeros(n_rows + 1, dtype=np.int64), nothing.astype(np.int32), nothing.astype(np.float32))

    @classmethod
    def stacked(cls, items: Sequence[npt.NDArray[np.int32]], values: Sequence[Floats] | None = None) -> Rows:
        """One row for each array of items; their values are 1 if none are given."""
        indptr = np.cumsum([0, *(len(row) for row in items)], dtype=np.int64)
        joined = np.concatenate([np.zeros(0, dtype=np.int32), *items]).astype(np.int32)
        ones = np.ones(len(joined), dtype=np.float32)
        return cls(indptr, joined, ones if values is None else np.concatenate([ones[:0], *values]))

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        return np.diff(self.indptr)

    @property
    def users(self) -> npt.NDArray[np.int64]:
        """The row of each pair."""
        return np.repeat(np.arange(self.n_rows), self.counts)

    def transposed(self, first_rows: npt.NDArray[np.int32], counts: npt.NDArray[np.int64]) -> Transposed:
        """The same by item: `first_rows`, and the others that occur; `counts` is a zeroed array over all items."""
        return Transposed(*transposed(self.users, self.items, self.values, first_rows, counts))

    def cut(self, start: int, stop: int) -> Rows:
        """Rows start … stop-1, or as many of them as there are."""
        indptr = self.indptr[start : stop + 1]
        pairs = slice(indptr[0], indptr[-1])
        return Rows(indptr - indptr[0], self.items[pairs], self.values[pairs])

    def filled(self, n_rows: int) -> Rows:
        """The same, with empty rows added up to a number."""
        more = np.full(n_rows - self.n_rows, self.indptr[-1])
        return Rows(np.concatenate([self.indptr, more]), self.items, self.values)

    def dense(self, n_items: int) -> Floats:
        dense = np.zeros((self.n_rows, n_items), dtype=np.float32)
        dense[self.users, self.items] = self.values
        return dense
