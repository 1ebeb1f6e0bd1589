"""The items most like another one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from milrec.lists.decisions import Decoder, Ranked, Scores, top_items
from milrec.models.contract import Likeness


class Nearest(NamedTuple):
    """The items most like another, by number, and how alike they are."""

    items: npt.NDArray[np.int64]
    likeness: npt.NDArray[np.float32]
    measure: str  # cosine, or weight


class Nearness:
    """Finds the items most like one, best first, equals in item order."""

    def __init__(self, likeness: Likeness) -> None:
        self._likeness = likeness
        directions = likeness.directions
        self._decoder = None if directions is None else Decoder(directions, np.zeros(len(directions), dtype=np.float32))

    def nearest(self, item: int, n: int) -> Nearest:
        items, values = self._best(item, n)
        return Nearest(items[0][items[0] >= 0], values[0][items[0] >= 0], self._likeness.measure)

    def _best(self, item: int, n: int) -> tuple[Ranked, Scores]:
        if self._decoder is None:
            assert self._likeness.of is not None
            values = self._likeness.of(item)[None, :]
            values[0, item] = -np.inf
            return top_items(values, n)
        directions = self._decoder.weight
        proposed = self._decoder.propose(directions[item : item + 1], np.empty((1, len(directions)), dtype=np.float32))
        proposed.logits[0, item] = -np.inf
        return self._decoder.decide(proposed, min(n, len(directions)), None)
