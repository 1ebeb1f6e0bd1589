"""Models that answer many requests: folders are read anew while the old models serve.

A request holds the model that it began with, so that a reload never takes one away from under it. A folder is checked
whole, and the model in it tried, before it takes the place of the old one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from milrec.errors import FolderError, MilrecError, SettingsError, UnknownIdError, unknown
from milrec.interrupts import pause_point
from milrec.lists.query import Query
from milrec.server.batcher import Batcher
from milrec.server.model import Served, load_served


class Registry:
    """The models being served, by name; the first is the one that is asked where none is named."""

    def __init__(
        self,
        folders: Mapping[str, Path],
        together: int,
        known: Path | None = None,
        look: Callable[[int], None] | None = None,
    ) -> None:
        if not folders:
            raise SettingsError("there is no model to serve; give at least one model folder")
        self._known = known
        self._models = {name: load_served(name, path, known) for name, path in folders.items()}
        self._loading = threading.Lock()
        self.batcher = Batcher(together, look)
        for served in self._models.values():
            self._try(served)

    @property
    def default(self) -> str:
        return next(iter(self._models))

    @property
    def models(self) -> list[Served]:
        return list(self._models.values())

    def model(self, name: str | None) -> Served:
        served = self._models.get(self.default if name is None else name)
        if served is None:
            raise UnknownIdError(unknown("model", name, self._models))
        return served

    def reload(self, name: str, wait: bool = False) -> Served:
        """Read a model's folder again; the old model stays where the folder cannot be used.

        One reload at a time: another is refused, or waits, so that it reads what lies there after the first.
        """
        old = self.model(name)
        if not self._loading.acquire(blocking=wait):
            raise FolderError("another reload is under way; try again when it is done")
        try:
            self.batcher.check()
            new = load_served(name, old.path, self._known)
            pause_point("reload")
            self._try(new)
            self._models[name] = new
            return new
        finally:
            self._loading.release()

    def _try(self, served: Served) -> None:
        try:
            self.batcher.call(partial(_try, served)).result()
        except MilrecError:
            raise
        except Exception as error:
            kind = error.__class__.__name__
            raise FolderError(f"the model in '{served.path}' makes no list ({kind}: {error})") from error

    def stop(self) -> None:
        self.batcher.stop()


def _try(served: Served) -> None:
    """Answer once before anybody is waiting: what is compiled on first use is compiled, what is broken breaks here."""
    recommender = served.recommender
    first = recommender.catalogue.item_ids[0]
    recommender.answer([recommender.ask(Query(adopted=[first], n=1))])
    served.find_items(str(first), 1)
