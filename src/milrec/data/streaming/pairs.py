"""A table of any size → the files of a data folder: the same bytes as in memory, a part of the rows at a time.

1. Rows are read and checked once; on disk, their users and items are numbers (`pieces`, `collection`).
2. The rows of some users at a time are merged by the filters, as in memory (`filters.NumberedRows`).
3. Users and items with too few pairs are left out, and what is left is numbered anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milrec.data.filters import Filters, ValueChecks, item_table, title_counts
from milrec.data.interactions import data_facts
from milrec.data.pairs import item_counts, pair_users
from milrec.data.reading.blocks import Blocks
from milrec.data.stored import write_pair_columns, write_table
from milrec.data.streaming.collection import Bundle, Collection
from milrec.data.streaming.columns import DiskColumns
from milrec.data.streaming.pieces import Piece, Report
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


@dataclass(frozen=True)
class Work:
    """The folder to write to, the hands that do the work, and a report of the rows that have been read."""

    folder: Path
    hands: Hands
    report: Report


@dataclass(frozen=True)
class MergedBundle:
    """The pairs of the users of a bundle, on disk, and what became of their rows."""

    folder: Path
    sizes: dict[str, int]  # pairs by label
    adopters: Counts  # (n_items,)
    n_merged: tuple[int, int, int]  # rows ignored, duplicates, rejections contradicted

    def columns(self, label: str) -> DiskColumns:
        return DiskColumns.opened(self.folder / label, dict(_PAIR), [0, self.sizes[label]])


class Hands(Protocol):
    """Who does the two things that take long: reading files, and merging the rows of users."""

    def read(self, blocks: Blocks, filters: Filters, spill: Spill, report: Report) -> list[Piece]:
        """All files of a table, in pieces."""

    def merged(self, bundles: Sequence[Bundle], filters: Filters, spill: Spill, n_items: int) -> Iterator[MergedBundle]:
        """The pairs of each bundle, in their order."""


class Here:
    """This process."""

    def read(self, blocks: Blocks, filters: Filters, spill: Spill, report: Report) -> list[Piece]:
        piece = spill.kept(Piece.new(spill.folder / "piece", blocks.columns))
        checks = ValueChecks(filters, blocks.place)
        piece.read(blocks, checks, report)
        checks.end()
        blocks.end()
        return [piece]

    def merged(self, bundles: Sequence[Bundle], filters: Filters, spill: Spill, n_items: int) -> Iterator[MergedBundle]:
        for number, bundle in enumerate(bundles):
            yield merge(bundle, filters, n_items, spill.folder / f"merged-{number}")


def merge(bundle: Bundle, filters: Filters, n_items: int, folder: Path) -> MergedBundle:
    """The pairs of the users of a bundle, written to a new folder."""
    found = bundle.rows().merged(filters, (bundle.n_users, n_items))
    sizes = {}
    for label, matrix in (("adopted", found.adopted), ("rejected", found.rejected)):
        columns = DiskColumns(folder / label, dict(_PAIR))
        users = pair_users(matrix) + np.int32(bundle.first)
        columns.append(user=users, item=matrix.indices, weight=matrix.data)
        columns.close()
        sizes[label] = len(columns)
    n_merged = (found.n_ignored, found.n_duplicates, found.n_contradicted)
    return MergedBundle(folder, sizes, item_counts(found.adopted), n_merged)


def stream(blocks: Blocks, filters: Filters, titles: pa.Table | None, work: Work) -> Streamed:
    """Write the files of a data folder; what is needed on the way lies in a folder inside it until the end."""
    folder = work.folder
    with spilling(folder / "spill") as spill:
        collection = Collection(blocks, work.hands.read(blocks, filters, spill, work.report), spill)
        pairs = _Pairs.of(collection, filters, spill, work.hands)
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
        self._bundles: list[MergedBundle] = []

    @classmethod
    def of(cls, collection: Collection, filters: Filters, spill: Spill, hands: Hands) -> _Pairs:
        pairs = cls(spill, (len(collection.user_ids), len(collection.item_ids)))
        bundles = collection.bundles()
        for bundle, merged in zip(bundles, hands.merged(bundles, filters, spill, pairs.shape[1]), strict=True):
            bundle.remove()
            pairs.adopters += merged.adopters
            pairs._bundles.append(merged)
            for name, count in zip(pairs.counts, merged.n_merged, strict=True):
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
        for bundle in self._bundles:
            bundle.columns(label).remove()
        return len(kept)

    def _pieces(self, label: str) -> Iterator[dict[str, npt.NDArray[Any]]]:
        for bundle in self._bundles:
            found = bundle.columns(label)
            columns = found.mapped()
            for start in range(0, len(found), _PAIRS_TOGETHER):
                yield {name: column[start : start + _PAIRS_TOGETHER] for name, column in columns.items()}
