"""CSV and TSV text → columns. Every row of the text is read or counted as skipped, or the text is refused.

The parser is pyarrow's; the rows are counted by `row_count` from the same bytes on their way to it.
"""

from __future__ import annotations

import csv as python_csv
import io
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from milrec.data.reading.columns import refuse_repeated
from milrec.data.reading.csv.mistakes import Opening, pieces, ragged_line, undecodable_line
from milrec.data.reading.csv.row_count import RowCounter, line_of_row
from milrec.data.reading.sources import Allowed, open_file
from milrec.data.reading.values import Place, row_place
from milrec.errors import DataError, cut

LINES_OF_A_TITLE = 100  # that a field in quotes may run over in a table of items
_BLOCK = 1 << 24  # bytes that are parsed together; a row cannot be longer
_FIELDS = re.compile(r"Expected (\d+) columns, got (\d+): ?(.*)")  # pyarrow's words for rows of different lengths
_NO_NUMBER = re.compile(r"CSV conversion error to \w+: invalid value '(.*)'")
_DELIMITERS = (",", "\t", ";", "|")


@dataclass(frozen=True)
class Dialect:
    """How a text is written."""

    delimiter: str = ","
    quotes: bool = True  # whether quotes mean anything
    names: tuple[str, ...] = ()  # of the columns; none if the first row names them
    max_lines: float = 1  # that a field in quotes may run over
    skips_ragged: bool = False  # a row with too few or too many fields is skipped and counted, not refused (no quotes)

    @property
    def n_header(self) -> int:
        """How many rows come before those of the table."""
        return int(not self.names)


def lines_allowed(allowed: Allowed) -> float:
    """How many lines a field in quotes may run over in a table of interactions."""
    return math.inf if allowed.multiline else 1


def read_header(source: Path, allowed: Allowed) -> tuple[str, list[str]]:
    """The delimiter of a CSV or TSV file and the names of its columns."""
    with open_file(source, allowed.max_expansion) as file:
        head = b""
        for size in (1 << 16, _BLOCK):
            head += file.read(size - len(head))
            text = head.decode("utf-8-sig", errors="surrogateescape").lstrip("\r\n")
            delimiter = _delimiter_of(source, re.split("[\r\n]", text, maxsplit=1)[0])
            names, is_whole = _first_row(text, delimiter, f"'{source}'")
            if is_whole or len(head) < size:
                break
        else:
            raise DataError(f"the first row of '{source}' is over {_BLOCK >> 20} MiB; is it a table?")
    if any("\ud800" <= character <= "\udfff" for name in names for character in name):
        raise DataError(_not_utf8(partial(open_file, source, allowed.max_expansion), f"'{source}'"))
    return delimiter, names


def read_file(source: Path, types: dict[str, pa.DataType], max_lines: float, allowed: Allowed) -> pa.Table:
    """Some columns of a CSV or TSV file."""
    return pa.concat_tables(file_blocks(source, types, max_lines, allowed))


def file_blocks(source: Path, types: dict[str, pa.DataType], max_lines: float, allowed: Allowed) -> Iterator[pa.Table]:
    """The same a block of rows at a time; at least one, which may be empty."""
    delimiter, _ = read_header(source, allowed)
    convert = csv.ConvertOptions(column_types=types, include_columns=list(types))
    opening = partial(open_file, source, allowed.max_expansion)
    yield from text_blocks(opening, f"'{source}'", Dialect(delimiter, max_lines=max_lines), convert)


def line_in_file(source: Path, row: int, allowed: Allowed) -> int:
    """The line, counted from 1, in which a row begins that is counted from 0, the header left out."""
    delimiter, _ = read_header(source, allowed)
    return line_in_text(partial(open_file, source, allowed.max_expansion), row, Dialect(delimiter))


def line_in_text(opening: Opening, row: int, dialect: Dialect) -> int:
    """The same in any text, which is read again for it, since this is asked only once, of a row with a mistake."""
    with opening() as file:
        delimiter = dialect.delimiter.encode() if dialect.quotes else None
        return line_of_row(pieces(file), delimiter, row + dialect.n_header)


def read_text(opening: Opening, where: str, dialect: Dialect, convert: csv.ConvertOptions) -> tuple[pa.Table, int]:
    """The table in a text, and how many of its rows were skipped. Types that are not given are guessed."""
    with opening() as file:
        regular = _WithoutRagged(file, dialect) if dialect.skips_ragged else None
        watched = _Watched(regular or file, dialect)
        with watched.explained(where, opening):
            table = csv.read_csv(pa.PythonFile(watched, mode="r"), *_options(dialect), convert)
            refuse_repeated(table.column_names, where)
        watched.refuse_other_count(table.num_rows, where)
    return table, regular.n_skipped if regular else 0


