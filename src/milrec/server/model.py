"""A model that is being served: facts about it and its items, and what it has listed recently."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from milrec.data.interactions import Interactions
from milrec.errors import FolderError, MilrecError
from milrec.lists.catalogue import TAIL_NAMES, Catalogue
from milrec.lists.query import Answer, Query
from milrec.recommender import Recommender
from milrec.server.copies import Copy, take_copy
from milrec.storage import MANIFEST, Manifest

_LISTS_REMEMBERED = 1_000  # for each model: its live tail shares and coverage are over these


class Window:
    """What a model has listed recently: how often each item was shown, by item number."""

    def __init__(self, catalogue: Catalogue, size: int = _LISTS_REMEMBERED) -> None:
        self.size = size
        self._catalogue = catalogue
        self._lists: list[npt.NDArray[np.int32]] = []
        self._next = 0
        self._shown = np.zeros(len(catalogue.popularity), dtype=np.int64)  # (n_items,)
        self._lock = threading.Lock()

    def add(self, answer: Answer) -> None:
        items = np.array([one.number for one in answer.items], dtype=np.int32)  # no item is listed twice
        with self._lock:
            if len(self._lists) < self.size:
                self._lists.append(items)
            else:
                self._shown[self._lists[self._next]] -= 1
                self._lists[self._next] = items
                self._next = (self._next + 1) % self.size
            self._shown[items] += 1

    def facts(self) -> tuple[int, dict[str, int], int]:
        """How many lists are remembered, how many items they show in each interval, and how many distinct ones."""
        with self._lock:
            tails = {
                name: int(self._shown[members].sum())
                for name, members in zip(TAIL_NAMES, self._catalogue.members, strict=True)
            }
            return len(self._lists), tails, int(np.count_nonzero(self._shown))


@dataclass(frozen=True, eq=False)
class Served:
    """A model that is being served."""

    name: str
    path: Path
    copy: Copy  # what is mapped into memory; nobody else writes to it
    recommender: Recommender
    fingerprint: str
    loaded_at: str
    window: Window

    def item(self, item: str) -> dict[str, Any]:
        """One item of the catalogue."""
        return self._items(self.recommender.catalogue.item_numbers([item]))[0]

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
            "settings": settings.model_dump(mode="json"),
            "fitted": {
                **{name: value for name, value in fitted.facts.items() if name not in left_out},
                "fingerprint": self.fingerprint,
            },
            "loaded_at": self.loaded_at,
        }

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


def load_served(
    name: str, path: Path, known: Path | None = None, models: Sequence[type[Any]] = (), scratch: Path | None = None
) -> Served:
    """Make a private copy of a model folder, check all of it and read it; it may contain only what milrec wrote.

    The folder may be removed, replaced or overwritten at any moment. While it is being copied, the error says so; from
    then on it does not matter.
    """
    with _reading(path):
        copy = take_copy(path, "model", scratch)
    try:
        with _reading(path, copy):
            _refuse_foreign_files(copy.source)
            recommender = Recommender.load(copy.path, models)  # which compares the copy with the hashes
        if known is not None:
            recommender = _leaving_out(recommender, known, scratch)
    except BaseException:
        copy.release()
        raise
    loaded_at = datetime.now(UTC).isoformat(timespec="seconds")
    return Served(name, path, copy, recommender, copy.source.fingerprint(), loaded_at, Window(recommender.catalogue))


def _leaving_out(recommender: Recommender, known: Path, scratch: Path | None) -> Recommender:
    """The data is needed only for a moment: what users have in it is copied into memory."""
    with _reading(known):
        data = take_copy(known, "data", scratch)
    try:
        with _reading(known, data):
            return recommender.leaving_out(Interactions.load(data.path))
    finally:
        data.release()


@contextmanager
def _reading(path: Path, copy: Copy | None = None) -> Iterator[None]:
    """What goes wrong while a folder is read is an error of one sentence, about the folder and not about its copy."""
    try:
        yield
    except FolderError as error:
        raise FolderError(str(error).replace(str(copy.path), str(path)) if copy else str(error)) from error
    except MilrecError:
        raise
    except Exception as error:
        why = f"{error.__class__.__name__}: {error}"
        raise FolderError(f"'{path}' cannot be read ({why}); if it is being replaced, try again") from error


def _refuse_foreign_files(manifest: Manifest) -> None:
    foreign = {file.name for file in manifest.path.iterdir()} - {MANIFEST, *manifest.hashes}
    if foreign:
        raise FolderError(f"'{manifest.path}' holds '{min(foreign)}', which milrec did not write; remove it")
