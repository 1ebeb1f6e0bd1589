"""Jobs of a run in processes of their own, several at a time.

A plan is a generator: it yields jobs that may run at once, is sent their results, and yields the next ones. What a job
computes never depends on how many others run beside it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from milrec.folders import write_json
from milrec.jobs import Job
from milrec.workers import available

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
    results: Results = field(default_factory=dict)
    asked: int = 0


@dataclass(frozen=True)
class _Running:
    job: Job
    pursuit: _Pursuit
    process: subprocess.Popen[bytes]


def carry_out(plans: list[Plan], run: Path, watcher: Watcher, at_once: int | None = None) -> None:
    """Work all plans off, earlier ones first, with so many processes at once as there are cores (or as asked for)."""
    at_once = at_once or available()
    pursuits = [_Pursuit(plan) for plan in plans]
    for pursuit in pursuits:
        _advance(pursuit, run, watcher, start=True)
    events: queue.Queue[tuple[_Running, dict[str, Any] | None]] = queue.Queue()
    running: list[_Running] = []
    try:
        while True:
            for pursuit in pursuits:
                while pursuit.waiting and len(running) < at_once:
                    running.append(_started(pursuit.waiting.pop(0), pursuit, run, events, at_once))
            if not running:
                return
            one, values = _next(events)
            if values is not None:
                watcher.progress(one.job, values)
                continue
            running.remove(one)
            _end(one, run, watcher)
            if len(one.pursuit.results) == one.pursuit.asked:
                _advance(one.pursuit, run, watcher)
    finally:
        _stop(running)


def _next(events: queue.Queue[tuple[_Running, dict[str, Any] | None]]) -> tuple[_Running, dict[str, Any] | None]:
    while True:
        try:
            return events.get(timeout=0.5)  # with a timeout an interrupt is noticed at once
        except queue.Empty:
            continue


def _advance(pursuit: _Pursuit, run: Path, watcher: Watcher, start: bool = False) -> None:
    """Hand the results to a plan until it asks for a job that is not done yet, or has ended."""
    while True:
        try:
            wanted = next(pursuit.plan) if start else pursuit.plan.send(pursuit.results)
        except StopIteration:
            pursuit.waiting, pursuit.results, pursuit.asked = [], {}, -1
            return
        start = False
        jobs = {job.name: job for job in wanted}
        done = {name: result for name, job in jobs.items() if (result := job.result(run)) is not None}
        for name, result in done.items():
            watcher.ended(jobs[name], result)
        pursuit.results, pursuit.asked = done, len(jobs)
        pursuit.waiting = [job for name, job in jobs.items() if name not in done]
        if pursuit.waiting:
            return


def _started(
    job: Job, pursuit: _Pursuit, run: Path, events: queue.Queue[tuple[_Running, dict[str, Any] | None]], at_once: int
) -> _Running:
    folder = job.folder(run)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "job.json", job.model_dump())
    threads = str(max(1, available() // at_once))
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "milrec.jobs", str(run), job.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads},
            start_new_session=True,  # an interrupt reaches it through us
        )
    one = _Running(job, pursuit, process)
    threading.Thread(target=_listen, args=(one, folder / "log.txt", events), daemon=True).start()
    return one


def _listen(one: _Running, log: Path, events: queue.Queue[tuple[_Running, dict[str, Any] | None]]) -> None:
    """Pass on what a process tells, and at last that it has ended; validations go to its log."""
    assert one.process.stdout is not None
    validations = 0
    for line in one.process.stdout:
        values = json.loads(line)
        if values.get("validations", 0) > validations:
            validations = values["validations"]
            with log.open("a") as file:
                file.write(f"step {values['iteration']}: loss {values['loss']:.5g}, measure {values['measure']:.5f}\n")
        events.put((one, values))
    one.process.wait()
    events.put((one, None))


def _end(one: _Running, run: Path, watcher: Watcher) -> None:
    """Note the result of a process; one that died without a result is broken: a later run tries again."""
    result = one.job.result(run)
    if result is None:
        lines = (one.job.folder(run) / "log.txt").read_text(errors="replace").strip().splitlines() or ["no message"]
        code = one.process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}: {lines[-1]}"
        result = {"state": "broken", "error": f"its process {how}"}
    one.pursuit.results[one.job.name] = result
    watcher.ended(one.job, result)


def _stop(running: list[_Running]) -> None:
    """Interrupt what still runs, so that it writes its checkpoint, and wait for it."""
    for one in running:
        one.process.send_signal(signal.SIGINT)
    for one in running:
        try:
            one.process.wait(30)
        except subprocess.TimeoutExpired:
            one.process.kill()
