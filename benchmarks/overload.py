"""python -m benchmarks.overload: the server when it is asked for more than it can do, pinned to one core.

The load generator has a core of its own. First the capacity: requests/s with 64 clients that wait for their answers.
Then requests at random times at this rate, at twice and at three times as many, and at half as many straight after:
what is refused must be refused at once, what is not must be answered in time, and all must be well again in a second.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.clock import machine
from benchmarks.load import Outcome, load, paced
from benchmarks.served import lists, model_folder, server
from milrec.recommender import Recommender
from milrec.storage import write_json

_TIMES = (1, 2, 3)  # the capacity
_SETTLED = 1.0  # seconds after which all must be well again


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overload", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-serve"), help="folder for the model and results")
    parser.add_argument("--seconds", type=float, default=20, help="length of each measurement")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = {"machine": machine(), "seconds": options.seconds, **overload(options.out, options.seconds)}
    write_json(options.out / "overload.json", results)
    show(results)
    sys.exit(not results["well"])


def overload(out: Path, seconds: float) -> dict[str, Any]:
    folder = model_folder(out)
    users = [str(one) for one in Recommender.load(folder).user_ids]
    own, its = _cores()
    os.sched_setaffinity(0, own)
    found: dict[str, Any] = {}
    with server(folder, "--idle-timeout", "600", cores=its) as serving:
        port = serving.port
        asyncio.run(load(port, 64, min(seconds, 5), lambda number: lists(users, number)))  # warm
        closed = asyncio.run(load(port, 64, seconds, lambda number: lists(users, number)))
        capacity = closed.figures()["per_second"]
        for times in _TIMES:
            outcome = asyncio.run(paced(port, times * capacity, seconds, lists(users), seed=times))
            found[f"{times}x"] = _figures(outcome, times * capacity)
        after = asyncio.run(paced(port, capacity / 2, max(seconds / 4, 3), lists(users), seed=9))
        found["after"] = {**_figures(after, capacity / 2), "recovered_s": after.last_refused}
    ratio = found["3x"]["p99_ms"] / found["1x"]["p99_ms"]
    well = ratio <= 2 and found["after"]["recovered_s"] <= _SETTLED and not any(one["errors"] for one in found.values())
    return {"capacity": capacity, "clients_64": closed.figures(), **found, "p99_ratio": ratio, "well": well}


def _figures(outcome: Outcome, offered: float) -> dict[str, Any]:
    return {"offered": offered, **outcome.figures()}


def _cores() -> tuple[set[int], set[int]]:
    """A core for the load generator, and one for the server; the same if there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    return {cores[-1]}, {cores[0]}


def show(results: dict[str, Any]) -> None:
    table = Table("", "offered/s", "answered/s", "p50 ms", "p99 ms", "refused", "p99 ms of a refusal", "errors")
    for name in (*(f"{times}x" for times in _TIMES), "after"):
        one = results[name]
        refusal = f"{one['refused_p99_ms']:.1f}" if "refused_p99_ms" in one else ""
        table.add_row(
            name,
            f"{one['offered']:,.0f}",
            f"{one['per_second']:,.0f}",
            f"{one['p50_ms']:.0f}",
            f"{one['p99_ms']:.0f}",
            f"{one['refused']:,}",
            refusal,
            str(one["errors"]),
        )
    console = Console()
    console.print(table)
    console.print("well" if results["well"] else "NOT WELL")
    console.print(
        f"capacity {results['capacity']:,.0f}/s; p99 at three times the capacity is {results['p99_ratio']:.2f} times "
        f"that at the capacity; the last refusal came {results['after']['recovered_s']:.2f} s after the overload ended"
    )


if __name__ == "__main__":
    main()
