"""A table of any size → the files of a data folder: the same bytes as in memory, a part of the rows at a time.

1. Rows are read and checked once; on disk, their users and items are numbers (`collection`).
2. The rows of some users at a time are merged by the filters, as in memory (`filters.NumberedRows`).
3. Users and items with too few pairs are left out, and what is left is numbered anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milrec.data.filters import Filters, item_table, title_counts
from milrec.data.interactions import data_facts
from milrec.data.pairs import pair_users
from milrec.data.reading.blocks import Blocks
from milrec.data.stored import write_pair_columns, write_table
from milrec.data.streaming.collection import Collection, Report
from milrec.data.streaming.spill import Spill, spilling
from milrec.errors import DataError

Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_PAIRS_TOGETHER = 1 << 24
_PAIR = {"user": np.int32, "item": np.int32, "weight": np.float32}


@dataclass(frozen=True)
class Streamed:
    """The facts of a data folder, and how many rows, users and items were left out on the way."""

    facts: dict[str, Any]
    counts: dict[str, int]


def stream(blocks: Blocks, filters: Filters, titles: pa.Table | None, folder: Path, report: Report) -> Streamed:
    """Write the files of a data folder; what is needed on the way lies in a folder inside it until the end."""
    with spilling(folder / "spill") as spill:
        collection = Collection(blocks, spill)
        collection.read(filters, report)
        pairs = _Pairs.of(collection, filters, spill)
        users, items = pairs.kept(filters)
        if not users.any():
            raise DataError(f"{blocks.source} has no adopted items left; check the thresholds and filters")
        sizes = [pairs.write(label, folder / f"{label}.arrow", users, items) for label in ("adopted", "rejected")]
    item_rows = item_table(collection.item_ids, titles).take(pa.array(np.flatnonzero(items)))
    write_table(folder / "items.arrow", item_rows)
    write_table(folder / "users.arrow", pa.table({"id": collection.user_ids}).take(pa.array(np.flatnonzero(users))))
    counts = {
        "rows_in_source": len(collection) + sum(blocks.dropped.values()),
        **blocks.dropped,
        "rows": len(collection),
        **pairs.counts,
        "users_left_out": len(users) - int(users.sum()),
        "items_left_out": len(items) - int(items.sum()),
        **title_counts(item_rows, titles),
    }
    return Streamed(data_facts(int(users.sum()), int(items.sum()), *sizes), counts)


class _Pairs:
    """The merged pairs of all users on disk, in order."""

    def __init__(self, spill: Spill, shape: tuple[int, int]) -> None:
        self.spill, self.shape = spill, shape
        self.adopters = np.zeros(shape[1], dtype=np.int64)
        self.counts = dict.fromkeys(
            ("rows_neither_adopted_nor_rejected", "duplicates_merged", "rejections_contradicted"), 0
        )
        self._columns = {label: spill.columns(label, dict(_PAIR)) for label in ("adopted", "rejected")}

    @classmethod
    def of(cls, collection: Collection, filters: Filters, spill: Spill) -> _Pairs:
        pairs = cls(spill, (len(collection.user_ids), len(collection.item_ids)))
        for bundle in collection.bundles():
            merged = bundle.rows.merged(filters, (bundle.n_users, pairs.shape[1]))
            pairs.adopters += np.bincount(merged.adopted.indices, minlength=pairs.shape[1])
            for label, matrix in (("adopted", merged.adopted), ("rejected", merged.rejected)):
                users = pair_users(matrix) + np.int32(bundle.first)
                pairs._columns[label].append(user=users, item=matrix.indices, weight=matrix.data)
            for name, count in zip(
                pairs.counts, (merged.n_ignored, merged.n_duplicates, merged.n_contradicted), strict=True
            ):
                pairs.counts[name] += count
        return pairs

    def kept(self, filters: Filters) -> tuple[Mask, Mask]:
        """Which users and items stay: items first, then users, each once; then what has nothing left."""
        items = self.adopters >= filters.min_per_item
        counts = np.zeros(self.shape[0], dtype=np.int64)
        for piece in self._pieces("adopted"):
            counts += np.bincount(piece["user"][items[piece["item"]]], minlength=len(counts))
        users = counts >= filters.min_per_user
        left = np.zeros(self.shape[1], dtype=np.int64)
        for label in ("adopted", "rejected") if filters.min_per_item == 0 else ("adopted",):
            for piece in self._pieces(label):
                left += np.bincount(piece["item"][users[piece["user"]]], minlength=len(left))
        return users, items & (left > 0)

    def write(self, label: str, path: Path, users: Mask, items: Mask) -> int:
        """The pairs of those who stay, by their new numbers; how many there are."""
        new_users, new_items = (np.cumsum(mask, dtype=np.int64).astype(np.int32) - 1 for mask in (users, items))
        kept = self.spill.columns(f"kept-{label}", dict(_PAIR))
        for piece in self._pieces(label):
            stays = users[piece["user"]] & items[piece["item"]]
            kept.append(
                user=new_users[piece["user"][stays]],
                item=new_items[piece["item"][stays]],
                weight=piece["weight"][stays],
            )
        columns = kept.mapped()
        write_pair_columns(path, columns["user"], columns["item"], columns["weight"])
        kept.remove()
        self._columns[label].remove()
        return len(kept)

    def _pieces(self, label: str) -> Iterator[dict[str, npt.NDArray[Any]]]:
        columns = self._columns[label].mapped()
        for start in range(0, len(self._columns[label]), _PAIRS_TOGETHER):
            yield {name: column[start : start + _PAIRS_TOGETHER] for name, column in columns.items()}
