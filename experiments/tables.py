"""The tables of docs/results.md, from the results that are kept: python experiments/tables.py [--check].

Between `<!-- table NAME measure … -->` and `<!-- end -->` stands a table of docs/results/NAME.json: a row for each
model, the mean of each measure over the seeds and, with several, its standard deviation. --check only looks whether
the page is what the results say.
"""

import re
import sys
from pathlib import Path

from milrec.entries import Entry, entries_of
from milrec.folders import new_file, read_json

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
_BLOCK = re.compile(r"(<!-- table (\S+) ([^>]*?) -->\n).*?(<!-- end -->)", re.DOTALL)
_SHARE = re.compile(r"(short|medium|long)_share@200")


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    filled = _BLOCK.sub(lambda found: found[1] + table(found[2], found[3].split()) + found[4], text)
    if "--check" in sys.argv:
        sys.exit(0 if filled == text else f"'{PAGE}' is not what its results say; run python experiments/tables.py")
    with new_file(PAGE) as draft:
        draft.write_text(filled, encoding="utf-8")


def table(name: str, measures: list[str]) -> str:
    """Markdown; the best of each column is bold."""
    entries = entries_of(read_json(PAGE.parent / "results" / f"{name}.json"))
    columns = [[shown(entry, measure) for entry in entries] for measure in measures]
    for place, measure in enumerate(measures):
        best = best_of(measure, [entry.mean(measure) for entry in entries])
        columns[place] = [f"**{cell}**" if row in best else cell for row, cell in enumerate(columns[place])]
    lines = ["| | " + " | ".join(map(heading, measures)) + " |", "|---" * (len(measures) + 1) + "|"]
    lines += [f"| {entry.name} | " + " | ".join(cells) + " |" for entry, *cells in zip(entries, *columns, strict=True)]
    return "\n".join(lines) + "\n"


def heading(measure: str) -> str:
    if found := _SHARE.fullmatch(measure):
        return f"{found[1]} % of the top 200"
    return measure.replace("ndcg", "NDCG").replace("_", " ")


def shown(entry: Entry, measure: str) -> str:
    value, deviation = entry.mean(measure), entry.deviation(measure)
    if value is None:
        return "–"
    digits = 1 if _SHARE.fullmatch(measure) else 4
    spread = "" if deviation is None else f" ± {deviation:.{digits}f}"
    return f"{value:.{digits}f}{spread}"


def best_of(measure: str, values: list[float | None]) -> set[int]:
    """The rows with the best value: the lowest of what is to be low, none of what is neither."""
    known = {row: value for row, value in enumerate(values) if value is not None}
    if not known or measure.startswith(("short_share", "medium_share", "mean_popularity")):
        return set()
    best = (min if measure.startswith(("rejected_share", "exposure_gini")) else max)(known.values())
    return {row for row, value in known.items() if value == best}


if __name__ == "__main__":
    main()
