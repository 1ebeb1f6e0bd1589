"""A request for a list, and its answer: the same for library, command line and server.

Query  → Asked   here: ids become numbers, and mistakes in a query become errors
Asked  → Answer  in answer.py, for many queries at a time
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from milrec.errors import DataError, SettingsError
from milrec.lists.catalogue import TAIL_NAMES, Catalogue, several
from milrec.lists.rules import Rule, rule_of
from milrec.lists.scores import checked_dial
from milrec.training.artifact import Fitted

Numbers = npt.NDArray[np.int32]
Rules = Sequence[Rule | str | Mapping[str, Any]]


@dataclass(frozen=True)
class Query:
    """A request for one list: for a known user, or for a taste, which is adopted items (or none) and rejected ones."""

    user: Any | None = None
    adopted: Sequence[Any] | None = None
    rejected: Sequence[Any] = ()
    n: int = 20
    allow: Iterable[Any] | None = None  # the only items that may be listed
    exclude: Iterable[Any] | None = None  # items that may not be listed
    dial: float = 0.0
    rules: Rules = ()
    reasons: int = 0  # the most to give for each item


class Wishes(TypedDict, total=False):
    """What a list is to be like, apart from its length; the fields of a query."""

    allow: Iterable[Any] | None
    exclude: Iterable[Any] | None
    dial: float
    rules: Rules
    reasons: int


@dataclass(frozen=True, eq=False)
class Wanted:
    """What a list should be like: checked, and with numbers instead of ids."""

    n: int
    dial: float
    allowed: Numbers | None
    excluded: Numbers
    rules: tuple[Rule, ...]
    reasons: int


@dataclass(frozen=True, eq=False)
class Asked:
    """A query that can be answered: who the list is for, and what it should be like."""

    row: int | None  # of a known user in the training part
    adopted: Numbers  # what the encoder sees, ascending
    weights: npt.NDArray[np.float32]  # of the adopted items
    rejected: Numbers  # never listed
    removed: Numbers  # never listed, because the user has them
    wanted: Wanted


class Reason(NamedTuple):
    """An adopted item that is a reason for a listed one; the weight is its part of the logit."""

    item: Any
    title: str | None
    weight: float


class ListedItem(NamedTuple):
    """An item of a list: where it stands in the list, and what the catalogue knows about it."""

    rank: int
    item: Any  # its id
    title: str | None
    score: float
    popularity: int
    tail: str
    reasons: tuple[Reason, ...]
    number: int
    place: int  # its rank by popularity, 1 for the most popular item


@dataclass(frozen=True)
class Answer:
    """A list, best item first, with a sentence for each rule that could not be met, and for missing reasons."""

    items: tuple[ListedItem, ...]
    unmet: tuple[str, ...] = ()

    @property
    def shares(self) -> dict[str, float]:
        """The share of the list in each tail interval; 0 if the list is empty."""
        tails = [one.tail for one in self.items]
        return {name: tails.count(name) / max(len(tails), 1) for name in TAIL_NAMES}

    @property
    def mean_popularity(self) -> float | None:
        """The mean number of adopters of the listed items; None if the list is empty."""
        return sum(one.popularity for one in self.items) / len(self.items) if self.items else None


def ask(fitted: Fitted, catalogue: Catalogue, query: Query) -> Asked:
    """Check a query and look up its ids; the cost does not grow with the catalogue."""
    wish = wanted(catalogue, query)
    if query.user is None:
        return _new_user(catalogue, query, wish)
    if query.adopted is not None or several(query.rejected):
        raise SettingsError("a list is for a known user or for adopted items, not both")
    return known_user(fitted, int(catalogue.user_numbers([query.user])[0]), wish)


def wanted(catalogue: Catalogue, query: Query) -> Wanted:
    """What a query says about the list itself."""
    allowed = None if query.allow is None else np.unique(catalogue.items_among(query.allow))
    excluded = catalogue.items_among(query.exclude or ())
    rules = tuple(rule_of(rule) for rule in query.rules)
    return Wanted(list_length(query.n), checked_dial(query.dial), allowed, excluded, rules, _n_reasons(query.reasons))


def known_user(fitted: Fitted, row: int, wish: Wanted) -> Asked:
    adopted, weights = _row(fitted.train.adopted, row)
    rejected, _ = _row(fitted.train.rejected, row)
    removed, _ = _row(fitted.removed, row)
    return Asked(row, adopted, weights, rejected, removed, wish)


def _new_user(catalogue: Catalogue, query: Query, wish: Wanted) -> Asked:
    if query.adopted is None:
        raise SettingsError("say who the list is for: a known user, or adopted items (there may be none)")
    adopted, rejected = (np.unique(catalogue.item_numbers(several(ids))) for ids in (query.adopted, query.rejected))
    if both := set(adopted.tolist()) & set(rejected.tolist()):
        raise DataError(f"item '{catalogue.item_ids[min(both)]}' is both adopted and rejected")
    return Asked(None, adopted, np.ones(len(adopted), dtype=np.float32), rejected, adopted, wish)


def list_length(n: int) -> int:
    if not isinstance(n, int | np.integer) or n < 1:
        raise SettingsError(f"a list must have at least 1 item, not {n}")
    return int(n)


def _row(pairs: csr_array, row: int) -> tuple[Numbers, npt.NDArray[np.float32]]:
    part = slice(pairs.indptr[row], pairs.indptr[row + 1])
    return pairs.indices[part], pairs.data[part]


def _n_reasons(number: int) -> int:
    if not isinstance(number, int | np.integer) or number < 0:
        raise SettingsError(f"the number of reasons must be a whole number from 0 up, not {number!r}")
    return int(number)
