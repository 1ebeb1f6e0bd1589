"""Lists as two arrays, ids and scores, a row for each user: what users of implicit are used to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from milrec.lists.answer import Listed
from milrec.lists.catalogue import Catalogue

NO_NUMBER = -1  # where a list is shorter than n and ids are whole numbers; among texts it is None


class ListArrays(NamedTuple):
    """Items and scores, best first; where a list ends early, ids are -1 (of whole numbers) or None, and scores NaN."""

    ids: npt.NDArray[Any]  # (n_users, n), int64 or object
    scores: npt.NDArray[np.float32]  # (n_users, n)


def list_arrays(catalogue: Catalogue, lists: Sequence[Listed], n: int) -> ListArrays:
    """The lists side by side, each filled up to n."""
    known = np.array(catalogue.item_ids, dtype=np.int64 if _whole(catalogue.item_ids) else object)
    ids = np.full((len(lists), n), NO_NUMBER if known.dtype == np.int64 else None, dtype=known.dtype)
    scores = np.full((len(lists), n), np.nan, dtype=np.float32)
    for row, one in enumerate(lists):
        ids[row, : len(one.items)] = known[one.items]
        scores[row, : len(one.items)] = one.scores
    return ListArrays(ids, scores)


def _whole(ids: Sequence[Any]) -> bool:
    return all(isinstance(one, int) for one in ids)
