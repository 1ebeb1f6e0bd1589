"""Rules for lists: how many of a list's items come from a part of the popularity tail.

A rule is a count or a share of the list, or of its first places: `long >= 30%`, `short <= 2 in 10`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from milrec.config import Settings, build
from milrec.errors import SettingsError

_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%")
_TEXT = re.compile(r"\s*(short|medium|long)\s*(>=|<=|≥|≤)\s*([0-9.]{1,12}) ?(%?)(?:\s+in\s+([0-9]{1,9}))?\s*")


def _amount(value: Any) -> Any:
    """A count as it is, a share as a percentage without a space."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**9):
        return value
    if isinstance(value, float) and 0 < value < 1:
        value = f"{float(Fraction(repr(value)) * 100):.6f}".rstrip("0").rstrip(".") + "%"
    found = _SHARE.fullmatch(value) if isinstance(value, str) else None
    if found is None or Fraction(found[1]) > 100:
        raise ValueError(f"{value!r} is neither a count, as 2, nor a share, as '30%'")
    return f"{found[1]}%"


Amount = Annotated[int | str | None, BeforeValidator(_amount)]


class Rule(Settings):
    """At least, or at most, so much of a list (or of its first places) from a part of the tail."""

    tail: Literal["short", "medium", "long"]
    at_least: Amount = Field(None, description="a count, as 3, or a share, as '30%'")
    at_most: Amount = Field(None, description="a count, as 3, or a share, as '30%'")
    first: int | None = Field(None, ge=1, le=10**9, description="only the first so many places")

    @model_validator(mode="after")
    def _one_bound(self) -> Rule:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("a rule has either at_least or at_most")
        return self

    def __str__(self) -> str:
        amount = self.at_most if self.at_least is None else self.at_least
        bound = "at most" if self.at_least is None else "at least"
        much = f"{amount[:-1]} %" if isinstance(amount, str) else str(amount)
        where = "the list" if self.first is None else f"the first {self.first}"
        return f"{bound} {much} of {where} from the {self.tail} tail"

    @classmethod
    def parse(cls, text: str) -> Rule:
        """A rule from its short form: `long >= 30%`, `short <= 2 in 10`."""
        found = _TEXT.fullmatch(text)
        if found is None or ("." in found[3] and not found[4]):
            raise SettingsError(f"'{text}' is not a rule; write it as 'long >= 30%' or 'short <= 2 in 10'")
        tail, sign, number, percent, first = found.groups()
        bound = "at_least" if sign in (">=", "≥") else "at_most"
        amount = f"{number}%" if percent else int(number)
        return build(cls, {"tail": tail, bound: amount, "first": None if first is None else int(first)}, f"'{text}'")

    def count(self, n_places: int) -> int:
        """The number of items that the rule comes to in so many places: at least rounds up, at most rounds down."""
        amount = self.at_most if self.at_least is None else self.at_least
        assert amount is not None
        if isinstance(amount, int):
            return amount
        share = Fraction(amount[:-1]) / 100 * n_places
        return math.floor(share) if self.at_least is None else math.ceil(share)


def rule_of(value: Rule | str | Mapping[str, Any]) -> Rule:
    """A rule from its short form, or from plain values as they stand in JSON."""
    if isinstance(value, str):
        return Rule.parse(value)
    if isinstance(value, Mapping):
        return build(Rule, value, "a rule")
    if not isinstance(value, Rule):
        raise SettingsError(f"{value!r} is not a rule; write it as 'long >= 30%' or 'short <= 2 in 10'")
    return value
