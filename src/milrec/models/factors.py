"""What all factor models share: the rows that an encoder reads, and the decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from milrec.kernels.sparse import Rows
from milrec.kernels.threads import zeros
from milrec.models.settings import (
    AutoencoderSettings,
    CollaborativeSettings,
    FactorizationSettings,
    VariationalSettings,
)

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda values: values,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
}
_INPUT_WEIGHTS: dict[str, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    "binary": np.ones_like,
    "counts": np.copy,
    "log": np.log1p,
}


class Factors(nn.Module):
    """What all factor models share: a row of W for each input, and the decoder logits = W'·h + b' (equation 13)."""

    settings: AutoencoderSettings | CollaborativeSettings | VariationalSettings | FactorizationSettings

    def __init__(self, width: int, n_inputs: int, n_items: int) -> None:
        super().__init__()
        self.encoder_weight = nn.Parameter(zeros(n_inputs, width))
        self.encoder_bias = nn.Parameter(zeros(width))
        self.decoder_weight = nn.Parameter(zeros(n_items, width))
        self.decoder_bias = nn.Parameter(zeros(n_items))

    @property
    def n_items(self) -> int:
        return len(self.decoder_weight)

    def encode(self, inputs: Tensor) -> Tensor:
        return self.latent(inputs @ self.encoder_weight)

    def latent(self, product: Tensor) -> Tensor:
        """h from W·v, for whoever has that product already."""
        return activated(product + self.encoder_bias, self.settings.encoder)  # (n_users, width)

    def fitting_latent(self, product: Tensor, noise: Tensor | None, annealing: float) -> tuple[Tensor, Tensor | float]:
        """h as a fit sees it, and what is added to the loss for it."""
        return self.latent(product), 0.0

    def decode(self, latent: Tensor) -> Tensor:
        return latent @ self.decoder_weight.T + self.decoder_bias  # (n_users, n_items)

    def preference(self, logits: Tensor) -> Tensor:
        return activated(logits, self.settings.decoder)


def activated(values: Tensor, activation: str) -> Tensor:
    return _ACTIVATIONS[activation](values)


def initialise(model: Factors, seed: int) -> None:
    """Glorot-uniform weights; biases truncated normal with σ = 1e-3 (section 3.3)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in (value for value in model.parameters() if value.dim() == 2):
            nn.init.xavier_uniform_(weight, generator=generator)
        for bias in (value for value in model.parameters() if value.dim() == 1):
            nn.init.trunc_normal_(bias, std=1e-3, a=-2e-3, b=2e-3, generator=generator)


def encoder_inputs(adopted: Rows, input_weights: str) -> Rows:
    """What the encoder sees of users: 1, r_ui or log(1 + r_ui) for each adopted item, every row of length 1."""
    values = _INPUT_WEIGHTS[input_weights](adopted.values).astype(np.float64)
    length = np.sqrt(np.bincount(adopted.users, weights=values**2, minlength=adopted.n_rows))
    return Rows(adopted.indptr, adopted.items, (values / length[adopted.users]).astype(np.float32))


def with_own_rows(inputs: Rows, rows: npt.NDArray[np.int64]) -> Rows:
    """The same with one more entry for each user: 1 at the user's own row of W."""
    ends = inputs.indptr[1:]
    indptr = inputs.indptr + np.arange(inputs.n_rows + 1)
    return Rows(indptr, np.insert(inputs.items, ends, rows), np.insert(inputs.values, ends, 1))
