"""Files on disk → Interactions: which reader to use, and which filters by default."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scipy.sparse import issparse

from milrec.data.filters import Filters, Prepared, prepare
from milrec.data.interactions import Interactions
from milrec.data.matrices import MatrixIds, matrix_rows
from milrec.data.reading.archives import (
    LASTFM_FILE,
    detected,
    read_lastfm,
    read_movielens,
    read_netflix,
    read_parquet_folder,
)
from milrec.data.reading.blocks import read_rows
from milrec.data.reading.columns import Columns, unused_title, unused_value
from milrec.data.reading.formats import ARCHIVE_ENDINGS, FORMATS, PARQUET_ENDINGS, TEXT_ENDINGS
from milrec.data.reading.parts import is_pattern, table_files, table_format
from milrec.data.reading.sources import Allowed, refuse_special
from milrec.data.reading.tables import Rows, column_names, rows_of, table_of
from milrec.data.reading.titles import ColumnTitles, column_titles, file_titles, titles_of
from milrec.errors import DataError, ReadingWarning, cut, unknown
from milrec.storage import folder_kind

TABLES = ("csv", "parquet")
_FILTERS = set(Filters.__dataclass_fields__)
PAPER_FILTERS = {  # section 3.1 of the paper
    "movielens": Filters(adopt_min=4, min_per_user=5),
    "netflix": Filters(adopt_min=4, min_per_user=5),
    "lastfm": Filters(min_per_item=50, min_per_user=20),
}


def read_source(
    source: str | Path,
    format: str = "auto",
    columns: Columns | None = None,
    titles: Any = None,
    allowed: Allowed | None = None,
) -> tuple[str, Rows]:
    """The format of a file, folder or archive, and its rows."""
    path, columns, allowed = Path(source), columns or Columns(), allowed or Allowed()
    format = checked_format(path, format, columns, allowed)
    refuse_both(columns, titles)
    if is_rated_folder(path, format):
        rows = read_parquet_folder(path, columns, allowed)
    elif format in TABLES:
        rows = read_rows(table_files(path), columns, format, allowed)
    else:
        reader = {"movielens": read_movielens, "netflix": read_netflix, "lastfm": read_lastfm}[format]
        rows = reader(path.parent if path.name in ("u.data", "ratings.dat") else path, allowed)
    if titles is not None:
        rows = replace(rows, item_table=titles_of(titles, columns.item, allowed))
    elif columns.title is not None:
        rows = _with_titles(rows, file_titles(_files(path, format), rows.columns, format, allowed))
    elif format in TABLES and rows.item_table is None:
        names = column_names(_files(path, format)[0], format, allowed)
        rows = _noting(rows, unused_title(rows.columns, names))
    return format, rows


def _files(path: Path, format: str) -> list[Path]:
    """The files of a table."""
    return [path / "ratings.parquet"] if is_rated_folder(path, format) else table_files(path)


def refuse_both(columns: Columns, titles: Any) -> None:
    if columns.title is not None and titles is not None:
        raise DataError("give either `title`, a column, or `titles`, a separate table, not both")


def _with_titles(rows: Rows, found: ColumnTitles) -> Rows:
    return replace(_noting(rows, found.note), item_table=found.table)


def _noting(rows: Rows, note: str | None) -> Rows:
    """The same rows with one more thing that the user should know."""
    return replace(rows, note=joined_notes(rows.note, note))


def joined_notes(*notes: str | None) -> str | None:
    return "; ".join(one for one in notes if one is not None) or None


def checked_format(path: Path, format: str, columns: Columns, allowed: Allowed) -> str:
    """The format of a source that is there, given or recognised; refused if columns are named that it does not have."""
    if not path.exists() and not is_pattern(path):
        raise DataError(f"there is no file or folder '{path}'")
    refuse_special(path)
    format = recognised_format(path, allowed) if format == "auto" else format
    if format not in FORMATS:
        raise DataError(unknown("format", format, FORMATS))
    if format not in TABLES and columns != Columns():
        raise DataError(
            f"the {format} format has fixed columns; `user`, `item`, `value`, `time`, `title` and `where` are only "
            "for tables"
        )
    return format


def is_rated_folder(path: Path, format: str) -> bool:
    """Whether it is a folder with `ratings.parquet`, and perhaps with titles, rather than one with parts of a table."""
    return format == "parquet" and (path / "ratings.parquet").is_file()


def parse_conditions(texts: Sequence[str]) -> dict[str, str]:
    """`COLUMN=VALUE` texts as a mapping."""
    conditions: dict[str, str] = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not equals or not column:
            raise DataError(f"'{cut(text)}' is not a condition; write COLUMN=VALUE, for example test=0")
        if column in conditions:
            raise DataError(f"column '{cut(column)}' is given two values, and no row has both")
        conditions[column] = value
    return conditions


def recognised_format(path: Path, allowed: Allowed | None = None) -> str:
    """The format, going by the name or by the files inside."""
    suffixes = "".join(path.suffixes).lower()
    if path.is_file():
        if path.name == LASTFM_FILE:
            return "lastfm"
        if path.name in ("u.data", "ratings.dat"):
            return "movielens"
        if suffixes.endswith(TEXT_ENDINGS):
            return "csv"
        if suffixes.endswith(PARQUET_ENDINGS):
            return "parquet"
        if not suffixes.endswith(ARCHIVE_ENDINGS):
            raise DataError(f"the name of '{path}' does not show its format; choose a `format`: {', '.join(FORMATS)}")
    if (kind := folder_kind(path)) is not None:
        raise DataError(f"'{path}' is a milrec {kind} folder, so there is nothing to prepare")
    found = None if is_pattern(path) else detected(path, allowed)
    if found is None and not path.is_file():
        found = table_format(path)
    if found is None:
        raise DataError(f"'{path}' does not look like a known data set; choose a `format`: {', '.join(FORMATS)}")
    return found


def prepare_source(
    source: str | Path,
    format: str = "auto",
    columns: Columns | None = None,
    titles: Any = None,
    filters: dict[str, Any] | None = None,
    allowed: Allowed | None = None,
) -> tuple[str, Rows, Filters, Prepared]:
    """Read and prepare; by default with the paper's filters for its data sets, and with none for other tables."""
    format, rows = read_source(source, format, columns, titles, allowed)
    chosen = chosen_filters(format, filters or {})
    return format, rows, chosen, prepare(rows, chosen, f"'{source}'")


