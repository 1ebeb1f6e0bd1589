"""The jobs of a run, several at a time, each by a worker: a process of its own here, or one elsewhere.

A plan is a generator: it yields jobs that may run side by side, is sent their outcomes, and yields the next ones. What
a job computes does not depend on how many others run with it. A process that has finished a job takes the next one.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from milrec.experiments.protocol import Broken, Ended, Event, Job, Outcome, Progress, read_event
from milrec.kernels.threads import available
from milrec.storage import write_json

_PATIENCE = 30  # seconds that a process may take to end
_PROCESS = "from milrec.entry import job; job()"

Outcomes = dict[str, Outcome]  # by the name of the job
Plan = Generator[list[Job], Outcomes, None]


class Watcher(Protocol):
    """Follows a run, for example to show its progress."""

    def stage(self, text: str) -> None:
        """Something begins."""

    def progress(self, job: Job, event: Progress) -> None:
        """A job has come this far."""

    def ended(self, job: Job, outcome: Outcome) -> None:
        """A job has ended."""


@dataclass
class _RunningPlan:
    """A plan with the jobs that it waits for and their outcomes so far."""

    plan: Plan
    waiting: list[Job] = field(default_factory=list)
    outcomes: Outcomes | None = None  # None: the plan has not started
    n_jobs: int = 0

    def advance(self, run: Path, watcher: Watcher) -> None:
        """Send the plan its outcomes until it asks for a job that is not finished yet, or ends."""
        while not self.waiting:
            try:
                wanted = next(self.plan) if self.outcomes is None else self.plan.send(self.outcomes)
            except StopIteration:
                return
            jobs = {job.name: job for job in wanted}
            finished = {name: outcome for name, job in jobs.items() if (outcome := job.finished(run)) is not None}
            for name, outcome in finished.items():
                watcher.ended(jobs[name], outcome)
            self.outcomes, self.n_jobs = finished, len(jobs)
            self.waiting = [job for name, job in jobs.items() if name not in finished]

    def add(self, job: Job, outcome: Outcome) -> bool:
        """Note an outcome; whether it was the last one that the plan waits for."""
        assert self.outcomes is not None
        self.outcomes[job.name] = outcome
        return len(self.outcomes) == self.n_jobs


class Worker(Protocol):
    """Does one job after another; what happens goes to the queue of events that it was hired with."""

    def start(self, job: Job) -> None:
        """Begin a job."""

    def outcome(self, job: Job) -> Outcome:
        """How its job ended; broken, if the worker was lost first."""

    def interrupt(self) -> None:
        """Ask it to write its checkpoint and stop."""

    def close(self) -> None:
        """Let it end; in the middle of a job, after it has written its checkpoint."""


class Crew(Protocol):
    """Who does the jobs of a run."""

    size: int  # workers at a time

    def hire(self, run: Path, events: queue.Queue[WorkerEvent]) -> Worker:
        """A new worker."""


WorkerEvent = tuple[Worker, Event | None]  # None: the worker is gone


class JobProcess:
    """A process of this machine that does one job after another."""

    def __init__(self, run: Path, threads: int, events: queue.Queue[WorkerEvent]) -> None:
        self.run, self.busy = run, False
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - what it prints before its first job; jobs have logs
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROCESS, str(run)],  # -P: no module from the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)},
            start_new_session=True,  # Ctrl-C reaches it through us; Windows ignores this
        )
        threading.Thread(target=self._listen, args=(events,), daemon=True).start()

    def start(self, job: Job) -> None:
        self.busy = True
        folder = job.folder(self.run)
        if not job.is_kept_in(self.run):
            shutil.rmtree(folder, ignore_errors=True)  # of a job with other settings
            folder.mkdir(parents=True)
            write_json(folder / "job.json", job.model_dump())
        for leftover in (folder / "result.json", folder / "log.txt"):
            leftover.unlink(missing_ok=True)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the process is gone, and its output will end
            self.process.stdin.write(job.name.encode() + b"\n")
            self.process.stdin.flush()

    def outcome(self, job: Job) -> Outcome:
        self.busy = False
        outcome = job.outcome(self.run)
        if outcome is not None:
            return outcome
        code = self.process.wait(_PATIENCE)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        words = self._last_words(job.folder(self.run) / "log.txt") if code > 0 else ""
        return Broken(error=f"its process {how}{words}")

    def interrupt(self) -> None:
        """Ask it to write its checkpoint and stop; on Windows, Ctrl-C has reached it already."""
        if self.busy and sys.platform != "win32":
            self.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Let it end; in the middle of a job, after it has written its checkpoint."""
        if self.busy:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()

    def _listen(self, events: queue.Queue[WorkerEvent]) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                if (event := read_event(line)) is not None:
                    events.put((self, event))
            self.process.wait()
        finally:
            events.put((self, None))

    def _last_words(self, log: Path) -> str:
        """The end of its log, or of what it printed before its first job."""
        self.errors.seek(0)
        text = log.read_text(errors="replace") if log.exists() else self.errors.read().decode(errors="replace")
        lines = text.strip().splitlines()
        return f": {lines[-1].strip()}" if lines else ""


