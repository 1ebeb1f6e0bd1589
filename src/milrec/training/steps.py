"""One step of a fit, twice: readable (dense rows, autograd) and fast (fused, compiled). Tests hold the two together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milrec.kernels.rows import weighted_rows
from milrec.kernels.sparse import Rows, Turned
from milrec.kernels.threads import Workers, over_users
from milrec.models.factorization import MatrixFactorization
from milrec.models.factors import Factors
from milrec.training.adam import Adam, RowGradient, matrix
from milrec.training.batches import Batch
from milrec.training.fused import FusedLoss
from milrec.training.presets import FitSettings
from milrec.training.targets import dense_targets


class SparseProduct:
    """W·v for sparse inputs, as a function that autograd knows; `gradient` then holds W's."""

    def __init__(self, weight: Tensor, crew: Workers) -> None:
        self.weight, self.crew = weight, crew
        self.gradient: RowGradient | None = None

    def __call__(self, inputs: Rows, turned: Turned) -> Tensor:
        """The product for a batch's inputs, which come by user and by row of W."""
        result: Tensor = _Product.apply(self.weight, self, inputs, turned)  # type: ignore[no-untyped-call]
        return result

    def value(self, inputs: Rows) -> Tensor:
        product = torch.zeros(inputs.n_rows, self.weight.shape[1])
        parts = (self.weight.detach().numpy(), inputs.indptr, inputs.items, inputs.values, product.numpy())
        self.crew.run(over_users(weighted_rows, len(product), *parts))
        return product

    def keep(self, turned: Turned, slopes: Tensor) -> None:
        left = slopes.detach().contiguous().numpy()
        self.gradient = RowGradient(turned, left, left[:0])


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, product: SparseProduct, inputs: Rows, turned: Turned) -> Tensor:
        ctx.product, ctx.turned = product, turned
        return product.value(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        ctx.product.keep(ctx.turned, gradients[0])
        return None, None, None, None


Step = Callable[[Batch, float], float]  # batch, learning rate → mean loss of its users


def batch_loss(model: Factors, batch: Batch, settings: FitSettings) -> Tensor:
    """Mean over the batch's users of the sum over their target sets (equation 4), and what a model adds to it."""
    assert settings.loss is not None
    device, n_items = model.decoder_bias.device, len(model.decoder_bias)
    if isinstance(model, MatrixFactorization):
        product = model.encoder_weight[torch.from_numpy(batch.inputs.items).long().to(device)]
    else:
        dense = torch.from_numpy(batch.inputs.dense(len(model.encoder_weight))).to(device)  # (n_batch, n_inputs)
        product = dense @ model.encoder_weight
    latent, penalty = _fitting_latent(model, product, batch)
    logits = model.decode(latent)  # (n_batch, n_items)
    targets = dense_targets(batch.targets, n_items, settings.loss.needs_pairs).to(device)
    return settings.loss(logits, model.preference(logits), targets).mean() + penalty


def readable_step(model: Factors, settings: FitSettings, optimiser: Adam) -> Step:
    """Dense rows and autograd: how a paper would write it."""
    decay = decay_slopes(model, settings)

    def step(batch: Batch, rate: float) -> float:
        loss = batch_loss(model, batch, settings)
        names, weights = zip(*model.named_parameters(), strict=True)
        gradients = torch.autograd.grad(loss, weights)
        touched = _touched_rows(batch, model.decoder_bias.device)
        optimiser.step += 1
        for name, gradient in zip(names, gradients, strict=True):
            if name in touched:
                optimiser.update_touched(name, gradient, touched[name], rate, decay.get(name, 0.0))
            else:
                optimiser.update(name, gradient, rate, decay.get(name, 0.0))
        return loss.item()

    return step


def fast_step(model: Factors, settings: FitSettings, optimiser: Adam, crew: Workers) -> Step:
    """Sparse inputs, fused decoder, compiled Adam: the same result to rounding."""
    assert settings.loss is not None
    decay = decay_slopes(model, settings)
    fused = FusedLoss(model, settings.loss, crew)
    encoder = SparseProduct(model.encoder_weight, crew)
    sparse = ("encoder_weight", "decoder_weight", "decoder_bias")
    between = {name: value for name, value in model.named_parameters() if name not in sparse}

    def step(batch: Batch, rate: float) -> float:
        for value in between.values():
            value.grad = None
        latent, penalty = _fitting_latent(model, encoder(batch.inputs, batch.turned), batch)
        loss = fused(latent, batch.targets) + penalty
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step += 1
        assert encoder.gradient is not None
        gradients = {"encoder_weight": encoder.gradient, **fused.gradients}
        gradients |= {name: _dense(value) for name, value in between.items()}
        tasks = [optimiser.row_tasks(name, part, rate, decay.get(name, 0.0)) for name, part in gradients.items()]
        crew.run([task for several in tasks for task in several])
        return loss.item()

    return step


def decay_slopes(model: Factors, settings: FitSettings) -> dict[str, float]:
    """Slope of the weight decay per unit of weight: of λ(‖W‖² + ‖W'‖²) (equation 9), or of
    λ/D·(‖W‖²/rows + ‖W'‖²/rows) (equation 14). Biases, and what a model has between W and W', do not decay.
    """
    assert settings.training is not None
    strength = 2 * settings.training.weight_decay
    if settings.training.weight_decay_form == "plain":
        return {"encoder_weight": strength, "decoder_weight": strength}
    per_factor = strength / model.encoder_weight.shape[1]
    return {
        "encoder_weight": per_factor / len(model.encoder_weight),
        "decoder_weight": per_factor / len(model.decoder_weight),
    }


def _touched_rows(batch: Batch, device: torch.device) -> dict[str, Tensor]:
    """Rows of each weight that a sampled step touches; nothing where it touches all."""
    targets = batch.targets
    if targets.items is None:
        return {}
    decoder = np.unique(np.concatenate([targets.items, targets.adopted.items, targets.rejected.items]))
    rows = torch.from_numpy(decoder).long().to(device)
    encoder = torch.from_numpy(np.unique(batch.inputs.items)).long().to(device)
    return {"encoder_weight": encoder, "decoder_weight": rows, "decoder_bias": rows}


def _fitting_latent(model: Factors, product: Tensor, batch: Batch) -> tuple[Tensor, Tensor | float]:
    noise = None if batch.noise is None else torch.from_numpy(batch.noise).to(product.device)
    return model.fitting_latent(product, noise, batch.annealing)


def _dense(value: Tensor) -> RowGradient:
    assert value.grad is not None
    values = matrix(value.grad.contiguous()).numpy()
    rows = np.arange(len(values), dtype=np.int32)
    nothing = np.zeros(0, dtype=np.float32)
    no_pairs = Turned(rows, np.zeros(len(rows) + 1, dtype=np.int64), rows[:0], nothing)
    return RowGradient(no_pairs, values[:0], values)
