"""All pieces of a table → the rows of some users at a time, in bundles on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from milrec.data.filters import NumberedRows
from milrec.data.reading.blocks import Blocks
from milrec.data.reading.times import Times
from milrec.data.streaming.columns import DiskColumns
from milrec.data.streaming.ids import numbered
from milrec.data.streaming.pieces import Piece, row_types
from milrec.data.streaming.spill import Spill

_ROWS_OF_A_BUNDLE = 1 << 23  # at most, as long as one user does not have more
_MOST_BUNDLES = 200  # each has a file for each column


@dataclass(frozen=True)
class Bundle:
    """All rows of some users, on disk."""

    folder: Path
    types: dict[str, str]  # of its columns
    n_rows: int
    first: int  # the number of the first user among all
    n_users: int

    def rows(self) -> NumberedRows:
        """In memory; users are numbered from 0 on."""
        part = DiskColumns.opened(self.folder, dict(self.types), [0, self.n_rows])
        columns = {name: np.array(column) for name, column in part.mapped().items()}
        users = columns["users"] - np.int32(self.first)
        return NumberedRows(users, columns["items"], columns.get("values"), columns.get("times"))

    def remove(self) -> None:
        DiskColumns.opened(self.folder, dict(self.types), [0, self.n_rows]).remove()


class Collection:
    """The rows of a table, on disk."""

    def __init__(self, blocks: Blocks, pieces: Sequence[Piece], spill: Spill) -> None:
        self.blocks, self.pieces, self.spill = blocks, pieces, spill
        self._times = [time for piece in pieces for time in piece.times]
        blocks.time_kinds = [kind for kind, _ in self._times]
        self.user_ids, self._user_numbers = numbered(piece.users for piece in pieces)
        self.item_ids, self._item_numbers = numbered(piece.items for piece in pieces)

    def __len__(self) -> int:
        return sum(len(piece.rows) for piece in self.pieces)

    def bundles(self) -> list[Bundle]:
        """The rows of all users, some users at a time, in the order of their ids."""
        starts = self._starts()
        parts = self._in_parts(starts)
        users_of = pairwise([*starts, len(self.user_ids)])
        return [
            Bundle(
                folder=part.folder,
                types={name: np.dtype(kind).str for name, kind in part.types.items()},
                n_rows=len(part),
                first=first,
                n_users=end - first,
            )
            for part, (first, end) in zip(parts, users_of, strict=True)
        ]

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
        type_of_times = np.result_type(*(np.dtype(own) for _, own in self._times)) if self._times else np.int64
        types = row_types(self.blocks.columns, type_of_times)
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
        for part in parts:
            part.close()
        for piece in self.pieces:
            piece.rows.remove()
        return parts

    def _numbered_blocks(self) -> Iterator[NumberedRows]:
        number = 0
        for piece in self.pieces:
            columns = piece.rows.mapped()
            for start, end in pairwise(piece.rows.ends):
                own = {name: column[start:end] for name, column in columns.items()}
                yield NumberedRows(
                    self._user_numbers[number][own["users"]],
                    self._item_numbers[number][own["items"]],
                    own.get("values"),
                    self._same_times(number, own["times"]) if self._times else None,
                )
                number += 1

    def _same_times(self, number: int, times: npt.NDArray[np.int64]) -> Times:
        kind, type_of_block = self._times[number]
        return self.blocks.same_times(times.view(type_of_block), kind)
