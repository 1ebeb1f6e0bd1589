"""Progress bars, on standard error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from milrec.errors import printable
from milrec.experiments.protocol import Done, GivenUp, Job, Judging, Outcome
from milrec.experiments.protocol import Progress as JobProgress
from milrec.interrupts import Interruptible
from milrec.report.names import plain_names

if TYPE_CHECKING:
    from milrec.training.progress import Progress as FitProgress


@contextmanager
def progress_bar(title: str, unit: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar for work whose total becomes known as it proceeds."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    with _bar(Progress(*columns, console=_stderr(), transient=True), title) as report:
        yield report


@contextmanager
def bytes_bar(title: str) -> Iterator[Callable[[int, int | None], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with _bar(Progress(*columns, console=_stderr()), title) as report:
        yield report


@contextmanager
def _bar(progress: Progress, title: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar that appears with the first report, so that work which cannot start shows only its error."""
    task = progress.add_task(title, total=None)

    def report(done: int, total: int | None) -> None:
        progress.start()
        progress.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        _stop(progress)


class FitDisplay:
    """A bar with epoch, loss, validation measure, time passed and time left."""

    def __init__(self, title: str = "Fitting") -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[state]} left ≤"),
            TimeRemainingColumn(),
            console=_stderr(),
        )
        self.task = self.progress.add_task(title, total=None, state="")
        self.interruptible = Interruptible()

    def __enter__(self) -> FitDisplay:
        self.interruptible.__enter__()
        return self  # the bar appears with the first step, so that a fit which cannot start shows only its error

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        _stop(self.progress)
        self.interruptible.__exit__(kind, *error)

    def report(self, now: FitProgress) -> None:
        self.interruptible.check()
        self.progress.start()
        self.progress.update(self.task, completed=now.iteration, total=now.total, state=_state(now))


def _state(now: FitProgress) -> str:
    if now.epoch is None:
        return f"{now.iteration:,} of {now.total:,}"
    measure = "–" if now.measure is None else f"{now.measure:.4f} (best {now.best:.4f})"
    return f"epoch {now.epoch:.1f} loss {now.loss:.4g} val {measure}"


class RunDisplay:
    """A bar for all jobs of a run, with the time left, and one for each job that is running."""

    def __init__(self, n_jobs: int, names: Sequence[str] = ()) -> None:
        self.names = {name: plain.title for name, plain in plain_names(names).items()}  # of the models, for people
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=_stderr(),
        )
        self.n_jobs, self.n_ended = n_jobs, 0
        self.all = self.bars.add_task("All jobs", total=n_jobs, note=f"0 of {n_jobs}, left ≈")
        self.rows: dict[str, TaskID] = {}

    def __enter__(self) -> RunDisplay:
        return self

    def __exit__(self, *error: object) -> None:
        _stop(self.bars)

    def stage(self, text: str) -> None:
        self.bars.console.print(escape(printable(text)), soft_wrap=True)

    def progress(self, job: Job, event: JobProgress) -> None:
        self.bars.start()
        if job.name not in self.rows:
            self.rows[job.name] = self.bars.add_task(escape(printable(self.title(job))), total=None, note="")
        if isinstance(event, Judging):
            done, shown = event.judged, "evaluating, left ≤"
        else:
            epoch = "" if event.epoch is None else f"epoch {event.epoch:.1f} "
            best = "" if event.best is None else f"val {event.best:.4f} "
            done, shown = event.iteration, f"{epoch}{best}left ≤"
        self.bars.update(self.rows[job.name], completed=done, total=event.total, note=shown)

    def ended(self, job: Job, outcome: Outcome) -> None:
        self.bars.start()
        if job.name in self.rows:
            self.bars.remove_task(self.rows.pop(job.name))
        self.n_ended += 1
        self.bars.update(self.all, completed=self.n_ended, note=f"{self.n_ended} of {self.n_jobs}, left ≈")
        self.stage(f"{self.title(job)}: {outcome_text(outcome)}")

    def title(self, job: Job) -> str:
        """A job's title begins with the name of its model: the plain name is put in its place."""
        for end in (len(job.title), *(found.start() for found in re.finditer("[,:] ", job.title))):
            if job.title[:end] in self.names:
                return self.names[job.title[:end]] + job.title[end:]
        return job.title


def outcome_text(outcome: Outcome) -> str:
    """How a job ended, in a few words."""
    if isinstance(outcome, GivenUp):
        return f"given up at {outcome.value:.4f}, below the median of the others"
    if not isinstance(outcome, Done):
        return f"failed: {outcome.error}"
    text = "fitted" if outcome.value is None else f"validation {outcome.value:.4f}"
    accuracy = None if outcome.evaluation is None else outcome.evaluation.mean("ndcg@100")
    return text if accuracy is None else f"{text}, test NDCG@100 {accuracy:.4f}"


def _stop(progress: Progress) -> None:
    """Of a bar that never appeared, nothing is left either: rich would print an empty line."""
    if progress.live.is_started:
        progress.stop()


def _stderr() -> Console:
    return Console(stderr=True)
