"""The server: a real process over loopback for operation, the app itself for the many kinds of wrong requests."""

import asyncio
import contextlib
import http.client
import inspect
import json
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import milrec
from milrec.cli.serve import named_folders, serve
from milrec.errors import BusyError, FolderError, SettingsError, UnknownIdError
from milrec.lists.query import Query
from milrec.server import app as serve_module
from milrec.server import batcher as scorer_module
from milrec.server.access import known_hosts
from milrec.server.app import Server, create_app
from milrec.server.batcher import Batcher
from milrec.server.keys import Keys, new_key, read_keys
from milrec.server.limits import Limits
from milrec.server.model import Window, load_served
from milrec.server.registry import Registry
from milrec.server.requests import read_request
from milrec.settings import build

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long


class Client:
    """Requests to an app, one after another, without a process."""

    def __init__(self, app, raises: bool = True) -> None:
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=raises)

    def request(self, method: str, path: str, **values) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://test") as client:
                return await client.request(method, path, **values)

        return asyncio.run(ask())

    def get(self, path: str, **values) -> httpx.Response:
        return self.request("GET", path, **values)

    def post(self, path: str, **values) -> httpx.Response:
        return self.request("POST", path, **values)


@pytest.fixture(scope="module")
def split(small_catalogue):
    return milrec.split_interactions(small_catalogue, seed=0)


@pytest.fixture(scope="module")
def folders(split, tmp_path_factory) -> dict[str, Path]:
    """Three model folders: the missing information loss, the same with another seed, and EASE."""
    folder = tmp_path_factory.mktemp("models")
    for name, seed in (("mil", 0), ("other", 1)):
        milrec.fit(split, "dae", "mil", seed=seed, n_factors=8, epochs=3).save(folder / name)
    milrec.fit(split, "ease").save(folder / "ease")
    return {name: folder / name for name in ("mil", "other", "ease")}


@pytest.fixture(scope="module")
def mil(folders):
    return milrec.load(folders["mil"])


@pytest.fixture(scope="module")
def registry(folders):
    registry = Registry({"mil": folders["mil"], "ease": folders["ease"]}, together=64)
    yield registry
    registry.stop()


@pytest.fixture(scope="module")
def client(registry) -> Client:
    limits = Limits(max_body=20_000, max_list=60, max_ids=30, max_batch=3, max_total=600, max_reasons=5)
    return Client(create_app(Server(registry, limits)))


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in sorted(folder.iterdir())}


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def as_json(answer) -> list[dict]:
    """The items of an answer of the library, as the server sends them."""
    return [
        {
            **{name: value for name, value in one._asdict().items() if name != "number"},
            "item": str(one.item),
            "reasons": [{**r._asdict(), "item": str(r.item)} for r in one.reasons],
        }
        for one in answer.items
    ]


# Answers


@pytest.mark.parametrize(
    "query",
    [
        {"user": "u001"},
        {"user": "u002", "n": 60, "dial": 0.7},
        {"adopted": ["i001", "i002"], "rejected": ["i003"], "n": 5, "reasons": 3},
        {"adopted": [], "n": 7, "exclude": ["i032"]},
        {"adopted": ["i010"], "allow": ["i001", "i002", "i003"]},
        {"user": "u003", "n": 10, "rules": [{"tail": "long", "at_least": "50%"}, {"tail": "short", "at_most": 0}]},
        {"user": "u003", "n": 10, "allow": ["i032"], "rules": [{"tail": "long", "at_least": 3, "first": 4}]},
    ],
)
def test_the_server_answers_as_the_library_does(client, mil, query):
    (expected,) = mil.answer([mil.ask(Query(**query))])
    answer = client.post("/v1/recommend", json=query)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["items"] == as_json(expected)
    assert found["unmet"] == list(expected.unmet) and found["model"] == "mil"
    assert found["shares"] == expected.shares and found["mean_popularity"] == expected.mean_popularity
    places = {str(one): int(place) for one, place in zip(mil.item_ids, mil.catalogue.places, strict=True)}
    assert [one["place"] for one in found["items"]] == [places[one["item"]] for one in found["items"]]


def test_an_empty_list_is_an_answer(client):
    found = client.post("/v1/recommend", json={"adopted": ["i001"], "allow": []}).json()
    assert found["items"] == [] and found["mean_popularity"] is None
    assert found["shares"] == {"short": 0, "medium": 0, "long": 0}


def test_a_batch_answers_each_request_as_if_it_were_alone(client):
    good, bad = {"user": "u001", "n": 3}, {"user": "nobody"}
    found = client.post("/v1/recommend/batch", json={"requests": [good, bad, {**good, "model": "ease"}]}).json()
    first, second, third = found["answers"]
    assert first == client.post("/v1/recommend", json=good).json()
    assert "unknown user 'nobody'" in second["error"]
    assert third["model"] == "ease" and third == client.post("/v1/recommend", json={**good, "model": "ease"}).json()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"user": "u001", "n": 0}, "'n' is 0"),
        ({"user": "u001", "m": 0}, "unknown key 'm'; known keys: model, user"),
        ({"user": "u001", "n": 61}, "at most 60"),
        ({"user": [1]}, "an id is text or a whole number"),
        ([], "a request is an object"),
    ],
)
def test_a_wrong_request_of_a_batch_harms_no_other(client, wrong, sentence):
    first, second = client.post("/v1/recommend/batch", json={"requests": [wrong, {"user": "u001"}]}).json()["answers"]
    assert set(first) == {"error"} and sentence in first["error"]
    assert second == client.post("/v1/recommend", json={"user": "u001"}).json()


def test_models_and_their_data_are_told(client, mil, split):
    found = client.get("/v1/models").json()
    assert found["default"] == "mil" and [one["name"] for one in found["models"]] == ["mil", "ease"]
    facts = client.get("/v1/models/mil").json()
    assert facts == found["models"][0]
    assert facts["model"] == "dae" and facts["loss"] == "mil" and found["models"][1]["loss"] is None
    assert facts["n_items"] == len(mil.item_ids) == sum(facts["intervals"].values())
    assert facts["n_interactions"] == split.train.adopted.nnz
    assert facts["settings"]["model"]["n_factors"] == 8 and len(facts["fitted"]["fingerprint"]) == 64
    assert set(facts["fitted"]["versions"]) == {"milrec", "torch", "numpy"}


def test_items_and_users_are_found(client, mil):
    title = mil.catalogue.titles[0]
    found = client.get("/v1/models/mil/items", params={"search": title.upper(), "n": 5}).json()["items"]
    assert found[0]["item"] == mil.item_ids[0] and found[0]["title"] == title
    assert client.get(f"/v1/models/mil/items/{mil.item_ids[0]}").json() == found[0]
    users = client.get("/v1/models/mil/users", params={"search": "u00", "n": 4}).json()["users"]
    assert users == [one for one in mil.user_ids if one.startswith("u00")][:4]


