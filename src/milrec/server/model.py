"""A model that is being served: facts about it and its items, and what it has listed recently."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from milrec.data.interactions import Interactions
from milrec.errors import FolderError
from milrec.lists.catalogue import TAIL_NAMES, Catalogue
from milrec.lists.query import Asked, Query
from milrec.recommender import Recommender
from milrec.server.copies import Source, reading
from milrec.server.written import Writer

if TYPE_CHECKING:
    from milrec.lists.answer import Listed

_QUICK_BYTES = 64 << 20  # of weights that are read in about a millisecond
_USUAL_LENGTH = 20
_LISTS_REMEMBERED = 1_000  # for each model: its live tail shares and coverage are over these


class Window:
    """What a model has listed recently, by item number; it is counted when somebody looks."""

    def __init__(self, catalogue: Catalogue, size: int = _LISTS_REMEMBERED) -> None:
        self._catalogue = catalogue
        self._lists: deque[npt.NDArray[np.int64]] = deque(maxlen=size)

    def add(self, items: npt.NDArray[np.int64]) -> None:
        self._lists.append(items)

    def facts(self) -> tuple[int, dict[str, int], npt.NDArray[np.bool_]]:
        """How many lists are remembered, how many items they show in each interval, and which these are."""
        lists = list(self._lists)  # in one step: other threads may add to it
        listed = np.concatenate([*lists, np.empty(0, dtype=np.int64)])  # no item is in one list twice
        shown = np.zeros(len(self._catalogue.popularity), dtype=bool)  # (n_items,)
        shown[listed] = True
        counts = np.bincount(self._catalogue.intervals[listed], minlength=len(TAIL_NAMES))
        return len(lists), dict(zip(TAIL_NAMES, counts.tolist(), strict=True)), shown


@dataclass(frozen=True, eq=False)
class Served:
    """A model that is being served."""

    name: str
    source: Source  # what is mapped into memory; nobody else writes to it
    recommender: Recommender
    loaded_at: str
    window: Window
    writer: Writer
    quick: bool  # whether a short list takes about a millisecond

    @property
    def fingerprint(self) -> str:
        return self.source.model.fingerprint

    def written(self, asked: Asked, listed: Listed) -> str:
        """A list of this model as the server sends it; it is remembered among the last ones."""
        text = self.writer.written(asked, listed)
        self.window.add(listed.items)
        return text

    def item(self, item: str) -> dict[str, Any]:
        """One item of the catalogue."""
        return self._items(self.recommender.catalogue.item_numbers([item]))[0]

    def numbered(self, number: int) -> dict[str, Any]:
        """One item of the catalogue, by its number."""
        return self._items(np.array([number]))[0]

    def find_items(self, text: str, n: int) -> list[dict[str, Any]]:
        return self._items(self.recommender.catalogue.find_items(text, n))

    def find_users(self, text: str, n: int) -> list[str]:
        return [str(one) for one in self.recommender.find_users(text, n)]

    def similar(self, item: str, n: int) -> dict[str, Any]:
        """The items most like an item, and the measure of likeness."""
        found = self.recommender.nearest_items(item, n)
        rows = zip(self._items(found.items), found.likeness.tolist(), strict=True)
        items = [{"rank": rank, **one, "likeness": likeness} for rank, (one, likeness) in enumerate(rows, start=1)]
        return {"items": items, "measure": found.measure}

    def user(self, user: str) -> dict[str, Any]:
        """What a known user adopted and rejected."""
        found = self.recommender.ask(Query(user))
        return {"user": user, "adopted": self._items(found.adopted), "rejected": self._items(found.rejected)}

    def _items(self, numbers: npt.NDArray[np.integer[Any]]) -> list[dict[str, Any]]:
        """Items as answers show them, their ids as text."""
        return [
            {
                "item": str(one.item),
                "title": one.title,
                "popularity": one.popularity,
                "tail": one.tail,
                "place": one.place,
            }
            for one in self.recommender.catalogue.describe(numbers)
        ]

    def facts(self) -> dict[str, Any]:
        """Facts about the model and the data that it was fitted on."""
        fitted = self.recommender.fitted
        settings, train = fitted.settings, fitted.train
        counts = np.bincount(self.recommender.catalogue.intervals, minlength=len(TAIL_NAMES))
        left_out = ("settings", "history", *train.facts())
        return {
            "name": self.name,
            "model": settings.model.model,
            "loss": settings.loss_name,
            "n_users": train.n_users,
            "n_items": train.n_items,
            "n_interactions": int(train.popularity().sum()),  # also of a model that was saved without its users
            "intervals": dict(zip(TAIL_NAMES, counts.tolist(), strict=True)),
            **self._probability_facts(),
            "settings": settings.model_dump(mode="json"),
            "fitted": {
                **{name: value for name, value in fitted.facts.items() if name not in left_out},
                "fingerprint": self.fingerprint,
            },
            "loaded_at": self.loaded_at,
        }

    def _probability_facts(self) -> dict[str, Any]:
        """How its probabilities were found, and the tail shares of its lists where no other are asked for."""
        calibration, prices = self.recommender.fitted.calibration, self.recommender.fitted.prices
        found = None if calibration is None else {"kind": calibration.kind, "held_out": calibration.held_out}
        shares = prices and {tail: prices.natural(tail, _USUAL_LENGTH)[0] for tail in TAIL_NAMES}
        return {"probability": found, "tail_shares": shares}

    def popularity_curve(self, points: int) -> dict[str, Any]:
        """Popularity by rank, at ranks that are evenly spaced on a logarithmic scale."""
        catalogue = self.recommender.catalogue
        ranks, popularity = catalogue.popularity_curve(points)
        short, medium, _ = (len(members) for members in catalogue.members)
        return {
            "n_items": len(catalogue.popularity),
            "ranks": ranks.tolist(),
            "popularity": popularity.tolist(),
            "cuts": {"short": short, "medium": short + medium},
        }


def load_served(name: str, source: Source, models: Sequence[type[Any]] = ()) -> Served:
    """Check all of the private copy of a model folder, and read it."""
    with reading(source.folder, source.model):
        recommender = Recommender.load(source.model.path, models)  # which compares the copy with the hashes
    if recommender.fitted.predicts_rejections:
        raise FolderError(f"'{source.folder}' predicts what users reject; serve a model of what they adopt")
    if source.known is not None and source.known_folder is not None:
        with reading(source.known_folder, source.known):
            recommender = recommender.leaving_out(Interactions.load(source.known.path))
        source.known.release()  # what users have in it is in memory now
    loaded_at = datetime.now(UTC).isoformat(timespec="seconds")
    window, writer = Window(recommender.catalogue), Writer(name, recommender.catalogue)
    return Served(name, source, recommender, loaded_at, window, writer, _is_quick(recommender))


def _is_quick(recommender: Recommender) -> bool:
    """An encoder of somebody else may do whatever it likes, and take its time."""
    is_ours = not recommender.fitted.settings.model.provenance()
    return is_ours and not recommender.folds_in and recommender.weight_bytes <= _QUICK_BYTES
