"""Autoencoders: denoising, collaborative and variational. They read what users adopted, so new users need no refit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from milrec.kernels.products import steady_product
from milrec.kernels.sparse import Rows
from milrec.kernels.threads import zeros
from milrec.models.contract import Encode, Latents, Parts, taken
from milrec.models.factors import Factors
from milrec.models.formula import Activation, MatrixProduct, Shift, Step
from milrec.models.inputs import Reader, Users, popularity_scale
from milrec.models.settings import AutoencoderSettings, CollaborativeSettings, VariationalSettings

Product = Callable[[Tensor, Tensor], Tensor]  # two matrices → their product


class _Autoencoder(Factors):
    """What all three share: how they explain a list."""

    def parts(self, user: Users, items: npt.NDArray[np.int64], encode: Encode | None = None) -> Parts:
        """v_i·(W_i·W'_j) if the encoder is linear; otherwise what the logit loses without the item."""
        if self.settings.encoder != "linear":
            return super().parts(user, items, encode)
        parts: Parts = self._entries(user)[1] @ taken(self.decoder_weight, items).T
        return parts

    def latents_without_each(self, user: Users, encode: Encode) -> Latents:
        """Latents of a user, known or new: W·v minus each item's own part, divided by the remaining length; and what
        else the encoder reads of the user, as it is.
        """
        values, own = self._entries(user)
        rest = np.sqrt(np.maximum(1 - values**2, np.finfo(np.float64).tiny))
        without = (own.sum(axis=0) - own) / rest if len(own) > 1 else np.zeros_like(own)
        product = np.vstack([own.sum(axis=0), without])  # (1 + n_adopted, width)
        others = self.reader.inputs(replace(user, adopted=Rows.none(1)))  # rejected items, or who the user is
        product += others.values.astype(np.float64) @ taken(self.encoder_weight, others.items)
        with torch.no_grad():
            entering = torch.from_numpy(product.astype(np.float32)).to(self.encoder_weight.device)
            return self.latent(entering).cpu().numpy()

    def _entries(self, users: Users) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """v of the adopted items of one user, (n_adopted, 1), and v_i·W_i, (n_adopted, width)."""
        inputs = self.reader.inputs(Users(users.adopted, Rows.none(1), None))
        values = inputs.values.astype(np.float64)[:, None]
        return values, taken(self.encoder_weight, inputs.items) * inputs.values[:, None]


def _reader(settings: Any, n_items: int, n_users: int = 0) -> Reader:
    return Reader(n_items, n_users, settings.input_weights, corruption=settings.corruption)


class DenoisingAutoencoder(_Autoencoder):
    """h = s(W·v + b) (equation 12); v is what the user adopted, each item times its popularity^-α, L2-normalised.

    If it reads what users rejected, that is a second v of length 1, with rows of W of its own.
    """

    settings: AutoencoderSettings

    def __init__(self, settings: AutoencoderSettings, n_items: int) -> None:
        reader = replace(_reader(settings, n_items), rejected=settings.reads_rejected)
        super().__init__(settings, reader, n_items, settings.n_factors)

    @classmethod
    def build(cls, settings: AutoencoderSettings, n_users: int, n_items: int) -> Self:
        return cls(settings, n_items)

    def meet(self, popularity: npt.NDArray[np.int64]) -> None:
        super().meet(popularity)
        if self.settings.input_exponent:
            self.reader = replace(self.reader, scale=popularity_scale(popularity, self.settings.input_exponent))


class CollaborativeAutoencoder(_Autoencoder):
    """h = s(W·v + V_u + b) (Wu et al. 2016); V_u is row n_items + u of W, whose entry of v is 1 and never hidden.

    A user the model has not met has no V_u: it is 0, the mean that weight decay pulls it to.
    """

    settings: CollaborativeSettings
    knows_users: ClassVar[bool] = True

    def __init__(self, settings: CollaborativeSettings, n_users: int, n_items: int) -> None:
        super().__init__(settings, _reader(settings, n_items, n_users), n_items, settings.n_factors)

    @classmethod
    def build(cls, settings: CollaborativeSettings, n_users: int, n_items: int) -> Self:
        return cls(settings, n_users, n_items)


class VariationalAutoencoder(_Autoencoder):
    """Multi-VAE (Liang et al. 2018): tanh(W·v + b) → mean μ and log-variance log σ² of z → h = tanh(H·z + c).

    A fit draws z = μ + ε·σ with ε from N(0, 1), and adds β·KL(N(μ, σ²) ‖ N(0, 1)) to the loss; lists use z = μ.
    """

    settings: VariationalSettings

    def __init__(self, settings: VariationalSettings, n_items: int) -> None:
        super().__init__(settings, _reader(settings, n_items), n_items, settings.n_hidden)
        self.posterior_weight = nn.Parameter(zeros(settings.n_hidden, 2 * settings.n_factors))
        self.posterior_bias = nn.Parameter(zeros(2 * settings.n_factors))
        self.hidden_weight = nn.Parameter(zeros(settings.n_factors, settings.n_hidden))
        self.hidden_bias = nn.Parameter(zeros(settings.n_hidden))

    @classmethod
    def build(cls, settings: VariationalSettings, n_users: int, n_items: int) -> Self:
        return cls(settings, n_items)

    def latent(self, entering: Tensor) -> Tensor:
        """h of the mean, for lists: no row depends on its place, and no gradient flows."""
        mean, _ = self.posterior(entering, steady_product)
        return self._hidden(mean, steady_product)  # (n_users, n_hidden)

    def fitting_latent(self, entering: Tensor, noise: Tensor | None, iteration: int) -> tuple[Tensor, Tensor | float]:
        """h of a drawn z, and β times the mean over users of KL = ½·Σ(σ² + μ² - 1 - log σ²)."""
        mean, log_variance = self.posterior(entering)
        divergence = (log_variance.exp() + mean.square() - 1 - log_variance).sum(dim=1) / 2  # (n_users,)
        drawn = mean if noise is None else mean + noise * (log_variance / 2).exp()
        return self._hidden(drawn), self.annealing(iteration) * divergence.mean()

    def _latent_steps(self) -> tuple[Step, ...]:
        n_factors = self.settings.n_factors  # of the mean; the log-variance comes after it
        mean = (
            MatrixProduct(self.posterior_weight.detach()[:, :n_factors]),
            Shift(self.posterior_bias.detach()[:n_factors]),
        )
        hidden = MatrixProduct(self.hidden_weight.detach()), Shift(self.hidden_bias.detach()), Activation("tanh")
        return *super()._latent_steps(), *mean, *hidden

    def noise(self, n_users: int, random: np.random.Generator) -> npt.NDArray[np.float32]:
        return random.standard_normal((n_users, self.settings.n_factors), dtype=np.float32)

    def annealing(self, iteration: int) -> float:
        """β of a step: it rises linearly from 0 at the first one to the cap."""
        return self.settings.annealing_cap * min(1.0, iteration / self.settings.annealing_steps)

    def posterior(self, entering: Tensor, times: Product = torch.matmul) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of z."""
        hidden = super().latent(entering)  # (n_users, n_hidden)
        mean, log_variance = (times(hidden, self.posterior_weight) + self.posterior_bias).chunk(2, dim=1)
        return mean, log_variance  # (n_users, n_factors) each

    def _hidden(self, drawn: Tensor, times: Product = torch.matmul) -> Tensor:
        return torch.tanh(times(drawn, self.hidden_weight) + self.hidden_bias)
