"""Results → one self-contained HTML page. A pure function: it computes no measure and needs no torch.

Entries of the same model with several seeds are shown as their mean. Results of older runs, without searches, dials,
comparisons or a table of the paper, are shown without them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from milrec.errors import FolderError
from milrec.report import figures, paper, tables
from milrec.report.beside import beside_paper
from milrec.report.claims import FAILS, HOLDS, NOT_CLAIMED, UNDECIDED, Claim, claims
from milrec.report.summary import TAILS, Entry, entries_of
from milrec.report.verdict import Scene, verdict
from milrec.results import Results
from milrec.storage import new_file


@dataclass(frozen=True)
class SearchFigure:
    """A search as the page shows it."""

    name: str
    summary: str
    figure: Markup


def render(results: Results) -> str:
    """The page as text."""
    if not results.models:
        raise FolderError("the run has no finished model yet; make the report once it has one")
    entries = entries_of(results)
    scene = Scene(results, entries)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = files("milrec.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        results=results,
        verdict=[_brackets_apart(said) for said in verdict(results)],
        headlines=scene.headlines,
        bars=tables.headline_bars(scene),
        spread_note=tables.spread_note(entries),
        entries=entries,
        failures=results.failures,
        measures=tables.measures(entries, results.split.protocol == "given"),
        groups=tables.groups(results, entries),
        **_paper(results, entries),
        **_figures(results, entries),
        comparisons=tables.comparisons(results, entries),
        searches=_searches(results, entries),
        making=tables.making(entries),
    )


def _brackets_apart(said: str) -> list[tuple[str, bool]]:
    """A sentence cut into what stands outside and inside brackets, where its figures are."""
    return [(part, part.startswith("(")) for part in re.split(r"(\([^()]*\))", said) if part]


def write_report(results: Results, page: Path) -> Path:
    """The page as a file, which appears whole or not at all."""
    text = render(results)
    with new_file(page) as draft:
        draft.write_text(text, encoding="utf-8")
    return page


def _paper(results: Results, entries: Sequence[Entry]) -> dict[str, Any]:
    """Our figures next to the paper's, and the paper's claims, those that can be decided first."""
    reference, experiment = paper.reference(results), paper.experiment_of(results)
    checked = claims(results)
    return {
        "reference": reference,
        "experiment": None if experiment is None else paper.EXPERIMENTS[experiment],
        "beside": [] if reference is None else beside_paper(entries, reference, results.data.interval_cuts),
        "decided": [claim for claim in checked if claim.decided],
        "undecided": [claim for claim in checked if claim.verdict == UNDECIDED],
        "not_claimed": [claim for claim in checked if claim.verdict == NOT_CLAIMED],
        "claim_counts": _counts(checked),
    }


def _counts(checked: Sequence[Claim]) -> str:
    """How many claims have each verdict."""
    counts = Counter(claim.verdict for claim in checked)
    held, failed = counts[HOLDS], counts[FAILS]
    parts = [
        f"{held} {'holds' if held == 1 else 'hold'}",
        f"{failed} {'does' if failed == 1 else 'do'} not hold",
        f"{counts[UNDECIDED]} undecided",
    ]
    return ", ".join(parts)


def _figures(results: Results, entries: Sequence[Entry]) -> dict[str, Any]:
    near, far = figures.near_and_far(entries)
    return {
        "figures": {name: Markup(svg) for name, svg in figures.draw(results, entries).items()},
        "tails": [(tail, name, figures.DASHES[tail]) for tail, name in TAILS],
        "focus": figures.focus(entries),
        "with_preferences": [entry for entry in entries if entry.preferences() is not None],
        "with_curves": [entry for entry in entries if entry.curve() is not None],
        "missing_terms": figures.missing_term_lines(figures.used_pairs(entries)),
        "in_trade": [] if figures.names_beside(entries) else near,
        "far_below": [f"{entry.title} (NDCG@100 {entry.mean('ndcg@100') or 0:.3f})" for entry in far],
        "has_dials": any(entry.dialled() for entry in entries),
        "in_frontier": [entry for entry in entries if entry.aimed()],
        "reliable": [entry for entry in entries if entry.reliability()],
        "has_links": any(entry.reliability(by_link=True) for entry in entries),
    }


def _searches(results: Results, entries: Sequence[Entry]) -> list[SearchFigure]:
    colours = {entry.name: entry.colour for entry in entries}
    titles = {entry.name: entry.title for entry in entries}
    return [
        SearchFigure(
            titles.get(search.name, search.name),
            tables.search_summary(search),
            Markup(figures.trials(search, colours.get(search.name, "soft"))),
        )
        for search in results.searches
    ]
