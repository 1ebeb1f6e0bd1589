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

from milrec.errors import DataError, MilrecError, system_sentence

_TASKS = {  # by name, the function that does it; it is called with a way to note progress, and its arguments
    "lists": "milrec.cluster.lists:make_arrow_part",
    "dataset": "milrec.cluster.lists:make_dataset_part",
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


class Notebook:
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


def work(task: str, name: str, notebook: str, wanted: str, *arguments: Any) -> dict[str, Any]:
    """Do a task; an error that has a sentence is part of the result."""
    import ray

    here = socket.gethostname()
    if version("milrec") != wanted:
        return _failed(f"node {here} has milrec {version('milrec')}, and {wanted} is needed")
    use_granted_threads(ray)
    module, function = _TASKS[task].split(":")
    try:
        return {"result": getattr(import_module(module), function)(_noting(ray, notebook, name), *arguments)}
    except DataError as error:
        return _failed(str(error), of_data=True)
    except MilrecError as error:
        return _failed(f"{error} (on node {here})")
    except OSError as error:
        return _failed(f"{system_sentence(error)} (on node {here})")


def _failed(sentence: str, of_data: bool = False) -> dict[str, Any]:
    """Something is wrong with the user's data, or with something else."""
    return {"error": sentence, "of_data": of_data}


def _noting(ray: Any, notebook: str, name: str) -> Note:
    """Leave notes in the notebook; where there is none at the moment, work goes on without."""
    try:
        pages = ray.get_actor(notebook)
    except (ValueError, ray.exceptions.RayError):
        return lambda text: None
    return lambda text: pages.put.remote(name, text)


def use_granted_threads(ray: Any) -> int:
    """As many threads as Ray granted CPUs."""
    import torch

    n_threads = max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(n_threads)
    torch.set_num_threads(n_threads)
    return n_threads
