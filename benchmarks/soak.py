"""python -m benchmarks.soak: half an hour of mixed load with faults; make soak, SOAK_MINUTES=3 for less.

Ordinary requests, nonsense, clients that hang up or dawdle or say nothing, bursts, reloads, SIGHUP, and the served
folder overwritten in place. All is well if no answer came that was not asked for, every list is one that a sound folder
gives, the memory grew by no more than 5 % after the first fifth, the log has no error, the exit code is 0, and no
private copy is left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import faults
from benchmarks.clock import machine
from benchmarks.faults import Tally, Target
from benchmarks.served import Serving, model_folder, server
from milrec.lists.query import Query
from milrec.recommender import Recommender
from milrec.server.written import Writer
from milrec.storage import write_json

_CLIENTS = 12
_GROWTH = 0.05  # of the memory, that is allowed
_OPTIONS = ("--timeout", "10", "--header-timeout", "2")  # so that a soak sees their ends often


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/soak"), help="folder for the models and results")
    parser.add_argument("--minutes", type=float, default=30)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = {"machine": machine(), "minutes": options.minutes, **soak(options.out, 60 * options.minutes)}
    write_json(options.out / "soak.json", results)
    _show(results)
    sys.exit(0 if results["well"] else 1)


def soak(out: Path, seconds: float) -> dict[str, Any]:
    sources, live = tuple(model_folder(out, seed) for seed in (0, 1)), out / "serving" / "live"
    shutil.rmtree(live.parent, ignore_errors=True)
    shutil.copytree(sources[0], live)
    users = [str(one) for one in Recommender.load(sources[0]).user_ids]
    tally, log = Tally(), out / "server.log"
    with log.open("w") as lines, server(live, *_OPTIONS, log=lines) as serving:
        known = {_list_of(one, users[0]) for one in sources}
        target = Target(serving.port, serving.process.pid, live, sources, users, tally, known)
        sampled = asyncio.run(_under_load(target, serving, seconds))
    left = [one.name for one in live.parent.glob(".milrec-serving*")]
    return _judged(tally, sampled, _faults_in(log), left, serving.process.returncode)


def _list_of(folder: Path, user: str) -> bytes:
    """What the library lists for the request that is sent over and over."""
    recommender = Recommender.load(folder)
    asked = recommender.ask(Query(user=user, n=50))
    return faults.items_of(Writer("", recommender.catalogue).written(asked, *recommender.listed([asked])).encode())


async def _under_load(target: Target, serving: Serving, seconds: float) -> list[float]:
    """Everything at once; the memory of the server once in a while, when it has one model in memory and not two."""
    work: list[Coroutine[Any, Any, None]] = [faults.ask_mixed(target, number) for number in range(_CLIENTS)]
    work += [one(target) for one in faults.EVERYTHING]
    tasks = [asyncio.create_task(one) for one in work]
    sampled: list[float] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        await asyncio.sleep(0.5)
        if not target.tally.reloading:
            sampled.append(serving.memory())
        for task in tasks:
            if task.done():  # it only ever ends by an error
                task.result()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return sampled


def _faults_in(log: Path) -> list[str]:
    """Lines of the log that should not be there."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    bad = [one for one in lines if "traceback" in one or one["level"] == "error" or one.get("status") == 500]
    return [json.dumps(one)[:500] for one in bad[:20]]


def _judged(tally: Tally, sampled: list[float], log: list[str], left: list[str], code: int) -> dict[str, Any]:
    fifth = max(len(sampled) // 5, 1)
    early, late = statistics.median(sampled[fifth : 2 * fifth]), statistics.median(sampled[-fifth:])
    return {
        "answers": {kind: {str(status): n for status, n in seen.items()} for kind, seen in tally.answers.items()},
        "wrong": tally.wrong,
        "examples": tally.examples,
        "memory_mb": [round(one, 1) for one in sampled],
        "early_mb": early,
        "late_mb": late,
        "log": log,
        "left_behind": left,
        "exit_code": code,
        "well": not (tally.wrong or log or left or code) and late <= (1 + _GROWTH) * early,
    }


def _show(results: dict[str, Any]) -> None:
    table = Table("sent", "answers, by status (0: none was due)")
    for kind, seen in results["answers"].items():
        table.add_row(kind, ", ".join(f"{status}: {number:,}" for status, number in sorted(seen.items())))
    console = Console()
    console.print(table)
    growth = results["late_mb"] / results["early_mb"] - 1
    console.print(f"memory: {results['early_mb']:.0f} MB early, {results['late_mb']:.0f} MB late ({growth:+.1%})")
    console.print(f"answers that were not asked for: {results['wrong']}; exit code {results['exit_code']}")
    for line in (*results["examples"], *results["log"], *results["left_behind"]):
        console.print(line, markup=False)
    console.print("well" if results["well"] else "NOT WELL")


if __name__ == "__main__":
    main()
