"""Rules for lists: how many items of a list come from which part of the popularity tail.

A rule is a count or a share of the list, or of its first places: `long >= 30%`, `short <= 2 in 10`.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from milrec.errors import SettingsError, cut
from milrec.metrics.tail import TailInterval
from milrec.settings import Settings, build, shown

_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%")
_TEXT = re.compile(r"\s*(short|medium|long)\s*(>=|<=|≥|≤)\s*([0-9.]{1,12}) ?(%?)(?:\s+in\s+([0-9]{1,9}))?\s*")


def _amount(value: Any) -> Any:
    """A count unchanged, or a share as a percentage without a space."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**9):
        return value
    found = _SHARE.fullmatch(value) if isinstance(value, str) else None
    if found is None or Fraction(found[1]) > 100:
        raise ValueError(f"{shown(value)} is neither a count, such as 2, nor a share, such as '30%'")
    return f"{found[1]}%"


def _count(amount: int | str, n_places: int) -> Fraction:
    return Fraction(amount) if isinstance(amount, int) else Fraction(amount[:-1]) / 100 * n_places


Amount = Annotated[int | str | None, BeforeValidator(_amount)]


class Rule(Settings):
    """At least, or at most, so much of a list, or of its first places, comes from one part of the tail."""

    tail: Literal["short", "medium", "long"]
    at_least: Amount = Field(None, description="a count, such as 3, or a share, such as '30%'")
    at_most: Amount = Field(None, description="a count, such as 3, or a share, such as '30%'")
    first: int | None = Field(None, ge=1, le=10**9, description="of how many first places; by default of all")

    @model_validator(mode="after")
    def _one_bound(self) -> Rule:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("a rule needs either at_least or at_most")
        if self.first is not None and isinstance(self.at_least, int) and self.at_least > self.first:
            raise ValueError(f"the first {self.first} cannot hold {self.at_least} items")
        return self

    def __str__(self) -> str:
        amount = self.at_most if self.at_least is None else self.at_least
        bound = "at most" if self.at_least is None else "at least"
        much = f"{amount[:-1]} %" if isinstance(amount, str) else str(amount)
        where = "the list" if self.first is None else f"the first {self.first}"
        return f"{bound} {much} of {where} from the {self.tail} tail"

    @classmethod
    def parse(cls, text: str) -> Rule:
        """A rule from its short form, such as `long >= 30%` or `short <= 2 in 10`."""
        found = _TEXT.fullmatch(text)
        if found is None or ("." in found[3] and not found[4]):
            raise SettingsError(f"'{cut(text)}' is not a rule; write it as 'long >= 30%' or 'short <= 2 in 10'")
        tail, sign, number, percent, first = found.groups()
        bound = "at_least" if sign in (">=", "≥") else "at_most"
        amount = f"{number}%" if percent else int(number)
        return build(cls, {"tail": tail, bound: amount, "first": None if first is None else int(first)}, f"'{text}'")

    def bound(self, length: int) -> _Bound:
        """What the rule means for a list of this length: at_least is rounded up, at_most down."""
        place = length if self.first is None else min(self.first, length)
        tail = TailInterval[self.tail.upper()]
        if self.at_least is not None:
            return _Bound(place, tail, math.ceil(_count(self.at_least, place)), place)
        assert self.at_most is not None
        return _Bound(place, tail, 0, math.floor(_count(self.at_most, place)))


def rule_of(value: Rule | str | Mapping[str, Any]) -> Rule:
    """A rule from its short form, or from plain values as in JSON."""
    if isinstance(value, str):
        return Rule.parse(value)
    if isinstance(value, Mapping):
        return build(Rule, value, "a rule")
    if not isinstance(value, Rule):
        raise SettingsError(f"{cut(repr(value))} is not a rule; write it as 'long >= 30%' or 'short <= 2 in 10'")
    return value


@dataclass(frozen=True)
class _Bound:
    """Of the first `place` places, `low` to `high` come from one part of the tail."""

    place: int
    tail: int
    low: int
    high: int


@dataclass(frozen=True)
class _Room:
    """How many items of each part may be among the first `place` places if all bounds are to be kept."""

    place: int
    low: list[int]
    high: list[int]

    def within_reach(self, counts: list[int]) -> bool:
        """Whether counts at an earlier place can lead here: none is too large, and what is missing fits in."""
        lacking = sum(max(low - count, 0) for low, count in zip(self.low, counts, strict=True))
        fits = all(count <= high for count, high in zip(counts, self.high, strict=True))
        return fits and lacking <= self.place - sum(counts)


