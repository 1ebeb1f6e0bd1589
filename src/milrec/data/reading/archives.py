"""The original archives, or folders, of MovieLens, the Netflix Prize and Last.fm-360K → rows.

Files are read in place, even inside a zip or tar archive; nothing is unpacked to disk.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from milrec.data.reading.blocks import read_rows
from milrec.data.reading.columns import TITLE_NAMES, Columns, column_of
from milrec.data.reading.csv.row_count import RowCounter
from milrec.data.reading.csv.text import (
    LINES_OF_A_TITLE,
    Dialect,
    first_line,
    line_in_text,
    lines_allowed,
    read_text,
    refuse_text,
)
from milrec.data.reading.sources import Allowed, Source, damage_reported
from milrec.data.reading.tables import Rows, checked_ids, column_names, rows_of
from milrec.data.reading.titles import read_titles
from milrec.errors import DataError, cut

_BLOCK = 1 << 26
LASTFM_FILE = "usersha1-artmbid-artname-plays.tsv"


_DATA_OF_100K = Dialect("\t", quotes=False, names=("user", "item", "rating", "time"))
_DATA_OF_1M = Dialect(  # '::' is two delimiters with nothing between
    ":", quotes=False, names=("user", "gap1", "item", "gap2", "rating", "gap3", "time")
)
_PLAYS = Dialect("\t", quotes=False, names=("user", "mbid", "artist", "plays"), skips_ragged=True)


@dataclass(frozen=True)
class _Text:
    """A table in a text file of an archive."""

    source: Source
    name: str
    dialect: Dialect

    @property
    def where(self) -> str:
        return f"'{cut(self.name)}' in '{self.source.path}'"

    def read(self, texts: tuple[str, ...] = ()) -> tuple[pa.Table, int]:
        """The table, and how many of its rows were skipped; types are seen from the entries."""
        convert = csv.ConvertOptions(column_types={text: pa.string() for text in texts})
        return read_text(partial(self.source.open, self.name), self.where, self.dialect, convert)

    def place(self, row: int) -> str:
        """The line of a row, if none were skipped."""
        return f"line {line_in_text(partial(self.source.open, self.name), row, self.dialect):,}"


def detected(path: Path, allowed: Allowed | None = None) -> str | None:
    """The format, going by the files in a folder or archive; None if they do not show it."""
    source = Source(path, (allowed or Allowed()).max_expansion)
    bases = {PurePosixPath(name).name for name in source.names}
    if bases & {"u.data", "ratings.dat"} or {"ratings.csv", "movies.csv"} <= bases:
        return "movielens"
    if LASTFM_FILE in bases:
        return "lastfm"
    if bases & {"training_set.tar", "combined_data_1.txt"} or any(base.startswith("mv_0") for base in bases):
        return "netflix"
    if "ratings.parquet" in bases:
        return "movielens" if path.name.startswith("ml-") else "parquet"
    return None


def read_movielens(path: Path, allowed: Allowed) -> Rows:
    """MovieLens 100K (u.data), 1M and 10M (ratings.dat), 20M, 25M, 32M and latest (ratings.csv), or ratings.parquet."""
    source = Source(path, allowed.max_expansion)
    if found := source.find("u.data"):
        text = _Text(source, found, _DATA_OF_100K)
        return _rated(text, text.read()[0], _titles_of_100k(source))
    if found := source.find("ratings.dat"):
        text = _Text(source, found, _DATA_OF_1M)
        return _rated(text, _without_gaps(text.read()[0], path), _titles_of_dat(source))
    if found := source.find("ratings.csv"):
        text = _Text(source, found, Dialect(max_lines=lines_allowed(allowed)))
        table = _renamed(text.read()[0])
        of_titles = _Text(source, source.needed("movies.csv"), Dialect(max_lines=LINES_OF_A_TITLE))
        movies, _ = of_titles.read(texts=("title", "genres"))
        if not {"movieId", "title", "genres"} <= set(movies.column_names):
            raise DataError(f"'movies.csv' in '{path}' needs columns movieId, title and genres")
        titles = pa.table({"id": movies["movieId"], "title": movies["title"], "genres": movies["genres"]})
        return _rated(text, table, titles)
    if (path / "ratings.parquet").is_file():
        return read_parquet_folder(path, Columns(value="rating", time="timestamp"), allowed)
    raise DataError(f"'{path}' has no MovieLens ratings (u.data, ratings.dat or ratings.csv)")


def read_parquet_folder(path: Path, columns: Columns, allowed: Allowed) -> Rows:
    """A folder with `ratings.parquet` and, optionally, `items.parquet` with titles."""
    rows = read_rows(path / "ratings.parquet", columns, "parquet", allowed)
    items = path / "items.parquet"
    has_titles = items.is_file() and _has_titles(items)
    return replace(rows, item_table=read_titles(items, allowed=allowed) if has_titles else None)


def read_lastfm(path: Path, allowed: Allowed) -> Rows:
    """Last.fm-360K: plays of artists. An artist goes by its MusicBrainz id, or by its name if it has none."""
    source = Source(path.parent if path.name == LASTFM_FILE else path, allowed.max_expansion)
    table, n_ragged = _Text(source, source.needed(LASTFM_FILE), _PLAYS).read(texts=("user", "mbid", "artist"))
    nameless = pc.and_(pc.equal(table["mbid"], ""), pc.equal(table["artist"], ""))
    named = table.filter(pc.invert(nameless))
    items = pc.if_else(pc.equal(named["mbid"], ""), named["artist"], named["mbid"]).cast(pa.large_string())
    first = pa.table({"id": items, "title": named["artist"]}).group_by("id").aggregate([("title", "min")])
    titles = pa.table({"id": first["id"], "title": first["title_min"].cast(pa.large_string())})
    renamed = pa.table({"user": named["user"], "item": items, "plays": named["plays"]})
    rows = rows_of(renamed, Columns(value="plays"), f"the plays read from '{path}'")
    n_nameless = table.num_rows - named.num_rows
    dropped = {"rows_without_four_fields": n_ragged, "rows_without_id_and_name": n_nameless}
    return replace(rows, item_table=titles, columns=Columns(), dropped=dropped, note=_skipped(n_ragged, n_nameless))


def _skipped(n_ragged: int, n_nameless: int) -> str | None:
    reasons = [(n_ragged, "without exactly four fields"), (n_nameless, "with neither an id nor a name of the artist")]
    found = [f"{count:,} rows {reason}" for count, reason in reasons if count]
    return f"left out: {' and '.join(found)}" if found else None


def read_netflix(path: Path, allowed: Allowed) -> Rows:
    """Netflix Prize: training_set (folder, tar, or nested in the original tar.gz) or combined_data_1…4.txt."""
    source = Source(path, allowed.max_expansion)
    movies: list[Any] = []
    users: list[Any] = []
    ratings: list[Any] = []
    times: list[Any] = []
    current = -1
    with damage_reported(path):
        for block in _netflix_blocks(source):
            parts = _netflix_block(block, current, path)
            current = parts[0]
            for column, part in zip((movies, users, ratings, times), parts[1:], strict=True):
                column.append(part)
    if not movies:
        raise DataError(f"'{path}' has no Netflix ratings (training_set or combined_data_1.txt)")
    return Rows(
        users=pa.chunked_array([pa.array(np.concatenate(users))]),
        items=pa.chunked_array([pa.array(np.concatenate(movies))]),
        values=np.concatenate(ratings).astype(np.float64),
        times=np.concatenate(times),
        item_table=_netflix_titles(source),
    )


def _without_gaps(table: pa.Table, path: Path) -> pa.Table:
    """The columns between the two halves of each '::' must be empty."""
    gaps = [name for name in table.column_names if name.startswith("gap")]
    if any(table[gap].null_count < table.num_rows for gap in gaps):
        raise DataError(f"'ratings.dat' in '{path}' has a row whose fields are not separated by '::'")
    return table.drop_columns(gaps)


def _renamed(table: pa.Table) -> pa.Table:
    ours = {"userId": "user", "movieId": "item", "timestamp": "time"}
    return table.rename_columns([ours.get(name, name) for name in table.column_names])


def _rated(text: _Text, table: pa.Table, titles: pa.Table) -> Rows:
    columns = Columns("user", "item", "rating", "time")
    if "rating" in table.column_names and pa.types.is_string(table["rating"].type):
        refuse_text(table["rating"], column_of("rating", text.where), text.place)
    rows = rows_of(table, columns, text.where, text.place)
    ids = checked_ids(titles["id"], "the MovieLens titles")
    return replace(rows, item_table=titles.set_column(0, "id", ids), columns=Columns())


def _titles_of_100k(source: Source) -> pa.Table:
    fields = [line.split("|") for line in source.lines(source.needed("u.item"), "latin-1")]
    genres: list[tuple[str, int]] = []
    if found := source.find("u.genre"):
        pairs = [line.split("|") for line in source.lines(found, "latin-1")]
        with _understood(source, "u.genre"):
            genres = [(name, int(number)) for name, number in pairs]
    with _understood(source, "u.item"):
        return _title_table(
            [int(field[0]) for field in fields],
            [field[1] for field in fields],
            ["|".join(name for name, place in genres if field[5 + place] == "1") for field in fields],
        )


def _titles_of_dat(source: Source) -> pa.Table:
    """Titles of 1M, in Latin-1, and of 10M, in UTF-8."""
    fields = [line.split("::") for line in source.lines(source.needed("movies.dat"), "utf-8", "latin-1")]
    with _understood(source, "movies.dat"):
        return _title_table(
            [int(field[0]) for field in fields], [field[1] for field in fields], [field[2] for field in fields]
        )


def _title_table(ids: list[int], titles: list[str], genres: list[str] | None = None) -> pa.Table:
    columns = {"id": pa.array(ids, type=pa.int64()), "title": pa.array(titles, type=pa.large_string())}
    if genres is not None:
        columns["genres"] = pa.array(genres, type=pa.large_string())
    return pa.table(columns)


@contextmanager
def _understood(source: Source, name: str) -> Iterator[None]:
    """Turn errors about missing fields or bad numbers into one sentence."""
    try:
        yield
    except (ValueError, IndexError, OverflowError) as error:
        raise DataError(f"'{name}' in '{source.path}' is not in its publisher's format ({error})") from None


def _netflix_blocks(source: Source) -> Iterator[bytes]:
    """Whole lines of `movie:` headers and `user,rating,date` rows, some tens of megabytes at a time."""
    if combined := source.beginning("combined_data_"):
        for name in combined:
            with source.open(name) as file:
                yield from _after_a_movie(_lines(file), source)
    elif per_movie := source.beginning("mv_"):
        yield from _joined(source.contents(per_movie), source)
    elif found := source.find("training_set.tar"):
        yield from _joined(source.contents_in_tar(found, lambda name: "mv_" in name), source)


def _after_a_movie(blocks: Iterator[bytes], source: Source) -> Iterator[bytes]:
    """The blocks of a file, which must begin with a movie: without it, its rows would count for an earlier one."""
    first = next(blocks, b"")
    if not first.lstrip(b"\r\n").partition(b"\n")[0].rstrip(b"\r").endswith(b":"):
        raise DataError(f"'{source.path}' has a file of ratings that does not begin with a movie number")
    yield first
    yield from blocks


def _joined(files: Iterator[bytes], source: Source) -> Iterator[bytes]:
    """Small files as blocks."""
    parts: list[bytes] = []
    size = 0
    for content in files:
        parts += [*_after_a_movie(iter([content]), source), b"\n"]
        size += len(content)
        if size > _BLOCK:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """A large file as blocks that end with a line."""
    rest = b""
    while content := file.read(_BLOCK):
        cut = content.rfind(b"\n") + 1
        if cut:
            yield rest + content[:cut]
            rest = b""
        rest += content[cut:]
        if len(rest) > 2 * _BLOCK:
            raise DataError(f"a file of Netflix ratings has a line of over {_BLOCK >> 20} MiB")
    if rest:
        yield rest


def _netflix_block(block: bytes, current: int, path: Path) -> tuple[Any, ...]:
    """The last movie of the block, and columns movie, user, rating, time."""
    try:
        texts = _netflix_lines(block, path)
        header = pc.ends_with(texts, ":").to_numpy(zero_copy_only=False)
        named = pc.utf8_rtrim(texts.filter(pa.array(header)), ":").cast(pa.int64()).to_numpy()
        movies = np.concatenate([[current], named])[np.cumsum(header)][~header]  # each row belongs to the last header
        fields = pc.split_pattern(texts.filter(pa.array(~header)), ",", max_splits=2)
        users = pc.list_element(fields, 0).cast(pa.int64()).to_numpy()
        ratings = pc.list_element(fields, 1).cast(pa.int64()).to_numpy()
        days = pc.list_element(fields, 2).cast(pa.date32()).cast(pa.int32()).to_numpy().astype(np.int64)
    except (pa.ArrowException, IndexError) as error:
        raise DataError(f"'{path}' is not in the format of the Netflix Prize ({first_line(error)})") from None
    if len(movies) and movies.min() < 0:
        raise DataError(f"'{path}' has ratings before the first movie number")
    last = int(named[-1]) if len(named) else current
    return last, movies.astype(np.int64), users, ratings, days


def _netflix_lines(block: bytes, path: Path) -> pa.StringArray:
    """The lines of a block that are not empty."""
    if not block.strip(b"\r\n"):
        return pa.array([], type=pa.string())
    options = csv.ReadOptions(column_names=["line"], block_size=len(block))
    parse = csv.ParseOptions(delimiter="\x01", quote_char=False)
    lines = csv.read_csv(io.BytesIO(block), options, parse, csv.ConvertOptions(column_types={"line": pa.string()}))
    counter = RowCounter(None)
    counter.feed(block)
    counter.end()
    if lines.num_rows != counter.rows:
        raise DataError(f"'{path}' has {counter.rows:,} lines in a block, but {lines.num_rows:,} were read")
    return lines["line"].combine_chunks()


def _netflix_titles(source: Source) -> pa.Table | None:
    found = source.find("movie_titles.txt") or source.find("movie_titles.csv")
    if found is None:
        return None
    with _understood(source, found):
        fields = [line.split(",", 2) for line in source.lines(found, "latin-1")]
        years = [f" ({field[1]})" if field[1] != "NULL" else "" for field in fields]
        titles = [field[2] + year for field, year in zip(fields, years, strict=True)]
        return _title_table([int(field[0]) for field in fields], titles)


def _has_titles(items: Path) -> bool:
    return any(name.lower() in TITLE_NAMES for name in column_names(items, "parquet"))
