"""The tables of the README, the pages on results, scale and speed, from kept results: python -m experiments.tables.

Between `<!-- table NAME measure … -->` and `<!-- end -->` goes a table of docs/results/NAME.json: a row for each model,
the mean of each measure over the seeds and, with several seeds, its standard deviation. After `<!-- claims NAME -->` go
the paper's claims with what this run says about them, after `<!-- compared NAME MODEL: measure … -->` a model against
each of the others. For runs that judge lists at several long-tail shares: after `<!-- frontier NAME percent … -->` the
accuracy at each share, after `<!-- against NAME MODEL: percent … -->` a model less each of the others there, after
`<!-- aimed NAME percent: measure … -->` other measures at one share. After `<!-- reliability NAME … -->`, with one or
several names, how far probabilities are off; after `<!-- fifths NAME: MODEL; … -->` long-tail shares by the number of a
user's items, from docs/results/tail-steps; after `<!-- similar NAME -->` docs/results/similar/NAME.json; after
`<!-- dislikes NAME: cutoff -->` docs/results/rejections/NAME.json; after `<!-- rivals NAME -->`
docs/results/rivals/NAME.json; after `<!-- kept FOLDER/NAME -->` what a benchmark wrote to
docs/results/FOLDER/NAME.json. `plain` is `table` with the models' plain names. --check only checks whether the pages
are up to date.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.kept_tables import kept_table
from experiments.dislikes import table as dislikes_table
from experiments.rivals.table import table as rivals_table
from experiments.similar_table import similar_table

from milrec.measured import Reliability, aimed_measure
from milrec.metrics.reliability import ReliabilityBin
from milrec.report.claims import claims, p_text
from milrec.report.names import plain_names
from milrec.report.summary import Entry, entries_of
from milrec.results import Results
from milrec.storage import new_file

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
_BLOCK = re.compile(r"(<!-- ([a-z]+) ([^\s:]+):? ?([^>]*?) ?-->\n).*?(<!-- end -->)", re.DOTALL)
_SHARE = re.compile(r"(short|medium|long)_share@(20|200)")


def main() -> None:
    pages = (ROOT / "README.md", *(DOCS / f"{name}.md" for name in ("results", "scale", "performance")))
    for page in (*pages, *sorted(RESULTS.glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        filled = _BLOCK.sub(lambda found: found[1] + block(found[2], found[3], found[4]) + found[5], text)
        if filled != text and "--check" in sys.argv:
            sys.exit(f"'{page}' is not up to date with its results; run python -m experiments.tables")
        if filled != text:
            with new_file(page) as draft:
                draft.write_text(filled, encoding="utf-8")


def block(kind: str, name: str, words: str) -> str:
    whole: dict[str, Callable[[], str]] = {  # kinds that are not about one run
        "reliability": lambda: reliability_table([name, *words.split()]),
        "fifths": lambda: fifths_table(name, words.split("; ")),
        "similar": lambda: similar_table(name, RESULTS / "similar" / f"{name}.json"),
        "dislikes": lambda: dislikes_table(kept("rejections", name), int(words)) + "\n",
        "rivals": lambda: rivals_table(kept("rivals", name)) + "\n",
        "kept": lambda: kept_table(RESULTS / f"{name}.json"),
    }
    return whole[kind]() if kind in whole else run_block(kind, Results.read(RESULTS / f"{name}.json"), words)


def run_block(kind: str, results: Results, words: str) -> str:
    head, _, tail = words.rpartition(": ")
    entries = entries_of(results)
    made: dict[str, Callable[[], str]] = {
        "table": lambda: table(entries, words.split()),
        "plain": lambda: plain_table(entries, words.split()),
        "claims": lambda: claims_table(results),
        "compared": lambda: compared_table(results, head, tail.split()),
        "frontier": lambda: frontier_table(entries, [float(word) for word in words.split()]),
        "against": lambda: compared_table(results, head, [aimed_measure(float(word) / 100) for word in tail.split()]),
        "aimed": lambda: aimed_table(results, float(head), tail.split()),
    }
    return made[kind]()


def table(entries: list[Entry], measures: list[str]) -> str:
    """Markdown; the best of each column is bold."""
    columns = [[shown(entry, measure) for entry in entries] for measure in measures]
    for place, measure in enumerate(measures):
        best = best_of(measure, [entry.mean(measure) for entry in entries])
        columns[place] = [f"**{cell}**" if row in best else cell for row, cell in enumerate(columns[place])]
    lines = ["| | " + " | ".join(map(heading, measures)) + " |", "|---" * (len(measures) + 1) + "|"]
    lines += [f"| {entry.name} | " + " | ".join(cells) + " |" for entry, *cells in zip(entries, *columns, strict=True)]
    return "\n".join(lines) + "\n"


def plain_table(entries: list[Entry], measures: list[str]) -> str:
    """The same for readers in a hurry: plain names, fewer digits, the best of each column bold as far as they show."""
    names = [one.title for one in plain_names([entry.name for entry in entries]).values()]
    lines = ["| | " + " | ".join(map(plain_heading, measures)) + " |", "|---" * (len(measures) + 1) + "|"]
    columns = []
    for measure in measures:
        means = [entry.mean(measure) for entry in entries]
        cells = [f"{mean:.0f} %" if _SHARE.fullmatch(measure) else f"{mean:.3f}" for mean in means]
        best = {cells[row] for row in best_of(measure, means)}
        columns.append([f"**{cell}**" if cell in best else cell for cell in cells])
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, *cells in zip(names, *columns, strict=True)]
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
    """NDCG@20 of lists as they are, and with each share of the long tail; the best is bold."""
    lines = ["| NDCG@20 | as it is | " + " | ".join(f"{share:g} %" for share in shares) + " |"]
    lines.append("|---" * (len(shares) + 2) + "|")
    wanted = [None, *(round(share / 100, 6) for share in shares)]
    rows = {
        entry.name: {None if one.wanted is None else round(one.wanted, 6): one for one in entry.aimed()}
        for entry in entries
        if entry.aimed()
    }
    best = [max(points[share].accuracy for points in rows.values()) for share in wanted]
    for name, points in rows.items():
        cells = [f"{points[share].accuracy:.4f}" for share in wanted]
        cells = [f"**{cell}**" if points[share].accuracy == top else cell
                 for cell, share, top in zip(cells, wanted, best, strict=True)]  # fmt: skip
        cells[0] += f" ({points[None].long_share:.1f} %)"
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def aimed_table(results: Results, share: float, measures: list[str]) -> str:
    """Other measures of lists that aim at one share, means over the seeds."""
    lines = [f"| at {share:g} % | " + " | ".join(map(heading, measures)) + " |", "|---" * (len(measures) + 1) + "|"]
    for entry in entries_of(results):
        points = [one for run in entry.runs for one in run.aimed if abs(one.long_share - share / 100) < 1e-9]
        if points:
            means = [fmean(value for one in points if (value := one.mean(measure)) is not None) for measure in measures]
            cells = [f"{mean:.0f}" if mean >= 100 else f"{mean:.3g}" for mean in means]
            lines.append(f"| {entry.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def reliability_table(names: list[str]) -> str:
    """For each model, |ln(predicted/observed odds)| over the bins: mean and largest; by the link and one factor too."""
    lines = [
        "| | bins | held-out pairs in each | mean | largest | by the link and one factor: mean | largest |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in names:
        for entry in entries_of(Results.read(RESULTS / f"{name}.json")):
            kept, by_link = entry.reliability(), entry.reliability(by_link=True)
            if kept:
                least, most = min(one.held_out for one in kept), max(one.held_out for one in kept)
                cells = [
                    f"{len(kept)}",
                    f"{least:,} to {most:,}",
                    *off(kept),
                    *(off(by_link) if by_link else ("–", "–")),
                ]
                lines.append(f"| {name.removeprefix('frontier-')}: {entry.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def fifths_table(name: str, wanted: list[str]) -> str:
    """The long-tail share of lists by fifths of users, from the fewest training items to the most."""
    steps = json.loads((RESULTS / name / "steps.json").read_text(encoding="utf-8"))
    lines = ["| | fewest items | | | | most items |", "|---" * 6 + "|"]
    for one in wanted:
        shares = steps[one][-1]["long_share@20 by fifths of users"]
        lines.append(f"| {one} | " + " | ".join(f"{share:.0f} %" for share in shares) + " |")
    return "\n".join(lines) + "\n"


def kept(study: str, name: str) -> dict[str, Any]:
    """What a study of experiments/ wrote."""
    return dict(json.loads((RESULTS / study / f"{name}.json").read_text(encoding="utf-8")))


def off(bins: Sequence[Reliability]) -> tuple[str, str]:
    ratios = [abs(ReliabilityBin(**one.model_dump()).log_ratio) for one in bins]
    return f"{fmean(ratios):.3f}", f"{max(ratios):.2f}"


def heading(measure: str) -> str:
    if found := _SHARE.fullmatch(measure):
        return f"{found[1]} % of the top {found[2]}"
    return measure.replace("ndcg", "NDCG").replace("_", " ")


def plain_heading(measure: str) -> str:
    if found := _SHARE.fullmatch(measure):
        kinds = {"short": "popular items", "medium": "middle", "long": "long tail"}
        return f"{kinds[found[1]]} in the top {found[2]}"
    return heading(measure)


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
