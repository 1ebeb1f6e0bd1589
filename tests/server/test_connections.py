"""Connections: silent, slow, greedy and broken clients on real sockets; each is answered or closed."""

import contextlib
import http.client
import json
import logging
import threading
import time

import pytest

from milrec.server.limits import Limits
from milrec.server.listener import _note_loop_error, connections_allowed
from milrec.server.telemetry import Seldom, log
from pausing import LONG
from serving import TASTE, Here, listening, request, rest_of, statuses

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long

JSON = b"Host: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = b"POST /v1/recommend HTTP/1.1\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
ALIVE = b'{"status":"alive"}'


@pytest.fixture(scope="module")
def hasty(registry):
    """A server with short time limits for clients that say nothing."""
    with listening(registry, Limits(header_timeout=0.2, idle_timeout=0.2, timeout=LONG)) as here:
        yield here


@pytest.fixture(scope="module")
def here(registry):
    """A server that waits for its clients."""
    with listening(registry, Limits(header_timeout=LONG, idle_timeout=LONG, timeout=LONG, max_headers=2_000)) as here:
        yield here


@pytest.fixture
def gate(registry):
    """Until it is opened, the scoring thread makes no list."""
    gate = threading.Event()
    registry.batcher.call(gate.wait)
    try:
        yield gate
    finally:
        gate.set()


