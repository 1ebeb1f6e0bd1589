"""What Python's own csv module finds in a table: the rows that milrec must have, or must have counted as dropped."""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import sys
import zlib
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

csv.field_size_limit(sys.maxsize)
_END = "the end"  # of a text; a quote that is still open swallows it
Pair = tuple[str, str]
_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


class Unreadable(Exception):
    """A table that must be refused."""


@dataclass(frozen=True)
class Table:
    """The columns of a table, and its rows of as many fields; `ragged` are the others."""

    names: list[str]
    rows: list[list[str]]
    ragged: int

    def where(self, name: str, value: str) -> Table:
        """Only the rows that have a value in a column: true and false are 1 and 0, numbers are compared by size."""
        kept = [meaning(field) == meaning(value) for field in self.column(name)]
        rows = [row for row, keep in zip(self.rows, kept, strict=True) if keep]
        if not rows:
            raise Unreadable("no row meets the condition")
        return Table(self.names, rows, self.ragged)

    def column(self, name: str) -> list[str]:
        place = self.names.index(name)
        return [row[place] for row in self.rows]


def meaning(text: str) -> Decimal | str:
    if text.lower() in ("true", "false"):
        return Decimal(text.lower() == "true")
    return Decimal(text) if _NUMBER.fullmatch(text) else text


def read_table(content: bytes, name: str, delimiter: str | None = None) -> Table:
    """The rows of a CSV or TSV file; Unreadable if no reader should accept it."""
    if name.endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise Unreadable(f"gzip: {error}") from None
    text = content.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    delimiter = delimiter or ("\t" if ".tsv" in name else _delimiter(content))
    marked = csv.reader(io.StringIO(f"{text}\n{_END}", newline=""), delimiter=delimiter)
    rows = [row for row in marked if row]
    if rows.pop() != [_END]:
        raise Unreadable("a quote is still open at the end")
    if not rows:
        raise Unreadable("no rows")
    names, *rows = rows
    return Table(names, [row for row in rows if len(row) == len(names)], sum(len(row) != len(names) for row in rows))


def _delimiter(content: bytes) -> str:
    """The most frequent of four in the first line."""
    line = re.split(rb"[\r\n]", content.lstrip(b"\r\n"), maxsplit=1)[0][: 1 << 16].decode("utf-8", "replace")
    return max((",", "\t", ";", "|"), key=line.count)


def text_of(field: str) -> str:
    """A field as milrec would keep it; Unreadable if it is not UTF-8.

    A quote may stand between two bytes of a character: what counts is the field once its quotes are gone.
    """
    try:
        return field.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable("an id is not UTF-8") from None


def pair_counts(table: Table, user: str, item: str) -> Counter[Pair]:
    """How often each pair occurs. An empty id makes the table one to refuse."""
    pairs = list(zip(table.column(user), table.column(item), strict=True))
    if any("" in pair for pair in pairs):
        raise Unreadable("an id is empty")
    return Counter((text_of(one), text_of(other)) for one, other in pairs)


def pair_sums(table: Table, user: str, item: str, value: str) -> dict[Pair, float]:
    """The sum of the values of each pair, without pairs whose sum is 0."""
    sums: dict[Pair, Fraction] = {}
    for one, other, text in zip(table.column(user), table.column(item), table.column(value), strict=True):
        number = number_of(text)
        if number < 0:
            raise Unreadable("a count is negative")
        pair = text_of(one), text_of(other)
        sums[pair] = sums.get(pair, Fraction(0)) + Fraction(number)
    return {pair: float(total) for pair, total in sums.items() if total > 0}


def number_of(text: str) -> float:
    """A finite number, as Python reads it; Unreadable if it is none."""
    try:
        number = float(text)
    except ValueError:
        raise Unreadable(f"{text[:40]!r} is not a number") from None
    if not math.isfinite(number) or "_" in text:
        raise Unreadable(f"{text[:40]!r} is not a finite number")
    return number


def latest_values(table: Table, columns: tuple[str, str, str, str]) -> dict[Pair, float] | None:
    """The value with the latest time of each pair, the larger of two at the same time; None unless times are whole."""
    user, item, value, time = (table.column(name) for name in columns)
    if not all(_WHOLE.fullmatch(one) for one in time):
        return None
    latest: dict[Pair, tuple[int, float]] = {}
    for one, other, text, when in zip(user, item, value, time, strict=True):
        pair, rating = (text_of(one), text_of(other)), (int(when), number_of(text))
        latest[pair] = max(latest.get(pair, rating), rating)
    return {pair: rating for pair, (_, rating) in latest.items()}
