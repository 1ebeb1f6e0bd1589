"""Section 3 of the paper: which settings turned out best on validation, weight decay and the parameters of MIL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from milrec.report import paper
from milrec.report.checks.evidence import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Check,
    Finding,
    Run,
    Undecided,
    all_of,
    measure_name,
    plain,
)
from milrec.report.paper import CE, CE_SIG, MIL, MIL_SIG, MULTI, PAIR, PAIR_SIG
from milrec.report.summary import Entry
from milrec.results import Search

_RIVALS = {MIL: (CE, PAIR, MULTI), MIL_SIG: (CE_SIG, PAIR_SIG, MULTI)}
_SYMBOLS = {"missing_weight": "A", "missing_exponent": "γ", "adopted_exponent": "γ₊"}
_LARGEST = 1e15  # no setting comes near

Values = tuple[float, ...]


def less_decay(run: Run) -> Finding:
    """λ of the MIL autoencoders against that of the others with the same encoder, each as a search chose it."""
    findings = []
    for mil, rivals in _RIVALS.items():
        ours = _decay(run, mil)
        theirs = {run.entry(model).name: found for model in rivals if (found := _decay(run, model)) is not None}
        if ours is not None and theirs:
            listed = ", ".join(f"{name} {_text(value)}" for name, value in theirs.items())
            findings.append(plain(ours < min(theirs.values()), f"λ: {run.entry(mil).name} {_text(ours)}; {listed}."))
    if not findings:
        raise Undecided("no search chose the weight decay of both MIL and a cross-entropy or multinomial model")
    return all_of(*findings)


def _decay(run: Run, model: str) -> float | None:
    """None if no search chose it: a value that the recipe gives says nothing."""
    return _number(run.entry(model).tuned().get("weight_decay")) if run.has(model) else None


def best(wanted: Mapping[str, float]) -> Check:
    """MIL does best with these settings: of models that differ in nothing else, or of the trials of a search."""
    names, values = tuple(wanted), tuple(wanted.values())

    def check(run: Run) -> Finding:
        for entry in run.entries:
            if _values(_loss(entry), names) == values and (others := _siblings(run, entry, names, values)):
                return run.above(entry, max(others, key=lambda one: run.value(one, "ndcg@100")), "ndcg@100")
        keys = {paper.key(model) for model in (MIL, MIL_SIG)}
        searches = [search for search in run.results.searches if paper.key(search.name) in keys]
        findings = [found for search in searches if (found := _best_trial(search, names, values)) is not None]
        if not findings:
            raise Undecided(f"this run does not compare {_shown(names, values)} with other values")
        return all_of(*findings)

    return check


def _siblings(run: Run, entry: Entry, names: Sequence[str], values: Values) -> list[Entry]:
    """The models with other values of these settings and the same of all others."""
    rest = _without(entry, names)
    return [
        other
        for other in run.entries
        if _values(_loss(other), names) not in (None, values) and _without(other, names) == rest
    ]


def _without(entry: Entry, names: Sequence[str]) -> dict[str, Any]:
    """The settings of a model without some of its loss."""
    loss = {name: value for name, value in _loss(entry).items() if name not in names}
    return {**entry.runs[0].settings.as_json(), "loss": loss}


def _best_trial(search: Search, names: Sequence[str], values: Values) -> Finding | None:
    """The best trial with these values against the best with others; None if there are not both."""
    done = [
        (trial.value, tried)
        for trial in search.trials
        if trial.state == "done" and trial.value is not None and (tried := _values(trial.values, names)) is not None
    ]
    ours = max((value for value, tried in done if tried == values), default=None)
    other, tried = max(((value, tried) for value, tried in done if tried != values), default=(None, values))
    if ours is None or other is None:
        return None
    measured = f"Validation {measure_name(search.measure)} of {search.name}"
    evidence = f"{measured}: {ours:.4f} with {_shown(names, values)}, {other:.4f} with {_shown(names, tried)}."
    if abs(ours - other) <= paper.UNCERTAINTY:
        return UNDECIDED, f"{evidence} Another seed may reverse this."
    return (HOLDS if ours > other else FAILS), evidence


def _loss(entry: Entry) -> Mapping[str, Any]:
    """The settings of MIL; empty with another loss."""
    settings = entry.runs[0].settings
    return {} if settings.missing_term is None else settings.loss or {}


def _values(settings: Mapping[str, Any], names: Sequence[str]) -> Values | None:
    found = [_number(settings.get(name)) for name in names]
    known = tuple(value for value in found if value is not None)
    return known if len(known) == len(names) else None


def _number(value: object) -> float | None:
    """A setting that is a number; what a search or a recipe holds may be anything."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST:
        return float(value)
    return None


def _shown(names: Sequence[str], values: Values) -> str:
    return ", ".join(f"{_SYMBOLS[name]} = {_text(value)}" for name, value in zip(names, values, strict=True))


def _text(value: float) -> str:
    """In short: 10, 5e5, 1e-4."""
    mantissa, exponent = f"{value:e}".split("e")
    return f"{value:g}" if -4 < int(exponent) < 4 else f"{float(mantissa):g}e{int(exponent)}"
