"""python -m benchmarks.growth --out FOLDER [--rows 1e8] [--users 1e7] [--items 1e6]: how time and memory grow.

- rows: `prepare` of a table of 10⁵ rows and more, by way of the disk
- users: one epoch of the default fit, with 10⁴ users and more (ten items each, of 2,000)
- items: fifty steps of it, with 10³ items and more (20,000 users), and 20,000 lists

Each point is measured in a process of its own. growth.json has the points and their slopes between the last two, in
powers of ten; growth.svg draws them.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

import milrec
from benchmarks.clock import machine
from benchmarks.large_tables import by_disk, write_plays
from benchmarks.watching import watched
from milrec.data.interactions import Interactions
from milrec.report import svg
from milrec.storage import write_json

Point = dict[str, float]
_STYLE = (
    "<style>:root{--ink:#222;--grid:#ddd;--muted:#555;--series-0:#1b6ca8;--series-1:#c25b12;--series-2:#3b8a3e}"
    "text{font:12px sans-serif;fill:#333}.axis{stroke:#888}.grid{stroke:#ddd}</style>"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables and the result")
    parser.add_argument("--kept", type=Path, help="draw this growth.json again, and measure nothing")
    parser.add_argument("--rows", type=float, default=1e8)
    parser.add_argument("--users", type=float, default=1e7)
    parser.add_argument("--items", type=float, default=1e6)
    given = parser.parse_args()
    out: Path = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if given.kept is not None:
        (out / "growth.svg").write_text(figure(json.loads(given.kept.read_text())))
        return
    found: dict[str, Any] = {"machine": machine()}
    for name, first, last, measure in (
        ("rows", 1e5, given.rows, rows_point),
        ("users", 1e4, given.users, users_point),
        ("items", 1e3, given.items, items_point),
    ):
        points = [{"size": size, **measure(out, size)} for size in sizes(first, last)]
        found[name] = {"points": points, "slopes": slopes(points)}
        print(json.dumps({name: found[name]}, indent=1), flush=True)  # noqa: T201
        write_json(out / "growth.json", found)
    (out / "growth.svg").write_text(figure(found))


def sizes(first: float, last: float) -> list[int]:
    return [round(10**power) for power in range(round(math.log10(first)), round(math.log10(last)) + 1)]


def slopes(points: list[Point]) -> dict[str, float]:
    """Between the last two points: 1 is in proportion, 0 is not at all."""
    if len(points) < 2:
        return {}
    before, after = points[-2:]
    apart = math.log(after["size"] / before["size"])
    return {
        name: round(math.log(after[name] / before[name]) / apart, 2)
        for name in after
        if name != "size" and before[name] > 0 and after[name] > 0
    }


def rows_point(out: Path, n_rows: int) -> Point:
    table = out / f"rows-{n_rows}.csv"
    if not table.exists():
        write_plays(table, n_rows)
    found = watched(by_disk, table, out / "prepared")
    return {"prepare_seconds": found["seconds"], "anonymous_gib": found["anonymous_gib"]}


def users_point(out: Path, n_users: int) -> Point:
    data = made(out / f"users-{n_users}", n_users, 2_000, 10)
    found = watched(_epoch, data, out / "model")
    return {"epoch_seconds": found["rows"] / 1000, "anonymous_gib": found["anonymous_gib"]}


def items_point(out: Path, n_items: int) -> Point:
    data = made(out / f"items-{n_items}", 20_000, n_items, 50)
    fit = watched(_steps, data, out / "model")
    lists = watched(_lists, out / "model", out / "lists")
    return {
        "step_ms": fit["rows"] / 50,
        "anonymous_gib": fit["anonymous_gib"],
        "list_ms": lists["rows"] / 20_000,
    }


def made(place: Path, n_users: int, n_items: int, each: int) -> Path:
    """A split folder of random pairs with a popularity tail, without ids that take up room."""
    if not place.exists():
        random = np.random.default_rng(0)
        items = np.sort((n_items * random.random((n_users, each), dtype=np.float32) ** 3).astype(np.int32), axis=1)
        kept = np.diff(items, axis=1, prepend=-1) > 0
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int32)
        shape = (n_users, n_items)
        adopted = csr_array((np.ones(indptr[-1], dtype=np.float32), items[kept], indptr), shape=shape)
        users, titles = (pa.table({"id": pa.array(np.arange(size))}) for size in shape)
        data = Interactions(adopted, csr_array(shape, dtype=np.float32), users, titles)
        milrec.split_interactions(data, seed=0).save(place)
    return place


def _timed(work: Callable[[], Any]) -> int:
    """Milliseconds; `watched` calls this number rows."""
    started = time.perf_counter()
    work()
    return round(1000 * (time.perf_counter() - started))


def _epoch(split: Path, out: Path) -> int:
    divided = milrec.Split.load(split)
    milrec.fit(divided, iterations=3, validate_every=3)  # compiled, and mapped
    return _timed(lambda: milrec.fit(divided, epochs=1, validate_every=10**9))


def _steps(split: Path, out: Path) -> int:
    divided = milrec.Split.load(split)
    fast = {"start": "glorot", "validate_every": 10**9}
    milrec.fit(divided, iterations=3, **fast)
    spent: list[int] = []
    spent.append(_timed(lambda: milrec.fit(divided, iterations=60, **fast).save(out, replace=True)))
    spent.append(_timed(lambda: milrec.fit(divided, iterations=10, **fast)))
    return max(spent[0] - spent[1], 1)


def _lists(model: Path, out: Path) -> int:
    recommender = milrec.load(model)
    next(recommender.recommend_all())
    return _timed(lambda: [None for _ in recommender.recommend_all()])


def figure(found: dict[str, Any]) -> str:
    """Six panels: time above, memory below, against rows, users and items."""
    panels = [
        ("rows", "prepare_seconds", "rows of a table", "seconds of prepare"),
        ("users", "epoch_seconds", "users", "seconds of an epoch"),
        ("items", "list_ms", "items", "milliseconds of a list"),
        ("rows", "anonymous_gib", "rows of a table", "GiB of prepare"),
        ("users", "anonymous_gib", "users", "GiB of a fit"),
        ("items", "anonymous_gib", "items", "GiB of a fit"),
    ]
    width, height = svg.SMALL
    parts = []
    for place, (name, measure, x, y) in enumerate(panels):
        points = found[name]["points"]
        xs, ys = [one["size"] for one in points], [max(one[measure], 1e-3) for one in points]
        slope = found[name]["slopes"].get(measure, 0.0)
        label = f"{y} (slope {slope:g})"
        series = svg.Series(label, f"series-{place % 3}", xs, ys)
        frame = svg.Frame(svg.axis(x, xs, log=True), _decades(label, ys), width, height)
        drawn = svg.lines([series], frame, label, marks=True)
        left, top = place % 3 * width, place // 3 * height
        parts.append(f'<svg x="{left}" y="{top}" width="{width}" height="{height}">{drawn}</svg>')
    size = f'width="{3 * width}" height="{2 * height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{_STYLE}<rect {size} fill="white"/>{"".join(parts)}</svg>\n'


def _decades(label: str, values: list[float]) -> svg.Axis:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return svg.Axis(label, 10.0**low, 10.0 ** max(high, low + 1), log=True)


if __name__ == "__main__":
    main()
