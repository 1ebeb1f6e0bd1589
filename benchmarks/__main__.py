"""python -m benchmarks: every section in its own process, one after another; a table, a JSON file and a figure.

A section that already has a result is not measured again unless --only names it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import data, fits, lists, one_list, real_fits, start
from benchmarks.clock import machine

SECTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "sampled_step": fits.sampled_step,
    "whole_step": fits.whole_step,
    "als": fits.als,
    "whole_fit": fits.whole_fit,
    "bpr": fits.bpr,
    "ease": fits.ease,
    "ml_1m": fits.ml_1m,
    "quality": fits.quality,
    "real_fits": real_fits.real_fits,
    "growth": fits.growth,
    "one_list": one_list.one_list,
    "top_lists": lists.top_lists,
    "evaluation": lists.evaluation,
    "reading": data.reading,
    "start": start.start,
}
_NEEDS = {"ml_1m": "ml_1m", "quality": "ml_1m", "real_fits": "sets"}  # section → the option with its data
_ONE_BLAS_THREAD = ("als", "bpr", "real_fits")  # implicit asks for it: its own threads then have the cores


@dataclass(frozen=True)
class Measure:
    """A figure that is compared with a bar and a goal."""

    name: str
    bar: float
    goal: float
    least: bool  # whether the bar is a lower limit
    value: Callable[[dict[str, Any]], float]
    unit: str = "×"

    def verdict(self, value: float) -> str:
        better = (lambda limit: value >= limit) if self.least else (lambda limit: value <= limit)
        return "goal" if better(self.goal) else "bar" if better(self.bar) else "missed"


def _over_implicit(name: str) -> Callable[[dict[str, Any]], float]:
    return lambda results: results["one_list"]["over_implicit"][name]


def _real(name: str, value: str) -> Callable[[dict[str, Any]], float]:
    return lambda results: results["real_fits"]["sets"][name][value]


REAL_MEASURES = [
    measure
    for name in real_fits.BEFORE
    for measure in (
        Measure(f"default fit on {name}, over 15 iterations of ALS", 6, 2, False, _real(name, "over_als")),
        Measure(f"{name}, NDCG@100 less than the old defaults'", 0.002, 0, False, _real(name, "less_than_before"), ""),
    )
]

MEASURES = [
    *REAL_MEASURES,
    Measure(
        "sampled MIL fit, users per second, over the readable path", 16, 20, True, lambda r: r["sampled_step"]["value"]
    ),
    Measure(
        "fit with all missing items, share of the bare product's rate",
        0.82,
        0.85,
        True,
        lambda r: r["whole_step"]["value"],
        "",
    ),
    Measure(
        "whole MIL fit, over the time of 15 iterations of ALS",
        0.5,
        0.5,
        False,
        lambda r: r["whole_fit"]["seconds_to_near_best"] / r["als"]["seconds"],
    ),
    Measure(
        "its NDCG@100, over the best of ALS's",
        1,
        1,
        True,
        lambda r: r["whole_fit"]["ndcg@100"] / max(run["ndcg@100"] for run in r["als"]["runs"].values()),
    ),
    Measure(
        "MovieLens-1M, sooner at NDCG@100 .350 than the readable path", 10, 20, True, lambda r: r["ml_1m"]["value"]
    ),
    Measure(
        "MovieLens-1M, quality less the paper's settings, worst of three",
        -0.003,
        0,
        True,
        lambda r: r["quality"]["value"],
        "",
    ),
    Measure("sampled step at 1M items, over 20k items", 1.6, 1.4, False, lambda r: r["growth"]["value"]),
    Measure("one list for a known user, over implicit's", 2, 1, False, _over_implicit("known")),
    Measure("one for a new user with reasons, over the same", 3, 1.5, False, _over_implicit("new_with_reasons")),
    Measure("one for a user new to a factorization, over the same", 20, 5, False, _over_implicit("folded_in")),
    Measure("top-200 for all, masked, over faiss.knn unmasked", 1.03, 1, False, lambda r: r["top_lists"]["value"]),
    Measure("full evaluation, over its bare product", 2.2, 1.6, False, lambda r: r["evaluation"]["value"]),
    Measure(
        "peak memory of the whole fit beyond the data",
        309,
        300,
        False,
        lambda r: r["whole_fit"]["memory_beyond_data"] / 2**20,
        " MiB",
    ),
    Measure(
        "20M rows prepared, over reading them with pyarrow",
        5,
        3,
        False,
        lambda r: r["reading"]["prepare_seconds"] / r["reading"]["pyarrow_read_seconds"],
    ),
    Measure("milrec --help", 0.35, 0.25, False, lambda r: r["start"]["seconds"]["help"], " s"),
    Measure(
        "import milrec, beyond Python's own start",
        0.05,
        0.03,
        False,
        lambda r: r["start"]["seconds"]["import"] - r["start"]["seconds"]["python"],
        " s",
    ),
]


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.section:
        arguments = [options.out, *([_needed(options.section, options)] if options.section in _NEEDS else [])]
        result = {
            **SECTIONS[options.section](*arguments),
            "machine": machine(),
            "when": time.strftime("%Y-%m-%d %H:%M"),
        }
        (options.out / f"{options.section}.json").write_text(json.dumps(result, indent=1))
        return
    console = Console()
    for name in options.only or SECTIONS:
        if not options.only and (options.out / f"{name}.json").exists():
            continue
        if name in _NEEDS and _needed(name, options) is None:
            option = {"ml_1m": "ML_1M=ml-1m.zip", "sets": "SETS=folder-of-data-sets"}[_NEEDS[name]]
            console.print(f"{name}: skipped; make bench {option} measures it")
            continue
        console.print(f"{name}: {(SECTIONS[name].__doc__ or '').splitlines()[0]}")
        started = time.perf_counter()
        subprocess.run(_command(name, options), check=True, env=_environment(name))
        console.print(f"  took {time.perf_counter() - started:.0f} s")
    results = {
        name: json.loads((options.out / f"{name}.json").read_text())
        for name in SECTIONS
        if (options.out / f"{name}.json").exists()
    }
    rows = [(measure, _value(measure, results)) for measure in MEASURES]
    console.print(_table(rows))
    summary = {measure.name: {"value": value, "bar": measure.bar, "goal": measure.goal} for measure, value in rows}
    (options.out / "bench.json").write_text(
        json.dumps({"machine": machine(), "summary": summary, "sections": results}, indent=1)
    )
    (options.out / "bench.svg").write_text(_figure(rows))
    console.print(f"→ {options.out / 'bench.json'}, {options.out / 'bench.svg'}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="where data and results are kept")
    parser.add_argument("--ml-1m", type=Path, help="folder or archive of MovieLens-1M")
    parser.add_argument("--sets", type=Path, help="folder of real data sets, each with a ratings.parquet")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="sections to measure (again)")
    parser.add_argument("--section", choices=SECTIONS, help=argparse.SUPPRESS)
    return parser.parse_args()


def _needed(section: str, options: argparse.Namespace) -> Path | None:
    path: Path | None = getattr(options, _NEEDS[section])
    return path


def _command(name: str, options: argparse.Namespace) -> list[str]:
    more = ["--ml-1m", str(options.ml_1m)] if options.ml_1m else []
    more += ["--sets", str(options.sets)] if options.sets else []
    return [sys.executable, "-m", "benchmarks", "--out", str(options.out), "--section", name, *more]


def _environment(name: str) -> dict[str, str]:
    return {**os.environ, **({"OPENBLAS_NUM_THREADS": "1"} if name in _ONE_BLAS_THREAD else {})}


def _value(measure: Measure, results: dict[str, Any]) -> float | None:
    try:
        return measure.value(results)
    except KeyError:
        return None


def _table(rows: list[tuple[Measure, float | None]]) -> Table:
    table = Table("measure", "value", "bar", "goal", "reached")
    for measure, value in rows:
        sign = "≥" if measure.least else "≤"
        shown = "not measured" if value is None else f"{value:.3g}{measure.unit}"
        reached = "" if value is None else measure.verdict(value)
        table.add_row(measure.name, shown, f"{sign} {measure.bar:g}", f"{sign} {measure.goal:g}", reached)
    return table


def _figure(rows: list[tuple[Measure, float | None]]) -> str:
    """How many times better than its bar each measure is, on a logarithmic scale; the goal is a tick."""
    known = [(measure, value) for measure, value in rows if value is not None]
    measured = [(measure, value) for measure, value in known if min(measure.bar, measure.goal, value) > 0]
    height, left, width = 30 * len(measured) + 50, 420, 860
    scale = (width - left - 70) / math.log(64)

    def place(measure: Measure, value: float) -> float:
        better = value / measure.bar if measure.least else measure.bar / value
        return left + scale * (math.log(min(max(better, 0.5), 32)) + math.log(2))

    marks = []
    for row, (measure, value) in enumerate(measured):
        y = 30 * row + 40
        colour = "#b3261e" if measure.verdict(value) == "missed" else "#2f6db5"
        bar, end, goal = (place(measure, number) for number in (measure.bar, value, measure.goal))
        size = f'x="{min(bar, end):.1f}" y="{y - 7}" width="{abs(end - bar):.1f}" height="14"'
        marks += [
            f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{measure.name}</text>',
            f'<rect {size} fill="{colour}"/>',
            f'<path d="M{goal:.1f} {y - 11}v22" stroke="#333" stroke-width="2"/>',
            f'<text x="{max(end, bar, goal) + 6:.1f}" y="{y + 4}">{value:.3g}{measure.unit}</text>',
        ]
    head = "how many times better than the bar (line: the bar; tick: the goal)"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"',
            'font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{left - 12}" y="18" text-anchor="end">{head}</text>',
            f'<path d="M{left + scale * math.log(2):.1f} 24V{height - 16}" stroke="#999"/>',
            *marks,
            "</svg>",
        ]
    )


if __name__ == "__main__":
    main()
