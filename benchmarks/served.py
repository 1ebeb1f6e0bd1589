"""What the benchmarks of the server share: a model, a running server, and requests for it."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.load import post
from benchmarks.shapes import growing_data
from milrec.models.known import build_model
from milrec.training.artifact import Fitted
from milrec.training.presets import settings_for
from milrec.training.sections import Shape

N_ITEMS = 20_000


def model_folder(folder: Path, seed: int = 0) -> Path:
    """Weights as they are before a fit: the time of an answer does not depend on them."""
    place = folder / ("model" if seed == 0 else f"model-{seed}")
    if not place.exists():
        train = growing_data(N_ITEMS)
        settings = settings_for("dae", "mil").for_data(Shape.of(train))
        model = build_model(settings.model, train.n_users, train.n_items)
        model.initialise(seed)
        Fitted(model, settings, train, train.adopted, seed).save(place)
    return place


@dataclass(frozen=True)
class Serving:
    """A server in a process of its own."""

    port: int
    process: subprocess.Popen[str]

    def memory(self) -> float:
        """Megabytes that it has in memory."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024

    def cpu_seconds(self) -> float:
        """CPU time that all its threads have had; of several processes, the first's alone."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@contextmanager
def server(
    folder: Path, *options: str, cores: set[int] | None = None, log: IO[str] | int = subprocess.DEVNULL
) -> Iterator[Serving]:
    """A running server, which is ended with the block; on some cores alone, if so wanted."""
    command = [sys.executable, "-m", "milrec", "serve", str(folder), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    if cores is not None:
        os.sched_setaffinity(process.pid, cores)  # before it has any threads
    assert process.stdout is not None
    try:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found is not None, "the server did not start"
        yield Serving(int(found[1]), process)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def lists(users: list[str], number: int = 0) -> Iterator[bytes]:
    """Requests for lists of 20 for known users, beginning with another user for each client."""
    for user in itertools.cycle(users[number * 61 % len(users) :] + users[: number * 61 % len(users)]):
        yield post("/v1/recommend", {"user": user})
