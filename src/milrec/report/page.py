"""results.json → one self-contained HTML page. A pure function: it computes no measure and needs no torch.

Entries of the same model with several seeds are shown as their mean. Results of older runs, without a search, dials,
comparisons or a table of the paper, are shown without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from milrec.errors import FolderError
from milrec.report import figures, paper, tables
from milrec.report.claims import FAILS, HOLDS, UNTOLD, claims
from milrec.report.summary import TAILS, Entry, entries_of
from milrec.storage import new_file


def render(results: Mapping[str, Any]) -> str:
    """The page, as text."""
    if not isinstance(results, Mapping) or results.get("format") != "milrec-results":
        raise FolderError("these are not the results of a milrec run")
    if not results.get("models"):
        raise FolderError("the run has no finished model yet; let it finish, then ask for the report")
    entries = entries_of(results)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = files("milrec.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        results=results,
        entries=entries,
        failures=results.get("failures") or [],
        measures=tables.measures(entries, results["split"]["protocol"] == "given"),
        **_paper(results, entries),
        **_figures(results, entries),
        comparisons=tables.comparisons(results, entries),
        searches=_searches(results, entries),
        making=tables.making(entries),
    )


def write_report(results: Mapping[str, Any], page: Path) -> Path:
    """The page as a file, which appears whole or not at all."""
    text = render(results)
    with new_file(page) as draft:
        draft.write_text(text, encoding="utf-8")
    return page


def _paper(results: Mapping[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    """Our figures beside the paper's, and the paper's claims, those that can be told first."""
    reference = paper.reference(results)
    cuts = results["data"]["interval_cuts"]
    checked = claims(results)
    told = [claim for claim in checked if claim["verdict"] != UNTOLD]
    untold = [claim for claim in checked if claim["verdict"] == UNTOLD]
    counts = [f"{sum(claim['verdict'] == verdict for claim in checked)} {said}"
              for verdict, said in ((HOLDS, "hold"), (FAILS, "do not hold"), (UNTOLD, "cannot be told"))]  # fmt: skip
    return {
        "reference": reference,
        "papers_data": paper.data_set_of(results) is not None,
        "beside": [] if reference is None else tables.beside_paper(entries, reference, cuts),
        "told": told,
        "untold": untold,
        "said_claims": ", ".join(counts),
    }


def _figures(results: Mapping[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    near, far = figures.near_and_far(entries)
    return {
        "figures": {name: Markup(svg) for name, svg in figures.draw(results, entries).items()},
        "tails": [(tail, name, figures.DASHES[tail]) for tail, name in TAILS],
        "focus": figures.focus(entries),
        "with_preferences": [entry for entry in entries if entry.preferences() is not None],
        "with_curves": [entry for entry in entries if (entry.runs[0].get("history") or {}).get("measures")],
        "missing_terms": figures.missing_term_lines(figures.used_pairs(entries)),
        "in_trade": [] if figures.names_beside(entries) else near,
        "far_below": [f"{entry.name} (NDCG@100 {entry.mean('ndcg@100') or 0:.3f})" for entry in far],
        "has_dials": any(entry.dialled() for entry in entries),
    }


def _searches(results: Mapping[str, Any], entries: Sequence[Entry]) -> list[dict[str, Any]]:
    colours = {entry.name: entry.colour for entry in entries}
    return [
        {
            "name": search["name"],
            "said": tables.said_search(search),
            "figure": Markup(figures.trials(search, colours.get(search["name"], "soft"))),
        }
        for search in results.get("searches") or []
    ]