def list_under(
    rules: Sequence[Rule], n: int, items: Sequence[Sequence[int]], scores: Sequence[Sequence[float]]
) -> tuple[list[int], tuple[str, ...]]:
    """The list under rules, and a sentence for each rule that cannot be met.

    `items` and `scores` are the n best of each part of the tail, best first. Each place gets the best item that still
    allows all rules to be met. If they cannot all be met, earlier rules win, and the others are met as far as possible.
    """
    available = [len(part) for part in items]
    length = min(n, sum(available))
    bounds, unmet = _kept_bounds(rules, available, length)
    rooms = iter(_rooms(bounds, available, length) or ())
    room, counts, listed = next(rooms), [0] * len(items), list[int]()
    while len(listed) < length:
        if room.place == len(listed):
            room = next(rooms)
        heads = [
            (-scores[tail][counts[tail]], items[tail][counts[tail]], tail)
            for tail in range(len(items))
            if counts[tail] < available[tail]
        ]
        _, item, tail = next(head for head in sorted(heads) if room.within_reach(_with_one_more(counts, head[2])))
        listed.append(item)
        counts[tail] += 1
    return listed, unmet


def _kept_bounds(rules: Sequence[Rule], available: list[int], length: int) -> tuple[list[_Bound], tuple[str, ...]]:
    """What the rules mean for a list of this length, each as far as the earlier ones allow."""
    bounds: list[_Bound] = []
    unmet = []
    for rule in rules:
        bound = rule.bound(length)
        kept = bound
        if not _rooms([*bounds, bound], available, length):
            kept = _nearest(bound, bounds, available, length)
            unmet.append(_sentence(rule, bound, kept, available, length))
        bounds.append(kept)
    return bounds, tuple(unmet)


def _nearest(bound: _Bound, earlier: list[_Bound], available: list[int], length: int) -> _Bound:
    """The bound nearest to the given one that can be kept together with the earlier ones."""

    def kept(other: _Bound) -> bool:
        return _rooms([*earlier, other], available, length) is not None

    if bound.low:
        most = bisect_left(range(bound.low), True, key=lambda low: not kept(replace(bound, low=low))) - 1
        return replace(bound, low=most)
    return replace(bound, high=bisect_left(range(length), True, key=lambda high: kept(replace(bound, high=high))))


def _rooms(bounds: Sequence[_Bound], available: list[int], length: int) -> list[_Room] | None:
    """The counts from which a list can be completed, at each place that has a bound; None if there are none.

    Worked out from the end to the beginning: a place may lack what the places up to the next bound can still supply.
    With three parts and a fixed sum, such counts are all those between a least and a largest number for each part
    (a bound on a pair of parts is one on the third), so these numbers, as tight as the sum makes them, are exact.
    """
    rooms: list[_Room] = []
    place, low, high = length, [0] * len(available), list(available)
    for stop in sorted({length, *(bound.place for bound in bounds)}, reverse=True):
        low, high = [max(0, number - (place - stop)) for number in low], list(high)
        place = stop
        for bound in (one for one in bounds if one.place == place):
            low[bound.tail] = max(low[bound.tail], bound.low)
            high[bound.tail] = min(high[bound.tail], bound.high)
        least, most = sum(low), sum(high)
        if not least <= place <= most or any(down > up for down, up in zip(low, high, strict=True)):
            return None
        low, high = (
            [max(down, place - (most - up)) for down, up in zip(low, high, strict=True)],
            [min(up, place - (least - down)) for down, up in zip(low, high, strict=True)],
        )
        rooms.append(_Room(place, low, high))
    return rooms[::-1]


def _with_one_more(counts: list[int], tail: int) -> list[int]:
    return [count + (part == tail) for part, count in enumerate(counts)]


def _sentence(rule: Rule, bound: _Bound, kept: _Bound, available: list[int], length: int) -> str:
    if bound.low:
        found = f"{kept.low} of {bound.low}"
        short = available[bound.tail] < min(bound.low, bound.place)
        why = f"no more {rule.tail}-tail items may be listed" if short else f"the list is only {length} long"
    else:
        found, why = f"{kept.high} instead of {bound.high}", "too few other items may be listed"
    if _rooms([bound], available, length):
        why = "the rules before it leave no room"
    return f"{rule}: {found}, {why}"
