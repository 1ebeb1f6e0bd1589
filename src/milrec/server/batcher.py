"""One thread that does all the heavy work: waiting lists are made together, in portions, and models take turns.

A portion is a fraction of a second of work. A request that is given up while it waits is never started.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from milrec.errors import BusyError, MilrecError
from milrec.lists.query import Answer, Asked, Query
from milrec.server.limits import work_in
from milrec.server.model import Served

STOPPING = "the server is stopping; try again when it is back"
_PORTION = 10_000  # items, reasons and rules to work on before another model has its turn
_REMEMBERED = 8  # portions whose time is remembered
_FOLDED_IN = 8  # new users in a portion, where the factors of each have to be fitted


@dataclass(frozen=True, eq=False)
class _Call:
    future: Future[Any]
    work: Callable[[], Any]


@dataclass(frozen=True, eq=False)
class _List:
    future: Future[Answer]
    served: Served
    query: Query

    @property
    def size(self) -> int:
        """How much of a portion the list takes; folding a user in takes long, and longer still with reasons."""
        size = work_in(self.query.n, self.query.reasons, len(self.query.rules))
        if self.served.recommender.folds_in:
            if self.query.reasons:
                return _PORTION
            return size if self.query.user is not None else max(size, _PORTION // _FOLDED_IN)
        return size


class Batcher:
    """The thread, and the work that waits for it."""

    def __init__(self, together: int, observe: Callable[[int], None] | None = None) -> None:
        """At most `together` lists are made at once; `observe` is called with their number each time."""
        self.together = together
        self.portion_seconds = 0.0  # that a portion takes, on average over the last ones
        self._observe = observe
        self._jobs: SimpleQueue[_Call | _List | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="milrec-batcher", daemon=True)
        self._thread.start()

    def answer(self, served: Served, query: Query) -> Future[Answer]:
        future: Future[Answer] = Future()
        self._put(_List(future, served, query))
        return future

    def call(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._put(_Call(future, work))
        return future

    def check(self) -> None:
        """Refuse work that would wait for ever."""
        if self._stopped:
            raise BusyError(STOPPING)

    def stop(self) -> None:
        """Finish the work that waits, then end; later work is refused."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._jobs.put(None)
        self._thread.join()

    def _put(self, job: _Call | _List) -> None:
        with self._lock:  # so that nothing is put after the last one
            self.check()
            self._jobs.put(job)

    def _run(self) -> None:
        waiting: dict[Served, deque[_List]] = {}
        stopping = False
        while waiting or not stopping:
            for job in self._arrived(wait=not waiting):
                if job is None:
                    stopping = True
                elif isinstance(job, _List):
                    waiting.setdefault(job.served, deque()).append(job)
                elif job.future.set_running_or_notify_cancel():
                    _settle(job.future, job.work)
            if waiting:
                served = next(iter(waiting))
                lists = waiting.pop(served)
                started = time.perf_counter()
                self._answer(served, self._portion(lists))
                self.portion_seconds += (time.perf_counter() - started - self.portion_seconds) / _REMEMBERED
                if lists:
                    waiting[served] = lists  # behind the other models

    def _arrived(self, wait: bool) -> Iterator[_Call | _List | None]:
        if wait:
            yield self._jobs.get()
        for _ in range(self._jobs.qsize()):
            try:
                yield self._jobs.get_nowait()
            except Empty:  # pragma: no cover  (no other thread takes from it)
                return

    def _portion(self, lists: deque[_List]) -> list[_List]:
        """The next lists that are still wanted, as many as are made at once."""
        portion: list[_List] = []
        left = _PORTION
        while lists and len(portion) < self.together and (not portion or lists[0].size <= left):
            one = lists.popleft()
            if one.future.set_running_or_notify_cancel():
                portion.append(one)
                left -= one.size
        return portion

    def _answer(self, served: Served, portion: list[_List]) -> None:
        recommender, asked, able = served.recommender, [], []
        for one in portion:
            try:
                asked.append(recommender.ask(one.query))
                able.append(one)
            except BaseException as error:
                one.future.set_exception(_plain(error))
        if not able:
            return
        if self._observe is not None:
            self._observe(len(able))
        try:
            answers = recommender.answer(asked)
        except Exception:  # one request must not harm the others: try each alone
            for one, alone in zip(able, asked, strict=True):
                _settle(one.future, partial(_alone, served, alone))
            return
        for one, answer in zip(able, answers, strict=True):
            served.window.add(answer)
            one.future.set_result(answer)


def _alone(served: Served, asked: Asked) -> Answer:
    (answer,) = served.recommender.answer([asked])
    served.window.add(answer)
    return answer


def _settle(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(_plain(error))


def _plain(error: BaseException) -> BaseException:
    """A mistake of a request, without its traceback: that would keep a model in memory after it has been replaced."""
    return type(error)(*error.args) if isinstance(error, MilrecError) else error
