"""A SciPy sparse matrix → rows: a user for each row, an item for each column, a value for each stored cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_array

from milrec.data.filters import Filters
from milrec.data.reading.tables import Rows, checked_ids
from milrec.data.reading.values import EXACT
from milrec.errors import DataError, cut


@dataclass(frozen=True)
class MatrixIds:
    """The ids of a matrix's rows and columns; None: their numbers, from 0."""

    users: Sequence[Any] | None = None
    items: Sequence[Any] | None = None

    @property
    def given(self) -> bool:
        return self.users is not None or self.items is not None


def matrix_rows(matrix: Any, ids: MatrixIds, filters: Filters) -> Rows:
    """Every stored cell is a row; cells that are not stored are missing."""
    if matrix.ndim != 2:
        dimensions = "1 dimension" if matrix.ndim == 1 else f"{matrix.ndim} dimensions"
        raise DataError(f"the matrix has {dimensions}; it needs a row for each user, a column for each item")
    if not (np.issubdtype(matrix.dtype, np.number) or matrix.dtype == np.bool_) or np.iscomplexobj(matrix):
        raise DataError(f"the matrix holds {matrix.dtype}; numbers are needed")
    cells = _summed(matrix)
    if not cells.nnz:
        raise DataError("the matrix has no stored cells, so nothing is known to be adopted")
    _refuse_strange(cells, filters)
    users = np.repeat(np.arange(cells.shape[0]), np.diff(cells.indptr))
    user_ids, item_ids = (
        _ids(ids.users, users, cells.shape[0], "user"),
        _ids(ids.items, cells.indices, cells.shape[1], "item"),
    )
    return Rows(
        users=user_ids,
        items=item_ids,
        values=cells.data,
        place=lambda row: f"cell [{users[row]}, {cells.indices[row]}] of the matrix",
    )


def _summed(matrix: Any) -> csr_array:
    """A copy, since the caller's matrix is not ours to change, in which cells that are stored twice are added up.

    They are added as 64-bit numbers, whatever the matrix holds: 300 ones of 8 bits are 300. True twice stays true.
    """
    cells = csr_array(matrix.copy() if matrix.dtype == np.bool_ else matrix.astype(np.float64))
    cells.sum_duplicates()
    return csr_array(cells, dtype=np.float64)


def _refuse_strange(cells: csr_array, filters: Filters) -> None:
    values = cells.data
    checks = [(~np.isfinite(values), "repair or remove such cells"), (np.abs(values) >= EXACT, "values end at 2^53")]
    if not filters.are_thresholds:
        checks.append((values < 0, "counts cannot be negative (if these are ratings, give `adopt_min`)"))
    for strange, cure in checks:
        if strange.any():
            place = int(strange.argmax())
            row = int(np.searchsorted(cells.indptr, place, side="right")) - 1
            found = "no number" if np.isnan(values[place]) else f"{values[place]:g}"
            raise DataError(f"the matrix has {found} in cell [{row}, {cells.indices[place]}]; {cure}")


def _ids(given: Sequence[Any] | None, places: npt.NDArray[np.integer], n: int, what: str) -> pa.ChunkedArray:
    """The id for each cell, from one for each of n rows or columns, checked."""
    if given is None:
        return pa.chunked_array([pa.array(places.astype(np.int64))])
    try:
        ids = given if isinstance(given, pa.ChunkedArray) else pa.chunked_array([pa.array(given)])
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        raise DataError(f"{what}_ids must be a list of texts or of whole numbers, not {cut(repr(given))}") from None
    if len(ids) != n:
        side = "rows" if what == "user" else "columns"
        raise DataError(
            f"{what}_ids has {len(ids):,} {'id' if len(ids) == 1 else 'ids'}, and the matrix has {n:,} {side}"
        )
    checked = checked_ids(ids, f"{what}_ids", lambda place: f"entry {place + 1:,}")
    counts = pc.value_counts(checked)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        raise DataError(f"{what}_ids has '{cut(str(repeated[0]['values'].as_py()))}' twice")
    return checked.take(pa.array(places))
