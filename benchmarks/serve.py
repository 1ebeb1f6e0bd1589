"""python -m benchmarks.serve: the server over loopback, with the load generator on the same machine.

A catalogue of 20,000 items, an autoencoder with 200 factors, lists of 20 for known users; 1, 32 and 256 clients. The
same model is called without HTTP, and served without micro-batches. Models are reloaded under load. Then the ratios
with bars and goals, against a bare FastAPI route and the library, and of two processes (benchmarks.rivals). For what
happens when the server is asked for too much, see benchmarks.overload; in the long run, benchmarks.soak.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import shutil
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import rivals
from benchmarks.clock import machine
from benchmarks.load import load, post
from benchmarks.served import lists, model_folder, server
from milrec.lists.query import Query
from milrec.recommender import Recommender
from milrec.storage import write_json

_N_ITEMS = 20_000
_CLIENTS = (1, 32, 256)


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    folder = model_folder(options.out)
    users = [str(one) for one in Recommender.load(folder).user_ids]
    results: dict[str, Any] = {"machine": machine(), "seconds": options.seconds}
    if options.rivals_only:
        return rivals.show(rivals.against_rivals(folder, users, options.seconds))
    results["direct"] = _direct(folder, users, options.seconds)
    results["served"] = _served(folder, users, options.seconds)
    results["one_at_a_time"] = _served(folder, users, options.seconds, "--together", "1")
    results["reload"] = _reloading(folder, users, options.seconds)
    results["rivals"] = rivals.against_rivals(folder, users, options.seconds)
    write_json(options.out / "serve.json", results)
    _show(results)
    rivals.show(results["rivals"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-serve"), help="folder for the model and results")
    parser.add_argument("--seconds", type=float, default=10, help="length of each measurement")
    parser.add_argument("--rivals-only", action="store_true", help="measure the ratios with bars and goals alone")
    return parser.parse_args()


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
    with server(folder, *options) as serving:
        port = serving.port
        asyncio.run(load(port, 8, min(seconds, 2), lambda number: lists(users, number)))  # warm
        for clients in _CLIENTS:
            outcome = asyncio.run(load(port, clients, seconds, lambda number: lists(users, number)))
            found[str(clients)] = outcome.figures()
    return found


def _reloading(folder: Path, users: list[str], seconds: float) -> dict[str, Any]:
    """32 clients, while the folder is replaced by another and reloaded, over and over."""
    live, reloads = folder.with_name("live"), 0
    shutil.rmtree(live, ignore_errors=True)
    shutil.copytree(folder, live)

    async def both(port: int) -> dict[str, Any]:
        nonlocal reloads
        running = asyncio.create_task(load(port, 32, seconds, lambda number: lists(users, number)))
        while not running.done():
            await asyncio.to_thread(_replace, folder, live)
            once = await load(port, 1, 0, lambda _: iter([post("/v1/models/live/reload", {})]))
            assert once.statuses == {200: 1}, once
            reloads += 1
            await asyncio.sleep(seconds / 10)
        return running.result().figures()

    with server(live) as serving:
        found = asyncio.run(both(serving.port))
    return {**found, "reloads": reloads}


def _replace(folder: Path, live: Path) -> None:
    fresh, old = live.with_name("fresh"), live.with_name("old")
    shutil.copytree(folder, fresh)
    live.rename(old)
    fresh.rename(live)
    shutil.rmtree(old)


def _show(results: dict[str, Any]) -> None:
    table = Table("", "clients", "requests/s", "p50 ms", "p99 ms", "p99/p50", "refused", "errors")
    rows = [
        (name, clients, found)
        for name in ("direct", "served", "one_at_a_time")
        for clients, found in results[name].items()
    ]
    rows.append(("reload", "32", results["reload"]))
    for name, clients, found in rows:
        cells = [f"{found['per_second']:,.0f}"]
        if "p50_ms" in found:
            ratio = found["p99_ms"] / found["p50_ms"]
            cells += [
                f"{found['p50_ms']:.1f}",
                f"{found['p99_ms']:.1f}",
                f"{ratio:.1f}",
                f"{found['refused']:,}",
                str(found["errors"]),
            ]
        table.add_row(name.replace("_", " "), clients, *cells)
    console = Console()
    console.print(table)
    console.print(f"reloads under load: {results['reload']['reloads']}")


if __name__ == "__main__":
    main()
