"""The tables of the report page as plain values: measures, ours next to the paper's, comparisons, how it was made."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milrec.report import paper
from milrec.report.checks.evidence import p_text
from milrec.report.paper import MIL
from milrec.report.summary import TAILS, Entry, entry_of
from milrec.results import Results, Search, TrialState

PREFERENCE_NAMES = ("< .01", ".01–.25", ".25–.5", ".5–.7", ".7–.9", "≥ .9")


@dataclass(frozen=True)
class Column:
    """A column of the table: its measure, what a reader sees, what it means, and which end is the better one."""

    measure: str
    name: str
    meaning: str
    better: str = "high"  # high, low, or none
    digits: int = 3


COLUMNS = (
    Column("recall@1", "Recall@1", "Is the first item of the list one of the held-out items?"),
    Column("recall@20", "Recall@20", "Share of the held-out items in the first 20 (of at most 20)"),
    Column("recall_of_all@20", "Recall of all@20", "The same, of all held-out items, as in many papers"),
    Column("recall@50", "Recall@50", "Share of the held-out items in the first 50 (of at most 50)"),
    Column("ndcg@20", "NDCG@20", "The same with more weight for the first places"),
    Column("ndcg@100", "NDCG@100", "The same over the first 100 places"),
    Column("true_ndcg@20", "True NDCG@20", "How well the first 20 match the simulation's true preferences"),
    Column("auc_rejected", "AUC, rejected", "How often an adopted item of the test part stands above a rejected one"),
    Column(
        "rejected_share@20", "Rejected@20", "Share of the first 20 that the user is known to reject", "low", digits=4
    ),
    Column("novelty_ndcg@100", "Novelty-NDCG@100", "NDCG in which an item counts more the rarer it is"),
    Column("long_share@200", "Long tail, %", "Share of the top 200 that comes from the long tail", digits=1),
    Column("coverage@20", "Coverage@20", "Share of the catalogue that is in somebody's first 20"),
    Column("exposure_gini@20", "Gini@20", "How unequally items share the places (0 equal, 1 one item has all)", "low"),
    Column("mean_popularity@20", "Popularity@20", "Mean number of adopters of a listed item", "none", digits=0),
)
_NAMES = {column.measure: column.name for column in COLUMNS}
_COMPARED = {  # by which models are compared user by user, besides the columns above
    "short_share@200": Column("short_share@200", "Short tail, %", "", "low", digits=1),
    "long_share@20": Column("long_share@20", "Long tail@20, %", "", digits=1),
    **{column.measure: column for column in COLUMNS},
}


@dataclass(frozen=True)
class Cell:
    """A figure as it is printed; below it its spread, or what it is compared with."""

    text: str
    below: str = ""
    tone: str = ""  # good or bad: how the cell is marked
    tip: str = ""
    theirs: str = ""  # the paper's figure, and the difference from it, where they are compared
    difference: str = ""


@dataclass(frozen=True)
class Row:
    name: str
    colour: str  # empty for a row that is not a model
    cells: Sequence[Cell]


@dataclass(frozen=True)
class Table:
    """A table with its heading, a note, and the names of its columns with their meanings."""

    title: str
    note: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Row]
    mark: str = ""  # what a marked cell is, as a tool tip


def measures(entries: Sequence[Entry], given: bool = False) -> Table:
    """Every model × every measure that one of them has, the best of each column marked.

    Recall with the divisor of other papers is shown if the test part was given: then there are published figures.
    """
    columns = [
        column
        for column in COLUMNS
        if any(entry.mean(column.measure) is not None for entry in entries)
        and (given or column.measure != "recall_of_all@20")
    ]
    best = {column.measure: _best(column, entries) for column in columns}
    rows = [
        Row(entry.name, entry.colour, [_measure(entry, column, best[column.measure]) for column in columns])
        for entry in entries
    ]
    several = any(len(entry.runs) > 1 for entry in entries)
    one = "the 95 % bootstrap interval over users"
    note = f"Below each mean over seeds, its standard deviation; with one seed, {one}." if several else f"Below: {one}."
    return Table("Measures on the test part", f"The best of each column is marked. {note}",
                 [(column.name, column.meaning) for column in columns], rows, "best")  # fmt: skip


def _best(column: Column, entries: Sequence[Entry]) -> float | None:
    """The best value of a column as it is printed; None if neither end is better or all values are the same."""
    values = {round(value, column.digits) for entry in entries if (value := entry.mean(column.measure)) is not None}
    if column.better == "none" or (len(values) == 1 and len(entries) > 1):
        return None
    return max(values) if column.better == "high" else min(values)


def _measure(entry: Entry, column: Column, best: float | None) -> Cell:
    value, digits = entry.mean(column.measure), column.digits
    if value is None:
        return Cell("–")
    below = ""
    if (deviation := entry.deviation(column.measure)) is not None:
        below = f"± {deviation:.{digits}f}"
    elif interval := entry.interval(column.measure):
        below = f"{interval[0]:.{digits}f}–{interval[1]:.{digits}f}"
    return Cell(f"{value:.{digits}f}", below, "good" if round(value, digits) == best else "")


Figures = Mapping[str, tuple[float | None, float | None]]  # metric → mean and standard deviation over seeds


@dataclass(frozen=True)
class _Source:
    """A table of the paper: what we call its metrics, and how to get our figures for them."""

    table: str
    title: str
    names: Mapping[str, str]
    ours: Callable[[Entry], Figures]
    digits: int
    room: float  # up to this difference, figures agree


def _our_measures(entry: Entry) -> Figures:
    return {measure: (entry.mean(measure), entry.deviation(measure)) for measure in _NAMES}


def _our_shares(entry: Entry) -> Figures:
    return {tail: (share, entry.deviation(f"{tail}_share@200")) for tail, share in (entry.shares() or {}).items()}


def _our_preferences(entry: Entry) -> Figures:
    return dict(zip(paper.PREFERENCE_BINS, ((share, None) for share in entry.preferences() or ()), strict=False))


_SHARE_NAMES: dict[str, str] = {tail: f"{name}, %" for tail, name in TAILS}
_BIN_NAMES = {bin_: f"{name}, %" for bin_, name in zip(paper.PREFERENCE_BINS, PREFERENCE_NAMES, strict=True)}
_SOURCES = (
    _Source(paper.METRICS, "Relevance and novelty", _NAMES, _our_measures, 3, paper.UNCERTAINTY),
    _Source(paper.HELD_OUT, "Held-out users", _NAMES, _our_measures, 3, paper.UNCERTAINTY),
    _Source(paper.SHARES, "Shares of the top 200", _SHARE_NAMES, _our_shares, 1, paper.SHARE_ROOM),
    _Source(paper.PREFERENCES, "Predicted preferences", _BIN_NAMES, _our_preferences, 1, paper.SHARE_ROOM),
)


def beside_paper(entries: Sequence[Entry], reference: paper.Reference, cuts: Sequence[int]) -> list[Table]:
    """Our figures with the paper's below them: measures, top-200 shares, preferences and interval cuts."""
    wanted = (reference.table, paper.SHARES, paper.PREFERENCES)
    found = [_beside(entries, reference, source) for source in _SOURCES if source.table in wanted]
    return [*(table for table in found if table is not None), _cuts(reference, cuts)]


