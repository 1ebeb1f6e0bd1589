"""The example that the page opens with, and which items are listed together; the answers are made without users."""

import asyncio
import gc
import threading
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import milrec
from milrec.data.simulation import Simulation, simulate
from milrec.errors import BusyError
from milrec.lists.catalogue import Catalogue
from milrec.server.app import create_app
from milrec.server.copies import Folders
from milrec.server.explorer.portions import Gradual, in_portions, lists_for
from milrec.server.explorer.routes import Kept
from milrec.server.explorer.story import _SEEDS, _tastes
from milrec.server.registry import Registry
from milrec.server.service import Server
from serving import Client, refused

pytestmark = pytest.mark.xdist_group("pages")  # the models of the demo are fitted once, for these tests too


def serving(folders):
    registry = Registry(Folders({folder.name: folder for folder in folders}), together=64)
    return registry, Client(create_app(Server(registry)))


@pytest.fixture(scope="module")
def client(folders):
    registry, client = serving(folders)
    yield client
    registry.stop()


def test_the_story_is_a_small_taste_without_hits_and_two_models(client):
    told = client.get("/v1/story").json()
    assert set(told) == {"adopted", "models"}
    assert 2 <= len(told["adopted"]) <= 3
    assert all(one["title"] and one["tail"] != "short" for one in told["adopted"])
    assert len(told["models"]) == 2 and told["models"][1] == "mil"
    assert client.get("/v1/story").json() == told


def test_the_second_model_of_the_story_lists_fewer_hits(client):
    told = client.get("/v1/story").json()
    liked = [one["item"] for one in told["adopted"]]
    requests = [{"model": name, "adopted": liked, "n": 20} for name in told["models"]]
    first, second = client.post("/v1/recommend/batch", json={"requests": requests}).json()["answers"]
    popular = [answer["shares"]["medium"] / 2 + answer["shares"]["long"] for answer in (first, second)]
    assert popular[0] < popular[1]


def test_the_story_is_typical_and_about_the_models_that_differ_the_most(client, recommenders):
    """At least a fifth of the tastes differ as much as the example; checked on all that it is chosen from."""
    told = client.get("/v1/story").json()
    names, own = list(recommenders), list(recommenders.values())
    tastes = outcome(_tastes(own, _SEEDS))
    lists = [outcome(lists_for(one, tastes, 20)) for one in own]
    intervals = own[0].catalogue.intervals
    hits = np.array([[(intervals[one] == 0).mean() for one in some] for some in lists])
    apart = {name: (hits[at] - hits[names.index("mil")]).mean() for at, name in enumerate(names)}
    assert told["models"] == [max(apart, key=lambda name: apart[name]), "mil"]
    gains = hits[names.index(told["models"][0])] - hits[names.index("mil")]
    liked = own[0].catalogue.item_numbers([one["item"] for one in told["adopted"]]).tolist()
    (place, *_) = [at for at, taste in enumerate(tastes) if taste.tolist() == liked]
    assert (gains >= gains[place]).mean() >= 0.2 and (gains > gains[place]).mean() <= 0.2


def outcome(portions):
    try:
        while True:
            next(portions)
    except StopIteration as end:
        return end.value


def test_the_story_is_the_same_in_every_process_and_needs_no_users(client, folders, tmp_path):
    bare = [tmp_path / folder.name for folder in folders]
    for folder, out in zip(folders, bare, strict=True):
        milrec.load(folder).without_users().save(out)
    registry, other = serving(bare)
    try:
        assert other.get("/v1/story").json() == client.get("/v1/story").json()
        path = "/v1/models/mil/listed-with?item=i001"
        assert other.get(path).json() == client.get(path).json()
    finally:
        registry.stop()


def test_one_model_without_item_factors_or_titles_has_a_story_too(folders, tmp_path):
    data = simulate(Simulation(n_users=80, n_items=60, mean_shown=40), seed=1)
    split = milrec.split_interactions(replace(data, items=data.items.select(["id"])), seed=0)
    milrec.fit(split, "popularity").save(tmp_path / "popular")
    registry, client = serving([tmp_path / "popular"])
    try:
        told = client.get("/v1/story").json()
        assert told["models"] == ["popular"] and told["adopted"][0]["title"] is None
        liked = told["adopted"][0]["item"]
        assert client.get(f"/v1/models/popular/listed-with?item={liked}").json()["n_lists"] == split.train.n_items
    finally:
        registry.stop()


def test_what_is_listed_together_is_counted_over_lists_for_single_items(client, recommenders):
    found = client.get("/v1/models/mil/listed-with", params={"item": "i001", "n": 5}).json()
    lists = [recommenders["mil"].recommend_new([one])["item"].to_pylist() for one in recommenders["mil"].item_ids]
    together = [one for one in lists if "i001" in one]
    assert (found["n_lists"], found["listed"]) == (len(lists), len(together))
    counts = {one["item"]: one["lists"] for one in found["items"]}
    assert counts == {item: sum(item in one for one in together) for item in counts}
    everything = {item for one in together for item in one} - {"i001"}
    most = sorted((sum(item in one for one in together) for item in everything), reverse=True)
    assert list(counts.values()) == most[:5] and [one["rank"] for one in found["items"]] == [*range(1, len(counts) + 1)]


