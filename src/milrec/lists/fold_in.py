"""Fold-in: the latent of a user that a matrix factorization has not met, from what the user adopted alone.

The decoder stays as it is; the user's row w minimises the loss that fitting would give it: the user's own loss over
the expected target set, plus the user's share of the weight decay. The same steps every time, nothing drawn. For
weighted matrix factorization that row has a closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milrec.data.interactions import Interactions
from milrec.kernels.sparse import Rows
from milrec.losses import Targets
from milrec.models.contract import ACTIVATIONS, ROWS
from milrec.models.factors import Factors
from milrec.models.inputs import Users
from milrec.training.settings import GradientFit
from milrec.training.targets import dense_targets, draw_targets, n_missing_drawn

FOLDED_ROWS = 8  # users folded in together
_STEPS = 150
_LEARNING_RATE = 0.1


@dataclass(frozen=True)
class FoldIn:
    """Finds the latents of new users, with the loss, target set and weight decay of the fit."""

    model: Factors
    settings: GradientFit
    n_drawn: int  # missing items in a target set

    @classmethod
    def of(cls, model: Any, settings: Any, train: Interactions) -> FoldIn:
        return cls(model, settings, n_missing_drawn(train.adopted, settings.target_factor))

    def write_logits(self, users: Users, out: Tensor) -> None:
        """The logits of at most `ROWS` new users into the first rows of `out`."""
        latents = torch.zeros(ROWS, self.model.width)
        latents[: users.n_users] = self.latents(users)
        self.model.write_decoded(latents, out)

    def latents(self, users: Users) -> Tensor:
        """Latents of new users, one row for each."""
        with torch.inference_mode(False), torch.enable_grad():  # whatever the caller has switched off
            latents = []
            for start in range(0, users.n_users, FOLDED_ROWS):
                stop = start + FOLDED_ROWS
                known = (rows.cut(start, stop).filled(FOLDED_ROWS) for rows in (users.adopted, users.rejected))
                latents.append(_minimised(self.model, self.settings, self._targets(*known)))
            return torch.cat(latents)[: users.n_users]

    def _targets(self, adopted: Rows, rejected: Rows) -> Targets:
        target_set, n_items = self.settings.target_set, self.model.n_items
        if target_set is not None and target_set.target_set != "all":
            target_set = target_set.model_copy(update={"target_set": "expectation"})
        nothing_is_drawn = np.random.default_rng(0)
        targets = draw_targets(adopted, rejected, n_items, target_set, self.n_drawn, nothing_is_drawn)
        return dense_targets(targets, n_items, pairs=False).to(self.model.decoder_bias.device)


def _minimised(model: Factors, settings: GradientFit, targets: Targets) -> Tensor:
    n_users = len(targets.adopted)
    row = model.encoder_weight.detach().mean(dim=0).repeat(n_users, 1).requires_grad_()  # (n_users, n_factors)
    optimiser = torch.optim.Adam([row], lr=_LEARNING_RATE)
    for step in range(_STEPS):
        optimiser.param_groups[0]["lr"] = _LEARNING_RATE * (1 - step / _STEPS)
        optimiser.zero_grad()
        _objective(model, settings, row, targets).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return _latent(model, row).detach()


def _objective(model: Factors, settings: GradientFit, row: Tensor, targets: Targets) -> Tensor:
    """Σ over users of loss + decay: of the mean over |U| users in the fit, |U| times one user's share."""
    logits = _latent(model, row) @ model.decoder_weight.detach().T + model.decoder_bias.detach()  # (n_users, n_items)
    loss = settings.loss(logits, model.preference(logits), targets).sum()
    strength = settings.training.weight_decay
    if settings.training.weight_decay_form == "scaled":
        return loss + strength / model.width * row.square().sum()
    return loss + strength * len(model.encoder_weight) * row.square().sum()


def _latent(model: Factors, row: Tensor) -> Tensor:
    return ACTIVATIONS[model.settings.encoder](row + model.encoder_bias.detach())
