"""Lists from any scores, judged user by user with milrec's measures."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from milrec.data.splits import HeldOut, Split
from milrec.metrics import ranking, tail

LENGTH = 200
VALIDATION_USERS = 2500
MEASURES = ("recall@1", "ndcg@20", "ndcg@100", "recall_of_all@20", "short_share@200", "long_share@200")

Scores = Callable[[npt.NDArray[np.int64]], Tensor]  # users to a row of scores for each, (n, n_items)
PerUser = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Validation:
    """What a fit may look at: NDCG@100 on validation, of some users when it is asked after every few epochs."""

    split: Split

    def __call__(self, scores: Scores) -> float:
        return float(np.nanmean(judged(scores, self.split, self.split.validation, VALIDATION_USERS)["ndcg@100"]))


@torch.no_grad()
def judged(scores: Scores, split: Split, part: HeldOut, most: int | None = None) -> PerUser:
    """Every measure for each user with held-out items, in the order of users."""
    users = np.flatnonzero(np.diff(part.targets.indptr))
    if most is not None and len(users) > most:
        users = np.sort(np.random.default_rng(0).choice(users, most, replace=False))
    top = np.concatenate([_lists(scores, part, block) for block in np.array_split(users, -(-len(users) // 500))])
    targets = part.targets[users]
    hits = ranking.find_hits(top, np.split(targets.indices, targets.indptr[1:-1]))
    shares = 100 * tail.list_shares(top, tail.tail_intervals(split.train.popularity()))
    return {
        "recall@1": ranking.recall(hits, 1),
        "ndcg@20": ranking.ndcg(hits, 20),
        "ndcg@100": ranking.ndcg(hits, 100),
        "recall_of_all@20": ranking.recall_of_all(hits, 20),
        "short_share@200": shares[:, tail.TailInterval.SHORT],
        "long_share@200": shares[:, tail.TailInterval.LONG],
    }


def _lists(scores: Scores, part: HeldOut, users: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    found = scores(users)
    never = part.audience.removed[users].toarray() + part.audience.rejected[users].toarray()
    found = found.masked_fill(torch.from_numpy(never != 0), -torch.inf)
    top = found.topk(min(LENGTH, found.shape[1]), dim=1)
    return torch.where(top.values > -torch.inf, top.indices, -1).numpy()
