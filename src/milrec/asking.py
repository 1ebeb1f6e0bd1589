"""What a list is asked for with, and what comes back: the one form for library, command line and server.

Query  → Asked   ids become numbers; whatever is wrong with a query is said here
Asked  → Answer  many at a time, in answering
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from milrec.artifacts import Fitted
from milrec.catalogue import TAIL_NAMES, Catalogue, several
from milrec.errors import DataError, SettingsError, UnknownIdError
from milrec.rules import Rule, rule_of
from milrec.scoring import checked_dial

Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Query:
    """One list, for a known user or for a taste: adopted items (there may be none) and rejected ones."""

    user: Any | None = None
    adopted: Sequence[Any] | None = None
    rejected: Sequence[Any] = ()
    n: int = 20
    allow: Iterable[Any] | None = None  # the only items that may be listed
    exclude: Iterable[Any] | None = None  # items that may not be listed
    dial: float = 0.0
    rules: Sequence[Rule | str | Mapping[str, Any]] = ()
    reasons: int = 0  # at most so many for each item


@dataclass(frozen=True, eq=False)
class Asked:
    """A query that can be answered: numbers instead of ids, everything checked."""

    row: int | None  # of a known user in the training part
    adopted: Numbers  # what the encoder sees, ascending
    weights: npt.NDArray[np.float32]  # of the adopted items
    rejected: Numbers
    hidden: Numbers  # what the user has, and what is excluded: never listed
    allowed: Numbers | None
    n: int
    dial: float
    rules: tuple[Rule, ...]
    reasons: int


class Reason(NamedTuple):
    """An adopted item that speaks for a listed one, by so much of the logit."""

    item: Any
    title: str | None
    weight: float


class ListedItem(NamedTuple):
    """A place of a list."""

    rank: int
    item: Any
    title: str | None
    score: float
    popularity: int
    tail: str
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A list, best first, and a sentence for each rule that could not be met."""

    items: tuple[ListedItem, ...]
    unmet: tuple[str, ...] = ()

    @property
    def shares(self) -> dict[str, float]:
        """Share of the list in each tail interval; 0 where the list is empty."""
        tails = [one.tail for one in self.items]
        return {name: tails.count(name) / max(len(tails), 1) for name in TAIL_NAMES}

    @property
    def mean_popularity(self) -> float | None:
        """Mean number of adopters of the listed items; None where the list is empty."""
        return sum(one.popularity for one in self.items) / len(self.items) if self.items else None


def ask(fitted: Fitted, catalogue: Catalogue, query: Query) -> Asked:
    """Check a query and look its ids up; the cost does not grow with the catalogue."""
    if query.user is not None:
        row, adopted, weights, rejected, hidden = _known(fitted, catalogue, query)
    else:
        row = None
        adopted, rejected = _taste(catalogue, query)
        weights, hidden = np.ones(len(adopted), dtype=np.float32), adopted
    if query.exclude is not None:
        hidden = np.concatenate([hidden, catalogue.items_among(query.exclude)])
    allowed = None if query.allow is None else np.unique(catalogue.items_among(query.allow))
    rules = tuple(rule_of(rule) for rule in query.rules)
    settled = (list_length(query.n), checked_dial(query.dial), rules, _n_reasons(query.reasons))
    return Asked(row, adopted, weights, rejected, hidden, allowed, *settled)


def list_length(n: int) -> int:
    if not isinstance(n, int | np.integer) or n < 1:
        raise SettingsError(f"a list has at least 1 item, not {n}")
    return int(n)


def _known(fitted: Fitted, catalogue: Catalogue, query: Query) -> tuple[int, Numbers, Any, Numbers, Numbers]:
    if query.adopted is not None or len(several(query.rejected)):
        raise SettingsError("a list is for a known user or for adopted items, not for both")
    try:
        row = int(catalogue.user_numbers([query.user])[0])
    except UnknownIdError as error:
        raise UnknownIdError(f"{error}; for a user the model has not met, give adopted items") from None
    train = fitted.train
    adopted, weights = _row(train.adopted, row)
    rejected, _ = _row(train.rejected, row)
    hidden, _ = _row(fitted.removed, row)
    return row, adopted, weights, rejected, hidden


def _taste(catalogue: Catalogue, query: Query) -> tuple[Numbers, Numbers]:
    if query.adopted is None:
        raise SettingsError("say who the list is for: a known user, or adopted items (there may be none)")
    adopted, rejected = (np.unique(catalogue.item_numbers(several(ids))) for ids in (query.adopted, query.rejected))
    if len(both := np.intersect1d(adopted, rejected)):
        raise DataError(f"item '{catalogue.item_ids[both[0]]}' is both adopted and rejected")
    return adopted, rejected


def _row(pairs: csr_array, row: int) -> tuple[Numbers, npt.NDArray[np.float32]]:
    part = slice(pairs.indptr[row], pairs.indptr[row + 1])
    return pairs.indices[part], pairs.data[part]


def _n_reasons(number: int) -> int:
    if not isinstance(number, int | np.integer) or number < 0:
        raise SettingsError(f"reasons are a whole number from 0 up, not {number!r}")
    return int(number)
