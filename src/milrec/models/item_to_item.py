"""A weight from each item to each other: EASE and SLIM."""

from __future__ import annotations

from torch import Tensor, nn

from milrec.kernels.threads import zeros
from milrec.models.settings import (
    EaseSettings,
    SlimSettings,
)


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
