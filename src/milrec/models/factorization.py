"""Matrix factorization: by gradient descent under any loss, or weighted, by alternating least squares."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from milrec.kernels.sparse import Rows
from milrec.kernels.threads import one_torch_thread, zeros
from milrec.models.contract import ROWS, LatentModel
from milrec.models.factors import Factors
from milrec.models.formula import Formula, MatrixProduct
from milrec.models.inputs import Reader, Users
from milrec.models.settings import FactorizationSettings, WmfSettings

_MOST_EXPLAINED = 200  # adopted items: with more, folding in without each one would take minutes


class MatrixFactorization(Factors):
    """The one-hot user id is the input: a user's latent is a row of W."""

    settings: FactorizationSettings
    knows_users: ClassVar[bool] = True
    fixes_users: ClassVar[bool] = True
    folds_in: ClassVar[bool] = True
    most_explained: ClassVar[int | None] = _MOST_EXPLAINED

    def __init__(self, settings: FactorizationSettings, n_users: int, n_items: int) -> None:
        super().__init__(settings, Reader(n_users=n_users), n_items, settings.n_factors)

    @classmethod
    def build(cls, settings: FactorizationSettings, n_users: int, n_items: int) -> Self:
        return cls(settings, n_users, n_items)

    def enter(self, inputs: Rows) -> Tensor:
        users = torch.from_numpy(inputs.items).long().to(self.encoder_weight.device)  # one entry per row
        return self.encoder_weight[users]


class WeightedFactorization(LatentModel):
    """Factors of users and of items, without biases or activations; the logits are predicted preferences."""

    settings: WmfSettings
    knows_users: ClassVar[bool] = True
    fixes_users: ClassVar[bool] = True
    needs_adopted: ClassVar[bool] = True
    most_explained: ClassVar[int | None] = _MOST_EXPLAINED
    decoder_bias: None = None

    def __init__(self, settings: WmfSettings, n_users: int, n_items: int) -> None:
        super().__init__()
        self.settings = settings
        self.encoder_weight = nn.Parameter(zeros(n_users, settings.n_factors), requires_grad=False)
        self.decoder_weight = nn.Parameter(zeros(n_items, settings.n_factors), requires_grad=False)
        self._kept: tuple[int, Tensor] | None = None

    @classmethod
    def build(cls, settings: WmfSettings, n_users: int, n_items: int) -> Self:
        return cls(settings, n_users, n_items)

    def latents(self, users: Users) -> Tensor:
        latents = torch.zeros(ROWS, self.width)
        if users.numbers is None:
            latents[: users.n_users] = self.folded(users.adopted)
        else:
            latents[: users.n_users] = self.encoder_weight[torch.from_numpy(users.numbers)]
        return latents

    def formula(self) -> Formula:
        return Formula((MatrixProduct(self.decoder_weight.detach().T),), user_rows=self.encoder_weight.detach())

    def folded(self, adopted: Rows) -> Tensor:
        """Rows of new users: x = (Y'Y + Y'(C-I)Y + λI)⁻¹ Y'C p (Hu, Koren and Volinsky, equation 4), in doubles."""
        confidence, shared = self.settings.confidence, self._shared()
        latent = torch.zeros(adopted.n_rows, self.settings.n_factors)
        for user in np.flatnonzero(adopted.counts):
            items = adopted.items[adopted.indptr[user] : adopted.indptr[user + 1]]
            own = self.decoder_weight.detach()[torch.from_numpy(items)].double()  # (n_adopted, n_factors)
            matrix = shared + (confidence - 1) * own.T @ own
            row = torch.linalg.solve(matrix, confidence * own.sum(dim=0))  # (n_factors,)
            latent[user] = row.float()
        return latent

    def _shared(self) -> Tensor:
        """Y'Y + λI, which all users share; made once for the weights as they are."""
        version = self.decoder_weight._version
        if self._kept is None or self._kept[0] != version:
            with one_torch_thread():  # more of torch's threads may round differently
                factors = self.decoder_weight.detach().double()
                ridge = self.settings.regularization * torch.eye(self.settings.n_factors, dtype=torch.float64)
                self._kept = (version, factors.T @ factors + ridge)
        return self._kept[1]
