"""The titles of items: from a file, from a table in memory, or from a column of the interactions themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from milrec.data.reading.columns import Columns, column_of, title_columns
from milrec.data.reading.conditions import Conditions, kept_rows
from milrec.data.reading.csv.text import LINES_OF_A_TITLE, file_blocks, lines_allowed, read_file
from milrec.data.reading.sources import Allowed
from milrec.data.reading.tables import (
    Rows,
    checked_ids,
    column_names,
    file_place,
    is_parquet,
    parquet_blocks,
    read_parquet,
    table_of,
    texts,
)
from milrec.data.reading.values import Place, row_place
from milrec.errors import DataError

_IDS = {"id": pa.large_string(), "title": pa.large_string()}


@dataclass(frozen=True)
class ColumnTitles:
    """The titles in a column of the interactions: of several titles of an item, the first counts."""

    table: pa.Table  # columns id and title, each id once
    several: int  # items that have more than one title

    @property
    def note(self) -> str | None:
        if not self.several:
            return None
        items = "1 item has" if self.several == 1 else f"{self.several:,} items have"
        return f"{items} more than one title; the first one counts"


def titles_of(titles: Any, item: str | None = None, allowed: Allowed | None = None) -> pa.Table:
    """A table of items from whatever the caller has: the name of a file, a table in memory, or {item: title}."""
    if isinstance(titles, (str, Path)):
        return read_titles(Path(titles), item, allowed)
    if isinstance(titles, Mapping) and (named := _titles_by_item(titles)) is not None:
        return titles_in(pa.table({"item": _ids(titles), "title": named}), "item", "`titles`")
    return titles_in(table_of(titles, "`titles`"), item, "`titles`")


def titles_in(table: pa.Table, item: str | None, where: str, place: Place = row_place) -> pa.Table:
    """A table of items (id, title, and genres if there are any)."""
    chosen = title_columns(item, table.column_names, where)
    ids = checked_ids(table[chosen.item], column_of(chosen.item, where), place)
    found = {"title": texts(table[chosen.title], column_of(chosen.title, where), place)}
    if chosen.genres:
        found["genres"] = texts(table[chosen.genres], column_of(chosen.genres, where), place)
    return pa.table({"id": ids, **found})


def read_titles(source: Path, item: str | None = None, allowed: Allowed | None = None) -> pa.Table:
    """The same from a CSV/TSV or Parquet file."""
    allowed, where = allowed or Allowed(), f"'{source}'"
    kind = "parquet" if is_parquet(source) else "csv"
    chosen = title_columns(item, column_names(source, kind, allowed), where)
    if kind == "parquet":
        table = read_parquet(source, chosen.wanted, allowed)
    else:
        table = read_file(source, dict.fromkeys(chosen.wanted, pa.string()), LINES_OF_A_TITLE, allowed)
    return titles_in(table, chosen.item, where, partial(_place, source, kind, allowed, 0, range(table.num_rows)))


def column_titles(rows: Rows, table: pa.Table, where: str = "the table") -> ColumnTitles:
    """The titles beside those rows of a table in memory that meet the conditions."""
    name, kept = rows.columns.title, kept_rows(rows.columns.where, table)
    table = Conditions(rows.columns.where, where).chosen(table)

    def place(row: int) -> str:
        return row_place(kept[row])

    titles = texts(table[name], column_of(name, where), place)
    ids = checked_ids(table[rows.columns.item], column_of(rows.columns.item, where), place)
    return _first_titles([pa.table({"id": ids, "title": titles})])


def file_titles(files: Sequence[Path], columns: Columns, kind: str, allowed: Allowed) -> ColumnTitles:
    """The titles beside the rows of a table of any size, which is read once more for them, a block at a time."""
    return _first_titles(_blocks(files, columns, kind, allowed))


def _blocks(files: Sequence[Path], columns: Columns, kind: str, allowed: Allowed) -> Iterator[pa.Table]:
    names = [str(columns.item), str(columns.title)]
    needed = list(dict.fromkeys([*names, *columns.where]))
    for file in files:
        types, conditions = dict.fromkeys(needed, pa.string()), Conditions(columns.where, f"'{file}'")
        if kind == "parquet":
            found = parquet_blocks(file, needed, allowed)
        else:
            found = file_blocks(file, types, lines_allowed(allowed), allowed)
        n_before = 0
        for block in found:
            table = conditions.chosen(block)
            place = partial(_place, file, kind, allowed, n_before, kept_rows(columns.where, block))
            ids = checked_ids(table[names[0]], column_of(names[0], f"'{file}'"), place)
            yield pa.table({"id": ids, "title": texts(table[names[1]], column_of(names[1], f"'{file}'"), place)})
            n_before += block.num_rows


def _place(  # of a row among those that were kept of a block
    file: Path, kind: str, allowed: Allowed, n_before: int, kept: Sequence[int], row: int
) -> str:
    return file_place(file, kind, n_before + kept[row], allowed)


def _first_titles(blocks: Iterable[pa.Table]) -> ColumnTitles:
    """Each pair of item and title once, in the order in which they were met; empty titles are none."""
    known: pa.Table | None = None
    for block in blocks:
        named = block.filter(pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(block["title"])), 0))
        both = named if known is None else pa.concat_tables([known, named])
        known = both.group_by(["id", "title"], use_threads=False).aggregate([]).select(["id", "title"])
    if known is None or not known.num_rows:
        return ColumnTitles(pa.table({name: pa.array([], kind) for name, kind in _IDS.items()}), 0)
    places = known.append_column("place", pa.array(range(known.num_rows), type=pa.int64()))
    first = places.group_by("id", use_threads=False).aggregate([("place", "min"), ("place", "count")])
    several = int(pc.sum(pc.greater(first["place_count"], 1)).as_py())
    return ColumnTitles(known.take(first["place_min"]), several)


def _titles_by_item(titles: Mapping[Any, Any]) -> pa.Array | None:
    """The titles of {item: title}, where None and NaN are none; None if these are columns by name."""
    try:
        return pa.array(list(titles.values()), type=pa.large_string(), from_pandas=True)
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        if any(isinstance(title, str) for title in titles.values()):
            raise DataError("`titles` has a title that is not text") from None
        return None


def _ids(titles: Mapping[Any, Any]) -> pa.Array:
    try:
        return pa.array(list(titles), type=None if titles else pa.large_string())
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        raise DataError("the items of `titles` are neither all text nor all whole numbers") from None
