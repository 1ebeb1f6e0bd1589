"""Factors: a row of W for each column that the encoder reads, one activation, and the shared decoder."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from milrec.kernels.rows import weighted_rows
from milrec.kernels.sparse import Rows
from milrec.kernels.threads import zeros
from milrec.models.contract import ACTIVATIONS, ROWS, GradientModel
from milrec.models.formula import Activation, Formula, MatrixProduct, Shift, Step
from milrec.models.inputs import Reader, Users


class Factors(GradientModel):
    """h = s(W·v + b), logits = W'·h + b' (equations 12 and 13)."""

    settings: Any
    first_layer: ClassVar[str | None] = "encoder_weight"

    def __init__(self, settings: Any, reader: Reader, n_items: int, width: int) -> None:
        super().__init__()
        self.settings, self.reader = settings, reader
        self.encoder_weight = nn.Parameter(zeros(reader.n_columns, width))
        self.encoder_bias = nn.Parameter(zeros(width))
        self.decoder_weight = nn.Parameter(zeros(n_items, width))
        self.decoder_bias = nn.Parameter(zeros(n_items))

    def enter(self, inputs: Rows) -> Tensor:
        dense = torch.from_numpy(inputs.dense(len(self.encoder_weight))).to(self.encoder_weight.device)
        return dense @ self.encoder_weight  # (n_users, width)

    def latent(self, entering: Tensor) -> Tensor:
        return ACTIVATIONS[self.settings.encoder](entering + self.encoder_bias)  # (n_users, width)

    def latents(self, users: Users) -> Tensor:
        inputs = self.reader.inputs(users).filled(ROWS)
        product = torch.zeros(ROWS, self.encoder_weight.shape[1])
        weight = self.encoder_weight.detach().cpu().numpy()
        weighted_rows(0, ROWS, weight, inputs.indptr, inputs.items, inputs.values, product.numpy())
        with torch.no_grad():
            return self.latent(product.to(self.encoder_weight.device))

    def formula(self) -> Formula:
        reader, weight = self.reader, self.encoder_weight.detach()
        decoded = (MatrixProduct(self.decoder_weight.detach().T), Shift(self.decoder_bias.detach()))
        return Formula(
            steps=(*self._latent_steps(), *decoded),
            item_weight=weight[: reader.n_items] if reader.n_items else None,
            rejected_weight=weight[reader.n_items : reader.first_user] if reader.rejected else None,
            user_rows=weight[reader.first_user :] if reader.n_users else None,
            item_scale=None if reader.scale is None else torch.from_numpy(reader.scale).float(),
            weights=reader.weights,
            unit_length=reader.unit_length,
        )

    def _latent_steps(self) -> tuple[Step, ...]:
        """`latent`, step by step."""
        return Shift(self.encoder_bias.detach()), Activation(self.settings.encoder)

    def decayed(self) -> list[str]:
        return ["encoder_weight", "decoder_weight"]
