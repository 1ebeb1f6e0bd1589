"""Target sets: which missing items of a batch of users enter the loss, and with which weight.

The number of missing items is the same for every user: target_factor × median(|I_u|) (section 3.3 of the paper). All
three draws below have the same expected loss; `expected` is that expectation itself (decision D9).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array

from milrec.config import TargetSettings
from milrec.losses import Targets

Dense = npt.NDArray[np.float32]


def n_missing_drawn(adopted: csr_array, target_factor: float) -> int:
    """target_factor × median(|I_u|), at least 1."""
    return max(1, round(target_factor * float(np.median(np.diff(adopted.indptr)))))


def draw_targets(
    adopted: Dense,
    rejected: Dense,
    settings: TargetSettings | None,
    n_drawn: int,
    random: np.random.Generator,
) -> Targets:
    """The target set of a batch; without settings (the multinomial loss) no missing item is named."""
    known = (adopted + rejected) > 0  # (n_users, n_items)
    if settings is None:
        missing = np.zeros_like(adopted)
    elif settings.target_set == "per_user":
        missing = draw_per_user(known, n_drawn, random)
    elif settings.target_set == "shared":
        missing = draw_shared(known, n_drawn, random)
    elif settings.target_set == "expectation":
        missing = expected(known, n_drawn)
    else:
        missing = (~known).astype(np.float32)
    return Targets(torch.from_numpy(adopted), torch.from_numpy(rejected), torch.from_numpy(missing))


def draw_per_user(known: npt.NDArray[np.bool_], n_drawn: int, random: np.random.Generator) -> Dense:
    """For each user `n_drawn` missing items, without replacement, all sets equally likely: the paper's draw."""
    keys = random.random(known.shape, dtype=np.float32)
    keys[known] = 2.0  # behind every missing item
    if n_drawn >= known.shape[1]:
        return (~known).astype(np.float32)
    first = np.argpartition(keys, n_drawn - 1, axis=1)[:, :n_drawn]  # (n_users, n_drawn)
    chosen = np.zeros(known.shape, dtype=bool)
    np.put_along_axis(chosen, first, True, axis=1)
    return (chosen & ~known).astype(np.float32)


def draw_shared(known: npt.NDArray[np.bool_], n_drawn: int, random: np.random.Generator) -> Dense:
    """One draw from the catalogue for the whole batch; weights make up for the known items that fall out of it."""
    n_items = known.shape[1]
    n_shared = min(n_drawn, n_items)
    items = random.permutation(n_items)[:n_shared]
    weight = expected(known, n_drawn) * (n_items / n_shared)  # (n_users, n_items)
    drawn: Dense = np.zeros_like(weight)
    drawn[:, items] = weight[:, items]
    return drawn


def expected(known: npt.NDArray[np.bool_], n_drawn: int) -> Dense:
    """Every missing item, weighted by its chance to be drawn: the loss without the noise of the draw."""
    n_missing = (~known).sum(axis=1, keepdims=True)  # (n_users, 1)
    chance = np.minimum(n_drawn, n_missing) / np.maximum(n_missing, 1)
    weights: Dense = np.where(known, 0.0, chance).astype(np.float32)
    return weights


def draw_partners(adopted: Dense, random: np.random.Generator) -> torch.Tensor:
    """For each user and each item one of the user's adopted items, all equally likely: the pairs P_u of equation 5."""
    counts = (adopted > 0).sum(axis=1)
    own = np.argsort(adopted <= 0, axis=1, kind="stable")[
        :, : max(int(counts.max(initial=0)), 1)
    ]  # adopted items first
    place = (random.random(adopted.shape) * np.maximum(counts, 1)[:, None]).astype(np.int64)  # (n_users, n_items)
    return torch.from_numpy(np.take_along_axis(own, place, axis=1))
