"""Work that takes long, done a portion at a time by the scoring thread, so that lists are made in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from milrec.errors import BusyError
from milrec.lists.catalogue import Catalogue
from milrec.lists.query import Query
from milrec.recommender import Recommender
from milrec.server.service import Server

T = TypeVar("T")
Items = npt.NDArray[np.integer[Any]]
Portions = Generator[None, None, T]  # yields after each portion, returns the outcome

_SCORES = 250_000  # in a portion, about 10 ms; one list is the least, whatever the size of the catalogue
_TOGETHER = 32  # lists, or searches, in a portion
_FOLDED_IN = 4  # lists in a portion, where the factors of each new user have to be fitted


class Gradual(Generic[T]):
    """Work that is done once, for all who wait for it: it goes on when they have gone, and its outcome is kept.

    If it fails, everyone who waits gets the error, and the next to ask starts afresh. If it is no longer `wanted`,
    because models were replaced, it is given up: once it has ended, it holds no model.
    """

    def __init__(self, wanted: Callable[[], bool]) -> None:
        self._wanted = wanted
        self._task: asyncio.Task[T] | None = None

    async def outcome(self, server: Server, begin: Callable[[], Portions[T]]) -> T:
        """What the work comes to; it is begun if it has not been."""
        if self._task is None:
            self._task = asyncio.create_task(self._work(server, begin()))
            self._task.add_done_callback(self._note_end)
        return await asyncio.shield(self._task)

    async def _work(self, server: Server, portions: Portions[T]) -> T:
        while self._wanted():
            outcome: list[T] = await server.call(_advance, portions)
            if outcome:
                return outcome[0]
        raise BusyError("the models have just been replaced; try again")

    def _note_end(self, task: asyncio.Task[T]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._task = None


def _advance(portions: Portions[T]) -> list[T]:
    """Do the next portion; the outcome, if that was the last."""
    try:
        next(portions)
    except StopIteration as end:
        return [end.value]
    return []


def lists_for(recommender: Recommender, tastes: Sequence[Items], n: int) -> Portions[list[Items]]:
    """The first n items of a model's list for each taste, by number."""
    ids, found = recommender.catalogue.item_ids, list[Items]()
    most = _FOLDED_IN if recommender.folds_in else _TOGETHER
    for some in in_portions(tastes, recommender.catalogue, most):
        asked = [recommender.ask(Query(adopted=[ids[item] for item in taste], n=n)) for taste in some]
        found += [listed.items for listed in recommender.listed(asked)]
        yield
    return found


def in_portions(values: Sequence[T], catalogue: Catalogue, most: int = _TOGETHER) -> Iterator[Sequence[T]]:
    """Values that all items of a catalogue are scored for, as many at once as take a moment."""
    size = max(1, min(most, _SCORES // len(catalogue.popularity)))
    for first in range(0, len(values), size):
        yield values[first : first + size]


def by_popularity(catalogue: Catalogue) -> Items:
    """All items, the most popular first."""
    order = np.empty(len(catalogue.places), dtype=np.int64)
    order[catalogue.places - 1] = np.arange(len(order))
    return order


def spread(items: Items, n: int) -> Items:
    """At most n of the items, evenly spaced."""
    return items[np.linspace(0, len(items) - 1, min(n, len(items))).round().astype(np.int64)]
