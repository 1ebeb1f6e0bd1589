"""A request for a list, and its answer: the same for library, command line and server.

Query  → Asked   here: ids become numbers, and mistakes in a query become errors
Asked  → Answer  in answer.py, for many queries at a time
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from milrec.errors import NO_PROBABILITIES, DataError, SettingsError, UnknownIdError, cut, unknown
from milrec.lists.catalogue import TAIL_NAMES, Catalogue, several
from milrec.lists.dislikes import NO_CHANCES, NOT_COMBINED, Dislikes, checked_dislikes
from milrec.lists.rules import Rule, rule_of
from milrec.lists.scores import checked_dial
from milrec.probability.aims import Aims, Price, aim_of
from milrec.probability.prices import TailPrices
from milrec.training.artifact import Fitted

Numbers = npt.NDArray[np.int32]
Rules = Sequence[Rule | str | Mapping[str, Any]]
LIGHTEST, HEAVIEST = 1e-30, 1e30  # weights of a new user's items that single precision can hold
_NAMED = 20  # unknown items in a sentence
WEIGHTS = f"from {LIGHTEST:g} to {HEAVIEST:g}"
Adopted = Sequence[Any] | Mapping[Any, float]  # items, or how often each was played, bought or clicked


@dataclass(frozen=True)
class Query:
    """A request for one list: for a known user, for a taste, which is adopted items (or none) and rejected ones, or for
    a known user who has adopted and rejected these items since the fit.
    """

    user: Any | None = None
    adopted: Adopted | None = None
    rejected: Sequence[Any] = ()
    n: int = 20
    allow: Iterable[Any] | None = None  # the only items that may be listed
    exclude: Iterable[Any] | None = None  # items that may not be listed
    dial: float = 0.0
    rules: Rules = ()
    reasons: int = 0  # the most to give for each item
    long_share: float | None = None  # of the list, on average over users; one of these five at most
    medium_share: float | None = None
    short_share: float | None = None
    mean_popularity: float | None = None  # at most, on average over users
    long_bonus: float | None = None  # λ: what a place in the long tail is worth, as a probability
    strict: bool = True  # whether an unknown adopted or rejected item is an error; if not, it is skipped
    dislikes: Dislikes | None = None  # what users reject, and how many hits a dislike costs

    @classmethod
    def wishing(cls, n: int, wishes: Wishes) -> Query:
        """A query for known users; an argument that is none of their wishes is refused rather than ignored."""
        known = {*Wishes.__required_keys__, *Wishes.__optional_keys__, "strict"}  # which is about adopted items alone
        for name in wishes:
            if name in ("adopted", "rejected", "user"):
                raise SettingsError(
                    f"'{name}' cannot be given for a list of known users; use recommend_new(adopted, rejected, user=…)"
                )
            if name not in known:
                raise SettingsError(unknown("argument", name, known))
        return cls(n=n, **wishes)

    @property
    def aims(self) -> Aims:
        return {
            "long_share": self.long_share,
            "medium_share": self.medium_share,
            "short_share": self.short_share,
            "mean_popularity": self.mean_popularity,
            "long_bonus": self.long_bonus,
        }

    @property
    def adds_items(self) -> bool:
        """Whether it names items of a user, known or not."""
        return bool(several(() if self.adopted is None else self.adopted) or several(self.rejected))


class Wishes(Aims, total=False):
    """What a list is to be like, apart from its length; some of the fields of a query."""

    allow: Iterable[Any] | None
    exclude: Iterable[Any] | None
    dial: float
    rules: Rules
    reasons: int
    dislikes: Dislikes | None


@dataclass(frozen=True, eq=False)
class Wanted:
    """What a list should be like: checked, and with numbers instead of ids."""

    n: int
    dial: float
    allowed: Numbers | None
    excluded: Numbers
    rules: tuple[Rule, ...]
    reasons: int
    price: Price | None = None  # of what the list aims at in the tail
    dislikes: Dislikes | None = None


@dataclass(frozen=True, eq=False)
class Asked:
    """A query that can be answered: who the list is for, and what it should be like."""

    row: int | None  # of a known user in the training part; None for a new one
    adopted: Numbers  # what the encoder sees, ascending
    weights: npt.NDArray[np.float32]  # of the adopted items
    rejected: Numbers  # never listed
    removed: Numbers  # never listed, because the user has them
    wanted: Wanted
    skipped: tuple[Any, ...] | None = None  # ids of items that are not known; None: they would have been an error
    as_new: bool = False  # whether the model sees a known user as a new one, with these items

    @property
    def number(self) -> int | None:
        """The row by which the model knows the user, if it does."""
        return None if self.as_new else self.row

    @property
    def said_of_skipped(self) -> list[str]:
        """A sentence about unknown items, if any were skipped."""
        if not self.skipped:
            return []
        named = ", ".join(f"'{cut(one)}'" for one in self.skipped[:_NAMED])
        more = f" and {len(self.skipped) - _NAMED:,} more" if len(self.skipped) > _NAMED else ""
        what = "an unknown item was skipped" if len(self.skipped) == 1 else "unknown items were skipped"
        return [f"{what}: {named}{more}"]


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
    probability: float | None  # None if the model has none
    popularity: int
    tail: str
    reasons: tuple[Reason, ...]
    number: int
    place: int  # its rank by popularity, 1 for the most popular item


@dataclass(frozen=True)
class Answer:
    """A list, best item first, with a sentence for each rule that could not be met, and for whatever else it lacks."""

    items: tuple[ListedItem, ...]
    unmet: tuple[str, ...] = ()
    skipped: tuple[Any, ...] = ()  # ids that are not known, of a query that is not strict

    @property
    def shares(self) -> dict[str, float]:
        """The share of the list in each tail interval; 0 if the list is empty."""
        tails = [one.tail for one in self.items]
        return {name: tails.count(name) / max(len(tails), 1) for name in TAIL_NAMES}

    @property
    def expected_hits(self) -> float | None:
        """How many of the listed items are expected to be adopted: the sum of their probabilities."""
        known = [one.probability for one in self.items if one.probability is not None]
        return sum(known) if len(known) == len(self.items) else None

    @property
    def mean_popularity(self) -> float | None:
        """The mean number of adopters of the listed items; None if the list is empty."""
        return sum(one.popularity for one in self.items) / len(self.items) if self.items else None


def ask(fitted: Fitted, catalogue: Catalogue, query: Query) -> Asked:
    """Check a query and look up its ids; the cost does not grow with the catalogue."""
    wish = wanted(catalogue, query, fitted.prices)
    if query.user is None and query.adopted is None:
        alone = "; rejected items alone do not say it" if len(query.rejected) else ""
        raise SettingsError(f"say who the list is for: a known user, or adopted items (an empty list will do){alone}")
    if query.user is None:
        taste = _taste(catalogue, query)
        return Asked(None, taste.adopted, taste.weights, taste.rejected, taste.adopted, wish, taste.skipped)
    known = known_user(fitted, int(catalogue.user_numbers([query.user])[0]), wish)
    return _with_items(known, _taste(catalogue, query), fitted.model.fixes_users)


def wanted(catalogue: Catalogue, query: Query, prices: TailPrices | None) -> Wanted:
    """What a query says about the list itself; `prices` are those of the model's tail, if it has any."""
    allowed = None if query.allow is None else np.unique(catalogue.items_among(query.allow))
    excluded = catalogue.items_among(query.exclude or ())
    rules = tuple(rule_of(rule) for rule in query.rules)
    n, dial = list_length(query.n), checked_dial(query.dial)
    price, dislikes = _price(query, n, prices), query.dislikes
    if dislikes is not None:
        if price is not None or rules or dial:
            raise SettingsError(NOT_COMBINED)
        if prices is None:
            raise SettingsError(NO_CHANCES)
        checked_dislikes(dislikes).refuse_others(catalogue.item_column)
    return Wanted(n, dial, allowed, excluded, rules, _n_reasons(query.reasons), price, dislikes)


