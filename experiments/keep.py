"""Keep a run in the repository: python experiments/keep.py RUN docs/results/NAME [FIGURE …].

Writes NAME.json, the results with numbers of five digits and learning curves of at most 60 points, NAME.html, the
report of exactly that, and NAME-FIGURE.svg for each figure asked for (trade, shares, evolution, …).

python experiments/keep.py --all makes the page and the figures of every kept run again from its NAME.json.
"""

import json
import re
import sys
from html import escape
from pathlib import Path
from typing import Any

from milrec.report.figures import DASHES, draw, focus, missing_term_lines, names_beside, near_and_far, used_pairs
from milrec.report.page import write_report
from milrec.report.summary import TAILS, Entry, entries_of
from milrec.results import FitHistory, Results
from milrec.storage import new_file

RESULTS = Path(__file__).parents[1] / "docs" / "results"
_POINTS = 60
_LONG_NAME = 20


def main() -> None:
    if sys.argv[1:] == ["--all"]:
        for file in kept_runs():
            draw_again(file)
        return
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    run, kept = Path(sys.argv[1]), Path(sys.argv[2])
    results = shortened(Results.read(run))
    kept.parent.mkdir(parents=True, exist_ok=True)
    with new_file(kept.with_suffix(".json")) as draft:
        draft.write_text(json.dumps(results.as_json(), ensure_ascii=False) + "\n", encoding="utf-8")
    show(results, kept, sys.argv[3:])


def kept_runs() -> list[Path]:
    """The results of every run that is kept."""
    return sorted(file for file in RESULTS.glob("*.json") if file.with_suffix(".html").exists())


def draw_again(file: Path) -> None:
    """The page and the figures that a kept run has."""
    kept = file.with_suffix("")
    drawn = [path.stem.removeprefix(f"{kept.name}-") for path in sorted(file.parent.glob(f"{kept.name}-*.svg"))]
    results = Results.read(file)
    show(results, kept, [name for name in drawn if name in draw(results, entries_of(results))])


def show(results: Results, kept: Path, names: list[str]) -> None:
    """The page, and the figures with these names."""
    page = write_report(results, kept.with_suffix(".html")).read_text(encoding="utf-8")
    entries = entries_of(results)
    figures = draw(results, entries)
    for name in names:
        with new_file(kept.with_name(f"{kept.name}-{name}.svg")) as draft:
            draft.write_text(alone(with_names(figures[name], marks(name, entries)), page), encoding="utf-8")


def marks(figure: str, entries: list[Entry]) -> list[tuple[str, str]]:
    """What a figure's colours and dashes mean: a drawing 16 wide, and a name."""
    if figure in ("shares", "popularity") or (figure == "trade" and names_beside(entries)):  # the names are in it
        return []
    if figure == "missing_term":
        return [
            (f'<path d="M-6 -4h20" stroke="var(--{colour})" stroke-width="2" stroke-dasharray="{dash}"/>', name)
            for name, colour, dash in missing_term_lines(used_pairs(entries))
        ]
    shown = {
        "evolution": focus(entries),
        "trade": near_and_far(entries)[0],
        "frontier": [entry for entry in entries if entry.aimed()],
        "reliability": [entry for entry in entries if entry.reliability()],
        "preferences": [entry for entry in entries if entry.preferences() is not None],
        "learning": [entry for entry in entries if entry.curve() is not None],
    }.get(figure, entries)
    points = [(f'<circle cx="5" cy="-4" r="5" fill="var(--{entry.colour})"/>', entry.title) for entry in shown]
    lines = [
        (f'<path d="M-6 -4h20" stroke="var(--ink)" stroke-width="2" stroke-dasharray="{DASHES[tail]}"/>', name)
        for tail, name in TAILS
    ]
    return points + (lines if figure == "evolution" else [])


def alone(figure: str, page: str) -> str:
    """A figure of the page as a file of its own, in the page's colours."""
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)[:2]
    texts = "".join(re.findall(r"^svg text.*$|^svg \.inside.*$", page, re.MULTILINE))
    ground = f":root{{{light} background: var(--card); font-family: sans-serif}}"
    style = f"<style>{ground}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}{texts}</style>"
    return figure.replace(">", f">{style}", 1)


def with_names(figure: str, named: list[tuple[str, str]]) -> str:
    """A figure with its legend below: three names in a row, two where they are long."""
    if not named:
        return figure
    width, height = map(float, re.findall(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', figure)[0])
    legend, across = [], 3 if max(len(name) for _, name in named) <= _LONG_NAME else 2
    for place, (mark, name) in enumerate(named):
        x, y = 10 + place % across * (width / across), height + 16 + place // across * 20
        legend.append(
            f'<g transform="translate({x:.0f} {y:.0f})">{mark}<text class="name" x="18">{escape(name)}</text></g>'
        )
    whole = height + 14 + 20 * -(-len(named) // across)
    figure = figure.replace(f'viewBox="0 0 {width:g} {height:g}"', f'viewBox="0 0 {width:g} {whole:g}"')
    return figure.replace("</svg>", "".join(legend) + "</svg>")


def shortened(results: Results) -> Results:
    """The same with numbers of five digits and thinner learning curves."""
    results = Results.of(rounded(results.as_json()), "the run")
    runs = [
        run if run.history is None else run.model_copy(update={"history": thinned(run.history)})
        for run in results.models
    ]
    return results.model_copy(update={"models": tuple(runs)})


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def thinned(history: FitHistory) -> FitHistory:
    """Every so many validations; how the fit ended stays."""
    lists = {name: value for name, value in history if isinstance(value, tuple) and value}
    step = max(1, -(-max(map(len, lists.values()), default=1) // _POINTS))
    return history.model_copy(update={name: value[::step] for name, value in lists.items()})


if __name__ == "__main__":
    main()
