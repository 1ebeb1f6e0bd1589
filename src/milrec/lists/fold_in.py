"""Fold-in: the latent of a user who is new to a matrix factorization, from what the user adopted.

The decoder stays as it is; the user's row w minimises the loss that fitting would give it: the user's own loss over
the expected target set, plus the user's share of the weight decay. The same steps every time, nothing drawn, and by our
own loops: a latent cannot depend on who else is folded in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from milrec.data.interactions import Interactions
from milrec.kernels.descent import descend, new_descent
from milrec.kernels.folding import (
    LINEAR,
    RELU,
    SIGMOID,
    TANH,
    latents_of_rows,
    multinomial_slopes_of_users,
    pair_slopes_of_users,
    slopes_of_rows,
    slopes_of_users,
)
from milrec.kernels.losses import MULTINOMIAL, PAIR_LOGITS
from milrec.kernels.rows import merged_cells
from milrec.models.factors import Factors
from milrec.models.inputs import Users
from milrec.training.settings import GradientFit
from milrec.training.steps.fused import compiled_loss
from milrec.training.targets import Draws, TargetSet, draw_targets, n_missing_drawn

_MOST_STEPS = 60  # a user takes 10 to 20 of them
_ACTIVATIONS = {"linear": LINEAR, "sigmoid": SIGMOID, "tanh": TANH, "relu": RELU}

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FoldIn:
    """Finds the latents of new users, with the loss, target set and weight decay of the fit."""

    model: Factors
    settings: GradientFit
    draws: Draws  # of missing items

    @classmethod
    def of(cls, model: Any, settings: Any, train: Interactions) -> FoldIn:
        n_drawn = n_missing_drawn(train.adopted, settings.target_factor)
        return cls(model, settings, Draws.by_popularity(np.zeros(model.n_items), n_drawn))  # no draw is shared

    def latents(self, users: Users) -> Tensor:
        """Latents of new users, one row for each."""
        latents = self._minimised(self._targets(users))
        return torch.from_numpy(latents).to(self.model.decoder_bias.device)

    def _targets(self, users: Users) -> TargetSet:
        target_set = self.settings.target_set
        if target_set is not None and target_set.target_set != "all":
            target_set = target_set.model_copy(update={"target_set": "expectation"})
        nothing_is_drawn = np.random.default_rng(0)
        return draw_targets(users.adopted, users.rejected, target_set, self.draws, nothing_is_drawn)

    def _minimised(self, targets: TargetSet) -> Floats:
        """The latents that minimise Σ over users of loss + decay: of the mean in the fit, |U| times a user's share."""
        activation, shift = _ACTIVATIONS[self.model.settings.encoder], _array(self.model.encoder_bias)
        start = self.model.encoder_weight.detach().double().mean(dim=0).cpu().numpy()
        descent = new_descent(np.tile(start, (targets.adopted.n_rows, 1)))  # of rows, (n_users, n_factors)
        latent, slopes = (np.zeros(descent.points.shape, dtype=np.float32) for _ in range(2))
        values, fill_slopes = np.zeros(len(latent)), self._slopes(targets)
        for _ in range(_MOST_STEPS):
            latents_of_rows(activation, descent.tried, shift, latent)
            fill_slopes(latent, values, slopes)
            if descend(
                descent, values, slopes_of_rows(activation, descent.tried, latent, values, slopes, self._decay())
            ):
                break
        latents_of_rows(activation, descent.points, shift, latent)
        return latent

    def _slopes(self, targets: TargetSet) -> Callable[[Floats, Doubles, Floats], None]:
        """A function that fills in all users' losses, and their slopes by the latents."""
        kind, parameters = compiled_loss(self.settings.loss, self.model.settings.decoder)
        decoder = (_array(self.model.decoder_weight), _array(self.model.decoder_bias))
        adopted, rejected, other = targets.adopted, targets.rejected, targets.exceptions
        cells = merged_cells(
            *(adopted.indptr, adopted.items, rejected.indptr, rejected.items),
            *(other.indptr, other.items, other.values),
        )
        if kind == MULTINOMIAL:
            return lambda latent, values, slopes: multinomial_slopes_of_users(latent, decoder, cells, values, slopes)
        if kind >= PAIR_LOGITS:
            own = (adopted.indptr, adopted.items)
            return lambda latent, values, slopes: pair_slopes_of_users(
                kind, parameters, latent, decoder, targets.weight, cells, own, values, slopes
            )
        return lambda latent, values, slopes: slopes_of_users(
            kind, parameters, latent, decoder, targets.weight, cells, values, slopes
        )

    def _decay(self) -> float:
        """λ of a user's own share of the weight decay, λ‖w‖²."""
        training = self.settings.training
        if training.weight_decay_form == "scaled":
            return training.weight_decay / self.model.width
        return training.weight_decay * len(self.model.encoder_weight)


def _array(weight: Tensor) -> Floats:
    return weight.detach().cpu().numpy()
