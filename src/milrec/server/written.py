"""A list in numbers → the text that is sent: JSON is written straight from the catalogue, with no table in between.

The text is that of Python's own encoder, byte for byte: numbers as `repr` shows them, and ASCII alone.
"""

from __future__ import annotations

import json
import math
from json.encoder import encode_basestring_ascii as quoted
from typing import TYPE_CHECKING, NamedTuple

from milrec.errors import DataError
from milrec.lists.catalogue import TAIL_NAMES, Catalogue
from milrec.lists.query import Asked

if TYPE_CHECKING:
    from milrec.lists.answer import Listed

_REMEMBERED = 50_000  # items; those that are listed are few and come again and again


class _Item(NamedTuple):
    """What is the same whenever an item is listed: the texts before and after its score, and what is counted."""

    before: str
    after: str
    popularity: int
    tail: str


class Writer:
    """Writes the lists of one model."""

    def __init__(self, model: str, catalogue: Catalogue) -> None:
        self._head = f'{{"model":{quoted(model)},"items":['
        self._catalogue = catalogue
        self._items: dict[int, _Item] = {}

    def written(self, asked: Asked, listed: Listed) -> str:
        """The answer to one request, as JSON."""
        scores = listed.scores.tolist()
        chances = None if listed.probabilities is None else listed.probabilities.tolist()
        hits = "null" if chances is None else sum(chances)
        if not math.isfinite(sum(scores)):
            raise not_finite()
        items = [self._items.get(number) or self._new(number) for number in listed.items.tolist()]
        reasons = self._reasons(asked, listed) if asked.wanted.reasons else [""] * len(items)
        rows = ",".join(
            [
                f'{{"rank":{rank}{item.before}{score},"probability":{chance}{item.after}{why}]}}'
                for rank, (item, score, chance, why) in enumerate(
                    zip(items, scores, chances or ["null"] * len(items), reasons, strict=True), start=1
                )
            ]
        )
        unmet = ",".join(map(quoted, listed.unmet))
        summary = f'{_summary(items)},"expected_hits":{hits},"price":{_price(asked)}'
        return f'{self._head}{rows}],"unmet":[{unmet}],{summary}{_skipped(asked)}}}'

    def _new(self, number: int) -> _Item:
        """An item that has not been listed lately."""
        if len(self._items) >= _REMEMBERED:
            self._items.clear()
        catalogue, name = self._catalogue, self._name(number)
        popularity, tail = int(catalogue.popularity[number]), TAIL_NAMES[catalogue.intervals[number]]
        after = f',"popularity":{popularity},"tail":"{tail}","place":{catalogue.places[number]},"reasons":['
        item = self._items[number] = _Item(f',{name},"score":', after, popularity, tail)
        return item

    def _name(self, number: int) -> str:
        title = self._catalogue.titles[number]
        said = "null" if title is None else quoted(title)
        return f'"item":{quoted(str(self._catalogue.item_ids[number]))},"title":{said}'

    def _reasons(self, asked: Asked, listed: Listed) -> list[str]:
        """The reasons for each item; what is the same whenever an adopted item is a reason is written once."""
        places = {place for why in listed.reasons for place, _ in why}
        begun = {place: f'{{{self._name(int(asked.adopted[place]))},"weight":' for place in places}
        if not math.isfinite(sum(weight for why in listed.reasons for _, weight in why)):
            raise not_finite()
        return [",".join([f"{begun[place]}{weight!r}}}" for place, weight in why]) for why in listed.reasons]


def _summary(items: list[_Item]) -> str:
    """The shares of the tail's intervals in a list, and the mean popularity."""
    tails = [item.tail for item in items]
    shares = ",".join([f'"{name}":{tails.count(name) / max(len(tails), 1)!r}' for name in TAIL_NAMES])
    mean = repr(sum([item.popularity for item in items]) / len(items)) if items else "null"
    return f'"shares":{{{shares}}},"mean_popularity":{mean}'


def _skipped(asked: Asked) -> str:
    """The ids that are not known, if the request allows them: as many as it holds, which has its limits."""
    if asked.skipped is None:
        return ""
    return f',"skipped":[{",".join([quoted(str(one)) for one in asked.skipped])}]'


def _price(asked: Asked) -> str:
    """Of the share of the tail that was asked for, or the like."""
    price = asked.wanted.price
    if price is None:
        return "null"
    facts = {name: getattr(price, name) for name in ("bonus", "amount", "hits", "hits_without", "n", "unmet")}
    return json.dumps(facts, separators=(",", ":"))


def not_finite() -> DataError:
    """Finite weights, if they are large enough, give scores that are not."""
    return DataError("the model gives numbers here that are not finite, which JSON cannot hold; serve another model")
