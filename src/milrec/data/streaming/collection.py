"""Blocks of rows → the same rows on disk, users and items as numbers, and then the rows of some users at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milrec.data.filters import Filters, NumberedRows, ValueChecks
from milrec.data.reading.blocks import Blocks
from milrec.data.reading.tables import Rows
from milrec.data.reading.times import Times
from milrec.data.streaming.columns import DiskColumns
from milrec.data.streaming.ids import Numbers
from milrec.data.streaming.spill import Spill

Report = Callable[[int], None]  # rows that have been read so far
_ROWS_TOGETHER = 1 << 22  # of a block, at least
_ROWS_OF_A_BUNDLE = 1 << 23  # at most, as long as one user does not have more
_MOST_BUNDLES = 200  # each has a file for each column


@dataclass(frozen=True)
class Bundle:
    """All rows of some users, who are numbered from 0 on."""

    rows: NumberedRows
    first: int  # the number of the first of them among all users
    n_users: int


class Collection:
    """The rows of a table, on disk."""

    def __init__(self, blocks: Blocks, spill: Spill) -> None:
        self.blocks, self.spill = blocks, spill
        self.user_ids = self.item_ids = pa.array([], type=pa.large_string())
        self._has_values, self._has_times = blocks.columns.value is not None, blocks.columns.time is not None
        self._rows = spill.columns("rows", self._types(np.dtype(np.int64)))
        self._users, self._items = spill.ids("users"), spill.ids("items")
        self._user_numbers: list[Numbers] = []  # for each block: its own numbers → those among all
        self._item_numbers: list[Numbers] = []
        self._times: list[tuple[str, np.dtype[np.generic]]] = []  # kind and type of each block's times

    def _types(self, times: np.dtype[np.generic]) -> dict[str, npt.DTypeLike]:
        types: dict[str, npt.DTypeLike] = {"users": np.int32, "items": np.int32}
        types |= {"values": np.float64} if self._has_values else {}
        return types | ({"times": times} if self._has_times else {})

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, filters: Filters, report: Report) -> None:
        """Read all rows once, check their values, and number their users and items."""
        checks = ValueChecks(filters, self.blocks.source)
        for rows in _larger(self.blocks):
            checks.look(rows.values, len(rows))
            self._append(rows)
            report(len(self))
        checks.end()
        self.user_ids, self._user_numbers = self._users.numbered()
        self.item_ids, self._item_numbers = self._items.numbered()

    def _append(self, rows: Rows) -> None:
        times = None if rows.times is None else rows.times.view(np.int64)  # any 64 bits
        users, items = self._users.add(rows.users), self._items.add(rows.items)
        self._rows.append(users=users, items=items, values=rows.values, times=times)
        if rows.times is not None and rows.time_kind is not None:
            self._times.append((rows.time_kind, rows.times.dtype))

    def bundles(self) -> Iterator[Bundle]:
        """The rows of all users, some users at a time, in the order of their ids."""
        starts = self._starts()
        parts = self._in_parts(starts)
        for part, first, end in zip(parts, starts, [*starts[1:], len(self.user_ids)], strict=True):
            columns = {name: np.array(column) for name, column in part.mapped().items()}
            part.remove()
            users = columns["users"] - np.int32(first)
            rows = NumberedRows(users, columns["items"], columns.get("values"), columns.get("times"))
            yield Bundle(rows, first, end - first)

    def _starts(self) -> list[int]:
        """The first user of each bundle."""
        counts = np.zeros(len(self.user_ids), dtype=np.int64)
        for block in self._numbered_blocks():
            counts += np.bincount(block.users, minlength=len(counts))
        size = max(_ROWS_OF_A_BUNDLE, len(self) // _MOST_BUNDLES + 1)
        starts, n_rows = [0], 0
        ends = np.cumsum(counts)
        while n_rows < len(self):
            place = int(np.searchsorted(ends, n_rows + size, side="right"))  # users up to here have no more rows
            place = max(place, starts[-1] + 1)
            n_rows = int(ends[place - 1])
            starts.append(place)
        return starts[:-1]

    def _in_parts(self, starts: list[int]) -> list[DiskColumns]:
        """The rows of each bundle in files of their own."""
        type_of_times = np.result_type(*(kind for _, kind in self._times)) if self._times else np.dtype(np.int64)
        types = self._types(type_of_times)
        parts = [self.spill.columns(f"bundle-{number}", types) for number in range(len(starts))]
        for block in self._numbered_blocks():
            bundle = (np.searchsorted(starts, block.users, side="right") - 1).astype(np.uint8)
            order = np.argsort(bundle, kind="stable")
            ends = np.cumsum(np.bincount(bundle, minlength=len(parts)))
            for part, rows in zip(parts, np.split(order, ends[:-1]), strict=True):
                if len(rows):
                    part.append(
                        users=block.users[rows],
                        items=block.items[rows],
                        values=None if block.values is None else block.values[rows],
                        times=None if block.times is None else block.times[rows],
                    )
        self._rows.remove()
        return parts

    def _numbered_blocks(self) -> Iterator[NumberedRows]:
        columns, ends = self._rows.mapped(), self._rows.ends
        for number, (start, end) in enumerate(pairwise(ends)):
            own = {name: column[start:end] for name, column in columns.items()}
            yield NumberedRows(
                self._user_numbers[number][own["users"]],
                self._item_numbers[number][own["items"]],
                own.get("values"),
                self._same_times(number, own["times"]) if self._has_times else None,
            )

    def _same_times(self, number: int, times: npt.NDArray[np.int64]) -> Times:
        kind, type_of_block = self._times[number]
        return self.blocks.same_times(times.view(type_of_block), kind)


def _larger(blocks: Blocks) -> Iterator[Rows]:
    """The same rows in blocks of at least a few million, if there are as many and their times go together."""
    waiting: list[Rows] = []
    for rows in blocks:
        if waiting and (sum(map(len, waiting)) >= _ROWS_TOGETHER or rows.time_kind != waiting[0].time_kind):
            yield _joined(waiting)
            waiting = []
        waiting.append(rows)
    if waiting:
        yield _joined(waiting)


def _joined(several: list[Rows]) -> Rows:
    first = several[0]
    return replace(
        first,
        users=pa.chunked_array([chunk for rows in several for chunk in rows.users.chunks]),
        items=pa.chunked_array([chunk for rows in several for chunk in rows.items.chunks]),
        values=None if first.values is None else np.concatenate([rows.values for rows in several]),
        times=None if first.times is None else np.concatenate([rows.times for rows in several]),
    )
