"""Asked → Answer: many queries scored together, each answered as if it were alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from milrec.kernels.sparse import Rows
from milrec.lists.catalogue import Catalogue
from milrec.lists.decisions import Proposed, Ranked, Scores
from milrec.lists.dislikes import SparingOrder
from milrec.lists.query import Answer, Asked, ListedItem, Reason, Wanted
from milrec.lists.reasons import parts_of_logits, strongest, why_none
from milrec.lists.rules import list_under
from milrec.lists.scores import Scorer, dial_shift, score_blocks
from milrec.lists.tail_order import TailOrder
from milrec.models.inputs import Users
from milrec.probability.calibration import Chances

Part = tuple[Ranked, Scores, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Listed:
    """A list in numbers."""

    items: Ranked
    scores: npt.NDArray[np.float32]
    probabilities: npt.NDArray[np.float32] | None  # None if the model has none
    reasons: list[list[tuple[int, float]]]  # for each item, places among the adopted items and their parts of the logit
    unmet: tuple[str, ...]


def lists_asked(scorer: Scorer, catalogue: Catalogue, asked: Sequence[Asked]) -> list[Listed]:
    """A list for each; known and new users apart where the model has something of its own for known ones."""
    lists: dict[int, Listed] = {}
    apart = scorer.model.knows_users
    for known in (True, False):
        places = [place for place, one in enumerate(asked) if (apart and one.number is not None) == known]

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
    chances = [None] * len(listed.items) if listed.probabilities is None else listed.probabilities.tolist()
    rows = zip(catalogue.describe(listed.items), listed.scores.tolist(), chances, listed.reasons, strict=True)
    items = tuple(
        ListedItem(
            rank,
            found.item,
            found.title,
            score,
            chance,
            found.popularity,
            found.tail,
            tuple(Reason(ids[adopted[i]], titles[adopted[i]], weight) for i, weight in why) if why else (),
            found.number,
            found.place,
        )
        for rank, (found, score, chance, why) in enumerate(rows, start=1)
    )
    return Answer(items, listed.unmet, asked.skipped or ())


def _lists(scorer: Scorer, catalogue: Catalogue, asked: Sequence[Asked], proposed: Proposed) -> list[Listed]:
    """The lists of a block of users, by scores that are still to be shifted and hidden."""
    shifts = [dial_shift(one.wanted.dial, catalogue.logs) for one in asked]
    for one, row, shift in zip(asked, proposed.logits, shifts, strict=True):
        _turn_and_hide(one, row, shift)
    lengths = {one.wanted.n for one in asked}
    best: list[_Best]
    if len(lengths) == 1 and not any(_is_unusual(one.wanted) for one in asked):
        items, scores = scorer.best(proposed, lengths.pop())
        best = [_Best(row[row >= 0], own[row >= 0]) for row, own in zip(items, scores, strict=True)]
    else:
        spared = _spared(scorer, asked, proposed)
        best = [
            spared.get(user) or _best_of(scorer, catalogue, one, proposed.one(user), shift)
            for user, (one, shift) in enumerate(zip(asked, shifts, strict=True))
        ]
    if proposed.silent is not None:
        best = [
            _said_of_silence(one, own) if silent else own
            for one, own, silent in zip(asked, best, proposed.silent, strict=True)
        ]
    chances = _probabilities(scorer, asked, best, shifts)
    return [
        _with_reasons(scorer, one, own, own_chances) for one, own, own_chances in zip(asked, best, chances, strict=True)
    ]


class _Best(NamedTuple):
    """The items of a list and their scores, with a sentence for each rule that could not be met."""

    items: Ranked
    scores: Scores
    unmet: tuple[str, ...] = ()


def _is_unusual(wish: Wanted) -> bool:
    """Whether a list is not simply made of the highest logits."""
    return bool(wish.rules or wish.dial or wish.price or wish.dislikes)


def _spared(scorer: Scorer, asked: Sequence[Asked], proposed: Proposed) -> dict[int, _Best]:
    """The lists that spare users their dislikes, by the user's place; those of one kind are made together."""
    kinds: dict[tuple[int, int], list[int]] = {}
    for user, one in enumerate(asked):
        if one.wanted.dislikes is not None:
            kinds.setdefault((id(one.wanted.dislikes), one.wanted.n), []).append(user)
    found: dict[int, _Best] = {}
    for (_, n), places in kinds.items():
        own, dislikes = [asked[place] for place in places], asked[places[0]].wanted.dislikes
        assert scorer.chances is not None and dislikes is not None  # as `wanted` has checked
        order = SparingOrder(scorer.chances, dislikes)
        items, scores = order.best(scorer, _users(own, known=False), proposed.some(np.array(places)), n)
        best = [_Best(row[row >= 0], score[row >= 0]) for row, score in zip(items, scores, strict=True)]
        found.update(zip(places, best, strict=True))
    return found


