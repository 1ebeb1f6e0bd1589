"""What a place in the tail costs: for each share of a list, the bonus that leads to it and the hits that are left.

A list holds the n items with the highest P + bonus, where all items of a class have the same bonus. The classes are the
intervals of the tail and, apart from the long tail, its items with a single adopter, about which next to nothing is
known. λ, the bonus of the long tail, is the probability of a hit that is paid for one more place in it; single adopters
get none. Curves are measured on validation users, for lists of several lengths.
"""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from milrec.records import Rank, Record

Dial = Literal["short", "medium", "long", "popularity"]
Amount = Annotated[float, Field(ge=0, le=1e15)]
_Amounts = Annotated[tuple[Amount, ...], Field(min_length=2, max_length=1_000)]
_Bonuses = Annotated[tuple[Annotated[float, Field(ge=-1, le=1)], ...], Field(min_length=2, max_length=1_000)]


class PriceCurve(Record):
    """Points of one dial, for lists of one length: what is asked for, the bonus, and the expected hits of a list."""

    n: Rank
    amounts: _Amounts  # shares from 0 to 1, rising; or mean popularities, falling
    bonuses: _Bonuses  # rising
    hits: _Amounts

    @model_validator(mode="after")
    def _in_order(self) -> PriceCurve:
        if not len(self.amounts) == len(self.bonuses) == len(self.hits):
            raise ValueError("a price curve must have the same number of amounts, bonuses and hits")
        if any(high < low for low, high in itertools.pairwise(self.bonuses)):
            raise ValueError("the bonuses of a price curve must rise")
        steps = [high - low for low, high in itertools.pairwise(self.amounts)]
        if min(steps) < 0 < max(steps):
            raise ValueError("the amounts of a price curve rise, or fall")
        return self

    def at_amount(self, amount: float) -> tuple[float, float]:
        """Bonus and hits for an amount, straight between two points; beyond the ends, those of the end."""
        rises = self.amounts[0] <= self.amounts[-1]
        amounts, bonuses, hits = (row if rises else row[::-1] for row in (self.amounts, self.bonuses, self.hits))
        return float(np.interp(amount, amounts, bonuses)), float(np.interp(amount, amounts, hits))

    def at_bonus(self, bonus: float) -> tuple[float, float]:
        """Amount and hits for a bonus."""
        return float(np.interp(bonus, self.bonuses, self.amounts)), float(np.interp(bonus, self.bonuses, self.hits))

    def within_reach(self, amount: float) -> float:
        """The amount itself, or the nearest to it that any bonus leads to."""
        return min(max(amount, min(self.amounts)), max(self.amounts))


_Curves = Annotated[tuple[PriceCurve, ...], Field(min_length=1, max_length=100)]


class TailPrices(Record):
    """The curves of a model: for the share of each interval, and for the mean popularity."""

    short: _Curves
    medium: _Curves
    long: _Curves
    popularity: _Curves
    adopters: tuple[Amount, Amount, Amount, Amount]  # mean popularity of the items of each class

    @model_validator(mode="after")
    def _of_shares(self) -> TailPrices:
        if any(max(curve.amounts) > 1 for curve in (*self.short, *self.medium, *self.long)):
            raise ValueError("a share is at most 1")
        return self

    def near(self, dial: Dial, n: int) -> list[tuple[PriceCurve, float]]:
        """The curves for the lengths next to n, and how much each counts: by how near it is, on a scale of ratios."""
        curves = sorted(getattr(self, dial), key=lambda curve: int(curve.n))
        below, above = [one for one in curves if one.n <= n], [one for one in curves if one.n >= n]
        if not below or not above or below[-1].n == above[0].n:
            return [(below[-1] if below else above[0], 1.0)]
        place = math.log(n / below[-1].n) / math.log(above[0].n / below[-1].n)
        return [(below[-1], 1 - place), (above[0], place)]

    def natural(self, dial: Dial, n: int) -> tuple[float, float]:
        """What lists are like by themselves: their share or mean popularity, and the hits that are expected of them."""
        points = [(*curve.at_bonus(0.0), weight) for curve, weight in self.near(dial, n)]
        return sum(weight * amount for amount, _, weight in points), sum(weight * hits for _, hits, weight in points)