def test_similar_items_are_those_of_the_library(client, mil, folders):
    table = mil.similar_items("i001", 4)
    found = client.get("/v1/models/mil/items/i001/similar", params={"n": 4}).json()
    assert found["measure"] == "cosine"
    assert [one["item"] for one in found["items"]] == table["item"].to_pylist()
    assert [one["likeness"] for one in found["items"]] == table["cosine"].to_pylist()
    assert client.get("/v1/models/ease/items/i001/similar").json()["measure"] == "weight"


def test_what_a_user_has_is_told(client, mil):
    train = mil.fitted.train
    found = client.get("/v1/models/mil/users/u001").json()
    for name, pairs in (("adopted", train.adopted), ("rejected", train.rejected)):
        expected = {mil.item_ids[number] for number in pairs[[0], :].nonzero()[1]}
        assert {one["item"] for one in found[name]} == expected


def test_the_popularity_curve_falls_and_ends_with_the_catalogue(client, mil):
    found = client.get("/v1/models/mil/popularity", params={"points": 20}).json()
    assert found["ranks"][0] == 1 and found["ranks"][-1] == found["n_items"] == len(mil.item_ids)
    assert found["popularity"] == sorted(found["popularity"], reverse=True) and len(found["ranks"]) <= 20
    intervals = client.get("/v1/models/mil").json()["intervals"]
    assert found["cuts"] == {"short": intervals["short"], "medium": intervals["short"] + intervals["medium"]}


def test_ids_with_any_sign_in_them_are_served(tmp_path):
    ids = ["a/b", "c d", "é", "..", "x/similar/y", "100%", "?q=1"]
    data = milrec.read({"user": [user for user in ids for _ in ids], "item": ids * len(ids)})
    milrec.fit(milrec.split_interactions(data, seed=0, held_out=0.0), "popularity").save(tmp_path / "odd")
    registry = Registry({"odd": tmp_path / "odd"}, together=4)
    client = Client(create_app(Server(registry)))
    for one in ids:
        quoted = "".join(f"%{byte:02X}" for byte in one.encode())
        assert client.get(f"/v1/models/odd/items/{quoted}").json()["item"] == one
        assert len(client.get(f"/v1/models/odd/users/{quoted}").json()["adopted"]) == len(ids)
    registry.stop()


def test_whole_numbers_are_ids_too(tmp_path):
    data = milrec.read({"user": [1, 1, 2, 2], "item": [10, 20, 20, 30]})
    milrec.fit(milrec.split_interactions(data, seed=0, held_out=0.0), "popularity").save(tmp_path / "numbers")
    registry = Registry({"numbers": tmp_path / "numbers"}, together=4)
    client = Client(create_app(Server(registry)))
    by_number, by_text = (client.post("/v1/recommend", json={"adopted": [one]}).json() for one in (10, "10"))
    assert by_number == by_text and {one["item"] for one in by_number["items"]} == {"20", "30"}
    registry.stop()


# Wrong requests: each is answered with a code from 400 to 499 and one sentence

