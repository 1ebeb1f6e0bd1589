"""One step of a fit, fast: sparse inputs, fused decoder, compiled Adam. The same as the readable one to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from milrec.kernels.rows import gathered_rows, weighted_rows
from milrec.kernels.sparse import Rows, Transposed
from milrec.kernels.threads import Pool, over_users
from milrec.models.contract import GradientModel
from milrec.training.batches import Batch
from milrec.training.settings import GradientFit
from milrec.training.steps.adam import Adam, RowGradient, matrix
from milrec.training.steps.fused import FusedLoss
from milrec.training.steps.slopes import Slope, Slopes
from milrec.training.steps.step import decay_slopes, fitting_latent


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


class FastStep:
    """Gradients that Adam gathers row by row, without spelling them out."""

    def __init__(self, model: GradientModel, settings: GradientFit, optimiser: Adam, pool: Pool) -> None:
        self.model, self.optimiser, self.pool = model, optimiser, pool
        self.decay = decay_slopes(model, settings)
        self.fused = FusedLoss(model, settings.loss, pool)
        weights, layer = optimiser.parameters, model.first_layer
        self.first = None if layer is None else SparseProduct(weights[layer], pool)
        sparse = (layer, "decoder_weight", "decoder_bias")
        self.between = {name: value for name, value in weights.items() if name not in sparse}
        self.few_rows = {"decoder_weight", "decoder_bias"} if settings.samples else set()
        self.few_rows |= {layer} if layer is not None and settings.touches_few_rows else set()

    def __call__(self, batch: Batch, rate: float) -> float:
        loss, gradients = self._gradients(batch)
        self._update(gradients, rate)
        return loss

    def slopes(self, batch: Batch) -> Slopes:
        loss, gradients = self._gradients(batch)
        return Slopes(loss, {name: self._slope(name, part) for name, part in gradients.items()})

    def move(self, slopes: Slopes, rate: float) -> None:
        self._update({name: _spelled_out(slope) for name, slope in slopes.by_weight.items()}, rate)

    def _gradients(self, batch: Batch) -> tuple[float, dict[str, RowGradient]]:
        for value in self.between.values():
            value.grad = None
        model, first = self.model, self.first
        entering = model.enter(batch.inputs) if first is None else first(batch.inputs, batch.transposed)
        latent, penalty = fitting_latent(model, entering, batch)
        if not latent.requires_grad:  # a frozen encoder: the decoder is fitted alone
            latent = latent.detach().requires_grad_()
        loss = self.fused(latent, batch.targets) + penalty
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = dict(self.fused.gradients)
        if first is not None and first.gradient is not None:
            gradients[str(model.first_layer)] = first.gradient
        return loss.item(), gradients | {
            name: _spelled_out(Slope(None, matrix(value.grad.contiguous())))
            for name, value in self.between.items()
            if value.grad is not None
        }

    def _update(self, gradients: dict[str, RowGradient], rate: float) -> None:
        self.optimiser.step += 1
        tasks = [
            self.optimiser.row_tasks(name, part, rate, self.decay.get(name, 0.0)) for name, part in gradients.items()
        ]
        self.pool.run([task for several in tasks for task in several])

    def _slope(self, name: str, gradient: RowGradient) -> Slope:
        """A gradient row by row, in memory of its own."""
        rows, n_columns = gradient.sparse.rows, matrix(self.optimiser.parameters[name]).shape[1]
        values = torch.empty(len(rows), n_columns)
        parts = (*vars(gradient.sparse).values(), gradient.left, gradient.dense)
        self.pool.run(over_users(gathered_rows, len(rows), parts, values.numpy()))
        return Slope(rows if name in self.few_rows else None, values)


def _spelled_out(slope: Slope) -> RowGradient:
    """A gradient whose rows are known, as Adam takes it."""
    values = slope.values.numpy()
    rows = np.arange(len(values), dtype=np.int32) if slope.rows is None else slope.rows
    nothing = np.zeros(0, dtype=np.float32)
    no_pairs = Transposed(rows, np.zeros(len(rows) + 1, dtype=np.int64), rows[:0], nothing)
    return RowGradient(no_pairs, values[:0], values)
