"""Encoders as a researcher would bring them: plain PyTorch."""

import torch
from torch import nn


class Gated(nn.Module):
    """Two layers, the second gated by the first, with dropout between them."""

    rows_independent = True

    def __init__(self, n_items: int, n_factors: int = 8, n_hidden: int = 12, dropout: float = 0.2) -> None:
        super().__init__()
        self.first = nn.Linear(n_items, n_hidden)
        self.gate, self.value = nn.Linear(n_hidden, n_factors), nn.Linear(n_hidden, n_factors)
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.dropout(torch.tanh(self.first(inputs)))
        return torch.sigmoid(self.gate(hidden)) * self.value(hidden)


class Plays(nn.Module):
    """Reads play counts as they are; BatchNorm brings buffers, and rows that depend on one another in a fit."""

    name = "play_counts"
    input_weights = "counts"
    unit_length = False

    def __init__(self, n_items: int, n_factors: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(n_items)
        self.layer = nn.Linear(n_items, n_factors)
        self.scale = nn.Parameter(torch.tensor(1.0))  # a weight without dimensions
        self.unused = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.scale * torch.tanh(self.layer(self.norm(torch.log1p(inputs))))


class Centred(nn.Module):
    """Takes the mean of the batch away: a user's latents depend on who else is in it."""

    def __init__(self, n_items: int, n_factors: int) -> None:
        super().__init__()
        self.layer = nn.Linear(n_items, n_factors)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(inputs)
        return hidden - hidden.mean(dim=0) / 2


class Liar(Centred):
    rows_independent = True
