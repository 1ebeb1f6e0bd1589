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
import torch
from torch import Tensor

from milrec.config import AutoencoderSettings
from milrec.interactions import Interactions
from milrec.losses import Targets
from milrec.models import corrupted, encoder_inputs
from milrec.presets import FitSettings
from milrec.sampling import draw_partners, draw_targets, n_missing_drawn

_BATCHES_AHEAD = 3


@dataclass(frozen=True)
class Batch:
    """A batch of users, ready for a step."""

    users: Tensor  # (n_batch,) row numbers
    inputs: Tensor  # (n_batch, n_items) what the encoder sees; empty for matrix factorization
    targets: Targets


def batches(
    train: Interactions, settings: FitSettings, seed: int, steps: range, device: torch.device
) -> Iterator[tuple[int, Batch]]:
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
        assert settings.training is not None
        self.train, self.settings = train, settings
        self.batch_size = settings.training.batch_size
        self.per_epoch = -(-train.n_users // self.batch_size)
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
        return self.settings.target_set is None or self.settings.target_set.target_set in (
            "per_user",
            "shared",
        )


def _moved(batch: Batch, device: torch.device) -> Batch:
    return Batch(batch.users.to(device), batch.inputs.to(device), batch.targets.to(device))
