"""How many rows a CSV text has, and where they begin: counted from its bytes, independently of the parser.

As for Python's csv module, a quote opens a field only where the field begins, two quotes inside quotes are one, a row
ends with a line unless the line break is inside quotes, and a blank line is no row.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

_RETURN, _LINE_FEED, _QUOTE = b"\r"[0], b"\n"[0], b'"'[0]
_MARK = b"\xef\xbb\xbf"  # the byte order mark of UTF-8
_PIECE = 1 << 20  # bytes that are looked at together: they stay in the processor's cache

_OUTSIDE, _INSIDE, _CLOSED = 0, 1, 2  # where a quote leaves the text: as it was, inside a field, just out of it
_WITHIN, _DOUBLED, _FIRST = 0, 1, 2  # how a quote stands: within a field, right after another quote, first in a field
_AFTER = (  # the state before, how the quote stands → the state after
    (_OUTSIDE, _OUTSIDE, _INSIDE),
    (_CLOSED, _CLOSED, _CLOSED),
    (_OUTSIDE, _INSIDE, _INSIDE),
)

Places = npt.NDArray[np.int64]
States = npt.NDArray[np.uint8]


class RowCounter:
    """Counts the rows of a text that it is fed with piece by piece, and notices where quotes span lines."""

    def __init__(self, delimiter: bytes | None) -> None:
        """`delimiter`: what separates fields; None for a text in which quotes mean nothing."""
        self.rows = 0
        self.first_break: int | None = None  # the line of the first line break inside quotes
        self.most_lines = 1  # of a field in quotes
        self.longest_opened: int | None = None  # the line in which the field with the most lines begins
        self._kinds = None if delimiter is None else _kinds_by_byte_before(delimiter)
        self._begun = b""  # the first bytes, until it is known whether they are a byte order mark
        self._started = False
        self._last = _LINE_FEED  # the byte before the next one
        self._line = 1
        self._state = _OUTSIDE
        self._opened = 0  # the line in which the last quoted field began, and the line breaks in it so far
        self._breaks = 0

    @property
    def line(self) -> int:
        """The line of the next byte, counted from 1."""
        return self._line

    @property
    def unclosed(self) -> int | None:
        """The line in which the quote began that is open at the moment."""
        return self._opened if self._state == _INSIDE else None

    def feed(self, content: Any) -> None:
        """The next bytes of the text."""
        if not self._started:
            content = self._begun = self._begun + bytes(content)
            if len(content) < len(_MARK) and _MARK.startswith(content):
                return
            self._started, content = True, content.removeprefix(_MARK)
        whole = np.frombuffer(content, dtype=np.uint8)
        for start in range(0, len(whole), _PIECE):
            self._count(whole[start : start + _PIECE])

    def end(self) -> None:
        """The text is over: the last row needs no line end."""
        if not self._started:
            self._started = True
            self._count(np.frombuffer(self._begun, dtype=np.uint8))
        self.rows += self._last not in (_RETURN, _LINE_FEED) or self._state == _INSIDE

    def _count(self, piece: npt.NDArray[np.uint8]) -> None:
        if len(piece) == 0:
            return
        feeds, returns = piece == _LINE_FEED, piece == _RETURN
        has_returns = bool(returns.any())
        ends = feeds | returns if has_returns else feeds
        quotes = np.flatnonzero(piece == _QUOTE) if self._kinds is not None else np.zeros(0, dtype=np.int64)
        if len(quotes) or self._state == _INSIDE:
            self._count_quoted(piece, quotes, np.flatnonzero(ends))
        else:
            after_end = ends[:-1] & ends[1:]  # a blank line, or the second half of a line end of two bytes
            self.rows += int(np.count_nonzero(ends) - np.count_nonzero(after_end)) - self._is_blank(ends[0])
        self._line += int(np.count_nonzero(feeds))
        if has_returns:  # a return that is followed by a line feed is no line of its own
            self._line += int(np.count_nonzero(returns) - np.count_nonzero(returns[:-1] & feeds[1:]))
        self._line -= bool(feeds[0]) and self._last == _RETURN
        self._last = int(piece[-1])

    def _is_blank(self, first_is_end: np.bool_) -> bool:
        return bool(first_is_end) and self._last in (_RETURN, _LINE_FEED)

    def _count_quoted(self, piece: npt.NDArray[np.uint8], quotes: Places, ends: Places) -> None:
        assert self._kinds is not None
        kinds = self._kinds.take(self._bytes_before(piece, quotes))
        states = self._states(kinds)
        inside = states[np.searchsorted(quotes, ends)] == _INSIDE
        before_ends = self._bytes_before(piece, ends)
        self.rows += int(np.count_nonzero(~inside & (before_ends != _RETURN) & (before_ends != _LINE_FEED)))
        self._state = int(states[-1])
        if not (inside.any() or self._state == _INSIDE or piece[-1] == _QUOTE):  # the next byte may be a quote too
            return
        starts = np.flatnonzero((kinds == _FIRST) & (states[:-1] != _INSIDE))
        starts = starts if inside.any() else starts[-1:]  # of fields on one line, only one that is open still matters
        new_line = (piece[ends] == _RETURN) | (before_ends != _RETURN)
        self._follow_fields(quotes[starts], ends[new_line], inside[new_line])

    def _bytes_before(self, piece: npt.NDArray[np.uint8], places: Places) -> npt.NDArray[np.uint8]:
        found = piece[places - 1]
        if len(places) and places[0] == 0:
            found[0] = self._last
        return found

    def _states(self, kinds: npt.NDArray[np.uint8]) -> States:
        """The state before the first quote, and after each."""
        states = np.empty(len(kinds) + 1, dtype=np.uint8)
        states[0] = self._state
        first = int(self._state == _INSIDE)  # if every quote opens or closes a field, this one and each second opens
        literal = self._state == _OUTSIDE and len(kinds) > 0 and kinds[0] == _DOUBLED
        if not literal and kinds[first::2].all():
            states[1 + first :: 2], states[2 - first :: 2] = _INSIDE, _CLOSED
            return states
        state, one_by_one = self._state, bytearray()
        for kind in kinds.tolist():
            state = _AFTER[state][kind]
            one_by_one.append(state)
        states[1:] = one_by_one
        return states

    def _follow_fields(self, openings: Places, breaks: Places, inside: npt.NDArray[np.bool_]) -> None:
        """Where fields in quotes begin, and over how many lines they run. `breaks`: where lines end."""
        field = np.searchsorted(openings, breaks[inside])  # 0: a field that began in an earlier piece
        counts = np.bincount(field, minlength=len(openings) + 1)
        counts[0] += self._breaks
        lines = np.concatenate([[self._opened], self._line + np.searchsorted(breaks, openings)])
        if len(field) and self.first_break is None:
            self.first_break = int(lines[field[0]])
        longest = int(counts.argmax())
        if counts[longest] + 1 > self.most_lines:
            self.most_lines, self.longest_opened = int(counts[longest]) + 1, int(lines[longest])
        self._opened, self._breaks = int(lines[-1]), int(counts[-1])


def line_of_row(pieces: Iterable[bytes], delimiter: bytes | None, n_before: int) -> int:
    """The line, counted from 1, in which the row begins that has so many rows before it, the header among them."""
    counter = RowCounter(delimiter)
    for piece in pieces:
        start = copy(counter)
        counter.feed(piece)
        if counter.rows < n_before:
            continue
        counter = start
        for line in piece.splitlines(keepends=True):
            if counter.rows == n_before and line.strip(b"\r\n"):
                return counter.line
            counter.feed(line)
    return counter.line


def _kinds_by_byte_before(delimiter: bytes) -> npt.NDArray[np.uint8]:
    """How a quote stands, for each byte that may come before it."""
    kinds = np.full(256, _WITHIN, dtype=np.uint8)
    kinds[_QUOTE] = _DOUBLED
    kinds[[*delimiter, _RETURN, _LINE_FEED]] = _FIRST
    return kinds
