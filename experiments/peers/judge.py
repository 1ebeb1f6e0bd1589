"""One judge for all: lists in Parquet (user, item, rank) against the pairs that were held out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from milrec.metrics import ranking, tail

MEASURES = ("recall@20", "ndcg@20", "ndcg@100", "long_share@20")


@dataclass(frozen=True, eq=False)
class Judge:
    """The users and items of the task by number, what users had, and what was held out."""

    users: pa.Array
    items: pa.Array
    had: np.ndarray  # user number × n_items + item number, sorted
    targets: list[np.ndarray]  # the held-out item numbers of each user
    popularity: np.ndarray

    @classmethod
    def of(cls, task: Path) -> "Judge":
        train, test = pq.read_table(task / "train.parquet"), pq.read_table(task / "test.parquet")
        users, items = (pc.unique(table[name]).sort() for table, name in ((test, "user"), (train, "item")))
        row, column = _numbers(train["user"], users), _numbers(train["item"], items)
        held_by, held = _numbers(test["user"], users), _numbers(test["item"], items)
        order = np.argsort(held_by, kind="stable")
        targets = np.split(held[order], np.cumsum(np.bincount(held_by, minlength=len(users)))[:-1])
        known = row >= 0
        had = np.unique(row[known] * len(items) + column[known])
        return cls(users, items, had, targets, np.bincount(column, minlength=len(items)))

    def measures(self, lists: Path) -> dict[str, Any]:
        """The mean of each measure over all test users; what is wrong with lists is counted, not mended."""
        table = pq.read_table(lists)
        user, item = _numbers(table["user"], self.users), _numbers(table["item"], self.items)
        top = np.full((len(self.users), int(pc.max(table["rank"]).as_py())), -1, dtype=np.int64)
        top[user, table["rank"].to_numpy() - 1] = item
        hits = ranking.find_hits(top, self.targets)
        shares = tail.list_shares(top[:, :20], tail.tail_intervals(self.popularity))[:, tail.TailInterval.LONG]
        values = ranking.recall(hits, 20), ranking.ndcg(hits, 20), ranking.ndcg(hits, 100), shares
        means = {name: round(float(np.nanmean(value)), 4) for name, value in zip(MEASURES, values, strict=True)}
        return {**means, "already_theirs": int(np.isin(user * len(self.items) + item, self.had).sum())}


def _numbers(ids: pa.ChunkedArray, known: pa.Array) -> np.ndarray:
    """The place of each id among the known ones; -1 for others."""
    return pc.fill_null(pc.index_in(ids.cast(known.type), known), -1).to_numpy().astype(np.int64)
