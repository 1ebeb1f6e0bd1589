"""Requests that wait are scored together, in portions, and one never harms another."""

import asyncio
import json
import threading
from functools import partial

import pytest

from milrec.errors import BusyError, UnknownIdError
from milrec.lists.query import Query
from milrec.server import batcher as batcher_module
from milrec.server.app import create_app
from milrec.server.batcher import Batcher
from milrec.server.copies import Folders
from milrec.server.registry import Registry
from milrec.server.service import Server
from pausing import LONG
from serving import TASTE, Client, answers_of, as_json

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long


class Asked:
    """Requests to a batcher that has something else to do until they have all been made."""

    def __init__(self, registry: Registry, *queries: Query) -> None:
        self.registry, self.queries = registry, queries
        self._gate = threading.Event()

    def outcomes(self, given_up: int | None = None) -> list:
        """An answer, an error or None for each; one may be given up before its turn."""
        return asyncio.run(self._outcomes(given_up))

    async def _outcomes(self, given_up: int | None) -> list:
        self.registry.batcher.call(self._gate.wait)
        served = self.registry.model(None)
        futures = [self.registry.batcher.answer(served, query) for query in self.queries]
        await asyncio.sleep(0)  # they are handed over
        if given_up is not None:
            futures[given_up].cancel()
        self._gate.set()
        found = await asyncio.gather(*futures, return_exceptions=True)
        return [json.loads(one) if isinstance(one, str) else one for one in found]


def test_requests_that_wait_are_scored_together_and_those_given_up_not_at_all(folders, mil):
    sizes: list[int] = []
    registry = Registry(Folders({"mil": folders["mil"]}), together=64, observe=sizes.append)
    queries = [Query(user=user, n=5, dial=place / 10) for place, user in enumerate(mil.user_ids[:9])]
    *found, wrong = Asked(registry, *queries, Query(user="nobody")).outcomes(given_up=3)
    assert isinstance(wrong, UnknownIdError)
    for place, query in enumerate(queries):
        if place != 3:
            assert found[place]["items"] == as_json(mil.answer([mil.ask(query)])[0])
    registry.stop()
    assert sizes == [8]
    assert registry.model(None).window.facts()[0] == 8


def test_one_request_at_a_time_is_a_setting(folders):
    sizes: list[int] = []
    registry = Registry(Folders({"mil": folders["mil"]}), together=1, observe=sizes.append)
    answers = answers_of(registry, *(Query(adopted=[], n=n) for n in (1, 2, 3)))
    assert [len(answer["items"]) for answer in answers] == [1, 2, 3]
    registry.stop()
    assert sizes == [1, 1, 1]


def test_a_request_that_breaks_scoring_does_not_break_its_neighbours(folders, monkeypatch):
    registry = Registry(Folders({"mil": folders["mil"]}), together=64)
    served = registry.model(None)
    whole = served.recommender.listed

    def fragile(asked):
        if any(one.wanted.n == 7 for one in asked):
            raise ZeroDivisionError
        return whole(asked)

    monkeypatch.setattr(served.recommender, "listed", fragile)
    first, second, third = Asked(registry, *(Query(adopted=[], n=n) for n in (6, 7, 8))).outcomes()
    assert len(first["items"]) == 6 and len(third["items"]) == 8
    assert isinstance(second, ZeroDivisionError)
    registry.stop()


def test_lists_that_are_made_at_once_are_the_same_and_wait_for_nobody(folders, mil):
    registry = Registry(Folders({"mil": folders["mil"]}), together=64)
    served, queries = registry.model(None), [Query(user=user, n=5) for user in mil.user_ids[:3]]
    found = registry.batcher.answer_now(served, [*queries, Query(user="nobody")])
    assert found is not None and isinstance(found.pop(), UnknownIdError)
    assert [json.loads(one) for one in found] == answers_of(registry, *queries)
    begun, gate = threading.Event(), threading.Event()
    registry.batcher.call(begun.set)
    registry.batcher.call(gate.wait)
    assert begun.wait(LONG) and registry.batcher.answer_now(served, queries) is None
    gate.set()
    registry.stop()


def test_waiting_work_is_done_before_the_batcher_stops():
    batcher = Batcher(together=4)
    done: list[int] = []
    futures = [batcher.call(partial(done.append, number)) for number in range(20)]
    batcher.stop()
    assert done == list(range(20)) and all(future.done() for future in futures)


def test_a_stopped_batcher_refuses_work_that_would_wait_for_ever(folders):
    registry = Registry(Folders({"mil": folders["mil"]}), together=4)
    served = registry.model(None)
    registry.stop()
    registry.stop()
    for late in (registry.batcher.call, partial(registry.batcher.answer_now, served)):
        with pytest.raises(BusyError, match="the server is stopping"):
            late([])
    with pytest.raises(BusyError):
        registry.reload("mil")
    answer = Client(create_app(Server(registry))).post("/v1/recommend", json=TASTE)
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"


def test_large_lists_are_made_in_portions_and_models_take_turns(folders, monkeypatch):
    """What is given up before its portion begins is not made; what waits for another model does not wait for all."""
    monkeypatch.setattr(batcher_module, "_PORTION", 20)
    registry = Registry(Folders({"mil": folders["mil"], "ease": folders["ease"]}), together=64)
    gate, order = threading.Event(), []

    def noted(name, future):
        order.append("given up" if future.cancelled() else name)

    async def ask() -> None:
        registry.batcher.call(gate.wait)
        futures = []
        for name, n in (("mil", 10), ("mil", 10), ("mil", 10), ("mil", 30), ("mil", 5), ("ease", 5)):
            future = registry.batcher.answer(registry.model(name), Query(adopted=[], n=n))
            future.add_done_callback(partial(noted, name))
            futures.append(future)
        await asyncio.sleep(0)  # they are handed over
        futures[3].cancel()
        gate.set()
        await asyncio.gather(*futures, return_exceptions=True)

    asyncio.run(ask())
    registry.stop()
    assert order.pop(order.index("given up")) and order == ["mil", "mil", "ease", "mil", "mil"]
    assert registry.model("mil").window.facts()[0] == 4
