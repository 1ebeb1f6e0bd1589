"""What the processes of a cluster do: each task gets paths and plain numbers or texts, and is called by its name.

Ray sends functions and arguments in its own way (see docs/security.md). Ours travel by their name alone, so a node runs
the milrec that is installed there, and no object of ours is ever unpickled.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

from milrec.errors import MilrecError, system_sentence

_TASKS = {  # by name, the function that does it; it is called with a way to note progress, and its arguments
    "lists": "milrec.cluster.lists:make_part",
    "judge": "milrec.cluster.evaluation:judge_shard",
    "job": "milrec.cluster.jobs:do_job",
    "read": "milrec.cluster.preparation:read_files",
    "merge": "milrec.cluster.preparation:merge_bundle",
}
Note = Callable[[Any], None]


class Look(TypedDict):
    """What a node says about itself."""

    version: str
    seen: list[str]


class Post:
    """Where tasks leave notes on their progress: the last one of each."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}

    def put(self, task: str, text: Any) -> None:
        self.last[task] = text

    def read(self) -> dict[str, Any]:
        return self.last


def look(marks: list[str]) -> Look:
    """Which milrec this node has, and which files it sees."""
    return {"version": version("milrec"), "seen": [mark for mark in marks if Path(mark).exists()]}


def work(task: str, name: str, post: str, wanted: str, *arguments: Any) -> dict[str, Any]:
    """Do a task; an error that has a sentence is part of the result."""
    import ray

    if version("milrec") != wanted:
        return {"error": f"node {socket.gethostname()} has milrec {version('milrec')}, and {wanted} is needed"}
    use_granted_threads(ray)
    notes = ray.get_actor(post)
    module, function = _TASKS[task].split(":")
    try:
        found = getattr(import_module(module), function)(lambda text: notes.put.remote(name, text), *arguments)
        return {"result": found}
    except MilrecError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": f"{system_sentence(error)} (on node {socket.gethostname()})"}


def use_granted_threads(ray: Any) -> int:
    """As many threads as Ray granted CPUs."""
    import torch

    n_threads = max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(n_threads)
    torch.set_num_threads(n_threads)
    return n_threads
