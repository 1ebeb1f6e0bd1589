"""Fold-in: the latent of a user that a matrix factorization has not met, from what the user adopted alone.

The decoder stays as it is; the user's row w minimises the loss that fitting would give it: the user's own loss over
the expected target set, plus the user's share of the weight decay. The same steps every time, nothing drawn. For
weighted matrix factorization that row has a closed form.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from milrec.kernels.sparse import Rows
from milrec.losses import Targets
from milrec.models.factorization import MatrixFactorization, WeightedFactorization
from milrec.models.factors import activated
from milrec.training.presets import FitSettings
from milrec.training.targets import dense_targets, draw_targets

_STEPS = 150
_LEARNING_RATE = 0.1


def fold_in(model: MatrixFactorization, settings: FitSettings, adopted: Rows, rejected: Rows, n_drawn: int) -> Tensor:
    """Latents of new users, one row for each."""
    with torch.inference_mode(False), torch.enable_grad():  # whatever the caller has switched off
        return _minimised(model, settings, _expected_targets(model, settings, adopted, rejected, n_drawn))


def weighted_fold_in(model: WeightedFactorization, adopted: Rows) -> Tensor:
    """x = (Y'Y + Y'(C-I)Y + λI)⁻¹ Y'C p (Hu, Koren and Volinsky, equation 4), in double precision."""
    confidence, n_factors = model.settings.confidence, model.settings.n_factors
    factors = model.decoder_weight.detach().double()  # (n_items, n_factors)
    shared = factors.T @ factors + model.settings.regularization * torch.eye(n_factors, dtype=torch.float64)
    latent = torch.zeros(adopted.n_rows, n_factors)
    for user in np.flatnonzero(adopted.counts):
        items = adopted.items[adopted.indptr[user] : adopted.indptr[user + 1]]
        own = factors[torch.from_numpy(items)]  # (n_adopted, n_factors)
        matrix = shared + (confidence - 1) * own.T @ own
        row = torch.linalg.solve(matrix, confidence * own.sum(dim=0))  # (n_factors,)
        latent[user] = row.float()
    return latent


def _minimised(model: MatrixFactorization, settings: FitSettings, targets: Targets) -> Tensor:
    n_users = len(targets.adopted)
    row = model.encoder_weight.detach().mean(dim=0).repeat(n_users, 1).requires_grad_()  # (n_users, n_factors)
    optimiser = torch.optim.Adam([row], lr=_LEARNING_RATE)
    for step in range(_STEPS):
        optimiser.param_groups[0]["lr"] = _LEARNING_RATE * (1 - step / _STEPS)
        optimiser.zero_grad()
        _objective(model, settings, row, targets).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return _latent(model, row).detach()


def _objective(model: MatrixFactorization, settings: FitSettings, row: Tensor, targets: Targets) -> Tensor:
    """Σ over users of loss + decay: of the mean over |U| users in the fit, |U| times one user's share."""
    assert settings.loss is not None and settings.training is not None
    logits = _latent(model, row) @ model.decoder_weight.detach().T + model.decoder_bias.detach()  # (n_users, n_items)
    loss = settings.loss(logits, model.preference(logits), targets).sum()
    strength = settings.training.weight_decay
    if settings.training.weight_decay_form == "scaled":
        return loss + strength / model.settings.n_factors * row.square().sum()
    return loss + strength * len(model.encoder_weight) * row.square().sum()


def _latent(model: MatrixFactorization, row: Tensor) -> Tensor:
    return activated(row + model.encoder_bias.detach(), model.settings.encoder)


def _expected_targets(
    model: MatrixFactorization, settings: FitSettings, adopted: Rows, rejected: Rows, n_drawn: int
) -> Targets:
    target_set = settings.target_set
    if target_set is not None and target_set.target_set != "all":
        target_set = target_set.model_copy(update={"target_set": "expectation"})
    n_items = len(model.decoder_bias)
    nothing_is_drawn = np.random.default_rng(0)
    targets = draw_targets(adopted, rejected, n_items, target_set, n_drawn, nothing_is_drawn)
    return dense_targets(targets, n_items, pairs=False).to(model.decoder_bias.device)
