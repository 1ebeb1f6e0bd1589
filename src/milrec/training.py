"""fit(model, train, settings) → History: batches, optimiser, early stopping, checkpoints, resume.

Nothing random is carried along: the draws of step t come from a generator seeded with (seed, t), so that a fit that
goes on from a checkpoint makes the very same steps as one that was never broken off.
"""

from __future__ import annotations

import json
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from milrec.config import AutoencoderSettings, TrainingSettings
from milrec.errors import FitError, SettingsError
from milrec.folders import new_file
from milrec.interactions import Interactions
from milrec.losses import Targets
from milrec.models import Factors, MatrixFactorization, corrupted, encoder_inputs, initialise, weight_decay
from milrec.presets import FitSettings
from milrec.sampling import draw_partners, draw_targets, n_missing_drawn

_BATCHES_AHEAD = 3
_SHORTEST_RUN = 5_000  # steps that a fit without a set length may take at most on small data
_LONGEST_RUN = 200  # epochs that a fit without a set length may take at most


@dataclass(frozen=True)
class Batch:
    """A batch of users, ready for a step."""

    users: Tensor  # (n_batch,) row numbers
    inputs: Tensor  # (n_batch, n_items) what the encoder sees; empty for matrix factorization
    targets: Targets


@dataclass(frozen=True)
class Progress:
    """What a progress bar shows."""

    iteration: int
    total: int
    epoch: float
    loss: float
    measure: float | None
    best: float | None


@dataclass
class History:
    """How a fit went, one entry per validation."""

    iterations: list[int] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    measures: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    best_iteration: int | None = None
    stopped_early: bool = False

    @property
    def best(self) -> float | None:
        return max(self.measures) if self.measures else None

    def validations_since_best(self) -> int:
        return len(self.measures) - 1 - self.measures.index(max(self.measures)) if self.measures else 0


Validate = Callable[[Factors], float]
Report = Callable[[Progress], None]


def fit(
    model: Factors,
    train: Interactions,
    settings: FitSettings,
    seed: int,
    validate: Validate | None = None,
    checkpoint: Path | None = None,
    report: Report | None = None,
) -> History:
    """Fit a model to the training part; it ends with the weights that were best on validation.

    `validate` measures the model (higher is better); without it the last weights stay. With a `checkpoint` path the
    fit writes its state there every so often and, where the file exists already, goes on from it.
    """
    training = _training(settings)
    device = _device(training.device)
    if training.threads is not None:
        torch.set_num_threads(training.threads)
    steps = _Steps(train.n_users, training)
    model.to(device)
    initialise(model, seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=training.learning_rate)
    state = _State(model, optimiser, _fingerprint(train, settings, seed))
    if checkpoint is not None and checkpoint.exists():
        state.read(checkpoint)
    started = time.monotonic() - (state.history.seconds[-1] if state.history.seconds else 0.0)
    written = time.monotonic()
    try:
        for iteration, batch in _batches(train, settings, steps, seed, state.iteration, device):
            state.whole = False
            state.loss_sum += _step(model, optimiser, batch, settings, steps.learning_rate(iteration))
            state.loss_count += 1
            state.iteration = iteration + 1
            if steps.validates(state.iteration):
                _validated(state, model, validate, steps, time.monotonic() - started)
            state.whole = True
            if report is not None:
                report(_progress(state, steps))
            finished = state.iteration == steps.total or _exhausted(state.history, training)
            if checkpoint is not None and not finished and time.monotonic() - written >= training.checkpoint_seconds:
                state.write(checkpoint)
                written = time.monotonic()
            if finished:
                break
    except KeyboardInterrupt:
        if checkpoint is not None and state.whole:
            state.write(checkpoint)
        raise
    state.restore_best()
    model.to("cpu")
    return state.history


class _Steps:
    """How many steps there are, when to validate, and the learning rate of each."""

    def __init__(self, n_users: int, training: TrainingSettings) -> None:
        self.n_users, self.batch_size = n_users, training.batch_size
        self.per_epoch = math.ceil(n_users / training.batch_size)
        longest = max(_LONGEST_RUN * self.per_epoch, _SHORTEST_RUN)
        self.total = training.iterations or (training.epochs * self.per_epoch if training.epochs else longest)
        self.between = training.validate_every or max(self.per_epoch, 50)
        self.peak, self.schedule = training.learning_rate, training.schedule

    def validates(self, iteration: int) -> bool:
        return iteration % self.between == 0 or iteration == self.total

    def learning_rate(self, iteration: int) -> float:
        """Constant; falling to 0 linearly or as a half cosine; or rising for a third of the run before that."""
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
        return self.peak


