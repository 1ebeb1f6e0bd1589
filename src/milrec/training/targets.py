"""Target sets: which missing items of a batch of users enter the loss, and with which weight.

The number of missing items is the same for every user: target_factor × median(|I_u|) (section 3.3 of the paper). All
three draws below have the same expected loss; `expectation` is that expectation itself (decision D9). A target set is
kept sparse; `dense_targets` spells it out, users × items, for the readable path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array

from milrec.kernels.losses import partner_places
from milrec.kernels.rows import draw_missing, merged_items
from milrec.kernels.sparse import Rows
from milrec.losses import Targets
from milrec.training.settings import TargetSettings

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TargetSet:
    """What is known about a batch of users, and the weights of what is missing."""

    adopted: Rows
    rejected: Rows
    items: npt.NDArray[np.int32] | None  # items that count if they are missing; None: all of them
    weight: Floats  # (n_users,) of a missing item among them
    exceptions: Rows  # missing items with a weight of their own
    pair_keys: npt.NDArray[np.uint32]  # (n_users,) what decides which adopted item each missing item is paired with


def n_missing_drawn(adopted: csr_array, target_factor: float) -> int:
    """target_factor × median(|I_u|), at least 1."""
    return max(1, round(target_factor * float(np.median(np.diff(adopted.indptr)))))


def draw_targets(
    adopted: Rows,
    rejected: Rows,
    n_items: int,
    settings: TargetSettings | None,
    n_drawn: int,
    random: np.random.Generator,
) -> TargetSet:
    """The target set of a batch; without settings (the multinomial loss) no missing item is named."""
    n_users = len(adopted.indptr) - 1
    if settings is not None and settings.rejected_as == "missing":
        rejected = Rows.none(n_users)
    n_missing = n_items - adopted.counts - rejected.counts  # (n_users,)
    chance = (np.minimum(n_drawn, n_missing) / np.maximum(n_missing, 1)).astype(np.float32)
    items, weight, exceptions = None, np.zeros(n_users, dtype=np.float32), Rows.none(n_users)
    if settings is None:
        pass
    elif settings.target_set == "per_user":
        weight, exceptions = _drawn_per_user(adopted, rejected, n_items, n_drawn, random)
    elif settings.target_set == "shared":
        n_shared = min(n_drawn, n_items)
        items = np.sort(random.choice(n_items, n_shared, replace=False, shuffle=False)).astype(np.int32)
        weight = chance * np.float32(n_items / n_shared)  # makes up for the known items that fall out of the draw
    elif settings.target_set == "expectation":
        weight = chance
    else:
        assert settings.target_set == "all", settings
        weight = np.ones(n_users, dtype=np.float32)
    keys = random.integers(2**32, size=n_users, dtype=np.uint32)
    return TargetSet(adopted, rejected, items, weight, exceptions, keys)


def _drawn_per_user(
    adopted: Rows, rejected: Rows, n_items: int, n_drawn: int, random: np.random.Generator
) -> tuple[Floats, Rows]:
    """For each user `n_drawn` missing items, without replacement, all sets equally likely: the paper's draw.

    If that is more than half of them, all have weight 1 and those that are not drawn are the exceptions.
    """
    known_indptr, known = merged_items(adopted.indptr, adopted.items, rejected.indptr, rejected.items)
    marks = np.zeros(n_items, dtype=np.int8)
    indptr, items, drawn = draw_missing(random, known_indptr, known, n_items, n_drawn, marks)
    values = np.repeat(drawn, np.diff(indptr)).astype(np.float32)
    return (~drawn).astype(np.float32), Rows(indptr, items, values)


def dense_targets(targets: TargetSet, n_items: int, pairs: bool) -> Targets:
    """The same, users × items; with the partners of all items where a loss needs pairs."""
    adopted = (targets.adopted.dense(n_items) > 0).astype(np.float32)  # (n_users, n_items)
    rejected = (targets.rejected.dense(n_items) > 0).astype(np.float32)
    counts = np.zeros(n_items, dtype=np.float32)
    counts[slice(None) if targets.items is None else targets.items] = 1
    missing = targets.weight[:, None] * counts
    missing[targets.exceptions.users, targets.exceptions.items] = targets.exceptions.values
    missing[(adopted + rejected) > 0] = 0
    partner = torch.from_numpy(_partners(targets, n_items)) if pairs else None
    return Targets(torch.from_numpy(adopted), torch.from_numpy(rejected), torch.from_numpy(missing), partner)


def _partners(targets: TargetSet, n_items: int) -> npt.NDArray[np.int64]:
    """For each user and item one of the user's adopted items, all equally likely: the pairs P_u of equation 5."""
    partners = np.zeros((len(targets.weight), n_items), dtype=np.int64)
    for user, key in enumerate(targets.pair_keys):
        own = targets.adopted.items[targets.adopted.indptr[user] : targets.adopted.indptr[user + 1]]
        if len(own):
            partners[user] = own[partner_places(key, n_items, len(own))]
    return partners
