"""fit(model, train, settings) → History: optimiser, learning rate, early stopping, checkpoints, resume."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from milrec.data.interactions import Interactions
from milrec.errors import FitError, SettingsError, cut
from milrec.interrupts import pause_point
from milrec.kernels.threads import thread_pool
from milrec.models.contract import GradientModel
from milrec.training.adam import Adam
from milrec.training.batches import batches, steps_per_epoch, without_singles
from milrec.training.checkpoints import FitState, fingerprint
from milrec.training.initial import start
from milrec.training.progress import History, Progress, Validate, Watch
from milrec.training.sections import Shape
from milrec.training.settings import GradientFit
from milrec.training.steps import Step, fast_step, readable_step

_SHORTEST_RUN = 5_000  # steps, at most, of a fit without a set length on small data
_LARGEST_RATE = 1e37  # Adam's first step is ten times as large
_AVERAGE_EVERY = 5  # steps between two updates of the running mean of the weights
_CLEAR_FALL = 0.01  # of the best measure; two validations in a row so far below it end a fit
_LONGEST_RUN = 200  # epochs, at most, of a fit without a set length


def fit(model: GradientModel, train: Interactions, settings: GradientFit, seed: int, watch: Watch) -> History:
    """Fit a model to the training part; it ends with the weights that were best on validation, or within the slack.

    Without validation, the last weights stay. With a checkpoint path, the fit writes its state there every so often,
    and resumes from the file if it exists.
    """
    settings = settings.for_data(Shape.of(train))
    training = settings.training
    if settings.peak_rate > _LARGEST_RATE:
        raise FitError(f"learning_rate {settings.peak_rate:g} is beyond single precision; lower it")
    device = _device(training.device)
    identity = fingerprint(train, settings, seed)
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
        try:
            _run(state, train, settings, seed, step, watch)
        except KeyboardInterrupt:
            if watch.checkpoint is not None and state.whole and state.iteration:
                state.write(watch.checkpoint)
            raise
    state.restore_best()
    if not all(bool(value.isfinite().all()) for value in model.parameters()):
        raise FitError(f"the weights are not finite; lower learning_rate (now {settings.peak_rate:g})")
    model.to("cpu").eval()
    return state.history


def _run(state: FitState, train: Interactions, settings: GradientFit, seed: int, step: Step, watch: Watch) -> None:
    """Step until the end, or until validation has not improved for long enough."""
    training = settings.training
    steps = _Steps(train.n_users, settings, state.model.smallest_batch)
    started = time.monotonic() - (state.history.seconds[-1] if state.history.seconds else 0.0)
    written = time.monotonic()
    last = state.iteration if _exhausted(state.history, settings) else steps.last
    for batch in batches(train, state.model, settings, seed, range(state.iteration, last)):
        state.whole = False
        with _fitting(state.model, seed, batch.iteration):
            loss = step(batch, steps.learning_rate(batch.iteration))
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
        if watch.checkpoint is not None and time.monotonic() - written >= training.checkpoint_seconds:
            state.write(watch.checkpoint)
            written = time.monotonic()
        pause_point("fit step", state.iteration)


@contextmanager
def _fitting(model: GradientModel, seed: int, iteration: int) -> Iterator[None]:
    """The model in training mode; what it draws itself (dropout) depends only on the seed and the step."""
    model.train()
    if not model.draws:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.SeedSequence([seed, 7, iteration]).generate_state(1)[0]))
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
            yield fast_step(state.model, settings, state.optimiser, pool)
        return
    before = torch.get_num_threads()
    torch.set_num_threads(training.threads or before)
    try:
        yield readable_step(state.model, settings, state.optimiser)
    finally:
        torch.set_num_threads(before)


def _checked(loss: float, settings: GradientFit) -> float:
    if not math.isfinite(loss):
        raise FitError(f"the loss became {loss}; lower learning_rate (now {settings.peak_rate:g})")
    return loss


class _Steps:
    """How many steps there are, when to validate, and the learning rate of each."""

    def __init__(self, n_users: int, settings: GradientFit, smallest_batch: int = 1) -> None:
        training = settings.training
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
