"""What a run and the processes of its jobs tell each other: the job to do, events on the way, and the outcome.

A job lives in RUN/jobs/NAME. `job.json` says what to do; `result.json`, there once the job has ended, holds the
outcome. Events are lines of JSON that the process writes to its standard output.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from milrec.disk.locks import locked
from milrec.errors import FolderError
from milrec.measured import AimPoint, DialPoint, Evaluated
from milrec.records import Record, damaged
from milrec.results import FitHistory, FittedSettings, TrialState
from milrec.settings import Settings, build
from milrec.storage import read_json

JOBS = "jobs"  # the folder of a run that holds them
LOCK = ".lock"  # the file that a process holds while it works in a run folder


class Fitting(Settings):
    """A fit has come this far."""

    model_config = ConfigDict(allow_inf_nan=True)  # a fit that diverges reports it until it fails

    event: Literal["fitting"] = "fitting"
    iteration: int
    total: int
    epoch: float | None = None
    loss: float | None = None
    measure: float | None = None
    best: float | None = None


class Judging(Settings):
    """The lists of so many users have been judged."""

    event: Literal["judging"] = "judging"
    judged: int
    total: int


class Ended(Settings):
    """The outcome of a job is in its folder."""

    event: Literal["ended"] = "ended"
    name: str


Progress = Fitting | Judging
Event = Fitting | Judging | Ended
_EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def read_event(line: bytes) -> Event | None:
    """The event on a line; None for a line that something else printed."""
    try:
        return _EVENTS.validate_json(line)
    except ValidationError:
        return None


class _Outcome(Record):
    state: TrialState

    def as_json(self) -> dict[str, Any]:
        return {"state": self.state, **super().as_json()}


class Done(_Outcome):
    """A model was fitted and, unless it was a trial of a search, judged on the test part."""

    state: Literal["done"] = "done"
    value: float | None = None  # the validation measure; None without a validation part
    settings: FittedSettings
    history: FitHistory | None = None
    fit_seconds: float
    threads: int | None = None
    evaluation: Evaluated | None = None
    dialled: tuple[DialPoint, ...] = ()
    aimed: tuple[AimPoint, ...] = ()
    peak_memory_mib: int | None = None


class GivenUp(_Outcome):
    """A trial was stopped because it did worse than most trials before it."""

    state: Literal["given up"] = "given up"
    value: float
    history: FitHistory
    peak_memory_mib: int | None = None


class Failed(_Outcome):
    """The fit could not be done, for a reason that may go away: a later run tries again."""

    state: Literal["failed"] = "failed"
    error: str


class Broken(_Outcome):
    """The process ended without an outcome; a later run tries again."""

    state: Literal["broken"] = "broken"
    error: str


Outcome = Done | GivenUp | Failed | Broken
_OUTCOMES: TypeAdapter[Outcome] = TypeAdapter(Annotated[Outcome, Field(discriminator="state")])


def read_outcome(path: Path) -> Outcome:
    try:
        return _OUTCOMES.validate_json(json.dumps(read_json(path)), strict=True)
    except ValidationError as error:
        raise damaged(error, f"'{path}'") from None


class Curve(Settings):
    """The validations of a trial that has ended."""

    iterations: list[int]
    measures: list[float]


class Job(Settings):
    """One model to fit with one seed."""

    name: str
    title: str
    seed: int
    settings: dict[str, Any]
    measure: str = "ndcg@100"
    judged: bool = Field(True, description="judge on test and keep the model; False for a trial of a search")
    refit: bool = Field(False, description="judge the model fitted again on training and validation together")
    dials: list[float] = Field(default_factory=list)
    long_shares: list[float] = Field(default_factory=list)
    rivals: list[Curve] = Field(default_factory=list, description="trials below the median of these are given up")

    @classmethod
    def read(cls, path: Path) -> Job:
        return build(cls, read_json(path), f"'{path}'")

    def folder(self, run: Path) -> Path:
        return run / JOBS / self.name

    def outcome(self, run: Path) -> Outcome | None:
        """How it ended; None if it has not."""
        return self._outcome_in(self.folder(run))

    def _outcome_in(self, folder: Path) -> Outcome | None:
        path = folder / "result.json"
        outcome = read_outcome(path) if path.exists() else None
        if isinstance(outcome, Done) and self.judged and outcome.evaluation is None:
            raise FolderError(f"'{path}' is damaged: the model was judged, and the evaluation is missing")
        return outcome

    def finished(self, run: Path) -> Outcome | None:
        """The outcome, if there is no need to try again: it belongs to this very job, and is not a failure."""
        outcome = self.outcome(run) if self.is_kept_in(run) else None
        return None if isinstance(outcome, Failed) else outcome

    def is_kept_in(self, run: Path) -> bool:
        """Whether the folder of this name belongs to this very job."""
        path = self.folder(run) / "job.json"
        return path.exists() and read_json(path) == json.loads(json.dumps(self.model_dump()))


def jobs_of(run: Path) -> list[tuple[Job, Outcome | None]]:
    """The jobs that a run has begun, with the outcomes of those that have ended."""
    jobs = [(path, Job.read(path)) for path in sorted((run / JOBS).glob("*/job.json"))]
    return [(job, job._outcome_in(path.parent)) for path, job in jobs]


def is_running(run: Path) -> bool:
    """Whether a process works in a run folder."""
    lock = run / LOCK
    if not lock.exists():
        return False
    with suppress(PermissionError), locked(lock) as free:  # in a folder of somebody else's we cannot tell
        return not free
    return False
