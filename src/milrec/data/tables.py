"""CSV, TSV and Parquet tables → rows of (user, item, value, time), read column by column.

Ids in a text file stay text, so that leading zeros, spaces and accents come back exactly as they were; ids in a Parquet
file keep their type.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from milrec.data.formats import PARQUET_ENDINGS
from milrec.errors import DataError

USER_NAMES = (
    "user",
    "user_id",
    "userid",
    "customer",
    "customer_id",
    "customerid",
    "account_id",
    "visitor_id",
)
ITEM_NAMES = (
    "item", "item_id", "itemid", "movie", "movie_id", "movieid", "product", "product_id", "productid",
    "artist", "artist_id", "artistid", "track_id", "song_id", "article_id", "book_id", "game",
)  # fmt: skip
TITLE_NAMES = ("title", "name", "item_name", "product_name")
VALUE_NAMES = ("rating", "value", "score", "stars", "plays", "count", "weight", "quantity", "qty", "hours")
_DELIMITERS = (",", "\t", ";", "|")
_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")  # 007 is text


@dataclass(frozen=True)
class Columns:
    """Names of the columns to read; user and item are recognised if they are not named."""

    user: str | None = None
    item: str | None = None
    value: str | None = None
    time: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)  # only rows with these values in these columns


@dataclass(frozen=True)
class Rows:
    """Interactions as they are in a source, one entry per row, with what is known about the items."""

    users: pa.ChunkedArray
    items: pa.ChunkedArray
    values: npt.NDArray[np.float64] | None = None
    times: npt.NDArray[np.float64] | None = None
    item_table: pa.Table | None = None  # columns id, title and optionally genres
    note: str | None = None  # something that the user should know

    def __len__(self) -> int:
        return len(self.users)


def read_rows(source: Path, columns: Columns, kind: str) -> Rows:
    """The rows of a CSV/TSV (`kind` "csv") or Parquet file."""
    names = column_names(source, kind)
    chosen = _chosen(columns, names, f"'{source}'")
    wanted = [name for name in (chosen.user, chosen.item, chosen.value, chosen.time) if name is not None]
    if len(set(wanted)) != len(wanted):
        raise DataError(f"the same column is named twice: {', '.join(wanted)}")
    needed = list(dict.fromkeys([*wanted, *chosen.where]))
    table = read_columns(source, kind, needed, numbers=[chosen.value] if chosen.value else [])
    return rows_of(table, chosen, f"'{source}'", note=_unused_value(chosen, names))


def rows_of(table: Any, columns: Columns, where: str = "the table", note: str | None = None) -> Rows:
    """The rows of a table in memory: a pyarrow Table, a pandas or polars frame, or a mapping of columns."""
    try:
        table = table if isinstance(table, pa.Table) else pa.table(table)
    except (TypeError, ValueError, pa.ArrowInvalid) as error:
        raise DataError(f"{where} is not a table with columns ({error})") from None
    chosen = _chosen(columns, table.column_names, where)
    if table.num_rows == 0:
        raise DataError(f"{where} has no rows")
    for name, value in chosen.where.items():
        table = _rows_with(table, name, value, where)
        where = f"{where} where {name}={value}"
    return Rows(
        users=checked_ids(_column(table, chosen.user, where), f"column '{chosen.user}' of {where}"),
        items=checked_ids(_column(table, chosen.item, where), f"column '{chosen.item}' of {where}"),
        values=None if chosen.value is None else _numbers(_column(table, chosen.value, where), chosen.value, where),
        times=None if chosen.time is None else _times(_column(table, chosen.time, where), chosen.time, where),
        note=note,
    )


def read_titles(source: Path, item: str | None = None) -> pa.Table:
    """A table of items (id, title, and genres if there are any) from a CSV/TSV or Parquet file."""
    kind = "parquet" if source.suffix in PARQUET_ENDINGS else "csv"
    names = column_names(source, kind)
    id_column = item if item in names else _recognised((*ITEM_NAMES, "id"), names)
    title = _recognised(TITLE_NAMES, names)
    if id_column is None or title is None:
        raise DataError(f"'{source}' needs an item column and a title column; its columns are {', '.join(names)}")
    genres = _recognised(("genres", "genre", "category"), names)
    table = read_columns(source, kind, [id_column, title, *([genres] if genres else [])], numbers=[])
    ids = checked_ids(table[id_column], f"column '{id_column}' of '{source}'")
    texts = {"title": _texts(table[title], f"column '{title}' of '{source}'")}
    if genres:
        texts["genres"] = _texts(table[genres], f"column '{genres}' of '{source}'")
    return pa.table({"id": ids, **texts})


def column_names(source: Path, kind: str) -> list[str]:
    """The names of a file's columns."""
    if not source.is_file():
        raise DataError(f"there is no file '{source}'")
    if source.stat().st_size == 0:
        raise DataError(f"'{source}' is empty")
    try:
        if kind == "parquet":
            names = list(pq.read_schema(source).names)
        else:
            names = csv.open_csv(source, parse_options=csv.ParseOptions(delimiter=delimiter_of(source))).schema.names
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeDecodeError, OSError) as error:
        raise DataError(f"'{source}' cannot be read as {kind} ({_first_line(error)})") from None
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise DataError(f"'{source}' has two columns named '{min(twice)}'")
    return list(names)


