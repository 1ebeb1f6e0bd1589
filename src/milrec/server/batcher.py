"""One thread that does all the heavy work: waiting lists are made together, in portions, and models take turns.

A portion is a fraction of a second of work. A request that is given up while it waits is never started. Quick lists can
be made by the thread that asks for them: while there is no other work, handing them over would take longer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from milrec.errors import BusyError, MilrecError
from milrec.lists.query import Asked, Query
from milrec.server.limits import work_in
from milrec.server.model import Served

STOPPING = "the server is stopping; try again when it is back"
_PORTION = 10_000  # items, reasons and rules to work on before another model has its turn
_REMEMBERED = 8  # portions whose time is remembered
_FOLDED_IN = 8  # new users in a portion, where the factors of each have to be fitted

Outcome = str | BaseException  # an answer in JSON, or why there is none


@dataclass(frozen=True, eq=False)
class _Call:
    future: Future[Any]
    work: Callable[[], Any]


@dataclass(frozen=True, eq=False)
class _List:
    future: asyncio.Future[str]
    served: Served
    query: Query

    @property
    def size(self) -> int:
        """How much of a portion the list takes; folding a user in takes long, and longer still with reasons."""
        size = work_in(self.query)
        if self.served.recommender.folds_in:
            if self.query.reasons:
                return _PORTION
            is_known = self.query.user is not None and not self.query.adds_items
            return size if is_known else max(size, _PORTION // _FOLDED_IN)
        return size


_Job = _Call | list[_List] | None  # None: the last one


class Batcher:
    """The thread, and the work that waits for it."""

    def __init__(self, together: int, observe: Callable[[int], None] | None = None) -> None:
        """At most `together` lists are made at once; `observe` is called with their number each time."""
        self.together = together
        self.portion_seconds = 0.0  # that a portion takes, on average over the last ones
        self._observe = observe
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._gathered: dict[asyncio.AbstractEventLoop, list[_List]] = {}
        self._lock = threading.Lock()
        self._at_work = threading.Lock()  # held by the thread that makes lists at the moment
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="milrec-batcher", daemon=True)
        self._thread.start()

    def answer(self, served: Served, query: Query) -> asyncio.Future[str]:
        """An answer in JSON. What is asked for in one turn of the event loop is handed over together."""
        self.check()
        loop = asyncio.get_running_loop()
        gathered = self._gathered.setdefault(loop, [])
        if not gathered:
            loop.call_soon(self._hand_over, loop)
        one = _List(loop.create_future(), served, query)
        gathered.append(one)
        return one.future

    def answer_now(self, served: Served, queries: list[Query]) -> list[Outcome] | None:
        """Answers in JSON, or errors, made by this thread; None if the other one is at work."""
        self.check()
        if not self.idle or not self._at_work.acquire(blocking=False):
            return None
        try:
            return self.outcomes(served, queries)
        finally:
            self._at_work.release()

    @property
    def idle(self) -> bool:
        """Whether the thread has nothing to do."""
        return self._jobs.empty() and not self._at_work.locked()

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

    def _put(self, job: _Call | list[_List]) -> None:
        with self._lock:  # so that nothing is put after the last one
            self.check()
            self._jobs.put(job)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        lists = self._gathered.pop(loop)
        try:
            self._put(lists)
        except BusyError as error:
            _deliver([(one.future, error) for one in lists])

    def _run(self) -> None:
        waiting: dict[Served, deque[_List]] = {}
        stopping = False
        while waiting or not stopping:
            stopping |= self._take_in(waiting)
            if waiting:
                self._make_portion(waiting)

    def _take_in(self, waiting: dict[Served, deque[_List]]) -> bool:
        """Do the calls that have arrived, and let the lists wait for their turn; whether that was the last work."""
        last = False
        for job in self._arrived(wait=not waiting):
            if job is None:
                last = True
            elif isinstance(job, _Call):
                if job.future.set_running_or_notify_cancel():
                    with self._at_work:
                        settle = _done(job)
                    settle()  # now that others may work again: it wakes them up
            else:
                for one in job:
                    waiting.setdefault(one.served, deque()).append(one)
        return last

    def _make_portion(self, waiting: dict[Served, deque[_List]]) -> None:
        served = next(iter(waiting))
        lists = waiting.pop(served)
        started = time.perf_counter()
        self._answer(served, self._portion(lists))
        self.portion_seconds += (time.perf_counter() - started - self.portion_seconds) / _REMEMBERED
        if lists:
            waiting[served] = lists  # behind the other models

    def _arrived(self, wait: bool) -> Iterator[_Job]:
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
            if not one.future.cancelled():
                portion.append(one)
                left -= one.size
        return portion

    def _answer(self, served: Served, portion: list[_List]) -> None:
        if not portion:
            return
        with self._at_work:
            outcomes = self.outcomes(served, [one.query for one in portion])
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[str], Outcome]]] = {}
        for one, outcome in zip(portion, outcomes, strict=True):
            by_loop.setdefault(one.future.get_loop(), []).append((one.future, outcome))
        for loop, settled in by_loop.items():
            with suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(_deliver, settled)

    def outcomes(self, served: Served, queries: list[Query]) -> list[Outcome]:
        """An answer, or what is wrong, for each query; the lists are made together."""
        outcomes: list[Outcome] = []
        asked: list[Asked] = []
        able: list[int] = []
        for place, query in enumerate(queries):
            outcomes.append("")
            try:
                asked.append(served.recommender.ask(query))
                able.append(place)
            except BaseException as error:
                outcomes[place] = _plain(error)
        if asked:
            if self._observe is not None:
                self._observe(len(asked))
            for place, outcome in zip(able, _written(served, asked), strict=True):
                outcomes[place] = outcome
        return outcomes


def _written(served: Served, asked: list[Asked]) -> list[Outcome]:
    try:
        lists = served.recommender.listed(asked)
    except Exception as error:
        if len(asked) == 1:
            return [_plain(error)]
        return [outcome for one in asked for outcome in _written(served, [one])]  # one must not harm the others
    return [_outcome(partial(served.written, one, listed)) for one, listed in zip(asked, lists, strict=True)]


def _outcome(work: Callable[[], str]) -> Outcome:
    try:
        return work()
    except Exception as error:
        return _plain(error)


def _deliver(settled: list[tuple[asyncio.Future[str], Outcome]]) -> None:
    for future, outcome in settled:
        if future.done():  # it was given up
            continue
        if isinstance(outcome, str):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)


def _done(call: _Call) -> Callable[[], None]:
    """Do what was called for; what is returned says so."""
    try:
        return partial(call.future.set_result, call.work())
    except BaseException as error:
        return partial(call.future.set_exception, _plain(error))


def _plain(error: BaseException) -> BaseException:
    """A mistake of a request, without its traceback: that would keep a model in memory after it has been replaced."""
    return type(error)(*error.args) if isinstance(error, MilrecError) else error
