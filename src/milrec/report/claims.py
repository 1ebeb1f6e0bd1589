"""The paper's claims checked against the figures of a run: each holds, does not hold, or cannot be decided.

If a run has compared two models user by user and their difference may be chance (p ≥ .05), a claim about their order
cannot be decided. Sections, tables and figures are numbered as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from milrec.records import TailName
from milrec.report import paper
from milrec.report.summary import TAILS, Entry, entries_of, entry_of, smoothed
from milrec.results import Results

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
LEVEL = 0.005  # a difference in NDCG@100 that does not matter

CE, CE_SIG, PAIR, PAIR_SIG = "CE_Point lin-sig", "CE_Point sig-sig", "CE_Pair lin-sig", "CE_Pair sig-sig"
MIL, MIL_SIG, MULTI = "MIL lin-sig", "MIL sig-sig", "MULTI tanh-lin"
MF_SQUARE, MF_CE, MF_MIL = "MF-square", "MF-CE", "MF-mil"

Finding = tuple[str, str]  # verdict and evidence


@dataclass(frozen=True)
class Claim:
    """A claim of the paper: where the paper makes it, the verdict, and a sentence with the figures of the run."""

    claim: str
    where: str
    verdict: str
    evidence: str

    @property
    def decided(self) -> bool:
        return self.verdict != UNDECIDED


class _Undecided(Exception):
    """The run does not have what a claim is about."""


def claims(results: Results) -> list[Claim]:
    """Every claim, checked."""
    run = _Run(results)
    checked = []
    for claim, where, check in CLAIMS:
        try:
            verdict, evidence = check(run)
        except _Undecided as reason:
            verdict, evidence = UNDECIDED, f"{reason}."
            evidence = evidence[:1].upper() + evidence[1:]
        checked.append(Claim(claim, where, verdict, evidence))
    return checked


def p_text(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


class _Run:
    """The figures of a run by the paper's names for models."""

    def __init__(self, results: Results) -> None:
        self.results, self.entries = results, entries_of(results)

    def has(self, model: str) -> bool:
        return entry_of(self.entries, model) is not None

    def entry(self, model: str) -> Entry:
        entry = entry_of(self.entries, model)
        if entry is None:
            raise _Undecided(f"{model} is not in this run")
        return entry

    def value(self, entry: Entry, measure: str) -> float:
        value = entry.mean(measure)
        if value is None:
            raise _Undecided(f"{entry.name} has no {_measure_name(measure)}")
        return value

    def share(self, model: str, tail: TailName) -> float:
        shares = self.entry(model).shares()
        if shares is None:
            raise _Undecided(f"{model} has no shares of the top 200")
        return shares[tail]

    def preferences(self, model: str) -> list[float]:
        found = self.entry(model).preferences()
        if found is None:
            raise _Undecided(f"{model} predicts no preferences")
        return found

    def place(self, model: str, tail: TailName, rank: int) -> float:
        """Percent of users with an item of the interval around a place of the list (mean of five places)."""
        shares = self.entry(model).evolution(tail)
        parts = [self.entry(model).evolution(one) for one, _ in TAILS]
        if len(shares) < rank or not any(part[rank - 1] for part in parts):
            raise _Undecided(f"the lists have no place {rank}")
        return 100 * smoothed(shares)[rank - 1]

    def above(self, high: Entry, low: Entry, measure: str) -> Finding:
        """Is the first model better than the second?"""
        first, second = self.value(high, measure), self.value(low, measure)
        paired = self.results.comparison(measure, high.name, low.name)
        evidence = f"{_measure_name(measure)}: {high.name} {first:.3f}, {low.name} {second:.3f}"
        if paired is None:
            return (HOLDS if first > second else FAILS), f"{evidence} ({first - second:+.3f})."
        evidence += (
            f" ({paired.difference:+.3f}, 95 % interval {paired.low:+.3f} to {paired.high:+.3f}, {p_text(paired.p)})."
        )
        if paired.may_be_chance:
            return UNDECIDED, f"{evidence} This may be chance."
        return (HOLDS if paired.difference > 0 else FAILS), evidence


def _measure_name(measure: str) -> str:
    return measure.replace("ndcg", "NDCG").replace("recall", "Recall")


def _all(*findings: Finding) -> Finding:
    """Holds if all do; fails if one does."""
    verdicts = {verdict for verdict, _ in findings}
    verdict = FAILS if FAILS in verdicts else UNDECIDED if UNDECIDED in verdicts else HOLDS
    return verdict, " ".join(evidence for _, evidence in findings)


def _plain(holds: bool, evidence: str) -> Finding:
    return (HOLDS if holds else FAILS), evidence


Check = Callable[[_Run], Finding]


def _order(*pairs: tuple[str, str], measures: tuple[str, ...] = ("ndcg@100",)) -> Check:
    """The first model of each pair is above the second, by every measure."""
    return lambda run: _all(
        *(run.above(run.entry(high), run.entry(low), measure) for high, low in pairs for measure in measures)
    )


