"""Models that answer many requests: one thread scores what waits together, folders are read anew while they serve.

A request holds the model that it began with, so that a reload never takes one away from under it. A folder is checked
whole, and the model in it tried, before it takes the place of the old one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from milrec.asking import Answer, Asked, Query
from milrec.catalogue import TAIL_NAMES
from milrec.errors import FolderError, SettingsError, UnknownIdError, unknown
from milrec.folders import MANIFEST, Manifest, open_folder, read_json
from milrec.interactions import Interactions
from milrec.recommender import Recommender
from milrec.tail import interval_cuts

_LISTS_REMEMBERED = 1_000  # of each model: what its live tail share and coverage are taken over


class Window:
    """What a model listed of late: how often each item, and how many places of each tail interval."""

    def __init__(self, size: int = _LISTS_REMEMBERED) -> None:
        self.size = size
        self._lists: list[tuple[tuple[Any, str], ...]] = []
        self._next = 0
        self._items: dict[Any, int] = {}
        self._tails = dict.fromkeys(TAIL_NAMES, 0)
        self._lock = threading.Lock()

    def add(self, answer: Answer) -> None:
        shown = tuple((one.item, one.tail) for one in answer.items)
        with self._lock:
            if len(self._lists) < self.size:
                self._lists.append(shown)
            else:
                self._forget(self._lists[self._next])
                self._lists[self._next] = shown
                self._next = (self._next + 1) % self.size
            for item, tail in shown:
                self._items[item] = self._items.get(item, 0) + 1
                self._tails[tail] += 1

    def _forget(self, shown: tuple[tuple[Any, str], ...]) -> None:
        for item, tail in shown:
            self._tails[tail] -= 1
            self._items[item] -= 1
            if not self._items[item]:
                del self._items[item]

    def facts(self) -> tuple[int, dict[str, int], int]:
        """How many lists are remembered, places of each interval, distinct items."""
        with self._lock:
            return len(self._lists), dict(self._tails), len(self._items)


@dataclass(frozen=True, eq=False)
class Served:
    """A model as it is being served."""

    name: str
    path: Path
    recommender: Recommender
    fingerprint: str
    loaded_at: str
    window: Window = field(default_factory=Window)

    def item(self, item: Any) -> dict[str, Any]:
        """What is known of an item of the catalogue."""
        catalogue = self.recommender.catalogue
        number = int(catalogue.item_numbers([item])[0])
        return {
            "item": str(item),
            "title": catalogue.titles[number],
            "popularity": int(catalogue.popularity[number]),
            "tail": TAIL_NAMES[catalogue.intervals[number]],
            "place": int(catalogue.places[number]),
        }

    def find_items(self, text: str, n: int) -> list[dict[str, Any]]:
        return [self.item(one) for one in self.recommender.find_items(text, n)["item"].to_pylist()]

    def find_users(self, text: str, n: int) -> list[str]:
        return [str(one) for one in self.recommender.find_users(text, n)]

    def similar(self, item: str, n: int) -> dict[str, Any]:
        """The items most like an item, and by which measure."""
        table = self.recommender.similar_items(item, n)
        measure = table.column_names[-1]
        rows = zip(*(table[name].to_pylist() for name in ("rank", "item", measure)), strict=True)
        items = [{"rank": rank, **self.item(one), "likeness": likeness} for rank, one, likeness in rows]
        return {"items": items, "measure": measure}

    def user(self, user: str) -> dict[str, Any]:
        """What a known user adopted and rejected."""
        table = self.recommender.user_items(user)
        parts: dict[str, list[dict[str, Any]]] = {"adopted": [], "rejected": []}
        for entry, item in zip(table["entry"].to_pylist(), table["item"].to_pylist(), strict=True):
            parts[entry].append(self.item(item))
        return {"user": user, **parts}

    def facts(self) -> dict[str, Any]:
        """What there is to know of the model and of the data that it was fitted on."""
        fitted = self.recommender.fitted
        settings, train = fitted.settings, fitted.train
        counts = np.bincount(self.recommender.catalogue.intervals, minlength=len(TAIL_NAMES))
        left_out = ("settings", "history", *train.facts())
        return {
            "name": self.name,
            "model": settings.model.model,
            "loss": settings.loss.loss if settings.loss else None,
            "n_users": train.n_users,
            "n_items": train.n_items,
            "n_interactions": int(train.adopted.nnz),
            "intervals": dict(zip(TAIL_NAMES, counts.tolist(), strict=True)),
            "settings": settings.model_dump(mode="json"),
            "fitted": {
                **{name: value for name, value in fitted.facts.items() if name not in left_out},
                "fingerprint": self.fingerprint,
            },
            "loaded_at": self.loaded_at,
        }

    def popularity_curve(self, points: int) -> dict[str, Any]:
        """Popularity by rank, at ranks that lie evenly on a logarithmic scale."""
        popularity = self.recommender.catalogue.popularity
        n_items = len(popularity)
        ranks = np.unique(np.geomspace(1, n_items, num=points).round().astype(np.int64))
        ordered = np.sort(popularity)[::-1]
        short, medium = interval_cuts(popularity)
        return {
            "n_items": n_items,
            "ranks": ranks.tolist(),
            "popularity": ordered[ranks - 1].tolist(),
            "cuts": {"short": short, "medium": medium},
        }


def load_served(name: str, path: Path, known: Path | None = None) -> Served:
    """Read a model folder, checked whole; nothing but what milrec wrote may lie in it.

    The place is fixed first: where `path` is a link that is turned meanwhile, no file of another model is read.
    """
    if not path.is_dir():
        raise FolderError(f"there is no model folder '{path}'")
    place = path.resolve()
    manifest = open_folder(place, "model")
    _refuse_foreign_files(manifest)
    recommender = Recommender.load(place)
    if known is not None:
        recommender = recommender.leaving_out(Interactions.read_from(open_folder(known, "data")))
    if _hashes(place) != manifest.hashes:
        raise FolderError(f"'{path}' was replaced while it was being read; reload it again")
    loaded_at = datetime.now(UTC).isoformat(timespec="seconds")
    return Served(name, path, recommender, manifest.fingerprint(), loaded_at)


def _refuse_foreign_files(manifest: Manifest) -> None:
    foreign = {file.name for file in manifest.path.iterdir()} - {MANIFEST, *manifest.hashes}
    if foreign:
        raise FolderError(f"'{manifest.path}' holds '{min(foreign)}', which milrec did not write; take it out")


def _hashes(place: Path) -> dict[str, str]:
    return {name: entry["sha256"] for name, entry in read_json(place / MANIFEST)["files"].items()}


@dataclass(frozen=True, eq=False)
class _Job:
    future: Future[Any]
    served: Served | None = None
    query: Query | None = None
    work: Callable[[], Any] | None = None


class Scorer:
    """One thread that does all heavy work; requests that wait while it is busy are scored together."""

    def __init__(self, together: int, look: Callable[[int], None] | None = None) -> None:
        self.together = together
        self._look = look
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="milrec-scorer", daemon=True)
        self._thread.start()

    def answer(self, served: Served, query: Query) -> Future[Answer]:
        future: Future[Answer] = Future()
        self._jobs.put(_Job(future, served, query))
        return future

    def call(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put(_Job(future, work=work))
        return future

    def stop(self) -> None:
        """Finish what waits, then end."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        going_on = True
        while going_on:
            jobs = [self._jobs.get()]
            while len(jobs) < self.together:
                try:
                    jobs.append(self._jobs.get_nowait())
                except Empty:
                    break
            going_on = None not in jobs
            self._do([job for job in jobs if job is not None and job.future.set_running_or_notify_cancel()])

    def _do(self, jobs: list[_Job]) -> None:
        groups: dict[Served, list[_Job]] = {}
        for job in jobs:
            if job.served is None:
                assert job.work is not None
                _settle(job, job.work)
            else:
                groups.setdefault(job.served, []).append(job)
        for served, group in groups.items():
            self._answer(served, group)

    def _answer(self, served: Served, jobs: list[_Job]) -> None:
        recommender, asked, able = served.recommender, [], []
        for job in jobs:
            assert job.query is not None
            try:
                asked.append(recommender.ask(job.query))
                able.append(job)
            except BaseException as error:
                job.future.set_exception(error)
        if self._look is not None and able:
            self._look(len(able))
        try:
            answers = recommender.answer(asked)
        except Exception:  # one of them harms none of the others
            for job, one in zip(able, asked, strict=True):
                _settle(job, partial(_alone, served, one))
            return
        for job, answer in zip(able, answers, strict=True):
            served.window.add(answer)
            job.future.set_result(answer)


def _alone(served: Served, asked: Asked) -> Answer:
    (answer,) = served.recommender.answer([asked])
    served.window.add(answer)
    return answer


def _settle(job: _Job, work: Callable[[], Any]) -> None:
    try:
        job.future.set_result(work())
    except BaseException as error:
        job.future.set_exception(error)


class Service:
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
        self.scorer = Scorer(together, look)
        for served in self._models.values():
            self.scorer.call(partial(_try, served)).result()

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

    def reload(self, name: str) -> Served:
        """Read a model's folder again; the old model stays where the folder cannot be used."""
        old = self.model(name)
        if not self._loading.acquire(blocking=False):
            raise FolderError("another reload is under way; try again when it is done")
        try:
            new = load_served(name, old.path, self._known)
            self.scorer.call(partial(_try, new)).result()
            self._models[name] = new
            return new
        finally:
            self._loading.release()

    def stop(self) -> None:
        self.scorer.stop()


def _try(served: Served) -> None:
    """Answer once before anybody is waiting: what is compiled on first use is compiled, what is broken breaks here."""
    recommender = served.recommender
    first = recommender.catalogue.item_ids[0]
    recommender.answer([recommender.ask(Query(adopted=[first], n=1))])
    served.find_items(str(first), 1)
