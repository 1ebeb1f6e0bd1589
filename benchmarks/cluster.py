"""python -m benchmarks.cluster --out FOLDER [--users 200000] [--only prepare,fit,…]: the same bytes on any cluster.

Every command that takes --cluster is run without one; then on clusters of 1, 2 and 5 nodes of one CPU each, started on
this machine; then on three nodes, one of which is killed in the middle; then with a worker killed by SIGKILL. Weights,
lists, data and measures are compared byte for byte, and nothing may be left over. `python -m benchmarks.overhead` tells
what a cluster costs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from benchmarks.clock import machine
from milrec.storage import write_json

_PARTS = 6  # files of the table
_RECIPE = """title = "Two models, one of them searched"
[split]
seed = 0
[search]
trials = 3
round = 3
[[models]]
name = "MIL"
model = "dae"
loss = "mil"
settings = {{ iterations = {steps}, n_factors = 16 }}
search = {{ corruption = [0.2, 0.4, 0.6] }}
[[models]]
name = "EASE"
model = "ease"
[data]
path = "{data}"
"""


@dataclass(frozen=True)
class Command:
    """A command, what it writes, and how its result is read off."""

    name: str
    arguments: Callable[[Path], list[str]]  # given the place to write
    result: Callable[[Path], dict[str, str]]  # hashes by name
    worker: str  # how a process that does its work is called


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for data and results")
    parser.add_argument("--users", type=int, default=200_000)
    parser.add_argument("--only", default="", help="names of commands, separated by commas")
    given = parser.parse_args()
    out: Path = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    write_parts(out / "events", given.users)
    commands = [one for one in commands_in(out) if not given.only or one.name in given.only.split(",")]
    found: dict[str, Any] = {"machine": machine(), "users": given.users}
    for command in commands:
        found[command.name] = tried(command, out)
        print(json.dumps({command.name: found[command.name]}, indent=1), flush=True)  # noqa: T201
        write_json(out / "cluster.json", found)
    wrong = [name for name, one in found.items() if isinstance(one, dict) and not one.get("all_equal", True)]
    if wrong:
        raise SystemExit(f"not the same bytes: {', '.join(wrong)}")


def write_parts(folder: Path, n_users: int) -> None:
    """A table of plays in several files."""
    if folder.exists():
        return
    folder.mkdir()
    random = np.random.default_rng(0)
    size = n_users * 20 // _PARTS
    for number in range(_PARTS):
        users = random.integers(0, n_users, size)
        group = users % 10  # users of a group share some of their taste
        items = ((1_000 * random.random(size) ** 3).astype(np.int64) + 90 * group) % 1_000
        table = pa.table({"user": users, "item": items, "plays": random.integers(1, 9, size)})
        pyarrow.csv.write_csv(table, folder / f"part-{number}.csv")


def commands_in(out: Path) -> list[Command]:
    """In an order in which each finds what it needs."""
    data, split, model = (out / "whole" / name for name in ("prepare", "split", "fit"))
    recipe = out / "recipe.toml"
    recipe.write_text(_RECIPE.format(steps=150, data=data))
    fit = ["fit", str(split), "--set", "slices=5", "--set", "iterations=400", "--set", "checkpoint_seconds=2"]
    return [
        Command(
            "prepare",
            lambda place: ["prepare", str(out / "events"), "--value", "plays", "--out", str(place)],
            folder_hashes,
            "ray::work",
        ),
        Command("split", lambda place: ["split", str(data), "--out", str(place)], folder_hashes, ""),
        Command("fit", lambda place: [*fit, "--refit", "--out", str(place)], folder_hashes, "RayTrainWorker"),
        Command(
            "lists",
            lambda place: ["recommend", str(model), "--all", "--out", f"{place}.parquet"],
            lambda place: {"file": sha256(Path(f"{place}.parquet"))},
            "ray::work",
        ),
        Command(
            "dataset",
            lambda place: ["recommend", str(model), "--all", "--long-share", "0.3", "--out", f"{place}/"],
            folder_hashes,
            "ray::work",
        ),
        Command(
            "evaluate",
            lambda place: ["evaluate", str(model), str(split), "--json", f"{place}.json"],
            lambda place: {"file": sha256(Path(f"{place}.json"))},
            "ray::work",
        ),
        Command("experiment", lambda place: ["experiment", str(recipe), "--out", str(place)], run_hashes, "ray::work"),
    ]


def tried(command: Command, out: Path) -> dict[str, Any]:
    """One command under all conditions."""
    places = out / "whole"
    places.mkdir(exist_ok=True)
    shutil.rmtree(places / command.name, ignore_errors=True)
    started = time.perf_counter()
    run(command.arguments(places / command.name))
    seconds = time.perf_counter() - started
    expected = command.result(places / command.name)
    found: dict[str, Any] = {"seconds_alone": round(seconds, 1)}
    if not command.worker:
        return found
    for n_nodes, harm in ((1, None), (2, None), (5, None), (3, "node"), (3, "worker")):
        name = f"{n_nodes} nodes" + (f", a {harm} killed" if harm else "")
        found[name] = on_cluster(command, out, n_nodes, harm, expected)
    found["all_equal"] = all(one["equal"] and one["clean"] for one in found.values() if isinstance(one, dict))
    return found


def on_cluster(command: Command, out: Path, n_nodes: int, harm: str | None, expected: dict[str, str]) -> dict[str, Any]:
    folder = out / "tried"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with nodes(n_nodes) as cluster:
        started = time.perf_counter()
        process = started_command([*command.arguments(folder / "result"), "--cluster", cluster.address])
        harmed = None if harm is None else do_harm(cluster, harm, command.worker, process)
        said = process.communicate()[1]
        seconds = time.perf_counter() - started
    if process.returncode:
        return {"equal": False, "clean": False, "code": process.returncode, "said": said[-500:]}
    left = [path.name for path in folder.iterdir() if path.name.startswith(".") or path.name.endswith(".partial")]
    equal = command.result(folder / "result") == expected
    outcome = {"equal": equal, "clean": not left, "seconds": round(seconds, 1)}
    return outcome | ({} if harm is None else {"harmed": harmed})


@contextmanager
def nodes(number: int) -> Iterator[Any]:
    """A cluster of nodes with one CPU each, on this machine; the first one is its head, and has the driver."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        for _ in range(number - 1):
            cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()


