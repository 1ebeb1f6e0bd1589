"""The process that does the jobs of a run: it fits one model with one seed and judges it, then takes the next job.

It reads the names of jobs from standard input, one per line, and writes events to standard output (see protocol.py).
It ends when its input does.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from milrec.data.splits import Split
from milrec.errors import FitError, MilrecError, system_sentence
from milrec.evaluation.evaluation import Evaluation
from milrec.evaluation.validation import validation_measure
from milrec.experiments.memory import forget_peak_memory, peak_memory
from milrec.experiments.protocol import (
    JOBS,
    Curve,
    Done,
    Ended,
    Event,
    Failed,
    Fitting,
    GivenUp,
    Job,
    Judging,
    Outcome,
)
from milrec.fits import fit, refit
from milrec.interrupts import Interruptible
from milrec.kernels.threads import available
from milrec.measured import AIMED, AimPoint, DialPoint, Evaluated, aimed_measure
from milrec.recommender import Recommender
from milrec.results import FitHistory, FittedSettings
from milrec.storage import new_file, remove_file, write_json
from milrec.training.progress import History, Progress
from milrec.training.settings import fit_settings

_SECONDS_BETWEEN_EVENTS = 0.2
COMPARED = (  # by which models are compared user by user
    "recall@1",
    "ndcg@100",
    "auc_rejected",
    "true_ndcg@20",
    "short_share@200",
    "short_share@20",
    "long_share@200",
    "long_share@20",
)
_KEPT = (*COMPARED, "recall@20", "ndcg@20", "novelty_ndcg@100")  # for every user


Send = Callable[[Event], None]


class Hopeless(Exception):
    """A trial does worse than the median of those before it."""


def carry_out(job: Job, run: Path, send: Send) -> Outcome:
    """Fit, judge and keep; a fit that fails has an outcome too."""
    folder = job.folder(run)
    watch = _Watch(job, send)
    try:
        split = Split.load(run / "split")
        recommender = _fitted(job, folder, split, watch)
    except Hopeless:
        history = FitHistory.model_validate(vars(watch.history))
        return GivenUp(value=max(history.measures), history=history, peak_memory_mib=peak_memory())
    except MilrecError as error:
        return Failed(error=str(error))
    fitted = recommender.fitted
    done: dict[str, Any] = {
        "value": _value(job, split, recommender),
        "settings": FittedSettings.model_validate(fitted.settings.model_dump()),
        "history": None if fitted.history is None else FitHistory.model_validate(vars(fitted.history)),
        "fit_seconds": fitted.facts["fit_seconds"],
        "threads": available(),
    }
    if job.judged:
        if job.refit:
            recommender = _refitted(recommender, folder, split, watch)
        done |= _judged(job, folder, split, recommender, send)
    return Done(**done, peak_memory_mib=peak_memory())


def _fitted(job: Job, folder: Path, split: Split, watch: _Watch) -> Recommender:
    if (folder / "model").exists():
        return Recommender.load(folder / "model")
    checkpoint = folder / "checkpoint.safetensors"
    settings, resumed = fit_settings(job.settings), checkpoint.exists()
    with watch.interruptible:
        try:
            recommender = fit(split, settings, seed=job.seed, checkpoint=checkpoint, report=watch)
        except FitError:
            if not resumed:
                raise
            checkpoint.unlink()  # perhaps it was damaged
            recommender = fit(split, settings, seed=job.seed, checkpoint=checkpoint, report=watch)
    if job.judged:
        recommender.save(folder / "model")
    return recommender


def _refitted(recommender: Recommender, folder: Path, split: Split, watch: _Watch) -> Recommender:
    """The same model fitted again on training and validation together, for as many steps as validation chose."""
    if (folder / "refitted").exists():
        return Recommender.load(folder / "refitted")
    with watch.interruptible:
        again = refit(split, recommender, folder / "refit.safetensors", watch)
    again.save(folder / "refitted")
    return again


def _value(job: Job, split: Split, recommender: Recommender) -> float | None:
    """The validation measure: a trial's best, or that of the weights kept; None without a validation part."""
    fitted = recommender.fitted
    if fitted.history is not None and fitted.settings.measure == job.measure:
        return fitted.history.kept if job.judged else fitted.history.best
    if not split.validation.targets.nnz:
        return None
    return validation_measure(job.measure, fitted.settings, split.train, split.validation)(fitted.model)


