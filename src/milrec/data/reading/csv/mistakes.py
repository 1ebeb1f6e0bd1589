"""Where a text goes wrong that the parser refuses: it is read once more, for the line of the first mistake."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from milrec.errors import counted, cut

Opening = Callable[[], AbstractContextManager[Any]]  # opens a text, as often as it is called

_MARK = b"\xef\xbb\xbf"  # the byte order mark of UTF-8
_PIECE = 1 << 20  # bytes that are read together to find a line


def pieces(file: Any) -> Iterator[bytes]:
    """The bytes of an open file."""
    return iter(lambda: file.read(_PIECE), b"")


def ragged_line(opening: Opening, n_columns: int, delimiter: str, quotes: bool, where: str) -> str | None:
    """The first line with too few or too many columns, in a sentence; None if there is none."""
    with opening() as file:
        texts = (line.decode("latin-1") for line in _lines(pieces(file)))  # any byte is a character
        found = _first_ragged(texts, n_columns, delimiter, quotes)
    if found is None:
        return None
    line, row = found
    text = delimiter.join(row).encode("latin-1").decode(errors="replace")
    cure = "repair or remove it"
    if len(row) > n_columns and quotes and delimiter != "\t":
        cure += f", or put fields with a '{delimiter}' in quotes"
    columns = f"{counted(len(row), 'column')} instead of {n_columns:,}"
    return f"line {line:,} of {where} has {columns} ('{cut(text)}'); {cure}"


def undecodable_line(opening: Opening, where: str) -> str | None:
    """The first line that is not UTF-8, in a sentence; None if there is none."""
    with opening() as file:
        for number, line in enumerate(_lines(pieces(file)), start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f"line {number:,} of {where} is not valid UTF-8; save the file as UTF-8"
    return None


def _first_ragged(texts: Iterable[str], n_columns: int, delimiter: str, quotes: bool) -> tuple[int, list[str]] | None:
    """The line in which it begins, and its fields."""
    rows = csv.reader(texts, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE)
    line = 1
    try:
        for row in rows:
            if row and len(row) != n_columns:
                return line, row
            line = rows.line_num + 1
    except csv.Error:
        return None
    return None


def _lines(content: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines, without the byte order mark."""
    rest = next(content, b"").removeprefix(_MARK)
    for piece in content:
        *whole, rest = (rest + piece).splitlines(keepends=True)
        yield from whole
    yield from rest.splitlines(keepends=True)