class _State:
    """Everything that changes during a fit; one safetensors file holds all of it."""

    def __init__(self, model: Factors, optimiser: torch.optim.Adam, fingerprint: str) -> None:
        self.model, self.optimiser, self.fingerprint = model, optimiser, fingerprint
        self.iteration = 0
        self.history = History()
        self.loss_sum, self.loss_count = 0.0, 0
        self.best: dict[str, Tensor] = {}
        self.whole = True  # False while a step or a validation is under way

    def keep_best(self) -> None:
        self.history.best_iteration = self.iteration
        self.best = {name: value.detach().clone() for name, value in self.model.named_parameters()}

    def restore_best(self) -> None:
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                if name in self.best:
                    value.copy_(self.best[name])

    def write(self, path: Path) -> None:
        tensors: dict[str, Tensor] = {}
        for name, value in self.model.named_parameters():
            tensors[f"weight.{name}"] = value.detach().cpu()
            for moment in ("exp_avg", "exp_avg_sq"):
                tensors[f"{moment}.{name}"] = self.optimiser.state[value][moment].cpu()
        tensors |= {f"best.{name}": value.cpu() for name, value in self.best.items()}
        state = {
            "fingerprint": self.fingerprint,
            "iteration": self.iteration,
            "loss_sum": self.loss_sum.hex(),
            "loss_count": self.loss_count,
            "history": asdict(self.history),
        }
        with new_file(path) as draft:
            save_file(tensors, draft, metadata={"milrec": json.dumps(state)})

    def read(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                state = json.loads((file.metadata() or {})["milrec"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise FitError(f"checkpoint '{path}' cannot be read ({error}); start over without --resume") from None
        if state.get("fingerprint") != self.fingerprint:
            raise FitError(
                f"checkpoint '{path}' belongs to a fit with other data, settings or seed; resume with the same ones, "
                "or start over with --force"
            )
        self.iteration, self.history = state["iteration"], History(**state["history"])
        self.loss_sum, self.loss_count = float.fromhex(state["loss_sum"]), state["loss_count"]
        self._take(tensors, path)

    def _take(self, tensors: dict[str, Tensor], path: Path) -> None:
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                parts = [tensors.get(f"{kind}.{name}") for kind in ("weight", "exp_avg", "exp_avg_sq")]
                if any(part is None or part.shape != value.shape for part in parts):
                    raise FitError(f"checkpoint '{path}' does not fit the model: '{name}' is missing or of another shape")
                weight, first, second = (part.to(value.device) for part in parts if part is not None)
                value.copy_(weight)
                moments = {"exp_avg": first, "exp_avg_sq": second}
                self.optimiser.state[value] = {"step": torch.tensor(float(self.iteration)), **moments}
                if f"best.{name}" in tensors:
                    self.best[name] = tensors[f"best.{name}"].to(value.device)


def _batches(
    train: Interactions, settings: FitSettings, steps: _Steps, seed: int, start: int, device: torch.device
) -> Iterator[tuple[int, Batch]]:
    """Batches from step `start` on, prepared ahead of the step by a second thread (the paper's queues)."""
    ready: queue.Queue[tuple[int, Batch] | BaseException | None] = queue.Queue(maxsize=_BATCHES_AHEAD)
    ended = threading.Event()

    def prepare() -> None:
        try:
            maker = _BatchMaker(train, settings)
            for iteration in range(start, steps.total):
                epoch, place = divmod(iteration, steps.per_epoch)
                if iteration == start or place == 0:
                    order = np.random.default_rng([seed, 3, epoch]).permutation(train.n_users)
                users = order[place * steps.batch_size : (place + 1) * steps.batch_size]
                _put(ready, (iteration, maker.batch(users, np.random.default_rng([seed, 4, iteration]))), ended)
                if ended.is_set():
                    return
            _put(ready, None, ended)
        except BaseException as error:
            _put(ready, error, ended)

    worker = threading.Thread(target=prepare, daemon=True, name="milrec-batches")
    worker.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item[0], _moved(item[1], device)
    finally:
        ended.set()
        worker.join()


def _put(ready: queue.Queue[Any], item: Any, ended: threading.Event) -> None:
    while not ended.is_set():
        try:
            ready.put(item, timeout=0.1)
            return
        except queue.Full:
            continue


class _BatchMaker:
    """Cuts users out of the training part and draws what is random about them."""

    def __init__(self, train: Interactions, settings: FitSettings) -> None:
        self.train, self.settings = train, settings
        model = settings.model
        self.inputs = (
            encoder_inputs(train.adopted, model.input_weights) if isinstance(model, AutoencoderSettings) else None
        )
        self.corruption = model.corruption if isinstance(model, AutoencoderSettings) else 0.0
        factor = settings.target_set.target_factor if settings.target_set else 1.0
        self.n_drawn = n_missing_drawn(train.adopted, factor)

    def batch(self, users: np.ndarray[Any, Any], random: np.random.Generator) -> Batch:
        adopted = (self.train.adopted[users].toarray() > 0).astype(np.float32)  # (n_batch, n_items)
        rejected = self.train.rejected[users].toarray()
        targets = draw_targets(adopted, rejected, self.settings.target_set, self.n_drawn, random)
        if self.settings.loss is not None and self.settings.loss.needs_pairs and self._draws_pairs():
            targets = Targets(targets.adopted, targets.rejected, targets.missing, draw_partners(adopted, random))
        inputs = np.zeros((len(users), 0), dtype=np.float32)
        if self.inputs is not None:
            inputs = corrupted(self.inputs[users].toarray(), self.corruption, random)
        return Batch(torch.from_numpy(users), torch.from_numpy(inputs), targets)

    def _draws_pairs(self) -> bool:
        return self.settings.target_set is None or self.settings.target_set.target_set in ("per_user", "shared")


def _step(
    model: Factors, optimiser: torch.optim.Adam, batch: Batch, settings: FitSettings, learning_rate: float
) -> float:
    """One step of Adam on the mean loss of the batch's users plus weight decay; returns that mean loss."""
    training = _training(settings)
    for group in optimiser.param_groups:
        group["lr"] = learning_rate
    optimiser.zero_grad()
    loss = batch_loss(model, batch, settings)
    decay = weight_decay(model, training.weight_decay, training.weight_decay_form)
    (loss + decay).backward()  # type: ignore[no-untyped-call]
    value = loss.item()
    if not math.isfinite(value):
        raise FitError(f"the loss became {value}; lower learning_rate (now {training.learning_rate:g})")
    optimiser.step()
    return value


def batch_loss(model: Factors, batch: Batch, settings: FitSettings) -> Tensor:
    """Mean over the batch's users of the sum over their target sets (equation 4)."""
    assert settings.loss is not None
    latent = model.encode(batch.users if isinstance(model, MatrixFactorization) else batch.inputs)
    logits = model.decode(latent)  # (n_batch, n_items)
    return settings.loss(logits, model.preference(logits), batch.targets).mean()


def _validated(state: _State, model: Factors, validate: Validate | None, steps: _Steps, seconds: float) -> None:
    history = state.history
    history.iterations.append(state.iteration)
    history.epochs.append(round(state.iteration / steps.per_epoch, 3))
    history.losses.append(state.loss_sum / state.loss_count)
    history.seconds.append(round(seconds, 3))
    state.loss_sum, state.loss_count = 0.0, 0
    if validate is None:
        return
    measure = validate(model)
    if history.best is None or measure > history.best:
        state.keep_best()
    history.measures.append(measure)


def _exhausted(history: History, training: TrainingSettings) -> bool:
    if training.patience and history.validations_since_best() >= training.patience:
        history.stopped_early = True
    return history.stopped_early


def _progress(state: _State, steps: _Steps) -> Progress:
    history = state.history
    loss = state.loss_sum / state.loss_count if state.loss_count else history.losses[-1]
    measure = history.measures[-1] if history.measures else None
    return Progress(state.iteration, steps.total, state.iteration / steps.per_epoch, loss, measure, history.best)


def _fingerprint(train: Interactions, settings: FitSettings, seed: int) -> str:
    """What two fits must share to be the same fit: data, settings (but for how often to write) and seed."""
    plain = settings.model_dump()
    plain["training"].pop("checkpoint_seconds")
    pairs = [int(np.bitwise_xor.reduce(_mixed(matrix))) for matrix in (train.adopted, train.rejected)]
    return json.dumps([plain, seed, train.n_users, train.n_items, pairs], sort_keys=True)


def _mixed(pairs: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """A number for each pair that depends on its place and on what it holds; xor-ed, they tell two matrices apart."""
    place = np.arange(1, pairs.nnz + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        mixed = (place ^ pairs.indices.astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
    result: np.ndarray[Any, np.dtype[np.uint64]] = mixed ^ pairs.data.view(np.uint32).astype(np.uint64)
    return result if len(result) else np.zeros(1, dtype=np.uint64)


def _training(settings: FitSettings) -> TrainingSettings:
    if settings.training is None:
        raise SettingsError(f"model '{settings.model.model}' is not fitted by gradient descent")
    return settings.training


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SettingsError(f"unknown device '{name}'; known devices: auto, cpu, cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingsError("device 'cuda' is not available on this machine; set device=cpu")
    return device


def _moved(batch: Batch, device: torch.device) -> Batch:
    if device.type == "cpu":
        return batch
    targets = batch.targets
    partner = None if targets.partner is None else targets.partner.to(device)
    moved = Targets(targets.adopted.to(device), targets.rejected.to(device), targets.missing.to(device), partner)
    return Batch(batch.users.to(device), batch.inputs.to(device), moved)
