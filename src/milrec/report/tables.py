"""The tables of the report page as plain values: measures, comparisons, how it was made."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milrec.report.checks.evidence import p_text
from milrec.report.headlines import Headline
from milrec.report.paper import MIL
from milrec.report.summary import Entry, entry_of
from milrec.report.verdict import Scene
from milrec.results import Results, Search, TrialState, UserGroup

PREFERENCE_NAMES = ("< .01", ".01–.25", ".25–.5", ".5–.7", ".7–.9", "≥ .9")


@dataclass(frozen=True)
class Column:
    """A column of the table: its measure, what a reader sees, what it means, and which end is the better one."""

    measure: str
    name: str
    meaning: str
    better: str = "high"  # high, low, or none
    digits: int = 3
    about: str = "accuracy"  # the table that it belongs to


COLUMNS = (
    Column("recall@1", "Recall@1", "Is the first item of the list one of the held-out items?"),
    Column("recall@20", "Recall@20", "Share of the held-out items in the first 20 (of at most 20)"),
    Column("recall_of_all@20", "Recall of all@20", "The same, of all held-out items, as in many papers"),
    Column("recall@50", "Recall@50", "Share of the held-out items in the first 50 (of at most 50)"),
    Column("ndcg@20", "NDCG@20", "The same with more weight for the first places"),
    Column("ndcg@100", "NDCG@100", "The same over the first 100 places"),
    Column("novelty_ndcg@100", "Novelty-NDCG@100", "NDCG in which an item counts more the rarer it is"),
    Column("true_ndcg@20", "True NDCG@20", "How well the first 20 match the simulation's true preferences"),
    Column("auc_rejected", "AUC, rejected", "How often an adopted item of the test part stands above a rejected one"),
    Column(
        "rejected_share@20", "Rejected@20", "Share of the first 20 that the user is known to reject", "low", digits=4
    ),
    Column("short_share@200", "Short tail, %", "Share of the top 200 that goes to the most popular items, which hold a "
           "third of all adoptions", "low", 1, "reach"),
    Column("long_share@200", "Long tail, %", "Share of the top 200 that comes from the long tail", "high", 1, "reach"),
    Column("coverage@20", "Coverage@20", "Share of the catalogue that is in somebody's first 20", about="reach"),
    Column("exposure_gini@20", "Gini@20", "How unequally items share the places (0 equal, 1 one item has all)", "low",
           about="reach"),
    Column("mean_popularity@20", "Popularity@20", "Mean number of adopters of a listed item", "none", 0, "reach"),
)  # fmt: skip
NAMES = {column.measure: column.name for column in COLUMNS}
_COMPARED = {  # by which models are compared user by user, besides the columns above
    "short_share@20": Column("short_share@20", "Short tail@20, %", "", "low", digits=1),
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


@dataclass(frozen=True)
class Bar:
    """A headline figure of a model: the text, its spread, and a bar in percent of the longest."""

    text: str
    below: str = ""
    in_front: bool = False  # the best, or not clearly behind it
    length: float = 0.0
    ends: tuple[float, float] | None = None  # of the interval, or of the seeds


def headline_bars(scene: Scene) -> list[tuple[Entry, list[Bar]]]:
    """Each model with its headline figures."""
    columns = [_bars(scene, headline) for headline in scene.headlines]
    return [(entry, [column[place] for column in columns]) for place, entry in enumerate(scene.entries)]


def _bars(scene: Scene, headline: Headline) -> list[Bar]:
    front = scene.in_front(headline)
    spreads = [_spread(entry, headline) for entry in scene.entries]
    longest = max((spread[1] for spread in spreads if spread is not None), default=0.0)
    scale = 100 / longest if longest > 0 else 0.0
    bars = []
    for entry, spread in zip(scene.entries, spreads, strict=True):
        value = entry.mean(headline.measure)
        if value is None or spread is None:
            bars.append(Bar("–"))
            continue
        ends = (scale * max(spread[0], 0.0), scale * max(spread[1], 0.0))
        below = _below(entry, headline.measure, headline.digits)
        marked = len(front) < len(scene.ranked(headline)) and entry in front
        bars.append(Bar(headline.text(value), below, marked, scale * max(value, 0.0), ends))
    return bars


def _spread(entry: Entry, headline: Headline) -> tuple[float, float] | None:
    """The interval over users, or the smallest and largest of the seeds."""
    values = entry.values(headline.measure)
    if not values:
        return None
    return entry.interval(headline.measure) or (min(values), max(values))


def measures(entries: Sequence[Entry], given: bool = False) -> list[Table]:
    """Every model × every measure that one of them has, the best of each column marked: accuracy, then reach.

    Recall with the divisor of other papers is shown if the test part was given: then there are published figures.
    """
    columns = [
        column
        for column in COLUMNS
        if any(entry.mean(column.measure) is not None for entry in entries)
        and (given or column.measure != "recall_of_all@20")
    ]
    titles = {"accuracy": "How accurate the lists are", "reach": "How far beyond the popular items they reach"}
    parts = {title: [column for column in columns if column.about == about] for about, title in titles.items()}
    return [_measures(title, entries, part) for title, part in parts.items() if part]


def _measures(title: str, entries: Sequence[Entry], columns: Sequence[Column]) -> Table:
    best = {column.measure: _best(column, entries) for column in columns}
    rows = [
        Row(entry.title, entry.colour, [_measure(entry, column, best[column.measure]) for column in columns])
        for entry in entries
    ]
    return Table(title, "", [(column.name, column.meaning) for column in columns], rows, "best")


def spread_note(entries: Sequence[Entry]) -> str:
    """What stands below a figure."""
    one = "the 95 % interval over users"
    if any(len(entry.runs) > 1 for entry in entries):
        return f"Below a mean over seeds stands its standard deviation; with one seed, {one}."
    return f"Below each figure stands {one}."


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
    tone = "good" if round(value, digits) == best else ""
    return Cell(f"{value:.{digits}f}", _below(entry, column.measure, digits), tone)


def _below(entry: Entry, measure: str, digits: int) -> str:
    """The standard deviation over seeds, or the interval over users."""
    if (deviation := entry.deviation(measure)) is not None:
        return f"± {deviation:.{digits}f}"
    interval = entry.interval(measure)
    return f"{interval[0]:.{digits}f}–{interval[1]:.{digits}f}" if interval else ""


def comparisons(results: Results, entries: Sequence[Entry]) -> list[Table]:
    """MIL (or the model with the best NDCG@100) against every other, user by user; lists that aim at a share apart."""
    compared = [name for name, made in results.comparisons.items() if made]
    if not compared or len(entries) < 2:
        return []
    reference = entry_of(entries, MIL) or max(entries, key=lambda entry: entry.mean("ndcg@100") or 0.0)
    plain = [measure for measure in compared if measure in _COMPARED]
    aimed = [measure for measure in compared if measure not in _COMPARED]
    titles = (f"{reference.title} minus each of the others", "The same, for lists that aim at a long-tail share")
    return [
        _compared(title, results, entries, reference, part)
        for title, part in zip(titles, (plain, aimed), strict=True)
        if part
    ]


def _compared(
    title: str, results: Results, entries: Sequence[Entry], reference: Entry, compared: Sequence[str]
) -> Table:
    rows = [
        Row(entry.title, entry.colour, [_paired(results, measure, reference.name, entry.name) for measure in compared])
        for entry in entries
        if entry is not reference
    ]
    columns = [
        (_COMPARED[measure].name if measure in _COMPARED else measure.replace("ndcg", "NDCG"), "")
        for measure in compared
    ]
    return Table(title, "", columns, rows, "significant")


def groups(results: Results, entries: Sequence[Entry]) -> Table | None:
    """Accuracy for users with few and with many items; None if the run does not tell them apart."""
    if not results.groups:
        return None
    columns = [
        (
            f"{one.name} items",
            f"{one.users:,} of {results.split.test_users:,} users, with {one.least:,} to {one.most:,} items",
        )
        for one in results.groups
    ]
    best = [max(one.means.values(), default=None) for one in results.groups]
    rows = [
        Row(
            entry.title,
            entry.colour,
            [_mean_of(one, entry.name, top) for one, top in zip(results.groups, best, strict=True)],
        )
        for entry in entries
    ]
    sizes = "; ".join(f"{name}: {meaning}" for name, meaning in columns)
    measure = NAMES.get(results.groups[0].measure, results.groups[0].measure)
    note = f"{measure} for the users with the fewest items and for those with the most ({sizes})."
    return Table("Users with few and with many items", note, columns, rows, "best")


def _mean_of(group: UserGroup, model: str, best: float | None) -> Cell:
    value = group.means.get(model)
    return Cell("–") if value is None else Cell(f"{value:.3f}", tone="good" if value == best else "")


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
    value = f"; validation {NAMES.get(search.measure, search.measure)} {best.value:.4f}" if best else ""
    return f"{tried}{value}. Chosen: {settings_text(search.tuned)}."


def making(entries: Sequence[Entry]) -> Table:
    """How long each model took, with how much memory, and what a search chose for it."""
    rows = [Row(entry.title, entry.colour, _made(entry)) for entry in entries]
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
