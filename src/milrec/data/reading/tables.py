"""CSV, TSV and Parquet tables → rows of (user, item, value, time), read column by column.

Ids in a text file stay text, so that leading zeros, spaces and accents come back exactly as they were; ids in a Parquet
file keep their type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from milrec.data.reading.columns import (
    Columns,
    chosen_columns,
    column_of,
    listed,
    refuse_repeated,
    title_columns,
    unused_value,
)
from milrec.data.reading.formats import PARQUET_ENDINGS
from milrec.data.reading.sources import Allowance, Allowed, refuse_no_file
from milrec.data.reading.text import (
    LINES_OF_A_TITLE,
    first_line,
    lines_allowed,
    read_file,
    read_header,
    refuse_invalid,
    refuse_text,
)
from milrec.errors import DataError, cut

Times = npt.NDArray[np.int64] | npt.NDArray[np.uint64] | npt.NDArray[np.float64]

_SHORTEST_ROW = 4  # bytes of a row as text: a user, an item, and what separates them
_EXACT = 2**53  # below it, every whole number is a 64-bit floating-point number
_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")  # 007 is text


@dataclass(frozen=True)
class Rows:
    """Interactions as they are in a source, one entry per row, with what is known about the items."""

    users: pa.ChunkedArray
    items: pa.ChunkedArray
    values: npt.NDArray[np.float64] | None = None
    times: Times | None = None  # in any unit: only their order counts
    item_table: pa.Table | None = None  # columns id, title and optionally genres
    note: str | None = None  # something that the user should know
    columns: Columns = field(default_factory=Columns)  # where the entries come from, if the source is a table
    dropped: Mapping[str, int] = field(default_factory=dict)  # rows of the source that are not here, by reason

    def __len__(self) -> int:
        return len(self.users)

    @property
    def n_in_source(self) -> int:
        return len(self) + sum(self.dropped.values())


def read_rows(source: Path, columns: Columns, kind: str, allowed: Allowed | None = None) -> Rows:
    """The rows of a CSV/TSV (`kind` "csv") or Parquet file."""
    allowed = allowed or Allowed()
    where = f"'{source}'"
    names = column_names(source, kind, allowed)
    chosen = chosen_columns(columns, names, where)
    needed = list(dict.fromkeys([*chosen.wanted, *chosen.where]))
    if kind == "parquet":
        table = read_parquet(source, needed, allowed)
    else:
        table = _read_csv(source, needed, chosen.value, allowed)
    rows = rows_of(table, chosen, where, note=unused_value(chosen, names))
    if kind == "csv" and rows.values is not None:  # read as 64-bit floating-point numbers, whatever they were
        _refuse_inexact(rows.values, column_of(chosen.value, where))
    return rows


def rows_of(table: Any, columns: Columns, where: str = "the table", note: str | None = None) -> Rows:
    """The rows of a table in memory: a pyarrow Table, a pandas or polars frame, or a mapping of columns."""
    try:
        table = table if isinstance(table, pa.Table) else pa.table(table)
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise DataError(f"{where} is not a table with columns ({first_line(error)})") from None
    chosen = chosen_columns(columns, table.column_names, where)
    if table.num_rows == 0:
        raise DataError(f"{where} has no rows")
    n_rows, dropped = table.num_rows, {}
    for name, value in chosen.where.items():
        table = _rows_with(table, name, value, where)
        where = f"{where} where {cut(name)}={cut(str(value))}"
    if chosen.where:
        dropped = {"rows_left_out_by_where": n_rows - table.num_rows}
    return Rows(
        users=checked_ids(table[chosen.user], column_of(chosen.user, where)),
        items=checked_ids(table[chosen.item], column_of(chosen.item, where)),
        values=None if chosen.value is None else _numbers(table[chosen.value], column_of(chosen.value, where)),
        times=None if chosen.time is None else _times(table[chosen.time], column_of(chosen.time, where)),
        note=note,
        columns=chosen,
        dropped=dropped,
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
        with _parquet_file(source) as file:
            names = list(file.schema_arrow.names)
    elif is_parquet(source):
        raise DataError(f"'{source}' is a Parquet file, perhaps a damaged one; it cannot be read as csv")
    else:
        names = read_header(source, allowed or Allowed())[1]
    refuse_repeated(names, f"'{source}'")
    return names


def read_parquet(source: Path, wanted: Sequence[str], allowed: Allowed) -> pa.Table:
    """Some columns of a Parquet file."""
    allowance = Allowance.of(source, allowed.max_expansion)
    with _parquet_file(source) as file:
        allowance.take(file.metadata.num_rows * _SHORTEST_ROW)
        table = file.read(columns=list(wanted))
        if table.num_rows != file.metadata.num_rows:
            raise DataError(f"'{source}' is damaged: it has {table.num_rows:,} of {file.metadata.num_rows:,} rows")
    return table


def checked_ids(ids: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    """Ids as int64 or large_string, without gaps."""
    refuse_invalid(ids, where)
    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    if ids.null_count:
        raise DataError(f"row {_first_true(pc.is_null(ids))} has no id in {where}")
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
        raise DataError(f"row {_first_true(empty)} has an empty id in {where}")
    return ids


def _read_csv(source: Path, wanted: Sequence[str], number: str | None, allowed: Allowed) -> pa.Table:
    """Some columns of a CSV file as text, except for one that must be numbers."""
    types = {name: pa.float64() if name == number else pa.string() for name in wanted}
    try:
        return read_file(source, types, lines_allowed(allowed), allowed)
    except DataError:
        if number is not None:
            _refuse_text(source, number, allowed)
        raise


def _refuse_text(source: Path, name: str, allowed: Allowed) -> None:
    try:
        texts = read_file(source, {name: pa.string()}, lines_allowed(allowed), allowed)[name]
    except DataError:
        return  # something else is wrong with the file
    refuse_text(texts, column_of(name, f"'{source}'"))


@contextmanager
def _parquet_file(source: Path) -> Iterator[pq.ParquetFile]:
    """Damage can show in any error of Arrow's, and in names and times that Python cannot hold."""
    try:
        with pq.ParquetFile(source) as file:
            yield file
    except (pa.ArrowException, OSError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise DataError(f"'{source}' cannot be read as parquet ({first_line(error)}); is it damaged?") from None


def _rows_with(table: pa.Table, name: str, wanted: Any, where: str) -> pa.Table:
    """The rows that have a value in a column; an empty field is not a value."""
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    meant = _meaning(wanted)
    try:
        distinct = pc.unique(column).drop_null()
        equal = [_meaning(value) == meant for value in distinct.to_pylist()]
        if not any(equal):
            values = listed([str(value) for value in distinct.to_pylist()], most=5)
            raise DataError(
                f"no row of {where} has {cut(name)}={cut(str(wanted))}; the column holds {values or 'nothing'}"
            )
        return table.filter(pc.is_in(column, value_set=distinct.filter(pa.array(equal, type=pa.bool_()))))
    except (pa.ArrowException, ValueError, KeyError, OverflowError):  # times that Python cannot hold are among these
        raise DataError(f"{column_of(name, where)} holds {column.type}, which cannot be compared") from None


def _meaning(value: Any) -> Decimal | str:
    """How values are compared: true and false as 1 and 0, numbers by size, anything else as text."""
    text = str(value)
    if text.lower() in ("true", "false"):
        return Decimal(text.lower() == "true")
    return Decimal(text) if _NUMBER.fullmatch(text) else text


def _numbers(column: pa.ChunkedArray, where: str) -> npt.NDArray[np.float64]:
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        raise DataError(f"{where} holds {column.type}; a number is needed")
    values: npt.NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    broken = np.flatnonzero(~np.isfinite(values))
    if len(broken):
        found = "no number" if np.isnan(values[broken[0]]) else str(values[broken[0]])
        raise DataError(f"{where} has {found} in row {broken[0] + 1}; remove or repair such rows")
    if not pa.types.is_floating(column.type):
        _refuse_inexact(values, where)
    return values


def _refuse_inexact(values: npt.NDArray[np.float64], where: str) -> None:
    """Beyond 2^53, two whole numbers may be the same 64-bit floating-point number."""
    beyond = np.flatnonzero(np.abs(values) >= _EXACT)
    if len(beyond):
        raise DataError(
            f"{where} has {values[beyond[0]]:.17g} in row {beyond[0] + 1}; values must be below 2^53 "
            "(is it a column of ids or times?)"
        )


def _times(column: pa.ChunkedArray, where: str) -> Times:
    """Times in any unit, whole numbers wherever they are whole: only their order counts, and it is kept exactly."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = _parsed_times(column)
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us"))
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.int64()) if column.type.scale <= 0 else _fractions(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"{where} holds times that cannot be read ({first_line(error)})") from None
    if not pa.types.is_integer(column.type) or column.null_count:
        return _numbers(column, where)
    numbers: npt.NDArray[Any] = column.to_numpy()
    return numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64)


def _parsed_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts of times: all of them whole numbers, or numbers, or dates with times."""
    if pc.all(pc.match_substring_regex(column, r"^[+-]?[0-9]+$")).as_py():
        return pc.replace_substring_regex(column, r"^\+", "").cast(pa.int64())
    try:
        numbers = column.cast(pa.float64())
    except pa.ArrowInvalid:
        return _parsed_dates(column)
    return _fractions(numbers)


def _fractions(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times with fractions, as long as they are not so large that two of them may become one."""
    numbers = column.cast(pa.float64())
    if (pc.max(pc.abs(numbers)).as_py() or 0) >= _EXACT:
        raise pa.ArrowInvalid("a number of 2^53 or more beside fractions")
    return numbers


def _parsed_dates(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """With or without a time zone, in microseconds if they are enough."""
    for unit, zone in (("us", None), ("us", "UTC"), ("ns", None)):
        try:
            return column.cast(pa.timestamp(unit, tz=zone))
        except pa.ArrowInvalid:
            continue
    return column.cast(pa.timestamp("ns", tz="UTC"))


def _texts(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    refuse_invalid(column, where)
    try:
        return column.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"{where} holds {column.type}; text is needed") from None


def _first_true(mask: pa.ChunkedArray) -> int:
    return int(pc.index(mask, True).as_py()) + 1
