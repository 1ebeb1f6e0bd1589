"""The three measures that a run is summed up by: accuracy, popular items, and what happens at the top of the list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from milrec.report.paper import SHARE_ROOM, UNCERTAINTY
from milrec.report.summary import Entry
from milrec.results import Results

Role = Literal["accuracy", "reach", "truth", "dislikes", "first"]

LEVEL = 2 * UNCERTAINTY  # two models whose difference is surely no larger are level
LEVEL_SHARE = SHARE_ROOM  # the same for shares, in percentage points
_LARGE = 1000  # items; in a smaller catalogue, a list of 200 holds much of it whatever the model


@dataclass(frozen=True)
class Headline:
    """A measure in words: its name, what specialists call it, what it means, and how close is level."""

    role: Role
    measure: str
    name: str
    technical: str
    meaning: str
    better: Literal["high", "low"] = "high"
    digits: int = 3
    level: float = LEVEL

    def text(self, value: float, digits: int | None = None) -> str:
        return f"{value:.{self.digits if digits is None else digits}f}" + (" %" if self.role == "reach" else "")


def headlines(results: Results, entries: Sequence[Entry]) -> list[Headline]:
    """Those of the three that the run has measured."""
    picked = (_first_of(some, entries) for some in (_accuracy(), _reach(results), _top()))
    return [one for one in picked if one is not None]


def _first_of(candidates: Iterable[Headline], entries: Sequence[Entry]) -> Headline | None:
    known = (one for one in candidates if any(entry.mean(one.measure) is not None for entry in entries))
    return next(known, None)


def _accuracy() -> list[Headline]:
    return [
        Headline("accuracy", f"ndcg@{places}", "Accuracy", f"NDCG@{places}",
                 f"How near the top of the first {places} places the held-out items stand; 1 would be perfect.")
        for places in (100, 20)
    ]  # fmt: skip


def _reach(results: Results) -> list[Headline]:
    hits = results.data.interval_cuts[0]
    hold = "most popular item, which holds" if hits == 1 else f"{hits:,} most popular items, which hold"
    lengths = (200, 20) if results.data.items >= _LARGE else (20, 200)
    return [
        Headline("reach", f"short_share@{places}", "Popular items", f"% of the first {places}",
                 f"How many of the first {places} places go to the {hold} a third of all adoptions; "
                 "with fewer, lists reach further.", "low", 1, LEVEL_SHARE)
        for places in lengths
        if places < results.data.items
    ]  # fmt: skip


def _top() -> list[Headline]:
    return [
        Headline("truth", "true_ndcg@20", "True relevance", "true NDCG@20",
                 "How well the first 20 places match what users truly like, which is known because the data are "
                 "simulated; 1 would be perfect."),
        Headline("dislikes", "auc_rejected", "Likes above dislikes", "AUC",
                 "How often an item that the user liked stands above one that the user rejected; 0.5 is chance."),
        Headline("first", "recall@1", "First item right", "Recall@1",
                 "How often the very first item of the list is one of the held-out items."),
    ]  # fmt: skip
