"""One step of a fit, twice: readable (dense rows, autograd) and fast (fused, compiled). Tests compare the two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milrec.kernels.rows import weighted_rows
from milrec.kernels.sparse import Rows, Transposed
from milrec.kernels.threads import Pool, over_users
from milrec.models.contract import GradientModel
from milrec.training.adam import Adam, RowGradient, matrix
from milrec.training.batches import Batch
from milrec.training.fused import FusedLoss
from milrec.training.settings import GradientFit
from milrec.training.targets import dense_targets


class SparseProduct:
    """W·v for sparse inputs, as a function that autograd knows; afterwards `gradient` holds W's."""

    def __init__(self, weight: Tensor, pool: Pool) -> None:
        self.weight, self.pool = weight, pool
        self.gradient: RowGradient | None = None

    def __call__(self, inputs: Rows, transposed: Transposed) -> Tensor:
        """The product for a batch's inputs, which come by user and by row of W."""
        result: Tensor = _Product.apply(self.weight, self, inputs, transposed)  # type: ignore[no-untyped-call]
        return result

    def value(self, inputs: Rows) -> Tensor:
        product = torch.zeros(inputs.n_rows, self.weight.shape[1])
        parts = (self.weight.detach().numpy(), inputs.indptr, inputs.items, inputs.values, product.numpy())
        self.pool.run(over_users(weighted_rows, len(product), *parts))
        return product

    def keep(self, transposed: Transposed, slopes: Tensor) -> None:
        left = slopes.detach().contiguous().numpy()
        self.gradient = RowGradient(transposed, left, left[:0])


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, product: SparseProduct, inputs: Rows, transposed: Transposed) -> Tensor:
        ctx.product, ctx.transposed = product, transposed
        return product.value(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        ctx.product.keep(ctx.transposed, gradients[0])
        return None, None, None, None


Step = Callable[[Batch, float], float]  # batch, learning rate → mean loss of its users


def batch_loss(model: GradientModel, batch: Batch, settings: GradientFit) -> Tensor:
    """Mean over the batch's users of the sum over their target sets (equation 4), and what a model adds to it."""
    latent, penalty = _fitting_latent(model, model.enter(batch.inputs), batch)
    logits = model.decode(latent)  # (n_batch, n_items)
    targets = dense_targets(batch.targets, model.n_items, settings.loss.needs_pairs).to(logits.device)
    return settings.loss(logits, model.preference(logits), targets).mean() + penalty


def readable_step(model: GradientModel, settings: GradientFit, optimiser: Adam) -> Step:
    """Dense rows and autograd: how a paper would write it."""
    decay = decay_slopes(model, settings)

    def step(batch: Batch, rate: float) -> float:
        loss = batch_loss(model, batch, settings)
        names, weights = zip(*optimiser.parameters.items(), strict=True)
        gradients = torch.autograd.grad(loss, weights, allow_unused=True)
        touched = _touched_rows(model, batch, settings)
        optimiser.step += 1
        for name, gradient in zip(names, gradients, strict=True):
            if gradient is None:
                continue
            if name in touched:
                optimiser.update_touched(name, gradient, touched[name], rate, decay.get(name, 0.0))
            else:
                optimiser.update(name, gradient, rate, decay.get(name, 0.0))
        return loss.item()

    return step


def fast_step(model: GradientModel, settings: GradientFit, optimiser: Adam, pool: Pool) -> Step:
    """Sparse inputs, fused decoder, compiled Adam: the same result to rounding."""
    decay = decay_slopes(model, settings)
    fused = FusedLoss(model, settings.loss, pool)
    first = None if model.first_layer is None else SparseProduct(optimiser.parameters[model.first_layer], pool)
    sparse = (model.first_layer, "decoder_weight", "decoder_bias")
    between = {name: value for name, value in optimiser.parameters.items() if name not in sparse}

    def step(batch: Batch, rate: float) -> float:
        for value in between.values():
            value.grad = None
        entering = model.enter(batch.inputs) if first is None else first(batch.inputs, batch.transposed)
        latent, penalty = _fitting_latent(model, entering, batch)
        if not latent.requires_grad:  # a frozen encoder: the decoder is fitted alone
            latent = latent.detach().requires_grad_()
        loss = fused(latent, batch.targets) + penalty
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step += 1
        gradients = dict(fused.gradients)
        if first is not None and first.gradient is not None:
            gradients[str(model.first_layer)] = first.gradient
        gradients |= {name: _dense(value.grad) for name, value in between.items() if value.grad is not None}
        tasks = [optimiser.row_tasks(name, part, rate, decay.get(name, 0.0)) for name, part in gradients.items()]
        pool.run([task for several in tasks for task in several])
        return loss.item()

    return step


def decay_slopes(model: GradientModel, settings: GradientFit) -> dict[str, float]:
    """Slope of the weight decay per unit of weight: of λ(‖W‖² + ‖W'‖²) (equation 9), or of
    λ/D·(‖W‖²/rows + ‖W'‖²/rows) (equation 14). Biases, and what a model has between W and W', do not decay.
    """
    strength = 2 * settings.training.weight_decay
    if settings.training.weight_decay_form == "plain":
        return dict.fromkeys(model.decayed(), strength)
    weights = dict(model.named_parameters())
    return {name: strength / model.width / len(weights[name]) for name in model.decayed()}


def _touched_rows(model: GradientModel, batch: Batch, settings: GradientFit) -> dict[str, Tensor]:
    """Rows of each weight that a step touches, where it does not touch all."""
    targets, rows = batch.targets, {}
    if model.first_layer is not None and settings.touches_few_rows:
        rows[model.first_layer] = batch.transposed.rows
    if targets.items is not None:
        decoder = np.unique(np.concatenate([targets.items, targets.adopted.items, targets.rejected.items]))
        rows |= {"decoder_weight": decoder, "decoder_bias": decoder}
    return {name: torch.from_numpy(own).long().to(model.decoder_bias.device) for name, own in rows.items()}


def _fitting_latent(model: GradientModel, entering: Tensor, batch: Batch) -> tuple[Tensor, Tensor | float]:
    noise = None if batch.noise is None else torch.from_numpy(batch.noise).to(entering.device)
    return model.fitting_latent(entering, noise, batch.iteration)


def _dense(gradient: Tensor) -> RowGradient:
    values = matrix(gradient.contiguous()).numpy()
    rows = np.arange(len(values), dtype=np.int32)
    nothing = np.zeros(0, dtype=np.float32)
    no_pairs = Transposed(rows, np.zeros(len(rows) + 1, dtype=np.int64), rows[:0], nothing)
    return RowGradient(no_pairs, values[:0], values)
