"""fit(model, train, settings) → History: optimiser, learning rate, early stopping, checkpoints, resume."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor

from milrec.data.interactions import Interactions
from milrec.errors import FitError, SettingsError, cut
from milrec.interrupts import pause_point
from milrec.kernels.threads import thread_pool
from milrec.models.contract import GradientModel
from milrec.training.batches import Batch, Sliced, batches, steps_per_epoch, without_singles
from milrec.training.checkpoints import FitState, fingerprint
from milrec.training.initial import start
from milrec.training.progress import History, Progress, Validate, Watch
from milrec.training.sections import Shape
from milrec.training.settings import GradientFit
from milrec.training.steps.adam import Adam
from milrec.training.steps.fast import FastStep
from milrec.training.steps.readable import ReadableStep
from milrec.training.steps.slices import Alone, Exchange, SlicedStep, in_slices, whole
from milrec.training.steps.step import Step

_SHORTEST_RUN = 5_000  # steps, at most, of a fit without a set length on small data
_LARGEST_RATE = 1e37  # Adam's first step is ten times as large
_AVERAGE_EVERY = 5  # steps between two updates of the running mean of the weights
_CLEAR_FALL = 0.01  # of the best measure; two validations in a row so far below it end a fit
_NUMBERS_TOGETHER = 1 << 24
_LONGEST_RUN = 200  # epochs, at most, of a fit without a set length


def fit(model: GradientModel, train: Interactions, settings: GradientFit, seed: int, watch: Watch) -> History:
    """Fit a model to the training part; it ends with the weights that were best on validation, or within the slack.

    Without validation, the last weights stay. With a checkpoint path, the fit writes its state there every so often,
    and resumes from the file if it exists.
    """
    state = advance(model, train, settings, seed, watch)
    state.restore_best()
    if not all(_finite(value.detach()) for value in model.parameters()):
        rate = settings.for_data(Shape.of(train)).peak_rate
        raise FitError(f"the weights are not finite; lower learning_rate (now {rate:g})")
    model.to("cpu").eval()
    return state.history


def advance(
    model: GradientModel,
    train: Interactions,
    settings: GradientFit,
    seed: int,
    watch: Watch,
    exchange: Exchange | None = None,
) -> FitState:
    """Take all steps that are left of a fit; with an exchange, as one of several processes that share each step."""
    settings = settings.for_data(Shape.of(train))
    training = settings.training
    if settings.peak_rate > _LARGEST_RATE:
        raise FitError(f"learning_rate {settings.peak_rate:g} is beyond single precision; lower it")
    if training.slices > 1:
        refuse_slices(model)
    device = _device(training.device)
    identity = fingerprint(train, settings, seed)
    model.meet(train.popularity())
    if training.skip_singles:
        train = without_singles(train, model.smallest_batch)
    resumed = watch.checkpoint is not None and watch.checkpoint.exists()
    if not resumed:
        start(model, train, settings, seed)
    model.to(device)
    weights = {name: value for name, value in model.named_parameters() if value.requires_grad}
    state = FitState(model, Adam(weights), identity)
    if watch.checkpoint is not None and resumed:
        state.read(watch.checkpoint)
    with _stepping(state, settings, device) as step:
        drawing = partial(_fitting, model, seed, training.slices)
        shared = training.slices > 1 or exchange is not None
        take = in_slices(step, drawing, exchange or Alone()) if shared else whole(step, drawing)
        slices = batches(train, model, settings, seed, _left(state, train, settings), (exchange or Alone()).own)
        try:
            _run(state, slices, _Steps(train.n_users, settings, model.smallest_batch), take, watch)
        except KeyboardInterrupt:
            if watch.checkpoint is not None and watch.writes and state.whole and state.iteration:
                state.write(watch.checkpoint)
            raise
    return state


def refuse_slices(model: GradientModel) -> None:
    """Refuse a model that keeps running statistics of its batches: they would depend on who computes which slice."""
    if next(model.buffers(), None) is not None:
        raise SettingsError(
            f"model '{model.settings.model}' has buffers, such as running means of its batches, which slices of a step "
            "would change one by one; set slices=1"
        )


def _finite(values: Tensor) -> bool:
    """Whether all numbers are finite; a part at a time, as the answer for each takes memory."""
    flat = values.reshape(-1)
    parts = (flat[start : start + _NUMBERS_TOGETHER] for start in range(0, len(flat), _NUMBERS_TOGETHER))
    return all(bool(part.isfinite().all()) for part in parts)


def _left(state: FitState, train: Interactions, settings: GradientFit) -> range:
    """The steps that have not been taken yet."""
    last = _Steps(train.n_users, settings, state.model.smallest_batch).last
    return range(state.iteration, state.iteration if _exhausted(state.history, settings) else last)


def _run(state: FitState, slices: Iterator[Sliced], steps: _Steps, take: SlicedStep, watch: Watch) -> None:
    """Step until the end, or until validation has not improved for long enough."""
    settings = steps.settings
    training = settings.training
    started = time.monotonic() - (state.history.seconds[-1] if state.history.seconds else 0.0)
    written = time.monotonic()
    for batch in slices:
        state.whole = False
        state.model.train()
        loss = take(batch, steps.learning_rate(batch.iteration))
        state.loss_sum += _checked(loss, settings)
        state.loss_count += 1
        state.iteration = batch.iteration + 1
        if training.averaging and state.iteration % _AVERAGE_EVERY == 0:
            state.add_to_average(min(1.0, _AVERAGE_EVERY / (training.averaging * state.iteration)))
        if steps.validates(state.iteration):
            _validated(state, watch.validate, steps, time.monotonic() - started, training.slack)
        state.whole = True
        if watch.report is not None:
            watch.report(_progress(state, steps))
        if state.iteration == steps.last or _exhausted(state.history, settings):
            return
        due = watch.writes and time.monotonic() - written >= training.checkpoint_seconds
        if watch.checkpoint is not None and due:
            state.write(watch.checkpoint)
            written = time.monotonic()
        pause_point("fit step", state.iteration)


@contextmanager
def _fitting(model: GradientModel, seed: int, n_slices: int, batch: Batch) -> Iterator[None]:
    """What the model draws itself (dropout) depends only on the seed, the step and the slice."""
    if not model.draws:
        yield
        return
    own = [seed, 7, batch.iteration] + ([batch.place] if n_slices > 1 else [])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.SeedSequence(own).generate_state(1)[0]))
        yield


@contextmanager
def _stepping(state: FitState, settings: GradientFit, device: torch.device) -> Iterator[Step]:
    """The step of the chosen engine, with as many CPU threads as asked for; afterwards there are as many as before."""
    training = settings.training
    engine = training.engine or ("fast" if device.type == "cpu" else "readable")
    if engine == "fast":
        if device.type != "cpu":
            raise SettingsError("engine 'fast' is compiled for the CPU; leave engine out to fit on a GPU")
        with thread_pool(training.threads) as pool:
            yield FastStep(state.model, settings, state.optimiser, pool)
        return
    before = torch.get_num_threads()
    torch.set_num_threads(training.threads or before)
    try:
        yield ReadableStep(state.model, settings, state.optimiser)
    finally:
        torch.set_num_threads(before)


def _checked(loss: float, settings: GradientFit) -> float:
    if not math.isfinite(loss):
        raise FitError(f"the loss became {loss}; lower learning_rate (now {settings.peak_rate:g})")
    return loss


class _Steps:
    """How many steps there are, when to validate, and the learning rate of each."""

    def __init__(self, n_users: int, settings: GradientFit, smallest_batch: int = 1) -> None:
        training, self.settings = settings.training, settings
        self.per_epoch = steps_per_epoch(n_users, settings.batch_size, smallest_batch)
        longest = max(_LONGEST_RUN * self.per_epoch, _SHORTEST_RUN)
        self.total = training.iterations or (training.epochs * self.per_epoch if training.epochs else longest)
        self.last = min(training.until or self.total, self.total)
        self.between = settings.validate_every or max(self.per_epoch, 50)
        self.peak, self.schedule, self.warmup = settings.peak_rate, training.schedule, settings.rising_steps

    def validates(self, iteration: int) -> bool:
        return iteration % self.between == 0 or iteration == self.last

    def learning_rate(self, iteration: int) -> float:
        """Constant; falling to 0 linearly or as a half cosine, or rising for a third of the run before that; or rising
        for the warm-up and falling as 1/√step.
        """
        done = iteration / self.total
        if self.schedule == "linear":
            return self.peak * (1 - done)
        if self.schedule == "cosine":
            return self.peak * (1 + math.cos(math.pi * done)) / 2
        if self.schedule == "one_cycle":
            rise = 0.3
            if done < rise:
                return self.peak * (0.04 + 0.96 * done / rise)
            return self.peak * (1 + math.cos(math.pi * (done - rise) / (1 - rise))) / 2
        if self.schedule == "inverse_sqrt":
            return self.peak * min((iteration + 1) / self.warmup, math.sqrt(self.warmup / (iteration + 1)))
        return self.peak


def _validated(state: FitState, validate: Validate | None, steps: _Steps, seconds: float, slack: float) -> None:
    history = state.history
    history.iterations.append(state.iteration)
    history.epochs.append(round(state.iteration / steps.per_epoch, 3))
    history.losses.append(state.loss_sum / state.loss_count)
    history.seconds.append(round(seconds, 3))
    state.loss_sum, state.loss_count = 0.0, 0
    if validate is None:
        return
    with state.averaged():
        measure = validate(state.model)
        if history.best is None or measure > history.best - slack:
            state.keep_best()
    history.measures.append(measure)


def _exhausted(history: History, settings: GradientFit) -> bool:
    """Whether validation has not improved for long enough or, where weights are averaged, falls or no longer rises.

    What happens while the learning rate still rises is not counted: a fit may begin with a dip.
    """
    training, rising = settings.training, settings.rising_steps
    measures = [measure for step, measure in zip(history.iterations, history.measures, strict=False) if step >= rising]
    if training.patience and measures:
        waited = len(measures) - 1 - measures.index(max(measures))
        smooth = training.averaging > 0
        history.stopped_early |= waited >= training.patience or (
            smooth and (_falls(measures) or _no_longer_rises(measures, max(training.patience - 1, 1)))
        )
    return history.stopped_early


def _falls(measures: list[float]) -> bool:
    """Whether the last two are clearly below the best."""
    return max(measures[-2:]) < (1 - _CLEAR_FALL) * max(measures)


def _no_longer_rises(measures: list[float], several: int) -> bool:
    """Whether the last several are no better on average than as many before."""
    last, before = measures[-several:], measures[-2 * several : -several]
    return len(before) == several and sum(last) <= sum(before)


def _progress(state: FitState, steps: _Steps) -> Progress:
    history = state.history
    loss = state.loss_sum / state.loss_count if state.loss_count else history.losses[-1]
    measure = history.measures[-1] if history.measures else None
    epoch = state.iteration / steps.per_epoch
    return Progress(state.iteration, steps.last, epoch, loss, measure, history.best, history)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise SettingsError(f"unknown device '{cut(name)}'; known devices: auto, cpu, cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingsError("device 'cuda' is not available on this machine; set device=cpu")
    return device
