"""One step of a fit, twice: readable (dense rows, autograd) and fast (fused, compiled). Tests hold the two together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from milrec.adam import Adam, RowGradient, matrix
from milrec.batches import Batch
from milrec.encoding import SparseProduct
from milrec.fused import FusedLoss
from milrec.models import Factors, MatrixFactorization
from milrec.presets import FitSettings
from milrec.rows import Turned
from milrec.sampling import dense_targets
from milrec.workers import Workers

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
