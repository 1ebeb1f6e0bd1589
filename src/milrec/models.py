"""Models: encode → latent, decode → logits.

The loss decides what the logits mean; `preference` turns them into predicted preferences by the decoder's activation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from milrec.config import (
    AutoencoderSettings,
    EaseSettings,
    FactorizationSettings,
    ModelSettings,
    SlimSettings,
    WmfSettings,
)
from milrec.rows import Rows
from milrec.workers import zeros

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


class _Factors(nn.Module):
    """What both factor models share: a row of W for each input, and the decoder logits = W'·h + b' (equation 13)."""

    settings: AutoencoderSettings | FactorizationSettings

    def __init__(self, n_factors: int, n_inputs: int, n_items: int) -> None:
        super().__init__()
        self.encoder_weight = nn.Parameter(zeros(n_inputs, n_factors))
        self.encoder_bias = nn.Parameter(zeros(n_factors))
        self.decoder_weight = nn.Parameter(zeros(n_items, n_factors))
        self.decoder_bias = nn.Parameter(zeros(n_items))

    @property
    def n_items(self) -> int:
        return len(self.decoder_weight)

    def latent(self, product: Tensor) -> Tensor:
        """h from W·v, for whoever has that product already."""
        return activated(product + self.encoder_bias, self.settings.encoder)  # (n_users, n_factors)

    def decode(self, latent: Tensor) -> Tensor:
        return latent @ self.decoder_weight.T + self.decoder_bias  # (n_users, n_items)


class DenoisingAutoencoder(_Factors):
    """h = s(W·v + b) (equation 12); v is what the user adopted, L2-normalised."""

    def __init__(self, settings: AutoencoderSettings, n_items: int) -> None:
        super().__init__(settings.n_factors, n_items, n_items)
        self.settings: AutoencoderSettings = settings

    def encode(self, inputs: Tensor) -> Tensor:
        return self.latent(inputs @ self.encoder_weight)

    def preference(self, logits: Tensor) -> Tensor:
        return activated(logits, self.settings.decoder)


class MatrixFactorization(_Factors):
    """The same with the one-hot user id as input: the user's latent is a row of W."""

    def __init__(self, settings: FactorizationSettings, n_users: int, n_items: int) -> None:
        super().__init__(settings.n_factors, n_users, n_items)
        self.settings: FactorizationSettings = settings

    def encode(self, users: Tensor) -> Tensor:
        return self.latent(self.encoder_weight[users])

    def preference(self, logits: Tensor) -> Tensor:
        return activated(logits, self.settings.decoder)


class WeightedFactorization(nn.Module):
    """Factors of users and of items, without biases or activations; the logits are predicted preferences."""

    def __init__(self, settings: WmfSettings, n_users: int, n_items: int) -> None:
        super().__init__()
        self.settings = settings
        self.encoder_weight = nn.Parameter(zeros(n_users, settings.n_factors), requires_grad=False)
        self.decoder_weight = nn.Parameter(zeros(n_items, settings.n_factors), requires_grad=False)

    @property
    def n_items(self) -> int:
        return len(self.decoder_weight)

    def encode(self, users: Tensor) -> Tensor:
        return self.encoder_weight[users]  # (n_users, n_factors)

    def decode(self, latent: Tensor) -> Tensor:
        return latent @ self.decoder_weight.T  # (n_users, n_items)


class ItemToItem(nn.Module):
    """A weight from each item to each other (EASE, SLIM): the logits are the sum of the adopted items' rows."""

    def __init__(self, settings: EaseSettings | SlimSettings, n_items: int) -> None:
        super().__init__()
        self.settings = settings
        self.item_weight = nn.Parameter(zeros(n_items, n_items), requires_grad=False)

    @property
    def n_items(self) -> int:
        return len(self.item_weight)

    def encode(self, inputs: Tensor) -> Tensor:
        return inputs  # (n_users, n_items) 1 for each adopted item

    def decode(self, latent: Tensor) -> Tensor:
        return latent @ self.item_weight  # (n_users, n_items)


class Popularity(nn.Module):
    """The same list for everybody, less what they have: the logits are the items' adopters."""

    def __init__(self, n_items: int) -> None:
        super().__init__()
        self.decoder_bias = nn.Parameter(torch.zeros(n_items), requires_grad=False)

    @property
    def n_items(self) -> int:
        return len(self.decoder_bias)

    def encode(self, inputs: Tensor) -> Tensor:
        return inputs.new_zeros(len(inputs), 0)  # nothing is known of the user

    def decode(self, latent: Tensor) -> Tensor:
        return self.decoder_bias.expand(len(latent), -1)  # (n_users, n_items)


Factors = DenoisingAutoencoder | MatrixFactorization  # fitted by gradient descent
Baseline = WeightedFactorization | ItemToItem | Popularity  # fitted without
Model = Factors | Baseline


def activated(values: Tensor, activation: str) -> Tensor:
    return _ACTIVATIONS[activation](values)


def initialise(model: Factors, seed: int) -> None:
    """Glorot-uniform weights; biases truncated normal with σ = 1e-3 (section 3.3)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in (model.encoder_weight, model.decoder_weight):
            nn.init.xavier_uniform_(weight, generator=generator)
        for bias in (model.encoder_bias, model.decoder_bias):
            nn.init.trunc_normal_(bias, std=1e-3, a=-2e-3, b=2e-3, generator=generator)


def encoder_inputs(adopted: Rows, input_weights: str) -> Rows:
    """What the encoder sees of users: 1, r_ui or log(1 + r_ui) for each adopted item, every row of length 1."""
    values = _INPUT_WEIGHTS[input_weights](adopted.values).astype(np.float64)
    length = np.sqrt(np.bincount(adopted.users, weights=values**2, minlength=adopted.n_rows))
    return Rows(adopted.indptr, adopted.items, (values / length[adopted.users]).astype(np.float32))


def build_model(settings: ModelSettings, n_users: int, n_items: int) -> Model:
    """A model of the right kind and shape, its weights still zero."""
    if isinstance(settings, AutoencoderSettings):
        return DenoisingAutoencoder(settings, n_items)
    if isinstance(settings, FactorizationSettings):
        return MatrixFactorization(settings, n_users, n_items)
    if isinstance(settings, WmfSettings):
        return WeightedFactorization(settings, n_users, n_items)
    if isinstance(settings, EaseSettings | SlimSettings):
        return ItemToItem(settings, n_items)
    return Popularity(n_items)
