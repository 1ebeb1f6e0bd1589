"""The server against the least that it could cost: a bare FastAPI route and the library alone; two processes over one.

Each figure is a ratio of things that were measured in turns, in one run.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.load import load, post
from benchmarks.served import Serving, lists, server
from milrec.lists.query import Query
from milrec.recommender import Recommender

_ROUNDS = 5
_CLIENTS = 32
_NO_WRK = "two processes against one: not measured, it needs wrk (apt-get install wrk)"
_SCRIPT = """
local bodies = {}
for line in io.lines("%s") do bodies[#bodies + 1] = line end
wrk.method, wrk.headers["Content-Type"] = "POST", "application/json"
local turn = 0
request = function()
  turn = turn %% #bodies + 1
  return wrk.format(nil, "/v1/recommend", nil, bodies[turn])
end
"""


@dataclass(frozen=True)
class Ratio:
    """A figure with its bar and its goal."""

    name: str
    key: str
    bar: float
    goal: float
    least: bool  # whether the bar is a lower limit

    def verdict(self, value: float) -> str:
        better = (lambda limit: value >= limit) if self.least else (lambda limit: value <= limit)
        return "goal" if better(self.goal) else "bar" if better(self.bar) else "missed"


RATIOS = [
    Ratio("1 client: p50 over (bare FastAPI route + library time for the list)", "one_client", 1.5, 1.2, False),
    Ratio(f"{_CLIENTS} clients, one process: share of a bare FastAPI route's requests/s", "clients", 0.5, 0.75, True),
    Ratio("two processes over one, requests/s by wrk on the same cores", "processes", 1.2, 1.5, True),
]


def against_rivals(folder: Path, users: list[str], seconds: float) -> dict[str, Any]:
    """Everything here, with the rounds that it comes from."""
    stored = folder.with_name("stored.json")
    with server(folder) as one, server(folder, "--processes", "2") as two:
        warm(one.port, users)
        warm(two.port, users)
        stored.write_bytes(_answer_of(one.port, users[0]))
        with bare(stored) as least:
            warm(least.port, users)
            recommender = Recommender.load(folder)
            found = {
                "one_client": _one_client(one.port, least.port, recommender, users, seconds),
                "clients": _many_clients(one, least, users, seconds),
            }
            found["clients"]["list_cpu_us"] = _library_cpu_us(recommender, users, seconds)
        if shutil.which("wrk") is not None:
            found["processes"] = _two_processes(one.port, two.port, stored.with_name("wrk.lua"), users, seconds)
    return found


def show(found: dict[str, Any]) -> None:
    table = Table("measure", "value", "bar", "goal", "reached", "rounds")
    for one in RATIOS:
        sign, result = "≥" if one.least else "≤", found.get(one.key)
        value = "not measured" if result is None else f"{result['value']:.3g}×"
        reached = "" if result is None else one.verdict(result["value"])
        rounds = "" if result is None else ", ".join(f"{each:.3g}" for each in result["rounds"])
        table.add_row(one.name, value, f"{sign} {one.bar:g}", f"{sign} {one.goal:g}", reached, rounds)
    console = Console()
    console.print(table)
    rounds = found["clients"]["measured"]
    ours, least = (statistics.median(one[f"{name}_cpu_us"] for one in rounds) for name in ("server", "bare"))
    made = found["clients"]["list_cpu_us"]
    console.print(
        f"CPU time of a request, {_CLIENTS} clients: {ours:.0f} µs, of which the list {made:.0f}; bare {least:.0f}"
    )
    if "processes" not in found:
        console.print(_NO_WRK)


def warm(port: int, users: list[str]) -> None:
    asyncio.run(load(port, 8, 2, lambda number: lists(users, number)))


@contextmanager
def bare(stored: Path) -> Iterator[Serving]:
    """A bare FastAPI app that answers with what is stored."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.bare", str(stored)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found is not None, "the bare app did not start"
        yield Serving(int(found[1]), process)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _answer_of(port: int, user: str) -> bytes:
    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post("/v1/recommend", {"user": user}))
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None and head.startswith(b"HTTP/1.1 200"), head
        content = await reader.readexactly(int(length[1]))
        writer.close()
        return content

    return asyncio.run(ask())


