"""What lists should be like on average over users (30 % long tail, say), and the price of it.

An aim becomes a bonus for each class of the tail, by the curves that were measured on validation (`prices`). Between
two lengths that were measured, bonus and hits lie in between; beyond them, those of the nearest length are given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from milrec.errors import SettingsError
from milrec.probability.prices import Dial, PriceCurve, TailPrices
from milrec.records import TAIL_NAMES

_PLAIN = int | float | np.integer | np.floating
Bonus = tuple[float, float, float, float]  # of the short, the medium and the long tail, and of single adopters


@dataclass(frozen=True)
class Aim:
    """A share of an interval, or a mean popularity at most."""

    dial: Dial
    amount: float | None = None
    bonus: float | None = None  # instead of an amount: λ itself

    def price(self, prices: TailPrices, n: int) -> Price:
        """The bonus that leads there in lists of n items, and what it is expected to cost."""
        near = prices.near(self.dial, n)
        natural, own_hits = prices.natural(self.dial, n)
        _, without = prices.natural("long", n)  # the same users for every aim
        points = [(*self._point(curve, natural), weight) for curve, weight in near]
        bonus, amount, hits = (sum(point[3] * point[place] for point in points) for place in range(3))
        hits += without - own_hits
        measured = n if len(near) == 2 else near[0][0].n
        return Price(_bonuses(self.dial, bonus, prices), self, bonus, amount, max(hits, 0.0), without, measured)

    def _point(self, curve: PriceCurve, natural: float) -> tuple[float, float, float]:
        """Bonus, amount and hits, as near to what was asked for as any bonus leads."""
        if self.bonus is not None:
            return self.bonus, *curve.at_bonus(self.bonus)
        assert self.amount is not None
        wanted = min(self.amount, natural) if self.dial == "popularity" else self.amount
        reached = curve.within_reach(wanted)
        bonus, hits = curve.at_amount(reached)
        return bonus, reached, hits

    def said(self, amount: float) -> str:
        if self.dial == "popularity":
            return f"a mean popularity of {amount:.3g}"
        return f"{100 * amount:.0f} % {self.dial} tail"


@dataclass(frozen=True)
class Price:
    """A bonus for each class of the tail, and the hits that are expected of a list with it and without it."""

    bonuses: Bonus
    aim: Aim
    bonus: float  # λ; for a mean popularity, μ: what each adopter costs
    amount: float  # that it leads to: a share, or a mean popularity
    hits: float
    hits_without: float
    n: int  # the length of the lists that this is about: the one asked for, or the nearest that was measured

    @property
    def unmet(self) -> str | None:
        """A sentence, if what was asked for is out of reach."""
        asked = self.aim.amount
        if asked is None or math.isclose(asked, self.amount, rel_tol=0.01, abs_tol=0.005):
            return None
        if self.aim.dial == "popularity" and asked > self.amount:
            return None  # at most
        end = "most" if asked > self.amount else "least"
        return f"{self.aim.said(asked)} is out of reach: {self.aim.said(self.amount)} is the {end}"

    def __str__(self) -> str:
        name = "μ" if self.aim.dial == "popularity" else "λ"
        hits = f"{self.hits:.2f} hits are expected of a list of {self.n}, {self.hits_without:.2f} without it"
        said = f"{self.aim.said(self.amount)} on average over users ({name} = {self.bonus:.3g}): {hits}"
        return said if self.unmet is None else f"{self.unmet}; {said}"


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
        raise SettingsError(f"give only one of {names}")
    return found[0] if found else None


def _aim(name: str, value: Any) -> Aim:
    if name == "mean_popularity":
        return Aim("popularity", checked_popularity(value))
    if name == "long_bonus":
        return Aim("long", bonus=checked_bonus(value))
    tail = next(tail for tail in TAIL_NAMES if name == f"{tail}_share")
    return Aim(tail, checked_share(tail, value))


def checked_share(tail: str, share: float) -> float:
    if isinstance(share, bool) or not isinstance(share, _PLAIN) or not 0 <= share <= 1:
        raise SettingsError(f"`{tail}_share` must be a share from 0 to 1, such as 0.3, not {share!r}")
    return float(share)


def checked_popularity(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, _PLAIN) or not 0 < value < math.inf:
        raise SettingsError(f"`mean_popularity` must be a number of adopters above 0, not {value!r}")
    return float(value)


def checked_bonus(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, _PLAIN) or not -1 <= value <= 1:
        raise SettingsError(f"`long_bonus` must be a probability from -1 to 1, not {value!r}")
    return float(value)
