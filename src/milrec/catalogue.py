"""Catalogue: the ids, titles and popularity of a model's items and the ids of its users, ready to be looked up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milrec.interactions import Interactions, numbers_of
from milrec.tail import TailInterval, popularity_order, tail_intervals

TAIL_NAMES = [interval.name.lower() for interval in TailInterval]


class Catalogue:
    """All that is looked up is made once, when it is first needed."""

    def __init__(self, train: Interactions) -> None:
        self._users, self._items = train.users["id"], train.items
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
    def places(self) -> npt.NDArray[np.int64]:
        """Each item's place by popularity: 1 is the most popular."""
        places = np.empty(len(self.popularity), dtype=np.int64)
        places[popularity_order(self.popularity)] = np.arange(1, len(places) + 1)
        return places

    @cached_property
    def logs(self) -> npt.NDArray[np.float64]:
        """ln(popularity) of each item: what a dial takes away."""
        logs: npt.NDArray[np.float64] = np.log(np.maximum(self.popularity, 1))
        return logs

    @cached_property
    def members(self) -> list[npt.NDArray[np.int64]]:
        """The items of each tail interval, ascending."""
        return [np.flatnonzero(self.intervals == interval) for interval in TailInterval]

    @cached_property
    def _item_numbers(self) -> dict[str, int]:
        return {str(one): number for number, one in enumerate(self.item_ids)}

    @cached_property
    def _user_numbers(self) -> dict[str, int]:
        return {str(one): number for number, one in enumerate(self._users.to_pylist())}

    def item_numbers(self, ids: Iterable[Any]) -> npt.NDArray[np.int32]:
        """Numbers of items; an id that is not there is an error that names it."""
        return _numbers(self._item_numbers, self._items["id"], ids, "item")

    def user_numbers(self, ids: Iterable[Any]) -> npt.NDArray[np.int32]:
        return _numbers(self._user_numbers, self._users, ids, "user")

    def items_among(self, ids: Iterable[Any]) -> npt.NDArray[np.int32]:
        """Numbers of items, those outside of the catalogue passed over."""
        found = (self._item_numbers.get(str(one)) for one in several(ids))
        return np.array([number for number in found if number is not None], dtype=np.int32)


def several(ids: Any) -> list[Any]:
    """Ids as a list; a single one need not stand in a list."""
    return [ids] if isinstance(ids, (str, int)) else list(ids)


def _numbers(known: Mapping[str, int], column: pa.ChunkedArray, ids: Iterable[Any], what: str) -> npt.NDArray[np.int32]:
    wanted = list(ids)
    try:
        return np.array([known[str(one)] for one in wanted], dtype=np.int32)
    except KeyError:
        return numbers_of(column, wanted, what).astype(np.int32)
