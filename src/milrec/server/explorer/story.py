"""The example that the page opens with: a small taste for which the models' lists differ in a telling way.

It is made of items alone: an item that is no hit, and others that a model finds similar. No user is looked at. The two
models are those whose lists differ the most in their share of hits, on average over a few hundred such tastes. Of these
tastes it is not the one with the largest difference, but one that a fifth of them reach; among equals, the one where
the first model lists most of what the second finds too, further down: so it fits the taste, and was only pushed aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from milrec.errors import SettingsError
from milrec.lists.catalogue import Catalogue
from milrec.recommender import Recommender
from milrec.server.explorer.portions import Items, Portions, by_popularity, in_portions, lists_for, spread
from milrec.server.model import Served

_SEEDS = 200  # items that a taste is built around
_FEW_SEEDS = 8  # where the factors of each new user have to be fitted
_MODELS = 4  # the most that stand side by side on the page
_LIKED = (2, 3)  # items in a taste
_NEIGHBOURS = 20  # of which the most similar suitable ones are taken
_KNOWN_ENOUGH = 5  # adopters: a taste for items that hardly anyone knows tells little
_SEEN = 20  # places of the lists that a visitor sees first
_DEEP = 100  # places within which an item still fits
_TYPICAL = 0.8  # of the tastes differ less than the example, or as much


class Story(NamedTuple):
    """A taste, and two models to compare: the one with more hits first. One model, if there is no other."""

    liked: list[int]
    models: list[str]


def story(models: Sequence[Served]) -> Portions[Story]:
    """An example for these models; the same for the same models."""
    own = comparable(models)
    recommenders = [served.recommender for served in own]
    slow = any(one.folds_in for one in recommenders)
    tastes = yield from _tastes(recommenders, _FEW_SEEDS if slow else _SEEDS)
    lists: list[list[Items]] = []
    for one in recommenders:
        lists.append((yield from lists_for(one, tastes, _DEEP)))
    place, pair = _example(own, lists)
    return Story(tastes[place].tolist(), [own[model].name for model in pair])


def comparable(models: Sequence[Served]) -> list[Served]:
    """The first few models of the same data; without those that take long for a new user, if there are others."""
    data = models[0].recommender.fitted.facts["train_fingerprint"]
    same = [served for served in models if served.recommender.fitted.facts["train_fingerprint"] == data]
    quick = [served for served in same if not served.recommender.folds_in]
    return (quick or same)[:_MODELS]


def _tastes(recommenders: Sequence[Recommender], n: int) -> Portions[list[Items]]:
    """Tastes of an item and those most similar to it, none of them a hit."""
    catalogue = recommenders[0].catalogue
    suitable = _suitable(recommenders[0])
    order = by_popularity(catalogue)
    popular_first = order[suitable[order]]
    found: list[Items] = []
    for seeds in in_portions(spread(popular_first[: max(n, len(popular_first) // 2)], n).tolist(), catalogue):
        for seed in seeds:
            near = _similar(recommenders, seed)
            found += [np.array([seed, *near[suitable[near]][: size - 1]]) for size in _LIKED]
        yield
    return found


def _suitable(recommender: Recommender) -> npt.NDArray[np.bool_]:
    """Items that a taste may hold: no hits, and those with a title and some adopters, if there are any."""
    catalogue = recommender.catalogue
    suitable = np.ones(len(catalogue.popularity), dtype=bool)
    for wish in (_titled(catalogue), catalogue.intervals > 0, catalogue.popularity >= _KNOWN_ENOUGH):
        if (suitable & wish).any():
            suitable &= wish
    return suitable


def _titled(catalogue: Catalogue) -> npt.NDArray[np.bool_]:
    columns = catalogue.columns
    if "title" not in columns.schema.names:
        return np.zeros(columns.num_rows, dtype=bool)
    titled: npt.NDArray[np.bool_] = columns["title"].is_valid().to_numpy(zero_copy_only=False)
    return titled


def _similar(recommenders: Sequence[Recommender], item: int) -> Items:
    """The items that a model finds most similar; none if no model can tell."""
    for one in recommenders:
        try:
            return one.nearest_by_model(item, _NEIGHBOURS).items
        except SettingsError:  # a model without item factors
            continue
    return np.empty(0, dtype=np.int64)


def _example(models: Sequence[Served], lists: Sequence[list[Items]]) -> tuple[int, list[int]]:
    """The number of the taste, and of the two models."""
    intervals = models[0].recommender.catalogue.intervals
    hits = np.array([[_mean(intervals[one[:_SEEN]] == 0) for one in own] for own in lists])  # (n_models, n_tastes)
    if len(models) == 1:
        return int(np.argmax(hits[0] * (1 - hits[0]))), [0]
    a, b = _rivals(models, hits.mean(axis=1))
    gains = hits[a] - hits[b]
    typical = np.flatnonzero(gains == np.quantile(gains, _TYPICAL, method="lower"))
    fits = [_fits(lists[a][place], lists[b][place]) for place in typical]
    return int(typical[np.argmax(fits)]), [a, b]


def _rivals(models: Sequence[Served], hits: npt.NDArray[np.float64]) -> tuple[int, int]:
    """The two models whose lists differ the most on average, the one with more hits first.

    The second is fitted with the missing-information loss, if there is such a model and another has more hits.
    """
    pairs = list(permutations(range(len(models)), 2))
    ours = [pair for pair in pairs if models[pair[1]].recommender.fitted.settings.loss_name == "mil"]
    best = max(ours or pairs, key=lambda pair: hits[pair[0]] - hits[pair[1]])
    return best if hits[best[0]] > hits[best[1]] else max(pairs, key=lambda pair: hits[pair[0]] - hits[pair[1]])


def _fits(own: Items, other: Items) -> float:
    """Which share of what only the other model shows at once is in this model's list, further down."""
    return _mean(np.isin(np.setdiff1d(other[:_SEEN], own[:_SEEN]), own))


def _mean(values: Items | npt.NDArray[np.bool_]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