def until(condition) -> None:
    """Wait for something that will happen; the deadline only ends a test that would hang."""
    ends = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def error_in(answer: bytes) -> str:
    """The sentence of an answer that carries the same headers as any other."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"x-frame-options: DENY" in head and b"content-type: application/json" in head
    (sentence,) = json.loads(body).values()
    assert "\n" not in sentence and len(sentence) < 200
    return sentence


def test_a_client_that_says_nothing_is_disconnected(hasty):
    assert hasty.said() == b"" and hasty.closed("silent") >= 1
    with hasty.connection() as link:
        link.sendall(request("/healthz", end=False))
        assert rest_of(link).endswith(ALIVE), "and then it was idle"


def test_empty_lines_do_not_keep_a_connection_open(hasty):
    with hasty.connection() as link:
        link.sendall(request("/healthz", end=False) + b"\r\n")
        assert link.recv(4096)
        with contextlib.suppress(ConnectionError):
            while True:
                link.sendall(b"\r\n")
                time.sleep(0.01)


def test_half_a_header_is_answered_and_closed(hasty):
    answer = hasty.said(b"GET /healthz HTTP/1.1\r\nHo")
    assert statuses(answer) == [408] and error_in(answer) == "the headers of the request took too long"


@pytest.mark.parametrize(
    "pieces",
    [
        [request("/healthz", None, "X: " + "a" * 2_000)],
        [b"GET /healthz HTTP/1.1\r\nX: ", *[b"a" * 500] * 20],
        [b"GET /healthz HTTP/1.1\r\n", *[b"a: b\r\n" * 50] * 50],
        [b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 20_000],
        [b"GET /" + b"a" * 5_000 + b" HTTP/1.1\r\n\r\n"],
        [b"GET /", *[b"a" * 60_000] * 50],
        [CHUNKED + b"2\r\n{}\r\n0\r\n", *[b"a: b\r\n" * 50] * 50],
        [CHUNKED + b"2\r\n{}\r\n0\r\nx: ", *[b"a" * 500] * 20],
        [CHUNKED + b"2;", *[b"a" * 500] * 20],
    ],
    ids=["large", "growing", "many", "many at once", "address", "growing address", "trailers", "trailer", "chunk size"],
)
def test_headers_are_not_read_without_end(here, pieces):
    answer = here.said(*pieces)
    assert statuses(answer) == [431]
    assert error_in(answer) == "the address and the headers are larger than 2,000 bytes"


BROKEN = {
    "no HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),
    "every byte": bytes(range(256)),
    "unknown method": b"FETCH / HTTP/1.1\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "another version": b"GET / HTTP/7.1\r\n\r\n",
    "proxy": b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n",
    "zero byte in a header": b"GET /healthz HTTP/1.1\r\nX: a\x00b\r\n\r\n",
    "space in a header name": b"GET /healthz HTTP/1.1\r\nX : a\r\n\r\n",
    "folded header": b"GET /healthz HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
    "bare address": "GET /v1/models/é HTTP/1.1\r\n\r\n".encode(),
    "absurd length": b"POST /v1/recommend HTTP/1.1\r\n" + JSON + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n{}",
    "negative length": b"POST /v1/recommend HTTP/1.1\r\n" + JSON + b"Content-Length: -1\r\n\r\n{}",
    "two lengths": b"POST /v1/recommend HTTP/1.1\r\n" + JSON + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": CHUNKED.replace(b"Transfer", b"Content-Length: 2\r\nTransfer") + b"0\r\n\r\n",
    "unknown encoding": CHUNKED.replace(b"chunked", b"gzip") + b"{}",
    "wrong chunk": CHUNKED + b"zz\r\n{}\r\n",
    "endless chunk": CHUNKED + b"f" * 20 + b"\r\n{}\r\n",
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN)
def test_what_is_not_http_is_refused_in_one_sentence(here, sent):
    answer = here.said(sent)
    assert statuses(answer) == [400] and error_in(answer)
    assert here.said(request("/healthz")).endswith(ALIVE)


def test_an_oldest_kind_of_request_ends_too(hasty):
    assert statuses(hasty.said(b"GET /\r\n")) == [408]  # HTTP/0.9: headers are waited for
    assert hasty.said(b"GET /healthz HTTP/1.0\r\n\r\n").endswith(ALIVE)


def test_requests_that_are_sent_ahead_are_answered_in_order(here):
    one = request("/v1/recommend", {**TASTE, "n": 1}, end=False)
    answers = here.said(*([one + request("/healthz", end=False)] * 100), request("/healthz"))
    assert statuses(answers) == [200] * 201
    assert answers.count(ALIVE) == 101 and answers.count(b'"rank":1') == 100 and answers.endswith(ALIVE)


def test_what_was_asked_before_the_nonsense_is_answered(here):
    answers = here.said(request("/v1/recommend", TASTE, end=False) + b"\x00 nonsense")
    assert statuses(answers) == [200] and b'"rank":1' in answers


def test_a_wish_for_another_protocol_is_ignored_and_the_body_is_read(here):
    wish = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
    asked = request("/v1/recommend", TASTE, *wish, end=False)
    answers = here.said(
        asked + request("/healthz", None, "Connection: close, Upgrade", "Upgrade: websocket", end=False)
    )
    assert statuses(answers) == [200, 200] and b'"rank":1' in answers and answers.endswith(ALIVE)


def test_a_client_that_stops_sending_is_gone(here):
    with here.connection() as link:
        link.sendall(request("/healthz", end=False)[:-2])
        link.shutdown(1)
        assert rest_of(link) == b""
    with here.connection() as link:
        link.sendall(CHUNKED + b"50\r\n{")
    assert here.said(request("/healthz")).endswith(ALIVE)


def test_silent_clients_lock_nobody_out(registry, gate):
    """Those that were silent for longest make way; a request that is being answered does not."""
    limits = Limits(max_connections=20, header_timeout=LONG, idle_timeout=LONG)
    with listening(registry, limits) as here, contextlib.ExitStack() as links:
        asking = links.enter_context(here.connection())
        asking.sendall(request("/v1/recommend", TASTE))
        until(lambda: here.server.capacity.used == 1)
        silent = [links.enter_context(here.connection()) for _ in range(100)]
        for link in silent[50:]:
            with contextlib.suppress(ConnectionError):
                link.sendall(b"GET /healthz HTTP/1.1\r\nX")
        assert here.said(request("/healthz")).endswith(ALIVE)
        assert all(rest_of(link) == b"" for link in silent[:80]) and here.closed("made way") >= 80
        gate.set()
        assert statuses(rest_of(asking)) == [200]


def test_a_server_whose_connections_are_all_busy_says_so(registry, gate):
    with listening(registry, Limits(max_connections=1)) as here, here.connection() as asking:
        asking.sendall(request("/v1/recommend", TASTE))
        until(lambda: here.server.capacity.used == 1)
        answer = here.said()
        assert statuses(answer) == [503] and b"retry-after: 1\r\n" in answer and "is busy" in error_in(answer)
        gate.set()
        assert statuses(rest_of(asking)) == [200]


def test_a_body_that_does_not_arrive_is_given_up(registry):
    with listening(registry, Limits(timeout=0.2)) as here:
        answer = here.said(request("/v1/recommend", TASTE)[:-3])
        assert statuses(answer) == [408] and error_in(answer) == "the request did not arrive within 0.2 seconds"
        answer = here.said(CHUNKED + b"50\r\n{")
        assert statuses(answer) == [408]


def test_slow_bodies_do_not_take_up_the_server(registry):
    slow = request("/v1/recommend", TASTE)
    with listening(registry, Limits(max_running=1, timeout=LONG)) as here, contextlib.ExitStack() as links:
        waiting = [links.enter_context(here.connection()) for _ in range(5)]
        for link in waiting:
            link.sendall(slow[:-3])
        assert statuses(here.said(request("/v1/recommend", TASTE))) == [200]
        for link in waiting:
            link.sendall(slow[-3:])
            assert statuses(rest_of(link)) == [200]


def test_bodies_on_their_way_do_not_fill_the_memory(registry):
    large = request("/v1/recommend", {"adopted": ["x" * 40_000]})
    with listening(registry, Limits(max_arriving=70_000, timeout=LONG)) as here:
        with here.connection() as first, here.connection() as second:
            first.sendall(large[:-10])
            until(lambda: in_all(here) > 39_000)
            second.sendall(large[:-10])
            assert rest_of(first) == b"", "it has been arriving for longest"
            second.sendall(large[-10:])
            assert statuses(rest_of(second)) == [422]
        assert here.closed("made way") == 1 and in_all(here) == 0


def in_all(here: Here) -> float:
    """Bytes of bodies on their way."""
    return here.server.metrics.registry.get_sample_value("milrec_arriving_bytes") or 0


def test_a_client_that_does_not_read_is_given_up(registry):
    page = request("/openapi.json", end=False)
    with listening(registry, Limits(timeout=LONG, idle_timeout=LONG)) as here:
        here.connections.limits = Limits(timeout=0.3)
        with here.connection(receive_buffer=4096) as link:
            link.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(500):
                    link.sendall(page)
            until(lambda: here.closed("slow answer"))
            link.settimeout(LONG)
            assert len(statuses(rest_of(link))) < 500
        assert here.said(request("/healthz")).endswith(ALIVE)


def test_clients_that_do_not_read_lock_nobody_out(registry, monkeypatch):
    monkeypatch.setattr("milrec.server.gate.connections._UNREAD_SECONDS", 0.0)
    page = request("/openapi.json", end=False)
    limits = Limits(max_connections=3, timeout=LONG, idle_timeout=LONG)
    with listening(registry, limits) as here, contextlib.ExitStack() as links:
        for _ in range(3):
            link = links.enter_context(here.connection(receive_buffer=4096))
            link.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(500):
                    link.sendall(page)
        until(lambda: sum(one.unread_since is not None for one in here.connections) == 3)
        assert here.said(request("/healthz")).endswith(ALIVE)
        assert here.closed("made way") == 1


def test_a_body_that_is_too_large_is_answered_even_to_a_client_that_sends_all_of_it(registry):
    with listening(registry, Limits(max_body=1_000, timeout=LONG)) as here:
        link = http.client.HTTPConnection("127.0.0.1", here.port, timeout=LONG)
        for _ in range(2):
            link.request("POST", "/v1/recommend", b" " * 3_000_000, {"content-type": "application/json"})
            answer = link.getresponse()
            assert answer.status == 413 and b"larger than 1,000 bytes" in answer.read()
        link.close()
        assert statuses(here.said(request("/v1/recommend", {"adopted": ["x" * 30_000_000]}))) in ([413], [])


def test_overload_is_refused_before_a_request_is_read(registry):
    """Without a task or a log line for it; what watches the server, and what changes it, is let in."""
    with listening(registry, Limits(timeout=LONG)) as here:
        asked = request("/v1/recommend", TASTE, end=False)
        with here.server.capacity.take(1_000):
            answers = here.said(asked + asked + request("/v1/models") + request("/healthz"))
            assert statuses(answers) == [503, 503, 503] and answers.count(b"retry-after: 1\r\n") == 3
            assert here.said(request("/healthz")).endswith(ALIVE)
            assert statuses(here.said(request("/v1/models/mil/reload", {}))) == [200]
        assert statuses(here.said(request("/v1/recommend", TASTE))) == [200]
        count = here.server.metrics.registry.get_sample_value
        assert count("milrec_requests_total", {"route": "none", "method": "POST", "status": "503"}) == 2


def test_a_message_of_another_package_is_logged_once_in_a_while():
    rarely, every = Seldom(seconds=LONG), Seldom(seconds=0)
    record = logging.LogRecord("asyncio", logging.WARNING, "", 0, "too many", None, None)
    assert [rarely.filter(record) for _ in range(3)] == [True, False, False]
    rarely._seen[("asyncio", "too many")] = (-LONG, 2)
    assert rarely.filter(record) and record.facts == {"left_out": 2}  # type: ignore[attr-defined]
    assert all(every.filter(record) for _ in range(3))
    own = logging.LogRecord(log.name, logging.INFO, "", 0, "request", None, None)
    assert all(rarely.filter(own) for _ in range(3))


def test_a_connection_that_cannot_be_accepted_is_one_line_without_a_traceback(caplog):
    context = {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many open files")}
    _note_loop_error(None, context)
    (record,) = caplog.records
    assert record.getMessage() == "a connection cannot be accepted (Too many open files)" and not record.exc_info


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "raised"),
    [(1024, 4096, 1000, 1512), (4096, 4096, 1000, None), (1024, 1024, 512, None), (256, 1024, 512, 1024)],
)
def test_there_are_no_more_connections_than_file_handles(monkeypatch, soft, hard, allowed, raised):
    resource = pytest.importorskip("resource")
    changes = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: changes.append(limits))
    assert connections_allowed(1000) == allowed
    assert changes == ([] if raised is None else [(raised, hard)])
