"""Asked → Answer: many queries scored together, each answered as if it were alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from milrec.kernels.sparse import Rows
from milrec.lists.catalogue import Catalogue
from milrec.lists.query import Answer, Asked, ListedItem, Reason, Wanted
from milrec.lists.reasons import parts_of_logits, strongest, why_none
from milrec.lists.rules import list_under
from milrec.lists.scores import Scorer, Scores, dial_shift, score_blocks, top_items
from milrec.models.inputs import Users

Ranked = npt.NDArray[np.int64]  # items by number, best first


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

        def cut(block: slice, places: list[int] = places, known: bool = known) -> Users:
            return _users([asked[place] for place in places[block]], known)

        def use(block: slice, scores: Scores, places: list[int] = places) -> None:
            for place, row in zip(places[block], scores, strict=True):
                lists[place] = _listed(scorer, catalogue, asked[place], row)

        score_blocks(scorer, slice(0, len(places)), cut, use)
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


def _listed(scorer: Scorer, catalogue: Catalogue, asked: Asked, row: npt.NDArray[np.float32]) -> Listed:
    """The best items of a row of logits, which becomes one of scores."""
    wish = asked.wanted
    _turn_and_hide(catalogue, asked, row)
    unmet: tuple[str, ...] = ()
    if wish.rules:
        items, unmet = _listed_under_rules(catalogue, wish, row)
    else:
        items = _best(row, wish.n)
    reasons: list[list[tuple[int, float]]] = [[]] * len(items)
    if wish.reasons and (why := why_none(scorer, asked)):
        unmet = (*unmet, why)
    elif wish.reasons:
        reasons = strongest(parts_of_logits(scorer, asked, items), wish.reasons)
    return Listed(items, row[items], reasons, unmet)


def _turn_and_hide(catalogue: Catalogue, asked: Asked, row: npt.NDArray[np.float32]) -> None:
    """Apply the dial to a row of logits, and set what must not be listed to -inf."""
    wish = asked.wanted
    shift = dial_shift(wish.dial, catalogue.logs)
    if shift is not None:
        row += shift
    for hidden in (asked.removed, wish.excluded, asked.rejected):
        row[hidden] = -np.inf
    if wish.allowed is not None:
        kept = row[wish.allowed]
        row[:] = -np.inf
        row[wish.allowed] = kept


def _best(row: npt.NDArray[np.float32], n: int) -> Ranked:
    items = top_items(row[None, :], n)[0]
    listed: Ranked = items[items >= 0]
    return listed


def _listed_under_rules(
    catalogue: Catalogue, wish: Wanted, row: npt.NDArray[np.float32]
) -> tuple[Ranked, tuple[str, ...]]:
    parts = [members[_best(row[members], wish.n)] for members in catalogue.members]
    listed, unmet = list_under(
        wish.rules, wish.n, [part.tolist() for part in parts], [row[part].tolist() for part in parts]
    )
    return np.array(listed, dtype=np.int64), unmet


def _users(asked: Sequence[Asked], known: bool) -> Users:
    adopted = Rows.stacked([one.adopted for one in asked], [one.weights for one in asked])
    numbers = np.array([one.row for one in asked], dtype=np.int64) if known else None
    return Users(adopted, Rows.stacked([one.rejected for one in asked]), numbers)