def _price(query: Query, n: int, prices: TailPrices | None) -> Price | None:
    """Of what the query aims at in the tail."""
    aim = aim_of(query.aims)
    if aim is None:
        return None
    if query.dial:
        raise SettingsError("give either the old dial or a share of the tail, not both")
    if prices is None:
        raise SettingsError(NO_PROBABILITIES)
    return aim.price(prices, n)


def known_user(fitted: Fitted, row: int, wish: Wanted) -> Asked:
    adopted, weights = _row(fitted.train.adopted, row)
    rejected, _ = _row(fitted.train.rejected, row)
    removed, _ = _row(fitted.removed, row)
    return Asked(row, adopted, weights, rejected, removed, wish)


class _Taste(NamedTuple):
    """What a query says that somebody adopted and rejected, ascending, and what it says that is not known."""

    adopted: Numbers
    weights: npt.NDArray[np.float32]
    rejected: Numbers
    skipped: tuple[Any, ...] | None


def _taste(catalogue: Catalogue, query: Query) -> _Taste:
    given = _as_given(query.adopted)
    refused, skipped = several(query.rejected), None
    if not query.strict:
        ids = [*given, *refused]
        skipped = tuple(dict.fromkeys(one for one in ids if not catalogue.has_item(one)))
        if query.user is None:
            _refuse_if_none_is_known(catalogue, given)
        _check_weights(given)
        given, refused = _known_among(catalogue, given), [one for one in refused if catalogue.has_item(one)]
    adopted, weights = _adopted(catalogue, given)
    rejected = np.unique(catalogue.item_numbers(refused))
    if both := set(adopted.tolist()) & set(rejected.tolist()):
        raise DataError(f"item '{catalogue.item_ids[min(both)]}' is both adopted and rejected")
    return _Taste(adopted, weights, rejected, skipped)


