"""python -m benchmarks.serve: the server over loopback, with the load generator on the same machine.

A catalogue of 20,000 items, an autoencoder with 200 factors, lists of 20 for known users; 1, 32 and 256 clients. The
same model is called without HTTP, and served without micro-batches. Models are reloaded under load. --soak MINUTES
sends mixed requests for that long and watches the memory of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.clock import machine
from benchmarks.load import get, load, post
from benchmarks.shapes import growing_data
from milrec.lists.query import Query
from milrec.models.known import build_model
from milrec.recommender import Recommender
from milrec.storage import write_json
from milrec.training.artifact import Fitted
from milrec.training.presets import settings_for

_N_ITEMS = 20_000
_CLIENTS = (1, 32, 256)


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    folder = _model(options.out)
    users = [str(one) for one in Recommender.load(folder).user_ids]
    results: dict[str, Any] = {"machine": machine(), "seconds": options.seconds}
    if options.soak:
        results["soak"] = _soak(folder, users, 60 * options.soak)
    else:
        results["direct"] = _direct(folder, users, options.seconds)
        results["served"] = _served(folder, users, options.seconds)
        results["one_at_a_time"] = _served(folder, users, options.seconds, "--together", "1")
        results["reload"] = _reloading(folder, users, options.seconds)
    write_json(options.out / ("soak.json" if options.soak else "serve.json"), results)
    _show(results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-serve"), help="folder for the model and results")
    parser.add_argument("--seconds", type=float, default=10, help="length of each measurement")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="instead, watch the memory under mixed load")
    return parser.parse_args()


def _model(folder: Path) -> Path:
    """Weights as they are before a fit: the time of an answer does not depend on them."""
    place = folder / "model"
    if not place.exists():
        train = growing_data(_N_ITEMS)
        settings = settings_for("dae", "mil").for_data(train.n_users, train.n_items)
        model = build_model(settings.model, train.n_users, train.n_items)
        model.initialise(0)
        Fitted(model, settings, train, train.adopted, 0).save(place)
    return place


def _direct(folder: Path, users: list[str], seconds: float) -> dict[str, Any]:
    """The library alone: lists per second when several are asked for together."""
    recommender = Recommender.load(folder)
    found = {}
    for together in _CLIENTS:
        waiting, done = itertools.cycle(users), 0
        queries = [[Query(user=next(waiting)) for _ in range(together)] for _ in range(50)]
        recommender.answer([recommender.ask(queries[0][0])])
        started = time.perf_counter()
        while (spent := time.perf_counter() - started) < seconds:
            recommender.answer([recommender.ask(query) for query in queries[done // together % 50]])
            done += together
        found[str(together)] = {"per_second": done / spent}
    return found


def _served(folder: Path, users: list[str], seconds: float, *options: str) -> dict[str, Any]:
    found = {}
    with _server(folder, *options) as (port, _):
        asyncio.run(load(port, 8, min(seconds, 2), lambda number: _lists(users, number)))  # warm
        for clients in _CLIENTS:
            outcome = asyncio.run(load(port, clients, seconds, lambda number: _lists(users, number)))
            found[str(clients)] = outcome.figures()
    return found


def _reloading(folder: Path, users: list[str], seconds: float) -> dict[str, Any]:
    """32 clients, while the folder is replaced by another and reloaded, over and over."""
    live, reloads = folder.with_name("live"), 0
    shutil.rmtree(live, ignore_errors=True)
    shutil.copytree(folder, live)

    async def both(port: int) -> dict[str, Any]:
        nonlocal reloads
        running = asyncio.create_task(load(port, 32, seconds, lambda number: _lists(users, number)))
        while not running.done():
            await asyncio.to_thread(_replace, folder, live)
            once = await load(port, 1, 0, lambda _: iter([post("/v1/models/live/reload", {})]))
            assert once.statuses == {200: 1}, once
            reloads += 1
            await asyncio.sleep(seconds / 10)
        return running.result().figures()

    with _server(live) as (port, _):
        found = asyncio.run(both(port))
    return {**found, "reloads": reloads}


def _replace(folder: Path, live: Path) -> None:
    fresh, old = live.with_name("fresh"), live.with_name("old")
    shutil.copytree(folder, fresh)
    live.rename(old)
    fresh.rename(live)
    shutil.rmtree(old)


def _soak(folder: Path, users: list[str], seconds: float) -> dict[str, Any]:
    """Mixed requests from 32 clients; the memory of the server every few seconds."""
    memory: list[float] = []

    async def both(port: int, process: int) -> dict[str, Any]:
        running = asyncio.create_task(load(port, 32, seconds, lambda number: _mixed(users, number)))
        while not running.done():
            await asyncio.sleep(min(5, seconds / 40))
            memory.append(_memory(process))
        return running.result().figures()

    with _server(folder) as (port, process):
        found = asyncio.run(both(port, process))
    fifth = max(len(memory) // 5, 1)
    early, late = statistics.mean(memory[fifth : 2 * fifth]), statistics.mean(memory[-fifth:])
    return {**found, "memory_mb": [round(one, 1) for one in memory], "early_mb": early, "late_mb": late}


def _lists(users: list[str], number: int) -> Iterator[bytes]:
    for user in itertools.cycle(users[number * 61 % len(users) :] + users[: number * 61 % len(users)]):
        yield post("/v1/recommend", {"user": user})


def _mixed(users: list[str], number: int) -> Iterator[bytes]:
    """Every kind of request, including wrong ones."""
    for turn in itertools.count(number * 977):
        user, item = users[turn % len(users)], str(turn * 31 % _N_ITEMS)
        yield post("/v1/recommend", {"user": user, "n": 1 + turn % 200, "dial": turn % 7 / 5})
        yield post("/v1/recommend", {"adopted": [item, str(turn % 100)], "reasons": 3})
        yield post("/v1/recommend", {"user": user, "rules": [{"tail": "long", "at_least": "30%"}], "exclude": [item]})
        yield post("/v1/recommend/batch", {"requests": [{"user": user}, {"user": "nobody"}, {"adopted": [item]}]})
        yield get(f"/v1/models/model/items?search={turn % 100}")
        yield get(f"/v1/models/model/items/{item}/similar")
        yield get(f"/v1/models/model/users/{user}")
        yield post("/v1/recommend", {"adopted": ["nothing"]})
        yield get(f"/nothing/{turn}")


@contextmanager
def _server(folder: Path, *options: str) -> Iterator[tuple[int, int]]:
    """A running server: its port and process id."""
    command = [sys.executable, "-m", "milrec", "serve", str(folder), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found is not None, "the server did not start"
        yield int(found[1]), process.pid
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _memory(process: int) -> float:
    """Megabytes that a process has in memory."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def _show(results: dict[str, Any]) -> None:
    table = Table("", "clients", "requests/s", "p50 ms", "p99 ms", "p99/p50", "errors")
    rows = [
        (name, clients, found)
        for name in ("direct", "served", "one_at_a_time")
        for clients, found in results.get(name, {}).items()
    ]
    rows += [(name, "32", results[name]) for name in ("reload", "soak") if name in results]
    for name, clients, found in rows:
        cells = [f"{found['per_second']:,.0f}"]
        if "p50_ms" in found:
            ratio = found["p99_ms"] / found["p50_ms"]
            cells += [f"{found['p50_ms']:.1f}", f"{found['p99_ms']:.1f}", f"{ratio:.1f}", str(found["errors"])]
        table.add_row(name.replace("_", " "), clients, *cells)
    console = Console()
    console.print(table)
    if "soak" in results:
        console.print(f"memory: {results['soak']['early_mb']:.0f} MB early, {results['soak']['late_mb']:.0f} MB late")
    if "reload" in results:
        console.print(f"reloads under load: {results['reload']['reloads']}")


if __name__ == "__main__":
    main()
