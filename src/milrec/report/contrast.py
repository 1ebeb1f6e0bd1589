"""What a run's figures say about two models by one measure: above, below, level, or not clear.

The difference is that of the comparison user by user, if the run has one; its p, corrected for all pairs of models
already, is multiplied by the number of families of comparisons that a verdict looks at. Otherwise the 95 % intervals
of the two models must not touch. Level: the whole interval of the difference lies within a band, and with several seeds
so does every difference between a seed of the one and a seed of the other. Above or below: the interval leaves out 0, p
is below .05, and with several seeds each of the better model's is better than each of the other's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10
from typing import Literal

from milrec.report.checks.evidence import p_text
from milrec.report.headlines import Headline
from milrec.report.summary import Entry
from milrec.results import SIGNIFICANCE, Comparison, Results

LEVEL_PART = 0.03  # of the larger figure: a difference that is surely smaller, and within the measure's band, is level
_MOST_DIGITS = 6

Outcome = Literal["above", "below", "level", "not clear"]


@dataclass(frozen=True)
class Contrast:
    """First minus second: the interval of the difference, its corrected p if there is one, and what follows."""

    headline: Headline
    first: float
    second: float
    low: float
    high: float
    p: float | None
    seeds_apart: bool = True  # no seed of one model is on the other's side
    seed_spread: float = 0.0  # how far apart the seeds of one model are, the more uncertain one; 0 for one each

    @property
    def outcome(self) -> Outcome:
        low, high = min(self.low, self.high), max(self.low, self.high)
        if self._in_band:
            return "level" if self.seed_spread <= self.band else "not clear"
        if (self.p is not None and self.p >= SIGNIFICANCE) or not self.seeds_apart:
            return "not clear"
        if low > 0 and self.first > self.second:
            return "above"
        return "below" if high < 0 and self.first < self.second else "not clear"

    @property
    def band(self) -> float:
        """Two models are level if their difference is surely no larger."""
        return min(self.headline.level, LEVEL_PART * max(abs(self.first), abs(self.second)))

    @property
    def _in_band(self) -> bool:
        return max(abs(self.low), abs(self.high)) <= self.band

    @property
    def _digits(self) -> int:
        """Those of the measure, or as many as it takes to see the band."""
        return max(self.headline.digits, min(_MOST_DIGITS, -floor(log10(self.band or 1))))

    @property
    def both(self) -> str:
        """Both figures."""
        head, figures = self.headline, [self.headline.text(one, self._digits) for one in (self.first, self.second)]
        if head.role == "reach":
            return f"{figures[0]} and {figures[1]} of the list places"
        return f"{head.technical} {figures[0]} and {figures[1]}"

    @property
    def figures(self) -> str:
        """Both figures, and what the outcome rests on."""
        if self.outcome == "level":
            unit = 10**self._digits
            room = max(1, ceil(self.band * unit - 1e-6)) / unit  # rounded up, so as not to say more than is sure
            return f"{self.both}, equal to within {room:.{self._digits}f}" if self.band else self.both
        if self.outcome == "not clear":
            return f"{self.both}; {self.doubt}"
        return self.both if self.p is None else f"{self.both}, {p_text(self.p)}"

    @property
    def doubt(self) -> str:
        """Why the order is not clear."""
        if self._in_band:
            return "how far they are apart depends on the seed"
        if self.low <= 0 <= self.high or (self.p is not None and self.p >= SIGNIFICANCE):
            if self.p is None:
                return "their intervals overlap"
            return "the difference may be chance" + (f", {p_text(self.p)}" if self.p < 1 else "")
        return "the order depends on the seed"

    def reversed(self) -> Contrast:
        """Second minus first."""
        return replace(self, first=self.second, second=self.first, low=-self.high, high=-self.low)


def contrast(results: Results, headline: Headline, first: Entry, second: Entry, families: int) -> Contrast | None:
    """None if one of the models lacks the measure, or if nothing says how sure the figures are."""
    ours, theirs = first.mean(headline.measure), second.mean(headline.measure)
    if ours is None or theirs is None:
        return None
    paired = results.comparison(headline.measure, first.name, second.name)
    interval = _unpaired(headline.measure, first, second) if paired is None else (paired.low, paired.high)
    if interval is None:
        return None
    p = corrected(paired, families)
    values = [entry.values(headline.measure) for entry in (first, second)]
    return Contrast(headline, ours, theirs, *interval, p, apart(*values), spread(*values))


def corrected(paired: Comparison | None, families: int) -> float | None:
    """p of a comparison, for so many families of comparisons (Bonferroni; within a family it is Holm's already)."""
    return None if paired is None else min(1.0, families * paired.p)


def apart(first: Sequence[float], second: Sequence[float]) -> bool:
    return min(first) > max(second) or max(first) < min(second)


def spread(first: Sequence[float], second: Sequence[float]) -> float:
    """How far apart the seeds of one of two models are, the more uncertain one."""
    return max(max(first) - min(first), max(second) - min(second))


def _unpaired(measure: str, first: Entry, second: Entry) -> tuple[float, float] | None:
    """The difference as far as the two intervals allow: wider than a comparison user by user."""
    ours, theirs = _hull(measure, first), _hull(measure, second)
    return None if ours is None or theirs is None else (ours[0] - theirs[1], ours[1] - theirs[0])


def _hull(measure: str, entry: Entry) -> tuple[float, float] | None:
    """The intervals of all seeds together; None if a seed has none."""
    ends = [end for run in entry.runs for end in run.evaluation.intervals.get(measure, (None, None))]
    known = [end for end in ends if end is not None]
    return (min(known), max(known)) if len(known) == len(ends) else None
