"""Rows → Interactions: what counts as adopted or rejected; duplicates merged, small users and items left out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_array

from milrec.data.interactions import Interactions, check_not_empty, sorted_ids
from milrec.data.pairs import pairs_matrix
from milrec.data.reading.tables import Rows
from milrec.data.reading.times import Times
from milrec.data.reading.values import Place
from milrec.errors import DataError, cut


@dataclass(frozen=True)
class Filters:
    """The thresholds of a data set. Without adopt_min and reject_max a value is a count, and every row is adopted."""

    adopt_min: float | None = None  # ratings of this much or more are adopted
    reject_max: float | None = None  # ratings of this much or less are rejected
    min_per_item: int = 1  # distinct adopters that an item needs; applied first. 0 keeps items that are only rejected
    min_per_user: int = 1  # adopted items that a user needs; applied second, once

    @property
    def are_thresholds(self) -> bool:
        """Whether values are ratings."""
        return self.adopt_min is not None or self.reject_max is not None

    def chosen(self) -> dict[str, float]:
        """The limits that there are, by name."""
        return {name: limit for name, limit in vars(self).items() if limit is not None}

    def __post_init__(self) -> None:
        for name in ("adopt_min", "reject_max", "min_per_item", "min_per_user"):
            limit = getattr(self, name)
            if limit is not None and not (isinstance(limit, (int, float)) and abs(limit) <= sys.float_info.max):
                raise DataError(f"`{name}` must be a finite number, not {cut(repr(limit))}")
        if self.adopt_min is not None and self.reject_max is not None and self.reject_max >= self.adopt_min:
            raise DataError(f"`reject_max` {self.reject_max:g} must be below `adopt_min` {self.adopt_min:g}")
        if self.min_per_item < 0 or self.min_per_user < 1:
            raise DataError("`min_per_user` must be at least 1, and `min_per_item` at least 0")


@dataclass(frozen=True)
class Prepared:
    """Interactions, and how many rows, users and items were left out on the way."""

    interactions: Interactions
    counts: dict[str, int]


@dataclass(frozen=True)
class Merged:
    """The pairs that some rows stand for, each once, and how many rows became none."""

    adopted: csr_array
    rejected: csr_array
    n_ignored: int  # rows that are neither adopted nor rejected
    n_duplicates: int
    n_contradicted: int  # rejected pairs that are adopted too


@dataclass(frozen=True)
class NumberedRows:
    """Rows whose users and items are numbers already."""

    users: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    values: npt.NDArray[np.float64] | None
    times: Times | None

    def merged(self, filters: Filters, shape: tuple[int, int]) -> Merged:
        """All rows of a pair must be here, and nothing else matters: rows may be merged some users at a time."""
        adopted, rejected, weights = self._labels(filters)
        latest = self._latest(filters, shape)
        matrix = self._pairs(weights, adopted & latest, shape)
        refused = self._pairs(np.ones(len(self.users)), rejected & latest, shape)
        contradicted = refused.multiply(matrix > 0).tocsr()
        refused = (refused - contradicted).tocsr()
        refused.eliminate_zeros()
        refused.data = np.ones_like(refused.data)
        counted = adopted | rejected
        cells = self.users[counted].astype(np.int64) * shape[1] + self.items[counted]
        n_ignored = int(np.count_nonzero(~counted))
        return Merged(matrix, refused, n_ignored, _n_duplicates(cells), int(contradicted.nnz))

    def _labels(self, filters: Filters) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
        """For every row: adopted, rejected, and the weight of an adoption."""
        everyone = np.ones(len(self.users), dtype=bool)
        if self.values is None:
            return everyone, ~everyone, np.ones(len(self.users))
        if not filters.are_thresholds:
            return self.values > 0, ~everyone, self.values
        rejected = self.values <= filters.reject_max if filters.reject_max is not None else ~everyone
        adopted = self.values >= filters.adopt_min if filters.adopt_min is not None else ~rejected
        return adopted, rejected, np.ones(len(self.users))

    def _latest(self, filters: Filters, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """The rows that count: if times are known, the last of several ratings of a pair; otherwise all."""
        if self.times is None or self.values is None or not filters.are_thresholds:
            return np.ones(len(self.users), dtype=bool)
        cells = self.users.astype(np.int64) * shape[1] + self.items
        order = np.lexsort((self.values, self.times, cells))
        last = np.append(np.diff(cells[order]) != 0, True)
        counts = np.zeros(len(self.users), dtype=bool)
        counts[order[last]] = True
        return counts

    def _pairs(
        self, weights: npt.NDArray[np.float64], rows: npt.NDArray[np.bool_], shape: tuple[int, int]
    ) -> csr_array:
        """The pairs in some of the rows."""
        return pairs_matrix(self.users[rows], self.items[rows], weights[rows], shape)


def prepare(rows: Rows, filters: Filters, source: str = "the table") -> Prepared:
    """Turn rows into interactions under the given filters."""
    if len(rows) == 0:
        raise DataError(f"{source} has no rows")
    checks = ValueChecks(filters, rows.place)
    checks.look(rows.values, len(rows))
    checks.end()
    user_ids, users = sorted_ids(rows.users)
    item_ids, items = sorted_ids(rows.items)
    shape = (len(user_ids), len(item_ids))
    merged = NumberedRows(users, items, rows.values, rows.times).merged(filters, shape)
    table = item_table(item_ids, rows.item_table)
    whole = Interactions(merged.adopted, merged.rejected, pa.table({"id": user_ids}), table)
    kept = check_not_empty(_filtered(whole, filters), source)
    counts = {
        "rows_in_source": rows.n_in_source,
        **rows.dropped,
        "rows": len(rows),
        "rows_neither_adopted_nor_rejected": merged.n_ignored,
        "duplicates_merged": merged.n_duplicates,
        "rejections_contradicted": merged.n_contradicted,
        "users_left_out": shape[0] - kept.n_users,
        "items_left_out": shape[1] - kept.n_items,
        **title_counts(kept.items, rows.item_table),
    }
    note = {} if rows.note is None else {"note": rows.note}
    return Prepared(replace(kept, reading={**rows.columns.facts(), **counts, **note}), counts)


def _n_duplicates(cells: npt.NDArray[np.int64]) -> int:
    """How many rows repeat a pair."""
    return int(np.count_nonzero(np.diff(np.sort(cells)) == 0))


class ValueChecks:
    """Whether values are what the filters take them for, looked at block by block."""

    def __init__(self, filters: Filters, place: Place) -> None:
        """`place`: where the user finds a row of all blocks, counted from 0."""
        self.filters, self.place = filters, place
        self.n_rows = 0
        self._largest, self._row = 0.0, 0  # count, and where it is

    def look(self, values: npt.NDArray[np.float64] | None, n_rows: int) -> None:
        if values is None and self.filters.are_thresholds:
            raise DataError("`adopt_min` and `reject_max` need a column of values; name it with `value`")
        if values is not None and not self.filters.are_thresholds:
            self._look_at_counts(values)
        self.n_rows += n_rows

    def _look_at_counts(self, values: npt.NDArray[np.float64]) -> None:
        strange = np.flatnonzero((values < 0) | ((values > 0) & (values < np.finfo(np.float32).tiny)))
        if len(strange) and values[strange[0]] < 0:
            raise DataError(
                f"the count in {self.place(self.n_rows + int(strange[0]))} is {values[strange[0]]:g}; counts cannot "
                "be negative (if these are ratings, give `adopt_min`)"
            )
        if len(strange):
            self._refuse(values[strange[0]], self.n_rows + int(strange[0]))
        place = int(values.argmax()) if len(values) else 0
        if len(values) and values[place] > self._largest:
            self._largest, self._row = float(values[place]), self.n_rows + place

    def facts(self) -> list[float]:
        """The rows so far, the largest count and its row."""
        return [self.n_rows, self._largest, self._row]

    def add(self, facts: Sequence[float]) -> None:
        """Take over what others found in the rows that follow."""
        n_rows, largest, row = facts
        if largest > self._largest:
            self._largest, self._row = largest, self.n_rows + int(row)
        self.n_rows += int(n_rows)

    def end(self) -> None:
        """Weights are kept in 32 bits: a sum of counts beyond them would become infinite."""
        if self.n_rows and self._largest > float(np.finfo(np.float32).max) / self.n_rows:
            self._refuse(self._largest, self._row)

    def _refuse(self, count: float, row: int) -> None:
        raise DataError(f"the count in {self.place(row)} is {count:g}, which 32 bits cannot hold")


def _filtered(data: Interactions, filters: Filters) -> Interactions:
    """Items first, then users, each once, as in the paper; then everything that has nothing left."""
    items = data.popularity() >= filters.min_per_item
    data = data.subset(np.ones(data.n_users, dtype=bool), items)
    users = np.diff(data.adopted.indptr) >= filters.min_per_user
    data = data.subset(users, np.ones(data.n_items, dtype=bool))
    rejections = np.bincount(data.rejected.indices, minlength=data.n_items) if filters.min_per_item == 0 else 0
    return data.subset(np.ones(data.n_users, dtype=bool), data.popularity() + rejections > 0)


def title_counts(kept: pa.Table, known: pa.Table | None) -> dict[str, int]:
    """Items for which no title was found, and titles of an item that already has one."""
    if known is None:
        return {}
    repeated = len(known) - int(pc.count_distinct(known["id"]).as_py())
    return {"items_without_title": kept["title"].null_count, "titles_repeated": repeated}


def item_table(item_ids: pa.Array, known: pa.Table | None) -> pa.Table:
    """Items with what is known about them; an item without an entry has no title, and of several the first counts."""
    if known is None:
        return pa.table({"id": item_ids})
    ids = known["id"].combine_chunks()
    if ids.type != item_ids.type:
        item_texts, ids = item_ids.cast(pa.large_string()), ids.cast(pa.large_string())
    else:
        item_texts = item_ids
    found = pc.index_in(item_texts, value_set=ids)
    columns: dict[str, Any] = {name: known[name].take(found) for name in known.column_names if name != "id"}
    return pa.table({"id": item_ids, **columns})
