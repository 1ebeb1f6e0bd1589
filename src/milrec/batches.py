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

from milrec.config import AutoencoderSettings
from milrec.interactions import Interactions
from milrec.models import encoder_inputs
from milrec.presets import FitSettings
from milrec.rows import Rows, Turned
from milrec.sampling import TargetSet, draw_targets, n_missing_drawn, samples

_BATCHES_AHEAD = 3


@dataclass(frozen=True)
class Batch:
    """A batch of users, ready for a step."""

    inputs: Rows  # what the encoder sees: adopted items; for matrix factorization the user's own number
    turned: Turned  # the same by row of the encoder's weight
    targets: TargetSet


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
        self.input_weights = model.input_weights if isinstance(model, AutoencoderSettings) else None
        self.corruption = model.corruption if isinstance(model, AutoencoderSettings) else 0.0
        n_rows = train.n_users if self.input_weights is None else train.n_items
        self.counts = np.zeros(n_rows, dtype=np.int64)
        self.first_rows = np.arange(0 if samples(settings) else n_rows, dtype=np.int32)  # a sampled step touches few
        factor = settings.target_set.target_factor if settings.target_set else 1.0
        self.n_drawn = n_missing_drawn(train.adopted, factor)

    def batch(self, users: npt.NDArray[np.int64], random: np.random.Generator) -> Batch:
        adopted, rejected = Rows.of(self.train.adopted, users), Rows.of(self.train.rejected, users)
        targets = draw_targets(adopted, rejected, self.train.n_items, self.settings.target_set, self.n_drawn, random)
        if self.input_weights is None:
            n = len(users)
            inputs = Rows(np.arange(n + 1), users.astype(np.int32), np.ones(n, dtype=np.float32))
        else:
            inputs = corrupted(encoder_inputs(adopted, self.input_weights), self.corruption, random)
        return Batch(inputs, inputs.turned(self.first_rows, self.counts), targets)


def corrupted(inputs: Rows, corruption: float, random: np.random.Generator) -> Rows:
    """Inputs with each entry hidden with the given probability, the others scaled up so that the mean stays."""
    if corruption == 0:
        return inputs
    seen = random.random(len(inputs.items), dtype=np.float32) >= corruption
    indptr = np.concatenate([[0], np.cumsum(seen)])[inputs.indptr]
    return Rows(indptr, inputs.items[seen], inputs.values[seen] / np.float32(1 - corruption))
