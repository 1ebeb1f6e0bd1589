"""A Ray cluster: started or joined, its nodes looked at before any work is handed out, and work done in order.

Plain tasks, not Ray Data: a task gets paths, numbers and texts, large results go to files, and results are taken in the
order of tasks, a few ahead. Ray starts a task again elsewhere if its process or its node dies.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from milrec.cluster.tasks import Look, Notebook, look, work
from milrec.errors import ClusterError, DataError, SettingsError, counted, first_line
from milrec.kernels.threads import available
from milrec.storage import MANIFEST, is_url

_RETRIES = 5  # of a task whose process or node died
_PATIENCE = 60.0  # seconds that a node may take to answer
_POLL = 0.25  # seconds between two looks at the progress
_AHEAD = 2  # tasks for each CPU that are handed out before others are done
_GREETING_SECONDS = 5.0  # that a cluster may take to answer at all
_FRAME_HEAD, _SETTINGS_FRAME = 9, 4  # of HTTP/2: the bytes before a frame's content, and the type of a first frame
_MOST_WAITING = 16  # results that wait for one before them

Told = Callable[[int, int], None]  # users that are done, and all users
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
    notebook: str  # the name of the actor that tasks leave notes with
    pages: Any  # the actor itself, which ends with its last handle

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
        """How large it is, and how long it took to start."""
        nodes = self.nodes()
        n_cpus = sum(node.n_cpus for node in nodes)
        return f"Ray: {counted(len(nodes), 'node')}, {counted(n_cpus, 'CPU')}; {self.seconds:.1f} s to start"

    def check(self, written: Sequence[Path], read: Sequence[str] = ()) -> None:
        """Refuse a cluster with a node that has another milrec, or does not see what has to be shared.

        Folders that are written are seen by a mark; what is read, a file or a milrec folder, must be there already.
        """
        marks = {str(folder): _mark(_there(folder)) for folder in written}
        there = {place: _first_file(place) for place in read if not is_url(place)}
        try:
            nodes = self.nodes()
            if not nodes:
                raise ClusterError(f"the cluster '{self.address}' has no node with a CPU to work on")
            all_of_it = {**marks, **there}
            asked = [(node, self._look(node, list(all_of_it.values()))) for node in nodes]
            for node, answer in asked:
                _refuse(node, self._answer(node, answer), all_of_it)
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
                while waiting and len(running) < most and len(done) < _MOST_WAITING:
                    number, arguments = waiting.popleft()
                    given = (task, f"{task}-{number}", self.notebook, version("milrec"), *arguments)
                    running[doing.remote(*given)] = number
                ready, _ = self.ray.wait(list(running), timeout=_POLL)
                for one in ready:
                    number = running.pop(one)
                    done[number] = self.result(one)
                notes(self.notes())
                while taken in done:
                    yield done.pop(taken)
                    taken += 1
        finally:
            self._cancel(list(running))

    def in_shards(self, task: str, calls: Sequence[Sequence[Any]], sizes: Sequence[int], told: Told) -> Iterator[Any]:
        """The same for shards of these sizes; `told` hears how many users are done, and how many there are."""
        done = [0] * len(sizes)

        def noted(notes: dict[str, Any]) -> None:
            for name, number in ((f"{task}-{place}", place) for place in range(len(sizes))):
                done[number] = max(done[number], notes.get(name, 0))
            told(sum(done), sum(sizes))

        for number, found in enumerate(self.in_order(task, calls, noted)):
            done[number] = sizes[number]
            yield found

    def _cancel(self, running: list[Any]) -> None:
        """End tasks, and wait until they have: Ray does not bear it if a driver leaves in the middle of that."""
        for one in running:
            self.ray.cancel(one, force=False)
        if running:
            self.ray.wait(running, num_returns=len(running), timeout=_PATIENCE)

    def start(self, task: str, name: str, arguments: Sequence[Any], n_cpus: int = 1) -> Any:
        """Hand out one task; a reference to its result."""
        doing = self.ray.remote(num_cpus=n_cpus, max_retries=_RETRIES)(work)
        return doing.remote(task, name, self.notebook, version("milrec"), *arguments)

    def finished(self, reference: Any, seconds: float) -> bool:
        """Wait a little for a task."""
        return bool(self.ray.wait([reference], timeout=seconds)[0])

    def notes(self) -> dict[str, Any]:
        """What tasks have noted last, by task; nothing, while the notebook is being started again."""
        try:
            found: dict[str, Any] = self.ray.get(self.pages.read.remote(), timeout=_PATIENCE)
        except self.ray.exceptions.RayError:
            return {}
        return found

    def result(self, reference: Any) -> Any:
        """Of a task that has ended; what went wrong there is an error here."""
        try:
            found = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except self.ray.exceptions.RayError as error:
            raise ClusterError(f"a task failed, even when tried again ({_said(error)})") from None
        if "error" in found:
            raise (DataError if found["of_data"] else ClusterError)(found["error"])
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
    for place, mark in marks.items():
        if mark not in found["seen"]:
            raise ClusterError(
                f"node {node.address} does not see '{place}'; use a folder that all nodes share, or object storage "
                "(s3://…)"
            )


def _first_file(place: str) -> str:
    """What shows that a node sees a place: the manifest of a milrec folder, or the file itself."""
    manifest = Path(place) / MANIFEST
    return str(manifest if manifest.exists() else place)


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
        notebook = f"milrec-{uuid.uuid4().hex}"
        pages = _opened_notebook(ray, notebook, address)
        yield Cluster(ray, address, time.monotonic() - started, notebook, pages)
    finally:
        ray.shutdown()


def _init(ray: Any, address: str) -> None:
    quiet: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "namespace": f"milrec-{uuid.uuid4().hex}",
    }
    if address == "local":
        quiet |= {"num_cpus": available(), "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    elif address != "auto":
        _refuse_unreachable(address)
    try:
        with _silenced():
            ray.init(address, **quiet)
    except Exception as error:  # Ray raises many kinds
        if address == "local":
            raise ClusterError(f"Ray cannot be started on this machine ({_said(error)})") from None
        where = "this machine is not part of a Ray cluster" if address == "auto" else f"'{address}' cannot be joined"
        raise ClusterError(f"{where} ({_said(error)}); start Ray with: ray start") from None


@contextmanager
def _silenced() -> Iterator[None]:
    """Ray's own libraries write to standard error what they try in vain; the exception says it in one sentence."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _refuse_unreachable(address: str) -> None:
    """Ray itself would try for minutes; this takes seconds."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise SettingsError(f"`cluster` must be local, auto, HOST:PORT or ray://HOST:PORT, not '{address}'")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_GREETING_SECONDS) as connection:
            encrypted = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
            if not encrypted and not _speaks_http2(connection):
                raise ClusterError(f"what answers at '{address}' is not a Ray cluster; check the host and the port")
    except OSError as error:
        raise ClusterError(f"no Ray cluster answers at '{address}' ({error.strerror or error})") from None


def _speaks_http2(connection: socket.socket) -> bool:
    """Whether the other side greets as Ray's gRPC does: with a frame of settings, before anything else (RFC 9113)."""
    connection.settimeout(_GREETING_SECONDS)
    try:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _SETTINGS_FRAME, 0, 0, 0, 0, 0]))
        head = b""
        while len(head) < _FRAME_HEAD and (more := connection.recv(_FRAME_HEAD - len(head))):
            head += more
    except OSError:
        return False
    return len(head) == _FRAME_HEAD and head[3] == _SETTINGS_FRAME


def _opened_notebook(ray: Any, name: str, address: str) -> Any:
    """Notes are kept where this process is, or on any node if it is outside."""
    options: dict[str, Any] = {"name": name, "num_cpus": 0, "max_restarts": -1}
    if not address.startswith("ray://"):
        here = ray.get_runtime_context().get_node_id()
        options["scheduling_strategy"] = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
    pages = ray.remote(Notebook).options(**options).remote()
    try:
        ray.get(pages.read.remote(), timeout=_PATIENCE)
    except Exception as error:
        raise ClusterError(f"the cluster cannot run milrec ({_said(error)}); install it on every node") from None
    return pages
