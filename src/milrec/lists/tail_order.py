"""Lists by P + bonus: the best items of each class of the tail, merged by what each is worth.

All items of a class have the same bonus, and P rises with the logit. So the best of a list are among the best of each
class by logit, and only these need a probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from milrec.lists.decisions import Proposed, Ranked, Scores
from milrec.lists.scores import Scorer
from milrec.metrics.tail import TailInterval
from milrec.models.inputs import Users
from milrec.probability.aims import Bonus
from milrec.probability.calibration import Chances, Doubles

Best = tuple[Ranked, Scores, npt.NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The best items of each class: (n_users, n) items by number, -1 where none is left, and their logits."""

    items: list[Ranked]
    logits: list[Scores]

    @classmethod
    def of(cls, scorer: Scorer, members: Sequence[npt.NDArray[np.int64]], proposed: Proposed, n: int) -> Candidates:
        """Of logits in which what must not be listed is -inf; `members` are the items of each class."""
        items, logits = [], []
        for own in members:
            part = np.full_like(proposed.logits, -np.inf)
            part[:, own] = proposed.logits[:, own]
            best, scores = scorer.best(proposed.with_logits(part), n)
            items.append(best)
            logits.append(scores)
        return cls(items, logits)


@dataclass(frozen=True, eq=False)
class TailOrder:
    """How items are ranked: by P and the bonus of their class, and by logit where these are equal."""

    members: Sequence[npt.NDArray[np.int64]]
    chances: Chances
    bonus: Bonus

    def best_items(self, scorer: Scorer, users: Users, proposed: Proposed, n: int) -> Ranked:
        """The n best items of each user."""
        candidates = Candidates.of(scorer, self.members, proposed, n)
        shifts = self.chances.shifts(users.adopted.counts, users.rejected.counts)
        items, logits = np.concatenate(candidates.items, axis=1), np.concatenate(candidates.logits, axis=1)
        order = _order(scorer.tie_places(items, proposed), logits, self._worth(candidates, shifts))
        order = order[:, : min(n, scorer.model.n_items)]
        ranked: Ranked = np.take_along_axis(items, order, axis=1)
        return ranked

    def best_of_tails(self, scorer: Scorer, proposed: Proposed, n: int, shift: float) -> list[Best]:
        """One user's n best items of each interval: items, logits, and a score, higher for what is worth more."""
        candidates = Candidates.of(scorer, self.members, proposed, n)
        worth = self._worth(candidates, np.array([shift]))
        items, logits = np.concatenate(candidates.items, axis=1), np.concatenate(candidates.logits, axis=1)
        order = _order(scorer.tie_places(items, proposed), logits, worth)[0]
        order = order[items[0][order] >= 0]
        ends = np.cumsum([part.shape[1] for part in candidates.items])
        interval = np.minimum(np.searchsorted(ends, order, side="right"), len(TailInterval) - 1)
        scores = -np.arange(len(order), dtype=np.float64)
        tails = [np.flatnonzero(interval == one)[:n] for one in TailInterval]
        return [(items[0][order[own]], logits[0][order[own]], scores[own]) for own in tails]

    def _worth(self, candidates: Candidates, shifts: Doubles) -> Doubles:
        """P + bonus; -inf where no item is left."""
        return np.concatenate(
            [
                np.where(items >= 0, self.chances.probabilities(logits, shifts[:, None]) + bonus, -np.inf)
                for items, logits, bonus in zip(candidates.items, candidates.logits, self.bonus, strict=True)
            ],
            axis=1,
        )


def _order(tie_places: Ranked, logits: Scores, worth: Doubles) -> npt.NDArray[np.int64]:
    order: npt.NDArray[np.int64] = np.lexsort((tie_places, -logits, -worth), axis=1)
    return order
