"""LightGCN (He et al., 2020, arXiv 2002.02126), from the paper's equations.

E⁰ has a row for each user and item; Eᵏ⁺¹ = D^-½·A·D^-½·Eᵏ; the mean of E⁰ … Eᴷ gives users and items their vectors,
and a score is their product. BPR with one uniformly drawn missing item for each adopted pair, and λ·‖E⁰‖² of the rows
of a batch.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from experiments.judged import Scores, Validation
from experiments.rivals.patience import Patience
from experiments.rivals.sparse import SparseRows
from torch import Tensor
from torch.nn.functional import softplus

from milrec.data.splits import Split

EPOCHS, VALIDATE_EVERY, PATIENCE = 400, 10, 4
START = 0.1  # standard deviation of E⁰


@dataclass(frozen=True)
class Setting:
    n_factors: int
    n_layers: int
    decay: float  # λ
    batch: int = 8192
    rate: float = 5e-3


class Graph:
    """D^-½·A·D^-½ in two parts: from items to users, and from users to items."""

    def __init__(self, split: Split) -> None:
        adopted = split.train.adopted.tocsr().astype(np.float32)
        adopted.data[:] = 1
        of_users = np.maximum(np.asarray(adopted.sum(axis=1)).ravel(), 1) ** -0.5
        of_items = np.maximum(np.asarray(adopted.sum(axis=0)).ravel(), 1) ** -0.5
        adopted = adopted.multiply(of_users[:, None]).multiply(of_items[None, :]).tocsr()
        self.to_users, self.to_items = SparseRows(adopted), SparseRows(adopted.T.tocsr())

    def mean(self, users: Tensor, items: Tensor, n_layers: int) -> tuple[Tensor, Tensor]:
        """The mean of layers 0 to n_layers."""
        sums = users, items
        for _ in range(n_layers):
            users, items = self.to_users @ items, self.to_items @ users
            sums = sums[0] + users, sums[1] + items
        return sums[0] / (n_layers + 1), sums[1] / (n_layers + 1)


class Draws:
    """Items that a user has not adopted, uniformly."""

    def __init__(self, split: Split) -> None:
        adopted = split.train.adopted.tocsr()
        self.n_items = adopted.shape[1]
        self.users = np.repeat(np.arange(adopted.shape[0]), np.diff(adopted.indptr))
        self.items = adopted.indices.astype(np.int64)
        self._taken = np.sort(self.users * self.n_items + self.items)

    def missing(self, users: npt.NDArray[np.int64], random: np.random.Generator) -> npt.NDArray[np.int64]:
        items = random.integers(self.n_items, size=len(users))
        while (again := np.flatnonzero(self._known(users, items))).size:
            items[again] = random.integers(self.n_items, size=len(again))
        return items

    def _known(self, users: npt.NDArray[np.int64], items: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        wanted = users * self.n_items + items
        places = np.minimum(np.searchsorted(self._taken, wanted), len(self._taken) - 1)
        return np.asarray(self._taken[places] == wanted)


def fit(split: Split, setting: Setting, seed: int) -> Patience:
    """The scores that are best on validation."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    graph, draws = Graph(split), Draws(split)
    users = torch.nn.Parameter(START * torch.randn(split.train.n_users, setting.n_factors))
    items = torch.nn.Parameter(START * torch.randn(split.train.n_items, setting.n_factors))
    optimiser = torch.optim.Adam([users, items], lr=setting.rate)
    found = Patience(Validation(split), PATIENCE)
    for epoch in range(1, EPOCHS + 1):
        for batch in np.array_split(random.permutation(len(draws.users)), -(-len(draws.users) // setting.batch)):
            who, liked = draws.users[batch], draws.items[batch]
            triple = [torch.from_numpy(one) for one in (who, liked, draws.missing(who, random))]
            optimiser.zero_grad()
            _loss(users, items, graph, triple, setting).backward()
            optimiser.step()
        if epoch % VALIDATE_EVERY == 0:
            found.see(epoch, _scores(*graph.mean(users.detach(), items.detach(), setting.n_layers)))
        if found.stop:
            break
    return found


def _loss(users: Tensor, items: Tensor, graph: Graph, triple: list[Tensor], setting: Setting) -> Tensor:
    who, liked, missing = triple
    of_users, of_items = graph.mean(users, items, setting.n_layers)
    margins = (of_users[who] * (of_items[liked] - of_items[missing])).sum(dim=1)
    squares = users[who].square().sum() + items[liked].square().sum() + items[missing].square().sum()
    return softplus(-margins).mean() + setting.decay * squares / (2 * len(who))


def _scores(users: Tensor, items: Tensor) -> Scores:
    return lambda block: users[torch.from_numpy(block)] @ items.T
