"""CSV, TSV and Parquet tables of any size → rows, a block at a time.

A table may be one file or many. What is known only at the end (which rows were left out, what kind of times there are)
is there once all blocks were taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from milrec.data.reading.columns import Columns, chosen_columns, column_of, unused_value
from milrec.data.reading.conditions import Conditions, kept_rows
from milrec.data.reading.csv.text import file_blocks, lines_allowed, refuse_text
from milrec.data.reading.sources import Allowed
from milrec.data.reading.tables import Rows, checked_rows, column_names, file_place, parquet_blocks
from milrec.data.reading.times import Times, brought_to, joined_kind
from milrec.data.reading.values import refuse_inexact
from milrec.errors import DataError


class Blocks:
    """The rows of the files of a table, read once, in their order."""

    def __init__(self, files: Sequence[Path], columns: Columns, kind: str, allowed: Allowed) -> None:
        self.files, self.kind, self.allowed = files, kind, allowed
        self.source = f"'{files[0]}'" if len(files) == 1 else f"'{files[0]}' and {len(files) - 1:,} more files"
        self.wanted = columns
        names = column_names(files[0], kind, allowed)
        self.columns = chosen_columns(columns, names, f"'{files[0]}'")
        self.names = names  # of all columns
        self.note = unused_value(self.columns, names)
        self.n_rows = 0
        self.time_kinds: list[str] = []  # of each block
        self._conditions = Conditions(self.columns.where, self.source)
        self._types: tuple[pa.DataType, pa.DataType] | None = None
        self._types_elsewhere: list[str] | None = None

    def __iter__(self) -> Iterator[Rows]:
        for file in self.files:
            n_before = 0
            for table in self._tables(file):
                chosen = self._conditions.chosen(table)
                where = self._conditions.where if len(self.files) == 1 else f"'{file}'"
                place = partial(self._place_in, file, table, n_before)
                rows = checked_rows(chosen, self.columns, where, place)
                self._refuse_other_types(rows, file)
                if self.kind == "csv" and rows.values is not None:  # read as floating-point numbers, whatever they were
                    refuse_inexact(rows.values, column_of(self.columns.value, where), place)
                n_before += table.num_rows
                if len(rows):
                    self.n_rows += len(rows)
                    self.time_kinds += [rows.time_kind] if rows.time_kind is not None else []
                    yield rows

    def end(self) -> None:
        """Refuse a table without rows, or of which no row meets the conditions; once all blocks were taken."""
        if not self.n_rows and not self.columns.where:
            raise DataError(f"{self.source} has no rows")
        self._conditions.facts()

    def place(self, row: int) -> str:
        """Where the user finds one of the rows that were chosen, counted from 0; the files are read again for it."""
        for file in self.files:
            n_before = 0
            for table in self._tables(file):
                chosen = kept_rows(self.columns.where, table)
                if row < len(chosen):
                    return f"{self._place_below(file, n_before, chosen[row])} of '{file}'"
                row -= len(chosen)
                n_before += table.num_rows
        raise DataError(f"{self.source} changed while it was being read; start again")

    def _place_in(self, file: Path, table: pa.Table, n_before: int, row: int) -> str:
        """The same for a row that was chosen from a block, with so many rows of the file before it."""
        return self._place_below(file, n_before, kept_rows(self.columns.where, table)[row])

    def facts(self) -> dict[str, Any]:
        """What was found in these files, as JSON holds it."""
        types = None if self._types is None else [str(one) for one in self._types]
        return {"n_rows": self.n_rows, "types": types, "conditions": self._conditions.found()}

    def add(self, found: Mapping[str, Any]) -> bool:
        """Take over what was found in the next of these files by others; False if their ids are of another type."""
        self.n_rows += found["n_rows"]
        self._conditions.add(found["conditions"])
        types = found["types"]
        self._types_elsewhere = self._types_elsewhere or types
        return types is None or types == self._types_elsewhere

    @property
    def dropped(self) -> dict[str, int]:
        """Rows of the source that were left out, by reason."""
        return self._conditions.facts()

    def time_kind(self) -> str | None:
        """The kind of all times; None without times."""
        if not self.time_kinds:
            return None
        return joined_kind(self.time_kinds, column_of(self.columns.time, self.source))

    def same_times(self, times: Times, own: str) -> Times:
        """The times of a block, which are of their own kind, in the kind of all."""
        return brought_to(self.time_kind() or own, own, times, column_of(self.columns.time, self.source))

    def _tables(self, file: Path) -> Iterator[pa.Table]:
        if file != self.files[0]:
            chosen_columns(self.columns, column_names(file, self.kind, self.allowed), f"'{file}'")
        needed = list(dict.fromkeys([*self.columns.wanted, *self.columns.where]))
        if self.kind == "parquet":
            yield from parquet_blocks(file, needed, self.allowed)
            return
        number = self.columns.value
        types = {name: pa.float64() if name == number else pa.string() for name in needed}
        try:
            yield from file_blocks(file, types, lines_allowed(self.allowed), self.allowed)
        except DataError:
            if number is not None:
                self._refuse_text(file, number)
            raise

    def _refuse_text(self, file: Path, name: str) -> None:
        blocks, n_before = file_blocks(file, {name: pa.string()}, lines_allowed(self.allowed), self.allowed), 0
        while True:
            try:
                table = next(blocks, None)
            except DataError:
                return  # something else is wrong with the file
            if table is None:
                return
            refuse_text(table[name], column_of(name, f"'{file}'"), partial(self._place_below, file, n_before))
            n_before += table.num_rows

    def _place_below(self, file: Path, n_before: int, row: int) -> str:
        return file_place(file, self.kind, n_before + row, self.allowed)

    def _refuse_other_types(self, rows: Rows, file: Path) -> None:
        types = rows.users.type, rows.items.type
        self._types = self._types or types
        for own, first, name in zip(types, self._types, (self.columns.user, self.columns.item), strict=True):
            if own != first:
                kinds = ["whole numbers" if pa.types.is_integer(one) else "text" for one in (first, own)]
                column = column_of(name, f"'{file}'")
                raise DataError(f"{column} holds {kinds[1]}, where the files before it hold {kinds[0]}")


def read_rows(files: Path | Sequence[Path], columns: Columns, kind: str, allowed: Allowed | None = None) -> Rows:
    """The rows of a CSV/TSV (`kind` "csv") or Parquet table, all of them in memory."""
    blocks = Blocks([files] if isinstance(files, Path) else files, columns, kind, allowed or Allowed())
    found = list(blocks)
    blocks.end()
    return replace(
        found[0],
        users=pa.chunked_array([chunk for rows in found for chunk in rows.users.chunks]),
        items=pa.chunked_array([chunk for rows in found for chunk in rows.items.chunks]),
        values=None if blocks.columns.value is None else np.concatenate([rows.values for rows in found]),
        times=None if blocks.columns.time is None else np.concatenate([*_times(blocks, found)]),
        time_kind=blocks.time_kind(),
        note=blocks.note,
        dropped=blocks.dropped,
        place=blocks.place,
    )


def _times(blocks: Blocks, found: Sequence[Rows]) -> Iterator[Times]:
    for rows in found:
        assert rows.times is not None and rows.time_kind is not None
        yield blocks.same_times(rows.times, rows.time_kind)
