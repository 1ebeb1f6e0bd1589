"""A column of times → whole numbers wherever they are whole: only their order counts, and it is kept exactly.

A table that is read block by block may hold dates in one and nothing but whole numbers in another; `joined_kind`
says whether they go together, and as what.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milrec.data.reading.values import EXACT, Place, numbers_of_column, row_place
from milrec.errors import DataError, cut

Times = npt.NDArray[np.int64] | npt.NDArray[np.uint64] | npt.NDArray[np.float64]

_WHOLE, _FRACTIONS = "whole numbers", "numbers"
_DATES = {  # texts: what they are parsed as, from the most to the least likely
    "dates": pa.timestamp("us"),
    "dates with a time zone": pa.timestamp("us", tz="UTC"),
    "dates with nanoseconds": pa.timestamp("ns"),
    "dates with nanoseconds and a time zone": pa.timestamp("ns", tz="UTC"),
}
_FINER = {"dates": "dates with nanoseconds", "dates with a time zone": "dates with nanoseconds and a time zone"}
_NANOSECONDS = 1_000  # of a microsecond
_LIKE = "2020-01-31 or 2020-01-31T08:30:00"


def read_times(column: pa.ChunkedArray, where: str, place: Place = row_place) -> tuple[str, Times]:
    """The kind of a column's times, and the times."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = str(column.type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        kind, column = _parsed_texts(column, where, place)
    try:
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us"))
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.int64()) if column.type.scale <= 0 else _fractions(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"{where} holds times that cannot be read; write them as whole numbers or dates") from None
    if not pa.types.is_integer(column.type) or column.null_count:
        return kind, numbers_of_column(column, where, place)
    numbers: npt.NDArray[Any] = column.to_numpy()
    return kind, numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64)


def joined_kind(kinds: Sequence[str], where: str) -> str:
    """The kind that all blocks of a column can be brought to."""
    found = sorted(set(kinds))
    if len(found) == 1:
        return found[0]
    if found == sorted((_WHOLE, _FRACTIONS)):
        return _FRACTIONS
    for coarse, fine in _FINER.items():
        if found == sorted((coarse, fine)):
            return fine
    raise DataError(f"{where} holds times of two kinds, {found[0]} and {found[1]}; write all of them in one way")


def brought_to(kind: str, own: str, times: Times, where: str) -> Times:
    """Times of one kind as those of another, which `joined_kind` chose for both."""
    if kind == own:
        return times
    if kind == _FRACTIONS:
        if len(times) and max(abs(int(times.max())), abs(int(times.min()))) >= EXACT:
            raise DataError(f"{where} holds times that cannot be read (a number of 2^53 or more beside fractions)")
        return times.astype(np.float64)
    if len(times) and max(abs(int(times.max())), abs(int(times.min()))) > np.iinfo(np.int64).max // _NANOSECONDS:
        raise DataError(f"{where} holds a date that nanoseconds cannot reach, beside dates with nanoseconds")
    return times * _NANOSECONDS


def _parsed_texts(column: pa.ChunkedArray, where: str, place: Place) -> tuple[str, pa.ChunkedArray]:
    """Texts of times, or an error that names the first one that cannot be read, or not like those before it."""
    try:
        return _parsed(column)
    except pa.ArrowInvalid:
        first = _first_unlike(column)
        text = cut(str(column[first].as_py()))
    if not _readable(column.slice(first, 1)):
        raise DataError(f"{where} has '{text}' in {place(first)}; a time is needed: a number, or a date like {_LIKE}")
    raise DataError(
        f"{where} has '{text}' in {place(first)}, which is not written like the times before it; "
        "write all of them in one way (numbers of 2^53 or more without fractions)"
    )


def _first_unlike(column: pa.ChunkedArray) -> int:
    """The first text with which the ones up to it cannot be read together, by bisection."""
    low, high = 0, len(column)  # the first `low` can be read, the first `high` cannot
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _readable(column.slice(0, middle)) else (low, middle)
    return low


def _readable(column: pa.ChunkedArray) -> bool:
    try:
        _parsed(column)
    except pa.ArrowInvalid:
        return False
    return True


def _parsed(column: pa.ChunkedArray) -> tuple[str, pa.ChunkedArray]:
    """Texts of times: all of them whole numbers, or numbers, or dates with times."""
    if pc.all(pc.match_substring_regex(column, r"^[+-]?[0-9]+$")).as_py():
        return _WHOLE, pc.replace_substring_regex(column, r"^\+", "").cast(pa.int64())
    try:
        numbers = column.cast(pa.float64())
    except pa.ArrowInvalid:
        return _parsed_dates(column)
    return _FRACTIONS, _fractions(numbers)


def _fractions(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times with fractions, as long as they are not so large that two of them may become one."""
    numbers = column.cast(pa.float64())
    if (pc.max(pc.abs(numbers)).as_py() or 0) >= EXACT:
        raise pa.ArrowInvalid("a number of 2^53 or more beside fractions")
    return numbers


def _parsed_dates(column: pa.ChunkedArray) -> tuple[str, pa.ChunkedArray]:
    """With or without a time zone, in microseconds if they are enough."""
    *kinds, last = _DATES
    for kind in kinds:
        try:
            return kind, column.cast(_DATES[kind])
        except pa.ArrowInvalid:
            continue
    return last, column.cast(_DATES[last])
