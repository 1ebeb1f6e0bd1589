"""Files on disk → Interactions: which reader to use, and which filters by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from milrec.data.filters import Filters, Prepared, prepare
from milrec.data.interactions import Interactions
from milrec.data.reading.archives import (
    LASTFM_FILE,
    detected,
    read_lastfm,
    read_movielens,
    read_netflix,
    read_parquet_folder,
)
from milrec.data.reading.blocks import read_rows
from milrec.data.reading.columns import Columns
from milrec.data.reading.formats import ARCHIVE_ENDINGS, FORMATS, PARQUET_ENDINGS, TEXT_ENDINGS
from milrec.data.reading.parts import is_pattern, table_files, table_format
from milrec.data.reading.sources import Allowed, refuse_special
from milrec.data.reading.tables import Rows, read_titles, rows_of
from milrec.errors import DataError, cut, unknown

TABLES = ("csv", "parquet")
PAPER_FILTERS = {  # section 3.1 of the paper
    "movielens": Filters(adopt_min=4, min_per_user=5),
    "netflix": Filters(adopt_min=4, min_per_user=5),
    "lastfm": Filters(min_per_item=50, min_per_user=20),
}


def read_source(
    source: str | Path,
    format: str = "auto",
    columns: Columns | None = None,
    titles: str | Path | None = None,
    allowed: Allowed | None = None,
) -> tuple[str, Rows]:
    """The format of a file, folder or archive, and its rows."""
    path, columns, allowed = Path(source), columns or Columns(), allowed or Allowed()
    format = checked_format(path, format, columns, allowed)
    if is_rated_folder(path, format):
        rows = read_parquet_folder(path, columns, allowed)
    elif format in TABLES:
        rows = read_rows(table_files(path), columns, format, allowed)
    else:
        reader = {"movielens": read_movielens, "netflix": read_netflix, "lastfm": read_lastfm}[format]
        rows = reader(path.parent if path.name in ("u.data", "ratings.dat") else path, allowed)
    if titles is not None:
        rows = replace(rows, item_table=read_titles(Path(titles), columns.item, allowed))
    return format, rows


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
            f"the columns of the {format} format are known; `user`, `item`, `value`, `time` and `where` are for tables"
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
    titles: str | Path | None = None,
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
    where: Mapping[str, Any] | None = None,
    format: str = "auto",
    multiline: bool = False,
    max_expansion: float = Allowed.max_expansion,
    **filters: Any,
) -> Interactions:
    """Interactions from a file, folder or archive, or from a table in memory (pyarrow, pandas, polars, a mapping).

    `where`: only the rows of a table that have these values, for example {"test": 0}. `format`: one of `FORMATS`, if
    the name does not show it. `multiline`: fields in quotes may have several lines. `max_expansion`: how many times its
    own size a packed file may unpack to. `filters`: adopt_min, reject_max, min_per_user, min_per_item; `titles`: a file
    of titles. `reading` of the result says which columns were read and what became of the rows.
    """
    if where is not None and not isinstance(where, Mapping):
        raise DataError(f"`where` is a mapping of columns to values, for example {{'test': 0}}, not {where!r}")
    columns, titles = Columns(user, item, value, time, where or {}), filters.pop("titles", None)
    known = set(Filters.__dataclass_fields__)
    if unexpected := set(filters) - known:
        raise DataError(unknown("filter", min(unexpected), known))
    allowed = Allowed(multiline, max_expansion)
    if isinstance(source, (str, Path)):
        return prepare_source(source, format, columns, titles, filters, allowed)[3].interactions
    rows = rows_of(source, columns)
    if titles is not None:
        rows = replace(rows, item_table=read_titles(Path(titles), item, allowed))
    return prepare(rows, Filters(**filters)).interactions
