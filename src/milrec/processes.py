"""Jobs of a run in processes of their own, several at a time.

A plan is a generator: it yields jobs that may run at once, is sent their results, and yields the next ones. What a job
computes does not depend on how many others run beside it (but for EASE, in its last bits: products of matrices are
rounded by the number of threads). A process that has done its job takes the next one.
"""

from __future__ import annotations

import json
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
from typing import Any, Protocol

from milrec.folders import write_json
from milrec.jobs import Job
from milrec.workers import available

_PATIENCE = 30  # seconds that a process may take to end
_PROCESS = "from milrec.entry import job; job()"

Results = dict[str, dict[str, Any]]  # name of a job → its result
Plan = Generator[list[Job], Results, None]


class Watcher(Protocol):
    """Whoever watches a run is told these things."""

    def stage(self, text: str) -> None:
        """Something begins."""

    def progress(self, job: Job, values: dict[str, Any]) -> None:
        """A job is on its way: iteration, total, loss, measure; or judged, total."""

    def ended(self, job: Job, result: dict[str, Any]) -> None:
        """A job has ended: its result, with a state of done, given up, failed or broken."""


@dataclass
class _Pursuit:
    """A plan under way: the jobs that it waits for, and their results so far."""

    plan: Plan
    waiting: list[Job] = field(default_factory=list)
    results: Results | None = None  # None: the plan has not begun
    n_asked: int = 0


Event = tuple["_Hand", dict[str, Any] | None]  # what a process tells; None: it is gone


class _Hand:
    """A process that does one job after another."""

    def __init__(self, run: Path, threads: int, events: queue.Queue[Event]) -> None:
        self.job: Job | None = None
        self.pursuit: _Pursuit | None = None
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - what it says before its first job; jobs have logs
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROCESS, str(run)],  # -P: never a module from the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)},
            start_new_session=True,  # an interrupt reaches it through us
        )
        threading.Thread(target=self._listen, args=(events,), daemon=True).start()

    def take(self, job: Job, pursuit: _Pursuit, run: Path) -> None:
        self.job, self.pursuit = job, pursuit
        folder = job.folder(run)
        if not job.is_kept_in(run):
            shutil.rmtree(folder, ignore_errors=True)  # of a job with other settings
            folder.mkdir(parents=True)
            write_json(folder / "job.json", job.model_dump())
        for leftover in (folder / "result.json", folder / "log.txt"):
            leftover.unlink(missing_ok=True)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it is gone, which its silence tells
            self.process.stdin.write(job.name.encode() + b"\n")
            self.process.stdin.flush()

    def _listen(self, events: queue.Queue[Event]) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                with suppress(ValueError):  # not ours
                    events.put((self, json.loads(line)))
            self.process.wait()
        finally:
            events.put((self, None))

    def close(self) -> None:
        """Let it end; in the midst of a job, after it has written its checkpoint."""
        if self.job is not None:
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

    def last_words(self, log: Path) -> str:
        """The end of its log, or of what it said before its first job."""
        self.errors.seek(0)
        text = log.read_text(errors="replace") if log.exists() else self.errors.read().decode(errors="replace")
        lines = text.strip().splitlines()
        return f": {lines[-1].strip()}" if lines else ""


def carry_out(plans: list[Plan], run: Path, watcher: Watcher, at_once: int | None = None) -> None:
    """Work all plans off, earlier ones first, with so many processes at once as there are cores (or as asked for)."""
    at_once = at_once or available()
    pursuits = [_Pursuit(plan) for plan in plans]
    for pursuit in pursuits:
        _advance(pursuit, run, watcher)
    events: queue.Queue[Event] = queue.Queue()
    hands: list[_Hand] = []
    try:
        while any(pursuit.waiting for pursuit in pursuits) or any(hand.job for hand in hands):
            _hand_out(pursuits, hands, run, events, at_once)
            hand, values = _next(events)
            if hand.job is not None and values is not None and "ended" not in values:
                watcher.progress(hand.job, values)
                continue
            if values is None:
                hands.remove(hand)
            if hand.job is not None and hand.pursuit is not None:
                pursuit = hand.pursuit
                if _end(hand, pursuit, run, watcher) == pursuit.n_asked:
                    _advance(pursuit, run, watcher)
            if values is None:
                hand.close()
    finally:
        for hand in hands:
            if hand.job is not None:
                hand.process.send_signal(signal.SIGINT)  # it writes its checkpoint
        for hand in hands:
            hand.close()


def _hand_out(
    pursuits: list[_Pursuit], hands: list[_Hand], run: Path, events: queue.Queue[Event], at_once: int
) -> None:
    for pursuit in pursuits:
        while pursuit.waiting:
            free = next((hand for hand in hands if hand.job is None), None)
            if free is None:
                if len(hands) == at_once:
                    return
                free = _Hand(run, max(1, available() // at_once), events)
                hands.append(free)
            free.take(pursuit.waiting.pop(0), pursuit, run)


def _next(events: queue.Queue[Event]) -> Event:
    while True:
        try:
            return events.get(timeout=0.5)  # with a timeout an interrupt is noticed at once
        except queue.Empty:
            continue


def _advance(pursuit: _Pursuit, run: Path, watcher: Watcher) -> None:
    """Hand the results to a plan until it asks for a job that is not done yet, or has ended."""
    while not pursuit.waiting:
        try:
            wanted = next(pursuit.plan) if pursuit.results is None else pursuit.plan.send(pursuit.results)
        except StopIteration:
            return
        jobs = {job.name: job for job in wanted}
        done = {name: result for name, job in jobs.items() if (result := job.finished(run)) is not None}
        for name, result in done.items():
            watcher.ended(jobs[name], result)
        pursuit.results, pursuit.n_asked = done, len(jobs)
        pursuit.waiting = [job for name, job in jobs.items() if name not in done]


def _end(hand: _Hand, pursuit: _Pursuit, run: Path, watcher: Watcher) -> int:
    """Note the result of a job, and say how many its plan now has.

    Where its process died without a result it is broken, and a later run tries again.
    """
    job = hand.job
    assert job is not None and pursuit.results is not None
    result = job.result(run)
    if result is None:
        code = hand.process.wait(_PATIENCE)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        words = hand.last_words(job.folder(run) / "log.txt") if code > 0 else ""
        result = {"state": "broken", "error": f"its process {how}{words}"}
    hand.job = hand.pursuit = None
    pursuit.results[job.name] = result
    watcher.ended(job, result)
    return len(pursuit.results)
