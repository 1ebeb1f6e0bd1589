"""What every request passes through: headers, log, hosts, other sites, clients that have gone."""

import asyncio
import json
import threading

import pytest

from milrec.server.app import create_app
from milrec.server.copies import Folders
from milrec.server.gate.access import known_hosts
from milrec.server.gate.keys import Keys, new_key
from milrec.server.limits import Limits
from milrec.server.registry import Registry
from milrec.server.service import Server
from pausing import LONG
from serving import TASTE, Client

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long


def test_a_failure_of_the_server_is_one_sentence_and_a_log_line(registry, monkeypatch, caplog):
    client = Client(create_app(Server(registry)), raises=False)
    monkeypatch.setattr(registry.model("mil").recommender, "listed", lambda asked: 1 / 0)
    answer = client.post("/v1/recommend", json=TASTE, headers={"x-request-id": "seven"})
    assert answer.status_code == 500 and set(answer.json()) == {"error"} and "ZeroDivision" not in answer.text
    assert answer.headers["x-request-id"] == "seven"
    assert any(record.exc_info and record.facts == {"id": "seven"} for record in caplog.records)


def test_every_answer_carries_safe_headers(client):
    for path in ("/healthz", "/v1/models", "/docs", "/nothing"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == ("no-store" if path.startswith("/v1") else "no-cache")


def test_pages_of_other_sites_are_kept_out(registry):
    assert known_hosts("127.0.0.1", True, ()) is None and known_hosts("0.0.0.0", False, ()) is None
    assert known_hosts("127.0.0.2", False, ()) == frozenset({"127.0.0.1", "127.0.0.2", "::1", "localhost"})
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


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000", 200),
        ("lists.example", "https://lists.example", 200),
        ("LISTS.example", "https://lists.EXAMPLE", 200),
        ("127.0.0.1:8000", "https://lists.example", 200),  # a proxy that passes its own name on
        ("localhost:8000", "http://localhost:3000", 403),
        ("localhost:8000", "http://localhost", 403),
        ("localhost:8000", "https://evil.example", 403),
        ("localhost:8000", "https://localhost:8000.evil.example", 403),
        ("localhost:8000", "null", 403),
        ("localhost:8000", "localhost:8000", 403),
    ],
)
def test_a_browser_that_says_only_where_a_page_is_from_is_believed(registry, host, origin, status):
    """Browsers say Sec-Fetch-Site only where there is TLS, or on this machine."""
    here = Client(create_app(Server(registry, hosts=known_hosts("127.0.0.1", False, ["lists.example"]))))
    headers = {"host": host, "origin": origin}
    assert here.post("/v1/models/mil/reload", headers=headers).status_code == status
    assert here.get("/v1/models", headers=headers).status_code == status
    assert here.get("/healthz", headers=headers).status_code == 200
    said = {**headers, "sec-fetch-site": "same-origin"}
    assert here.get("/v1/models", headers=said).status_code == 200


def test_the_first_reason_to_refuse_a_request_is_given(registry, caplog):
    """Who may ask is settled before what may be asked; every refusal has its headers and its line in the log."""
    caplog.set_level("INFO", "milrec.server.app")
    key, line = new_key("shop")
    keys = Keys(((line.split()[0], line.partition("sha256:")[2]),))
    server = Server(registry, Limits(max_body=10, max_running=1), keys, hosts=frozenset({"test"}))
    client = Client(create_app(server))
    wrong = {"host": "evil.example", "sec-fetch-site": "cross-site", "authorization": "Bearer milrec_wrong"}
    right = {"host": "test", "sec-fetch-site": "same-origin", "authorization": f"Bearer {key}"}
    expected = [421, 403, 401, 503, 413]
    for number, status in enumerate(expected):
        headers = {name: (right if place < number else wrong)[name] for place, name in enumerate(wrong)}
        with server.capacity.take(int(status != 413)):
            answer = client.post("/v1/recommend", json={"adopted": ["i001"]}, headers=headers)
        assert answer.status_code == status and set(answer.json()) == {"error"}, answer.text
        assert answer.headers["x-frame-options"] == "DENY" and answer.headers["x-request-id"]
    facts = [record.facts for record in caplog.records if record.message == "request"]
    assert [one["status"] for one in facts] == expected
    assert [one["key"] for one in facts] == [None, None, None, "shop", "shop"]


def test_a_request_whose_client_has_gone_is_given_up(folders, caplog):
    caplog.set_level("INFO", "milrec.server.app")
    sizes: list[int] = []
    registry = Registry(Folders({"mil": folders["mil"]}), together=4, observe=sizes.append)
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
        await asyncio.wait_for(app(scope, receive, send), LONG)

    asyncio.run(leaving())
    release.set()
    registry.stop()
    assert sizes == [] and caplog.records[-1].facts["status"] == 499
