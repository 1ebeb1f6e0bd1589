"""Checks for an encoder of your own: call `check_encoder(Mine)` in your tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from milrec.errors import FitError
from milrec.kernels.sparse import Rows
from milrec.models.contract import ROWS
from milrec.models.encoders import EncoderModel, encoder_settings
from milrec.models.inputs import Users
from milrec.models.known import build_model
from milrec.settings import build


def check_encoder(encoder: type[nn.Module], n_items: int = 50, **settings: Any) -> None:
    """Refuse an encoder that breaks the contract, with a sentence that says how.

    Built twice from one seed, it must have the same weights. It must return a row of n_factors finite numbers for each
    user, the same in every call in eval mode. Gradients must reach it. If it says that its rows are independent, a
    user's latents must not depend on who else is in the batch.
    """
    chosen = build(encoder_settings(encoder), settings)
    model, again = (build_model(chosen, 0, n_items, seed=1) for _ in range(2))
    assert isinstance(model, EncoderModel) and isinstance(again, EncoderModel)
    name = chosen.model
    _same_weights(name, model, again)
    users = _users(n_items)
    _gradients(name, model, users)
    model.eval()
    latents = model.latents(users)
    if not bool(latents.isfinite().all()):
        raise FitError(f"encoder '{name}' returns latents that are not finite")
    if not torch.equal(latents, model.latents(users)):
        raise FitError(
            f"encoder '{name}' returns different latents when called twice; in eval mode it must not be random"
        )
    if model.rows_independent:
        _independent_rows(name, model, users)


def _same_weights(name: str, model: EncoderModel, again: EncoderModel) -> None:
    for key, value in model.tensors().items():
        if not torch.equal(value, again.tensors()[key]):
            raise FitError(f"encoder '{name}' is built with different weights from the same seed ('{key}')")


def _gradients(name: str, model: EncoderModel, users: Users) -> None:
    model.train()
    latent, _ = model.fitting_latent(model.enter(model.reader.inputs(users)), None, 0)
    if not latent.requires_grad:
        raise FitError(f"encoder '{name}' returns latents that no gradient flows through")
    latent.square().sum().backward()  # type: ignore[no-untyped-call]
    if all(value.grad is None for value in model.encoder.parameters()):
        raise FitError(f"no gradient reaches the weights of encoder '{name}'")


def _independent_rows(name: str, model: EncoderModel, users: Users) -> None:
    """A few digits may differ by a library's rounding, which milrec works around; more is a mix of users."""
    inputs = model.enter(model.reader.inputs(users))
    with torch.no_grad():
        together = model.latent(inputs)
        for user in (0, 1, len(inputs) - 1):
            alone = model.latent(inputs[user : user + 1])
            if not torch.allclose(alone[0], together[user], rtol=1e-3, atol=1e-5):
                raise FitError(
                    f"encoder '{name}' says that its rows are independent, but a user's latents depend on who else is "
                    "in the batch; leave rows_independent out"
                )


def _users(n_items: int) -> Users:
    random = np.random.default_rng(0)
    items = [np.sort(random.choice(n_items, 1 + user % min(n_items, 9), replace=False)) for user in range(ROWS)]
    values = [random.integers(1, 9, len(own)).astype(np.float32) for own in items]
    return Users(Rows.stacked([own.astype(np.int32) for own in items], values), Rows.none(ROWS), None)
