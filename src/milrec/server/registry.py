"""The models that are being served, and how one is replaced while it serves.

A request keeps the model that it started with, whatever is reloaded meanwhile. A new folder is copied and checked
completely, and its model tried out, before it replaces the old one.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Protocol

from milrec.errors import FolderError, MilrecError, SettingsError, UnknownIdError, unknown
from milrec.interrupts import pause_point
from milrec.lists.query import Query
from milrec.server.batcher import Batcher
from milrec.server.copies import RELOADING, Source
from milrec.server.model import Served, load_served


class Sources(Protocol):
    """Where the models that are served come from."""

    @property
    def names(self) -> Sequence[str]: ...

    def take(self, name: str) -> Source:
        """What a model is to be read from now."""


class Registry:
    """The models that are being served, by name; the first is used for requests that do not name one."""

    def __init__(
        self,
        sources: Sources,
        together: int,
        observe: Callable[[int], None] | None = None,
        models: Sequence[type[Any]] = (),
    ) -> None:
        if not sources.names:
            raise SettingsError("there is no model to serve; give at least one model folder")
        self._sources, self._classes = sources, models
        self.after_reload: Callable[[], None] = lambda: None
        self._models: dict[str, Served] = {}
        self._loading = threading.Lock()
        self.batcher = Batcher(together, observe)
        try:
            for name in sources.names:
                self._models[name] = self._load(name)
            for served in self._models.values():
                self._try_out(served)
        except BaseException:
            self.stop()
            raise

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
        """Read a model's folder again; if the folder cannot be used, the old model stays.

        There is one reload at a time: a second is refused, or waits and then reads the folder as it is by then.
        """
        self.model(name)
        if not self._loading.acquire(blocking=wait):
            raise FolderError(RELOADING)
        try:
            new = self.prepared(name)
            self.replace(new)
            return new
        finally:
            self._loading.release()

    def prepared(self, name: str) -> Served:
        """A model as its folder holds it now, read and tried out, but not served yet."""
        self.batcher.check()
        new = self._load(name)
        with ExitStack() as undone:
            undone.callback(new.source.release)
            pause_point("reload")
            self._try_out(new)
            undone.pop_all()
        return new

    def replace(self, new: Served) -> None:
        """Serve this model from now on."""
        old, self._models[new.name] = self._models[new.name], new
        old.source.release()  # requests under way keep what is mapped
        del old
        self.after_reload()

    def _load(self, name: str) -> Served:
        source = self._sources.take(name)
        try:
            return load_served(name, source, self._classes)
        except BaseException:
            source.release()
            raise

    def _try_out(self, served: Served) -> None:
        try:
            self.batcher.call(partial(_try_out, served)).result()
        except MilrecError:
            raise
        except Exception as error:
            kind = error.__class__.__name__
            raise FolderError(f"the model in '{served.source.folder}' cannot make a list ({kind}: {error})") from error

    def stop(self) -> None:
        """Finish the work that waits, and let the private copies go."""
        self.batcher.stop()
        self.release()

    def release(self) -> None:
        """Let the private copies go; requests under way keep what is mapped."""
        for served in self.models:
            served.source.release()


def _try_out(served: Served) -> None:
    """Answer once before any request waits: functions are compiled on first use, and a broken model fails here."""
    recommender = served.recommender
    first = recommender.catalogue.item_ids[0]
    recommender.listed([recommender.ask(Query(adopted=[first], n=1))])
    served.find_items(str(first), 1)


def settle_memory() -> None:
    """Tidy up after models have been read or replaced, in a process that does nothing but serve them.

    A model is some hundred thousand objects that stay: Python's collector would look at all of them several times a
    second, for a tenth of a second each time; once they are frozen, it leaves them alone. Those of the old model are
    looked at once more, to be freed. What they took up is in pieces that glibc would keep, and that the next model
    does not fit into.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library has no such function
            ctypes.CDLL(None).malloc_trim(0)
