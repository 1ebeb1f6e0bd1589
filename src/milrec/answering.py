"""Asked → Answer: many queries scored together, each answered as if it were alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from milrec.artifacts import Fitted
from milrec.asking import Answer, Asked, ListedItem
from milrec.catalogue import TAIL_NAMES, Catalogue
from milrec.models import CollaborativeAutoencoder, MatrixFactorization, WeightedFactorization
from milrec.scoring import Scores, leave_out, score_blocks, top_items
from milrec.splitting import Audience


def answer(fitted: Fitted, catalogue: Catalogue, n_drawn: int, asked: Sequence[Asked]) -> list[Answer]:
    """An answer to each; known and new users apart where the model has something of its own for known ones."""
    answers: list[Answer | None] = [None] * len(asked)
    apart = isinstance(fitted.model, CollaborativeAutoencoder | MatrixFactorization | WeightedFactorization)
    for known in (True, False):
        places = [place for place, one in enumerate(asked) if (one.row is not None and apart) == known]
        group = [asked[place] for place in places]
        audience = _audience(group, fitted.train.n_items, known)

        def use(block: slice, scores: Scores, audience: Audience = audience, places: list[int] = places) -> None:
            for one, row in zip(places[block], scores, strict=True):
                if asked[one].dial:
                    row += (-asked[one].dial * catalogue.logs).astype(np.float32)
            leave_out(scores, audience, block)
            for one, row in zip(places[block], scores, strict=True):
                answers[one] = _answer(catalogue, asked[one], row)

        score_blocks(fitted.model, fitted.settings, audience, slice(0, len(group)), n_drawn, use)
    return [one for one in answers if one is not None]


def _answer(catalogue: Catalogue, asked: Asked, row: npt.NDArray[np.float32]) -> Answer:
    if asked.allowed is not None:
        kept = row[asked.allowed]
        row[:] = -np.inf
        row[asked.allowed] = kept
    items = top_items(row[None, :], asked.n)[0]
    items = items[items >= 0]
    numbers, scores = items.tolist(), row[items].tolist()
    popularity, tails = catalogue.popularity[items].tolist(), catalogue.intervals[items].tolist()
    listed = (
        ListedItem(
            place + 1,
            catalogue.item_ids[item],
            catalogue.titles[item],
            scores[place],
            popularity[place],
            TAIL_NAMES[tails[place]],
        )
        for place, item in enumerate(numbers)
    )
    return Answer(tuple(listed))


def _audience(asked: Sequence[Asked], n_items: int, known: bool) -> Audience:
    adopted = _pairs([one.adopted for one in asked], [one.weights for one in asked], n_items)
    rejected, removed = (
        _pairs(rows, [np.ones(len(row), dtype=np.float32) for row in rows], n_items)
        for rows in ([one.rejected for one in asked], [one.hidden for one in asked])
    )
    rows = np.array([one.row for one in asked], dtype=np.int64) if known else None
    return Audience(adopted, rejected, removed, rows)


def _pairs(rows: Sequence[npt.NDArray[np.int32]], values: Sequence[npt.NDArray[np.float32]], n_items: int) -> csr_array:
    starts = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int32)
    items = np.concatenate([np.zeros(0, dtype=np.int32), *rows], dtype=np.int32)
    weights = np.concatenate([np.zeros(0, dtype=np.float32), *values], dtype=np.float32)
    return csr_array((weights, items, starts), shape=(len(rows), n_items))
