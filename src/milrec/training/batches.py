"""Batches of users, prepared ahead of the step that takes them (the paper feeds them by queues).

The order of epoch e and the draws of step t come from generators seeded with (seed, e) and (seed, t): a fit that goes
on from a checkpoint makes the very same batches as one that was never broken off.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from milrec.data.interactions import Interactions
from milrec.kernels.sparse import Rows, Turned
from milrec.models.factors import encoder_inputs, with_own_rows
from milrec.models.settings import (
    CollaborativeSettings,
    FactorizationSettings,
    GradientSettings,
    VariationalSettings,
)
from milrec.training.presets import FitSettings
from milrec.training.targets import TargetSet, draw_targets, n_missing_drawn, samples

_BATCHES_AHEAD = 3


@dataclass(frozen=True)
class Batch:
    """A batch of users, ready for a step."""

    inputs: Rows  # what the encoder sees: adopted items, the user's own number, or both
    turned: Turned  # the same by row of the encoder's weight
    targets: TargetSet
    noise: npt.NDArray[np.float32] | None = None  # (n_batch, n_factors) ε of a variational autoencoder
    annealing: float = 0.0  # β: the weight of its KL divergence


def batches(train: Interactions, settings: FitSettings, seed: int, steps: range) -> Iterator[tuple[int, Batch]]:
    """Batches of the given steps, prepared by a second thread."""
    ready: queue.Queue[tuple[int, Batch] | BaseException | None] = queue.Queue(maxsize=_BATCHES_AHEAD)
    ended = threading.Event()

    def prepare() -> None:
        try:
            maker = _BatchMaker(train, settings)
            for iteration in steps:
                epoch, place = divmod(iteration, maker.per_epoch)
                if iteration == steps.start or place == 0:
                    order = np.random.default_rng([seed, 3, epoch]).permutation(train.n_users)
                users = order[place * maker.batch_size : (place + 1) * maker.batch_size]
                random = np.random.default_rng([seed, 4, iteration])
                _put(ready, (iteration, maker.batch(users, iteration, random)), ended)
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
            yield item
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
        assert settings.training is not None and settings.training.batch_size is not None
        self.train, self.settings = train, settings
        self.batch_size = settings.training.batch_size
        self.per_epoch = -(-train.n_users // self.batch_size)
        model = settings.model
        assert isinstance(model, GradientSettings)
        self.model = model
        n_item_rows = 0 if isinstance(model, FactorizationSettings) else train.n_items
        has_users = isinstance(model, FactorizationSettings | CollaborativeSettings)
        self.first_user_row = n_item_rows if has_users else None  # of the encoder's weight
        n_rows = n_item_rows + (train.n_users if has_users else 0)
        self.counts = np.zeros(n_rows, dtype=np.int64)
        self.first_rows = np.arange(0 if samples(settings) else n_rows, dtype=np.int32)  # a sampled step touches few
        factor = settings.target_set.target_factor if settings.target_set else 1.0
        self.n_drawn = n_missing_drawn(train.adopted, factor)

    def batch(self, users: npt.NDArray[np.int64], iteration: int, random: np.random.Generator) -> Batch:
        adopted, rejected = Rows.of(self.train.adopted, users), Rows.of(self.train.rejected, users)
        targets = draw_targets(adopted, rejected, self.train.n_items, self.settings.target_set, self.n_drawn, random)
        inputs, model = Rows.none(len(users)), self.model
        if not isinstance(model, FactorizationSettings):
            inputs = corrupted(encoder_inputs(adopted, model.input_weights), model.corruption, random)
        if self.first_user_row is not None:
            inputs = with_own_rows(inputs, self.first_user_row + users)
        turned = inputs.turned(self.first_rows, self.counts)
        if not isinstance(model, VariationalSettings):
            return Batch(inputs, turned, targets)
        noise = random.standard_normal((len(users), model.n_factors), dtype=np.float32)
        return Batch(inputs, turned, targets, noise, annealing(model, iteration))


def annealing(model: VariationalSettings, iteration: int) -> float:
    """β of a step: from 0 at the first one straight up to the cap."""
    return model.annealing_cap * min(1.0, iteration / model.annealing_steps)


def corrupted(inputs: Rows, corruption: float, random: np.random.Generator) -> Rows:
    """Inputs with each entry hidden with the given probability, the others scaled up so that the mean stays."""
    if corruption == 0:
        return inputs
    seen = random.random(len(inputs.items), dtype=np.float32) >= corruption
    indptr = np.concatenate([[0], np.cumsum(seen)])[inputs.indptr]
    return Rows(indptr, inputs.items[seen], inputs.values[seen] / np.float32(1 - corruption))