def _as_given(adopted: Adopted | None) -> Adopted:
    """Items with their weights, or a list of items: what is given once, such as an iterator, is read once."""
    if adopted is None:
        return []
    return adopted if isinstance(adopted, Mapping) else several(adopted)


def _known_among(catalogue: Catalogue, given: Adopted) -> Adopted:
    if isinstance(given, Mapping):
        return {one: weight for one, weight in given.items() if catalogue.has_item(one)}
    return [one for one in given if catalogue.has_item(one)]


def _refuse_if_none_is_known(catalogue: Catalogue, given: Adopted) -> None:
    """A list by nothing is not what somebody wants who names items."""
    ids = list(given)
    if ids and not any(catalogue.has_item(one) for one in ids):
        try:
            catalogue.item_numbers(ids)
        except UnknownIdError as error:
            raise UnknownIdError(f"none of the adopted items is known: {error}") from None


def _with_items(known: Asked, taste: _Taste, as_new: bool) -> Asked:
    """A known user with more items: what the query says of an item counts, not what the training part says.

    Weights are how often an item was adopted, so those of an item that the user already has are added up.
    """
    if not len(taste.adopted) and not len(taste.rejected):
        return replace(known, skipped=taste.skipped)
    kept = ~np.isin(known.adopted, taste.rejected)
    items, place = np.unique(np.concatenate([known.adopted[kept], taste.adopted]), return_inverse=True)
    weights = np.bincount(place, np.concatenate([known.weights[kept], taste.weights]), minlength=len(items))
    return replace(
        known,
        adopted=items,
        weights=np.minimum(weights, HEAVIEST).astype(np.float32),
        rejected=np.union1d(np.setdiff1d(known.rejected, taste.adopted), taste.rejected),
        removed=np.union1d(known.removed, taste.adopted),
        skipped=taste.skipped,
        as_new=as_new and bool(len(taste.adopted) or not kept.all()),
    )


def _adopted(catalogue: Catalogue, given: Adopted) -> tuple[Numbers, npt.NDArray[np.float32]]:
    """The items that a query names, ascending, and the weight of each: how often it was adopted, or 1."""
    if not isinstance(given, Mapping):
        items = np.unique(catalogue.item_numbers(several(given)))
        return items, np.ones(len(items), dtype=np.float32)
    _check_weights(given)
    numbers = catalogue.item_numbers(list(given))
    items, first = np.unique(numbers, return_index=True)
    if len(items) < len(numbers):
        raise DataError("an item is given two weights; give each item once")
    return items, np.array(list(given.values()), dtype=np.float32)[first]


def _check_weights(given: Adopted) -> None:
    for item, weight in given.items() if isinstance(given, Mapping) else ():
        if not is_weight(weight):
            raise DataError(f"the weight of item '{cut(item)}' must be a number {WEIGHTS}, not {cut(repr(weight))}")


def is_weight(value: Any) -> bool:
    """Whether a weight that somebody gives can be worked with."""
    plain = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return plain and bool(LIGHTEST <= value <= HEAVIEST)


def list_length(n: int) -> int:
    if not isinstance(n, int | np.integer) or n < 1:
        raise SettingsError(f"the length of a list must be a whole number of 1 or more, not {n!r}")
    return int(n)


def _row(pairs: csr_array, row: int) -> tuple[Numbers, npt.NDArray[np.float32]]:
    part = slice(pairs.indptr[row], pairs.indptr[row + 1])
    return pairs.indices[part], pairs.data[part]


def _n_reasons(number: int) -> int:
    if not isinstance(number, int | np.integer) or number < 0:
        raise SettingsError(f"the number of reasons must be a whole number of 0 or more, not {number!r}")
    return int(number)
