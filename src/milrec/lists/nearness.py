"""The items most like another one: by the model, and by who adopted both, shrunk where there is little evidence."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from milrec.kernels.neighbours import adopters_by_item, votes_together
from milrec.lists.decisions import top_items
from milrec.models.contract import Likeness

_ADOPTERS = 10  # with so many adopters, an item counts half of what the model says; all constants: on validation
_TOGETHER = 100  # with so many users in common, two items count half of their cosine
_SHARE = 4.0  # of what users in common say, for an item with many adopters; the model has 1

Doubles = npt.NDArray[np.float64]


class Nearest(NamedTuple):
    """The items most like another, by number, and how alike they are."""

    items: npt.NDArray[np.int64]
    likeness: npt.NDArray[np.float32]
    measure: str  # blend; own for a model without its users


class Together(NamedTuple):
    """An item and all others: how many users adopted both, and the sum of these users' votes."""

    counts: npt.NDArray[np.int32]  # (n_items,)
    votes: Doubles  # (n_items,) each user has one vote, shared equally by all items that the user adopted


class CoAdoption:
    """Who adopted what, by item as well: made when it is first asked for."""

    def __init__(self, adopted: csr_array) -> None:
        self._adopted = adopted  # (n_users, n_items)

    @cached_property
    def _by_item(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        indptr, users = adopters_by_item(self._adopted.indptr, self._adopted.indices, self._adopted.shape[1])
        return indptr, users

    def with_item(self, item: int) -> Together:
        """What the adopters of an item adopted, the item itself left out."""
        indptr, users = self._by_item
        n_items = self._adopted.shape[1]
        counts, votes = np.zeros(n_items, dtype=np.int32), np.zeros(n_items)
        own = users[indptr[item] : indptr[item + 1]]
        votes_together(own, self._adopted.indptr, self._adopted.indices, counts, votes)
        counts[item], votes[item] = 0, 0.0
        return Together(counts, votes)


class Nearness:
    """Finds the items most like one, best first, equals in item order; only those with a likeness above 0.

    The model's part of item j is own_j = m_ij · n_j / (n_j + 10), with m_ij what the model says about i and j and n_j
    the adopters of j. The users' part is together_j = v_ij / √n_j · c_ij / (c_ij + 100), with c_ij the users who
    adopted both and v_ij their votes, each 1 / (items of the user). Each part is divided by its largest, and

        likeness = (own + share · together) / (1 + share),   share = 4 · n_i / (n_i + 10)

    so that the model decides more about items with few adopters. A model without its users has its own part alone.
    The likeness is relative to the nearest that is found for an item: values of different items are not comparable.
    """

    def __init__(self, likeness: Likeness, popularity: npt.NDArray[np.int64], together: CoAdoption | None) -> None:
        self._likeness, self._together = likeness, together
        self._popularity = popularity.astype(np.float64)

    def nearest(self, item: int, n: int) -> Nearest:
        values = self._values(item).astype(np.float32)
        values[values <= 0] = -np.inf
        items, found = top_items(values[None, :], n)
        listed = items[0] >= 0
        return Nearest(items[0][listed], found[0][listed], self.measure)

    @property
    def measure(self) -> str:
        return "own" if self._together is None else "blend"

    def _values(self, item: int) -> Doubles:
        own = _relative(self._likeness(item) * _shrunk(self._popularity, _ADOPTERS), item)
        if self._together is None:
            return own
        share = _SHARE * float(_shrunk(self._popularity[item], _ADOPTERS))
        return (own + share * _relative(self._by_users(self._together.with_item(item)), item)) / (1 + share)

    def _by_users(self, together: Together) -> Doubles:
        by_users: Doubles = together.votes / np.sqrt(np.maximum(self._popularity, 1))
        return by_users * _shrunk(together.counts, _TOGETHER)


def _shrunk(evidence: npt.ArrayLike, half: float) -> Doubles:
    """From 0 without evidence to 1 with a lot of it."""
    amount = np.asarray(evidence, dtype=np.float64)
    shrunk: Doubles = amount / (amount + half)
    return shrunk


def _relative(values: Doubles, item: int) -> Doubles:
    """Values above 0, the others as 0 and so is the item itself, divided by the largest."""
    kept = np.maximum(values, 0.0)
    kept[item] = 0.0
    largest = kept.max(initial=0.0)
    return kept / largest if largest > 0 else kept
