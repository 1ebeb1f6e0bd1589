"""The figures of a run by the paper's names for its models, and what decides between the verdicts."""

from __future__ import annotations

from collections.abc import Callable

from milrec.records import TailName
from milrec.report.summary import TAILS, Entry, entries_of, entry_of, smoothed
from milrec.results import Comparison, Results

HOLDS, FAILS, UNDECIDED, NOT_CLAIMED = "holds", "does not hold", "undecided", "not claimed"
ABOUT = 0.9  # where the paper says "about", nine tenths of its figure are enough
_EXACT = 1e-9  # what floating point may do to a difference of printed figures

Finding = tuple[str, str]  # verdict and evidence


class Undecided(Exception):
    """The run does not have what a claim is about."""


class Run:
    """The figures of a run by the paper's names for models."""

    def __init__(self, results: Results) -> None:
        self.results, self.entries = results, entries_of(results)

    def has(self, *models: str) -> bool:
        return all(entry_of(self.entries, model) is not None for model in models)

    def entry(self, model: str) -> Entry:
        entry = entry_of(self.entries, model)
        if entry is None:
            raise Undecided(f"{model} is not in this run")
        return entry

    def value(self, entry: Entry, measure: str) -> float:
        value = entry.mean(measure)
        if value is None:
            raise Undecided(f"{entry.name} has no {measure_name(measure)}")
        return value

    def share(self, model: str, tail: TailName) -> float:
        """Percent of the top 200."""
        shares = self.entry(model).shares()
        if shares is None:
            raise Undecided(f"{model} has no shares of the top 200")
        return shares[tail]

    def preferences(self, model: str) -> list[float]:
        """Percent of a user's predicted preferences in each interval of table 6."""
        found = self.entry(model).preferences()
        if found is None:
            raise Undecided(f"{model} has no distribution of preferences")
        return found

    def place(self, model: str, tail: TailName, rank: int) -> float:
        """Percent of users with an item of the interval around a place of the list (mean of five places)."""
        parts = [self.entry(model).evolution(one) for one, _ in TAILS]
        if any(len(part) < rank for part in parts) or not any(part[rank - 1] for part in parts):
            raise Undecided(f"the lists of {model} have no place {rank}")
        return 100 * smoothed(self.entry(model).evolution(tail))[rank - 1]

    def compared(self, measure: str, first: Entry, second: Entry) -> Comparison | None:
        """First minus second, user by user."""
        return self.results.comparison(measure, first.name, second.name)

    def above(self, high: Entry, low: Entry, measure: str) -> Finding:
        """Is the first model better than the second?"""
        first, second = self.value(high, measure), self.value(low, measure)
        paired = self.compared(measure, high, low)
        evidence = f"{measure_name(measure)}: {high.name} {first:.3f}, {low.name} {second:.3f}"
        if paired is None:
            return order(first - second, None), f"{evidence} ({first - second:+.3f})."
        evidence += (
            f" ({paired.difference:+.3f}, 95 % interval {paired.low:+.3f} to {paired.high:+.3f}, {p_text(paired.p)})."
        )
        return doubted(order(paired.difference, paired), evidence)


Check = Callable[[Run], Finding]


def order(difference: float, paired: Comparison | None) -> str:
    """Is a difference positive, and not by chance?"""
    if paired is not None and paired.may_be_chance:
        return UNDECIDED
    return HOLDS if difference > 0 else FAILS


def at_least(floor: float, value: float, low: float | None = None) -> str:
    """Is a size at least `floor`? If it has an interval, its low end must be, too."""
    if not value >= floor - _EXACT:  # or undefined
        return FAILS
    return UNDECIDED if low is not None and low < floor - _EXACT else HOLDS


def within(room: float, value: float, ends: tuple[float, float] | None = None) -> str:
    """Is a difference no larger than `room` either way? If it has an interval, both ends must be within it, too."""
    if abs(value) > room + _EXACT:
        return FAILS
    return UNDECIDED if ends is not None and max(map(abs, ends)) > room + _EXACT else HOLDS


def all_of(*findings: Finding) -> Finding:
    """Holds if all do; fails if one does."""
    verdicts = {verdict for verdict, _ in findings}
    verdict = FAILS if FAILS in verdicts else UNDECIDED if UNDECIDED in verdicts else HOLDS
    return verdict, " ".join(evidence for _, evidence in findings)


def plain(holds: bool, evidence: str) -> Finding:
    return (HOLDS if holds else FAILS), evidence


def doubted(verdict: str, evidence: str, doubt: str = "This may be chance.") -> Finding:
    """A comparison user by user that decides nothing says why."""
    return verdict, f"{evidence} {doubt}" if verdict == UNDECIDED else evidence


def p_text(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def measure_name(measure: str) -> str:
    return measure.replace("ndcg", "NDCG").replace("recall", "Recall")