def test_wrong_requests_for_company_are_refused_in_a_sentence(client):
    assert "unknown item 'nothing'" in refused(client.get("/v1/models/mil/listed-with?item=nothing"))
    assert "no" in refused(client.get("/v1/models/none/listed-with?item=i001"))
    assert "n" in refused(client.get("/v1/models/mil/listed-with", params={"item": "i001", "n": 100_000}))


def test_what_is_made_for_the_page_does_not_count_as_served(folders):
    registry, client = serving(folders)
    try:
        client.get("/v1/story")
        client.get("/v1/models/mil/listed-with?item=i002")
        assert [served.window.facts()[0] for served in registry.models] == [0, 0, 0]
    finally:
        registry.stop()


@pytest.fixture
def server(folders):
    registry = Registry(Folders({"first": folders[0]}), together=64)
    yield Server(registry)
    registry.stop()


def counted(done, n=3):
    """Work in portions, of which there is a list."""
    for number in range(n):
        done.append(number)
        yield
    return "made"


def asked_by(server, work, begin, n=5):
    """What so many visitors get who ask at the same time."""

    async def ask():
        return await asyncio.gather(*(work.outcome(server, begin) for _ in range(n)), return_exceptions=True)

    return asyncio.run(ask())


def test_work_is_done_once_for_all_who_wait_one_portion_at_a_time(server, monkeypatch):
    done: list[int] = []
    calls: list[Any] = []
    call = server.registry.batcher.call

    def noted(work):
        calls.append(work)
        return call(work)

    monkeypatch.setattr(server.registry.batcher, "call", noted)
    work = Gradual[str](lambda: True)
    assert asked_by(server, work, lambda: counted(done)) == ["made"] * 5
    assert done == [0, 1, 2] and len(calls) == 4  # the last one brings the outcome
    assert asked_by(server, work, lambda: counted(done)) == ["made"] * 5 and len(calls) == 4


def test_work_that_fails_fails_for_everybody_who_waits_and_begins_anew_for_the_next(server):
    done: list[int] = []

    def failing():
        yield
        raise MemoryError("for now")

    work = Gradual[str](lambda: True)
    assert [str(error) for error in asked_by(server, work, failing)] == ["for now"] * 5
    assert asked_by(server, work, lambda: counted(done)) == ["made"] * 5


def test_work_goes_on_when_whoever_asked_has_gone(server):
    done: list[int] = []
    work = Gradual[str](lambda: True)

    async def leave_and_come_back():
        first = asyncio.create_task(work.outcome(server, lambda: counted(done)))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        return await work.outcome(server, lambda: counted(done))

    assert asyncio.run(leave_and_come_back()) == "made" and done == [0, 1, 2]


def test_work_for_models_that_were_replaced_is_given_up(server):
    done: list[int] = []
    work = Gradual[str](lambda: len(done) < 2)
    (error,) = asked_by(server, work, lambda: counted(done), n=1)
    assert isinstance(error, BusyError) and done == [0, 1]


def test_a_kept_story_holds_no_model(folders, server):
    kept, (served,) = Kept(server), server.registry.models
    seen = weakref.ref(served)
    asyncio.run(kept.story([served]))
    server.registry.reload("first")
    del served
    gc.collect()
    assert seen() is None


def test_a_large_catalogue_is_scored_for_one_taste_at_a_time(recommenders, monkeypatch):
    catalogue = recommenders["mil"].catalogue
    assert [len(some) for some in in_portions(range(40), catalogue)] == [32, 8]
    monkeypatch.setattr("milrec.server.explorer.portions._SCORES", 600)  # of 260 items
    assert [len(some) for some in in_portions(range(3), catalogue)] == [2, 1]
    monkeypatch.setattr("milrec.server.explorer.portions._SCORES", 100)
    assert [len(some) for some in in_portions(range(3), catalogue)] == [1, 1, 1]


@pytest.mark.parametrize("path", ["items/nothing", "listed-with?item=nothing", "items/nothing/similar"])
def test_unknown_items_are_looked_for_by_the_scoring_thread(client, monkeypatch, path):
    threads: list[str] = []
    numbers = Catalogue.item_numbers

    def noted(self, ids):
        threads.append(threading.current_thread().name)
        return numbers(self, ids)

    monkeypatch.setattr(Catalogue, "item_numbers", noted)
    assert "unknown item 'nothing'" in refused(client.get(f"/v1/models/mil/{path}"))
    assert threads == ["milrec-batcher"]
