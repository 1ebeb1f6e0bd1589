"""CSV, TSV and Parquet tables → rows of (user, item, value, time), read column by column.

Ids in a text file stay text, so that leading zeros, spaces and accents come back exactly as they were; ids in a Parquet
file keep their type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isnan
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from milrec.data.reading.columns import Columns, chosen_columns, column_of, refuse_repeated
from milrec.data.reading.conditions import Conditions, kept_rows
from milrec.data.reading.csv.text import first_line, line_in_file, read_header, refuse_invalid
from milrec.data.reading.formats import PARQUET_ENDINGS
from milrec.data.reading.sources import Allowance, Allowed, refuse_no_file
from milrec.data.reading.times import Times, read_times
from milrec.data.reading.values import Place, numbers_of_column, row_place
from milrec.errors import DataError, cut

_ROWS_TOGETHER = 1 << 20  # that are read from a Parquet file
_MISSING = ("NoneType", "NAType", "NaTType")  # the types of what stands for no value, the last two of pandas
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
    place: Place = row_place  # where the user finds a row

    def __len__(self) -> int:
        return len(self.users)

    @property
    def n_in_source(self) -> int:
        return len(self) + sum(self.dropped.values())


def rows_of(table: Any, columns: Columns, where: str = "the table", place_of: Place = row_place) -> Rows:
    """The rows of a table in memory; `place_of` says where the user finds one."""
    table = table_of(table, where)
    chosen = chosen_columns(columns, table.column_names, where)
    if table.num_rows == 0:
        raise DataError(f"{where} has no rows")
    conditions = Conditions(chosen.where, where)
    kept = conditions.chosen(table)
    dropped = conditions.facts()

    def place(row: int) -> str:
        return place_of(kept_rows(chosen.where, table)[row])

    rows = checked_rows(kept, chosen, conditions.where, place)
    return replace(rows, dropped=dropped, place=lambda row: f"{place(row)} of {where}")


def table_of(source: Any, where: str) -> pa.Table:
    """Whatever Arrow can take over: a pyarrow Table, a pandas or polars frame, a DuckDB relation, or columns by name.

    Anything with `__arrow_c_stream__` is taken over without a copy.
    """
    if isinstance(source, pa.Table):
        return source
    if hasattr(source, "collect") and not hasattr(source, "__arrow_c_stream__"):
        raise DataError(f"{where} is a query that has not been run yet; give its result, for example query.collect()")
    try:
        return pa.table(source)
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        if isinstance(source, Mapping) or hasattr(source, "columns"):
            if hasattr(source, "keys"):
                _refuse_columns([(str(name), source[name]) for name in source], where)
            raise DataError(f"{where} does not have columns of one length and type ({first_line(error)})") from None
        raise DataError(_wrong_type(source, where)) from None


def _wrong_type(source: Any, where: str) -> str:
    cure = "give a table of pandas, polars, DuckDB or Arrow, or columns by name"
    if isinstance(source, np.ndarray):
        cure += ", or a SciPy sparse matrix: scipy.sparse.csr_array(matrix)"
    return f"{where} cannot be of type '{type(source).__name__}'; {cure}"


def _refuse_columns(columns: list[tuple[str, Any]], where: str) -> None:
    """Say which column Arrow could not take over, and why, if that is found."""
    refuse_repeated([name for name, _ in columns], where)
    for name, column in columns:
        if not isinstance(column, Iterable):
            raise DataError(f"{column_of(name, where)} is {column!r:.80}; it must be a list, one value for each row")
        if (dimensions := getattr(column, "ndim", 1)) != 1:
            raise DataError(f"{column_of(name, where)} has {dimensions} dimensions; it must have one")
    _refuse_lengths(columns, where)
    for name, column in columns:
        try:
            pa.array(column, from_pandas=True)
        except (TypeError, ValueError, OverflowError, pa.ArrowException):
            _refuse_values(column, column_of(name, where))


def _refuse_lengths(columns: list[tuple[str, Any]], where: str) -> None:
    lengths = [(name, len(column)) for name, column in columns if isinstance(column, Sized)]
    for name, length in lengths:
        first, wanted = lengths[0]
        if length != wanted:
            raise DataError(
                f"{column_of(name, where)} has {length:,} rows but column '{cut(first)}' has {wanted:,}; columns must "
                "be of one length"
            )


def _refuse_values(column: Iterable[Any], where: str) -> None:
    """Values of two types, or numbers that are too large; what is missing has no type."""
    first: tuple[int, Any] | None = None
    for row, value in enumerate(column):
        if type(value).__name__ in _MISSING or (isinstance(value, float) and isnan(value)):
            continue
        first = first or (row, value)
        if _kind(value) != _kind(first[1]):
            both = f"{_described(value)} in {row_place(row)} but {_described(first[1])} in {row_place(first[0])}"
            raise DataError(f"{where} has {both}; its values must be of one type")
        if isinstance(value, int) and value.bit_length() > 64:
            raise DataError(f"{where} has {cut(value)} in {row_place(row)}, which 64 bits cannot hold; use text")
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            raise DataError(f"{where} has '{cut(value)}' in {row_place(row)}, which is not Unicode text")
    if first is not None:
        raise DataError(f"{where} holds values of type '{_kind(first[1])}'; text or numbers are needed")


def _kind(value: Any) -> str:
    return "number" if isinstance(value, Real) and not isinstance(value, bool) else type(value).__name__


def _described(value: Any) -> str:
    if isinstance(value, str):
        return f"text '{cut(value)}'"
    return f"the number {cut(value)}" if _kind(value) == "number" else f"a value of type '{_kind(value)}'"


def checked_rows(table: pa.Table, columns: Columns, where: str, place: Place) -> Rows:
    """A block of a table: its chosen columns, checked."""
    time = None if columns.time is None else read_times(table[columns.time], column_of(columns.time, where), place)
    value = columns.value
    return Rows(
        users=checked_ids(table[columns.user], column_of(columns.user, where), place),
        items=checked_ids(table[columns.item], column_of(columns.item, where), place),
        values=None if value is None else numbers_of_column(table[value], column_of(value, where), place),
        times=None if time is None else time[1],
        time_kind=None if time is None else time[0],
        columns=columns,
    )


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


def file_place(source: Path, kind: str, row: int, allowed: Allowed) -> str:
    """Where the user finds a row, counted from 0, of a file: by its line, or by its number if there are no lines."""
    return row_place(row) if kind == "parquet" else f"line {line_in_file(source, row, allowed):,}"


def checked_ids(ids: pa.ChunkedArray, where: str, place: Place = row_place) -> pa.ChunkedArray:
    """Ids as int64 or large_string, without gaps."""
    refuse_invalid(ids, where, place)
    if pa.types.is_dictionary(ids.type):
        ids = _decoded(ids)
    if ids.null_count:
        raise DataError(f"{place(_first_true(pc.is_null(ids)))} has no id in {where}")
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
        raise DataError(f"{place(_first_true(empty))} has an empty id in {where}")
    return ids


@contextmanager
def parquet_file(source: Path) -> Iterator[pq.ParquetFile]:
    """Damage can show in any error of Arrow's, and in names and times that Python cannot hold."""
    try:
        with pq.ParquetFile(source) as file:
            yield file
    except (pa.ArrowException, OSError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise DataError(f"'{source}' cannot be read as parquet ({first_line(error)}); is it damaged?") from None


def _decoded(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Categories as what they stand for; Arrow itself cannot decode those of polars."""
    kind = ids.type.value_type
    kind = pa.large_string() if pa.types.is_string_view(kind) else kind
    return pa.chunked_array([one.dictionary.cast(kind).take(one.indices) for one in ids.chunks], type=kind)


def texts(column: pa.ChunkedArray, where: str, place: Place = row_place) -> pa.ChunkedArray:
    """A column of titles, as text."""
    refuse_invalid(column, where, place)
    try:
        return column.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"{where} holds {column.type}; text is needed") from None


def _first_true(mask: pa.ChunkedArray) -> int:
    return int(pc.index(mask, True).as_py())