def _beside(entries: Sequence[Entry], reference: paper.Reference, source: _Source) -> Table | None:
    theirs = paper.figures(source.table, reference.dataset)
    metrics = [metric for metric in source.names if any(metric in values for values in theirs.values())]
    rows = []
    for entry in entries:
        if (model := paper.model_of(entry.name, theirs)) is not None:
            ours = source.ours(entry)
            cells = [
                _against(ours.get(metric, (None, None)), theirs[model].get(metric), source, not reference.differs)
                for metric in metrics
            ]
            rows.append(Row(entry.name, entry.colour, cells))
    if not rows:
        return None
    here = {paper.key(row.name) for row in rows}
    absent = [model for model in theirs if paper.key(model) not in here]
    return Table(
        f"{source.title} ({paper.table_name(source.table, reference.dataset)}, {reference.data.title})",
        f"Not in this run: {', '.join(absent)}." if absent else "",
        [(source.names[metric], "") for metric in metrics],
        rows,
        f"within {source.room:g}{'' if source.digits == 3 else ' percentage points'} of the paper",
    )


def _against(
    figure: tuple[float | None, float | None], theirs: float | None, source: _Source, comparable: bool
) -> Cell:
    """Ours, and below it the paper's with the difference; a mark if they agree as printed."""
    (ours, deviation), digits = figure, source.digits
    text = "–" if ours is None else f"{ours:.{digits}f}"
    if ours is not None and deviation is not None:
        text += f" ± {deviation:.{digits}f}"
    if theirs is None:
        return _beside_cell(text, "–")
    if ours is None or not comparable:
        return _beside_cell(text, f"{theirs:.{digits}f}")
    difference = round(ours - theirs, digits) + 0.0  # no -0
    agrees = abs(difference) <= source.room + 1e-9
    return _beside_cell(text, f"{theirs:.{digits}f}", f"{difference:+.{digits}f}", agrees)


def _beside_cell(ours: str, theirs: str, difference: str = "", agrees: bool = False) -> Cell:
    marked = f"{difference}{' ✓' if agrees else ''}"
    below = f"paper {theirs}, {marked}" if difference else f"paper {theirs}"
    return Cell(ours, below, "good" if agrees else "", theirs=theirs, difference=marked)


