"""Catalogue: the ids, titles and popularity of a model's items and the ids of its users, ready to look up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milrec.data.interactions import ADOPTERS, Interactions
from milrec.data.stored import read_ids
from milrec.errors import UnknownIdError, cut
from milrec.lists.search.ids import Ids, UserIds
from milrec.lists.search.texts import Texts, whole
from milrec.metrics.tail import (
    TailInterval,
    log_popularity,
    popularity_curve,
    popularity_order,
    tail_classes,
    tail_intervals,
)
from milrec.records import TAIL_NAMES as TAIL_NAMES
from milrec.storage import check_files, opened_folder
from milrec.suggestions import did_you_mean_one_of

_NOBODY = "the model was saved without its users; give adopted items instead"


class CatalogueItem(NamedTuple):
    """An item, and what the catalogue knows about it."""

    number: int
    item: Any  # its id
    title: str | None
    popularity: int
    tail: str
    place: int  # its rank by popularity, 1 for the most popular item


class Catalogue:
    """What is looked up is prepared once, when it is first needed."""

    def __init__(self, train: Interactions) -> None:
        self._user_ids, self._has_users = UserIds(train.users["id"]), train.has_users
        self._items, self._item_ids = train.items, Ids(train.items["id"], "item")
        self.popularity = train.popularity()
        self.intervals = tail_intervals(self.popularity)

    @classmethod
    def load(cls, model: Path) -> Catalogue:
        """The items of a model folder, without its weights and users: only the files that hold items are read."""
        with opened_folder(model, "model") as manifest:
            return cls(Interactions.read_items(manifest))

    @property
    def item_ids(self) -> list[Any]:
        return self._item_ids.values

    @property
    def item_column(self) -> pa.ChunkedArray:
        """The same as they are stored, which are compared quickly."""
        return self._item_ids.column

    @property
    def has_titles(self) -> bool:
        return "title" in self._items.column_names

    @cached_property
    def titles(self) -> list[str | None]:
        """The title of each item; None where it is not known."""
        titles: list[str | None] = (
            self._items["title"].to_pylist() if self.has_titles else [None] * self._items.num_rows
        )
        return titles

    @cached_property
    def columns(self) -> pa.RecordBatch:
        """A row for each item, as tables show it: item, title (where known), popularity, interval."""
        columns = {"item": _joined(self._items["id"])}
        if "title" in self._items.column_names:
            columns["title"] = _joined(self._items["title"])
        columns["popularity"] = pa.array(self.popularity.astype(np.int32))
        columns["interval"] = pa.array(TAIL_NAMES, type=pa.string()).take(pa.array(self.intervals))
        return pa.RecordBatch.from_pydict(columns)

    @cached_property
    def users(self) -> pa.Array:
        """The id of each user."""
        return _joined(self._user_ids.column)

    @cached_property
    def places(self) -> npt.NDArray[np.int64]:
        """Each item's place by popularity: 1 is the most popular."""
        places = np.empty(len(self.popularity), dtype=np.int64)
        places[popularity_order(self.popularity)] = np.arange(1, len(places) + 1)
        return places

    @cached_property
    def logs(self) -> npt.NDArray[np.float64]:
        """ln(popularity) of each item: what a dial takes away."""
        return log_popularity(self.popularity)

    @cached_property
    def falling(self) -> npt.NDArray[np.int64]:
        """The popularity of the items, largest first."""
        return np.sort(self.popularity)[::-1]

    def popularity_curve(self, n_points: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.integer[Any]]]:
        """Ranks spread evenly on a logarithmic scale, and the popularity at each."""
        return popularity_curve(self.falling, n_points)

    @cached_property
    def members(self) -> list[npt.NDArray[np.int64]]:
        """The items of each tail interval, ascending."""
        return [np.flatnonzero(self.intervals == interval) for interval in TailInterval]

    @cached_property
    def tail_classes(self) -> list[npt.NDArray[np.int64]]:
        """The same, but items of the long tail with a single adopter apart."""
        return tail_classes(self.popularity)

    def describe(self, numbers: npt.NDArray[np.integer[Any]]) -> list[CatalogueItem]:
        """Item numbers → everything that is known about the items: the one place where numbers become ids."""
        ids, titles = self.item_ids, self.titles
        columns = (numbers, self.popularity[numbers], self.intervals[numbers], self.places[numbers])
        return [
            CatalogueItem(number, ids[number], titles[number], popularity, TAIL_NAMES[tail], place)
            for number, popularity, tail, place in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def item_numbers(self, ids: Iterable[Any]) -> npt.NDArray[np.int32]:
        """The numbers of items; an unknown id is an error that names it, and the id that was probably meant."""
        try:
            return self._item_ids.numbers(ids)
        except UnknownIdError as error:
            titled = self._titled(error.unknown)
            if not len(titled):
                raise self._item_ids.suggested(error) from None
            number = titled[np.argmax(self.popularity[titled])]
            raise self._item_ids.refusal(error.unknown, f"its id is '{cut(self.item_ids[number])}'") from None

    def user_numbers(self, ids: Iterable[Any]) -> npt.NDArray[np.int32]:
        """The numbers of users; an unknown id is an error that names it, and nobody else."""
        self.refuse_without_users()
        return self._user_ids.numbers(ids)

    @contextmanager
    def suggesting(self) -> Iterator[None]:
        """In the block, an error about an unknown id also says which users, or which titles, it is close to.

        Not for answers to strangers: whose id is close to a guess is private.
        """
        try:
            yield
        except UnknownIdError as error:
            if error.what == "user":
                raise self._user_ids.suggested(error) from None
            raise (self._suggested_title(error) if error.what == "item" else error) from None

    def _suggested_title(self, error: UnknownIdError) -> UnknownIdError:
        """The same error, naming titles that are close to what was given as an id."""
        close = [(self.titles[number], self.item_ids[number]) for number in self.find_items(error.unknown, 3)]
        titles = [f"'{cut(title)}' (id '{cut(one)}')" for title, one in close if title]
        return self._item_ids.refusal(error.unknown, did_you_mean_one_of(titles)) if titles else error

    def _titled(self, title: str) -> npt.NDArray[np.int64]:
        """The items with exactly this title, ignoring case, ascending."""
        if "title" not in self._items.column_names or not title.strip():
            return np.empty(0, dtype=np.int64)
        sought = _lowered(pa.scalar(whole(title), type=self._items["title"].type))
        same = pc.fill_null(pc.equal(self._lowered_titles, sought), False)
        numbers: npt.NDArray[np.int64] = pc.indices_nonzero(same).to_numpy().astype(np.int64)
        return numbers

    @cached_property
    def _lowered_titles(self) -> pa.ChunkedArray:
        return _lowered(self._items["title"])

    def refuse_without_users(self) -> None:
        if not self._has_users:
            raise UnknownIdError(_NOBODY)

    def has_item(self, one: Any) -> bool:
        return str(one) in self._item_ids.known

    def items_among(self, ids: Iterable[Any]) -> npt.NDArray[np.int32]:
        """The numbers of items, ignoring ids that are not in the catalogue."""
        return self._item_ids.among(several(ids))

    @cached_property
    def _texts(self) -> Texts:
        """What items are found by: the title, or the id of an item without one."""
        return Texts([title or str(one) for title, one in zip(self.titles, self.item_ids, strict=True)])

    def find_items(self, text: str, n: int) -> npt.NDArray[np.int64]:
        """The n best matches: the item with this id first, then the title itself, then titles with all words whole.

        Among equals, titles that begin with the text come first, then by popularity. If there is no match: titles with
        words that are a typo or two away, the closest first; and if there is none either, ids that are a typo away.
        """
        keys: npt.NDArray[Any]
        found, keys = self._texts.matching(text)
        exact = self._item_ids.known.get(text.strip())
        if not len(found) and exact is None:
            found, keys = self._texts.near(text)
            if not len(found):
                return self._item_ids.close(text)[:n]
        finds = found[np.lexsort((-self.popularity[found], keys))][:n]
        return finds if exact is None else np.concatenate([[exact], finds[finds != exact]])[:n]

    def find_users(self, text: str, n: int) -> list[Any]:
        """The first n users whose id starts with the text; first of all the user with exactly this id."""
        begins = pc.starts_with(self._user_texts, whole(text))
        numbers = pc.indices_nonzero(begins).to_numpy()[: n + 1]
        exact = self._user_ids.known.get(text)
        finds = numbers if exact is None else [exact, *(number for number in numbers if number != exact)]
        return [self._user_ids.column[int(number)].as_py() for number in finds[:n]]

    @cached_property
    def _user_texts(self) -> pa.Array:
        return self._user_ids.column.cast(pa.large_string()).combine_chunks()


def refuse_unknown(model: Path, users: Sequence[Any] = (), items: Sequence[Any] = ()) -> None:
    """Refuse users and items that a model folder does not know, before its weights are read."""
    with opened_folder(model, "model") as manifest:
        if users and ADOPTERS in manifest.hashes:
            raise UnknownIdError(_NOBODY)
        if users:
            check_files(manifest, ["users.arrow"])
            UserIds(read_ids(manifest.path / "users.arrow")["id"]).refuse(users)
        if items:
            catalogue = Catalogue(Interactions.read_items(manifest))
            with catalogue.suggesting():
                catalogue.item_numbers(items)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _lowered(texts: Any) -> Any:
    """A column of texts, or one: lower case, without space around them."""
    return pc.utf8_lower(pc.utf8_trim_whitespace(texts))


def several(ids: Any) -> list[Any]:
    """Ids as a list; a single id may be given without one."""
    return [ids] if isinstance(ids, (str, int)) else list(ids)
