"""The tables of docs/scale.md and docs/performance.md, from results in docs/results that benchmarks have written.

`python -m experiments.tables` puts them between `<!-- kept FOLDER/NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

_COMMANDS = {  # as in light.json → as in the table
    "show": "`show`, which checks every file",
    "items": "`items --search`",
    "items, with a typo": "`items --search`, with a typo",
    "recommend, unknown user": "`recommend --user`, unknown user",
    "recommend, unknown item": "`recommend --adopted`, unknown item",
    "similar, unknown item": "`similar`, unknown item",
    "recommend, known user": "`recommend --user`, known user",
}
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def kept_table(file: Path) -> str:
    """The table of one kept result, as Markdown."""
    tables: dict[str, Callable[[dict[str, Any]], str]] = {
        "large-tables": large_table,
        "messages": messages_table,
        "light": light_table,
    }
    return tables[file.stem](json.loads(file.read_text(encoding="utf-8")))


def large_table(found: dict[str, Any]) -> str:
    """Seconds and memory of each command on a large table, from benchmarks.large_tables."""
    memory, disk = found["small_in_memory"], found["small_by_disk"]
    large, fit = found["large_by_disk"], found["large_fit"]
    same = "the same bytes" if found["same_bytes"] else "not the same bytes"
    model = f", of which {fit['model_gib']:.1f} are the model: weights, moments, running mean, best"
    lines = [
        "| | seconds | anonymous memory |",
        "|---|---|---|",
        f"| `prepare`, {power(memory['rows'])} rows, in memory | {seconds_and_memory(memory)} |",
        f"| `prepare`, {power(disk['rows'])} rows, by way of the disk: {same} | {seconds_and_memory(disk)} |",
        f"| `prepare`, {power(large['rows'])} rows | {seconds_and_memory(large)} |",
        f"| `split` | {seconds_and_memory(found['large_split'])} |",
        f"| `fit`, 50 steps of the default model and one validation | {seconds_and_memory(fit)}{model} |",
    ]
    return "\n".join(lines) + "\n"


def messages_table(found: dict[str, Any]) -> str:
    """When a fit on a cluster pays, from benchmarks.messages."""
    lines = [
        "| | S | step, one machine | slice | gradient | move | speed-up at 10 Gbit/s | at 100 Gbit/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for shape, by_machines in found["shapes"].items():
        for machines, one in by_machines.items():
            cells = [
                shape,
                machines.removesuffix(" machines"),
                f"{one['step_ms']:.0f} ms",
                f"{one['slice_ms']:.0f} ms",
                f"{one['message_mb']:.0f} MB",
                f"{one['move_ms']:.0f} ms",
                f"{one['speed_up_at_10_gbit']:.2f}",
                f"{one['speed_up_at_100_gbit']:.2f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def light_table(found: dict[str, Any]) -> str:
    """Commands on one model, from benchmarks.light."""
    lines = [
        f"| a model of {found['model_megabytes']:.0f} MB | seconds | MB read | loads torch |",
        "|---|---|---|---|",
    ]
    for name, one in found["commands"].items():
        seconds = f"{one['seconds']:.2f}".removeprefix("0")
        torch = "yes" if one["torch"] else "no"
        lines.append(f"| {_COMMANDS[name]} | {seconds} | {one['megabytes_read']:.0f} | {torch} |")
    return "\n".join(lines) + "\n"


def seconds_and_memory(one: dict[str, Any]) -> str:
    return f"{one['seconds']:.0f} | {one['anonymous_gib']:.1f} GiB"


def power(rows: int) -> str:
    """10⁷ for 10,000,000; other numbers as they are."""
    exponent = round(math.log10(rows))
    return f"10{str(exponent).translate(_RAISED)}" if 10**exponent == rows else f"{rows:,}"
