"""What a place in the tail costs: for each share of a list, the bonus that leads to it and the hits that are left.

A list holds the n items with the highest P + bonus, where all items of a class have the same bonus. The classes are the
intervals of the tail and, apart from the long tail, its items with a single adopter, about which next to nothing is
known. λ, the bonus of the long tail, is the probability of a hit that is paid for one more place in it; single adopters
get none. Curves are measured on validation users, for lists of several lengths.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import numpy as np
from pydantic import Field, model_validator

from milrec.errors import SettingsError
from milrec.records import TAIL_NAMES, Number, Rank, Record, TailName

Bonus = tuple[float, float, float, float]  # of the short, the medium and the long tail, and of single adopters
_Row = Annotated[tuple[Number, ...], Field(min_length=2)]


class PriceCurve(Record):
    """Points of one dial, for lists of one length: what is asked for, the bonus, and the expected hits of a list."""

    n: Rank
    amounts: _Row  # shares from 0 to 1, rising; or mean popularities, falling
    bonuses: _Row  # rising
    hits: _Row

    @model_validator(mode="after")
    def _of_one_length(self) -> PriceCurve:
        if not len(self.amounts) == len(self.bonuses) == len(self.hits):
            raise ValueError("a price curve has as many amounts, bonuses and hits")
        if any(high < low for low, high in itertools.pairwise(self.bonuses)):
            raise ValueError("the bonuses of a price curve rise")
        return self

    def at_amount(self, amount: float) -> tuple[float, float]:
        """Bonus and hits for an amount, straight between two points; beyond the ends, those of the end."""
        rises = self.amounts[0] <= self.amounts[-1]
        amounts, bonuses, hits = (row if rises else row[::-1] for row in (self.amounts, self.bonuses, self.hits))
        return float(np.interp(amount, amounts, bonuses)), float(np.interp(amount, amounts, hits))

    def at_bonus(self, bonus: float) -> tuple[float, float]:
        """Amount and hits for a bonus."""
        return float(np.interp(bonus, self.bonuses, self.amounts)), float(np.interp(bonus, self.bonuses, self.hits))


class TailPrices(Record):
    """The curves of a model: for the share of each interval, and for the mean popularity."""

    short: tuple[PriceCurve, ...]
    medium: tuple[PriceCurve, ...]
    long: tuple[PriceCurve, ...]
    popularity: tuple[PriceCurve, ...]
    adopters: tuple[Number, Number, Number, Number]  # mean popularity of the items of each class

    @model_validator(mode="after")
    def _not_empty(self) -> TailPrices:
        if not (self.short and self.medium and self.long and self.popularity):
            raise ValueError("tail prices have a curve for each dial")
        return self

    def curve(self, dial: TailName | Literal["popularity"], n: int) -> PriceCurve:
        """The one for the length that is nearest to n."""
        curves: tuple[PriceCurve, ...] = getattr(self, dial)
        return min(curves, key=lambda one: abs(math.log(one.n / n)))


@dataclass(frozen=True)
class Aim:
    """What lists should be like on average over users: a share of an interval, or a mean popularity at most."""

    dial: TailName | Literal["popularity"]
    amount: float | None = None
    bonus: float | None = None  # instead of an amount: λ itself

    def price(self, prices: TailPrices, n: int) -> Price:
        """The bonus that leads there in lists of n items, and what it is expected to cost."""
        curve = prices.curve(self.dial, n)
        _, without = curve.at_bonus(0.0)
        if self.bonus is not None:
            amount, hits = curve.at_bonus(self.bonus)
            return Price(_bonuses(self.dial, self.bonus, prices), self.bonus, amount, hits, without)
        assert self.amount is not None
        natural, _ = curve.at_bonus(0.0)
        wanted = min(self.amount, natural) if self.dial == "popularity" else self.amount
        bonus, hits = curve.at_amount(wanted)
        return Price(_bonuses(self.dial, bonus, prices), bonus, wanted, hits, without)


@dataclass(frozen=True)
class Price:
    """A bonus for each interval, and the hits that are expected of a list with it and without it."""

    bonuses: Bonus
    bonus: float  # λ
    amount: float
    hits: float
    hits_without: float

    def __str__(self) -> str:
        return f"λ = {self.bonus:.3g}: {self.hits:.2f} hits expected per list, {self.hits_without:.2f} without it"


def _bonuses(dial: str, bonus: float, prices: TailPrices) -> Bonus:
    if dial == "popularity":
        short, medium, long, single = (-bonus * adopters for adopters in prices.adopters)
        return short, medium, long, single
    short, medium, long = (bonus if name == dial else 0.0 for name in TAIL_NAMES)
    return short, medium, long, min(long, 0.0)


class Aims(TypedDict, total=False):
    """What lists should be like on average over users, by the names that it goes by everywhere; one at most."""

    long_share: float | None
    medium_share: float | None
    short_share: float | None
    mean_popularity: float | None  # at most
    long_bonus: float | None  # λ


def aim_of(aims: Aims) -> Aim | None:
    """What was asked for; None if nothing was, and an error if there is more than one thing."""
    wanted = {name: value for name, value in aims.items() if value is not None}
    found = [_aim(name, value) for name, value in wanted.items()]
    if len(found) > 1:
        names = ", ".join(f"`{name}`" for name in wanted)
        raise SettingsError(f"ask for one of {names}, not for several")
    return found[0] if found else None


def _aim(name: str, value: Any) -> Aim:
    if name == "mean_popularity":
        return Aim("popularity", checked_popularity(value))
    if name == "long_bonus":
        return Aim("long", bonus=checked_bonus(value))
    tail = next(tail for tail in TAIL_NAMES if name == f"{tail}_share")
    return Aim(tail, checked_share(tail, value))


def checked_share(tail: str, share: float) -> float:
    if isinstance(share, bool) or not isinstance(share, int | float | np.number) or not 0 <= share <= 1:
        raise SettingsError(f"`{tail}_share` must be a share from 0 to 1, such as 0.3, not {share!r}")
    return float(share)


def checked_popularity(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < math.inf:
        raise SettingsError(f"`mean_popularity` must be a number of adopters above 0, not {value!r}")
    return float(value)


def checked_bonus(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not -1 <= value <= 1:
        raise SettingsError(f"`long_bonus` must be a probability from -1 to 1, not {value!r}")
    return float(value)
