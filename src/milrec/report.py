"""results.json → one self-contained HTML page. A pure function: it computes no measure and needs no torch.

Entries of the same model with several seeds are shown as their mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from milrec import figures
from milrec.errors import FolderError

TAILS = (("short", "short tail"), ("medium", "medium tail"), ("long", "long tail"))
PREFERENCE_BINS = ("< .01", ".01–.25", ".25–.5", ".5–.7", ".7–.9", "≥ .9")


@dataclass(frozen=True)
class Column:
    """A column of the table: its measure, what a reader sees, what it means, and which end is the better one."""

    measure: str
    name: str
    meaning: str
    better: str = "high"  # high, low, or none
    digits: int = 3


COLUMNS = (
    Column("recall@1", "Recall@1", "Is the first item of the list one of the items to be found?"),
    Column("recall@20", "Recall@20", "Share of the items to be found in the first 20 (of at most 20)"),
    Column("recall@50", "Recall@50", "Share of the items to be found in the first 50 (of at most 50)"),
    Column("ndcg@20", "NDCG@20", "The same with more weight for the first places"),
    Column("ndcg@100", "NDCG@100", "The same over the first 100 places"),
    Column("true_ndcg@20", "True NDCG@20", "How well the first 20 match the simulation's true preferences"),
    Column("novelty_ndcg@100", "Novelty-NDCG@100", "NDCG in which an item counts more the rarer it is"),
    Column("long_share@200", "Long tail, %", "Share of the top 200 that comes from the long tail", digits=1),
    Column("coverage@20", "Coverage@20", "Share of the catalogue that is in somebody's first 20"),
    Column("exposure_gini@20", "Gini@20", "How unequally items share the places (0 equal, 1 one item has all)", "low"),
    Column("mean_popularity@20", "Popularity@20", "Mean number of adopters of a listed item", "none", digits=0),
    Column(
        "rejected_share@20", "Rejected@20", "Share of the first 20 that the user is known to reject", "low", digits=4
    ),
)


@dataclass(frozen=True)
class Entry:
    """One model of the report."""

    name: str
    colour: str
    measures: Mapping[str, float | None]
    intervals: Mapping[str, Sequence[float | None]]
    runs: Sequence[Mapping[str, Any]]  # one per seed

    def evaluation(self) -> Mapping[str, Any]:
        result: Mapping[str, Any] = self.runs[0]["evaluation"]
        return result


def render(results: Mapping[str, Any]) -> str:
    """The page, as text."""
    if not isinstance(results, Mapping) or results.get("format") != "milrec-results":
        raise FolderError("these are not the results of a milrec run")
    if not results.get("models"):
        raise FolderError("the run has no finished model yet; let it finish, then ask for the report")
    entries = _entries(results["models"])
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = files("milrec").joinpath("templates/report.html.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        results=results,
        entries=entries,
        columns=_shown_columns(entries),
        best=_best(entries),
        tails=TAILS,
        figures=_figures(results, entries),
        several_seeds=any(len(entry.runs) > 1 for entry in entries),
    )


def _entries(runs: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Runs of one name are one entry: measures are means over the seeds."""
    names = list(dict.fromkeys(run["name"] for run in runs))
    entries = []
    for number, name in enumerate(names):
        mine = [run for run in runs if run["name"] == name]
        measures = {
            column.measure: _mean([run["evaluation"].get(column.measure) for run in mine]) for column in COLUMNS
        }
        intervals = mine[0]["evaluation"].get("intervals", {}) if len(mine) == 1 else _spreads(mine)
        entries.append(Entry(name, f"series-{number % 10}", measures, intervals, mine))
    return entries


