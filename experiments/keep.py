"""A run as it is kept in the repository: python experiments/keep.py RUN docs/results/NAME [FIGURE …].

Writes NAME.json, the results with numbers of five digits and learning curves of at most 60 points, NAME.html, the
report of exactly that, and of each figure asked for (trade, shares, …) NAME-FIGURE.svg.
"""

import json
import re
import sys
from html import escape
from pathlib import Path
from typing import Any

from milrec.entries import Entry, entries_of
from milrec.folders import new_file, read_json
from milrec.report import write_report
from milrec.report_figures import draw

_POINTS = 60


def main() -> None:
    run, kept = Path(sys.argv[1]), Path(sys.argv[2])
    results = rounded(read_json(run / "results.json"))
    for model in results["models"]:
        if model["history"]:
            model["history"] = thinned(model["history"])
    kept.parent.mkdir(parents=True, exist_ok=True)
    with new_file(kept.with_suffix(".json")) as draft:
        draft.write_text(json.dumps(results, ensure_ascii=False) + "\n", encoding="utf-8")
    results = read_json(kept.with_suffix(".json"))
    page = write_report(results, kept.with_suffix(".html")).read_text(encoding="utf-8")
    entries = entries_of(results)
    figures = draw(results, entries)
    for name in sys.argv[3:]:
        with new_file(kept.with_name(f"{kept.name}-{name}.svg")) as draft:
            named = figures[name] if name == "shares" else with_names(figures[name], entries)
            draft.write_text(alone(named, page), encoding="utf-8")


def alone(figure: str, page: str) -> str:
    """A figure of the page as a file of its own, in the page's colours."""
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)[:2]
    texts = "".join(re.findall(r"^svg text.*$|^svg \.inside.*$", page, re.MULTILINE))
    ground = f":root{{{light} background: var(--card); font-family: sans-serif}}"
    style = f"<style>{ground}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}{texts}</style>"
    return figure.replace(">", f">{style}", 1)


def with_names(figure: str, entries: list[Entry]) -> str:
    """A figure with the names of the models below it, three in a row."""
    width, height = map(float, re.findall(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', figure)[0])
    marks = []
    for place, entry in enumerate(entries):
        x, y = 10 + place % 3 * (width / 3), height + 16 + place // 3 * 20
        marks.append(
            f'<circle cx="{x + 5:.0f}" cy="{y - 4:.0f}" r="5" fill="var(--{entry.colour})"/>'
            f'<text class="name" x="{x + 16:.0f}" y="{y:.0f}">{escape(entry.name)}</text>'
        )
    whole = height + 14 + 20 * -(-len(entries) // 3)
    figure = figure.replace(f'viewBox="0 0 {width:g} {height:g}"', f'viewBox="0 0 {width:g} {whole:g}"')
    return figure.replace("</svg>", "".join(marks) + "</svg>")


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def thinned(history: dict[str, Any]) -> dict[str, Any]:
    """Every so many validations; how the fit ended stays."""
    lists = {key: value for key, value in history.items() if isinstance(value, list) and value}
    step = max(1, -(-max(map(len, lists.values()), default=1) // _POINTS))
    return {**history, **{key: value[::step] for key, value in lists.items()}}


if __name__ == "__main__":
    main()
