"""Lists by P(adopted) - c·P(rejected): c is how many hits a dislike costs.

P(rejected) comes from a second model, fitted to the rejections of the same split (`milrec.fit_dislikes`). An item's
worth is at most its P(adopted), so the best of a list are among the items with the highest logits: these are looked at
until no other can be worth more than the last one listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from milrec.data.interactions import Interactions
from milrec.errors import NO_PROBABILITIES, DataError, SettingsError
from milrec.lists.decisions import Proposed, Ranked, Scores
from milrec.lists.scores import Scorer, logits_of
from milrec.models.contract import ROWS
from milrec.models.inputs import Users
from milrec.probability.calibration import Chances, Doubles
from milrec.training.artifact import Fitted

_LOOKED_AT = 4  # items at first, for each that is listed


@dataclass(frozen=True, eq=False)
class Dislikes:
    """A model of what users reject, and how many hits a dislike costs."""

    scorer: Scorer
    chances: Chances
    train: Interactions  # with rejections in place of adoptions
    cost: float

    @classmethod
    def of(cls, fitted: Fitted, scorer: Scorer, cost: Any) -> Self:
        """Of a model that was fitted to rejections."""
        if not fitted.predicts_rejections:
            raise SettingsError("the model predicts what users adopt; fit one to their rejections: milrec.fit_dislikes")
        if fitted.model.knows_users:
            name = fitted.settings.model.model
            raise SettingsError(
                f"a model '{name}' has weights for each user; fit dislikes with an autoencoder (dae, vae)"
            )
        if scorer.chances is None:
            raise SettingsError(NO_PROBABILITIES)
        return cls(scorer, scorer.chances, fitted.train, checked_cost(cost))

    def refuse_others(self, item_ids: list[Any]) -> None:
        """Refuse a catalogue that is not its own."""
        if self.train.items["id"].to_pylist() != item_ids:
            raise DataError("the model of dislikes has other items; fit both models to the same split")

    def probabilities(self, users: Users, items: Ranked) -> Doubles:
        """The chance that each user rejects each of these items, (n_users, n); -1 stands for no item."""
        logits = np.empty(items.shape, dtype=np.float32)
        for start in range(0, users.n_users, ROWS):
            own = np.maximum(items[start : start + ROWS], 0)
            logits[start : start + ROWS] = np.take_along_axis(
                self._logits(users.part(start, start + ROWS)), own, axis=1
            )
        shifts = self.chances.shifts(users.rejected.counts, users.adopted.counts)
        return self.chances.probabilities(logits, shifts[:, None])

    def _logits(self, users: Users) -> Scores:
        """To the model of dislikes, rejections are what users have; no bit depends on who else is asked for."""
        return logits_of(self.scorer, Users(users.rejected, users.adopted, None))[: users.n_users]


def checked_cost(cost: Any) -> float:
    """How many hits a dislike costs."""
    if not isinstance(cost, int | float | np.number) or isinstance(cost, bool) or not 0 <= cost <= 1000:
        raise SettingsError(f"the cost of a dislike must be a number from 0 to 1,000 (hits), not {cost!r}")
    return float(cost)


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
        n = min(n, scorer.model.n_items)
        length = min(_LOOKED_AT * n, scorer.model.n_items)
        while True:
            items, logits = scorer.best(proposed, length)
            liked, worth = self._worth(users, items, logits)
            order = np.lexsort((scorer.tie_places(items, proposed), -logits, -worth), axis=1)[:, :n]
            last = np.take_along_axis(worth, order, axis=1)[:, -1:]  # (n_users, 1) of what is listed
            if length == scorer.model.n_items or bool((last >= liked[:, -1:]).all()):
                return np.take_along_axis(items, order, axis=1), np.take_along_axis(logits, order, axis=1)
            length = min(2 * length, scorer.model.n_items)

    def _worth(self, users: Users, items: Ranked, logits: Scores) -> tuple[Doubles, Doubles]:
        """P(adopted), and that less what a dislike costs; -inf where no item is left."""
        shifts = self.chances.shifts(users.adopted.counts, users.rejected.counts)
        liked = self.chances.probabilities(logits, shifts[:, None])
        liked = np.where(items >= 0, liked, -np.inf)
        worth: Doubles = liked - self.dislikes.cost * self.dislikes.probabilities(users, items)
        return liked, worth
