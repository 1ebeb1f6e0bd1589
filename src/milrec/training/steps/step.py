"""What a step is, whichever engine takes it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from milrec.models.contract import GradientModel
from milrec.training.batches import Batch
from milrec.training.settings import GradientFit
from milrec.training.steps.adam import Decay
from milrec.training.steps.slopes import Slopes


class Step(Protocol):
    """A step of a fit: whole, or as the slopes of a slice and a move along the sum of them."""

    def __call__(self, batch: Batch, rate: float) -> float:
        """Move the weights by the gradient of a batch; the mean loss of its users."""

    def slopes(self, batch: Batch) -> Slopes:
        """The mean loss of some users and its gradient; no weight moves."""

    def move(self, slopes: Slopes, rate: float) -> None:
        """Move the weights along a gradient."""


def decay_slopes(model: GradientModel, settings: GradientFit) -> dict[str, Decay]:
    """Slope of the weight decay per unit of weight: of λ(‖W‖² + ‖W'‖²) (equation 9), of λ/D·(‖W‖²/rows + ‖W'‖²/rows)
    (equation 14), or of λ·Σ n_i/n·(‖W_i‖² + ‖W'_i‖²), n_i the adopters of item i and n their sum (1/rows where rows are
    no items, 1/items where they are rejected ones). Biases, and what a model has between W and W', do not decay.
    """
    strength = 2 * settings.training.weight_decay
    if settings.training.weight_decay_form == "plain":
        return dict.fromkeys(model.decayed(), strength)
    weights = dict(model.named_parameters())
    if settings.training.weight_decay_form == "popularity":
        of_items = {"decoder_weight", model.first_layer}
        shares = model.popularity / model.popularity.sum()  # (n_items,)
        rows = {name: len(weights[name]) for name in model.decayed()}
        return {name: strength * (_by_row(shares, n) if name in of_items else 1 / n) for name, n in rows.items()}
    return {name: strength / model.width / len(weights[name]) for name in model.decayed()}


def _by_row(shares: npt.NDArray[np.float64], n_rows: int) -> npt.NDArray[np.float64]:
    """The share of each item; rows after those of items are for rejected ones."""
    return np.concatenate([shares, np.full(n_rows - len(shares), 1 / len(shares))])


def fitting_latent(model: GradientModel, entering: Tensor, batch: Batch) -> tuple[Tensor, Tensor | float]:
    """h of a batch, and what the model adds to the loss."""
    noise = None if batch.noise is None else torch.from_numpy(batch.noise).to(entering.device)
    return model.fitting_latent(entering, noise, batch.iteration)
