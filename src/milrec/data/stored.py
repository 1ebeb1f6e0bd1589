"""The Arrow and safetensors files of data, split and model folders: written, and checked in full when they are read.

A hash only shows that a file is the one that was saved. Anything may have been written into it, so no number in it is
used as a length, an offset or an index before it has been looked at.
"""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
from safetensors import safe_open

from milrec.data.arrow_footer import is_compressed
from milrec.errors import FolderError, first_line

Columns = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32]]
_PAIRS_TOGETHER = 1 << 22  # that are checked at a time: what is mapped may be larger than memory
_PAIR_COLUMNS = {"user": pa.int32(), "item": pa.int32(), "weight": pa.float32()}


def write_table(path: Path, table: pa.Table) -> None:
    """An uncompressed Arrow file in one piece, which any Arrow or pandas reader can open, and which can be mapped."""
    feather.write_feather(table, path, compression="uncompressed", chunksize=max(table.num_rows, 1))


def read_table(path: Path) -> pa.Table:
    """A table mapped into memory; refused if its lengths, offsets or texts are not what they claim to be."""
    try:
        with path.open("rb") as plain, mmap(plain.fileno(), 0, access=ACCESS_READ) as content:
            compressed = is_compressed(content)
        if compressed:
            raise ValueError("it is compressed, which milrec's own files are not")
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, MemoryError, ValueError) as error:
        raise FolderError(f"'{path}' is not an Arrow file that can be used ({first_line(error)})") from None
    if len(set(table.column_names)) < table.num_columns:
        raise FolderError(f"'{path}' has two columns of the same name")
    return table


def write_pair_columns(
    path: Path, users: npt.NDArray[np.int32], items: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]
) -> None:
    """A file of pairs, which are in order; straight from the arrays, which may be mapped."""
    write_table(path, pa.table({"user": pa.array(users), "item": pa.array(items), "weight": pa.array(weights)}))


def read_pair_columns(path: Path, shape: tuple[int, int]) -> Columns:
    """User, item and weight of every pair, in order; refused if a number in them is impossible."""
    table = read_table(path)
    if dict(zip(table.column_names, table.schema.types, strict=True)) != _PAIR_COLUMNS:
        raise FolderError(f"'{path}' is not a file of pairs: it needs columns user, item (int32) and weight (float)")
    if any(table[name].null_count for name in _PAIR_COLUMNS):
        raise FolderError(f"'{path}' holds impossible pairs: a number is missing")
    users, items, weights = (_as_numpy(table[name]) for name in _PAIR_COLUMNS)
    pieces = (slice(start, start + _PAIRS_TOGETHER + 1) for start in range(0, len(users), _PAIRS_TOGETHER))
    if not all(_possible(users[piece], items[piece], weights[piece], shape) for piece in pieces):
        raise FolderError(f"'{path}' holds impossible pairs: out of range, out of order, or without a weight")
    return users, items, weights


def _possible(
    users: npt.NDArray[np.int32], items: npt.NDArray[np.int32], weights: npt.NDArray[np.float32], shape: tuple[int, int]
) -> bool:
    """Whether pairs are in range and in order, and have weights."""
    return bool(
        users.min() >= 0
        and users.max() < shape[0]
        and items.min() >= 0
        and items.max() < shape[1]
        and (np.diff(users.astype(np.int64) * shape[1] + items) > 0).all()
        and np.isfinite(weights).all()
        and weights.min() > 0
    )


def read_ids(path: Path) -> pa.Table:
    """A table of users or items: a column `id` of distinct texts or whole numbers, perhaps with titles and others."""
    table = read_table(path)
    if "id" not in table.column_names:
        raise FolderError(f"'{path}' has no column 'id'")
    ids = table["id"]
    if not (pa.types.is_int64(ids.type) or pa.types.is_large_string(ids.type)) or ids.null_count:
        raise FolderError(f"'{path}' has ids of type {ids.type!s:.40}; int64 or large_string without gaps is needed")
    if not _ascend(ids) and pc.count_distinct(ids).as_py() != len(ids):
        raise FolderError(f"'{path}' has the same id twice")
    if "title" in table.column_names and table["title"].type not in (pa.string(), pa.large_string()):
        raise FolderError(f"'{path}' has titles of type {table['title'].type!s:.40}; text is needed")
    return table


def _ascend(ids: pa.ChunkedArray) -> bool:
    """Whether each id is above the one before it, as milrec writes them: then none is there twice."""
    return bool(pc.all(pc.greater(ids.slice(1), ids.slice(0, max(len(ids) - 1, 0))), min_count=0).as_py())


def read_counts(path: Path, n_items: int) -> npt.NDArray[np.int64]:
    """How many users adopted each item."""
    table = read_table(path)
    if table.schema != pa.schema([("adopters", pa.int64())]) or table.num_rows != n_items:
        raise FolderError(f"'{path}' needs one column, adopters (int64), with a number for each item")
    counts = _as_numpy(table["adopters"]) if not table["adopters"].null_count else np.array([-1])
    if len(counts) and not 0 <= int(counts.min()) <= int(counts.max()) < 2**31:
        raise FolderError(f"'{path}' holds impossible numbers of adopters")
    return counts


def read_arrays(path: Path, names: tuple[str, ...]) -> list[npt.NDArray[np.float32]]:
    """Arrays of finite 32-bit numbers by name, from a safetensors file that holds these and no others."""
    try:
        with safe_open(path, framework="np") as file:
            if set(file.keys()) != set(names):
                raise ValueError(f"it needs {', '.join(names)} and nothing else")
            kinds = {file.get_slice(name).get_dtype() for name in names}
            if kinds != {"F32"}:
                raise ValueError(f"its numbers are {', '.join(sorted(kinds))}, not F32")
            arrays = [file.get_tensor(name) for name in names]
    except Exception as error:  # SafetensorError is a plain Exception, and damaged headers raise others too
        raise FolderError(f"'{path}' cannot be read ({first_line(error)})") from None
    if not all(np.isfinite(array).all() for array in arrays):
        raise FolderError(f"'{path}' has numbers that are not finite")
    return arrays


def _as_numpy(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Without a copy if the numbers lie in one piece, as they are written, and at an address that suits them."""
    values: npt.NDArray[Any] = column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()
    return np.require(values, requirements="A")
