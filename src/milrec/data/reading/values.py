"""A column of ratings or counts → 64-bit floating-point numbers, none of them changed on the way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milrec.errors import DataError

EXACT = 2**53  # below it, every whole number is a 64-bit floating-point number

Place = Callable[[int], str]  # where the user finds a row of a block, which is counted from 0: "line 7", "row 6"


def row_place(row: int) -> str:
    """In a table without lines: rows are counted from 1."""
    return f"row {row + 1:,}"


def numbers_of_column(column: pa.ChunkedArray, where: str, place: Place = row_place) -> npt.NDArray[np.float64]:
    """All of them finite."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        raise DataError(f"{where} holds {column.type}; a number is needed")
    values: npt.NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    broken = np.flatnonzero(~np.isfinite(values))
    if len(broken):
        found = "no number" if np.isnan(values[broken[0]]) else str(values[broken[0]])
        raise DataError(f"{where} has {found} in {place(int(broken[0]))}; remove or repair such rows")
    if not pa.types.is_floating(column.type):
        refuse_inexact(values, where, place)
    return values


def refuse_inexact(values: npt.NDArray[np.float64], where: str, place: Place = row_place) -> None:
    """Beyond 2^53, two whole numbers may be the same 64-bit floating-point number."""
    beyond = np.flatnonzero(np.abs(values) >= EXACT)
    if len(beyond):
        raise DataError(
            f"{where} has {values[beyond[0]]:.17g} in {place(int(beyond[0]))}; values must be below 2^53 "
            "(is it a column of ids or times?)"
        )
