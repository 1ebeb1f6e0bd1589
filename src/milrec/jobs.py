"""A job of a run: one model fitted with one seed, and judged. `main` is a process that does the jobs it is told of.

All of a job is in RUN/jobs/NAME: what to do (`job.json`), the log, the checkpoint, and at the end `result.json`,
written whole or not at all. Names come by standard input, a line each, progress goes to standard output as lines of
JSON; where the input ends, the process does.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ConfigDict, Field

from milrec.checkpoints import History
from milrec.config import Settings, build
from milrec.errors import FitError, MilrecError
from milrec.evaluation import Evaluation, validation_measure
from milrec.folders import new_file, read_json, write_json
from milrec.interrupting import Interruptible
from milrec.presets import fit_settings
from milrec.recommender import Recommender, fit, refit
from milrec.splitting import Split
from milrec.training import Progress
from milrec.workers import available

_SECONDS_BETWEEN_LINES = 0.2
_TOLD = ("iteration", "total", "epoch", "loss", "measure", "best")
COMPARED = ("recall@1", "ndcg@100", "auc_rejected", "true_ndcg@20")  # by which models are compared user by user
_KEPT = (*COMPARED, "recall@20", "ndcg@20", "novelty_ndcg@100")  # of every user


Tell = Callable[[dict[str, Any]], None]


class Curve(Settings):
    """The validations of a trial that has ended."""

    iterations: list[int]
    measures: list[float]


class Job(Settings):
    """What one process does."""

    name: str
    title: str
    seed: int
    settings: dict[str, Any]
    measure: str = "ndcg@100"
    judged: bool = Field(True, description="judge on test and keep the model; False for a trial of a search")
    refit: bool = Field(False, description="judge the model fitted anew on training and validation together")
    dials: list[float] = Field(default_factory=list)
    rivals: list[Curve] = Field(default_factory=list, description="trials below the median of these are given up")

    def folder(self, run: Path) -> Path:
        return run / "jobs" / self.name

    def result(self, run: Path) -> dict[str, Any] | None:
        """What came of it, for better or worse."""
        path = self.folder(run) / "result.json"
        return build(Result, read_json(path), f"'{path}'").model_dump(exclude_unset=True) if path.exists() else None

    def finished(self, run: Path) -> dict[str, Any] | None:
        """Its result where it need not be tried again: the same job, and not one that failed."""
        result = self.result(run) if self.is_kept_in(run) else None
        return None if result is None or result["state"] == "failed" else result

    def is_kept_in(self, run: Path) -> bool:
        """Whether the folder of this name is of this very job."""
        path = self.folder(run) / "job.json"
        return path.exists() and read_json(path) == json.loads(json.dumps(self.model_dump()))


class Result(Settings):
    """What came of a job."""

    model_config = ConfigDict(extra="allow")
    state: Literal["done", "given up", "failed", "broken"]
    value: float | None = None
    error: str | None = None


class GivenUp(Exception):
    """A trial does worse than the median of those before it."""


def carry_out(job: Job, run: Path, tell: Tell) -> dict[str, Any]:
    """Fit, judge and keep; a sentence about what went wrong is a result too."""
    folder = job.folder(run)
    split = Split.load(run / "split")
    checkpoint = folder / "checkpoint.safetensors"
    watch = _Watch(job, tell)
    try:
        recommender = _fitted(job, folder, split, checkpoint, watch)
    except GivenUp:
        history = watch.history
        return {"state": "given up", "value": history.best, "history": vars(history), "peak_memory_mib": peak_memory()}
    except MilrecError as error:
        return {"state": "failed", "error": str(error)}
    fitted = recommender.fitted
    result = {
        "state": "done",
        "value": _value(job, split, recommender),
        "settings": fitted.settings.model_dump(),
        "history": None if fitted.history is None else vars(fitted.history),
        "fit_seconds": fitted.facts["fit_seconds"],
        "threads": available(),
    }
    if job.judged:
        if job.refit:
            recommender = _refitted(recommender, folder, split, watch)
        result |= _judged(job, folder, split, recommender, tell)
    return {**result, "peak_memory_mib": peak_memory()}


def _fitted(job: Job, folder: Path, split: Split, checkpoint: Path, watch: _Watch) -> Recommender:
    if (folder / "model").exists():
        return Recommender.load(folder / "model")
    settings, broken_off = fit_settings(job.settings), checkpoint.exists()
    with watch.interruptible:
        try:
            recommender = fit(split, settings, seed=job.seed, checkpoint=checkpoint, report=watch)
        except FitError:
            if not broken_off:
                raise
            checkpoint.unlink()  # perhaps it was damaged
            recommender = fit(split, settings, seed=job.seed, checkpoint=checkpoint, report=watch)
    if job.judged:
        recommender.save(folder / "model")
    return recommender


def _refitted(recommender: Recommender, folder: Path, split: Split, watch: _Watch) -> Recommender:
    """The same fitted anew on training and validation together, for as many steps as validation chose."""
    if (folder / "refitted").exists():
        return Recommender.load(folder / "refitted")
    with watch.interruptible:
        again = refit(split, recommender, folder / "refit.safetensors", watch)
    again.save(folder / "refitted")
    return again


def _value(job: Job, split: Split, recommender: Recommender) -> float | None:
    """The validation measure: of a trial the best it saw, of a model that is kept its own; None without validation."""
    fitted = recommender.fitted
    training = fitted.settings.training
    if fitted.history is not None and training is not None and training.measure == job.measure:
        return fitted.history.kept if job.judged else fitted.history.best
    if not split.validation.targets.nnz:
        return None
    return validation_measure(job.measure, fitted.settings, split.train, split.validation)(fitted.model)


def _judged(job: Job, folder: Path, split: Split, recommender: Recommender, tell: Tell) -> dict[str, Any]:
    def report(done: int, total: int) -> None:
        tell({"judged": done, "total": total})

    evaluation = recommender.evaluate(split, "test", report)
    _write_per_user(folder / "per_user.parquet", evaluation)
    dialled = [
        {"dial": dial, **_without_figures(recommender.evaluate(split, "test", report, dial=dial))} for dial in job.dials
    ]
    return {"evaluation": evaluation.as_json(), **({"dialled": dialled} if dialled else {})}


def _without_figures(evaluation: Evaluation) -> dict[str, Any]:
    """The means alone, as JSON."""
    return {name: value for name, value in evaluation.as_json().items() if isinstance(value, int | float)}


def _write_per_user(path: Path, evaluation: Evaluation) -> None:
    """Measures of single users, for paired comparisons: users in the order of the test part."""
    columns = {name: evaluation.per_user[name] for name in _KEPT if name in evaluation.per_user}
    with new_file(path) as draft:
        pq.write_table(pa.table({name: pa.array(values.astype(np.float32)) for name, values in columns.items()}), draft)


class _Watch:
    """Tells of a fit's progress, and gives up where it is hopeless."""

    def __init__(self, job: Job, tell: Tell) -> None:
        self.tell, self.told = tell, 0.0
        self.history = History()
        self.hopeless = _pruner(job.rivals) if job.rivals else None
        self.interruptible = Interruptible()

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self.told >= _SECONDS_BETWEEN_LINES or progress.iteration == progress.total:
            self.told = now
            self.tell({name: getattr(progress, name) for name in _TOLD})
        history = progress.history
        if history is not None and history.measures and history.iterations[-1] == progress.iteration:
            self.history = history
            loss, measure = history.losses[-1], history.measures[-1]
            sys.stderr.write(f"step {progress.iteration}: loss {loss:.5g}, validation {measure:.5f}\n")
            if self.hopeless is not None and self.hopeless(progress.iteration, max(history.measures)):
                raise GivenUp
        self.interruptible.check()


