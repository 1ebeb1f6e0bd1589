"""Calibration: what a fit keeps to turn logits into probabilities, and Chances, which does it.

The probability of a pair is the chance that it is among the held-out ones of a part as large as the validation part,
given that the user does not have it yet. It was fitted on validation: a curve that never falls, over the odds of the
loss's link or over the logits; with little validation data, the odds of the link times one factor.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from milrec.losses import Loss
from milrec.probability.links import Link, link_of
from milrec.probability.prices import TailPrices
from milrec.records import Count, Number, Rank, Record

Doubles = npt.NDArray[np.float64]
_RISE = 0.01  # of ln(probability) to the right of the last knot: a higher logit is always worth a little more
LARGEST = 0.999  # a probability that nothing exceeds


class Calibration(Record):
    """How logits become probabilities: ln(probability) is ln(odds) + ln_factor, or a curve through `knots`."""

    link: bool  # whether odds are read off the loss's link; without it, the logit itself stands for ln(odds)
    n_drawn: Rank | None = None  # missing items that enter the loss for each user; null: all, with weight 1
    ln_factor: Number = 0.0  # by which odds become those of being held out
    knots: Annotated[tuple[tuple[Number, Number], ...], Field(max_length=1_000)] = ()  # (ln odds, ln P), both rising
    rest_counts: bool = True  # whether test pairs were among those that validation took for missing
    held_out: Count  # validation pairs that it was fitted on
    prices: TailPrices | None = None

    @model_validator(mode="after")
    def _rising(self) -> Calibration:
        places, values = ([knot[axis] for knot in self.knots] for axis in (0, 1))
        if any(high <= low for low, high in itertools.pairwise(places)):
            raise ValueError("the knots of a calibration must rise from left to right")
        if any(high < low for low, high in itertools.pairwise(values)) or max(values, default=0.0) > 0:
            raise ValueError("the probabilities of a calibration rise, up to 1")
        return self

    def refuse_other_loss(self, settings: Any) -> None:
        """Odds are read off the link of a loss that has one, and off a curve without it."""
        if self.link != (own_link(settings) is not None) or not (self.link or self.knots):
            raise ValueError("the calibration does not match the loss")

    @property
    def kind(self) -> str:
        """What it is called in reports."""
        if not self.link:
            return "a monotone fit to the logits"
        return "the loss's link and a monotone fit" if self.knots else "the loss's link and one factor"

    def by_one_factor(self) -> Calibration | None:
        """The same without the curve; None if the loss has no link."""
        return self.model_copy(update={"knots": ()}) if self.link else None

    def ln_probability(self, ln_odds: Doubles) -> Doubles:
        """By the loss's odds, or along the curve: straight between its knots, nearly level to the right of them."""
        if not self.knots:
            ln_odds = ln_odds + self.ln_factor
            found = ln_odds if self.rest_counts else -np.logaddexp(0.0, -ln_odds)
        else:
            places, values = _curve(self.knots)
            slope = 1.0 if self.link else first_slope(places, values)
            beyond = np.maximum(ln_odds - places[-1], 0.0)
            found = np.interp(ln_odds, places, values) + slope * np.minimum(ln_odds - places[0], 0.0)
            found = found + _RISE * beyond / (1 + beyond)
        capped: Doubles = np.minimum(found, math.log(LARGEST))
        return capped


@lru_cache(maxsize=64)
def _curve(knots: tuple[tuple[float, float], ...]) -> tuple[Doubles, Doubles]:
    """Where knots stand, and how high."""
    return np.array([knot[0] for knot in knots]), np.array([knot[1] for knot in knots])


def first_slope(places: Doubles, values: Doubles) -> float:
    """How fast a curve falls to the left of its first knot: as between the first two, and by at least a little."""
    if len(places) < 2:
        return 1.0
    return max(float((values[1] - values[0]) / (places[1] - places[0])), 1e-6)


@dataclass(frozen=True, eq=False)
class Chances:
    """The probabilities of a model's logits."""

    calibration: Calibration
    link: Link | None
    n_items: int
    rejected_count: bool = True  # whether rejected items are not missing

    @classmethod
    def of(cls, calibration: Calibration, settings: Any, n_items: int) -> Chances:
        """For a model that was fitted with these settings."""
        return cls(calibration, own_link(settings) if calibration.link else None, n_items, counts_rejected(settings))

    def shifts(self, n_adopted: npt.NDArray[Any], n_rejected: npt.NDArray[Any]) -> Doubles:
        """ln w for each user: with which weight a missing item enters the loss."""
        n_drawn = self.calibration.n_drawn
        if self.link is None or n_drawn is None:
            return np.zeros(len(n_adopted))
        known = n_adopted.astype(np.int64) + (n_rejected if self.rejected_count else 0)
        n_missing = np.maximum(self.n_items - known, 1)
        shifts: Doubles = np.log(np.minimum(min(n_drawn, self.n_items), n_missing) / n_missing)
        return shifts

    def ln_odds(self, logits: npt.NDArray[Any]) -> Doubles:
        """What the loss takes them for, at a weight of 1."""
        plain = np.asarray(logits, dtype=np.float64)
        return plain if self.link is None else self.link(plain)

    def probabilities(self, logits: npt.NDArray[Any], shifts: Doubles | float) -> Doubles:
        """`logits` and what `shifts` gives for their users, in shapes that go together."""
        found: Doubles = np.exp(self.calibration.ln_probability(self.ln_odds(logits) + shifts))
        return found


def own_link(settings: Any) -> Link | None:
    """The link of the loss that a fit had; None without one."""
    loss: Loss | None = settings.loss
    return None if loss is None else link_of(loss, settings.model.decoder)


def counts_rejected(settings: Any) -> bool:
    """Whether the loss treats rejected items as rejected, not as missing."""
    return settings.target_set is None or settings.target_set.rejected_as == "rejected"
