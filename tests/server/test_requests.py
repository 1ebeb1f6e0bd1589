"""Wrong requests: each is answered with a code from 400 to 499 and one sentence."""

import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from milrec.errors import SettingsError
from milrec.server.limits import Limits
from milrec.server.requests import read_request
from serving import TASTE, post, refused

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long


BAD_BODIES: dict[str, Any] = {
    "empty": {},
    "null": None,
    "list": [],
    "text": "hello",
    "number": 3,
    "nobody": {"n": 3},
    "unknown user and taste": {"user": "nobody", "adopted": ["i001"]},
    "user and unknown item": {"user": "u001", "adopted": ["nothing"]},
    "user, adopted and rejected": {"user": "u001", "adopted": ["i001"], "rejected": ["i001"]},
    "no known item of several": {"adopted": ["nothing", "nowhere"], "strict": False},
    "no known item of several with weights": {"adopted": {"nothing": 1}, "rejected": ["i001"], "strict": False},
    "wrong weight of an item to skip": {"adopted": {"nothing": 0, "i001": 1}, "strict": False},
    "strict is text": {**TASTE, "strict": "no"},
    "strict is a number": {**TASTE, "strict": 0},
    "strict is null": {**TASTE, "strict": None},
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
    "adopted as long as a book": {"adopted": ["x" * 3_000] * 6},
    "allow as long as a book": {**TASTE, "allow": [["x" * 9_000]]},
    "n as long as a book": {**TASTE, "n": 10**4_000},
    "rule as long as a book": {**TASTE, "rules": [{"tail": "long", "at_least": "x" * 10_000}]},
    "model as long as a book": {**TASTE, "model": "m" * 10_000},
    "key as long as a book": {**TASTE, "k" * 10_000: 1},
    "title as long as a book": "x" * 10_000,
    "unknown item": {"adopted": ["nothing"]},
    "one unknown item of two": {"adopted": ["i001", "nothing"]},
    "unknown rejected item": {**TASTE, "rejected": ["nothing"]},
    "adopted is text": {"adopted": "i001"},
    "weight is 0": {"adopted": {"i001": 0}},
    "weight is negative": {"adopted": {"i001": 1, "i002": -1}},
    "weight is huge": {"adopted": {"i001": 10**400}},
    "weight is text": {"adopted": {"i001": "1"}},
    "weight is null": {"adopted": {"i001": None}},
    "weight is a truth value": {"adopted": {"i001": True}},
    "weight is a list": {"adopted": {"i001": [1]}},
    "weight of an unknown item": {"adopted": {"nothing": 1}},
    "weight of an item as long as a book": {"adopted": {"x" * 10_000: 0}},
    "weighted and rejected": {"adopted": {"i001": 2}, "rejected": ["i001"]},
    "too many weights": {"adopted": {f"i{number:03}": 1 for number in range(31)}},
    "rejected is an object": {**TASTE, "rejected": {"i002": 1}},
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
    "long share is text": {**TASTE, "long_share": "30%"},
    "long share is a truth value": {**TASTE, "long_share": True},
    "long share is a list": {**TASTE, "long_share": [0.3]},
    "long share is a percentage": {**TASTE, "long_share": 30},
    "long share is negative": {**TASTE, "long_share": -0.1},
    "medium share above the whole": {**TASTE, "medium_share": 1.01},
    "short share is an object": {**TASTE, "short_share": {}},
    "mean popularity is 0": {**TASTE, "mean_popularity": 0},
    "mean popularity is text": {**TASTE, "mean_popularity": "low"},
    "long bonus above 1": {**TASTE, "long_bonus": 1.5},
    "long bonus below -1": {**TASTE, "long_bonus": -2},
    "two aims": {**TASTE, "long_share": 0.3, "mean_popularity": 20},
    "long share and the old dial": {**TASTE, "long_share": 0.3, "dial": 0.5},
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
    "NaN share": b'{"adopted": [], "long_share": NaN}',
    "endless mean popularity": b'{"adopted": [], "mean_popularity": Infinity}',
    "NaN weight": b'{"adopted": {"i001": NaN}}',
    "endless weight": b'{"adopted": {"i001": 1e999}}',
    "deep weight": b'{"adopted": {"i001": ' + b"[" * 900 + b"]" * 900 + b"}}",
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


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_wrong_request_for_a_list_is_refused(client, body):
    refused(post(client, "/v1/recommend", body))


@pytest.mark.parametrize("body", BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_a_wrong_batch_is_refused(client, body):
    refused(post(client, "/v1/recommend/batch", body))


@pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=BAD_TEXTS)
def test_a_body_that_is_not_a_request_is_refused(client, text):
    refused(client.post("/v1/recommend", content=text, headers={"content-type": "application/json"}))


def test_json_that_cannot_be_read_is_refused_in_our_own_words(client):
    answer = client.post("/v1/recommend", content='{"n": }', headers={"content-type": "application/json"})
    assert refused(answer) == "the body is not readable JSON (the mistake is at character 7)"


def test_a_method_that_an_address_does_not_take_is_named(client):
    assert refused(client.get("/v1/recommend")) == "this address does not take GET; see /docs"


@pytest.mark.parametrize(("method", "path"), BAD_REQUESTS)
def test_a_request_to_a_wrong_address_is_refused(client, method, path):
    refused(client.request(method, path))


@pytest.mark.parametrize("depth", [100, *range(900, 1_000, 4), 3_000])
@pytest.mark.parametrize("frame", ["{}", '{{"adopted": {}}}', '{{"adopted": [], "rules": [{}]}}', '{{"user": {}}}'])
def test_a_body_of_many_levels_is_refused(client, frame, depth):
    """Just as many as can be read are too many to be shown."""
    text = frame.format("[" * depth + "]" * depth)
    sentence = refused(client.post("/v1/recommend", content=text, headers={"content-type": "application/json"}))
    assert len(sentence) < 300


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
        ({**TASTE, "n": 0}, "'n' is 0; it must be at least 1"),
        ({**TASTE, "n": 61}, "'n' is 61; this server gives at most 60"),
        ({**TASTE, "rules": [{"tail": "long", "last": 1}]}, "unknown key 'rules.0.last'; known keys: tail, at_least"),
        ({**TASTE, "rules": [{"tail": "long"}]}, "'rules.0': a rule needs either at_least or at_most"),
        ({**TASTE, "model": "mll"}, "unknown model 'mll' (did you mean 'mil'?); known models: ease, mil"),
        ({"user": "nobody"}, "unknown user 'nobody'; for a new user, give adopted items and no user"),
        ({}, "say who the list is for"),
        ({"rejected": ["i001"]}, "or adopted items (an empty list will do); rejected items alone do not say it"),
        ([], 'a request is an object, for example {"user": "u1"}, not []'),
        ({"user": 1.5}, "'user' is 1.5; an id is text or a whole number"),
        ({"adopted": ["i001", None]}, "'adopted.1' is None; an id is text or a whole number"),
        ({"adopted": "i001"}, "'adopted' is 'i001'; it must be a list"),
        ({"adopted": {"i001": -1}}, "the weight of item 'i001' must be a number from 1e-30 to 1e+30, not -1"),
        ({"adopted": {f"i{number:03}": 1 for number in range(31)}}, "'adopted' has more than 30 ids"),
        ({**TASTE, "long_share": 1.5}, "'long_share' is 1.5; it must be at most 1"),
        ({**TASTE, "mean_popularity": 0}, "'mean_popularity' is 0; it must be greater than 0"),
        (
            {**TASTE, "long_share": 0.3, "long_bonus": 0.01},
            "give only one of `long_share`, `long_bonus`",
        ),
        ({**TASTE, "long_share": 0.3, "dial": 0.5}, "give either the old dial or a share of the tail, not both"),
        (
            {**TASTE, "rules": [3]},
            """'rules.0': a rule is an object, for example {"tail": "long", "at_least": "30%"}, not 3""",
        ),
        ({**TASTE, "n": 60, "reasons": 5, "rules": [{"tail": "long", "at_least": 1}] * 5}, "rules) comes to 660 over"),
        (
            {**TASTE, "n": 60, "reasons": 5, "rules": [{"tail": "long", "at_least": 1}] * 4, "long_share": 0.3},
            "rules) comes to 660 over",  # a share of the tail counts as a rule
        ),
    ],
)
def test_a_refusal_says_what_is_wrong(client, body, sentence):
    assert sentence in refused(post(client, "/v1/recommend", body))


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("models/mil/items?serach=a&n=1", "unknown key 'serach'; known keys: search, n"),
        ("models/mil/items/i001?n=1", "unknown key 'n'; known keys: none"),
        ("models/mil/items/i001/similar?m=1", "unknown key 'm'; known keys: n"),
        ("models?n=1", "unknown key 'n'; known keys: none"),
        ("models/mil/listed-with?item=i001&top=1", "unknown key 'top'; known keys: item, n"),
    ],
)
def test_an_unknown_key_of_a_query_is_refused_by_name(client, path, known):
    assert refused(client.get(f"/v1/{path}")) == known
    assert client.get(f"/v1/{path}").status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        {"adopted": [None] * 100_000},
        {"adopted": {f"k{number}": 0 for number in range(100_000)}},
        {f"k{number}": 0 for number in range(100_000)},
        {"rules": [{}] * 100_000},
    ],
    ids=["ids", "weights", "keys", "rules"],
)
def test_only_one_of_a_thousand_mistakes_is_looked_for(body, monkeypatch):
    """No more errors are made than are shown; the validator itself stops at the first id."""
    with pytest.raises(SettingsError) as error:
        read_request(body, Limits(max_ids=100_000))
    cause = error.value.__context__
    assert len(str(error.value)) < 300
    assert cause is None or (isinstance(cause, ValidationError) and cause.error_count() <= 21)
