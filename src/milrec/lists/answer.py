"""Asked → Answer: many queries scored together, each answered as if it were alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from milrec.kernels.sparse import Rows
from milrec.lists.catalogue import Catalogue
from milrec.lists.decisions import Proposed, Ranked, Scores
from milrec.lists.query import Answer, Asked, ListedItem, Reason, Wanted
from milrec.lists.reasons import parts_of_logits, strongest, why_none
from milrec.lists.rules import list_under
from milrec.lists.scores import Scorer, dial_shift, score_blocks
from milrec.models.inputs import Users


@dataclass(frozen=True, eq=False)
class Listed:
    """A list in numbers."""

    items: Ranked
    scores: npt.NDArray[np.float32]
    reasons: list[list[tuple[int, float]]]  # for each item, places among the adopted items and their parts of the logit
    unmet: tuple[str, ...]


def lists_asked(scorer: Scorer, catalogue: Catalogue, asked: Sequence[Asked]) -> list[Listed]:
    """A list for each; known and new users apart where the model has something of its own for known ones."""
    lists: dict[int, Listed] = {}
    apart = scorer.model.knows_users
    for known in (True, False):
        places = [place for place, one in enumerate(asked) if (apart and one.row is not None) == known]

        def score(block: slice, memory: Tensor, places: list[int] = places, known: bool = known) -> None:
            own = [asked[place] for place in places[block]]
            proposed = scorer.propose(_users(own, known), memory)
            lists.update(zip(places[block], _lists(scorer, catalogue, own, proposed), strict=True))

        if places:
            score_blocks(scorer, slice(0, len(places)), scorer.block_size(len(places)), score)
    return [lists[place] for place in range(len(asked))]


def answer_of(catalogue: Catalogue, asked: Asked, listed: Listed) -> Answer:
    """The same list with ids, titles and all that is shown of an item: numbers become ids here, and nowhere later."""
    ids, titles, adopted = catalogue.item_ids, catalogue.titles, asked.adopted
    rows = zip(catalogue.describe(listed.items), listed.scores.tolist(), listed.reasons, strict=True)
    items = tuple(
        ListedItem(
            rank,
            found.item,
            found.title,
            score,
            found.popularity,
            found.tail,
            tuple(Reason(ids[adopted[i]], titles[adopted[i]], weight) for i, weight in why) if why else (),
            found.number,
            found.place,
        )
        for rank, (found, score, why) in enumerate(rows, start=1)
    )
    return Answer(items, listed.unmet)


def _lists(scorer: Scorer, catalogue: Catalogue, asked: Sequence[Asked], proposed: Proposed) -> list[Listed]:
    """The lists of a block of users, by scores that are still to be shifted and hidden."""
    shifts = [dial_shift(one.wanted.dial, catalogue.logs) for one in asked]
    for one, row, shift in zip(asked, proposed.logits, shifts, strict=True):
        _turn_and_hide(one, row, shift)
    lengths = {one.wanted.n for one in asked}
    best: list[tuple[Ranked, Scores, tuple[str, ...]]]
    if len(lengths) == 1 and not any(one.wanted.rules or one.wanted.dial for one in asked):  # the usual case, at once
        items, scores = scorer.best(proposed, lengths.pop())
        best = [(row[row >= 0], own[row >= 0], ()) for row, own in zip(items, scores, strict=True)]
    else:
        best = [
            _best_of(scorer, catalogue, one, proposed.one(user), shift)
            for user, (one, shift) in enumerate(zip(asked, shifts, strict=True))
        ]
    return [_with_reasons(scorer, one, *own) for one, own in zip(asked, best, strict=True)]


def _best_of(
    scorer: Scorer, catalogue: Catalogue, asked: Asked, proposed: Proposed, shift: npt.NDArray[np.float32] | None
) -> tuple[Ranked, Scores, tuple[str, ...]]:
    if asked.wanted.rules:
        return _listed_under_rules(scorer, catalogue, asked.wanted, proposed)
    return (*_best(scorer, proposed, asked.wanted.n, shift), ())


def _with_reasons(scorer: Scorer, asked: Asked, items: Ranked, scores: Scores, unmet: tuple[str, ...]) -> Listed:
    wish = asked.wanted
    reasons: list[list[tuple[int, float]]] = [[]] * len(items)
    if wish.reasons and (why := why_none(scorer, asked)):
        unmet = (*unmet, why)
    elif wish.reasons:
        reasons = strongest(parts_of_logits(scorer, asked, items), wish.reasons)
    return Listed(items, scores, reasons, unmet)


def _turn_and_hide(asked: Asked, row: Scores, shift: npt.NDArray[np.float32] | None) -> None:
    """Apply the dial to a row of logits, and set what must not be listed to -inf."""
    wish = asked.wanted
    if shift is not None:
        row += shift
    for hidden in (asked.removed, wish.excluded, asked.rejected):
        row[hidden] = -np.inf
    if wish.allowed is not None:
        kept = row[wish.allowed]
        row[:] = -np.inf
        row[wish.allowed] = kept


def _best(scorer: Scorer, proposed: Proposed, n: int, shift: npt.NDArray[np.float32] | None) -> tuple[Ranked, Scores]:
    items, scores = scorer.best(proposed, n, shift)
    listed = items[0] >= 0
    return items[0][listed], scores[0][listed]


def _listed_under_rules(
    scorer: Scorer, catalogue: Catalogue, wish: Wanted, proposed: Proposed
) -> tuple[Ranked, Scores, tuple[str, ...]]:
    shift = dial_shift(wish.dial, catalogue.logs)
    parts = []
    for members in catalogue.members:
        own = np.full_like(proposed.logits, -np.inf)
        own[0, members] = proposed.logits[0, members]
        parts.append(_best(scorer, proposed.with_logits(own), wish.n, shift))
    listed, unmet = list_under(
        wish.rules, wish.n, [items.tolist() for items, _ in parts], [scores.tolist() for _, scores in parts]
    )
    score_of = {item: score for items, scores in parts for item, score in zip(items.tolist(), scores, strict=True)}
    return np.array(listed, dtype=np.int64), np.array([score_of[item] for item in listed], dtype=np.float32), unmet


def _users(asked: Sequence[Asked], known: bool) -> Users:
    adopted = Rows.stacked([one.adopted for one in asked], [one.weights for one in asked])
    numbers = np.array([one.row for one in asked], dtype=np.int64) if known else None
    return Users(adopted, Rows.stacked([one.rejected for one in asked]), numbers)
