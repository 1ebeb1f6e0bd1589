"""Which pairs are held out: random shares of all pairs, of popular and rare items, or of each user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from milrec.data.pairs import item_counts, pair_users, pairs_where
from milrec.errors import SettingsError, unknown

_N_CLASSES = 20  # of items by popularity, with about as many pairs in each

Rounding = Literal["nearest", "down"]
Hidden = Callable[[npt.NDArray[Any]], npt.NDArray[np.int64]]  # how many items users have → how many are to be found


def drawn_share(pairs: csr_array, share: float, random: np.random.Generator) -> tuple[csr_array, csr_array]:
    """A matrix in two parts: most pairs, and a random share of them."""
    drawn = np.zeros(pairs.nnz, dtype=bool)
    drawn[random.permutation(pairs.nnz)[: round(pairs.nnz * share)]] = True
    return pairs_where(pairs, ~drawn), pairs_where(pairs, drawn)


def drawn_like(
    pairs: csr_array, other: csr_array, share: float, random: np.random.Generator
) -> tuple[csr_array, csr_array]:
    """A matrix in two parts, the second with the popularity profile of other pairs of the same items.

    Where popular items have more of their pairs among the others than rare items do, they have more drawn as well.
    """
    classes = _popularity_classes(item_counts(pairs))[pairs.indices]
    sizes = np.bincount(classes, minlength=_N_CLASSES)
    others = np.bincount(_popularity_classes(item_counts(pairs))[other.indices], minlength=_N_CLASSES)
    held = others / np.maximum(sizes + others, 1)  # the share of each class that the others hold
    wanted = np.rint(np.minimum(held * share * pairs.nnz / max((held * sizes).sum(), 1e-300), 1) * sizes)
    order = np.lexsort((random.random(pairs.nnz), classes))
    place = np.arange(pairs.nnz) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # within the shuffled class
    drawn = np.zeros(pairs.nnz, dtype=bool)
    drawn[order] = place < np.repeat(wanted, sizes)
    return pairs_where(pairs, ~drawn), pairs_where(pairs, drawn)


def _popularity_classes(popularity: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The class of each item: 0 for the most popular, each with about as many pairs; equals share a class."""
    which = np.unique(-popularity, return_inverse=True)[1]
    pairs = np.bincount(which, weights=popularity)
    before: npt.NDArray[np.int64] = ((np.cumsum(pairs) - pairs) * _N_CLASSES // max(pairs.sum(), 1)).astype(np.int64)
    return before[which]


def divide(pairs: csr_array, held_out: float, random: np.random.Generator) -> tuple[csr_array, csr_array, csr_array]:
    """A matrix in three parts: most pairs, and two random shares of the same size."""
    order = random.permutation(pairs.nnz)
    size = round(pairs.nnz * held_out)
    label = np.zeros(pairs.nnz, dtype=np.int8)
    label[order[:size]], label[order[size : 2 * size]] = 2, 1
    return pairs_where(pairs, label == 0), pairs_where(pairs, label == 1), pairs_where(pairs, label == 2)


def hidden_share(given: float, rounding: Rounding) -> Hidden:
    """How many of so many items are to be found: never all of them and, if rounded, at least one of two or more."""
    if rounding not in ("nearest", "down"):
        raise SettingsError(unknown("rounding", rounding, ("nearest", "down")))
    share = round(1 - given, 12)  # 1 - .8 is a little less than .2
    if rounding == "down":
        return lambda counts: np.minimum(np.floor(counts * share), np.maximum(counts - 1, 0)).astype(np.int64)
    return lambda counts: np.clip(np.rint(counts * share), 1, np.maximum(counts - 1, 0)).astype(np.int64)


def some_of_each_row(pairs: csr_array, hidden: Hidden, random: np.random.Generator) -> npt.NDArray[np.bool_]:
    users, counts = pair_users(pairs), np.diff(pairs.indptr)
    order = np.lexsort((random.random(pairs.nnz), users))
    rank = np.arange(pairs.nnz) - np.repeat(pairs.indptr[:-1], counts)  # place within the user's shuffled row
    chosen = np.zeros(pairs.nnz, dtype=bool)
    chosen[order] = rank < hidden(counts)[users]
    return chosen