def _spreads(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Smallest and largest value over the seeds."""
    spreads = {}
    for column in COLUMNS:
        values = [run["evaluation"].get(column.measure) for run in runs]
        known = [value for value in values if value is not None]
        if known:
            spreads[column.measure] = [min(known), max(known)]
    return spreads


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _shown_columns(entries: Sequence[Entry]) -> list[Column]:
    return [column for column in COLUMNS if any(entry.measures[column.measure] is not None for entry in entries)]


def _best(entries: Sequence[Entry]) -> dict[str, float]:
    """The best value of each column that has a better end, as it is printed."""
    best = {}
    for column in COLUMNS:
        values = [value for entry in entries if (value := entry.measures[column.measure]) is not None]
        if values and column.better != "none":
            best[column.measure] = round(max(values) if column.better == "high" else min(values), column.digits)
    return best


def _figures(results: Mapping[str, Any], entries: Sequence[Entry]) -> dict[str, Markup]:
    drawn = {
        "shares": _shares(entries),
        "trade": _trade(entries),
        "popularity": _popularity(results["data"]),
        "preferences": _preferences(entries),
        "learning": _learning(entries),
        **{f"evolution_{tail}": _evolution(entries, tail, name) for tail, name in TAILS},
    }
    return {name: Markup(svg) for name, svg in drawn.items() if svg}


def _shares(entries: Sequence[Entry]) -> str:
    rows = [
        (entry.name, [entry.evaluation()["top_200_share"][tail] for tail, _ in TAILS])
        for entry in entries
    ]  # fmt: skip
    return figures.stacked_bars(rows, [(name, tail) for tail, name in TAILS], "Shares of the top 200 by tail interval")


def _trade(entries: Sequence[Entry]) -> str:
    known = [
        (entry.name, entry.colour, long, accuracy)
        for entry in entries
        if (long := entry.measures["long_share@200"]) is not None
        and (accuracy := entry.measures["ndcg@100"]) is not None
    ]
    x = figures.axis("long-tail share of the top 200", [point[2] for point in known], percent=True)
    y = figures.axis("NDCG@100", [point[3] for point in known])
    return figures.points(known, x, y, "Accuracy against long-tail share")


def _evolution(entries: Sequence[Entry], tail: str, name: str) -> str:
    lines = []
    for entry in entries:
        shares = [100 * share for share in entry.evaluation()["rank_evolution"][tail]]
        lines.append(figures.Series(entry.name, entry.colour, list(range(1, len(shares) + 1)), _smoothed(shares)))
    length = max(len(line.xs) for line in lines)
    x = figures.Axis("place in the list", 1, max(length, 2))
    y = figures.axis(
        f"users with a {name} item", [value for line in lines for value in line.ys], zero=True, percent=True
    )
    return figures.lines(lines, x, y, f"Share of users with a {name} item at each place of the list")


def _smoothed(values: Sequence[float], width: int = 2) -> list[float]:
    """A running mean over a few places: the shape, without the jitter of single places."""
    windows = [values[max(0, place - width) : place + width + 1] for place in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def _preferences(entries: Sequence[Entry]) -> str:
    known = [
        (entry.name, entry.colour, entry.evaluation()["preference_distribution"])
        for entry in entries
        if entry.evaluation()["preference_distribution"] is not None
    ]
    if not known:
        return ""
    y = figures.Axis("items per user", 0, 100, percent=True)
    return figures.grouped_bars(
        PREFERENCE_BINS, known, y, "Distribution of predicted preferences", "predicted preference"
    )


def _learning(entries: Sequence[Entry]) -> str:
    lines = []
    for entry in entries:
        history = entry.runs[0].get("history")
        if history and history["measures"]:
            lines.append(figures.Series(entry.name, entry.colour, history["epochs"], history["measures"]))
    if not lines:
        return ""
    x = figures.axis("epochs", [value for line in lines for value in line.xs], zero=True)
    y = figures.axis("validation NDCG@100", [value for line in lines for value in line.ys])
    return figures.lines(lines, x, y, "Validation measure over epochs", marks=True)


def _popularity(data: Mapping[str, Any]) -> str:
    curve, (short, medium), n_items = data["popularity_curve"], data["interval_cuts"], data["items"]
    ranks, adopters = [point[0] for point in curve], [point[1] for point in curve]
    x = figures.Axis("items, most popular first", 1, max(n_items, 2), log=True)
    y = figures.axis("adopters", adopters, log=True)
    zones = "".join(
        figures.zone(x, start, end, tail, tail)
        for (tail, _), start, end in zip(TAILS, (1, short, medium), (short, medium, n_items), strict=True)
    )
    line = figures.Series("adopters", "ink", ranks, adopters)
    return figures.lines([line], x, y, "Popularity curve of the training data", zones=zones)