def _cuts(reference: paper.Reference, cuts: Sequence[int]) -> Table:
    cells = []
    for ours, theirs in zip(cuts, reference.data.cuts, strict=True):
        agrees = not reference.differs and abs(ours - theirs) <= paper.CUT_ROOM * theirs
        cells.append(_beside_cell(str(ours), str(theirs), "" if reference.differs else f"{ours - theirs:+d}", agrees))
    title = f"Interval cuts ({paper.table_name('cuts', reference.dataset)}, {reference.data.title})"
    columns = [("short → medium", "items with the first third"), ("medium → long", "items with two thirds")]
    return Table(title, "", columns, [Row("items", "", cells)], f"within {100 * paper.CUT_ROOM:g} % of the paper")


def comparisons(results: Results, entries: Sequence[Entry]) -> Table | None:
    """MIL (or the model with the best NDCG@100) against every other, user by user."""
    compared = [name for name, made in results.comparisons.items() if made]
    if not compared or len(entries) < 2:
        return None
    reference = entry_of(entries, MIL) or max(entries, key=lambda entry: entry.mean("ndcg@100") or 0.0)
    rows = [
        Row(entry.name, entry.colour, [_paired(results, measure, reference.name, entry.name) for measure in compared])
        for entry in entries
        if entry is not reference
    ]
    return Table(
        f"{reference.name} against each other model",
        f"Mean over users of {reference.name} minus the other, with its 95 % bootstrap interval; p-values are "
        "Holm-corrected over all pairs of models. Coloured: p < .05.",
        [(_COMPARED[measure].name if measure in _COMPARED else measure, "") for measure in compared],
        rows,
        "significant",
    )


def _paired(results: Results, measure: str, first: str, second: str) -> Cell:
    found = results.comparison(measure, first, second)
    if found is None:
        return Cell("–")
    more, is_share = found.difference > 0, measure.startswith(("short_share@", "long_share@"))
    low_is_better = measure in _COMPARED and _COMPARED[measure].better == "low"
    word, tone = ("better", "good") if more != low_is_better else ("worse", "bad")
    if is_share:
        word = "more" if more else "less"
    if found.may_be_chance:
        word, tone = "may be chance", ""
    digits = 1 if is_share else 4
    interval = f"{found.low:+.{digits}f} to {found.high:+.{digits}f}"
    tip = f"over {found.users:,} users"
    return Cell(f"{found.difference:+.{digits}f} {word}", f"{interval}, {p_text(found.p)}", tone, tip)


def settings_text(values: Mapping[str, Any]) -> str:
    """Settings and their values on one line."""
    shown = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in values.items()}
    return ", ".join(f"{name} = {value}" for name, value in shown.items())


def search_summary(search: Search) -> str:
    """What a search tried, and what it chose."""
    n_trials, states = len(search.trials), Counter(trial.state for trial in search.trials)
    not_done: tuple[TrialState, ...] = ("given up", "failed", "broken")
    others = ", ".join(f"{states[state]} {state}" for state in not_done if states[state])
    tried = f"{n_trials} {'trial' if n_trials == 1 else 'trials'}{f' ({others})' if others else ''}"
    best = search.best()
    value = f"; validation {_NAMES.get(search.measure, search.measure)} {best.value:.4f}" if best else ""
    return f"{tried}{value}. Chosen: {settings_text(search.tuned)}."


def making(entries: Sequence[Entry]) -> Table:
    """How long each model took, with how much memory, and what a search chose for it."""
    rows = [Row(entry.name, entry.colour, _made(entry)) for entry in entries]
    columns = ["seeds", "epochs", "kept from step", "validation", "fit, s", "peak memory, MiB"]
    if tuned := any(entry.tuned() for entry in entries):
        columns.append("chosen on validation")
    note = "Over the seeds: smallest to largest." if any(len(entry.runs) > 1 for entry in entries) else ""
    cut = [Row(row.name, row.colour, row.cells if tuned else row.cells[:-1]) for row in rows]
    return Table("How this was made", note, [(name, "") for name in columns], cut)


def _made(entry: Entry) -> list[Cell]:
    histories = [run.history for run in entry.runs if run.history is not None]
    validations = [run.validation for run in entry.runs if run.validation is not None]
    return [
        Cell(", ".join(str(run.seed) for run in entry.runs)),
        Cell(_range((history.epochs[-1] for history in histories if history.epochs), "{:.1f}")),
        Cell(_range((history.kept_iteration for history in histories if history.kept_iteration), "{:,}")),
        Cell(f"{statistics.fmean(validations):.4f}" if validations else "–"),
        Cell(_range((run.fit_seconds for run in entry.runs), "{:.1f}")),
        Cell(_range((run.peak_memory_mib for run in entry.runs if run.peak_memory_mib is not None), "{:,}")),
        Cell(settings_text(entry.tuned()) or "–"),
    ]


def _range(values: Iterable[float], form: str) -> str:
    """A value, or the smallest and largest of several."""
    known = sorted(values)
    texts = list(dict.fromkeys(form.format(value) for value in (known[:1] + known[-1:])))
    return "–".join(texts) if texts else "–"
