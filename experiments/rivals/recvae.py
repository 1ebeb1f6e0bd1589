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
from experiments.judged import Scores, Validation
from experiments.rivals.patience import Patience
from experiments.rivals.sparse import SparseRows
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import log_softmax, silu

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
        first, *others = (nn.Linear(size, N_HIDDEN) for size in sizes)
        self.weight, self.bias = nn.Parameter(first.weight.detach().T.contiguous()), first.bias
        self.layers = nn.ModuleList(others)
        self.norms = nn.ModuleList(nn.LayerNorm(N_HIDDEN, eps=0.1) for _ in sizes)
        self.mean, self.log_variance = nn.Linear(N_HIDDEN, N_LATENT), nn.Linear(N_HIDDEN, N_LATENT)

    def forward(self, rows: SparseRows) -> tuple[Tensor, Tensor]:
        seen = earlier = self.norms[0](silu(rows @ self.weight + self.bias))
        for layer, norm in zip(self.layers, self.norms[1:], strict=True):
            seen = norm(silu(layer(seen) + earlier))
            earlier = earlier + seen
        return self.mean(seen), self.log_variance(seen)


class RecVAE(nn.Module):
    def __init__(self, n_items: int) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(n_items), nn.Linear(N_LATENT, n_items)
        self.last = copy.deepcopy(self.encoder).requires_grad_(False)

    def remember(self) -> None:
        """The posterior as it is now becomes a part of the prior."""
        self.last.load_state_dict(self.encoder.state_dict())

    def loss(self, known: sparse.csr_matrix, seen: sparse.csr_matrix, gamma: float) -> Tensor:
        mean, log_variance = self.encoder(SparseRows(seen))
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        with torch.no_grad():
            last = self.last(SparseRows(of_length_1(known)))
        divergence = (_log_normal(latent, mean, log_variance) - self._log_prior(latent, *last)).sum(dim=1)
        rows = torch.from_numpy(known.toarray())
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

    def forward(self, known: sparse.csr_matrix) -> Tensor:
        return self.decoder(self.encoder(SparseRows(of_length_1(known)))[0])


def of_length_1(known: sparse.csr_matrix) -> sparse.csr_matrix:
    """Rows of 0 and 1, each divided by its length."""
    lengths = np.sqrt(np.maximum(np.diff(known.indptr), 1))
    return sparse.csr_matrix(
        (known.data / np.repeat(lengths, np.diff(known.indptr)), known.indices, known.indptr), known.shape
    )


def partly_hidden(known: sparse.csr_matrix, share: float, random: np.random.Generator) -> sparse.csr_matrix:
    """Rows of length 1 from which each item is left out with this chance, the others scaled up."""
    rows = of_length_1(known)
    rows.data *= (random.random(len(rows.data)) >= share) / (1 - share)
    return rows


def _log_normal(values: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    return -0.5 * (log_variance + math.log(2 * math.pi) + (values - mean).square() / log_variance.exp())


def fit(split: Split, setting: Setting, seed: int) -> Patience:
    """The scores that are best on validation."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    known = (split.train.adopted.tocsr() > 0).astype(np.float32)
    model = RecVAE(known.shape[1])
    parts = [torch.optim.Adam(part.parameters(), lr=setting.rate) for part in (model.encoder, model.decoder)]
    learners = np.flatnonzero(np.diff(known.indptr))
    found = Patience(Validation(split), PATIENCE)
    for epoch in range(1, EPOCHS + 1):
        for _ in range(ENCODER_EPOCHS):
            _learn(model, parts[0], known[random.permutation(learners)], setting, setting.hidden, random)
        model.remember()
        for _ in range(DECODER_EPOCHS):
            _learn(model, parts[1], known[random.permutation(learners)], setting, 0.0, random)
        if epoch % VALIDATE_EVERY == 0:
            found.see(epoch, _scores(copy.deepcopy(model).eval(), known))
        if found.stop:
            break
    return found


def _learn(
    model: RecVAE,
    optimiser: torch.optim.Optimizer,
    known: sparse.csr_matrix,
    setting: Setting,
    hidden: float,
    random: np.random.Generator,
) -> None:
    """One epoch."""
    for first in range(0, known.shape[0], setting.batch):
        batch = known[first : first + setting.batch]
        model.zero_grad()
        model.loss(batch, partly_hidden(batch, hidden, random), setting.gamma).backward()
        optimiser.step()


def _scores(model: RecVAE, known: sparse.csr_matrix) -> Scores:
    return lambda block: model(known[block])