def read_columns(source: Path, kind: str, wanted: Sequence[str], numbers: Sequence[str]) -> pa.Table:
    """Some columns of a file: in a text file as text, except for those that must be numbers."""
    try:
        if kind == "parquet":
            return pq.read_table(source, columns=list(wanted))
        types = {name: pa.float64() if name in numbers else pa.string() for name in wanted}
        return _read_csv(source, types)
    except pa.ArrowInvalid as error:
        for name in numbers:
            _refuse_text(source, name)
        raise DataError(f"'{source}' is not a regular table ({_first_line(error)})") from None
    except OSError as error:
        raise DataError(f"'{source}' cannot be read ({_first_line(error)})") from None


def delimiter_of(source: Path) -> str:
    """The most frequent delimiter in the first line; a tab in a .tsv file."""
    if ".tsv" in source.suffixes:
        return "\t"
    try:
        with gzip.open(source) if source.suffix == ".gz" else source.open("rb") as file:
            line = file.readline(1 << 16).decode("utf-8", errors="replace")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"'{source}' cannot be read ({error})") from None
    return max(_DELIMITERS, key=line.count)


def checked_ids(ids: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    """Ids as int64 or large_string, without gaps."""
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


def _read_csv(source: Path, types: dict[str, pa.DataType]) -> pa.Table:
    return csv.read_csv(
        source,
        read_options=csv.ReadOptions(block_size=1 << 24),
        parse_options=csv.ParseOptions(delimiter=delimiter_of(source)),
        convert_options=csv.ConvertOptions(column_types=types, include_columns=list(types)),
    )


def _refuse_text(source: Path, name: str) -> None:
    """Name the first row whose entry is not a number, if that is what went wrong."""
    try:
        texts = _read_csv(source, {name: pa.string()})[name]
    except (pa.ArrowInvalid, OSError):
        return  # something else is wrong with the file
    stripped = pc.utf8_trim_whitespace(texts)
    number = pc.match_substring_regex(stripped, r"^([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf|nan|)$")
    if not pc.all(number).as_py():
        row = _first_true(pc.invert(number))
        raise DataError(
            f"column '{name}' of '{source}' has text {texts[row - 1].as_py()!r} in row {row}; a number is needed"
        )


def _chosen(columns: Columns, names: Sequence[str], where: str) -> Columns:
    for name in (columns.user, columns.item, columns.value, columns.time, *columns.where):
        if name is not None and name not in names:
            raise DataError(f"{where} has no column '{name}'; its columns are {', '.join(names)}")
    user = columns.user or _recognised(USER_NAMES, names)
    item = columns.item or _recognised(ITEM_NAMES, names)
    for what, name in (("user", user), ("item", item)):
        if name is None:
            raise DataError(
                f"no column of {where} is recognised as holding {what}s; name one of {', '.join(names)} with `{what}`"
            )
    return replace(columns, user=user, item=item)


def _recognised(known: Sequence[str], names: Sequence[str]) -> str | None:
    lowered = {name.lower().strip(): name for name in names}
    return next((lowered[name] for name in known if name in lowered), None)


def _unused_value(columns: Columns, names: Sequence[str]) -> str | None:
    unused = _recognised(VALUE_NAMES, names) if columns.value is None else None
    if unused is None or unused in (columns.user, columns.item, columns.time, *columns.where):
        return None
    return (
        f"column '{unused}' is not used and every row counts as adopted; if it holds ratings, give "
        f"`value='{unused}'` and `adopt_min=4`, if counts, `value='{unused}'`"
    )


def _rows_with(table: pa.Table, name: str, wanted: Any, where: str) -> pa.Table:
    """The rows that have a value in a column; an empty field is not a value."""
    column = _column(table, name, where)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    meant = _meaning(wanted)
    try:
        distinct = pc.unique(column).drop_null()
        equal = [_meaning(value) == meant for value in distinct.to_pylist()]
        if not any(equal):
            shown = ", ".join(str(value) for value in distinct[:5].to_pylist())
            more = f" and {len(distinct) - 5} more" if len(distinct) > 5 else ""
            raise DataError(f"no row of {where} has {name}={wanted}; the column holds {shown or 'nothing'}{more}")
        return table.filter(pc.is_in(column, value_set=distinct.filter(pa.array(equal, type=pa.bool_()))))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"column '{name}' of {where} holds {column.type}, which cannot be compared") from None


