"""RecVAE (Shenbin et al., 2020, arXiv 1912.11160), from the paper's equations.

A variational autoencoder with a multinomial loss: the encoder is five layers of which each also gets the sum of those
before it, with layer normalisation and swish; the prior mixes a standard normal, the posterior of the encoder as it
was after the last epoch, and a wide normal; KL counts γ·n, n the items of the user. Encoder and decoder learn in turn:
the encoder from rows of which half is hidden, the decoder from whole ones.
"""

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch
from experiments.rivals.lists import Scores, Validation
from experiments.rivals.patience import Patience
from torch import Tensor, nn
from torch.nn.functional import dropout, log_softmax, normalize

from milrec.data.splits import Split

EPOCHS, VALIDATE_EVERY, PATIENCE = 150, 2, 6
N_HIDDEN, N_LATENT, N_LAYERS = 600, 200, 5
ENCODER_EPOCHS, DECODER_EPOCHS = 3, 1
SHARES = (3 / 20, 3 / 4, 1 / 10)  # of the standard normal, the last posterior and the wide normal
WIDE = 10.0  # ln(variance) of the wide normal


@dataclass(frozen=True)
class Setting:
    gamma: float
    batch: int = 500
    rate: float = 5e-4
    hidden: float = 0.5  # share of a row that the encoder does not see


class Encoder(nn.Module):
    def __init__(self, n_items: int) -> None:
        super().__init__()
        sizes = [n_items] + [N_HIDDEN] * (N_LAYERS - 1)
        self.layers = nn.ModuleList(nn.Linear(size, N_HIDDEN) for size in sizes)
        self.norms = nn.ModuleList(nn.LayerNorm(N_HIDDEN, eps=0.1) for _ in sizes)
        self.mean, self.log_variance = nn.Linear(N_HIDDEN, N_LATENT), nn.Linear(N_HIDDEN, N_LATENT)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        inputs, earlier = rows, torch.zeros(1)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            inputs = norm(nn.functional.silu(layer(inputs) + earlier))
            earlier = earlier + inputs
        return self.mean(inputs), self.log_variance(inputs)


class RecVAE(nn.Module):
    def __init__(self, n_items: int) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(n_items), nn.Linear(N_LATENT, n_items)
        self.last = copy.deepcopy(self.encoder).requires_grad_(False)

    def remember(self) -> None:
        """The posterior as it is now becomes a part of the prior."""
        self.last.load_state_dict(self.encoder.state_dict())

    def loss(self, rows: Tensor, gamma: float, hidden: float) -> Tensor:
        mean, log_variance = self.encoder(dropout(normalize(rows), hidden))
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        with torch.no_grad():
            last = self.last(normalize(rows))
        divergence = (_log_normal(latent, mean, log_variance) - self._log_prior(latent, *last)).sum(dim=1)
        likelihood = (log_softmax(self.decoder(latent), dim=1) * rows).sum(dim=1)
        return (gamma * rows.sum(dim=1) * divergence - likelihood).mean()

    @staticmethod
    def _log_prior(latent: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
        still = torch.zeros(1)
        parts = (
            _log_normal(latent, still, still),
            _log_normal(latent, mean, log_variance),
            _log_normal(latent, still, still + WIDE),
        )
        return torch.stack([part + math.log(share) for part, share in zip(parts, SHARES, strict=True)]).logsumexp(0)

    def forward(self, rows: Tensor) -> Tensor:
        return self.decoder(self.encoder(normalize(rows))[0])


def _log_normal(values: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    return -0.5 * (log_variance + math.log(2 * math.pi) + (values - mean).square() / log_variance.exp())


def fit(split: Split, setting: Setting, seed: int) -> Patience:
    """The scores that are best on validation."""
    torch.manual_seed(seed)
    known = (split.train.adopted.tocsr() > 0).astype(np.float32)
    model = RecVAE(known.shape[1])
    optimisers = [torch.optim.Adam(part.parameters(), lr=setting.rate) for part in (model.encoder, model.decoder)]
    found = Patience(Validation(split), PATIENCE)
    learners = torch.from_numpy(np.flatnonzero(np.diff(known.indptr)))
    for epoch in range(1, EPOCHS + 1):
        turns = [(optimisers[0], setting.hidden)] * ENCODER_EPOCHS + [(optimisers[1], 0.0)] * DECODER_EPOCHS
        for turn, (optimiser, hidden) in enumerate(turns):
            if turn == ENCODER_EPOCHS:
                model.remember()
            for users in learners[torch.randperm(len(learners))].split(setting.batch):
                model.zero_grad()
                model.loss(torch.from_numpy(known[users.numpy()].toarray()), setting.gamma, hidden).backward()
                optimiser.step()
        if epoch % VALIDATE_EVERY == 0:
            kept = copy.deepcopy(model).eval()
            found.see(epoch, _scores(kept, known))
        if found.stop:
            break
    return found


def _scores(model: RecVAE, known) -> Scores:  # type: ignore[no-untyped-def]
    return lambda block: model(torch.from_numpy(known[block].toarray()))
