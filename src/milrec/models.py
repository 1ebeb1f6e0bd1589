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
    CollaborativeSettings,
    EaseSettings,
    FactorizationSettings,
    ModelSettings,
    SlimSettings,
    VariationalSettings,
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


class DenoisingAutoencoder(_Factors):
    """h = s(W·v + b) (equation 12); v is what the user adopted, L2-normalised."""

    def __init__(self, settings: AutoencoderSettings, n_items: int) -> None:
        super().__init__(settings.n_factors, n_items, n_items)
        self.settings: AutoencoderSettings = settings


class CollaborativeAutoencoder(_Factors):
    """h = s(W·v + V_u + b) (Wu et al. 2016); V_u is row n_items + u of W, whose entry of v is 1 and never hidden.

    A user whom the model has not met has no V_u: it is 0, the mean that the weight decay draws it to.
    """

    def __init__(self, settings: CollaborativeSettings, n_users: int, n_items: int) -> None:
        super().__init__(settings.n_factors, n_items + n_users, n_items)
        self.settings: CollaborativeSettings = settings


class VariationalAutoencoder(_Factors):
    """Multi-VAE (Liang et al. 2018): tanh(W·v + b) → mean μ and log-variance log σ² of z → h = tanh(H·z + c).

    A fit draws z = μ + ε·σ with ε from N(0, 1), and adds β·KL(N(μ, σ²) ‖ N(0, 1)) to the loss; lists take z = μ.
    """

    def __init__(self, settings: VariationalSettings, n_items: int) -> None:
        super().__init__(settings.n_hidden, n_items, n_items)
        self.settings: VariationalSettings = settings
        self.posterior_weight = nn.Parameter(zeros(settings.n_hidden, 2 * settings.n_factors))
        self.posterior_bias = nn.Parameter(zeros(2 * settings.n_factors))
        self.hidden_weight = nn.Parameter(zeros(settings.n_factors, settings.n_hidden))
        self.hidden_bias = nn.Parameter(zeros(settings.n_hidden))

    def latent(self, product: Tensor) -> Tensor:
        mean, _ = self.posterior(product)
        return self._hidden(mean)  # (n_users, n_hidden)

    def fitting_latent(self, product: Tensor, noise: Tensor | None, annealing: float) -> tuple[Tensor, Tensor | float]:
        """h of a drawn z, and β times the mean over users of KL = ½·Σ(σ² + μ² - 1 - log σ²)."""
        assert noise is not None
        mean, log_variance = self.posterior(product)
        divergence = (log_variance.exp() + mean.square() - 1 - log_variance).sum(dim=1) / 2  # (n_users,)
        return self._hidden(mean + noise * (log_variance / 2).exp()), annealing * divergence.mean()

    def posterior(self, product: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of z."""
        hidden = super().latent(product)  # (n_users, n_hidden)
        mean, log_variance = (hidden @ self.posterior_weight + self.posterior_bias).chunk(2, dim=1)
        return mean, log_variance  # (n_users, n_factors) each

    def _hidden(self, drawn: Tensor) -> Tensor:
        return torch.tanh(drawn @ self.hidden_weight + self.hidden_bias)


class MatrixFactorization(_Factors):
    """The same with the one-hot user id as input: the user's latent is a row of W."""

    def __init__(self, settings: FactorizationSettings, n_users: int, n_items: int) -> None:
        super().__init__(settings.n_factors, n_users, n_items)
        self.settings: FactorizationSettings = settings

    def encode(self, users: Tensor) -> Tensor:
        return self.latent(self.encoder_weight[users])


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


Autoencoder = DenoisingAutoencoder | CollaborativeAutoencoder | VariationalAutoencoder
Factors = Autoencoder | MatrixFactorization  # fitted by gradient descent
Baseline = WeightedFactorization | ItemToItem | Popularity  # fitted without
Model = Factors | Baseline


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


def build_model(settings: ModelSettings, n_users: int, n_items: int) -> Model:
    """A model of the right kind and shape, its weights still zero."""
    if isinstance(settings, AutoencoderSettings):
        return DenoisingAutoencoder(settings, n_items)
    if isinstance(settings, CollaborativeSettings):
        return CollaborativeAutoencoder(settings, n_users, n_items)
    if isinstance(settings, VariationalSettings):
        return VariationalAutoencoder(settings, n_items)
    if isinstance(settings, FactorizationSettings):
        return MatrixFactorization(settings, n_users, n_items)
    if isinstance(settings, WmfSettings):
        return WeightedFactorization(settings, n_users, n_items)
    if isinstance(settings, EaseSettings | SlimSettings):
        return ItemToItem(settings, n_items)
    return Popularity(n_items)
