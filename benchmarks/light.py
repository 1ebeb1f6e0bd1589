"""python -m benchmarks.light --out FOLDER [--megabytes 100]: commands that need no weights, on a large model.

A model of this size is made (an autoencoder over 25,000 items with titles, fitted for a single step: its lists are not
looked at). Then each command is run a few times in a process of its own: how long it takes, how much CPU time it uses,
how much it reads, and whether it loads torch. `show` checks every file; the others check those that they read.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import milrec
from benchmarks.clock import machine
from milrec.storage import write_json

_ITEMS, _USERS, _EACH = 25_000, 20_000, 50
_WORDS = ["amber", "river", "golden", "garden", "last", "station", "silent", "engine", "pilot", "winter", "orchard"]
_COMMANDS = {
    "show": ["show", "model"],
    "items": ["items", "model", "--search", "golden orch"],
    "items, with a typo": ["items", "model", "--search", "goldne orchadr"],
    "recommend, unknown user": ["recommend", "model", "--user", "u1"],
    "recommend, unknown item": ["recommend", "model", "--adopted", "The Golden Garden"],
    "similar, unknown item": ["similar", "model", "nothing"],
    "recommend, known user": ["recommend", "model", "--user", "u00001"],
}
_CODE = """
import sys
from milrec.cli.app import main
try:
    main()
except SystemExit:
    pass
sys.stdout.flush()
read = next(line.split()[1] for line in open("/proc/self/io") if line.startswith("rchar"))
print("torch" in sys.modules, read, file=sys.stderr)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the model and the result")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if not (given.out / "model").exists():
        make_model(given.out / "model", given.megabytes)
    size = sum(file.stat().st_size for file in (given.out / "model").iterdir())
    found: dict[str, Any] = {"machine": machine(), "model_megabytes": round(size / 1e6, 1), "commands": {}}
    say(f"{'command':<26}{'seconds':>9}{'CPU s':>8}{'MB read':>9}  torch")
    for name, command in _COMMANDS.items():
        one = found["commands"][name] = timed(command, given.out, given.times)
        torch = "yes" if one["torch"] else "no"
        say(f"{name:<26}{one['seconds']:>9.2f}{one['cpu_seconds']:>8.2f}{one['megabytes_read']:>9.1f}  {torch}")
    write_json(given.out / "light.json", found)


def make_model(path: Path, megabytes: int) -> None:
    """An autoencoder whose weights take up most of this many megabytes."""
    random = np.random.default_rng(0)
    users = np.repeat(np.arange(_USERS), _EACH)
    items = np.minimum(random.zipf(1.3, size=len(users)) + random.integers(0, 2_000, len(users)), _ITEMS) - 1
    table = {"user": [f"u{user:05d}" for user in users], "item": [f"i{item:05d}" for item in items]}
    data = milrec.read(pa.table(table), min_per_item=1)
    titles = [f"The {' '.join(random.choice(_WORDS, 2)).title()} {number}" for number in range(data.n_items)]
    named = data.items.append_column("title", pa.array(titles, type=pa.string()))
    data = milrec.Interactions(data.adopted, data.rejected, data.users, named)
    n_factors = max(megabytes * 10**6 // (8 * data.n_items), 1)
    values = {"n_factors": n_factors, "iterations": 1, "start": "glorot", "patience": 0}
    settings = milrec.settings_for("dae", values=values)
    milrec.fit(milrec.split_interactions(data, seed=0, held_out=0.0), settings, seed=0).save(path)


def timed(command: list[str], folder: Path, times: int) -> dict[str, Any]:
    """The median over several processes, after one that warms up the disk's cache."""
    runs = [run(command, folder) for _ in range(times + 1)][1:]
    return {name: median(one[name] for one in runs) for name in runs[0]}


def run(command: list[str], folder: Path) -> dict[str, float]:
    began, before = time.perf_counter(), os.times()
    done = subprocess.run(
        [sys.executable, "-c", _CODE, *command], cwd=folder, capture_output=True, text=True, check=True
    )
    seconds, after = time.perf_counter() - began, os.times()
    torch, read = done.stderr.split()[-2:]
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": seconds, "cpu_seconds": used, "megabytes_read": int(read) / 1e6, "torch": float(torch == "True")}


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
