"""The tables of docs/results.md, from the results that are kept: python experiments/tables.py [--check].

Between `<!-- table NAME measure … -->` and `<!-- end -->` goes a table of docs/results/NAME.json: a row for each model,
the mean of each measure over the seeds and, with several seeds, its standard deviation. After `<!-- claims NAME -->` go
the paper's claims with what this run says about them, after `<!-- compared NAME MODEL: measure … -->` a model against
each of the others, after `<!-- frontier NAME share … -->` the accuracy that a model's dial leaves at a given long-tail
share. --check only checks whether the page is up to date.
"""

import re
import sys
from itertools import pairwise
from pathlib import Path

from milrec.report.claims import claims, p_text
from milrec.report.summary import Entry, entries_of
from milrec.results import Results
from milrec.storage import new_file

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
RESULTS = PAGE.parent / "results"
_BLOCK = re.compile(r"(<!-- (table|claims|compared|frontier) (\S+) ?([^>]*?) ?-->\n).*?(<!-- end -->)", re.DOTALL)
_SHARE = re.compile(r"(short|medium|long)_share@200")


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    filled = _BLOCK.sub(lambda found: found[1] + block(found[2], found[3], found[4]) + found[5], text)
    if "--check" in sys.argv:
        sys.exit(
            0 if filled == text else f"'{PAGE}' is not up to date with its results; run python experiments/tables.py"
        )
    with new_file(PAGE) as draft:
        draft.write_text(filled, encoding="utf-8")


def block(kind: str, name: str, words: str) -> str:
    results = Results.read(RESULTS / f"{name}.json")
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


def claims_table(results: Results) -> str:
    """The paper's claims that this run can decide, and how many it cannot."""
    checked = claims(results)
    decided = [claim for claim in checked if claim.decided]
    lines = ["| the paper says | here | |", "|---|---|---|"]
    lines += [f"| {one.claim} ({one.where}) | {one.verdict} | {one.evidence} |" for one in decided]
    count = f"{len(checked) - len(decided)} of {len(checked)} claims"
    return "\n".join(lines) + f"\n\nUndecided in this run: {count}.\n"


def compared_table(results: Results, model: str, measures: list[str]) -> str:
    """A model minus each of the others, user by user."""
    lines = [f"| {model} less | " + " | ".join(map(heading, measures)) + " |", "|---" * (len(measures) + 1) + "|"]
    for other in dict.fromkeys(run.name for run in results.models if run.name != model):
        cells = []
        for measure in measures:
            found = results.comparison(measure, model, other)
            cells.append("–" if found is None else f"{found.difference:+.4f}, {p_text(found.p)}")
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
    """Accuracy at a long-tail share, if the dials reach it."""
    points = sorted((point.long_share, point.accuracy) for point in entry.dialled())
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
    """The rows with the best value: the lowest if low is better, none if neither end is."""
    known = {row: value for row, value in enumerate(values) if value is not None}
    if not known or measure.startswith(("short_share", "medium_share", "mean_popularity")):
        return set()
    best = (min if measure.startswith(("rejected_share", "exposure_gini")) else max)(known.values())
    return {row for row, value in known.items() if value == best}


if __name__ == "__main__":
    main()
