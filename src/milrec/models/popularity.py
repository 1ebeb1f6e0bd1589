"""The most adopted items, for everybody."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