class Processes:
    """Processes of this machine, among which its cores are divided."""

    def __init__(self, size: int | None = None) -> None:
        self.size = size or available()

    def hire(self, run: Path, events: queue.Queue[WorkerEvent]) -> Worker:
        return JobProcess(run, max(1, available() // self.size), events)


class _Pool:
    """The plans of a run, and the workers that do their jobs."""

    def __init__(self, plans: list[Plan], run: Path, watcher: Watcher, crew: Crew) -> None:
        self.plans = [_RunningPlan(plan) for plan in plans]
        self.run, self.watcher, self.crew = run, watcher, crew
        self.workers: list[Worker] = []
        self.assigned: dict[Worker, tuple[Job, _RunningPlan]] = {}
        self.events: queue.Queue[WorkerEvent] = queue.Queue()

    def carry_out(self) -> None:
        for plan in self.plans:
            plan.advance(self.run, self.watcher)
        while any(plan.waiting for plan in self.plans) or self.assigned:
            self._assign_jobs()
            worker, event = self._next_event()
            if event is None or isinstance(event, Ended):
                if event is None:
                    self.workers.remove(worker)
                self._end_job(worker)
                if event is None:
                    worker.close()
            elif worker in self.assigned:
                self.watcher.progress(self.assigned[worker][0], event)

    def close(self) -> None:
        for worker in self.workers:
            worker.interrupt()
        for worker in self.workers:
            worker.close()

    def _assign_jobs(self) -> None:
        """Give the jobs of earlier plans first to workers that are free, or start new ones."""
        for plan in self.plans:
            while plan.waiting:
                free = next((worker for worker in self.workers if worker not in self.assigned), None)
                if free is None:
                    if len(self.workers) >= self.crew.size:
                        return
                    free = self.crew.hire(self.run, self.events)
                    self.workers.append(free)
                job = plan.waiting.pop(0)
                self.assigned[free] = (job, plan)
                free.start(job)

    def _next_event(self) -> WorkerEvent:
        while True:
            try:
                return self.events.get(timeout=0.5)  # with a timeout, an interrupt is noticed at once
            except queue.Empty:
                continue

    def _end_job(self, worker: Worker) -> None:
        if worker not in self.assigned:
            return
        job, plan = self.assigned.pop(worker)
        outcome = worker.outcome(job)
        last = plan.add(job, outcome)
        self.watcher.ended(job, outcome)
        if last:
            plan.advance(self.run, self.watcher)


def carry_out(plans: list[Plan], run: Path, watcher: Watcher, crew: Crew) -> None:
    """Work through all plans, earlier ones first."""
    pool = _Pool(plans, run, watcher, crew)
    try:
        pool.carry_out()
    finally:
        pool.close()
