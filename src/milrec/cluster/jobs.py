"""`experiment` on a cluster: each job of a run is a task, and its process runs on the node that Ray chooses.

The run folder is shared: a job whose node is lost resumes from its checkpoint on another one.
"""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

from milrec.cluster.fitting import n_workers
from milrec.cluster.session import Cluster
from milrec.cluster.tasks import Note
from milrec.errors import MilrecError
from milrec.experiments.pool import JobProcess, Worker, WorkerEvent
from milrec.experiments.protocol import Broken, Ended, Event, Job, Outcome, read_event
from milrec.kernels.threads import available

_POLL = 0.25  # seconds


class ClusterCrew:
    """As many jobs at a time as the cluster has CPUs, or as asked for; its CPUs are divided among them."""

    def __init__(self, cluster: Cluster, size: int | None = None) -> None:
        self.cluster = cluster
        self.size = size or cluster.n_cpus
        self.n_cpus = n_workers(cluster.nodes(), self.size)[1]

    def hire(self, run: Path, events: queue.Queue[WorkerEvent]) -> Worker:
        return _ClusterWorker(self.cluster, self.n_cpus, run, events)


class _ClusterWorker:
    """A place for one job at a time on the cluster."""

    def __init__(self, cluster: Cluster, n_cpus: int, run: Path, events: queue.Queue[WorkerEvent]) -> None:
        self.cluster, self.n_cpus, self.run, self.events = cluster, n_cpus, run.resolve(), events
        self.reference: Any = None
        self.error = ""
        self._watch: threading.Thread | None = None

    def start(self, job: Job) -> None:
        self.error = ""
        (job.folder(self.run) / "result.json").unlink(missing_ok=True)  # of an earlier try, or of another job
        arguments = (str(self.run), job.model_dump_json())
        self.reference = self.cluster.start("job", job.name, arguments, self.n_cpus)
        self._watch = threading.Thread(target=self._follow, args=(job.name,), daemon=True)
        self._watch.start()

    def outcome(self, job: Job) -> Outcome:
        if self._watch is not None:
            self._watch.join()
        self.reference = None
        if self.error:
            return Broken(error=self.error)
        return job.outcome(self.run) or Broken(error="its process ended without a result")

    def interrupt(self) -> None:
        if self.reference is not None:
            self.cluster.ray.cancel(self.reference, force=False)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.join()

    def _follow(self, name: str) -> None:
        """Pass on what the job notes, until it has ended."""
        seen: str | None = None
        try:
            while not self.cluster.finished(self.reference, _POLL):
                note = self.cluster.notes().get(name)
                if note is not None and note != seen:
                    seen = note
                    self._pass_on(note)
            self.error = self.cluster.result(self.reference) or ""
        except MilrecError as error:
            self.error = str(error)
        except Exception as error:  # Ray's own: the task was cancelled, or the cluster is gone
            self.error = f"its task was lost ({type(error).__name__})"
        finally:
            self.events.put((self, Ended(name=name)))

    def _pass_on(self, note: str) -> None:
        event = read_event(note.encode())
        if event is not None and not isinstance(event, Ended):
            self.events.put((self, event))


def do_job(note: Note, run: str, text: str) -> str | None:
    """On a node: do one job in a process of its own, as on one machine; how that process died, if it did."""
    job = Job.model_validate_json(text)
    events: queue.Queue[WorkerEvent] = queue.Queue()
    process = JobProcess(Path(run), available(), events)
    try:
        process.start(job)
        while (event := _next(events)) is not None and not isinstance(event, Ended):
            note(event.model_dump_json())
        outcome = process.outcome(job)
        return outcome.error if isinstance(outcome, Broken) else None
    except BaseException:
        process.interrupt()
        raise
    finally:
        process.close()


def _next(events: queue.Queue[WorkerEvent]) -> Event | None:
    while True:
        try:
            return events.get(timeout=_POLL)[1]  # with a timeout, a cancelled task notices it
        except queue.Empty:
            continue
