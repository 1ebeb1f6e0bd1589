"""Lists as `milrec recommend` gives them out: to a file, or as a table, with notes on what could not be met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from milrec.cli.output import note, say, table_of_lists
from milrec.cli.progress import progress_bar
from milrec.data.interactions import Interactions
from milrec.lists.export import write_batches
from milrec.lists.query import Wishes
from milrec.recommender import Recommender
from milrec.storage import Manifest


@dataclass(frozen=True)
class AskedLists:
    """A model, how long its lists are and what they are to be like."""

    recommender: Recommender
    n: int
    wishes: Wishes
    unmet: list[str] = field(default_factory=list)  # what could not be met, a sentence for each list

    @classmethod
    def load(
        cls, model: Path, everything: Manifest | None, encoders: Sequence[type[Any]], n: int, wishes: Wishes
    ) -> AskedLists:
        recommender = Recommender.load(model, encoders)
        if everything is not None:
            recommender = recommender.leaving_out(Interactions.read_from(everything))
        for name, ids in (("allow", wishes.get("allow")), ("exclude", wishes.get("exclude"))):
            given = list(ids or ())
            if outside := recommender.outside_catalogue(given):
                note(f"{outside} of {len(given)} ids in the {name} file are not in the catalogue")
        return cls(recommender, n, wishes)

    def write_all(self, out: Path) -> None:
        """Lists of every known user, into a file."""
        total = self.recommender.fitted.train.n_users
        with progress_bar("Listing", "users") as report:
            batches = self.recommender.recommend_all(self.n, self._keep_unmet, **self.wishes)
            rows = write_batches(out, batches, lambda done: report(min(done, total), total))
        say(f"{rows:,} rows for {total:,} users → {out}")
        self._note_price()
        if self.unmet:
            note(f"{len(self.unmet):,} of {total:,} lists do not meet every rule or lack reasons; see the column unmet")

    def give_new(self, adopted: list[str] | dict[str, float], rejected: list[str], out: Path | None) -> None:
        self._give(self.recommender.recommend_new(adopted, rejected, self.n, self._keep_unmet, **self.wishes), out)

    def give_known(self, users: list[str], out: Path | None) -> None:
        self._give(self.recommender.recommend(users, self.n, self._keep_unmet, **self.wishes), out)

    def _give(self, lists: pa.Table, out: Path | None) -> None:
        if out is not None:
            rows = write_batches(out, lists.to_batches(), schema=lists.schema)
            say(f"{rows:,} rows → {out}")
        else:
            table_of_lists(lists.drop_columns("unmet") if "unmet" in lists.column_names else lists)
        self._note_price()
        for sentences in self.unmet:
            note(sentences)

    def _note_price(self) -> None:
        """What the tail that was asked for is expected to cost."""
        price = self.recommender.price(self.n, **self.wishes)
        if price is not None:
            note(str(price))

    def _keep_unmet(self, who: object, sentences: str) -> None:
        self.unmet.append(sentences if who is None else f"user '{who}': {sentences}")