TASTE = {"adopted": ["i001"]}
BAD_BODIES = {
    "empty": {},
    "null": None,
    "list": [],
    "text": "hello",
    "number": 3,
    "nobody": {"n": 3},
    "user and taste": {"user": "u001", "adopted": ["i001"]},
    "user and empty taste": {"user": "u001", "adopted": []},
    "user and rejected": {"user": "u001", "rejected": ["i001"]},
    "rejected alone": {"rejected": ["i001"]},
    "unknown user": {"user": "nobody"},
    "empty user": {"user": ""},
    "user is a list": {"user": ["u001"]},
    "user is a truth value": {"user": True},
    "user is a fraction": {"user": 1.5},
    "user is an object": {"user": {}},
    "user with half a character": {"user": "\ud800"},
    "user with a zero byte": {"user": "u\u0000001"},
    "user as long as a book": {"user": "u" * 10_000},
    "user is a huge number": {"user": 10**400},
    "unknown item": {"adopted": ["nothing"]},
    "one unknown item of two": {"adopted": ["i001", "nothing"]},
    "unknown rejected item": {**TASTE, "rejected": ["nothing"]},
    "adopted is text": {"adopted": "i001"},
    "adopted is an object": {"adopted": {"i001": 1}},
    "adopted is a number": {"adopted": 1},
    "adopted holds null": {"adopted": [None]},
    "adopted holds a list": {"adopted": [["i001"]]},
    "adopted holds a fraction": {"adopted": [1.0]},
    "adopted holds a truth value": {"adopted": [False]},
    "adopted and rejected": {**TASTE, "rejected": ["i001"]},
    "too many adopted": {"adopted": ["i001"] * 31},
    "too many rejected": {**TASTE, "rejected": ["i002"] * 31},
    "too many allowed": {**TASTE, "allow": ["i002"] * 31},
    "too many excluded": {**TASTE, "exclude": ["i002"] * 31},
    "rejected is text": {**TASTE, "rejected": "i002"},
    "n is 0": {**TASTE, "n": 0},
    "n is negative": {**TASTE, "n": -1},
    "n is too large": {**TASTE, "n": 61},
    "n is huge": {**TASTE, "n": 10**30},
    "n is text": {**TASTE, "n": "10"},
    "n is a fraction": {**TASTE, "n": 1.5},
    "n is a whole fraction": {**TASTE, "n": 2.0},
    "n is null": {**TASTE, "n": None},
    "n is a truth value": {**TASTE, "n": True},
    "n is a list": {**TASTE, "n": [1]},
    "allow is text": {**TASTE, "allow": "i001"},
    "allow holds null": {**TASTE, "allow": [None]},
    "exclude is a number": {**TASTE, "exclude": 1},
    "exclude holds objects": {**TASTE, "exclude": [{}]},
    "dial is text": {**TASTE, "dial": "1"},
    "dial is null": {**TASTE, "dial": None},
    "dial is a list": {**TASTE, "dial": [1]},
    "dial is a truth value": {**TASTE, "dial": True},
    "rules is an object": {**TASTE, "rules": {"tail": "long", "at_least": 1}},
    "rules is null": {**TASTE, "rules": None},
    "rules is text": {**TASTE, "rules": "long >= 30%"},
    "rules holds a number": {**TASTE, "rules": [3]},
    "rule is empty": {**TASTE, "rules": [{}]},
    "rule without a bound": {**TASTE, "rules": [{"tail": "long"}]},
    "rule with two bounds": {**TASTE, "rules": [{"tail": "long", "at_least": 1, "at_most": 2}]},
    "rule for an unknown tail": {**TASTE, "rules": [{"tail": "fat", "at_least": 1}]},
    "rule without a tail": {**TASTE, "rules": [{"at_least": 1}]},
    "rule above the whole": {**TASTE, "rules": [{"tail": "long", "at_least": "130%"}]},
    "rule below nothing": {**TASTE, "rules": [{"tail": "long", "at_least": -1}]},
    "rule with a word": {**TASTE, "rules": [{"tail": "long", "at_least": "many"}]},
    "rule with a bare percentage": {**TASTE, "rules": [{"tail": "long", "at_least": "%"}]},
    "rule with a list": {**TASTE, "rules": [{"tail": "long", "at_least": [1]}]},
    "rule for the first none": {**TASTE, "rules": [{"tail": "long", "at_least": 1, "first": 0}]},
    "rule with an unknown key": {**TASTE, "rules": [{"tail": "long", "at_least": 1, "last": 3}]},
    "too many rules": {**TASTE, "rules": [{"tail": "long", "at_least": 1}] * 21},
    "reasons is negative": {**TASTE, "reasons": -1},
    "reasons is too large": {**TASTE, "reasons": 6},
    "reasons is text": {**TASTE, "reasons": "2"},
    "reasons is a truth value": {**TASTE, "reasons": True},
    "unknown model": {**TASTE, "model": "none"},
    "model is a path": {**TASTE, "model": "../mil"},
    "model is a number": {**TASTE, "model": 1},
    "model is empty": {**TASTE, "model": ""},
    "unknown key": {**TASTE, "numbers": 3},
    "misspelt key": {**TASTE, "excluded": ["i001"]},
    "key with another case": {**TASTE, "N": 3},
    "prototype": {**TASTE, "__proto__": {}},
}
BAD_BATCHES = {
    "empty": {},
    "no requests": {"requests": []},
    "requests is an object": {"requests": {}},
    "requests is null": {"requests": None},
    "too many requests": {"requests": [TASTE] * 4},
    "requests is text": {"requests": "all"},
    "more in all than is taken": {"requests": [{**TASTE, "n": 60, "reasons": 3}] * 3},
    "list": [TASTE],
    "unknown key": {"requests": [TASTE], "n": 3},
    "a single request": TASTE,
}
BAD_TEXTS = {
    "nothing": b"",
    "no JSON": b"hello",
    "half": b'{"user": "u0',
    "twice": b"{}{}",
    "single quotes": b"{'user': 'u001'}",
    "no UTF-8": b'{"user": "\xff"}',
    "deep": b"[" * 9_000,
    "deep taste": b'{"adopted": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "NaN dial": b'{"adopted": [], "dial": NaN}',
    "endless dial": b'{"adopted": [], "dial": Infinity}',
    "dial beyond numbers": b'{"adopted": [], "dial": 1e999}',
    "number with 5000 digits": b'{"user": ' + b"9" * 5_000 + b"}",
    "zero byte": b'{"user": "u001"}\x00',
    "form": b"user=u001&n=3",
    "XML": b"<user>u001</user>",
    "pickle": pickle.dumps({"user": "u001"}),
}
BAD_REQUESTS = [
    ("GET", "/v1/recommend"),
    ("PUT", "/v1/recommend"),
    ("DELETE", "/v1/models/mil"),
    ("PATCH", "/v1/models"),
    ("OPTIONS", "/v1/models"),
    ("POST", "/v1/models"),
    ("GET", "/v1/models/mil/reload"),
    ("POST", "/v1/models/none/reload"),
    ("POST", "/v1/models/..%2Fmil/reload"),
    ("GET", "/v1"),
    ("GET", "/v1/"),
    ("GET", "/v2/models"),
    ("GET", "/v1/models/"),
    ("GET", "/v1/models/none"),
    ("GET", "/v1/models/mil/"),
    ("GET", "/v1/models/mil/weights.safetensors"),
    ("GET", "/v1/models/mil/items/"),
    ("GET", "/v1/models/mil/items/nothing"),
    ("GET", "/v1/models/mil/items/..%2F..%2Fetc%2Fpasswd"),
    ("GET", "/v1/models/mil/items/i001%00"),
    ("GET", "/v1/models/mil/items/nothing/similar"),
    ("GET", "/v1/models/none/items"),
    ("GET", "/v1/models/none/items/i001/similar"),
    ("GET", "/v1/models/mil/items?n=0"),
    ("GET", "/v1/models/mil/items?n=61"),
    ("GET", "/v1/models/mil/items?n=ten"),
    ("GET", "/v1/models/mil/items?n=1.5"),
    ("GET", "/v1/models/mil/items?n=" + "9" * 5_000),
    ("GET", "/v1/models/mil/items?search=" + "x" * 201),
    ("GET", "/v1/models/mil/items/i001/similar?n=-1"),
    ("GET", "/v1/models/mil/items/i001/similar?n=1000"),
    ("GET", "/v1/models/mil/users/nobody"),
    ("GET", "/v1/models/mil/users?n=0"),
    ("GET", "/v1/models/none/users"),
    ("GET", "/v1/models/none/users/u001"),
    ("GET", "/v1/models/mil/popularity?points=1"),
    ("GET", "/v1/models/mil/popularity?points=100000"),
    ("GET", "/v1/models/mil/popularity?points=none"),
    ("GET", "/web/nothing.js"),
    ("GET", "/web/../service.py"),
    ("GET", "/web/..%2Fservice.py"),
    ("GET", "/web/%2Fetc%2Fpasswd"),
    ("GET", "/web/"),
    ("GET", "/nothing"),
    ("GET", "/favicon.ico"),
    ("POST", "/healthz"),
    ("POST", "/metrics"),
]


def refused(answer: httpx.Response) -> str:
    """The sentence of a refusal."""
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
    body = json.loads(answer.content)
    assert list(body) == ["error"] and isinstance(body["error"], str)
    assert 8 < len(body["error"]) < 12_000 and "\n" not in body["error"] and "Traceback" not in body["error"]
    return body["error"]


def post(client, path, body) -> httpx.Response:
    return client.post(path, content=json.dumps(body).encode(), headers={"content-type": "application/json"})


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_wrong_request_for_a_list_is_refused(client, body):
    refused(post(client, "/v1/recommend", body))


@pytest.mark.parametrize("body", BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_a_wrong_batch_is_refused(client, body):
    refused(post(client, "/v1/recommend/batch", body))


@pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=BAD_TEXTS)
def test_a_body_that_is_no_request_is_refused(client, text):
    refused(client.post("/v1/recommend", content=text, headers={"content-type": "application/json"}))