def _best_of(
    scorer: Scorer, catalogue: Catalogue, asked: Asked, proposed: Proposed, shift: npt.NDArray[np.float32] | None
) -> _Best:
    if asked.wanted.rules or asked.wanted.price:
        return _best_of_parts(scorer, catalogue, asked, proposed)
    return _Best(*_best(scorer, proposed, asked.wanted.n, shift))


def _probabilities(
    scorer: Scorer, asked: Sequence[Asked], best: Sequence[_Best], shifts: Sequence[npt.NDArray[np.float32] | None]
) -> Sequence[npt.NDArray[np.float32] | None]:
    """Of the items of each list; the dial's part of a score says nothing about them."""
    if scorer.chances is None:
        return [None] * len(best)
    logits = [
        own.scores if shift is None else own.scores - shift[own.items] for own, shift in zip(best, shifts, strict=True)
    ]
    lengths = [len(own) for own in logits]
    found = scorer.chances.probabilities(np.concatenate(logits), np.repeat(_weights(scorer.chances, asked), lengths))
    return np.split(found.astype(np.float32), np.cumsum(lengths)[:-1])


def _weights(chances: Chances, asked: Sequence[Asked]) -> npt.NDArray[np.float64]:
    """ln w of each user: see `Chances.shifts`."""
    return chances.shifts(np.array([len(one.adopted) for one in asked]), np.array([len(one.rejected) for one in asked]))


def _with_reasons(scorer: Scorer, asked: Asked, best: _Best, probabilities: npt.NDArray[np.float32] | None) -> Listed:
    wish, items, unmet = asked.wanted, best.items, best.unmet
    reasons: list[list[tuple[int, float]]] = [[]] * len(items)
    if wish.reasons and (why := why_none(scorer, asked)):
        unmet = (*unmet, why)
    elif wish.reasons:
        reasons = strongest(parts_of_logits(scorer, asked, items), wish.reasons)
    return Listed(items, best.scores, probabilities, reasons, unmet)


def _said_of_silence(asked: Asked, best: _Best) -> _Best:
    """A list about which the model says nothing, with a sentence that tells what it goes by instead."""
    why = (
        "the adopted items say nothing about others"
        if len(asked.adopted)
        else "no adopted items of this user are known"
    )
    how = "popularity" if asked.wanted.dislikes is None else "what the user is least likely to reject"
    return best._replace(unmet=(*best.unmet, f"{why}, so the list is ranked by {how}"))


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


def _best_of_parts(scorer: Scorer, catalogue: Catalogue, asked: Asked, proposed: Proposed) -> _Best:
    """The best of each interval of the tail, merged under the rules, by score or by what each is worth."""
    wish = asked.wanted
    parts = _parts(scorer, catalogue, asked, proposed)
    items, worth = [part[0].tolist() for part in parts], [part[2].tolist() for part in parts]
    listed, unmet = list_under(wish.rules, wish.n, items, worth)
    score_of = {item: score for part in parts for item, score in zip(part[0].tolist(), part[1], strict=True)}
    return _Best(
        np.array(listed, dtype=np.int64), np.array([score_of[item] for item in listed], dtype=np.float32), unmet
    )


def _parts(scorer: Scorer, catalogue: Catalogue, asked: Asked, proposed: Proposed) -> Sequence[Part]:
    """The n best items of each interval, their scores, and what they are ranked by."""
    wish = asked.wanted
    if wish.price is not None and scorer.chances is not None:
        order = TailOrder(catalogue.tail_classes, scorer.chances, wish.price.bonuses)
        return order.best_of_tails(scorer, proposed, wish.n, float(_weights(scorer.chances, [asked])[0]))
    shift = dial_shift(wish.dial, catalogue.logs)
    parts: list[tuple[Ranked, Scores]] = []
    for members in catalogue.members:
        own = np.full_like(proposed.logits, -np.inf)
        own[0, members] = proposed.logits[0, members]
        parts.append(_best(scorer, proposed.with_logits(own), wish.n, shift))
    return _ranked(scorer, proposed, parts)


def _ranked(scorer: Scorer, proposed: Proposed, parts: Sequence[tuple[Ranked, Scores]]) -> list[Part]:
    """Lists of several parts, each item with a number that is larger for what comes earlier in a list of them all."""
    items, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    worth = np.empty(len(items), dtype=np.int64)
    worth[np.lexsort((scorer.tie_places(items[None], proposed)[0], -scores))] = -np.arange(len(items))
    ends = np.cumsum([len(part) for part, _ in parts])[:-1]
    return [(*part, own) for part, own in zip(parts, np.split(worth, ends), strict=True)]


def _users(asked: Sequence[Asked], known: bool) -> Users:
    adopted = Rows.stacked([one.adopted for one in asked], [one.weights for one in asked])
    numbers = np.array([one.number for one in asked], dtype=np.int64) if known else None
    return Users(adopted, Rows.stacked([one.rejected for one in asked]), numbers)
