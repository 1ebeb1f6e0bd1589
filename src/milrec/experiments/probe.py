"""The process that times a few steps of each model on the data of a run (started by probes.py).

It reads one line of JSON from standard input, when it was started and a list of settings, and writes one line with a
timing for each of these. It ends when its input does.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from milrec.data.interactions import Interactions
from milrec.data.splits import Audience, HeldOut, Split
from milrec.errors import DataError, MilrecError
from milrec.evaluation.judging import evaluate
from milrec.evaluation.validation import validation_measure
from milrec.experiments.probes import Timing, Untimed
from milrec.training.progress import Progress, Watch
from milrec.training.sections import Shape
from milrec.training.settings import ClosedFormFit, FitSettings, GradientFit, fit_settings

_WARM_UP = 5  # steps: the first ones load what is compiled, and find their batches made already
_STEPS, _SECONDS = 5, 1.0  # a model is timed for at least so many steps, and for about so long
_MOST_STEPS = 100
_FEW, _MORE = 64, 640  # users whose lists are judged
_CELLS = 5_000_000  # users × items of the part on which a model without steps is fitted
_BY_PAIRS = ("popularity", "wmf")  # the time of their fits grows as the pairs do; others have items × items weights


def timed(settings: FitSettings, split: Split) -> Timing:
    """What a fit with these settings takes, and judging it."""
    return _closed_form(settings, split) if settings.training is None else _in_steps(settings, split)


class _Enough(Exception):
    """The steps that have been timed will do."""


class _Clock:
    """Notes when each step ends, and ends the fit when there are enough of them."""

    def __init__(self) -> None:
        self.times = [time.perf_counter()]
        self.last = Progress(0, 0)

    def __call__(self, progress: Progress) -> None:
        self.times.append(time.perf_counter())
        self.last = progress
        n_timed = len(self.times) - 1 - _WARM_UP
        if n_timed >= _MOST_STEPS or (n_timed >= _STEPS and self.times[-1] - self.times[_WARM_UP] >= _SECONDS):
            raise _Enough

    @property
    def step_seconds(self) -> float:
        """The mean after the warm-up; a fit that is shorter than this has its last step timed."""
        first = min(_WARM_UP, len(self.times) - 2)
        return (self.times[-1] - self.times[first]) / (len(self.times) - 1 - first)

    @property
    def start_seconds(self) -> float:
        """What comes before the first step."""
        return max(self.times[1] - self.times[0] - self.step_seconds, 0.0)

    @property
    def steps_per_epoch(self) -> float:
        return self.last.iteration / self.last.epoch if self.last.epoch else 1.0


def _in_steps(settings: GradientFit, split: Split) -> Timing:
    train = split.train
    settings = settings.for_data(Shape.of(train))
    model = settings.new_model(train.n_users, train.n_items, 0)
    clock = _Clock()
    with suppress(_Enough):
        settings.fit(model, train, 0, Watch(report=clock))
    model.to("cpu").eval()
    seconds = clock.start_seconds + clock.last.total * clock.step_seconds
    validates = bool(split.validation.targets.nnz)
    if validates:
        between = settings.validate_every or max(clock.steps_per_epoch, 50)

        def validate(some: HeldOut) -> None:
            validation_measure(settings.measure, settings, train, some)(model)

        one = _judging_seconds(validate, split.validation, settings.validation_users)
        seconds += (math.ceil(clock.last.total / between) + 1) * one  # at the end, probabilities are found there
    return Timing(
        fit_seconds=seconds,
        judge_seconds=_judging_seconds(lambda some: evaluate(model, settings, train, some), split.test),
        at_most=validates and settings.training.patience > 0,
        steps=clock.last.total,
        step_seconds=clock.step_seconds,
    )


def _closed_form(settings: ClosedFormFit, split: Split) -> Timing:
    """A model without steps is fitted to a part of the data, and its time is scaled up, generously."""
    whole = split.train
    share = min(1.0, math.sqrt(_CELLS / (whole.n_users * whole.n_items)))
    train = whole if share == 1 else _part(whole, share)
    model = settings.new_model(train.n_users, train.n_items, 0)
    settings.fit(model, train, 0, Watch())  # loads what is compiled
    fit = _seconds(lambda: settings.fit(model, train, 0, Watch()))
    rows = None if split.protocol == "users" else np.arange(train.n_users)
    own = HeldOut(Audience(train.adopted, train.rejected, train.adopted, rows), train.adopted, train.rejected, 0)
    each = _judging_seconds(lambda some: evaluate(model, settings, train, some), own) / train.n_users
    n_judged = np.count_nonzero(np.diff(split.test.targets.indptr))
    judging = float(each * n_judged / share)  # the whole catalogue is larger
    power = 2 if settings.model.model in _BY_PAIRS else 3
    return Timing(fit_seconds=fit / share**power + judging, judge_seconds=judging, at_most=share < 1)


def _part(train: Interactions, share: float) -> Interactions:
    """A share of the users and of the items, drawn at random, without items that none of them adopted."""
    random = np.random.default_rng(0)
    part = train.subset(_drawn(train.n_users, share, random), _drawn(train.n_items, share, random))
    if not part.adopted.nnz:
        raise DataError("the data are too sparse to time it on a part of them")
    return part.subset(np.ones(part.n_users, dtype=np.bool_), part.popularity() > 0)


def _drawn(number: int, share: float, random: np.random.Generator) -> npt.NDArray[np.bool_]:
    drawn = np.zeros(number, dtype=np.bool_)
    drawn[random.choice(number, max(round(share * number), 1), replace=False)] = True
    return drawn


def _judging_seconds(judge: Callable[[HeldOut], Any], held_out: HeldOut, most: int | None = None) -> float:
    """What it takes to judge all users, or `most` of them: from two samples, as part of it does not depend on them."""
    users = np.flatnonzero(np.diff(held_out.targets.indptr))
    if len(users) == 0:
        return 0.0
    few, more = (_some(held_out, users, size) for size in (_FEW, _MORE))
    judge(few)  # loads what is compiled
    first, second = _seconds(lambda: judge(few)), _seconds(lambda: judge(more))
    n_first, n_second = few.audience.n_users, more.audience.n_users
    each = max(second - first, 0.0) / max(n_second - n_first, 1)
    return second + each * max(min(len(users), most or len(users)) - n_second, 0)


def _some(held_out: HeldOut, users: npt.NDArray[np.int64], size: int) -> HeldOut:
    """Some of these users, from all over."""
    chosen = users[np.unique(np.linspace(0, len(users) - 1, min(size, len(users))).astype(np.int64))]
    targets, rejected = held_out.targets[chosen], held_out.rejected_targets[chosen]
    return HeldOut(held_out.audience.part(chosen), targets, rejected, 0)


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _end_with_the_run() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_run, daemon=True).start()
    lines = os.fdopen(os.dup(1), "w")  # for timings alone: what libraries print goes elsewhere
    os.dup2(2, 1)
    split = Split.load(sys.argv[1])
    start = max(time.time() - asked["started"], 0.0)
    for sections in asked["settings"]:
        try:
            found: Timing | Untimed = timed(fit_settings(sections), split).model_copy(update={"start_seconds": start})
        except MilrecError as error:
            found = Untimed(error=str(error))
        lines.write(found.model_dump_json() + "\n")
        lines.flush()
