"""Section 4.3 of the paper: where in the popularity tail the lists come from (table 8), place by place (figure 2)."""

from __future__ import annotations

from dataclasses import dataclass

from milrec.records import TailName
from milrec.report import paper
from milrec.report.checks.evidence import (
    ABOUT,
    HOLDS,
    UNDECIDED,
    Check,
    Finding,
    Run,
    Undecided,
    at_least,
    doubted,
    order,
    p_text,
    plain,
)
from milrec.report.paper import CE, MIL
from milrec.report.summary import TAILS
from milrec.results import Comparison

STAGNANT = 0.25  # a share that grows by no more than this part of its growth before has stagnated


@dataclass(frozen=True)
class _Shares:
    """Two models' shares of the top 200 in an interval of the tail, percent, and their comparison user by user."""

    first: float
    second: float
    paired: Comparison | None
    evidence: str

    @property
    def difference(self) -> float:
        return self.first - self.second if self.paired is None else self.paired.difference


def _shares(run: Run, tail: TailName, model: str, other: str) -> _Shares:
    first, second = run.share(model, tail), run.share(other, tail)
    paired = run.compared(f"{tail}_share@200", run.entry(model), run.entry(other))
    names = run.entry(model).name, run.entry(other).name
    notes = [f"{100 * (first / second - 1):+.1f} %"] if second else []
    if paired is not None:
        notes.append(f"95 % interval {paired.low:+.1f} to {paired.high:+.1f} percentage points, {p_text(paired.p)}")
    evidence = f"{names[0]} {first:.1f} %, {names[1]} {second:.1f} % of the top 200"
    return _Shares(first, second, paired, evidence + (f" ({', '.join(notes)})." if notes else "."))


def lists_more(tail: TailName, model: str, other: str) -> Check:
    """A model lists more of an interval than another."""

    def check(run: Run) -> Finding:
        shares = _shares(run, tail, model, other)
        return doubted(order(shares.difference, shares.paired), shares.evidence)

    return check


def lists_less(tail: TailName, model: str, other: str) -> Check:
    """A model lists less of an interval than another."""

    def check(run: Run) -> Finding:
        shares = _shares(run, tail, model, other)
        return doubted(order(-shares.difference, shares.paired), shares.evidence)

    return check


def lists_more_by(percent: float, tail: TailName, model: str, other: str) -> Check:
    """A model lists at least so many percent more of an interval than another."""

    def check(run: Run) -> Finding:
        shares = _shares(run, tail, model, other)
        least = None if shares.paired is None else shares.paired.low
        return _sized(percent, shares, shares.difference, least)

    return check


def lists_less_by(percent: float, tail: TailName, model: str, other: str) -> Check:
    """A model lists at least so many percent less of an interval than another."""

    def check(run: Run) -> Finding:
        shares = _shares(run, tail, model, other)
        least = None if shares.paired is None else -shares.paired.high
        return _sized(percent, shares, -shares.difference, least)

    return check


def _sized(percent: float, shares: _Shares, difference: float, least: float | None) -> Finding:
    """Is a difference at least so many percent of the second share? So must be the least that its interval allows."""
    if not shares.second:
        raise Undecided("the share to compare with is 0 %")
    share = 100 / shares.second
    verdict = at_least(percent, share * difference, None if least is None else share * least)
    if verdict == HOLDS and shares.paired is not None and shares.paired.may_be_chance:
        return doubted(UNDECIDED, shares.evidence)
    return doubted(verdict, shares.evidence, f"Part of the interval is less than {percent:g} %.")


def more_users(other: str) -> Check:
    """At place 100, MIL lists a long-tail item for more users than another model."""

    def check(run: Run) -> Finding:
        difference, evidence = _users(run, other)
        return plain(difference > 0, evidence)

    return check


def more_users_by(users: int, other: str) -> Check:
    """The same by about so many of Netflix's users, taken as a share of all users."""

    def check(run: Run) -> Finding:
        difference, evidence = _users(run, other)
        return at_least(ABOUT * share_of_netflix(users), difference), evidence

    return check


def share_of_netflix(users: int) -> float:
    """In percent of the users of Netflix, the data of figure 2."""
    return 100 * users / paper.DATA_SETS["netflix"].users


def _users(run: Run, other: str) -> tuple[float, str]:
    mil, rival = run.place(MIL, "long", 100), run.place(other, "long", 100)
    names = run.entry(MIL).name, run.entry(other).name
    evidence = f"Long tail at place 100: {names[0]} {mil:.1f} % of users, {names[1]} {rival:.1f} %"
    return mil - rival, f"{evidence} ({mil - rival:+.1f} percentage points)."


def head_is_popular(run: Run) -> Finding:
    parts = [run.entry(CE).evolution(tail)[:100] for tail, _ in TAILS]
    if len(parts[0]) < 100:
        raise Undecided(f"the lists of {CE} have no place 100")
    short, medium, long = (sum(part) for part in parts)  # percent of a hundred places
    evidence = f"{short:.0f} % short, {medium:.0f} % medium, {long:.0f} % long tail"
    return plain(short > max(medium, long), f"{run.entry(CE).name} in the first 100 places: {evidence}.")


def leaves_popular(run: Run) -> Finding:
    mil, ce = run.place(MIL, "short", 50), run.place(CE, "short", 50)
    first = 100 * run.entry(MIL).evolution("short")[0]
    evidence = f"Short tail with {run.entry(MIL).name}: {first:.0f} % at place 1, {mil:.0f} % at place 50"
    return plain(first > 50 and mil < ce, f"{evidence} ({run.entry(CE).name} there: {ce:.0f} %).")


def grows(tail: TailName) -> Check:
    """MIL's share of an interval is larger at place 100 than at the top."""

    def check(run: Run) -> Finding:
        top, later = run.place(MIL, tail, 1), run.place(MIL, tail, 100)
        name = run.entry(MIL).name
        return plain(later > top, f"{name}, {tail} tail: {top:.0f} % at the top, {later:.0f} % at place 100.")

    return check


def medium_stagnates(run: Run) -> Finding:
    top, middle, end = (run.place(MIL, "medium", rank) for rank in (1, 100, 200))
    if middle <= top:
        raise Undecided(f"the medium-tail share of {run.entry(MIL).name} does not grow until place 100")
    places = f"{top:.1f} % at the top, {middle:.1f} % at place 100, {end:.1f} % at place 200"
    return plain(end - middle <= STAGNANT * (middle - top), f"{run.entry(MIL).name}, medium tail: {places}.")


def long_over_short(run: Run) -> Finding:
    long, short = run.place(MIL, "long", 200), run.place(MIL, "short", 200)
    return plain(long > short, f"{run.entry(MIL).name} at place 200: {long:.0f} % long, {short:.0f} % short tail.")