def text_blocks(opening: Opening, where: str, dialect: Dialect, convert: csv.ConvertOptions) -> Iterator[pa.Table]:
    """The table in a text, a block of rows at a time; all types must be given."""
    yield pa.schema([(name, convert.column_types[name]) for name in convert.include_columns]).empty_table()
    with opening() as file:
        watched, found = _Watched(file, dialect), 0
        with watched.explained(where, opening, may_be_empty=True):
            blocks = csv.open_csv(pa.PythonFile(watched, mode="r"), *_options(dialect), convert)
            refuse_repeated(blocks.schema.names, where)
            for block in blocks:
                found += block.num_rows
                yield pa.Table.from_batches([block])
        watched.refuse_other_count(found, where)


def _options(dialect: Dialect) -> tuple[csv.ReadOptions, csv.ParseOptions]:
    parse = csv.ParseOptions(
        delimiter=dialect.delimiter,
        quote_char='"' if dialect.quotes else False,
        newlines_in_values=dialect.max_lines > 1,
    )
    return csv.ReadOptions(column_names=list(dialect.names) or None, block_size=_BLOCK), parse


def refuse_text(texts: pa.ChunkedArray, where: str, place: Place) -> None:
    """Name the first row whose entry is not a number, if that is what went wrong."""
    stripped = pc.utf8_trim_whitespace(texts)
    number = pc.match_substring_regex(stripped, r"^([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf|nan|)$")
    if not pc.all(number, min_count=0).as_py():
        row = int(pc.index(number, False).as_py())
        raise DataError(f"{where} has text '{cut(texts[row].as_py())}' in {place(row)}; a number is needed")


