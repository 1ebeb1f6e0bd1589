"""Lists as `milrec recommend` gives them out: to a file, or as a table, with notes on what could not be met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from milrec.cli.output import note, say, table_of_lists
from milrec.cli.progress import progress_bar
from milrec.data.interactions import Interactions
from milrec.errors import SettingsError
from milrec.lists.export import write_batches
from milrec.lists.partitions import is_dataset, new_dataset, part_name, write_manifest, write_part
from milrec.lists.query import Wishes
from milrec.lists.shards import shards
from milrec.recommender import Recommender
from milrec.storage import Manifest, is_url, open_manifest


@dataclass(frozen=True)
class ModelPlace:
    """Where a model is, where it is on this machine, and the hash of its content when the command was started."""

    place: str
    folder: Path
    fingerprint: str

    @classmethod
    def of(cls, place: str) -> ModelPlace:
        if is_url(place):
            from milrec.cluster.places import local_folder

            folder = local_folder(place, "model")
        else:
            folder = Path(place)
        return cls(place, folder, open_manifest(folder, "model").fingerprint())


@dataclass(frozen=True)
class Taste:
    """What somebody adopted and rejected, and who that is, if known."""

    adopted: list[str] | dict[str, float]
    rejected: list[str]
    user: str | None
    skip_unknown: bool


@dataclass(frozen=True)
class AskedLists:
    """A model, how long its lists are and what they are to be like."""

    recommender: Recommender
    n: int
    wishes: Wishes
    model: ModelPlace
    known: Manifest | None = None  # data that users have, and that is not listed
    unmet: list[str] = field(default_factory=list)  # what could not be met, a sentence for each list

    @classmethod
    def load(
        cls, model: ModelPlace, everything: Manifest | None, encoders: Sequence[type[Any]], n: int, wishes: Wishes
    ) -> AskedLists:
        recommender = Recommender.load(model.folder, encoders)
        if recommender.fitted.predicts_rejections and wishes.get("dislikes") is not None:
            raise SettingsError(f"'{model.folder}' predicts what users reject, too; give a model of what they adopt")
        if recommender.fitted.predicts_rejections:
            note("this model predicts what users reject; for lists that spare them that, give it as --dislikes")
        for name, ids in (("allow", wishes.get("allow")), ("exclude", wishes.get("exclude"))):
            given = list(ids or ())
            if outside := recommender.outside_catalogue(given):
                note(f"{outside} of {len(given)} ids in the {name} file are not in the catalogue")
        return cls(recommender, n, wishes, model, everything)

    def leaving_out_known(self) -> AskedLists:
        """The same, without what users have; on a cluster, nodes leave it out themselves."""
        if self.known is None:
            return self
        return replace(self, recommender=self.recommender.leaving_out(Interactions.load(self.known.path)))

    def write_all(self, out: str) -> None:
        """Lists of every known user, into a file or a folder."""
        total = self.recommender.fitted.train.n_users
        with progress_bar("Listing", "users") as report:
            if is_dataset(out):
                rows = self._write_dataset(Path(out), report)
            else:
                batches = self.recommender.recommend_all(self.n, self._keep_unmet, **self.wishes)
                rows = write_batches(Path(out), batches, lambda done: report(min(done, total), total))
        self._say_written(rows, len(self.unmet), out)

    def _write_dataset(self, out: Path, report: Callable[[int, int | None], None]) -> int:
        parts, schema = [], self.recommender.list_schema(self.n, **self.wishes)
        total = self.recommender.fitted.train.n_users
        with new_dataset(out) as draft:
            for number, users in enumerate(shards(total)):
                batches = self.recommender.recommend_all(self.n, self._keep_unmet, users, **self.wishes)
                parts.append(write_part(draft / part_name(number), batches, schema, users))
                report(users.stop, total)
            write_manifest(draft, parts, self.model.fingerprint)
        return sum(part.rows for part in parts)

    def write_all_on(self, address: str, out: str, classes: list[str]) -> None:
        """The same on a cluster."""
        from milrec.cluster.lists import ListOrder, plain_wishes, write_dataset, write_file
        from milrec.cluster.places import shared_place
        from milrec.cluster.session import joined

        self.recommender.price(self.n, **self.wishes)  # mistakes are errors before anything is started
        self.recommender.catalogue.refuse_without_users()
        total = self.recommender.fitted.train.n_users
        with joined(address) as cluster:
            order = ListOrder(
                model=shared_place(self.model.place),
                model_hash=self.model.fingerprint,
                known=None if self.known is None else shared_place(str(self.known.path)),
                known_hash=None if self.known is None else self.known.fingerprint(),
                copied=cluster.copies,
                n=self.n,
                wishes=plain_wishes(dict(self.wishes)),
                classes=classes,
                folder=str(Path.cwd()),
            )
            with progress_bar("Listing", "users") as report:
                if is_dataset(out):
                    found = write_dataset(cluster, order, total, out, report)
                else:
                    found = write_file(cluster, order, total, Path(out), report)
            note(str(cluster))
        self._say_written(found.rows, found.unmet, out)

    def _say_written(self, rows: int, n_unmet: int, out: str) -> None:
        total = self.recommender.fitted.train.n_users
        say(f"{rows:,} rows for {total:,} users → {out}")
        self._note_price()
        if not n_unmet:
            return
        if self.wishes.get("rules") or self.wishes.get("reasons"):
            note(f"{n_unmet:,} of {total:,} lists fall short of what you asked for; see the column unmet")
        else:
            note(f"{n_unmet:,} of {total:,} lists are ranked by popularity: nothing else is known about these users")

    def give_new(self, taste: Taste, out: str | None) -> None:
        """The list of a new user, or of a known one with new items."""
        lists = self.recommender.recommend_new(
            taste.adopted,
            taste.rejected,
            self.n,
            self._keep_unmet,
            user=taste.user,
            strict=not taste.skip_unknown,
            **self.wishes,
        )
        self._give(lists, out)

    def give_known(self, users: list[str], out: str | None) -> None:
        self._give(self.recommender.recommend(users, self.n, self._keep_unmet, **self.wishes), out)

    def _give(self, lists: pa.Table, out: str | None) -> None:
        if out is not None:
            rows = write_batches(Path(out), lists.to_batches(), schema=lists.schema)
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
