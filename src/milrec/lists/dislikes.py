"""Lists by P(adopted) - c·P(rejected): c is how many hits a dislike costs.

P(rejected) comes from a second model, fitted to the rejections of the same split (`milrec.fit_dislikes`). Most lists
are decided among the items with the highest logits, as an item's worth is at most P(adopted) - c·(the lowest
P(rejected)); where that does not decide, all items are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milrec.errors import DataError, SettingsError
from milrec.lists.decisions import Proposed, Ranked, Scores
from milrec.lists.scores import Scorer, logits_of
from milrec.models.contract import ROWS
from milrec.models.inputs import Users
from milrec.probability.calibration import Chances, Doubles
from milrec.training.artifact import Fitted

NO_CHANCES = "a model has no probabilities, which `dislikes` needs: fit it again, with a validation part"
NOT_COMBINED = "`dislikes` cannot be combined with rules, a dial or a share of the tail; give one of them"
_LOOKED_AT = 4  # items at first, for each that is listed


@dataclass(frozen=True, eq=False)
class Dislikes:
    """A model of what users reject, and how many hits a dislike costs."""

    fitted: Fitted
    scorer: Scorer
    chances: Chances
    cost: float

    @classmethod
    def of(cls, fitted: Fitted, scorer: Scorer, cost: Any) -> Self:
        """Of a model that was fitted to rejections."""
        if not fitted.predicts_rejections:
            raise SettingsError(
                "the model of `dislikes` predicts what users adopt; fit one to what they reject: milrec.fit_dislikes"
            )
        if fitted.model.knows_users:
            name = fitted.settings.model.model
            raise SettingsError(f"a model '{name}' has weights for each user; fit dislikes with another, e.g. dae")
        if scorer.chances is None:
            raise SettingsError(NO_CHANCES)
        return cls(fitted, scorer, scorer.chances, checked_cost(cost))

    def refuse_others(self, item_ids: pa.ChunkedArray) -> None:
        """Refuse a catalogue that is not its own."""
        if not self.fitted.train.items["id"].equals(item_ids):
            raise DataError("the model of `dislikes` has other items; fit both models to the same split")

    def logits(self, users: Users) -> Scores:
        """(n_users, n_items); to this model rejections are what users have. No bit depends on who else is asked for."""
        swapped = Users(users.rejected, users.adopted, None)
        parts = [swapped.part(start, start + ROWS) for start in range(0, swapped.n_users, ROWS)]
        return np.concatenate([logits_of(self.scorer, part)[: part.n_users] for part in parts])

    def costs(self, users: Users, logits: Scores) -> Doubles:
        """c·P(rejected) of logits whose rows are these users."""
        shifts = self.chances.shifts(users.rejected.counts, users.adopted.counts)
        return self.cost * self.chances.probabilities(logits, shifts[:, None])


def checked_cost(cost: Any) -> float:
    """How many hits a dislike costs."""
    if not isinstance(cost, int | float | np.number) or isinstance(cost, bool) or not 0 <= cost <= 1000:
        raise SettingsError(f"the cost of a dislike must be a number from 0 to 1,000 (hits), not {cost!r}")
    return float(cost)


def checked_dislikes(dislikes: Any) -> Dislikes:
    """What somebody gives as `dislikes`."""
    if not isinstance(dislikes, Dislikes):
        raise SettingsError("`dislikes` must be a model of rejections at a cost: dislikes=disliked.at_cost(0.5)")
    return dislikes


@dataclass(frozen=True, eq=False)
class SparingOrder:
    """How items are ranked: by P(adopted) - c·P(rejected), and by logit where these are equal."""

    chances: Chances  # of the model that is asked
    dislikes: Dislikes

    def best_items(self, scorer: Scorer, users: Users, proposed: Proposed, n: int) -> Ranked:
        """The n best items of each user."""
        return self.best(scorer, users, proposed, n)[0]

    def best(self, scorer: Scorer, users: Users, proposed: Proposed, n: int) -> tuple[Ranked, Scores]:
        """The same, with their logits."""
        n_items = scorer.model.n_items
        n, disliked = min(n, n_items), self.dislikes.logits(users)
        candidates, logits = scorer.best(proposed, min(_LOOKED_AT * n, n_items))
        liked = self._liked(users, candidates, logits)
        costs = self.dislikes.costs(users, np.take_along_axis(disliked, np.maximum(candidates, 0), axis=1))
        items, scores, last = _ranked(candidates, logits, liked - costs, scorer.tie_places(candidates, proposed), n)
        beyond = liked[:, -1] - self.dislikes.costs(users, disliked.min(axis=1, keepdims=True))[:, 0]
        open_ = np.flatnonzero((last < beyond) & (candidates.shape[1] < n_items))
        for user in open_:  # one at a time: this takes memory for all items
            items[user], scores[user] = self._best_of_all(scorer, users, proposed, disliked, int(user), n)
        return items, scores

    def _best_of_all(
        self, scorer: Scorer, users: Users, proposed: Proposed, disliked: Scores, user: int, n: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The n best items of one user, all items compared."""
        one, own = users.part(user, user + 1), proposed.one(user)
        candidates, logits = scorer.best(own, scorer.model.n_items)
        costs = self.dislikes.costs(
            one, np.take_along_axis(disliked[user : user + 1], np.maximum(candidates, 0), axis=1)
        )
        worth = self._liked(one, candidates, logits) - costs
        items, scores, _ = _ranked(candidates, logits, worth, scorer.tie_places(candidates, own), n)
        return items[0], scores[0]

    def _liked(self, users: Users, items: Ranked, logits: Scores) -> Doubles:
        """P(adopted), -inf where no item is left."""
        shifts = self.chances.shifts(users.adopted.counts, users.rejected.counts)
        liked: Doubles = np.where(items >= 0, self.chances.probabilities(logits, shifts[:, None]), -np.inf)
        return liked


def _ranked(
    items: Ranked, logits: Scores, worth: Doubles, tie_places: Ranked, n: int
) -> tuple[Ranked, Scores, npt.NDArray[np.float64]]:
    """The n items of each user that are worth most, their logits, and what the last one is worth."""
    order = np.lexsort((tie_places, -logits, -worth), axis=1)[:, :n]
    last = np.take_along_axis(worth, order, axis=1)[:, -1]
    return np.take_along_axis(items, order, axis=1), np.take_along_axis(logits, order, axis=1), last
