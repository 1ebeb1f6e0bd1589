"""Ids that are met block by block → their numbers among all ids, in order.

Within a block, ids are numbered as they come; the distinct ones go to the disk. Once all blocks were seen, these few
are sorted, and a table for each block leads from its own numbers to the final ones. The distinct ids of all must fit
into memory, not the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int32]
_TOGETHER = 1 << 26  # ids that are looked up at once


class IdBlocks:
    """The ids of a column."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer: pa.RecordBatchFileWriter | None = None

    def add(self, ids: pa.ChunkedArray) -> Numbers:
        """Number the ids of a block, among themselves."""
        coded = ids.combine_chunks().dictionary_encode()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.unify_dictionaries().combine_chunks()
        batch = pa.record_batch({"id": coded.dictionary})
        self._writer = self._writer or pa.ipc.new_file(str(self.path), batch.schema)
        self._writer.write_batch(batch)
        numbers: Numbers = coded.indices.to_numpy()
        return numbers.astype(np.int32)

    def blocks(self) -> list[pa.Array]:
        """The ids of each block, mapped into memory."""
        self.close()
        with pa.memory_map(str(self.path)) as file:
            found: list[pa.Array] = pa.ipc.open_file(file).read_all()["id"].chunks
        return found

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def numbered(several: Iterable[IdBlocks]) -> tuple[pa.Array, list[Numbers]]:
    """All ids in order, and for each block of all of them the numbers of its ids among them."""
    blocks = [block for one in several for block in one.blocks()]
    distinct = pc.unique(pa.chunked_array(blocks))
    distinct = distinct.take(pc.sort_indices(distinct))
    numbers: list[Numbers] = []
    for group in _groups(blocks):
        found = pc.index_in(pa.chunked_array(group), value_set=distinct).to_numpy()
        numbers += np.split(found, np.cumsum([len(block) for block in group[:-1]]))
    return distinct, numbers


def _groups(blocks: list[pa.Array]) -> list[list[pa.Array]]:
    """Blocks in groups of about as many ids as are looked up at once: each group costs a hash table of all ids."""
    groups: list[list[pa.Array]] = [[]]
    for block in blocks:
        if groups[-1] and sum(map(len, groups[-1])) + len(block) > _TOGETHER:
            groups.append([])
        groups[-1].append(block)
    return groups
