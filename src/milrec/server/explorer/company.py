"""The items that a model lists together, in its lists for a sample of tastes: one liked item each, and no user."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from milrec.lists.catalogue import Catalogue
from milrec.recommender import Recommender
from milrec.server.explorer.portions import Items, Portions, by_popularity, lists_for, spread

_TASTES = 400
_FEW_TASTES = 40  # where the factors of each new user have to be fitted
_LENGTH = 20
_NOTHING = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Company:
    """The lists of a model for a sample of tastes."""

    lists: list[Items]
    catalogue: Catalogue

    def of(self, item: int, n: int) -> dict[str, Any]:
        """In how many of the lists an item is, and which items are there with it most often.

        Of two that are there equally often, the one that is in fewer of the other lists comes first.
        """
        together = [one for one in self.lists if item in one]
        others, counts = np.unique(np.concatenate([*together, _NOTHING]), return_counts=True)
        elsewhere = np.array([self._totals[other] for other in others.tolist()], dtype=np.int64)
        order = np.lexsort((self.catalogue.places[others], elsewhere, -counts))
        best = order[others[order] != item][:n]
        return {
            "n_lists": len(self.lists),
            "listed": len(together),
            "items": others[best],
            "counts": counts[best],
        }

    @cached_property
    def _totals(self) -> dict[int, int]:
        """Item → how many lists it is in."""
        items, counts = np.unique(np.concatenate([*self.lists, _NOTHING]), return_counts=True)
        return dict(zip(items.tolist(), counts.tolist(), strict=True))


def company(recommender: Recommender) -> Portions[Company]:
    """The sample of a model: liked items from all places of the popularity order, evenly spaced."""
    catalogue = recommender.catalogue
    items = by_popularity(catalogue)
    tastes = [np.array([item]) for item in spread(items, _FEW_TASTES if recommender.folds_in else _TASTES)]
    return Company((yield from lists_for(recommender, tastes, _LENGTH)), catalogue)
