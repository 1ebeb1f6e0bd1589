"""The report's figures from Python: an SVG for a notebook or a file, from what a comparison or a run found.

milrec.figures.shares(milrec.compare(models, split))
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from milrec.errors import SettingsError
from milrec.evaluation.evaluation import Evaluation
from milrec.measured import Evaluated
from milrec.metrics.tail import interval_cuts
from milrec.notebooks.comparison import Comparison
from milrec.recommender import Recommender
from milrec.report import figures as drawn
from milrec.report.summary import TAILS, Entry, entries_of, entries_of_runs
from milrec.results import DataFacts, FittedSettings, ModelRun, Results
from milrec.storage import new_file

_STYLE = """
.milrec { background: var(--card); font-family: system-ui, -apple-system, "Segoe UI", sans-serif; }
.milrec text { fill: var(--soft); font-size: 12px; } .milrec .label, .milrec .name { fill: var(--ink); }
.milrec .inside { fill: var(--inside); font-weight: 600; } .milrec .grid { stroke: var(--rule); }
.milrec .axis { stroke: var(--soft); }
"""
_LEGEND_LINE = 20  # pixels
_POINTS = 200  # of a popularity curve


@dataclass(frozen=True)
class Figure:
    """A figure as SVG, which a notebook shows; on a light card, whatever the page is like."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Figure: {len(self.svg):,} characters of SVG>"

    def save(self, path: str | Path) -> None:
        """Write it to a file, which appears when it is whole."""
        if Path(path).suffix != ".svg":
            raise SettingsError(f"'{path}' does not end in .svg")
        with new_file(Path(path)) as draft:
            draft.write_text(self.svg, encoding="utf-8")


@dataclass(frozen=True)
class Key:
    """A line of a legend: a patch of colour, or a stroke if it has a dash."""

    name: str
    colour: str
    dash: str | None = None


def popularity(source: Any) -> Figure:
    """Adopters by item, the most popular first, with the three intervals of the tail; of a model or of results."""
    if isinstance(source, Recommender):
        return _figure(drawn.popularity(_data_of(source)), "popularity")
    return _figure(drawn.popularity(_results(source, "a model, or the results of a run").data), "popularity")


def shares(source: Any) -> Figure:
    """Which share of the top 200 comes from the short, medium and long tail, for each model."""
    return _figure(drawn.shares(entries(source)), "shares", [Key(name, tail) for tail, name in TAILS])


def evolution(source: Any) -> Figure:
    """How many users have an item of each interval of the tail at each place of their list."""
    shown = drawn.focus(entries(source))
    dashes = [Key(name, "ink", drawn.DASHES[tail]) for tail, name in TAILS]
    return _figure(drawn.evolution(shown), "evolution", _keys(shown) + dashes)


def trade(source: Any) -> Figure:
    """Accuracy against the long tail: a point for each model."""
    found = entries(source)
    return _figure(drawn.trade(found), "trade", [] if drawn.names_beside(found) else _keys(found))


def reliability(source: Any) -> Figure:
    """Predicted probabilities against the shares that were held out."""
    found = [entry for entry in entries(source) if entry.reliability()]
    return _figure(drawn.reliability(found), "reliability", _keys(found))


def frontier(results: Any) -> Figure:
    """Accuracy at each long-tail share that a run judged lists with."""
    found = entries_of(_results(results, "the results of a run"))
    return _figure(drawn.frontier(found), "frontier", _keys([entry for entry in found if entry.aimed()]))


def entries(source: Any) -> list[Entry]:
    """The models of an evaluation, of evaluations by name, of a comparison or of the results of a run."""
    if isinstance(source, Evaluation):
        source = {"model": source}
    elif isinstance(source, Comparison):
        source = source.evaluations
    if isinstance(source, Mapping) and source and all(isinstance(one, Evaluation) for one in source.values()):
        return entries_of_runs([_run(str(name), found) for name, found in source.items()])
    wanted = "an evaluation, evaluations by name, a comparison, or the results of a run"
    return entries_of(_results(source, wanted))


def _results(source: Any, wanted: str) -> Results:
    if isinstance(source, Results):
        return source
    if isinstance(source, (str, Path)):
        return Results.read(source)
    raise SettingsError(f"this figure is made from {wanted}, not from '{type(source).__name__}'")


def _run(name: str, found: Evaluation) -> ModelRun:
    """An evaluation as a run has it; of how it was fitted, nothing is known here."""
    evaluated = Evaluated.model_validate(found.as_json())
    return ModelRun(name=name, seed=0, settings=FittedSettings(model={}), evaluation=evaluated, fit_seconds=0.0)


def _data_of(model: Recommender) -> DataFacts:
    ranks, adopters = model.catalogue.popularity_curve(_POINTS)
    train, curve = model.fitted.train, zip(ranks.tolist(), adopters.tolist(), strict=True)
    cuts = interval_cuts(model.catalogue.popularity)
    return DataFacts(
        users=train.n_users, items=train.n_items, adopted=train.adopted.nnz, interval_cuts=cuts,
        popularity_curve=tuple(curve),
    )  # fmt: skip


def _keys(shown: Sequence[Entry]) -> list[Key]:
    return [Key(entry.title, entry.colour) for entry in shown]


def _figure(svg: str, name: str, legend: Sequence[Key] = ()) -> Figure:
    """A figure of the report with the report's colours, so that it can stand alone."""
    if not svg:
        raise SettingsError(f"there is nothing to draw: what was given has no figures for '{name}'")
    opening = re.match(r'<svg viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert opening is not None, "a figure begins with its size"
    width, height = (float(number) for number in opening.groups())
    below = "".join(_legend_line(key, height, place) for place, key in enumerate(legend))
    size = f"{width:g}", f"{height + _LEGEND_LINE * len(legend):g}"
    first = f'<svg class="milrec" width="{size[0]}" height="{size[1]}" viewBox="0 0 {size[0]} {size[1]}"'
    start, body = svg[opening.end() :].split(">", 1)
    inner = body.removesuffix("</svg>")
    return Figure(f'{first} style="{_colours()}"{start}><style>{_STYLE}</style>{inner}{below}</svg>')


def _legend_line(key: Key, height: float, place: int) -> str:
    top = height + _LEGEND_LINE * place
    mark = f'<rect x="78" y="{top + 2:g}" width="11" height="11" rx="3" fill="var(--{key.colour})"/>'
    if key.dash is not None:
        stroke = f'stroke="var(--{key.colour})" stroke-width="2" stroke-dasharray="{key.dash}"'
        mark = f'<line x1="70" y1="{top + 8:g}" x2="96" y2="{top + 8:g}" {stroke}/>'
    return f'{mark}<text class="name" x="104" y="{top + 12:g}">{escape(key.name)}</text>'


@cache
def _colours() -> str:
    """The report's own, for a light page."""
    page = files("milrec.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    light = page.split(":root", 1)[1].split("}", 1)[0]
    return "; ".join(f"{name}: {value}" for name, value in re.findall(r"(--[\w-]+):\s*(#\w+)", light))
