"""What lists of similar items are worth, as `experiments.similar` found it: a table for the documentation."""

import json
from pathlib import Path
from typing import Any

N = 20
RATE = f"similar_hit_rate@{N}"


def similar_table(name: str, file: Path) -> str:
    """The rates in percent, as Markdown; a model below the bar is marked."""
    rows = json.loads(file.read_text(encoding="utf-8"))[name]
    lines = [f"| {name} | hit rate, % | plain | 1/n | own | before |", "|---|---|---|---|---|---|"]
    bar = rows["bar"]
    titles = {"popular": "20 most popular items for all", "bar": f"shrunk co-occurrence ({bar['shrink']:g})"}
    for row, title in titles.items():
        lines.append(f"| {title} | {with_interval(rows[row])} | {others(rows[row])} | | |")
    for model, one in rows.items():
        if model in titles:
            continue
        mark = "" if one["blend"][RATE] >= bar[RATE] else " (below)"
        cells = [f"{with_interval(one['blend'])}{mark}", others(one["blend"])]
        lines.append(f"| {' | '.join([model, *cells, percent(one['own']), percent(one['before'])])} |")
    return "\n".join([*lines, ""])


def percent(found: dict[str, Any], kind: str = "") -> str:
    return f"{100 * found[f'similar_{kind}hit_rate@{N}']:.2f}"


def others(found: dict[str, Any]) -> str:
    return f"{percent(found, 'plain_')} | {percent(found, 'inverse_')}"


def with_interval(found: dict[str, Any]) -> str:
    low, high = found["intervals"][RATE]
    return f"{percent(found)} ({100 * low:.2f} – {100 * high:.2f})"