def do_harm(cluster: Any, harm: str, worker: str, process: subprocess.Popen[str]) -> str:
    """Kill a node, or a process that is at work, a second and a half after work has begun."""
    session = str(cluster.head_node.get_session_dir_path())
    while process.poll() is None and not workers(worker, session):
        time.sleep(0.05)
    time.sleep(1.5)
    if process.poll() is not None:
        return "too late"
    if harm == "node":
        cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
        return "a node"
    found = workers(worker, session)
    if not found:
        return "too late"
    os.kill(found[0], signal.SIGKILL)
    return "a worker"


def workers(name: str, session: str) -> list[int]:
    """Processes of a session of Ray that do milrec's work at the moment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if name in path.read_bytes().decode(errors="replace"):
                parent = path.with_name("stat").read_text().rpartition(")")[2].split()[1]
                if session in Path(f"/proc/{parent}/cmdline").read_bytes().decode(errors="replace"):
                    found.append(int(path.parent.name))
        except OSError:
            continue
    return sorted(found)


def run(arguments: list[str]) -> None:
    process = started_command(arguments)
    said = process.communicate()[1]
    if process.returncode:
        raise SystemExit(f"milrec {' '.join(arguments)} failed: {said[-500:]}")


def started_command(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "milrec", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def folder_hashes(place: Path) -> dict[str, str]:
    """Every file; of a model's manifest, which has times in it, nothing."""
    names = sorted(path for path in place.rglob("*") if path.is_file() and path.name != "milrec.json")
    return {str(path.relative_to(place)): sha256(path) for path in names}


def run_hashes(place: Path) -> dict[str, str]:
    """Weights and measures of all jobs; results.json has times in it."""
    jobs = {
        str(path.relative_to(place)): sha256(path)
        for pattern in ("jobs/*/model/*.safetensors", "jobs/*/per_user.parquet", "split/*.arrow")
        for path in sorted(place.glob(pattern))
    }
    results = json.loads((place / "results.json").read_text())
    evaluations = [[one["name"], one["seed"], one["tuned"], one["evaluation"]] for one in results["models"]]
    return jobs | {"measures": hashlib.sha256(json.dumps(evaluations, sort_keys=True).encode()).hexdigest()}


if __name__ == "__main__":
    main()
