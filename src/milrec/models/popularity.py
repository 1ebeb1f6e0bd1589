"""The most adopted items, for everybody."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from milrec.models.contract import Encode, Model, Parts
from milrec.models.inputs import Users
from milrec.models.settings import PopularitySettings


class Popularity(Model):
    """The same list for everybody, minus what they have: the logits are the items' adopters."""

    settings: PopularitySettings

    def __init__(self, n_items: int) -> None:
        super().__init__()
        self.settings = PopularitySettings()
        self.decoder_bias = nn.Parameter(torch.zeros(n_items), requires_grad=False)

    @classmethod
    def build(cls, settings: PopularitySettings, n_users: int, n_items: int) -> Self:
        return cls(n_items)

    @property
    def n_items(self) -> int:
        return len(self.decoder_bias)

    def write_logits(self, users: Users, out: Tensor) -> None:
        out[:] = self.decoder_bias.detach()

    def parts(self, user: Users, items: npt.NDArray[np.int64], encode: Encode | None = None) -> Parts:
        return np.zeros((len(user.adopted.items), len(items)))  # no adopted item is a reason for another
