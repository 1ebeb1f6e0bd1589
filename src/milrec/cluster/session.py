"""A Ray cluster: started or joined, its nodes looked at before any work is handed out, and work done in order.

Plain tasks, not Ray Data: a shard is a path and a number, its result goes to a file, and results are taken in the order
of shards, a few at a time, so that neither order nor memory depends on the cluster. Ray starts a task again elsewhere
if its process or its node dies.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from milrec.cluster.tasks import Look, Post, look, work
from milrec.errors import ClusterError, SettingsError, first_line
from milrec.kernels.threads import available

_RETRIES = 5  # of a task whose process or node died
_PATIENCE = 60.0  # seconds that a node may take to answer
_POLL = 0.25  # seconds between two looks at the progress
_AHEAD = 2  # tasks for each CPU that are handed out before others are done

Notes = Callable[[dict[str, Any]], None]  # is shown what tasks have noted, by task


@dataclass(frozen=True)
class Node:
    """A machine of the cluster that can do work."""

    id: str
    address: str
    n_cpus: int


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is part of."""

    ray: Any
    address: str  # as the user gave it
    seconds: float  # that it took to start or join
    post: str  # the name of the actor that tasks leave notes with
    notebook: Any  # the actor itself, which ends with its last handle

    @property
    def copies(self) -> bool:
        """Whether nodes keep copies of folders: on this machine alone, there is no need."""
        return self.address != "local"

    @property
    def remote_driver(self) -> bool:
        """Whether this process is outside the cluster (`ray://`)."""
        return self.address.startswith("ray://")

    def nodes(self) -> list[Node]:
        found = [node for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        return [Node(one["NodeID"], one["NodeManagerAddress"], int(one["Resources"]["CPU"])) for one in found]

    @property
    def n_cpus(self) -> int:
        return sum(node.n_cpus for node in self.nodes())

    def __str__(self) -> str:
        """How large it is, and how long it took to begin."""
        nodes = self.nodes()
        n_cpus = sum(node.n_cpus for node in nodes)
        return f"Ray: {_counted(len(nodes), 'node')}, {_counted(n_cpus, 'CPU')}; {self.seconds:.1f} s to begin"

    def check(self, shared: Sequence[Path]) -> None:
        """Refuse a cluster with a node that has another milrec, or does not see a folder that has to be shared.

        A folder that is not there yet lies in one that is.
        """
        marks = {str(folder): _mark(_there(folder)) for folder in shared}
        try:
            nodes = self.nodes()
            if not nodes:
                raise ClusterError(f"the cluster '{self.address}' has no node with a CPU to work on")
            asked = [(node, self._look(node, list(marks.values()))) for node in nodes]
            for node, answer in asked:
                _refuse(node, self._answer(node, answer), marks)
        finally:
            for mark in marks.values():
                Path(mark).unlink(missing_ok=True)

    def in_order(
        self, task: str, calls: Sequence[Sequence[Any]], notes: Notes = lambda found: None, n_cpus: int = 1
    ) -> Iterator[Any]:
        """The results of a task for each of several arguments, in their order; the task is called by its name."""
        doing = self.ray.remote(num_cpus=n_cpus, max_retries=_RETRIES)(work)
        waiting, running, done, taken = deque(enumerate(calls)), dict[Any, int](), dict[int, Any](), 0
        try:
            while taken < len(calls):
                most = max(_AHEAD * self.n_cpus // n_cpus, 1)
                while waiting and len(running) < most and waiting[0][0] < taken + 2 * most:
                    number, arguments = waiting.popleft()
                    given = (task, f"{task}-{number}", self.post, version("milrec"), *arguments)
                    running[doing.remote(*given)] = number
                ready, _ = self.ray.wait(list(running), timeout=_POLL)
                for one in ready:
                    done[running.pop(one)] = self._result(one)
                notes(self.notes())
                while taken in done:
                    yield done.pop(taken)
                    taken += 1
        finally:
            for one in running:
                self.ray.cancel(one, force=False)

    def start(self, task: str, name: str, arguments: Sequence[Any], n_cpus: int = 1) -> Any:
        """Hand out one task; a reference to its result."""
        doing = self.ray.remote(num_cpus=n_cpus, max_retries=_RETRIES)(work)
        return doing.remote(task, name, self.post, version("milrec"), *arguments)

    def finished(self, reference: Any, seconds: float) -> bool:
        """Wait a little for a task."""
        return bool(self.ray.wait([reference], timeout=seconds)[0])

    def result(self, reference: Any) -> Any:
        return self._result(reference)

    def notes(self) -> dict[str, Any]:
        """What tasks have noted last, by task."""
        found: dict[str, Any] = self.ray.get(self.notebook.read.remote())
        return found

    def _result(self, reference: Any) -> Any:
        try:
            found = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except self.ray.exceptions.RayError as error:
            raise ClusterError(f"a task was lost {_RETRIES + 1} times ({_said(error)})") from None
        if "error" in found:
            raise ClusterError(found["error"])
        return found["result"]

    def _look(self, node: Node, marks: list[str]) -> Any:
        there = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)
        return self.ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(look).remote(marks)

    def _answer(self, node: Node, reference: Any) -> Look:
        try:
            found: Look = self.ray.get(reference, timeout=_PATIENCE)
        except self.ray.exceptions.GetTimeoutError:
            raise ClusterError(f"node {node.address} has not answered for {_PATIENCE:.0f} seconds") from None
        except Exception as error:  # among others, there is no milrec, and nothing of ours can be read there
            raise ClusterError(
                f"node {node.address} cannot run milrec ({_said(error)}); install milrec {version('milrec')} there, "
                "with the same Python packages"
            ) from None
        return found


def _refuse(node: Node, found: Look, marks: dict[str, str]) -> None:
    if found["version"] != version("milrec"):
        raise ClusterError(
            f"node {node.address} has milrec {found['version']}, and this is {version('milrec')}; "
            "install the same version everywhere"
        )
    for folder, mark in marks.items():
        if mark not in found["seen"]:
            raise ClusterError(
                f"node {node.address} does not see '{folder}'; use a folder that all nodes share, or object storage "
                "(s3://…)"
            )


def _counted(number: int, name: str) -> str:
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"


def _there(folder: Path) -> Path:
    """A folder, or the nearest one above it that is there."""
    return next(one for one in (folder.resolve(), *folder.resolve().parents) if one.is_dir())


def _mark(folder: Path) -> str:
    """An empty file with a name of its own, to see which nodes share a folder."""
    mark = folder / f".milrec-shared-{uuid.uuid4().hex}"
    mark.touch()
    return str(mark)


def _said(error: BaseException) -> str:
    """The last line of what Ray says, which names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else first_line(error)


def ray_library() -> Any:
    """Ray, or an error that says how to install it."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise SettingsError("`cluster` needs Ray: pip install 'milrec[cluster]'") from None
    return ray


@contextmanager
def joined(address: str) -> Iterator[Cluster]:
    """A cluster inside a `with` block: `local` starts one on this machine, `auto` joins the one that it is part of."""
    ray = ray_library()
    started = time.monotonic()
    _init(ray, address)
    try:
        post = f"milrec-{uuid.uuid4().hex}"
        notebook = _opened_post(ray, post, address)
        yield Cluster(ray, address, time.monotonic() - started, post, notebook)
    finally:
        ray.shutdown()


def _init(ray: Any, address: str) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": f"milrec-{uuid.uuid4().hex}"}
    if address == "local":
        ray.init("local", num_cpus=available(), include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
        return
    if address != "auto":
        _refuse_unreachable(address)
    try:
        ray.init(address, **quiet)
    except Exception as error:  # Ray raises many kinds
        where = "this machine is not part of a Ray cluster" if address == "auto" else f"'{address}' cannot be joined"
        raise ClusterError(f"{where} ({_said(error)}); start Ray with: ray start") from None


def _refuse_unreachable(address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise SettingsError(f"`cluster` must be local, auto or HOST:PORT, not '{address}'")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise ClusterError(f"no Ray cluster answers at '{address}' ({error.strerror or error})") from None


def _opened_post(ray: Any, name: str, address: str) -> Any:
    """Notes are kept where this process is, or on any node if it is outside."""
    options: dict[str, Any] = {"name": name, "num_cpus": 0}
    if not address.startswith("ray://"):
        here = ray.get_runtime_context().get_node_id()
        options["scheduling_strategy"] = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
    post = ray.remote(Post).options(**options).remote()
    try:
        ray.get(post.read.remote(), timeout=_PATIENCE)
    except Exception as error:
        raise ClusterError(f"the cluster does not run milrec's tasks ({_said(error)})") from None
    return post
