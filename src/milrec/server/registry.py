"""The models that are being served, and how one is replaced while it serves.

A request keeps the model that it started with, whatever is reloaded meanwhile. A new folder is copied and checked
completely, and its model tried out, before it replaces the old one.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from milrec.errors import FolderError, MilrecError, SettingsError, UnknownIdError, unknown
from milrec.interrupts import pause_point
from milrec.lists.query import Query
from milrec.server.batcher import Batcher
from milrec.server.model import Served, load_served


class Registry:
    """The models that are being served, by name; the first is used for requests that do not name one."""

    def __init__(
        self,
        folders: Mapping[str, Path],
        together: int,
        known: Path | None = None,
        observe: Callable[[int], None] | None = None,
        models: Sequence[type[Any]] = (),
        scratch: Path | None = None,
    ) -> None:
        """`scratch` is the place for private copies of the folders; by default each is made beside its folder."""
        if not folders:
            raise SettingsError("there is no model to serve; give at least one model folder")
        self._load = partial(load_served, known=known, models=models, scratch=scratch)
        self.after_reload: Callable[[], None] = lambda: None
        self._models: dict[str, Served] = {}
        self._loading = threading.Lock()
        self.batcher = Batcher(together, observe)
        try:
            for name, path in folders.items():
                self._models[name] = self._load(name, path)
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
        path = self.model(name).path
        if not self._loading.acquire(blocking=wait):
            raise FolderError("another reload is running; try again when it is done")
        try:
            self.batcher.check()
            new = self._load(name, path)
            with ExitStack() as undone:
                undone.callback(new.copy.release)
                pause_point("reload")
                self._try_out(new)
                undone.pop_all()
            self._replace(name, new)
            self.after_reload()
            return new
        finally:
            self._loading.release()

    def _replace(self, name: str, new: Served) -> None:
        old, self._models[name] = self._models[name], new
        old.copy.release()  # requests under way keep what is mapped

    def _try_out(self, served: Served) -> None:
        try:
            self.batcher.call(partial(_try_out, served)).result()
        except MilrecError:
            raise
        except Exception as error:
            kind = error.__class__.__name__
            raise FolderError(f"the model in '{served.path}' cannot make a list ({kind}: {error})") from error

    def stop(self) -> None:
        """Finish the work that waits, and let the private copies go."""
        self.batcher.stop()
        self.release()

    def release(self) -> None:
        """Let the private copies go; requests under way keep what is mapped."""
        for served in self.models:
            served.copy.release()


def _try_out(served: Served) -> None:
    """Answer once before any request waits: functions are compiled on first use, and a broken model fails here."""
    recommender = served.recommender
    first = recommender.catalogue.item_ids[0]
    recommender.answer([recommender.ask(Query(adopted=[first], n=1))])
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