def _point_over_pair(run: _Run) -> Finding:
    pairs = [(point, pair) for point, pair in ((CE, PAIR), (CE_SIG, PAIR_SIG)) if run.has(point) and run.has(pair)]
    if not pairs:
        raise _Undecided("this run does not have both a point-wise and a pair-wise model with the same encoder")
    return _order(*pairs, measures=("recall@1", "ndcg@100"))(run)


def _mil_level(run: _Run) -> Finding:
    mil, ce = run.entry(MIL), run.entry(CE)
    first, second = run.value(mil, "ndcg@100"), run.value(ce, "ndcg@100")
    evidence = f"NDCG@100: {mil.name} {first:.3f}, {ce.name} {second:.3f} ({first - second:+.4f})"
    if paired := run.results.comparison("ndcg@100", mil.name, ce.name):
        evidence += f"; 95 % interval {paired.low:+.4f} to {paired.high:+.4f}"
    return _plain(abs(first - second) <= LEVEL, f"{evidence}.")


def _mil_first_place(run: _Run) -> Finding:
    ours = [run.entry(model) for model in (MIL, MIL_SIG) if run.has(model)]
    keys = {paper.key(model) for model in (MIL, MIL_SIG)}
    rivals = [one for one in run.entries if paper.key(one.name) in paper.known_models() - keys]
    if not ours or not rivals:
        raise _Undecided("this run does not have both MIL and another model of the paper")
    best, rival = (max(some, key=lambda one: run.value(one, "recall@1")) for some in (ours, rivals))
    return run.above(best, rival, "recall@1")


def _recovers(run: _Run) -> Finding:
    multi, ce = run.entry(MULTI), run.entry(CE)
    gaps = [100 * (run.value(multi, name) / (run.value(ce, name) or 1.0) - 1) for name in ("recall@1", "ndcg@100")]
    evidence = f"{multi.name} against {ce.name}: {gaps[0]:+.1f} % at Recall@1, {gaps[1]:+.1f} % at NDCG@100."
    return _plain(gaps[0] < gaps[1], evidence)


def _encoders(run: _Run) -> Finding:
    pairs = [(lin, sig) for lin, sig in ((CE, CE_SIG), (MIL, MIL_SIG)) if run.has(lin) and run.has(sig)]
    if not pairs:
        raise _Undecided("this run has no model with both encoders")
    values = [[run.value(run.entry(model), "ndcg@100") for model in pair] for pair in pairs]
    names = [run.entry(lin).name + " and sig-sig" for lin, _ in pairs]
    evidence = "; ".join(f"{name} {lin:.3f}, {sig:.3f}" for name, (lin, sig) in zip(names, values, strict=True))
    room = 2 * paper.UNCERTAINTY + 0.0005
    return _plain(all(abs(lin - sig) <= room for lin, sig in values), f"NDCG@100: {evidence}.")


def _held_out(run: _Run) -> Finding:
    if run.results.split.protocol != "users":
        raise _Undecided("this run holds out pairs, not users")
    return _order((CE, MULTI), (MIL, MULTI), measures=("recall@1", "ndcg@20"))(run)


def _share(tail: TailName, high: str, low: str) -> Check:
    """The first model lists more of an interval than the second."""

    def check(run: _Run) -> Finding:
        more, less = run.share(high, tail), run.share(low, tail)
        change = f" ({100 * (more / less - 1):+.0f} %)" if less else ""
        evidence = f"{run.entry(high).name} {more:.1f} %, {run.entry(low).name} {less:.1f} % of the top 200{change}."
        return _plain(more > less, evidence)

    return check


def _fewer_popular(run: _Run) -> Finding:
    mil, ce = run.share(MIL, "short"), run.share(CE, "short")
    evidence = f"{run.entry(MIL).name} {mil:.1f} %, {run.entry(CE).name} {ce:.1f} % of the top 200"
    return _plain(mil < ce, f"{evidence} ({100 * (mil / ce - 1):+.0f} %)." if ce else f"{evidence}.")


def _pushed_to_zero(run: _Run) -> Finding:
    ce, mil = run.preferences(CE)[0], run.preferences(MIL)[0]
    evidence = f"Below .01: {run.entry(CE).name} {ce:.1f} %, {run.entry(MIL).name} {mil:.1f} % of all preferences."
    return _plain(ce > 50 and mil < 0.05, evidence)


def _high_preferences(run: _Run) -> Finding:
    high = sum(run.preferences(MIL)[3:])
    return _plain(high > 50, f"{run.entry(MIL).name} gives {high:.1f} % of all items a preference of .5 or more.")


def _pair_gives_more(run: _Run) -> Finding:
    pair, point = run.preferences(PAIR)[-1], run.preferences(CE)[-1]
    evidence = f"Preferences of .9 or more: {run.entry(PAIR).name} {pair:.2f} %, {run.entry(CE).name} {point:.2f} %."
    return _plain(pair > point, evidence)


