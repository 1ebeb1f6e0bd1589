"""Requests that wait are scored together, in portions, and one never harms another."""

import threading
from functools import partial

import pytest

from milrec.errors import BusyError, UnknownIdError
from milrec.lists.query import Query
from milrec.server import batcher as batcher_module
from milrec.server.app import Server, create_app
from milrec.server.batcher import Batcher
from milrec.server.registry import Registry
from serving import TASTE, Client

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long


def test_requests_that_wait_are_scored_together_and_those_given_up_not_at_all(folders, mil):
    sizes: list[int] = []
    registry = Registry({"mil": folders["mil"]}, together=64, observe=sizes.append)
    served, gate = registry.model(None), threading.Event()
    registry.batcher.call(gate.wait)
    queries = [Query(user=user, n=5, dial=place / 10) for place, user in enumerate(mil.user_ids[:9])]
    futures = [registry.batcher.answer(served, query) for query in queries]
    wrong = registry.batcher.answer(served, Query(user="nobody"))
    futures[3].cancel()
    gate.set()
    with pytest.raises(UnknownIdError):
        wrong.result()
    for place, query in enumerate(queries):
        if place != 3:
            assert futures[place].result() == mil.answer([mil.ask(query)])[0]
    registry.stop()
    assert sizes == [8]
    assert served.window.facts()[0] == 8


def test_one_request_at_a_time_is_a_setting(folders):
    sizes: list[int] = []
    registry = Registry({"mil": folders["mil"]}, together=1, observe=sizes.append)
    futures = [registry.batcher.answer(registry.model(None), Query(adopted=[], n=n)) for n in (1, 2, 3)]
    assert [len(future.result().items) for future in futures] == [1, 2, 3]
    registry.stop()
    assert sizes == [1, 1, 1]


def test_a_request_that_breaks_scoring_does_not_break_its_neighbours(folders, monkeypatch):
    registry = Registry({"mil": folders["mil"]}, together=64)
    served, gate = registry.model(None), threading.Event()
    whole = served.recommender.answer

    def fragile(asked):
        if any(one.wanted.n == 7 for one in asked):
            raise ZeroDivisionError
        return whole(asked)

    monkeypatch.setattr(served.recommender, "answer", fragile)
    registry.batcher.call(gate.wait)
    futures = [registry.batcher.answer(served, Query(adopted=[], n=n)) for n in (6, 7, 8)]
    gate.set()
    assert len(futures[0].result().items) == 6 and len(futures[2].result().items) == 8
    with pytest.raises(ZeroDivisionError):
        futures[1].result()
    registry.stop()


def test_waiting_work_is_done_before_the_batcher_stops():
    batcher = Batcher(together=4)
    done: list[int] = []
    futures = [batcher.call(partial(done.append, number)) for number in range(20)]
    batcher.stop()
    assert done == list(range(20)) and all(future.done() for future in futures)


def test_a_stopped_batcher_refuses_work_that_would_wait_for_ever(folders):
    registry = Registry({"mil": folders["mil"]}, together=4)
    served = registry.model(None)
    registry.stop()
    registry.stop()
    for late in (lambda: registry.batcher.call(print), lambda: registry.batcher.answer(served, Query(adopted=[]))):
        with pytest.raises(BusyError, match="the server is stopping"):
            late()
    with pytest.raises(BusyError):
        registry.reload("mil")
    answer = Client(create_app(Server(registry))).post("/v1/recommend", json=TASTE)
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"


def test_large_lists_are_made_in_portions_and_models_take_turns(folders, monkeypatch):
    """What is given up before its portion begins is not made; what waits for another model does not wait for all."""
    monkeypatch.setattr(batcher_module, "_PORTION", 20)
    registry = Registry({"mil": folders["mil"], "ease": folders["ease"]}, together=64)
    gate, order = threading.Event(), []

    def noted(name, future):
        order.append("given up" if future.cancelled() else name)

    registry.batcher.call(gate.wait)
    futures = []
    for name, n in (("mil", 10), ("mil", 10), ("mil", 10), ("mil", 30), ("mil", 5), ("ease", 5)):
        future = registry.batcher.answer(registry.model(name), Query(adopted=[], n=n))
        future.add_done_callback(partial(noted, name))
        futures.append(future)
    futures[0].add_done_callback(lambda _: futures[3].cancel())
    gate.set()
    registry.stop()
    assert order.pop(order.index("given up")) and order == ["mil", "mil", "ease", "mil", "mil"]
    assert registry.model("mil").window.facts()[0] == 4