@pytest.mark.parametrize(("method", "path"), BAD_REQUESTS)
def test_a_request_to_no_good_address_is_refused(client, method, path):
    refused(client.request(method, path))


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_must_say_that_it_is_json(client, kind):
    answer = client.post("/v1/recommend", content=b'{"adopted": []}', headers={"content-type": kind})
    assert "Content-Type: application/json" in refused(answer)


def test_there_are_a_hundred_kinds_of_bad_requests():
    assert len(BAD_BODIES) + len(BAD_BATCHES) + len(BAD_TEXTS) + len(BAD_REQUESTS) > 150


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({**TASTE, "excluded": []}, "unknown key 'excluded'; known keys: model, user, adopted, rejected, n, allow"),
        ({**TASTE, "n": 0}, "'n' is 0: input should be greater than or equal to 1"),
        ({**TASTE, "n": 61}, "'n' is 61; this server gives at most 60"),
        ({**TASTE, "rules": [{"tail": "long", "last": 1}]}, "unknown key 'rules.0.last'; known keys: tail, at_least"),
        ({**TASTE, "rules": [{"tail": "long"}]}, "'rules.0': a rule needs either at_least or at_most"),
        ({**TASTE, "model": "mll"}, "unknown model 'mll'; known models: ease, mil"),
        ({"user": "nobody"}, "unknown user 'nobody'; for a new user, give adopted items"),
        ({}, "say who the list is for"),
        ([], 'a request is an object, for example {"user": "u1"}, not []'),
        ({"user": 1.5}, "'user' is 1.5: an id is text or a whole number"),
        ({"adopted": ["i001", None]}, "'adopted.1' is None: an id is text or a whole number"),
        (
            {**TASTE, "rules": [3]},
            """'rules.0': a rule is an object, for example {"tail": "long", "at_least": "30%"}, not 3""",
        ),
        ({**TASTE, "n": 60, "reasons": 5, "rules": [{"tail": "long", "at_least": 1}] * 5}, "rules) comes to 660 over"),
    ],
)
def test_a_refusal_says_what_is_wrong(client, body, sentence):
    assert sentence in refused(post(client, "/v1/recommend", body))


@pytest.mark.parametrize(
    "body",
    [{"adopted": [None] * 100_000}, {f"k{number}": 0 for number in range(100_000)}, {"rules": [{}] * 100_000}],
    ids=["ids", "keys", "rules"],
)
def test_of_a_thousand_mistakes_one_is_looked_for(body, monkeypatch):
    """No more errors are made than are shown; the validator itself stops at the first id."""
    with pytest.raises(SettingsError) as error:
        read_request(body, Limits(max_ids=100_000))
    cause = error.value.__context__
    assert len(str(error.value)) < 300 and (cause is None or cause.error_count() <= 21)


def test_a_long_answer_is_spelt_out_by_another_thread(folders, monkeypatch):
    registry, threads = Registry({"mil": folders["mil"]}, together=4), []
    spelt = serve_module.answer_json
    monkeypatch.setattr(
        serve_module, "answer_json", lambda *given: (threads.append(threading.current_thread()), spelt(*given))[1]
    )
    client = Client(create_app(Server(registry)))
    found = [client.post("/v1/recommend", json={"user": "u001", "n": n}).json()["items"] for n in (10, 1000)]
    assert found[1][:10] == found[0]
    assert threads[0] is threading.main_thread() and threads[1] is not threading.main_thread()
    registry.stop()


def test_a_batch_counts_as_its_lists(registry):
    client = Client(create_app(Server(registry, Limits(max_running=3))))
    for number, words in ((3, None), (4, "a batch has at most 3 requests, not 4")):
        answer = client.post("/v1/recommend/batch", json={"requests": [TASTE] * number})
        assert answer.status_code == (422 if words else 200) and (words is None or words in refused(answer))
    server = Server(registry, Limits(max_running=3))
    with server.capacity.take(1):
        answer = Client(create_app(server)).post("/v1/recommend/batch", json={"requests": [TASTE] * 3})
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1" and "is busy" in answer.json()["error"]
    assert server.capacity.used == 0


def test_a_body_is_not_read_beyond_its_limit(client):
    answer = post(client, "/v1/recommend", {"adopted": ["x" * 30_000]})
    assert answer.status_code == 413 and "larger than 20,000 bytes" in refused(answer)

    async def pieces():
        for _ in range(100):
            yield b" " * 1_000

    answer = client.post("/v1/recommend", content=pieces(), headers={"content-type": "application/json"})
    assert answer.status_code == 413 and "larger than 20,000 bytes" in refused(answer)


def test_a_failure_of_ours_is_one_sentence_and_a_log_line(registry, monkeypatch, caplog):
    client = Client(create_app(Server(registry)), raises=False)
    monkeypatch.setattr(registry.model("mil").recommender, "answer", lambda asked: 1 / 0)
    answer = client.post("/v1/recommend", json=TASTE, headers={"x-request-id": "seven"})
    assert answer.status_code == 500 and set(answer.json()) == {"error"} and "ZeroDivision" not in answer.text
    assert answer.headers["x-request-id"] == "seven"
    assert any(record.exc_info and record.facts == {"id": "seven"} for record in caplog.records)


# The schema


CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def test_whatever_the_schema_allows_or_forbids_is_answered_as_the_schema_says(folders):
    registry = Registry({"mil": folders["mil"]}, together=64)  # of its own: schemathesis ends the app that it is given
    limits = Limits(max_body=100_000, max_list=60, timeout=20)
    api = schemathesis.openapi.from_asgi("/openapi.json", create_app(Server(registry, limits)))
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    tried = 0
    for operation in api.get_all_operations():
        for mode in modes:

            @given(case=operation.ok().as_strategy(generation_mode=mode))
            @settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
            def holds(case):
                nonlocal tried
                tried += 1
                case.call_and_validate(checks=CHECKS)

            with contextlib.suppress(Unsatisfiable):  # a route that takes nothing cannot be asked wrongly
                holds()
    assert tried > 100


def test_the_reference_page_tells_of_every_route_without_fetching_anything(client):
    page, found = client.get("/docs").text, client.get("/openapi.json").json()
    for path in found["paths"]:
        assert path in page.replace("&#39;", "'")
    for name in ("RecommendBody", "Rule", "BatchBody", "RecommendAnswer"):
        assert f'id="form-{name}"' in page
    assert "<script" not in page and "style=" not in page and "https://" not in page
    assert client.get("/docs.css").headers["content-type"].startswith("text/css")


def test_what_does_not_change_is_made_once(registry, monkeypatch):
    made = []
    monkeypatch.setattr(serve_module, "reference_page", lambda schema: made.append(schema) or "page")
    client = Client(create_app(Server(registry)))
    assert client.get("/docs").text == client.get("/docs").text == "page" and len(made) == 1
    recommender = registry.model("mil").recommender
    assert recommender._likeness is recommender._likeness
    assert recommender.catalogue.falling is recommender.catalogue.falling


