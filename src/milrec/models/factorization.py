"""Matrix factorization: by gradient descent under any loss, or weighted, by alternating least squares."""

from __future__ import annotations

from torch import Tensor, nn

from milrec.kernels.threads import zeros
from milrec.models.factors import Factors
from milrec.models.settings import (
    FactorizationSettings,
    WmfSettings,
)


class MatrixFactorization(Factors):
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
