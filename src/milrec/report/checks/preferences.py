"""Section 4.2 of the paper: how a user's predicted preferences spread over the catalogue (table 6)."""

from __future__ import annotations

from milrec.report.checks.evidence import ABOUT, Check, Finding, Run, Undecided, at_least, plain
from milrec.report.paper import CE, MIL, PAIR


def ce_near_zero(percent: float) -> Check:
    """Point-wise cross-entropy leaves at least so many preferences below .01."""

    def check(run: Run) -> Finding:
        low = run.preferences(CE)[0]
        evidence = f"{run.entry(CE).name} leaves {low:.1f} % of all preferences below .01."
        return at_least(percent, low), evidence

    return check


def mil_further_from_zero(run: Run) -> Finding:
    mil, ce = run.preferences(MIL)[0], run.preferences(CE)[0]
    return plain(mil < ce, f"Below .01: {run.entry(MIL).name} {mil:.1f} %, {run.entry(CE).name} {ce:.1f} %.")


def mil_none_near_zero(run: Run) -> Finding:
    low = run.preferences(MIL)[0]
    return plain(low < 0.05, f"{run.entry(MIL).name} leaves {low:.1f} % of all preferences below .01.")


def mil_high(percent: float) -> Check:
    """MIL gives at least so many items a preference of .5 or more."""

    def check(run: Run) -> Finding:
        high = sum(run.preferences(MIL)[3:])
        evidence = f"{run.entry(MIL).name} gives {high:.1f} % of all items a preference of .5 or more."
        return at_least(percent, high), evidence

    return check


def pair_gives_more(run: Run) -> Finding:
    pair, point, evidence = _highest(run)
    return plain(pair > point, f"{evidence}.")


def pair_gives_times(times: float) -> Check:
    """Pair-wise cross-entropy gives about so many times as many items a preference of .9 or more as point-wise."""

    def check(run: Run) -> Finding:
        pair, point, evidence = _highest(run)
        if not point:
            raise Undecided(f"{run.entry(CE).name} gives no item a preference of .9 or more")
        return at_least(ABOUT * times, pair / point), f"{evidence} ({pair / point:.1f} times)."

    return check


def _highest(run: Run) -> tuple[float, float, str]:
    pair, point = run.preferences(PAIR)[-1], run.preferences(CE)[-1]
    names = run.entry(PAIR).name, run.entry(CE).name
    return pair, point, f"Preferences of .9 or more: {names[0]} {pair:.2f} %, {names[1]} {point:.2f} %"


def few_high(run: Run) -> Finding:
    """Fewer than 100 items of the catalogue per user."""
    share, items = run.preferences(CE)[-1], run.results.data.items
    evidence = f"{run.entry(CE).name}: {share:.2f} % of {items:,} items, {share / 100 * items:.0f} per user."
    return plain(share / 100 * items < 100, evidence)
