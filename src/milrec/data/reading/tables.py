"""CSV, TSV and Parquet tables → rows of (user, item, value, time), read column by column.

Ids in a text file stay text, so that leading zeros, spaces and accents come back exactly as they were; ids in a Parquet
file keep their type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from milrec.data.reading.columns import Columns, chosen_columns, column_of, refuse_repeated, title_columns
from milrec.data.reading.conditions import Conditions
from milrec.data.reading.formats import PARQUET_ENDINGS
from milrec.data.reading.sources import Allowance, Allowed, refuse_no_file
from milrec.data.reading.text import LINES_OF_A_TITLE, first_line, read_file, read_header, refuse_invalid
from milrec.data.reading.times import Times, read_times
from milrec.data.reading.values import numbers_of_column
from milrec.errors import DataError

_ROWS_TOGETHER = 1 << 20  # that are read from a Parquet file
_SHORTEST_ROW = 4  # bytes of a row as text: a user, an item, and what separates them


@dataclass(frozen=True)
class Rows:
    """Interactions as they are in a source, one entry per row, with what is known about the items."""

    users: pa.ChunkedArray
    items: pa.ChunkedArray
    values: npt.NDArray[np.float64] | None = None
    times: Times | None = None  # in any unit: only their order counts
    time_kind: str | None = None  # what these times are, to know whether others go with them
    item_table: pa.Table | None = None  # columns id, title and optionally genres
    note: str | None = None  # something that the user should know
    columns: Columns = field(default_factory=Columns)  # where the entries come from, if the source is a table
    dropped: Mapping[str, int] = field(default_factory=dict)  # rows of the source that are not here, by reason

    def __len__(self) -> int:
        return len(self.users)

    @property
    def n_in_source(self) -> int:
        return len(self) + sum(self.dropped.values())


def rows_of(table: Any, columns: Columns, where: str = "the table") -> Rows:
    """The rows of a table in memory: a pyarrow Table, a pandas or polars frame, or a mapping of columns."""
    try:
        table = table if isinstance(table, pa.Table) else pa.table(table)
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise DataError(f"{where} is not a table with columns ({first_line(error)})") from None
    chosen = chosen_columns(columns, table.column_names, where)
    if table.num_rows == 0:
        raise DataError(f"{where} has no rows")
    conditions = Conditions(chosen.where, where)
    table = conditions.chosen(table)
    dropped = conditions.facts()
    return replace(checked_rows(table, chosen, conditions.where), dropped=dropped)


def checked_rows(table: pa.Table, columns: Columns, where: str, before: int = 0) -> Rows:
    """A block of a table: its chosen columns, checked; `before`: how many of its rows came before."""
    time = None if columns.time is None else read_times(table[columns.time], column_of(columns.time, where), before)
    value = columns.value
    return Rows(
        users=checked_ids(table[columns.user], column_of(columns.user, where), before),
        items=checked_ids(table[columns.item], column_of(columns.item, where), before),
        values=None if value is None else numbers_of_column(table[value], column_of(value, where), before),
        times=None if time is None else time[1],
        time_kind=None if time is None else time[0],
        columns=columns,
    )


def read_titles(source: Path, item: str | None = None, allowed: Allowed | None = None) -> pa.Table:
    """A table of items (id, title, and genres if there are any) from a CSV/TSV or Parquet file."""
    allowed, where = allowed or Allowed(), f"'{source}'"
    kind = "parquet" if is_parquet(source) else "csv"
    chosen = title_columns(item, column_names(source, kind, allowed), where)
    if kind == "parquet":
        table = read_parquet(source, chosen.wanted, allowed)
    else:
        table = read_file(source, dict.fromkeys(chosen.wanted, pa.string()), LINES_OF_A_TITLE, allowed)
    ids = checked_ids(table[chosen.item], column_of(chosen.item, where))
    texts = {"title": _texts(table[chosen.title], column_of(chosen.title, where))}
    if chosen.genres:
        texts["genres"] = _texts(table[chosen.genres], column_of(chosen.genres, where))
    return pa.table({"id": ids, **texts})


def is_parquet(source: Path) -> bool:
    """Whether the name or the first bytes of a file say that it is Parquet; damaged or not, it is never text."""
    if source.suffix.lower() in PARQUET_ENDINGS:
        return True
    if not source.is_file():
        return False
    with source.open("rb") as file:
        return file.read(4) == b"PAR1"


def column_names(source: Path, kind: str, allowed: Allowed | None = None) -> list[str]:
    """The names of a file's columns."""
    refuse_no_file(source)
    if kind == "parquet":
        with parquet_file(source) as file:
            names = list(file.schema_arrow.names)
    elif is_parquet(source):
        raise DataError(f"'{source}' is a Parquet file, perhaps a damaged one; it cannot be read as csv")
    else:
        names = read_header(source, allowed or Allowed())[1]
    refuse_repeated(names, f"'{source}'")
    return names


def read_parquet(source: Path, wanted: Sequence[str], allowed: Allowed) -> pa.Table:
    """Some columns of a Parquet file."""
    return pa.concat_tables(parquet_blocks(source, wanted, allowed))


def parquet_blocks(source: Path, wanted: Sequence[str], allowed: Allowed) -> Iterator[pa.Table]:
    """The same a block of rows at a time; at least one, which may be empty."""
    allowance = Allowance.of(source, allowed.max_expansion)
    with parquet_file(source) as file:
        n_rows, found = file.metadata.num_rows, 0
        allowance.take(n_rows * _SHORTEST_ROW)
        schema = file.schema_arrow
        yield pa.schema([schema.field(name) for name in wanted]).empty_table()
        for batch in file.iter_batches(_ROWS_TOGETHER, columns=list(wanted)):
            found += batch.num_rows
            yield pa.Table.from_batches([batch])
        if found != n_rows:
            raise DataError(f"'{source}' is damaged: it has {found:,} of {n_rows:,} rows")


def checked_ids(ids: pa.ChunkedArray, where: str, before: int = 0) -> pa.ChunkedArray:
    """Ids as int64 or large_string, without gaps."""
    refuse_invalid(ids, where, before)
    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    if ids.null_count:
        raise DataError(f"row {before + _first_true(pc.is_null(ids))} has no id in {where}")
    if pa.types.is_integer(ids.type):
        try:
            return ids.cast(pa.int64())
        except pa.ArrowInvalid:
            raise DataError(f"{where} has an id that 64 bits cannot hold; store such ids as text") from None
    if not (pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type) or pa.types.is_string_view(ids.type)):
        raise DataError(f"{where} has ids of type {ids.type}; ids must be text or whole numbers")
    ids = ids.cast(pa.large_string())
    empty = pc.equal(pc.utf8_length(ids), 0)
    if pc.any(empty).as_py():
        raise DataError(f"row {before + _first_true(empty)} has an empty id in {where}")
    return ids


@contextmanager
def parquet_file(source: Path) -> Iterator[pq.ParquetFile]:
    """Damage can show in any error of Arrow's, and in names and times that Python cannot hold."""
    try:
        with pq.ParquetFile(source) as file:
            yield file
    except (pa.ArrowException, OSError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise DataError(f"'{source}' cannot be read as parquet ({first_line(error)}); is it damaged?") from None


def _texts(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    refuse_invalid(column, where)
    try:
        return column.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"{where} holds {column.type}; text is needed") from None


def _first_true(mask: pa.ChunkedArray) -> int:
    return int(pc.index(mask, True).as_py()) + 1