def _pruner(rivals: list[Curve]) -> Callable[[int, float], bool]:
    """Optuna's rule: is the best so far below the median of the rivals at the same step?

    Not asked before half the steps that the rivals took: early on, what will be best is often behind by a hair.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruner = optuna.pruners.MedianPruner(
        n_startup_trials=4,
        n_warmup_steps=int(np.median([rival.iterations[-1] for rival in rivals])) // 2,
        n_min_trials=3,
    )
    study = optuna.create_study(direction="maximize", pruner=pruner)
    for rival in rivals:
        steps = dict(zip(rival.iterations, rival.measures, strict=True))
        study.add_trial(optuna.trial.create_trial(value=max(rival.measures), intermediate_values=steps))
    trial = study.ask()

    def hopeless(iteration: int, best: float) -> bool:
        trial.report(best, iteration)
        return bool(trial.should_prune())

    return hopeless


def forget_peak_memory() -> None:
    """Measure the peak from here on, where the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """MiB that this process has held at most."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak / (1024 * 1024 if sys.platform == "darwin" else 1024))


def _names() -> Iterator[str]:
    """The names of jobs, one after another; where whoever gives them is gone, so is this process, at once."""
    names: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            names.put(line.strip())
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield names.get()


def main() -> None:
    run = Path(sys.argv[1])
    lines = os.fdopen(os.dup(1), "w")  # for us alone: what libraries print goes to the log
    os.dup2(2, 1)

    def tell(values: dict[str, Any]) -> None:
        lines.write(json.dumps(values) + "\n")
        lines.flush()

    for name in _names():
        path = run / "jobs" / name / "job.json"
        with path.with_name("log.txt").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            forget_peak_memory()
            job = build(Job, read_json(path), f"'{path}'")
            write_json(path.with_name("result.json"), carry_out(job, run, tell))
            for checkpoint in ("checkpoint.safetensors", "refit.safetensors"):
                path.with_name(checkpoint).unlink(missing_ok=True)
        tell({"ended": name})