def _judged(job: Job, folder: Path, split: Split, recommender: Recommender, send: Send) -> dict[str, Any]:
    """The fields of `Done` about the test part."""

    def report(done: int, total: int) -> None:
        send(Judging(judged=done, total=total))

    evaluation = recommender.evaluate(split, "test", report)
    aimed = {share: recommender.evaluate(split, "test", report, long_share=share) for share in job.long_shares}
    per_user = {name: evaluation.per_user[name] for name in _KEPT if name in evaluation.per_user}
    per_user |= {aimed_measure(share): one.per_user[AIMED] for share, one in aimed.items()}
    _write_per_user(folder / "per_user.parquet", per_user)
    judged: dict[str, Any] = {"evaluation": Evaluated.model_validate(evaluation.as_json())}
    if aimed:
        judged["aimed"] = [_aim_point(share, one) for share, one in aimed.items()]
    if job.dials:
        judged["dialled"] = [
            _dial_point(dial, recommender.evaluate(split, "test", report, dial=dial)) for dial in job.dials
        ]
    return judged


def _dial_point(dial: float, evaluation: Evaluation) -> DialPoint:
    return DialPoint.model_validate({**_means(evaluation), "dial": dial})


def _aim_point(share: float, evaluation: Evaluation) -> AimPoint:
    return AimPoint.model_validate({**_means(evaluation), "long_share": share})


def _means(evaluation: Evaluation) -> dict[str, Any]:
    """The means alone."""
    return {name: value for name, value in evaluation.as_json().items() if isinstance(value, int | float)}


def _write_per_user(path: Path, columns: dict[str, npt.NDArray[np.float64]]) -> None:
    """Measures of single users, for paired comparisons: users in the order of the test part."""
    with new_file(path) as draft:
        pq.write_table(pa.table({name: pa.array(values.astype(np.float32)) for name, values in columns.items()}), draft)


class _Watch:
    """Reports the progress of a fit, and stops a trial that is hopeless."""

    def __init__(self, job: Job, send: Send) -> None:
        self.send, self.sent_at = send, 0.0
        self.history = History()
        self.hopeless = _pruner(job.rivals) if job.rivals else None
        self.interruptible = Interruptible()

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self.sent_at >= _SECONDS_BETWEEN_EVENTS or progress.iteration == progress.total:
            self.sent_at = now
            self.send(Fitting(**{name: value for name, value in vars(progress).items() if name != "history"}))
        history = progress.history
        if history is not None and history.measures and history.iterations[-1] == progress.iteration:
            self.history = history
            loss, measure = history.losses[-1], history.measures[-1]
            sys.stderr.write(f"step {progress.iteration}: loss {loss:.5g}, validation {measure:.5f}\n")
            if self.hopeless is not None and self.hopeless(progress.iteration, max(history.measures)):
                raise Hopeless
        self.interruptible.check()


def _pruner(rivals: list[Curve]) -> Callable[[int, float], bool]:
    """Optuna's rule: is the best so far below the median of the rivals at the same step?

    Not before half the steps that the rivals took: early on, the eventual best is often slightly behind.
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


def _names() -> Iterator[str]:
    """The names of jobs as they come; when the input ends, the run is gone, and this process ends at once."""
    names: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            names.put(line.strip())
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield names.get()


def _outcome(path: Path, run: Path, send: Send) -> Outcome:
    """Of the job that a file describes; a full disk is a reason that may go away."""
    try:
        return carry_out(Job.read(path), run, send)
    except OSError as error:
        return Failed(error=system_sentence(error))


def main() -> None:
    run = Path(sys.argv[1])
    lines = os.fdopen(os.dup(1), "w")  # for events alone: what libraries print goes to the log
    os.dup2(2, 1)

    def send(event: Event) -> None:
        lines.write(event.model_dump_json() + "\n")
        lines.flush()

    for name in _names():
        path = run / JOBS / name / "job.json"
        with path.with_name("log.txt").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            forget_peak_memory()
            write_json(path.with_name("result.json"), _outcome(path, run, send).as_json())
            for checkpoint in ("checkpoint.safetensors", "refit.safetensors"):
                remove_file(path.with_name(checkpoint))
        send(Ended(name=name))
