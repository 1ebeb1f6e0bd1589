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

from milrec.data.interactions import Interactions
from milrec.kernels.losses import partner_places
from milrec.kernels.rows import draw_missing, merged_items
from milrec.kernels.sparse import Rows
from milrec.losses import Targets
from milrec.training.sections import TargetSettings

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TargetSet:
    """What is known about a batch of users, and the weights of what is missing."""

    adopted: Rows
    rejected: Rows
    items: npt.NDArray[np.int32] | None  # items that count if they are missing; None: all of them
    item_weight: Floats | None  # (n_items drawn,) how many missing items each of them stands for; None: one each
    weight: Floats  # (n_users,) of a missing item among them
    exceptions: Rows  # missing items with a weight of their own
    pair_keys: npt.NDArray[np.uint32]  # (n_users,) what decides which adopted item each missing item is paired with
    importance: Floats  # (n_users,) how much each user's loss counts; 1 on average over all users of a fit

    @property
    def shares(self) -> Floats:
        """What each user's loss is multiplied by in the mean of the batch: (n_users,)."""
        return self.importance / np.float32(len(self.importance))


def n_missing_drawn(adopted: csr_array, target_factor: float) -> int:
    """target_factor × median(|I_u|), at least 1."""
    return max(1, round(target_factor * float(np.median(np.diff(adopted.indptr)))))


def user_importance(adopted: csr_array, exponent: float) -> npt.NDArray[np.float64]:
    """|I_u|^-β, divided by its mean: how much each user's loss counts. With β above 0, users with few items count more
    than others: measures are means over users, and a sum over a target set grows with what a user adopted.
    """
    own = np.maximum(np.diff(adopted.indptr), 1).astype(np.float64) ** -exponent
    importance: npt.NDArray[np.float64] = own / own.mean()
    return importance


@dataclass(frozen=True, eq=False)
class Draws:
    """How missing items are drawn: how many of them, and how likely each item is where a batch shares them."""

    n_drawn: int
    chances: npt.NDArray[np.float64]  # (n_items,) of being drawn for a batch
    order: npt.NDArray[np.int64]  # (n_items,) items by falling chance: those that are always drawn first
    n_certain: int  # items that are always drawn
    reached: npt.NDArray[np.float64]  # (n_items - n_certain,) sums of the chances of the others, in that order

    @classmethod
    def of(cls, train: Interactions, target_factor: float) -> Draws:
        """What a fit draws from its training part."""
        return cls.by_popularity(train.popularity(), n_missing_drawn(train.adopted, target_factor))

    @classmethod
    def by_popularity(cls, popularity: npt.ArrayLike, n_drawn: int) -> Draws:
        """Items are as likely as they are popular: where the loss is at rest, what an item's missing pairs ask for is
        in proportion to its adopters, so that all draws count about the same and their sum varies least.
        """
        sizes = np.asarray(popularity, dtype=np.float64) + 1.0  # so that an item without adopters is drawn too
        n_items, n_drawn = len(sizes), min(n_drawn, len(sizes))
        order = np.argsort(-sizes, kind="stable")
        rest = np.cumsum(sizes[order][::-1])[::-1]  # of this item and all less popular ones
        scales = (n_drawn - np.arange(n_items)) / rest  # if all more popular ones are certain
        n_certain = int(np.argmax(scales * sizes[order] < 1)) if n_drawn < n_items else n_items
        chances = np.ones(n_items)
        if n_certain < n_items:
            others = order[n_certain:]
            chances[others] = scales[n_certain] * sizes[others]
        return cls(n_drawn, chances, order, n_certain, np.cumsum(chances[order[n_certain:]]))

    @property
    def n_items(self) -> int:
        return len(self.chances)

    def shared(self, random: np.random.Generator) -> tuple[npt.NDArray[np.int32], Floats]:
        """Items for a batch, ascending, and how many missing items each of them stands for.

        The others lie on a line, each as long as its chance; one point is drawn in every unit of it.
        """
        points = np.arange(self.n_drawn - self.n_certain) + random.random(self.n_drawn - self.n_certain)
        places = np.searchsorted(self.reached, points, side="right")
        places = np.minimum(places, len(self.reached) - 1) + self.n_certain  # the last sum may be rounded down
        drawn, counts = np.unique(self.order[np.append(np.arange(self.n_certain), places)], return_counts=True)
        return drawn.astype(np.int32), (counts / self.chances[drawn]).astype(np.float32)


def draw_targets(
    adopted: Rows, rejected: Rows, settings: TargetSettings | None, draws: Draws, random: np.random.Generator
) -> TargetSet:
    """The target set of a batch; without settings (the multinomial loss) no missing item is named."""
    n_users, n_items, n_drawn = len(adopted.indptr) - 1, draws.n_items, draws.n_drawn
    if settings is not None and settings.rejected_as == "missing":
        rejected = Rows.none(n_users)
    n_missing = n_items - adopted.counts - rejected.counts  # (n_users,)
    chance = (np.minimum(n_drawn, n_missing) / np.maximum(n_missing, 1)).astype(np.float32)
    items, item_weight, weight, exceptions = None, None, np.zeros(n_users, dtype=np.float32), Rows.none(n_users)
    if settings is None:
        pass
    elif settings.target_set == "per_user":
        weight, exceptions = _drawn_per_user(adopted, rejected, n_items, n_drawn, random)
    elif settings.target_set == "shared":
        items, item_weight = draws.shared(random)
        weight = chance
    elif settings.target_set == "expectation":
        weight = chance
    else:
        assert settings.target_set == "all", settings
        weight = np.ones(n_users, dtype=np.float32)
    keys = random.integers(2**32, size=n_users, dtype=np.uint32)
    return TargetSet(
        adopted, rejected, items, item_weight, weight, exceptions, keys, np.ones(n_users, dtype=np.float32)
    )


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
    if targets.items is None:
        counts[:] = 1
    else:
        counts[targets.items] = targets.item_weight
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
