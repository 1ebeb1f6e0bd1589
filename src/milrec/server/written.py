"""A list in numbers → the text that is sent: JSON is written straight from the catalogue, with no table in between.

The text is that of Python's own encoder, byte for byte: numbers as `repr` shows them, and ASCII alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import TYPE_CHECKING

from milrec.errors import DataError
from milrec.lists.catalogue import TAIL_NAMES, Catalogue
from milrec.lists.query import Asked

if TYPE_CHECKING:
    from milrec.lists.answer import Listed

_TAILS = [quoted(name) for name in TAIL_NAMES]


def written(model: str, catalogue: Catalogue, asked: Asked, listed: Listed) -> str:
    """The answer of a model to one request, as JSON."""
    popularity = catalogue.popularity[listed.items].tolist()
    tails = catalogue.intervals[listed.items].tolist()
    unmet = ",".join(map(quoted, listed.unmet))
    shares = ",".join(f"{name}:{tails.count(tail) / max(len(tails), 1)!r}" for tail, name in enumerate(_TAILS))
    mean = repr(sum(popularity) / len(popularity)) if popularity else "null"
    items = ",".join(_items(catalogue, asked, listed, popularity, tails))
    head, foot = f'{{"model":{quoted(model)},"items":[', f'"shares":{{{shares}}},"mean_popularity":{mean}}}'
    return f'{head}{items}],"unmet":[{unmet}],{foot}'


def _items(
    catalogue: Catalogue, asked: Asked, listed: Listed, popularity: Sequence[int], tails: Sequence[int]
) -> list[str]:
    scores = listed.scores.tolist()
    if not math.isfinite(sum(scores)):
        raise not_finite()
    numbers, places = listed.items.tolist(), catalogue.places[listed.items].tolist()
    ids, titles = catalogue.item_ids, catalogue.titles
    reasons = _reasons(catalogue, asked, listed) if asked.wanted.reasons else [""] * len(numbers)
    rows = zip(numbers, scores, popularity, tails, places, reasons, strict=True)
    return [
        f'{{"rank":{rank},"item":{quoted(str(ids[number]))},"title":{_text(titles[number])},"score":{score!r},'
        f'"popularity":{adopters},"tail":{_TAILS[tail]},"place":{place},"reasons":[{why}]}}'
        for rank, (number, score, adopters, tail, place, why) in enumerate(rows, start=1)
    ]


def _reasons(catalogue: Catalogue, asked: Asked, listed: Listed) -> list[str]:
    """The reasons for each item; what is the same whenever an adopted item is a reason is written once."""
    ids, titles = catalogue.item_ids, catalogue.titles
    numbers = {place: int(asked.adopted[place]) for why in listed.reasons for place, _ in why}
    begun = {
        place: f'{{"item":{quoted(str(ids[number]))},"title":{_text(titles[number])},"weight":'
        for place, number in numbers.items()
    }
    if not math.isfinite(sum(weight for why in listed.reasons for _, weight in why)):
        raise not_finite()
    return [",".join([f"{begun[place]}{weight!r}}}" for place, weight in why]) for why in listed.reasons]


def not_finite() -> DataError:
    """Finite weights, if they are large enough, give scores that are not."""
    return DataError("the model gives numbers here that are not finite, which JSON cannot hold; serve another model")


def _text(value: str | None) -> str:
    return "null" if value is None else quoted(value)
