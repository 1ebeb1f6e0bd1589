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
from hypothesis import HealthCheck, settings

import milrec
from milrec.asking import Query
from milrec.config import build
from milrec.errors import FolderError, SettingsError, UnknownIdError
from milrec.gate import Limits
from milrec.keys import Keys, new_key, read_keys
from milrec.serve import Server, create_app
from milrec.service import Scorer, Service, Window, load_served
from milrec.serving import named_folders, serve


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
def service(folders):
    service = Service({"mil": folders["mil"], "ease": folders["ease"]}, together=64)
    yield service
    service.stop()


@pytest.fixture(scope="module")
def client(service) -> Client:
    limits = Limits(max_body=20_000, max_list=60, max_ids=30, max_batch=3, max_reasons=5)
    return Client(create_app(Server(service, limits)))


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in sorted(folder.iterdir())}


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def as_json(answer) -> list[dict]:
    """The items of an answer of the library, as the server spells them."""
    return [
        {**one._asdict(), "item": str(one.item), "reasons": [{**r._asdict(), "item": str(r.item)} for r in one.reasons]}
        for one in answer.items
    ]


def without_place(items: list[dict]) -> list[dict]:
    return [{key: value for key, value in one.items() if key != "place"} for one in items]


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
    assert without_place(found["items"]) == as_json(expected)
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
    service = Service({"odd": tmp_path / "odd"}, together=4)
    client = Client(create_app(Server(service)))
    for one in ids:
        quoted = "".join(f"%{byte:02X}" for byte in one.encode())
        assert client.get(f"/v1/models/odd/items/{quoted}").json()["item"] == one
        assert len(client.get(f"/v1/models/odd/users/{quoted}").json()["adopted"]) == len(ids)
    service.stop()


def test_whole_numbers_are_ids_too(tmp_path):
    data = milrec.read({"user": [1, 1, 2, 2], "item": [10, 20, 20, 30]})
    milrec.fit(milrec.split_interactions(data, seed=0, held_out=0.0), "popularity").save(tmp_path / "numbers")
    service = Service({"numbers": tmp_path / "numbers"}, together=4)
    client = Client(create_app(Server(service)))
    by_number, by_text = (client.post("/v1/recommend", json={"adopted": [one]}).json() for one in (10, "10"))
    assert by_number == by_text and {one["item"] for one in by_number["items"]} == {"20", "30"}
    service.stop()


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
    "request is a list": {"requests": [[]]},
    "request with a wrong n": {"requests": [{**TASTE, "n": 0}]},
    "request with an unknown key": {"requests": [{**TASTE, "m": 0}]},
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
        ({**TASTE, "rules": [{"tail": "long"}]}, "'rules.0': a rule has either at_least or at_most"),
        ({**TASTE, "model": "mll"}, "unknown model 'mll'; known models: ease, mil"),
        ({"user": "nobody"}, "unknown user 'nobody'; for a user the model has not met, give adopted items"),
        ({}, "say who the list is for"),
    ],
)
def test_a_refusal_says_what_is_wrong(client, body, sentence):
    assert sentence in refused(post(client, "/v1/recommend", body))


def test_a_body_is_not_read_beyond_its_limit(client):
    answer = post(client, "/v1/recommend", {"adopted": ["x" * 30_000]})
    assert answer.status_code == 413 and "larger than 20,000 bytes" in refused(answer)

    async def pieces():
        for _ in range(100):
            yield b" " * 1_000

    answer = client.post("/v1/recommend", content=pieces(), headers={"content-type": "application/json"})
    assert answer.status_code == 413 and "larger than 20,000 bytes" in refused(answer)


def test_a_failure_of_ours_is_one_sentence_and_a_log_line(service, monkeypatch, caplog):
    client = Client(create_app(Server(service)), raises=False)
    monkeypatch.setattr(service.model("mil").recommender, "answer", lambda asked: 1 / 0)
    answer = client.post("/v1/recommend", json=TASTE, headers={"x-request-id": "seven"})
    assert answer.status_code == 500 and set(answer.json()) == {"error"} and "ZeroDivision" not in answer.text
    assert answer.headers["x-request-id"] == "seven"
    assert any(record.exc_info and record.facts == {"id": "seven"} for record in caplog.records)


# The schema


@pytest.fixture(scope="module")
def api(service):
    limits = Limits(max_body=100_000, max_list=60, timeout=20)
    return schemathesis.openapi.from_asgi("/openapi.json", create_app(Server(service, limits)))


schema = schemathesis.pytest.from_fixture("api")


@schema.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_whatever_the_schema_allows_is_answered_as_the_schema_says(case):
    case.call_and_validate()


def test_the_reference_page_tells_of_every_route_without_fetching_anything(client):
    page, found = client.get("/docs").text, client.get("/openapi.json").json()
    for path in found["paths"]:
        assert path in page.replace("&#39;", "'")
    for name in ("RecommendBody", "Rule", "BatchBody", "RecommendAnswer"):
        assert f'id="form-{name}"' in page
    assert "<script" not in page and "style=" not in page and "https://" not in page
    assert client.get("/docs.css").headers["content-type"].startswith("text/css")


def test_every_answer_carries_safe_headers(client):
    for path in ("/healthz", "/v1/models", "/docs", "/nothing"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == ("no-store" if path.startswith("/v1") else "no-cache")
