"""The original archives, or folders, of MovieLens, the Netflix Prize and Last.fm-360K → rows.

Files are read in place, even inside a zip or tar archive; nothing is unpacked to disk.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from milrec.data.sources import Source, damage_reported, tar_contents
from milrec.data.tables import TITLE_NAMES, Columns, Rows, checked_ids, column_names, read_rows, read_titles, rows_of
from milrec.errors import DataError

_BLOCK = 1 << 26
LASTFM_FILE = "usersha1-artmbid-artname-plays.tsv"


def detected(path: Path) -> str | None:
    """The format, going by the files in a folder or archive; None if they do not show it."""
    bases = {PurePosixPath(name).name for name in Source(path).names}
    if bases & {"u.data", "ratings.dat"} or {"ratings.csv", "movies.csv"} <= bases:
        return "movielens"
    if LASTFM_FILE in bases:
        return "lastfm"
    if bases & {"training_set.tar", "combined_data_1.txt"} or any(base.startswith("mv_0") for base in bases):
        return "netflix"
    if "ratings.parquet" in bases:
        return "movielens" if path.name.startswith("ml-") else "parquet"
    return None


def read_movielens(path: Path) -> Rows:
    """MovieLens 100K (u.data), 1M and 10M (ratings.dat), 20M, 25M, 32M and latest (ratings.csv), or ratings.parquet."""
    source = Source(path)
    if found := source.find("u.data"):
        names = ["user", "item", "rating", "time"]
        table = _read(source, found, names, csv.ParseOptions(delimiter="\t"))
        return _rated(table, _titles_of_100k(source))
    if found := source.find("ratings.dat"):
        names = [
            "user",
            "gap1",
            "item",
            "gap2",
            "rating",
            "gap3",
            "time",
        ]  # '::' is two delimiters with nothing between
        table = _read(source, found, names, csv.ParseOptions(delimiter=":"))
        return _rated(table, _titles_of_dat(source))
    if found := source.find("ratings.csv"):
        table = _renamed(_read(source, found, None, csv.ParseOptions()))
        movies = _read(source, source.needed("movies.csv"), None, csv.ParseOptions(), texts=("title", "genres"))
        if not {"movieId", "title", "genres"} <= set(movies.column_names):
            raise DataError(f"'movies.csv' in '{path}' needs columns movieId, title and genres")
        titles = pa.table({"id": movies["movieId"], "title": movies["title"], "genres": movies["genres"]})
        return _rated(table, titles)
    if (path / "ratings.parquet").is_file():
        return read_parquet_folder(path, Columns(value="rating", time="timestamp"))
    raise DataError(f"'{path}' has no MovieLens ratings (u.data, ratings.dat or ratings.csv)")


def read_parquet_folder(path: Path, columns: Columns) -> Rows:
    """A folder with `ratings.parquet` and, optionally, `items.parquet` with titles."""
    rows = read_rows(path / "ratings.parquet", columns, "parquet")
    items = path / "items.parquet"
    titles = read_titles(items) if items.is_file() and _has_titles(items) else None
    return Rows(rows.users, rows.items, rows.values, rows.times, titles, rows.note)


def read_lastfm(path: Path) -> Rows:
    """Last.fm-360K: plays of artists. An artist goes by its MusicBrainz id, or by its name if it has none."""
    source = Source(path.parent if path.name == LASTFM_FILE else path)
    names = ["user", "mbid", "artist", "plays"]
    skipped: list[int] = []

    def skip(row: Any) -> str:
        skipped.append(1)
        return "skip"

    options = csv.ParseOptions(delimiter="\t", quote_char=False, invalid_row_handler=skip)
    table = _read(source, source.needed(LASTFM_FILE), names, options, texts=("user", "mbid", "artist"))
    empty = pc.equal(table["mbid"], "")
    nameless = pc.and_(empty, pc.equal(table["artist"], ""))
    table, empty = table.filter(pc.invert(nameless)), empty.filter(pc.invert(nameless))
    items = pc.if_else(empty, table["artist"], table["mbid"]).cast(pa.large_string())
    first = pa.table({"id": items, "title": table["artist"]}).group_by("id").aggregate([("title", "min")])
    titles = pa.table({"id": first["id"], "title": first["title_min"].cast(pa.large_string())})
    renamed = pa.table({"user": table["user"], "item": items, "plays": table["plays"]})
    rows = rows_of(renamed, Columns(value="plays"), f"'{path}'")
    note = f"{len(skipped)} rows without exactly four fields were skipped" if skipped else None
    return Rows(rows.users, rows.items, rows.values, None, titles, note)


def read_netflix(path: Path) -> Rows:
    """Netflix Prize: training_set (folder, tar, or nested in the original tar.gz) or combined_data_1…4.txt."""
    source = Source(path)
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


def _read(
    source: Source,
    name: str,
    columns: list[str] | None,
    options: csv.ParseOptions,
    texts: tuple[str, ...] = (),
) -> pa.Table:
    types = {text: pa.string() for text in texts}
    try:
        with source.open(name) as file:
            table = csv.read_csv(
                pa.input_stream(file),
                csv.ReadOptions(column_names=columns, block_size=1 << 24),
                options,
                csv.ConvertOptions(column_types=types),
            )
        return table.select([column for column in table.column_names if not column.startswith("gap")])
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise DataError(f"'{name}' in '{source.path}' is not in its publisher's format ({error})") from None


def _renamed(table: pa.Table) -> pa.Table:
    ours = {"userId": "user", "movieId": "item", "timestamp": "time"}
    return table.rename_columns([ours.get(name, name) for name in table.column_names])


def _rated(table: pa.Table, titles: pa.Table) -> Rows:
    rows = rows_of(table, Columns("user", "item", "rating", "time"), "the MovieLens ratings")
    ids = checked_ids(titles["id"], "the MovieLens titles")
    return Rows(rows.users, rows.items, rows.values, rows.times, titles.set_column(0, "id", ids))


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
    names = source.names
    combined = [name for name in names if PurePosixPath(name).name.startswith("combined_data_")]
    per_movie = [name for name in names if PurePosixPath(name).name.startswith("mv_")]
    if combined:
        for name in combined:
            with source.open(name) as file:
                yield from _lines(file)
    elif per_movie:
        yield from _joined(source.contents(per_movie))
    elif found := source.find("training_set.tar"):
        with source.open(found) as file, tarfile.open(fileobj=file) as archive:
            yield from _joined(content for name, content in tar_contents(archive) if "mv_" in name)


def _joined(files: Iterator[bytes]) -> Iterator[bytes]:
    """Small files as blocks."""
    parts, size = [], 0
    for content in files:
        parts.append(content if content.endswith(b"\n") else content + b"\n")
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
        yield rest + content[:cut]
        rest = content[cut:]
    if rest:
        yield rest


def _netflix_block(block: bytes, current: int, path: Path) -> tuple[Any, ...]:
    """The last movie of the block, and columns movie, user, rating, time."""
    options = csv.ReadOptions(column_names=["line"], block_size=max(len(block), 1))
    parse = csv.ParseOptions(delimiter="\x01", quote_char=False)
    try:
        lines = csv.read_csv(io.BytesIO(block), options, parse, csv.ConvertOptions(column_types={"line": pa.string()}))
        texts = lines["line"].combine_chunks()
        header = pc.ends_with(texts, ":").to_numpy(zero_copy_only=False)
        named = pc.utf8_rtrim(texts.filter(pa.array(header)), ":").cast(pa.int64()).to_numpy()
        movies = np.concatenate([[current], named])[np.cumsum(header)][~header]  # each row belongs to the last header
        fields = pc.split_pattern(texts.filter(pa.array(~header)), ",", max_splits=2)
        users = pc.list_element(fields, 0).cast(pa.int64()).to_numpy()
        ratings = pc.list_element(fields, 1).cast(pa.int64()).to_numpy()
        days = pc.list_element(fields, 2).cast(pa.date32()).cast(pa.int32()).to_numpy().astype(np.float64)
    except (pa.ArrowInvalid, IndexError) as error:
        raise DataError(f"'{path}' is not in the format of the Netflix Prize ({error})") from None
    if len(movies) and movies.min() < 0:
        raise DataError(f"'{path}' has ratings before the first movie number")
    last = int(named[-1]) if len(named) else current
    return last, movies.astype(np.int64), users, ratings, days


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