def _meaning(value: Any) -> Decimal | str:
    """How values are compared: true and false as 1 and 0, numbers by size, anything else as text."""
    text = str(value)
    if text.lower() in ("true", "false"):
        return Decimal(text.lower() == "true")
    return Decimal(text) if _NUMBER.fullmatch(text) else text


def _column(table: pa.Table, name: str | None, where: str) -> pa.ChunkedArray:
    assert name is not None
    if table.column_names.count(name) > 1:
        raise DataError(f"{where} has two columns named '{name}'")
    return table[name]


def _numbers(column: pa.ChunkedArray, name: str, where: str) -> npt.NDArray[np.float64]:
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        raise DataError(f"column '{name}' of {where} holds {column.type}; a number is needed")
    values: npt.NDArray[np.float64] = column.cast(pa.float64()).to_numpy()
    broken = np.flatnonzero(~np.isfinite(values))
    if len(broken):
        found = "no number" if np.isnan(values[broken[0]]) else str(values[broken[0]])
        raise DataError(f"column '{name}' of {where} has {found} in row {broken[0] + 1}; remove or repair such rows")
    return values


def _times(column: pa.ChunkedArray, name: str, where: str) -> npt.NDArray[np.float64]:
    try:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = _parsed_times(column)
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False).cast(pa.int64())
        return _numbers(column, name, where)
    except pa.ArrowInvalid as error:
        raise DataError(f"column '{name}' of {where} holds times that cannot be read ({_first_line(error)})") from None


def _parsed_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid:
        pass
    try:
        return column.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("us", tz="UTC"))  # texts with a time zone


def _texts(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    try:
        return column.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"{where} holds {column.type}; text is needed") from None


def _first_true(mask: pa.ChunkedArray) -> int:
    return int(pc.index(mask, True).as_py()) + 1


def _first_line(error: BaseException) -> str:
    line = str(error).splitlines()[0].rstrip(". ")
    return f"{line}: save it as UTF-8" if "UTF8" in line or isinstance(error, UnicodeDecodeError) else line