def chosen_filters(format: str, given: Mapping[str, Any]) -> Filters:
    """The paper's for its data sets, none for other tables; what is given (not None) counts more."""
    own = {key: value for key, value in given.items() if value is not None}
    return replace(PAPER_FILTERS.get(format, Filters()), **own)


def read(  # noqa: PLR0913 - one argument for each column of somebody's table
    source: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    time: str | None = None,
    title: str | None = None,
    where: Mapping[str, Any] | None = None,
    titles: Any = None,
    user_ids: Sequence[Any] | None = None,
    item_ids: Sequence[Any] | None = None,
    format: str = "auto",
    multiline: bool = False,
    max_expansion: float = Allowed.max_expansion,
    **filters: Any,
) -> Interactions:
    """Interactions from a file, folder or archive, from a table in memory, or from a SciPy sparse matrix.

    A table in memory: pandas, polars, DuckDB, pyarrow, anything else with `__arrow_c_stream__`, or columns by name. In
    a matrix, rows are users and columns items, with the ids in `user_ids` and `item_ids`, or else their numbers; every
    stored cell is read like a row of a table that has it as its value.

    `where`: only the rows of a table that have these values, for example {"test": 0}. `title`: the column of the table
    that holds the items' titles; `titles`: a file or a table of titles, or {item: title}. `format`: one of `FORMATS`,
    if the name does not show it. `multiline`: fields in quotes may have several lines. `max_expansion`: how many times
    its own size a packed file may unpack to. `filters`: adopt_min, reject_max, min_per_user, min_per_item. `reading` of
    the result says which columns were read, what became of the rows, and in `note` what else you should know, which is
    a ReadingWarning too.
    """
    if where is not None and not isinstance(where, Mapping):
        raise DataError(f"`where` must be a mapping of columns to values, for example {{'test': 0}}, not {where!r}")
    columns, ids = Columns(user, item, value, time, where or {}, title), MatrixIds(user_ids, item_ids)
    if unexpected := set(filters) - _FILTERS:
        raise DataError(_unknown_argument(min(unexpected)))
    if ids.given and not issparse(source):
        raise DataError("user_ids and item_ids are for a sparse matrix; a table has columns of ids")
    allowed = Allowed(multiline, max_expansion)
    if isinstance(source, (str, Path)):
        return _noted(prepare_source(source, format, columns, titles, filters, allowed)[3].interactions)
    chosen, what = Filters(**filters), "the matrix" if issparse(source) else "the table"
    rows = _matrix(source, columns, ids, chosen) if issparse(source) else _table(source, columns, titles)
    if titles is not None:
        rows = replace(rows, item_table=titles_of(titles, item, allowed))
    return _noted(prepare(rows, chosen, what).interactions)


def _noted(found: Interactions) -> Interactions:
    """The same; its note is also given as a warning."""
    if note := found.reading.get("note"):
        warnings.warn(note, ReadingWarning, stacklevel=3)
    return found


def _unknown_argument(name: str) -> str:
    if name in ("users", "items"):
        return f"unknown argument '{name}'; the ids of a sparse matrix are given with {name[:-1]}_ids"
    return unknown("argument", name, inspect.signature(read).parameters.keys() - {"source", "filters"} | _FILTERS)


def _matrix(matrix: Any, columns: Columns, ids: MatrixIds, filters: Filters) -> Rows:
    if columns != Columns():
        raise DataError("a matrix has no columns to name; give its ids with user_ids and item_ids")
    return matrix_rows(matrix, ids, filters)


def _table(source: Any, columns: Columns, titles: Any) -> Rows:
    refuse_both(columns, titles)
    table = table_of(source, "the table")
    rows = rows_of(table, columns)
    rows = _noting(rows, unused_value(rows.columns, table.column_names))
    if columns.title is not None:
        return _with_titles(rows, column_titles(rows, table))
    return rows if titles is not None else _noting(rows, unused_title(rows.columns, table.column_names))
