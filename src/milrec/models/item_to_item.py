"""A weight from each item to each other: EASE and SLIM."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from milrec.kernels.rows import weighted_rows
from milrec.kernels.threads import zeros
from milrec.models.contract import Encode, Likeness, Model, Parts
from milrec.models.inputs import Users
from milrec.models.settings import EaseSettings, SlimSettings


class ItemToItem(Model):
    """The logits are the sum of the adopted items' rows."""

    settings: EaseSettings | SlimSettings

    def __init__(self, settings: EaseSettings | SlimSettings, n_items: int) -> None:
        super().__init__()
        self.settings = settings
        self.item_weight = nn.Parameter(zeros(n_items, n_items), requires_grad=False)

    @classmethod
    def build(cls, settings: EaseSettings | SlimSettings, n_users: int, n_items: int) -> Self:
        return cls(settings, n_items)

    @property
    def n_items(self) -> int:
        return len(self.item_weight)

    def write_logits(self, users: Users, out: Tensor) -> None:
        adopted, ones = users.adopted, np.ones(len(users.adopted.items), dtype=np.float32)
        out.zero_()
        weight = self.item_weight.detach().numpy()
        weighted_rows(0, adopted.n_rows, weight, adopted.indptr, adopted.items, ones, out.numpy())

    def parts(self, user: Users, items: npt.NDArray[np.int64], encode: Encode | None = None) -> Parts:
        weights: Parts = self.item_weight.detach().numpy()[np.ix_(user.adopted.items, items)].astype(np.float64)
        return weights

    def likeness(self) -> Likeness:
        """The weights above 0 that an item gives to others."""
        return Likeness("weight", self._weights_above_0)

    def _weights_above_0(self, item: int) -> npt.NDArray[np.float32]:
        weights = self.item_weight.detach()[item].numpy().copy()  # (n_items,)
        weights[weights <= 0] = -np.inf
        return weights
