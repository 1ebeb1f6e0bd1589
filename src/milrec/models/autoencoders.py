"""Models: encode → latent, decode → logits.

The loss decides what the logits mean; `preference` turns them into predicted preferences by the decoder's activation.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from milrec.kernels.threads import zeros
from milrec.models.factors import Factors
from milrec.models.settings import (
    AutoencoderSettings,
    CollaborativeSettings,
    VariationalSettings,
)


class DenoisingAutoencoder(Factors):
    """h = s(W·v + b) (equation 12); v is what the user adopted, L2-normalised."""

    def __init__(self, settings: AutoencoderSettings, n_items: int) -> None:
        super().__init__(settings.n_factors, n_items, n_items)
        self.settings: AutoencoderSettings = settings


class CollaborativeAutoencoder(Factors):
    """h = s(W·v + V_u + b) (Wu et al. 2016); V_u is row n_items + u of W, whose entry of v is 1 and never hidden.

    A user whom the model has not met has no V_u: it is 0, the mean that the weight decay draws it to.
    """

    def __init__(self, settings: CollaborativeSettings, n_users: int, n_items: int) -> None:
        super().__init__(settings.n_factors, n_items + n_users, n_items)
        self.settings: CollaborativeSettings = settings


class VariationalAutoencoder(Factors):
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
