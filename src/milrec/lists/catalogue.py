"""Catalogue: the ids, titles and popularity of a model's items and the ids of its users, ready to look up."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milrec.data.interactions import Interactions, numbers_of
from milrec.errors import UnknownIdError
from milrec.metrics.tail import (
    TailInterval,
    log_popularity,
    popularity_curve,
    popularity_order,
    tail_classes,
    tail_intervals,
)
from milrec.records import TAIL_NAMES as TAIL_NAMES

_WORD = re.compile(r"[^\W_]+")


class Texts:
    """Texts that can be searched: they are put into a searchable form once."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._words = pa.array([_spaced(text) for text in texts], type=pa.large_string())
        self._plain = pa.array([text.strip() for text in texts], type=pa.large_string())

    def matching(self, text: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The numbers of the texts that contain all words, and whether each starts with them.

        A text without a letter or a digit, such as `!!!`, is looked for as it is.
        """
        wanted = _spaced(text)
        if not wanted:
            sought = whole(text).strip()
            found = pc.indices_nonzero(pc.match_substring(self._plain, sought)).to_numpy().astype(np.int64)
            return found, pc.starts_with(self._plain.take(pa.array(found)), sought).to_numpy(zero_copy_only=False)
        matches = pa.array(np.ones(len(self._words), dtype=bool))
        for word in set(wanted.split()):
            matches = pc.and_(matches, pc.match_substring(self._words, f" {word}"))
        found = pc.indices_nonzero(matches).to_numpy().astype(np.int64)
        return found, pc.starts_with(self._words.take(pa.array(found)), wanted).to_numpy(zero_copy_only=False)


def whole(text: str) -> str:
    """The same text with a question mark for each half of a character: JSON may contain halves, Arrow may not."""
    return text.encode(errors="replace").decode()


def _spaced(text: str) -> str:
    """The words of a text, without case and accents, each after a space."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return "".join(f" {word}" for word in _WORD.findall(plain.casefold()))


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
        self._users, self._items, self._has_users = train.users["id"], train.items, train.has_users
        self.popularity = train.popularity()
        self.intervals = tail_intervals(self.popularity)

    @cached_property
    def item_ids(self) -> list[Any]:
        ids: list[Any] = self._items["id"].to_pylist()
        return ids

    @cached_property
    def titles(self) -> list[str | None]:
        """The title of each item; None where it is not known."""
        known = "title" in self._items.column_names
        titles: list[str | None] = self._items["title"].to_pylist() if known else [None] * self._items.num_rows
        return titles

    @cached_property
    def columns(self) -> pa.RecordBatch:
        """A row for each item, as tables show it: item, title (where known), popularity, tail."""
        columns = {"item": _joined(self._items["id"])}
        if "title" in self._items.column_names:
            columns["title"] = _joined(self._items["title"])
        columns["popularity"] = pa.array(self.popularity.astype(np.int32))
        columns["tail"] = pa.array(TAIL_NAMES, type=pa.string()).take(pa.array(self.intervals))
        return pa.RecordBatch.from_pydict(columns)

    @cached_property
    def users(self) -> pa.Array:
        """The id of each user."""
        return _joined(self._users)

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

    @cached_property
    def _item_numbers(self) -> dict[str, int]:
        return {str(one): number for number, one in enumerate(self.item_ids)}

    @cached_property
    def _user_numbers(self) -> dict[str, int]:
        return {str(one): number for number, one in enumerate(self._users.to_pylist())}

    def item_numbers(self, ids: Iterable[Any]) -> npt.NDArray[np.int32]:
        """The numbers of items; an unknown id is an error that names it."""
        return _numbers(self._item_numbers, self._items["id"], ids, "item")

    def user_numbers(self, ids: Iterable[Any]) -> npt.NDArray[np.int32]:
        self.refuse_without_users()
        try:
            return _numbers(self._user_numbers, self._users, ids, "user")
        except UnknownIdError as error:
            raise UnknownIdError(f"{error}; for a new user, give adopted items") from None

    def refuse_without_users(self) -> None:
        if not self._has_users:
            raise UnknownIdError("the model was saved without its users: it knows nobody; give adopted items")

    def items_among(self, ids: Iterable[Any]) -> npt.NDArray[np.int32]:
        """The numbers of items, ignoring ids that are not in the catalogue."""
        found = (self._item_numbers.get(str(one)) for one in several(ids))
        return np.array([number for number in found if number is not None], dtype=np.int32)

    @cached_property
    def _texts(self) -> Texts:
        """What items are found by: the title, or the id of an item without one."""
        return Texts([title or str(one) for title, one in zip(self.titles, self.item_ids, strict=True)])

    def find_items(self, text: str, n: int) -> npt.NDArray[np.int64]:
        """The n best matches: the item with this id first, then titles that start with the text, then by popularity."""
        found, begins = self._texts.matching(text)
        order = np.lexsort((-self.popularity[found], ~begins))
        finds = found[order][:n]
        exact = self._item_numbers.get(text.strip())
        return finds if exact is None else np.concatenate([[exact], finds[finds != exact]])[:n]

    def find_users(self, text: str, n: int) -> list[Any]:
        """The first n users whose id starts with the text; first of all the user with exactly this id."""
        begins = pc.starts_with(self._user_texts, whole(text))
        numbers = pc.indices_nonzero(begins).to_numpy()[: n + 1]
        exact = self._user_numbers.get(text)
        finds = numbers if exact is None else [exact, *(number for number in numbers if number != exact)]
        return [self._users[int(number)].as_py() for number in finds[:n]]

    @cached_property
    def _user_texts(self) -> pa.Array:
        return self._users.cast(pa.large_string()).combine_chunks()


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def several(ids: Any) -> list[Any]:
    """Ids as a list; a single id may be given without one."""
    return [ids] if isinstance(ids, (str, int)) else list(ids)


def _numbers(known: Mapping[str, int], column: pa.ChunkedArray, ids: Iterable[Any], what: str) -> npt.NDArray[np.int32]:
    wanted = list(ids)
    try:
        return np.array([known[str(one)] for one in wanted], dtype=np.int32)
    except KeyError:
        return numbers_of(column, wanted, what).astype(np.int32)