def _one_client(
    port: int, bare_port: int, recommender: Recommender, users: list[str], seconds: float
) -> dict[str, Any]:
    rounds = []
    for _ in range(_ROUNDS):
        ours, theirs = (_loaded(which, 1, users, seconds / _ROUNDS)["p50_ms"] for which in (port, bare_port))
        rounds.append({"server_ms": ours, "bare_ms": theirs, "library_ms": _library_ms(recommender, users, seconds)})
    return _summary(rounds, lambda one: one["server_ms"] / (one["bare_ms"] + one["library_ms"]))


def _library_ms(recommender: Recommender, users: list[str], seconds: float) -> float:
    """The median time for the lists of one user after another, as the server makes them."""
    spent: list[float] = []
    ends = time.perf_counter() + seconds / _ROUNDS
    while time.perf_counter() < ends:
        query = Query(user=users[len(spent) % len(users)])
        started = time.perf_counter()
        recommender.listed([recommender.ask(query)])
        spent.append(time.perf_counter() - started)
    return 1000 * statistics.median(spent)


def _library_cpu_us(recommender: Recommender, users: list[str], seconds: float) -> float:
    """CPU time for a list, when as many are made at once as there are clients."""
    made, started, ends = 0, time.process_time(), time.perf_counter() + seconds / _ROUNDS
    while time.perf_counter() < ends:
        together = [users[(made + place) % len(users)] for place in range(_CLIENTS)]
        recommender.listed([recommender.ask(Query(user=user)) for user in together])
        made += _CLIENTS
    return 1e6 * (time.process_time() - started) / made


def _many_clients(one: Serving, least: Serving, users: list[str], seconds: float) -> dict[str, Any]:
    rounds = []
    for _ in range(_ROUNDS):
        measured: dict[str, float] = {}
        for name, serving in (("server", one), ("bare", least)):
            before = serving.cpu_seconds()
            found = _loaded(serving.port, _CLIENTS, users, seconds / _ROUNDS)
            assert not found["errors"] and not found["refused"], found
            measured[name] = found["per_second"]
            measured[f"{name}_cpu_us"] = 1e6 * (serving.cpu_seconds() - before) / found["requests"]
        rounds.append(measured)
    return _summary(rounds, lambda one: one["server"] / one["bare"])


def _two_processes(port: int, two_port: int, script: Path, users: list[str], seconds: float) -> dict[str, Any]:
    bodies = script.with_suffix(".txt")
    bodies.write_text("".join(json.dumps({"user": user}) + "\n" for user in users))
    script.write_text(_SCRIPT % bodies)
    rounds = []
    for _ in range(_ROUNDS):
        one, two = (_by_wrk(which, script, seconds / _ROUNDS) for which in (port, two_port))
        rounds.append({"one": one, "two": two})
    return _summary(rounds, lambda found: found["two"] / found["one"])


def _by_wrk(port: int, script: Path, seconds: float) -> float:
    command = ["wrk", "-t1", f"-c{_CLIENTS}", f"-d{max(round(seconds), 1)}s", "-s", str(script)]
    done = subprocess.run([*command, f"http://localhost:{port}/"], capture_output=True, text=True, check=True)
    found = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    assert found is not None and "Non-2xx" not in done.stdout, done.stdout
    return float(found[1])


def _loaded(port: int, clients: int, users: list[str], seconds: float) -> dict[str, Any]:
    return asyncio.run(load(port, clients, seconds, lambda number: lists(users, number))).figures()


def _summary(rounds: list[dict[str, float]], ratio: Callable[[dict[str, float]], float]) -> dict[str, Any]:
    ratios = [ratio(one) for one in rounds]
    return {"value": statistics.median(ratios), "rounds": ratios, "measured": rounds}
