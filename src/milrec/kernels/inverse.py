"""The inverse of a large positive definite matrix, in its own memory, with the same bytes at any number of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from milrec.kernels.threads import Pool, Task, thread_pool

_BLOCK = 512  # rows and columns that are eliminated at once
_BAND = 1024  # rows and columns that are changed by one product of matrices


def n_blocks(n_rows: int) -> int:
    """How many blocks are swept to invert a matrix with this many rows."""
    return -(-n_rows // _BLOCK)


def invert(square: Tensor, done: Callable[[int], None]) -> bool:
    """Invert a matrix in its own memory, on and below the diagonal; False if it is not positive definite.

    Each block K of rows and columns is swept in turn, S being the part of the matrix in both: in the rows and columns
    outside K, A_ij - A_iK S⁻¹ A_Kj; in those of K, A_iK S⁻¹ and -S⁻¹. When all have been swept, -A⁻¹ is left. LAPACK
    needs the same n³ operations; but scipy's crashes the process at 41,000 rows, and torch's needs a second matrix.
    """
    with thread_pool() as pool:
        for number, first in enumerate(range(0, len(square), _BLOCK), start=1):
            if not _sweep(square, slice(first, min(first + _BLOCK, len(square))), pool):
                return False
            done(number)
        pool.run([_task(square[band].neg_) for band in _bands(len(square))])
    return True


def _sweep(square: Tensor, own: slice, pool: Pool) -> bool:
    """Sweep the block K = `own`; each product is its own task, the same for any number of threads."""
    factor, failed = torch.linalg.cholesky_ex(square[own, own])
    if failed:
        return False
    inverse = torch.cholesky_inverse(factor)
    column = square.new_empty(len(square), len(inverse))
    scaled = torch.empty_like(column)
    bands = _bands(len(square))

    def scale(band: slice) -> None:
        _copy_column(square, own, band, column)
        torch.mm(column[band], inverse, out=scaled[band])

    def change(rows: slice, columns: slice) -> None:
        square[rows, columns].addmm_(scaled[rows], column[columns].T, alpha=-1)

    def put_back(band: slice) -> None:
        first, last = _outside(own, band)
        square[own, band.start : first] = scaled[band.start : first].T
        square[last : band.stop, own] = scaled[last : band.stop]

    pool.run([_task(scale, band) for band in bands])
    pool.run([_task(change, bands[i], bands[j]) for i in range(len(bands)) for j in range(i + 1)])
    pool.run([_task(put_back, band) for band in bands])
    square[own, own] = -inverse
    return True


def _copy_column(square: Tensor, own: slice, band: slice, column: Tensor) -> None:
    """Some rows of A_iK, read from below the diagonal; 0 for those of K itself."""
    first, last = _outside(own, band)
    column[band.start : first] = square[own, band.start : first].T
    column[first:last] = 0
    column[last : band.stop] = square[last : band.stop, own]


def _outside(own: slice, band: slice) -> tuple[int, int]:
    """Where within a band the rows before K end, and those after K begin."""
    first, last = (min(max(place, band.start), band.stop) for place in (own.start, own.stop))
    return first, last


def _bands(n_rows: int) -> list[slice]:
    return [slice(low, min(low + _BAND, n_rows)) for low in range(0, n_rows, _BAND)]


def _task(work: Callable[..., Any], *given: Any) -> Task:
    return lambda worker: work(*given)