def _head_is_popular(run: _Run) -> Finding:
    parts = [run.entry(CE).evolution(tail)[:100] for tail, _ in TAILS]
    if len(parts[0]) < 100:
        raise _Undecided("the lists have no place 100")
    short, medium, long = (sum(part) for part in parts)  # percent of a hundred places
    evidence = f"{short:.0f} % short, {medium:.0f} % medium, {long:.0f} % long tail"
    return _plain(short > max(medium, long), f"{run.entry(CE).name} in the first 100 places: {evidence}.")


def _leaves_popular(run: _Run) -> Finding:
    first = 100 * run.entry(MIL).evolution("short")[0] if run.entry(MIL).evolution("short") else 0.0
    mil, ce = run.place(MIL, "short", 50), run.place(CE, "short", 50)
    evidence = f"Short tail with {run.entry(MIL).name}: {first:.0f} % at place 1, {mil:.0f} % at place 50"
    return _plain(first > 50 and mil < ce, f"{evidence} ({run.entry(CE).name} there: {ce:.0f} %).")


def _medium_grows(run: _Run) -> Finding:
    top, later = run.place(MIL, "medium", 1), run.place(MIL, "medium", 100)
    evidence = f"Medium tail with {run.entry(MIL).name}: {top:.0f} % at the top, {later:.0f} % at place 100."
    return _plain(later > top, evidence)


def _long_expands(run: _Run) -> Finding:
    top, mil = run.place(MIL, "long", 1), run.place(MIL, "long", 100)
    rivals = {run.entry(model).name: run.place(model, "long", 100) for model in (CE, MULTI) if run.has(model)}
    if not rivals:
        raise _Undecided(f"{CE} is not in this run")
    evidence = f"Long tail with {run.entry(MIL).name}: {top:.0f} % of users at the top, {mil:.0f} % at place 100"
    others = ", ".join(f"{name} {value:.0f} %" for name, value in rivals.items())
    return _plain(mil > top and mil > max(rivals.values()), f"{evidence} (there {others}).")


def _long_over_short(run: _Run) -> Finding:
    long, short = run.place(MIL, "long", 200), run.place(MIL, "short", 200)
    return _plain(long > short, f"{run.entry(MIL).name} at place 200: {long:.0f} % long, {short:.0f} % short tail.")


CLAIMS: tuple[tuple[str, str, Check], ...] = (
    ("MIL is level with point-wise cross-entropy: NDCG@100 within 0.005", "section 4.1, tables 2–4", _mil_level),
    ("MIL has the best Recall@1 of the paper's models", "tables 2, 3 and 5; not table 4", _mil_first_place),
    ("The multinomial is weak at Recall@1 beside CE point and MIL", "section 4.1, tables 2–5",
     _order((CE, MULTI), (MIL, MULTI), measures=("recall@1",))),
    ("The multinomial recovers at large k", "section 4.1, tables 2–4", _recovers),
    ("Point-wise cross-entropy is above pair-wise", "section 4.1, tables 2–4", _point_over_pair),
    ("Linear or sigmoid encoder matters little: NDCG@100 within 0.006", "section 4.1, tables 2–4", _encoders),
    ("MF-CE and MF-mil are above MF-square", "section 4.1, tables 2–4",
     _order((MF_CE, MF_SQUARE), (MF_MIL, MF_SQUARE))),
    ("MF-CE is above MF-mil", "section 4.1, tables 2–4", _order((MF_CE, MF_MIL))),
    ("Matrix factorization is below the autoencoder with the same loss", "section 4.1, tables 2–4",
     _order((CE, MF_CE), (MIL, MF_MIL))),
    ("On held-out users Multi-DAE is below CE point and MIL at the top", "section 4.1, table 5", _held_out),
    ("CE point pushes most preferences below .01, MIL leaves none there (paper: 85 % and 0 %)", "section 4.2, table 6",
     _pushed_to_zero),
    ("MIL gives most items a high preference (paper: 94 % at .5 or more)", "section 4.2, table 6", _high_preferences),
    ("CE pair gives more items a preference of .9 or more than CE point (paper: 5 times)", "section 4.2, table 6",
     _pair_gives_more),
    ("MIL lists less of the short tail than CE point (paper: 15–20 % less)", "section 4.3, table 8", _fewer_popular),
    ("MIL lists more of the long tail than CE point (paper: up to 50 % more)", "section 4.3, table 8",
     _share("long", MIL, CE)),
    ("MIL lists more of the long tail than the multinomial", "section 4.3, table 8", _share("long", MIL, MULTI)),
    ("CE point lists more of the short tail than the multinomial", "section 4.3, table 8", _share("short", CE, MULTI)),
    ("CE point lists mainly the short tail before place 100", "section 4.3, figure 2", _head_is_popular),
    ("MIL begins with the short tail and leaves it sooner than CE point", "section 4.3, figure 2", _leaves_popular),
    ("MIL's medium-tail share grows with the rank until place 100", "section 4.3, figure 2", _medium_grows),
    ("MIL's long-tail share expands, beyond CE point and the multinomial at place 100", "section 4.3, figure 2",
     _long_expands),
    ("Late in MIL's lists the long tail exceeds the short tail", "section 4.3, figure 2", _long_over_short),
)  # fmt: skip
