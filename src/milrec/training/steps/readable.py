"""One step of a fit as a paper would write it: dense rows and autograd. Tests compare it with the fast one."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from milrec.models.contract import GradientModel
from milrec.training.batches import Batch
from milrec.training.settings import GradientFit
from milrec.training.steps.adam import Adam, matrix
from milrec.training.steps.slopes import Places, Slope, Slopes
from milrec.training.steps.step import decay_slopes, fitting_latent
from milrec.training.targets import dense_targets


def batch_loss(model: GradientModel, batch: Batch, settings: GradientFit) -> Tensor:
    """Mean over the batch's users of the sum over their target sets (equation 4), each user as important as the fit has
    it, and what a model adds to it.
    """
    latent, penalty = fitting_latent(model, model.enter(batch.inputs), batch)
    logits = model.decode(latent)  # (n_batch, n_items)
    targets = dense_targets(batch.targets, model.n_items, settings.loss.needs_pairs).to(logits.device)
    importance = torch.from_numpy(batch.targets.importance).to(logits.device)
    return (importance * settings.loss(logits, model.preference(logits), targets)).mean() + penalty


class ReadableStep:
    """Gradients by autograd, and Adam in torch."""

    def __init__(self, model: GradientModel, settings: GradientFit, optimiser: Adam) -> None:
        self.model, self.settings, self.optimiser = model, settings, optimiser
        self.decay = decay_slopes(model, settings)

    def __call__(self, batch: Batch, rate: float) -> float:
        slopes = self.slopes(batch)
        self.move(slopes, rate)
        return slopes.loss

    def slopes(self, batch: Batch) -> Slopes:
        loss = batch_loss(self.model, batch, self.settings)
        names, weights = zip(*self.optimiser.parameters.items(), strict=True)
        found = torch.autograd.grad(loss, weights, allow_unused=True)
        touched = touched_rows(self.model, batch, self.settings)
        gradients = {name: gradient for name, gradient in zip(names, found, strict=True) if gradient is not None}
        return Slopes(loss.item(), {name: _slope(value, touched.get(name)) for name, value in gradients.items()})

    def move(self, slopes: Slopes, rate: float) -> None:
        self.optimiser.step += 1
        for name, slope in slopes.by_weight.items():
            decay = self.decay.get(name, 0.0)
            if slope.rows is None:
                self.optimiser.update(name, slope.values, rate, decay)
            else:
                rows = torch.from_numpy(slope.rows).long().to(slope.values.device)
                self.optimiser.update_touched(name, slope.values, rows, rate, decay)


def touched_rows(model: GradientModel, batch: Batch, settings: GradientFit) -> dict[str, Places]:
    """Rows of each weight that a step touches, where it does not touch all."""
    targets, rows = batch.targets, {}
    if model.first_layer is not None and settings.touches_few_rows:
        rows[model.first_layer] = batch.transposed.rows
    if targets.items is not None:
        decoder = np.unique(np.concatenate([targets.items, targets.adopted.items, targets.rejected.items]))
        rows |= {"decoder_weight": decoder, "decoder_bias": decoder}
    return rows


def _slope(gradient: Tensor, rows: Places | None) -> Slope:
    values = matrix(gradient.contiguous())
    if rows is None:
        return Slope(None, values)
    return Slope(rows, values[torch.from_numpy(rows).long().to(values.device)])
