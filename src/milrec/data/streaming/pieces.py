"""Pieces: the rows of some files of a table on disk, users and items as numbers among the ids of their block.

What is wrong with a row is an error that names it; the files of a table may be read in pieces by several processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milrec.data.filters import ValueChecks
from milrec.data.reading.blocks import Blocks
from milrec.data.reading.columns import Columns
from milrec.data.reading.tables import Rows
from milrec.data.streaming.columns import DiskColumns
from milrec.data.streaming.ids import IdBlocks

Report = Callable[[int], None]  # rows that have been read so far
_ROWS_TOGETHER = 1 << 22  # of a block, at least


@dataclass
class Piece:
    """The rows of some files."""

    rows: DiskColumns
    users: IdBlocks
    items: IdBlocks
    times: list[tuple[str, str]] = field(default_factory=list)  # kind and type of each block's times

    @classmethod
    def new(cls, folder: Path, columns: Columns) -> Piece:
        rows = DiskColumns(folder / "rows", row_types(columns))
        return cls(rows, IdBlocks(folder / "users.arrow"), IdBlocks(folder / "items.arrow"))

    @classmethod
    def opened(cls, folder: Path, columns: Columns, facts: dict[str, Any]) -> Piece:
        """A piece that was written before, perhaps by another process."""
        rows = DiskColumns.opened(folder / "rows", row_types(columns), facts["ends"])
        times = [(kind, own) for kind, own in facts["times"]]
        return cls(rows, IdBlocks(folder / "users.arrow"), IdBlocks(folder / "items.arrow"), times)

    def facts(self) -> dict[str, Any]:
        """What is needed to open it, as JSON holds it."""
        return {"ends": self.rows.ends, "times": self.times}

    def read(self, blocks: Blocks, checks: ValueChecks, report: Report) -> None:
        """Read all rows of the files once, check their values, and number their users and items."""
        for rows in _larger(blocks):
            checks.look(rows.values, len(rows))
            self._append(rows)
            report(len(self.rows))

    def close(self) -> None:
        for part in (self.rows, self.users, self.items):
            part.close()

    def _append(self, rows: Rows) -> None:
        times = None if rows.times is None else rows.times.view(np.int64)  # any 64 bits
        users, items = self.users.add(rows.users), self.items.add(rows.items)
        self.rows.append(users=users, items=items, values=rows.values, times=times)
        if rows.times is not None and rows.time_kind is not None:
            self.times.append((rows.time_kind, rows.times.dtype.str))


def row_types(columns: Columns, times: npt.DTypeLike = np.int64) -> dict[str, npt.DTypeLike]:
    """The columns of numbers that rows become."""
    types: dict[str, npt.DTypeLike] = {"users": np.int32, "items": np.int32}
    types |= {"values": np.float64} if columns.value is not None else {}
    return types | ({"times": times} if columns.time is not None else {})


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