def refuse_invalid(column: pa.ChunkedArray, where: str, place: Place = row_place) -> None:
    """Parquet files and tables in memory are not checked by their readers: text may be none."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        row = _first_undecodable(column) if "UTF8" in str(error) else None
        if row is None:
            raise DataError(f"{where} is damaged ({first_line(error)})") from None
        raise DataError(f"{place(row)} of {where} is not valid UTF-8; save it as UTF-8") from None


def _first_undecodable(column: pa.ChunkedArray) -> int | None:
    n_before = 0
    for chunk in column.chunks:
        coded = pa.types.is_dictionary(chunk.type)
        undecodable = _undecodable(chunk.dictionary if coded else chunk)
        codes = chunk.indices.to_pylist() if coded else range(len(chunk))
        for row, code in enumerate(codes, start=n_before):
            if code in undecodable:
                return row
        n_before += len(chunk)
    return None


def _undecodable(texts: pa.Array) -> set[int]:
    found = set()
    for place, value in enumerate(texts.cast(pa.large_binary()).to_pylist()):
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            found.add(place)
    return found


def first_line(error: BaseException) -> str:
    """What a parser says, in one line and in plain words."""
    if "straddling object" in str(error):
        return f"it has a row of over {_BLOCK >> 20} MiB"
    line = cut((str(error).splitlines() or ["for no known reason"])[0].rstrip(". "), most=200)
    if "UTF8" in line or isinstance(error, UnicodeDecodeError):
        return "it is not valid UTF-8; save it as UTF-8"
    if fields := _FIELDS.search(line):
        return f"a row has {fields[2]} fields where the others have {fields[1]}: '{cut(fields[3].rstrip('…'))}'"
    if value := _NO_NUMBER.search(line):
        return f"'{cut(value[1])}' is not a number"
    return line


def _mistake(opening: Opening, where: str, dialect: Dialect, error: Exception) -> str:
    """What the parser cannot read, in a sentence: the line, if it is one that is to blame."""
    found = None
    if fields := _FIELDS.search(str(error)):
        found = ragged_line(opening, int(fields[1]), dialect.delimiter, dialect.quotes, where)
    elif "UTF8" in str(error) or isinstance(error, UnicodeDecodeError):
        return _not_utf8(opening, where)
    return found or f"{where} is not a regular table ({first_line(error)})"


def _not_utf8(opening: Opening, where: str) -> str:
    return undecodable_line(opening, where) or f"{where} is not valid UTF-8; save the file as UTF-8"


def _delimiter_of(source: Path, first_line: str) -> str:
    """The most frequent delimiter in the first line; a tab in a .tsv file."""
    return "\t" if ".tsv" in source.name.lower() else max(_DELIMITERS, key=first_line.count)


def _first_row(text: str, delimiter: str, where: str) -> tuple[list[str], bool]:
    """The first row, and whether it is whole: something follows it."""
    lines = io.StringIO(text, newline="")
    try:
        first = next((row for row in python_csv.reader(lines, delimiter=delimiter) if row), [])
    except python_csv.Error as error:
        raise DataError(f"the first row of {where} cannot be read ({error})") from None
    return first, lines.tell() < len(text)


class _Watched:
    """A text on its way to the parser, its rows counted. The parser reads in a thread of its own."""

    closed = False

    def __init__(self, file: Any, dialect: Dialect) -> None:
        self._file = file
        self._dialect = dialect
        self._max_lines = dialect.max_lines
        self._counter = RowCounter(dialect.delimiter.encode() if dialect.quotes else None)
        self._ended = False
        self._error: Exception | None = None
        self._lock = Lock()

    def read(self, size: int = -1) -> bytes:
        """The next bytes; none once it is known that the text will be refused.

        An error waits for `rows_checked`: pyarrow would forget what it has begun, and Python wait for it at its exit.
        """
        with self._lock:
            if self._error is not None or self._counter.most_lines > self._max_lines:
                return b""
            try:
                return self._next(size)
            except Exception as error:
                self._error = error
                return b""

    def close(self) -> None:
        """The file is closed where it was opened."""

    @contextmanager
    def explained(self, where: str, opening: Opening, may_be_empty: bool = False) -> Iterator[None]:
        """What the parser cannot read, in one sentence; an open quote explains more than the row that it makes long."""
        try:
            yield
        except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
            if self.rows_checked(where) <= self._dialect.n_header:
                if may_be_empty:
                    return
                raise DataError(f"{where} has no rows") from None
            raise DataError(_mistake(opening, where, self._dialect, error)) from None

    def refuse_other_count(self, found: int, where: str) -> None:
        """Refuse a text of which the parser found more rows, or fewer, than there are."""
        counted = self.rows_checked(where) - self._dialect.n_header
        if found != counted:
            both = f"{counted:,} rows, but the parser found {found:,}"
            raise DataError(f"{where} has {both}; check its quotes and line ends")

    def rows_checked(self, where: str) -> int:
        """The number of rows in the whole text; quotes that run over too many lines are refused."""
        with self._lock:
            if self._error is not None:
                raise self._error
            while self._next(_BLOCK):
                pass
        if self._counter.unclosed is not None:
            raise DataError(f"{where} ends inside quotes: the quote in line {self._counter.unclosed:,} is never closed")
        if self._counter.most_lines > self._max_lines == 1:
            raise DataError(
                f"line {self._counter.first_break:,} of {where} ends inside quotes; if a field may have several lines, "
                "give `multiline=True`"
            )
        if self._counter.most_lines > self._max_lines:
            raise DataError(
                f"the field in quotes that begins in line {self._counter.longest_opened:,} of {where} has over "
                f"{self._max_lines:g} lines; is a closing quote missing?"
            )
        return self._counter.rows

    def _next(self, size: int) -> bytes:
        if self._ended:
            return b""
        content: bytes = self._file.read(size)
        if content:
            self._counter.feed(content)
        else:
            self._ended = True
            self._counter.end()
        return content


class _WithoutRagged:
    """A text without quotes, less the rows that do not have as many fields as there are columns.

    pyarrow can skip such rows too, but not those that are not UTF-8.
    """

    def __init__(self, file: Any, dialect: Dialect) -> None:
        self.n_skipped = 0
        self._file = file
        self._delimiter = dialect.delimiter.encode()[0]
        self._n_delimiters = len(dialect.names) - 1
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Whole rows, no more bytes than asked for; none at the end."""
        while content := self._file.read(max(size - len(self._rest), 1)):
            content = self._rest + content
            cut = max(content.rfind(b"\n"), content.rfind(b"\r")) + 1
            self._rest = content[cut:]
            if len(self._rest) > _BLOCK:
                raise DataError(f"the text has a row of over {_BLOCK >> 20} MiB")
            if kept := self._regular(content[:cut]):
                return kept
        rest, self._rest = self._rest, b""
        return self._regular(rest + b"\n") if rest else b""

    def _regular(self, content: bytes) -> bytes:
        """The rows, each with its line end, that have the right number of fields."""
        text = np.frombuffer(content, dtype=np.uint8)
        ends = np.flatnonzero((text == b"\n"[0]) | (text == b"\r"[0])) + 1
        lengths = np.diff(ends, prepend=0)
        n_found = np.diff(np.searchsorted(np.flatnonzero(text == self._delimiter), ends), prepend=0)
        ragged = (n_found != self._n_delimiters) & (lengths > 1)
        if not ragged.any():
            return content
        self.n_skipped += int(np.count_nonzero(ragged))
        return bytes(text[np.repeat(~ragged, lengths)])
