"""Matrices of pairs: a row for each user, a column for each item, a weight where the two go together.

Rows are in order, and so are the items of a row. Whatever is derived from a matrix is made a block of rows at a time;
if the result is large, it lies in a file without a name, so that memory does not grow with the data.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from milrec.data.stored import read_pair_columns, write_pair_columns

_TOGETHER = 1 << 22  # pairs that are looked at together
_LARGE = 1 << 24  # numbers that are kept in a file rather than in memory
Numbers = npt.NDArray[np.integer[Any]]
Block = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32], Numbers]  # items and weights of some rows, and counts


def empty_pairs(shape: tuple[int, int]) -> csr_array:
    return csr_array(shape, dtype=np.float32)


def pairs_matrix(
    users: Numbers, items: Numbers, weights: npt.NDArray[np.floating[Any]], shape: tuple[int, int]
) -> csr_array:
    """A matrix of pairs, the weights of duplicates summed in an order that does not depend on the order of the rows."""
    cells = users.astype(np.int64) * shape[1] + items
    if (weights == 1).all():  # in any order
        cells.sort()
        first = np.flatnonzero(np.diff(cells, prepend=-1))
        summed = np.diff(first, append=len(cells))
    else:
        order = np.lexsort((weights, cells))
        cells = cells[order]
        first = np.flatnonzero(np.diff(cells, prepend=-1))
        summed = np.add.reduceat(weights[order].astype(np.float64), first) if len(first) else np.zeros(0)
    rows, columns = np.divmod(cells[first], max(shape[1], 1))
    return csr_array((summed.astype(np.float32), columns.astype(np.int32), _row_starts(rows, shape[0])), shape=shape)


def pair_users(pairs: csr_array) -> npt.NDArray[np.int32]:
    """The user of every pair, in the order of the matrix."""
    users = _room(pairs.nnz, np.int32)
    for start, stop in _row_blocks(pairs.indptr):
        rows = np.arange(start, stop, dtype=np.int32)
        users[pairs.indptr[start] : pairs.indptr[stop]] = np.repeat(rows, np.diff(pairs.indptr[start : stop + 1]))
    return users


def item_counts(pairs: csr_array) -> npt.NDArray[np.int64]:
    """How many pairs each item has."""
    counts = np.zeros(pairs.shape[1], dtype=np.int64)
    for start in range(0, pairs.nnz, _TOGETHER):
        counts += np.bincount(pairs.indices[start : start + _TOGETHER], minlength=len(counts))
    return counts


def take(pairs: csr_array, rows: Numbers, columns: Numbers) -> csr_array:
    """Some rows, in the given order, and some columns, which are ascending."""
    if len(columns) < pairs.shape[1]:
        numbers = np.full(pairs.shape[1], -1, dtype=np.int32)
        numbers[columns] = np.arange(len(columns), dtype=np.int32)
        shape = (pairs.shape[0], len(columns))
        pairs = _assembled(_in_columns(pairs, numbers), int(item_counts(pairs)[columns].sum()), shape)
    if len(rows) == pairs.shape[0] and np.array_equal(rows, np.arange(pairs.shape[0])):
        return pairs
    ends = np.concatenate([[0], np.cumsum(np.diff(pairs.indptr)[rows], dtype=np.int64)])
    blocks = (_block_of(csr_array(pairs[rows[start:stop]])) for start, stop in _row_blocks(ends))
    return _assembled(blocks, int(ends[-1]), (len(rows), pairs.shape[1]))


def with_numbers(pairs: csr_array, users: Numbers, items: Numbers, shape: tuple[int, int]) -> csr_array:
    """The same pairs by other numbers of users and items; those whose number is -1 are left out."""
    kept = np.flatnonzero(users >= 0)
    if not (_ascend(users[kept]) and _ascend(items[items >= 0])):  # not as milrec writes ids
        own, other = users[pair_users(pairs)], items[pairs.indices]
        both = (own >= 0) & (other >= 0)
        return pairs_matrix(own[both], other[both], pairs.data[both], shape)
    most = int(item_counts(pairs)[items >= 0].sum())
    named = _assembled(_in_columns(pairs, items.astype(np.int32)), most, (pairs.shape[0], shape[1]))
    named = take(named, kept, np.arange(shape[1]))
    counts = np.zeros(shape[0], dtype=np.int64)
    counts[users[kept]] = np.diff(named.indptr)
    return csr_array((named.data, named.indices, _starts_of(counts)), shape=shape)


def _ascend(numbers: Numbers) -> bool:
    return bool((np.diff(numbers) > 0).all())


def pairs_where(pairs: csr_array, mask: npt.NDArray[np.bool_]) -> csr_array:
    """The pairs whose mask is true."""
    blocks = (_chosen(pairs, mask[first:last], start, stop) for start, stop, first, last in _pieces(pairs))
    return _assembled(blocks, int(np.count_nonzero(mask)), pairs.shape)


def without(pairs: csr_array, others: csr_array) -> csr_array:
    """The pairs that are not in another matrix of the same shape."""
    kept = np.ones(pairs.nnz, dtype=np.bool_)
    for start, stop, first, last in _pieces(pairs):
        cells, taken = (_cells(csr_array(one[start:stop])) for one in (pairs, others))
        kept[first:last] = ~np.isin(cells, taken)
    return pairs_where(pairs, kept)


def added(*matrices: csr_array) -> csr_array:
    """The sum of matrices of the same shape."""
    first, *others = sorted((one for one in matrices if one.nnz), key=lambda one: -one.nnz) or [matrices[0]]
    if not others:
        return first
    blocks = (_block_of(_sum_of_rows((first, *others), start, stop)) for start, stop in _row_blocks(first.indptr))
    return _assembled(blocks, sum(one.nnz for one in (first, *others)), first.shape)


def write_pairs(path: Path, pairs: csr_array) -> None:
    """A sorted Arrow file of (user, item, weight)."""
    items, weights = pairs.indices.astype(np.int32, copy=False), pairs.data.astype(np.float32, copy=False)
    write_pair_columns(path, pair_users(pairs), items, weights)


def read_pairs(path: Path, shape: tuple[int, int]) -> csr_array:
    """The matrix in a file of pairs, mapped into memory; refused if a number in it is impossible."""
    users, items, weights = read_pair_columns(path, shape)
    return csr_array((weights, items, _row_starts(users, shape[0])), shape=shape)


def _row_starts(rows: Numbers, n_rows: int) -> Numbers:
    """Where each row begins, given the row of every pair."""
    counts = np.zeros(n_rows, dtype=np.int64)
    for start in range(0, len(rows), _TOGETHER):
        piece = rows[start : start + _TOGETHER]  # in order
        first, last = int(piece[0]), int(piece[-1])
        counts[first : last + 1] += np.bincount(piece - first)
    return _starts_of(counts)


def _starts_of(counts: Numbers) -> Numbers:
    """Where rows begin, in 32 bits if that is enough: otherwise scipy would widen the item numbers to match."""
    starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return starts.astype(np.int32) if starts[-1] < 2**31 else starts


def _row_blocks(starts: Numbers) -> Iterator[tuple[int, int]]:
    """Rows in blocks of a few million pairs, as long as one row does not have more."""
    cuts = np.searchsorted(starts, np.arange(0, int(starts[-1]), _TOGETHER)[1:], side="right") - 1
    yield from pairwise(np.unique([0, *cuts, len(starts) - 1]).tolist())


def _pieces(pairs: csr_array) -> Iterator[tuple[int, int, int, int]]:
    """The same, with the places of their pairs."""
    for start, stop in _row_blocks(pairs.indptr):
        yield start, stop, int(pairs.indptr[start]), int(pairs.indptr[stop])


def _assembled(blocks: Iterable[Block], most: int, shape: tuple[int, int]) -> csr_array:
    """One matrix of blocks of rows, which have so many pairs at most."""
    items, weights, counts, n_pairs = _room(most, np.int32), _room(most, np.float32), np.zeros(shape[0], np.int64), 0
    n_rows = 0
    for own_items, own_weights, own_counts in blocks:
        end = n_pairs + len(own_items)
        items[n_pairs:end], weights[n_pairs:end] = own_items, own_weights
        counts[n_rows : n_rows + len(own_counts)] = own_counts
        n_pairs, n_rows = end, n_rows + len(own_counts)
    return csr_array((weights[:n_pairs], items[:n_pairs], _starts_of(counts)), shape=shape)


def _block_of(pairs: csr_array) -> Block:
    return pairs.indices, pairs.data, np.diff(pairs.indptr)


def _chosen(pairs: csr_array, mask: npt.NDArray[np.bool_], start: int, stop: int) -> Block:
    """The pairs of rows start … stop-1 whose mask is true."""
    own = slice(pairs.indptr[start], pairs.indptr[stop])
    ends = np.concatenate([[0], np.cumsum(mask)])
    counts = np.diff(ends[pairs.indptr[start : stop + 1] - pairs.indptr[start]])
    return pairs.indices[own][mask], pairs.data[own][mask], counts


def _in_columns(pairs: csr_array, numbers: npt.NDArray[np.int32]) -> Iterator[Block]:
    """The pairs of the items that have a new number, by that number."""
    for start, stop, first, last in _pieces(pairs):
        items, weights, counts = _chosen(pairs, numbers[pairs.indices[first:last]] >= 0, start, stop)
        yield numbers[items], weights, counts


def _sum_of_rows(matrices: Iterable[csr_array], start: int, stop: int) -> csr_array:
    first, *others = (one[start:stop] for one in matrices)
    for other in others:
        first = first + other
    return csr_array(first)


def _cells(pairs: csr_array) -> npt.NDArray[np.int64]:
    """The number of each pair among all cells of the matrix."""
    users = np.repeat(np.arange(pairs.shape[0], dtype=np.int64), np.diff(pairs.indptr))
    cells: npt.NDArray[np.int64] = users * pairs.shape[1] + pairs.indices
    return cells


def _room(size: int, kind: type[np.number[Any]]) -> npt.NDArray[Any]:
    """An array for so many numbers; a large one in a file without a name, whose room on the disk is taken at once."""
    if size < _LARGE:
        return np.empty(size, dtype=kind)
    n_bytes = size * np.dtype(kind).itemsize
    with tempfile.TemporaryFile() as file:
        _take_room(file.fileno(), n_bytes)
        return np.memmap(file, dtype=kind, mode="r+", shape=(size,)).view(np.ndarray)


def _take_room(handle: int, n_bytes: int) -> None:
    """Room on the disk; where there is not enough, the error says on which: $TMPDIR names another."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, n_bytes)
        else:
            os.truncate(handle, n_bytes)
    except OSError as error:
        raise OSError(error.errno, error.strerror, tempfile.gettempdir()) from None