def test_every_answer_carries_safe_headers(client):
    for path in ("/healthz", "/v1/models", "/docs", "/nothing"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == ("no-store" if path.startswith("/v1") else "no-cache")


def test_pages_of_other_sites_are_kept_out(registry):
    assert known_hosts("127.0.0.1", True, ()) is None and known_hosts("0.0.0.0", False, ()) is None
    assert known_hosts("127.0.0.2", False, ()) == {"127.0.0.1", "127.0.0.2", "::1", "localhost"}
    here = Client(create_app(Server(registry, hosts=known_hosts("127.0.0.1", False, ["Lists.example"]))))
    for host in ("127.0.0.1:8000", "localhost", "[::1]:8000", "lists.example", "LISTS.example:443"):
        assert here.get("/v1/models", headers={"host": host}).status_code == 200, host
    for host in ("evil.example", "127.0.0.1.evil.example:8000", "", "localhost.", "[::2]"):
        refused = here.get("/", headers={"host": host})
        assert refused.status_code == 421 and "--allow-host NAME" in refused.json()["error"]
        for probe in ("/healthz", "/readyz"):
            assert here.get(probe, headers={"host": host}).status_code == 200
    for site, status in (("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)):
        headers = {"host": "localhost", "sec-fetch-site": site}
        assert here.get("/v1/models", headers=headers).status_code == status
        assert here.get("/healthz", headers=headers).status_code == 200


# Scoring together


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


def test_what_waits_is_answered_before_the_scorer_stops():
    batcher, done = Batcher(together=4), []
    futures = [batcher.call(lambda number=number: done.append(number)) for number in range(20)]
    batcher.stop()
    assert done == list(range(20)) and all(future.done() for future in futures)


def test_a_stopped_scorer_refuses_what_would_wait_for_ever(folders):
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
    monkeypatch.setattr(scorer_module, "_PORTION", 20)
    registry = Registry({"mil": folders["mil"], "ease": folders["ease"]}, together=64)
    gate, order = threading.Event(), []
    registry.batcher.call(gate.wait)
    futures = []
    for name, n in (("mil", 10), ("mil", 10), ("mil", 10), ("mil", 30), ("mil", 5), ("ease", 5)):
        future = registry.batcher.answer(registry.model(name), Query(adopted=[], n=n))
        future.add_done_callback(lambda future, name=name: order.append("given up" if future.cancelled() else name))
        futures.append(future)
    futures[0].add_done_callback(lambda _: futures[3].cancel())
    gate.set()
    registry.stop()
    assert order.pop(order.index("given up")) and order == ["mil", "mil", "ease", "mil", "mil"]
    assert registry.model("mil").window.facts()[0] == 4


def test_a_request_whose_client_has_gone_is_given_up(folders, caplog):
    caplog.set_level("INFO", "milrec.server.app")
    sizes: list[int] = []
    registry = Registry({"mil": folders["mil"]}, together=4, observe=sizes.append)
    release = threading.Event()
    registry.batcher.call(release.wait)

    async def leaving() -> None:
        app, body = create_app(Server(registry)), json.dumps(TASTE).encode()
        messages = iter([{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}])

        async def receive():
            return next(messages)

        async def send(message):
            raise AssertionError(message)

        headers = [(b"content-type", b"application/json"), (b"host", b"test")]
        scope = {"type": "http", "method": "POST", "path": "/v1/recommend", "headers": headers, "query_string": b""}
        await asyncio.wait_for(app(scope, receive, send), 10)

    asyncio.run(leaving())
    release.set()
    registry.stop()
    assert sizes == [] and caplog.records[-1].facts["status"] == 499


async def ready_while(registry: Registry, seconds: float) -> httpx.Response:
    release = threading.Event()
    registry.batcher.call(lambda: release.wait(seconds))
    transport = httpx.ASGITransport(create_app(Server(registry)))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.get("/readyz")
    release.set()
    return answer


def test_a_server_that_is_busy_for_long_is_not_ready(registry):
    assert asyncio.run(ready_while(registry, 0)).json() == {"status": "ready"}
    answer = asyncio.run(ready_while(registry, 20))
    assert answer.status_code == 503 and "is busy" in answer.json()["error"]


async def answers_while_blocked(registry: Registry, limits: Limits, number: int) -> list[httpx.Response]:
    """So many requests at once, while the scoring thread does something else for half a second."""
    release = threading.Event()
    blocked = registry.batcher.call(lambda: release.wait(0.5))
    transport = httpx.ASGITransport(create_app(Server(registry, limits)))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answers = await asyncio.gather(*(client.post("/v1/recommend", json=TASTE) for _ in range(number)))
    release.set()
    blocked.result()
    return answers


def test_a_request_is_given_up_in_time(registry):
    (answer,) = asyncio.run(answers_while_blocked(registry, Limits(timeout=0.05), 1))
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
    assert answer.json() == {"error": "there was no answer within 0.05 seconds; ask for less, or try again"}


def test_more_requests_than_are_allowed_at_a_time_are_told_to_try_again(registry):
    answers = asyncio.run(answers_while_blocked(registry, Limits(max_running=3), 5))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 503, 503]
    assert all(answer.json() == {"error": "the server is busy; try again in a second"} for answer in answers[3:])


# Figures


def figures(text: str) -> dict[str, float]:
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


def test_the_figures_are_those_counted_by_hand(folders, mil):
    registry = Registry({"mil": folders["mil"], "ease": folders["ease"]}, together=1)
    server = Server(registry)
    client = Client(create_app(server))
    lists = [client.post("/v1/recommend", json={"user": user, "n": 10}).json() for user in ("u001", "u002", "u003")]
    client.post("/v1/recommend", json={"user": "nobody"})
    client.get("/v1/models/mil/items/i001")
    client.get("/v1/models/mil/items/nothing")
    found = figures(client.get("/metrics").text)
    shown = [one for answer in lists for one in answer["items"]]
    for tail in ("short", "medium", "long"):
        share = sum(one["tail"] == tail for one in shown) / 30
        assert found[f'milrec_live_tail_share{{model="mil",tail="{tail}"}}'] == pytest.approx(share)
    assert found['milrec_live_coverage{model="mil"}'] == len({one["item"] for one in shown}) / len(mil.item_ids)
    assert found['milrec_live_lists{model="mil"}'] == 3 and found['milrec_live_lists{model="ease"}'] == 0
    route = 'route="/v1/recommend"'
    assert found[f'milrec_requests_total{{method="POST",{route},status="200"}}'] == 3
    assert found[f'milrec_requests_total{{method="POST",{route},status="422"}}'] == 1
    assert found[f"milrec_request_seconds_count{{{route}}}"] == 4
    item = 'milrec_requests_total{method="GET",route="/v1/models/{name}/items/{item:path}",status='
    assert found[f'{item}"200"}}'] == 1 and found[f'{item}"404"}}'] == 1
    assert found["milrec_requests_running"] == 1  # the one that asks
    assert not any("i001" in name or "u001" in name for name in found)
    registry.stop()


def test_live_figures_forget_old_lists(mil):
    window = Window(mil.catalogue, size=2)
    first, second, third = mil.answer([mil.ask(Query(user=user, n=4)) for user in mil.user_ids[:3]])
    for answer in (first, second, third):
        window.add(answer)
    shown = [*second.items, *third.items]
    lists, tails, distinct = window.facts()
    assert lists == 2 and distinct == len({one.item for one in shown})
    assert tails == {tail: sum(one.tail == tail for one in shown) for tail in ("short", "medium", "long")}


# Keys and options


def test_a_key_is_kept_as_a_hash_and_known_again(tmp_path):
    (key, line), (other, second) = new_key("shop"), new_key("desk")
    assert key not in line and re.fullmatch(r"shop sha256:[0-9a-f]{64}", line) and key != other
    (tmp_path / "keys").write_text(f"# keys\n\n{line}\n")
    keys = read_keys(tmp_path / "keys", second)
    assert keys.owner(key) == "shop" and keys.owner(other) == "desk" and keys.owner("") is None
    assert keys.owner(key[:-1]) is None and keys.owner(line) is None and keys.owner("\ud800") is None
    assert not Keys()


@pytest.mark.parametrize("text", ["", "# nothing\n", "milrec_secret\n", "shop sha256:12\n", "a b sha256:" + "0" * 64])
def test_a_key_file_that_holds_no_hashes_is_refused_without_repeating_it(tmp_path, text):
    (tmp_path / "keys").write_text(text)
    with pytest.raises(SettingsError) as error:
        read_keys(tmp_path / "keys", "")
    assert "secret" not in str(error.value) and "`new_key(NAME)`" in str(error.value)


@pytest.mark.parametrize("text", ["", " ", "# nothing", ","])
def test_a_variable_for_keys_without_a_key_does_not_open_the_door(monkeypatch, text):
    monkeypatch.setenv("MILREC_KEYS", text)
    with pytest.raises(SettingsError, match="MILREC_KEYS is set but has no key"):
        read_keys(None)
    monkeypatch.delenv("MILREC_KEYS")
    assert not read_keys(None)


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a\nb", "ä"])
def test_a_key_needs_a_plain_name(name):
    with pytest.raises(SettingsError, match="cannot be the name of a key"):
        new_key(name)


def test_models_are_named_by_their_folder_or_as_told(tmp_path):
    (tmp_path / "a=b").mkdir()
    assert named_folders(["x/mil", "ce=runs/ce"]) == {"mil": Path("x/mil"), "ce": Path("runs/ce")}
    assert named_folders([f"{tmp_path}/a=b"]) == {"a=b": tmp_path / "a=b"}
    with pytest.raises(SettingsError, match="two models are called 'm'"):
        named_folders(["x/m", "y/m"])
    for wrong in ("=x", "a/b=x"):
        with pytest.raises(SettingsError, match="cannot be the name of a model"):
            named_folders([wrong])


def test_the_limits_of_the_command_are_those_of_the_server():
    told = {name: one.default for name, one in inspect.signature(serve).parameters.items()}
    for name, value in Limits():
        assert told[name] == value
    with pytest.raises(SettingsError):
        build(Limits, {"timeout": 0})


# Folders


def bad_folder(kind: str, folder: Path) -> str:
    """Damage a model folder; what the refusal says of it."""
    if kind == "flipped weight":
        flip(folder / "weights.safetensors")
        return "has changed since it was saved"
    if kind == "flipped manifest":
        text = (folder / "milrec.json").read_text()
        (folder / "milrec.json").write_text(text.replace('"seed": 0', '"seed": 4'))
        return "is damaged"
    if kind == "pickle beside":
        (folder / "model.pkl").write_bytes(pickle.dumps({"harm": 1}))
        return "holds 'model.pkl', which milrec did not write"
    if kind == "pickle inside":
        (folder / "weights.safetensors").write_bytes(pickle.dumps({"harm": 1}))
        return "has changed since it was saved"
    if kind == "missing file":
        (folder / "removed.arrow").unlink()
        return "is missing"
    shutil.rmtree(folder)
    return "there is no model folder"


BAD_FOLDERS = ("flipped weight", "flipped manifest", "pickle beside", "pickle inside", "missing file", "gone")


@pytest.mark.parametrize("kind", BAD_FOLDERS)
def test_a_folder_that_is_not_whole_is_not_served(folders, tmp_path, kind):
    shutil.copytree(folders["mil"], tmp_path / "m")
    sentence = bad_folder(kind, tmp_path / "m")
    with pytest.raises(FolderError, match=re.escape(sentence)):
        load_served("m", tmp_path / "m")


@pytest.mark.parametrize("error", [FileNotFoundError("gone"), KeyError("files"), ValueError("half a file")])
def test_a_folder_that_is_taken_away_while_it_is_read_is_refused(folders, monkeypatch, error):
    def fails(place):
        raise error

    registry = Registry({"mil": folders["mil"]}, together=4)
    monkeypatch.setattr(milrec.Recommender, "load", fails)
    answer = Client(create_app(Server(registry))).post("/v1/models/mil/reload")
    assert answer.status_code == 409 and "if it is being replaced, try again" in refused(answer)
    registry.stop()


def test_a_model_that_makes_no_list_is_refused(folders, monkeypatch):
    registry = Registry({"mil": folders["mil"]}, together=4)
    monkeypatch.setattr(milrec.Recommender, "answer", lambda self, asked: 1 / 0)
    with pytest.raises(FolderError, match="cannot make a list"):
        registry.reload("mil")
    registry.stop()


def test_a_reload_outlasts_the_time_limit_and_whoever_asked_for_it(folders, monkeypatch, caplog):
    caplog.set_level("INFO", "milrec.server.app")
    registry = Registry({"mil": folders["mil"]}, together=4)
    server, whole = Server(registry, Limits(timeout=0.01)), registry.reload

    def slow(name, wait):
        time.sleep(0.1)
        return whole(name, wait)

    monkeypatch.setattr(registry, "reload", slow)
    app = create_app(server)
    assert Client(app).post("/v1/models/mil/reload").status_code == 200

    async def given_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(server.reload("mil"), 0.01)
        while server.metrics.registry.get_sample_value(*done) < 2:
            await asyncio.sleep(0.01)

    done = ("milrec_reloads_total", {"model": "mil", "outcome": "done"})
    asyncio.run(asyncio.wait_for(given_up(), 10))
    assert [record.message for record in caplog.records].count("reloaded") == 2
    registry.stop()


def test_a_reload_that_waits_reads_the_folder_after_the_one_before(folders):
    registry = Registry({"mil": folders["mil"]}, together=4)
    with registry._loading, ThreadPoolExecutor(1) as pool:
        with pytest.raises(FolderError, match="another reload is running"):
            registry.reload("mil")
        waiting = pool.submit(registry.reload, "mil", wait=True)
        time.sleep(0.05)
        assert not waiting.done()
        registry._loading.release()
        assert waiting.result() is registry.model("mil")
        registry._loading.acquire()
    registry.stop()


def test_what_users_have_elsewhere_is_not_listed(folders, small_catalogue, tmp_path, mil):
    small_catalogue.save(tmp_path / "data")
    registry = Registry({"mil": folders["mil"]}, 4, tmp_path / "data")
    answer = registry.batcher.answer(registry.model(None), Query(user="u001", n=1000)).result()
    row = small_catalogue.users["id"].to_pylist().index("u001")
    ids = small_catalogue.items["id"].to_pylist()
    have = {ids[number] for number in (small_catalogue.adopted + small_catalogue.rejected)[[row], :].nonzero()[1]}
    assert {one.item for one in answer.items} == set(mil.item_ids) - have
    registry.stop()


# A real process


class Running:
    """A server in a process of its own."""

    def __init__(self, *arguments, wait: bool = True) -> None:
        command = [sys.executable, "-m", "milrec", "serve", "--port", "0", *map(str, arguments)]
        environment = {name: value for name, value in os.environ.items() if name != "MILREC_KEYS"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = 0
        if wait:
            line = self.process.stdout.readline()
            assert line, self.ended()[1]
            self.port = int(re.search(r"at http://127\.0\.0\.1:(\d+)", line)[1])
            self.url = f"http://127.0.0.1:{self.port}"

    def _read(self) -> None:
        self.log.extend(self.process.stderr)

    def ended(self, seconds: float = 30) -> tuple[int, str]:
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        return code, "".join(self.log)

    def events(self, name: str) -> list[dict]:
        return [line for line in map(json.loads, list(self.log)) if line["event"] == name]

    def until(self, name: str, number: int) -> None:
        """Wait for so many log lines of a kind."""
        for _ in range(200):
            if len(self.events(name)) >= number:
                return
            time.sleep(0.05)
        raise AssertionError((name, self.log))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()


@contextlib.contextmanager
def running(*arguments, wait: bool = True):
    server = Running(*arguments, wait=wait)
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def place(folders, tmp_path_factory) -> Path:
    """A folder with a link to a model, to be turned to another."""
    place = tmp_path_factory.mktemp("place")
    shutil.copytree(folders["mil"], place / "first")
    shutil.copytree(folders["other"], place / "second")
    (place / "live").symlink_to("first")
    return place


def turn(place: Path, target: str) -> None:
    (place / "new").symlink_to(target)
    (place / "new").replace(place / "live")


@pytest.fixture(scope="module")
def key_and_file(tmp_path_factory) -> tuple[str, Path]:
    key, line = new_key("shop")
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(line + "\n")
    return key, file


@pytest.fixture(scope="module")
def live(place, folders, key_and_file):
    limits = ("--max-body", 4000, "--max-list", 50, "--max-batch", 2, "--timeout", 20)
    with running(f"live={place / 'live'}", folders["ease"], "--keys", key_and_file[1], *limits) as server:
        yield server


@pytest.fixture
def asking(live, key_and_file, place):
    turn(place, "first")
    with httpx.Client(base_url=live.url, headers={"authorization": f"Bearer {key_and_file[0]}"}) as client:
        client.post("/v1/models/live/reload").raise_for_status()
        yield client


def test_a_key_opens_the_door_and_shows_up_nowhere(live, key_and_file):
    key = key_and_file[0]
    with httpx.Client(base_url=live.url) as client:
        for path in ("/v1/models", "/v1/nothing", "/metrics", "/v1/models/live/items"):
            answer = client.get(path)
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
            assert "needs a key" in refused(answer)
            wrong = client.get(path, headers={"authorization": "Bearer milrec_wrong"})
            assert wrong.status_code == 401 and "does not know this key" in refused(wrong)
        for headers in ({"authorization": f"Bearer {key}"}, {"authorization": f"bearer {key}"}, {"x-api-key": key}):
            assert client.get("/v1/models", headers=headers).status_code == 200
        for headers in ({"authorization": f"Basic {key}"}, {"authorization": key}, {"x-api-key": key + "x"}):
            assert client.get("/v1/models", headers=headers).status_code == 401
        for path in ("/healthz", "/readyz", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200
    live.until("request", 10)
    text = "".join(live.log)
    assert key not in text and "milrec_wrong" not in text and key not in str(key_and_file[1].read_text())
    assert {line["key"] for line in live.events("request")} >= {"shop", None}


def test_the_log_tells_of_a_request_and_not_who_asked_for_what(live, asking):
    asking.get("/v1/models/live/users/u001", headers={"x-request-id": "number-9"})
    asking.post("/v1/recommend", json={"adopted": ["i007"]}, headers={"x-request-id": "bad id"})
    live.until("request", 3)
    for _ in range(100):
        lines = [line for line in live.events("request") if line["id"] == "number-9"]
        if lines:
            break
        time.sleep(0.02)
    (line,) = lines
    assert set(line) == {"time", "level", "event", "id", "method", "route", "status", "ms", "client", "key"}
    assert line["route"] == "/v1/models/{name}/users/{user:path}" and line["status"] == 200 and line["key"] == "shop"
    assert not any("u001" in text or "i007" in text or "bad id" in text for text in live.log)


def test_limits_hold_over_a_real_connection(asking):
    answer = asking.post("/v1/recommend", json={"adopted": ["x" * 5000]})
    assert answer.status_code == 413 and "4,000 bytes" in refused(answer)
    answer = asking.post("/v1/recommend", content=iter([b" " * 3000] * 3), headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert "at most 50" in refused(asking.post("/v1/recommend", json={"adopted": [], "n": 51}))
    assert "at most 2 requests" in refused(asking.post("/v1/recommend/batch", json={"requests": [{"adopted": []}] * 3}))


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/web/../../../../../../etc/passwd",
        "/web/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/web/%2e%2e/%2e%2e/service.py",
        "/web//etc/passwd",
        "/web/..\\..\\service.py",
        "/v1/models/../../etc/passwd",
        "/v1/models/..%2ffirst",
        "/v1/models/%2e%2e/items",
        "/v1/models/live/items/../../../milrec.json",
        "/v1/models/live/items/..%2f..%2fmilrec.json",
        "/v1/models/live/weights.safetensors",
        "/v1/models/%00/items",
        "//etc/passwd",
    ],
)
def test_nothing_outside_is_read_whatever_the_path(live, key_and_file, path):
    """Over a bare connection: no client library tidies the path up."""
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)
    connection.putrequest("GET", path, skip_accept_encoding=True)
    connection.putheader("X-API-Key", key_and_file[0])
    connection.endheaders()
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    assert 400 <= answer.status < 500 and set(body) == {"error"} and "root:" not in body["error"]


def test_no_path_can_be_given_to_a_reload(asking, folders):
    for values in ({"json": {"path": str(folders["other"])}}, {"params": {"path": str(folders["other"])}}):
        before = asking.get("/v1/models/live").json()["fitted"]["fingerprint"]
        assert asking.post("/v1/models/live/reload", **values).json()["fitted"]["fingerprint"] == before


@pytest.mark.parametrize("kind", BAD_FOLDERS)
def test_a_bad_folder_is_refused_and_the_old_model_serves_on(asking, folders, place, kind):
    before = asking.post("/v1/recommend", json={"user": "u001"}).json()
    shutil.rmtree(place / "bad", ignore_errors=True)
    shutil.copytree(folders["mil"], place / "bad")
    turn(place, "bad")
    sentence = bad_folder(kind, place / "bad")
    answer = asking.post("/v1/models/live/reload")
    assert answer.status_code == 409 and sentence in refused(answer)
    assert asking.post("/v1/recommend", json={"user": "u001"}).json() == before
    assert asking.get("/readyz").status_code == 200


def test_a_reload_under_load_drops_no_request_and_mixes_no_models(asking, live, key_and_file, place, mil, folders):
    query = {"user": "u001", "n": 20}
    other = milrec.load(folders["other"])
    expected = [as_json(one.answer([one.ask(Query(**query))])[0]) for one in (mil, other)]
    assert expected[0] != expected[1]
    stop, found = threading.Event(), []

    def hammer() -> None:
        with httpx.Client(base_url=live.url, headers={"x-api-key": key_and_file[0]}) as client:
            while not stop.is_set():
                answer = client.post("/v1/recommend", json=query)
                found.append((answer.status_code, answer.json()["items"]))

    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(hammer) for _ in range(4)]
        for target in ("second", "first", "second"):
            before = len(found)
            while len(found) < before + 4 and not any(task.done() for task in tasks):
                time.sleep(0.005)
            turn(place, target)
            assert asking.post("/v1/models/live/reload").status_code == 200
        stop.set()
        for task in tasks:
            task.result()
    assert {status for status, _ in found} == {200}
    assert all(items in expected for _, items in found)
    assert asking.post("/v1/recommend", json=query).json()["items"] == expected[1]


def test_a_hang_up_signal_reloads_all_models(asking, live, place, folders):
    turn(place, "second")
    number = len(live.events("reloaded"))
    live.process.send_signal(signal.SIGHUP)
    live.until("reloaded", number + 2)
    fingerprint = asking.get("/v1/models/live").json()["fitted"]["fingerprint"]
    assert fingerprint == load_served("other", folders["other"]).fingerprint
    found = figures(asking.get("/metrics").text)
    assert found['milrec_reloads_total{model="ease",outcome="done"}'] >= 1


def test_a_server_that_anybody_may_ask_says_so(folders):
    with running(folders["mil"], "--host", "0.0.0.0", wait=False) as server:
        line = server.process.stdout.readline()
        assert (
            "at http://0.0.0.0:" in line and "note: anyone who can reach 0.0.0.0 may use this server" in server.log[0]
        )


def test_a_stop_waits_for_the_request_under_way(folders):
    with running(folders["mil"]) as server, socket.create_connection(("127.0.0.1", server.port), timeout=20) as link:
        body = b'{"adopted": ["i001"], "n": 2}'
        head = "POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}"
        link.sendall(head.encode() + b"\r\n\r\n" + body[:10])
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert server.process.poll() is None
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", server.port), timeout=5)
        link.sendall(body[10:])
        answer = b""
        while piece := link.recv(4096):
            answer += piece
        assert answer.startswith(b"HTTP/1.1 200") and b'"rank":2' in answer
        code, log = server.ended()
        assert code == 0 and "Traceback" not in log and '"stopped"' in log


def test_a_stop_during_a_reload_ends_the_process(folders):
    """The stop comes while folders are being read, or just before the new model is tried."""
    for seconds in (0.0, 0.05):
        with running(*(f"m{number}={folders['mil']}" for number in range(4))) as server:
            server.process.send_signal(signal.SIGHUP)
            time.sleep(seconds)
            server.process.send_signal(signal.SIGTERM)
            code, log = server.ended()
            assert code == 0 and '"stopped"' in log


def test_a_killed_server_leaves_the_model_folders_as_they_were(place, folders):
    turn(place, "first")
    before = [contents(place / "first"), contents(place / "second")]
    for seconds in (0.5, 2.0):
        with running(place / "live", wait=False) as server:
            time.sleep(seconds)
            server.kill()
    with running(place / "live") as server:
        turn(place, "second")
        link = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        link.sendall(b"POST /v1/models/live/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        server.kill()
        link.close()
    assert [contents(place / "first"), contents(place / "second")] == before
    assert sorted(one.name for one in place.iterdir() if one.name != "bad") == ["first", "live", "second"]


def milrec_serve(*arguments):
    command = [sys.executable, "-m", "milrec", "serve", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_mistakes_at_the_start_are_one_sentence(folders, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        shutil.copytree(folders["mil"], tmp_path / "bad")
        flip(tmp_path / "bad" / "items.arrow")
        for arguments, sentence in (
            ([], "say what to serve"),
            ([tmp_path / "none"], "there is no model folder"),
            ([tmp_path / "bad"], "has changed since it was saved"),
            ([folders["mil"], "--keys", tmp_path / "none"], "there is no key file"),
            ([folders["mil"], "--port", port], f"port {port} is in use; choose another --port"),
            (
                [folders["mil"], "--host", ".."],
                "cannot listen on '..' (not a host name); choose another --host",
            ),
            ([folders["mil"], folders["mil"]], "two models are called 'mil'"),
        ):
            done = milrec_serve(*arguments)
            assert done.returncode == 1 and sentence in done.stderr, done.stderr
            assert len(done.stderr.strip().splitlines()) == 1 and not done.stdout


def test_the_command_makes_keys():
    done = milrec_serve("--new-key", "shop")
    key = done.stderr.splitlines()[0]
    assert done.returncode == 0 and read_keys(None, done.stdout).owner(key) == "shop"
