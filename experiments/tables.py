"""The tables of docs/results.md, from the results that are kept: python experiments/tables.py [--check].

Between `<!-- table NAME measure … -->` and `<!-- end -->` stands a table of docs/results/NAME.json: a row for each
model, the mean of each measure over the seeds and, with several, its standard deviation. After `<!-- claims NAME -->`
stand the paper's claims with what this run says of them, after `<!-- compared NAME MODEL measure … -->` a model against
each other, after `<!-- frontier NAME share … -->` the accuracy that a model's dial leaves at a given long-tail share.
--check only looks whether the page is what the results say.
"""

import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from milrec.report.claims import UNTOLD, claims, comparison, said_p
from milrec.report.summary import Entry, entries_of
from milrec.storage import new_file, read_json

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
RESULTS = PAGE.parent / "results"
_BLOCK = re.compile(r"(<!-- (table|claims|compared|frontier) (\S+) ?([^>]*?) ?-->\n).*?(<!-- end -->)", re.DOTALL)
_SHARE = re.compile(r"(short|medium|long)_share@200")


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    filled = _BLOCK.sub(lambda found: found[1] + block(found[2], found[3], found[4]) + found[5], text)
    if "--check" in sys.argv:
        sys.exit(0 if filled == text else f"'{PAGE}' is not what its results say; run python experiments/tables.py")
    with new_file(PAGE) as draft:
        draft.write_text(filled, encoding="utf-8")


def block(kind: str, name: str, words: str) -> str:
    results = read_json(RESULTS / f"{name}.json")
    if kind == "claims":
        return claims_table(results)
    if kind == "compared":
        *model, measures = words.rsplit(": ", 1)
        return compared_table(results, model[0], measures.split())
    if kind == "frontier":
        return frontier_table(entries_of(results), [float(word) for word in words.split()])
    return table(entries_of(results), words.split())


def table(entries: list[Entry], measures: list[str]) -> str:
    """Markdown; the best of each column is bold."""
    columns = [[shown(entry, measure) for entry in entries] for measure in measures]
    for place, measure in enumerate(measures):
        best = best_of(measure, [entry.mean(measure) for entry in entries])
        columns[place] = [f"**{cell}**" if row in best else cell for row, cell in enumerate(columns[place])]
    lines = ["| | " + " | ".join(map(heading, measures)) + " |", "|---" * (len(measures) + 1) + "|"]
    lines += [f"| {entry.name} | " + " | ".join(cells) + " |" for entry, *cells in zip(entries, *columns, strict=True)]
    return "\n".join(lines) + "\n"


def claims_table(results: dict[str, Any]) -> str:
    """The paper's claims that this run can tell, and how many it cannot."""
    checked = claims(results)
    told = [claim for claim in checked if claim["verdict"] != UNTOLD]
    lines = ["| the paper says | here | |", "|---|---|---|"]
    lines += [f"| {one['claim']} ({one['where']}) | {one['verdict']} | {one['evidence']} |" for one in told]
    return (
        "\n".join(lines) + f"\n\nCannot be told from this run: {len(checked) - len(told)} of {len(checked)} claims.\n"
    )


def compared_table(results: dict[str, Any], model: str, measures: list[str]) -> str:
    """A model less each other, user by user."""
    lines = [f"| {model} less | " + " | ".join(map(heading, measures)) + " |", "|---" * (len(measures) + 1) + "|"]
    for other in dict.fromkeys(entry["name"] for entry in results["models"] if entry["name"] != model):
        cells = []
        for measure in measures:
            found = comparison(results, measure, model, other)
            cells.append("–" if found is None else f"{found.difference:+.4f}, {said_p(found.p)}")
        lines.append(f"| {other} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def frontier_table(entries: list[Entry], shares: list[float]) -> str:
    """NDCG@100 at each long-tail share, on the straight line between the two dials around it; the best is bold."""
    lines = ["| NDCG@100 at | " + " | ".join(f"{share:g} % long tail" for share in shares) + " |"]
    lines.append("|---" * (len(shares) + 1) + "|")
    rows = {entry.name: [between(entry, share) for share in shares] for entry in entries if entry.dialled()}
    best = [
        max((one for one in column if one is not None), default=None) for column in zip(*rows.values(), strict=True)
    ]
    for name, values in rows.items():
        cells = ["–" if one is None else f"{one:.4f}" for one in values]
        cells = [
            f"**{cell}**" if one is not None and one == top else cell
            for one, top, cell in zip(values, best, cells, strict=True)
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def between(entry: Entry, share: float) -> float | None:
    """Accuracy at a long-tail share, where the dials reach it."""
    points = sorted((point["long_share@200"], point["ndcg@100"]) for point in entry.dialled())
    for (low, first), (high, second) in pairwise(points):
        if low <= share <= high and low < high:
            return first + (second - first) * (share - low) / (high - low)
    return None


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
