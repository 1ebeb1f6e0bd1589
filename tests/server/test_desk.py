"""The desk: plain requests for short lists are answered where they arrive, and as the app answers them."""

import json
import threading
from typing import Any

import pytest

import milrec
from milrec.server.copies import Folders
from milrec.server.gate.keys import Keys, new_key
from milrec.server.limits import Limits
from milrec.server.registry import Registry
from pausing import LONG
from serving import listening, request, rest_of, statuses

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long

QUERIES = [
    {"user": "u001"},
    {"user": "u002", "n": 60, "dial": 0.7},
    {"adopted": ["i001", "i002"], "rejected": ["i003"], "n": 5, "reasons": 3},
    {"adopted": [], "n": 7, "exclude": ["i032"]},
    {"adopted": ["i010"], "allow": []},
    {"user": "u003", "n": 10, "allow": ["i032"], "rules": [{"tail": "long", "at_least": 3, "first": 4}]},
    {"user": "u003", "model": "ease"},
    {"user": "u001", "long_share": 0.3},
    {"adopted": {"i001": 3, "i002": 1}, "mean_popularity": 20, "n": 7, "reasons": 1},
    {"user": "u002", "long_bonus": 0.001, "model": "ease"},
    {"user": "u002", "adopted": ["i001", "i005"], "rejected": ["i007"]},
    {"user": "u002", "adopted": {"i001": 2, "nothing": 1}, "strict": False, "model": "ease"},
    {"adopted": ["nothing", "i001"], "rejected": ["nowhere"], "strict": False, "n": 3},
    {"adopted": [], "model": "ease"},
]
WRONG = [
    {"user": "u001", "long_share": 2},
    {"user": "u001", "long_share": 0.1, "short_share": 0.1},
    {"user": "nobody"},
    {"user": "nobody", "adopted": ["i001"]},
    {"adopted": ["i001", "nothing"]},
    {"adopted": ["nothing"], "strict": False},
    {"user": "u001", "adopted": ["i001"], "rejected": ["i001"]},
    {"user": "u001", "n": 0},
    {"user": "u001", "m": 1},
    {},
    [],
    "text",
    {"model": "none"},
]
USUAL = "Content-Type: application/json; charset=utf-8"  # means the same, and is not what the desk looks for


@pytest.fixture(scope="module")
def here(registry):
    with listening(registry) as found:
        yield found


def plain(body: object, *headers: str) -> bytes:
    """A request that the desk takes: another one on its connection may follow."""
    return request("/v1/recommend", body, *headers, end=False)


def usual(body: object, *headers: str) -> bytes:
    return plain(body, *headers).replace(b"Content-Type: application/json", USUAL.encode())


LAST = request("/healthz")


def answer_on(link) -> tuple[dict[str, str], bytes]:
    """The headers of the next answer on a connection, and its content."""
    found = b""
    while True:
        piece = link.recv(65_536)
        assert piece, found
        found += piece
        head, complete, content = found.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {"status": lines[0].split()[1], **dict(line.split(": ", 1) for line in lines[1:] if complete)}
        if complete and len(content) == int(headers["content-length"]):
            return headers, content


def answer_to(here, sent: bytes) -> tuple[dict[str, str], bytes]:
    with here.connection() as link:
        link.sendall(sent)
        return answer_on(link)


def watched(here, monkeypatch) -> list[str]:
    """The way that each request goes."""
    ways: list[str] = []
    desk, batcher = here.connections.desk, here.server.registry.batcher
    take, answer = desk.take, batcher.answer

    def taken(*given: Any) -> Any:
        done = take(*given)
        ways.extend(["desk"] if done else [])
        return done

    def answered(*given: Any) -> Any:
        ways.append("usual")
        return answer(*given)

    monkeypatch.setattr(desk, "take", taken)
    monkeypatch.setattr(batcher, "answer", answered)
    return ways


@pytest.mark.parametrize("query", QUERIES)
def test_both_ways_lead_to_the_same_answer(here, monkeypatch, query):
    ways = watched(here, monkeypatch)
    (headers, content), (others, other) = answer_to(here, plain(query)), answer_to(here, usual(query))
    assert ways == ["desk", "usual"]
    assert content == other and json.loads(content)["model"] == query.get("model", "mil")
    assert list(headers) == list(others)  # in the same order
    differing = ("x-request-id", "date")
    assert [headers[name] for name in headers if name not in differing] == [
        others[name] for name in others if name not in differing
    ]


@pytest.mark.parametrize("body", WRONG)
def test_what_is_wrong_with_a_request_is_said_by_the_app(here, body):
    (head, content), (other, said) = answer_to(here, plain(body)), answer_to(here, usual(body))
    assert content == said and set(json.loads(content)) == {"error"}
    assert head["status"] == other["status"] == "422"


@pytest.mark.parametrize(
    "content", [b"{", b"\xff", b'{"user": NaN}', b'"\\ud800"', b"[" * 3000, b"", b'{"user": "u001"}'.ljust(6000)]
)
def test_a_body_that_is_not_plain_is_read_by_the_app(here, content):
    sent = [
        b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Length: %d\r\n\r\n%s"
        % (kind, len(content), content)
        for kind in (b"Content-Type: application/json", USUAL.encode())
    ]
    (head, first), (other, second) = (answer_to(here, one) for one in sent)
    assert (head["status"], first) == (other["status"], second)


def test_a_list_with_a_share_of_the_tail_counts_as_one_with_a_rule(here, monkeypatch):
    ways = watched(here, monkeypatch)
    for n in (125, 126):
        answer_to(here, plain({"user": "u001", "n": n}))
        answer_to(here, plain({"user": "u001", "n": n, "long_share": 0.3}))
    assert ways == ["desk", "desk", "desk", "usual"]


def test_a_request_that_arrives_in_pieces_goes_the_usual_way(here):
    whole = answer_to(here, plain({"user": "u001"}))[1]
    sent = plain({"user": "u001"}) + LAST
    for cut in (30, len(sent) - len(LAST) - 5):
        with here.connection() as link:
            link.sendall(sent[:cut])
            assert here.said(LAST)  # what was sent before has been read by now
            link.sendall(sent[cut:])
            answers = rest_of(link)
        assert statuses(answers) == [200, 200] and whole in answers


def test_requests_that_are_sent_ahead_are_answered_in_their_order(here):
    queries = [{"user": "u001"}, {"user": "nobody"}, {"user": "u002"}, {"user": "u003"}]
    expected = [answer_to(here, plain(query))[1] for query in queries]
    answers = here.said(b"".join(map(plain, queries)) + LAST)
    assert statuses(answers) == [200, 422, 200, 200, 200]
    places = [answers.index(one) for one in expected]
    assert places == sorted(places)


def test_many_at_once_are_answered_together_and_each_as_if_alone(folders, mil):
    sizes: list[int] = []
    registry = Registry(Folders({"mil": folders["mil"]}), together=64, observe=sizes.append)
    users = mil.user_ids[:99]
    with listening(registry, Limits(max_running=512)) as here:
        expected = {user: answer_to(here, plain({"user": user}))[1] for user in users}
        here.server.capacity.limit = 500.0  # as if measured
        sizes.clear()
        links = [here.connection() for _ in users]
        for link, user in zip(links, users, strict=True):
            link.sendall(plain({"user": user}))
        for link, user in zip(links, users, strict=True):
            assert answer_on(link)[1] == expected[user]
            link.close()
    registry.stop()
    assert sum(sizes) == len(users) and max(sizes) <= 64


def test_a_request_at_the_desk_is_counted_timed_and_logged(here, caplog):
    caplog.set_level("INFO", "milrec.server.app")
    counted = ("milrec_requests_total", {"route": "/v1/recommend", "method": "POST", "status": "200"})
    before = here.server.metrics.registry.get_sample_value(*counted) or 0
    head, _ = answer_to(here, plain({"user": "u001"}, "X-Request-ID: seven", "X-Forwarded-For: 10.1.2.3"))
    assert head["x-request-id"] == "seven"
    assert here.said(LAST)  # by then, what follows an answer has been done
    assert here.server.metrics.registry.get_sample_value(*counted) == before + 1
    facts = next(record.facts for record in caplog.records if getattr(record, "facts", {}).get("id") == "seven")
    assert facts["client"] == "10.1.2.3" and facts["route"] == "/v1/recommend" and facts["status"] == 200
    assert here.server.capacity.used == 0


def test_who_may_ask_is_settled_at_the_desk_too(folders, caplog):
    caplog.set_level("INFO", "milrec.server.app")
    key, line = new_key("shop")
    keys = Keys(((line.split()[0], line.partition("sha256:")[2]),))
    registry = Registry(Folders({"mil": folders["mil"]}), together=4)
    with listening(registry, keys=keys) as here:
        for header, status in (("X-Other: 1", 401), ("X-API-Key: milrec_no", 401), (f"X-API-Key: {key}", 200)):
            head, _ = answer_to(here, plain({"user": "u001"}, header))
            assert head["status"] == str(status)
        head, _ = answer_to(here, plain({"user": "u001"}, f"X-API-Key: {key}", "Sec-Fetch-Site: cross-site"))
        assert head["status"] == "403"
    registry.stop()
    facts = [record.facts for record in caplog.records if record.message == "request"]
    assert [one["key"] for one in facts if one["route"] == "/v1/recommend"] == ["shop"]


def test_while_the_other_thread_works_requests_go_there(folders, monkeypatch):
    registry = Registry(Folders({"mil": folders["mil"]}), together=4)
    begun, gate = threading.Event(), threading.Event()
    with listening(registry) as here:
        expected = answer_to(here, plain({"user": "u001"}))[1]
        ways = watched(here, monkeypatch)
        registry.batcher.call(begun.set)
        registry.batcher.call(gate.wait)
        assert begun.wait(LONG)
        with here.connection() as link:
            link.sendall(plain({"user": "u001"}) + LAST)
            while "usual" not in ways:
                pass
            gate.set()
            assert expected in rest_of(link) and ways == ["usual"]
    registry.stop()


def test_a_model_whose_lists_take_long_is_not_served_at_the_desk(folders, split, tmp_path, monkeypatch):
    milrec.fit(split, "mf", n_factors=4, epochs=1).save(tmp_path / "mf")
    registry = Registry(Folders({"mf": tmp_path / "mf"}), together=4)
    assert not registry.model("mf").quick
    with listening(registry) as here:
        ways = watched(here, monkeypatch)
        assert answer_to(here, plain({"user": "u001"}))[0]["status"] == "200"
    registry.stop()
    assert ways == ["usual"]
