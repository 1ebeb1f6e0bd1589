"""Connections within limits: how many there are, how much each may send before anything is checked, and how slowly.

uvicorn parses requests and sends answers; what it leaves open is closed here. When there are too many connections, the
one that has been idle for longest makes way for a new one, so silent clients lock nobody out. When there is too much to
do, requests are refused here, before any work is done for them.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from itertools import chain
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from milrec.server.gate.admission import BUSY, RETRY_SECONDS, Capacity
from milrec.server.gate.middleware import SAFE_HEADERS
from milrec.server.limits import Limits
from milrec.server.telemetry import Metrics, log

_READ_BYTES = 65_536  # of a connection at a time
_PIPELINED = 32  # requests that a client may send ahead of their answers
_ENDING_SECONDS = 2.0  # for a client to read why it was refused, before its connection is closed
_LOG_SECONDS = 10.0


class Phase(Enum):
    """What a connection is doing; if it is closed in this phase, the reason that is counted."""

    ENDING = "refused"  # it has been told why
    OPEN = "silent"  # nothing has arrived yet
    HEADERS = "slow headers"
    IDLE = "idle"  # between two requests
    BODY = "slow body"
    ANSWER = "slow answer"  # a request is complete, its answer is not


class Connections:
    """All connections of a server, by what they are doing; in each phase, the longest there comes first."""

    def __init__(self, limits: Limits, capacity: Capacity, metrics: Metrics, most: int) -> None:
        """`most` is the number that can be open at a time: no more than the system has file handles for."""
        self.limits, self.capacity, self.metrics, self._most = limits, capacity, metrics, most
        self.arriving = 0  # bytes of bodies that are not complete
        self._phases: dict[Phase, dict[Connection, float]] = {phase: {} for phase in Phase}
        self._seconds = {
            Phase.ENDING: _ENDING_SECONDS,
            Phase.OPEN: limits.header_timeout,
            Phase.HEADERS: limits.header_timeout,
            Phase.IDLE: limits.idle_timeout,
            Phase.BODY: limits.timeout + 1,  # the app gives up first, and says so
        }
        self._closed: Counter[str] = Counter()
        self._logged_at = 0.0
        metrics.connections.set_function(self.__len__)

    def __len__(self) -> int:
        return sum(map(len, self._phases.values()))

    def __iter__(self) -> Iterator[Connection]:
        return (one for members in self._phases.values() for one in members)

    def add(self, one: Connection) -> None:
        made_way = len(self) < self._most or self._make_way()
        self._phases[one.phase][one] = one.loop.time()
        if not made_way:
            one.refuse(503, BUSY)

    def move(self, one: Connection, phase: Phase) -> None:
        self._phases[one.phase].pop(one, None)
        self._phases[phase][one] = one.loop.time()
        one.phase = phase

    def remove(self, one: Connection) -> None:
        self._phases[one.phase].pop(one, None)

    def count(self, reason: str) -> None:
        self.metrics.closed.labels(reason).inc()
        if reason != Phase.IDLE.value:
            self._closed[reason] += 1

    def _make_way(self) -> bool:
        """Close the connection that has waited longest for its client, if any does."""
        waiting = [self._phases[phase] for phase in (Phase.OPEN, Phase.HEADERS, Phase.IDLE)]
        longest = sorted((next(iter(members.items())) for members in waiting if members), key=lambda pair: pair[1])
        candidates = chain(self._phases[Phase.ENDING], (one for one, _ in longest), self._phases[Phase.BODY])
        found = next(candidates, None)
        if found is not None:
            found.drop("made way")
        return found is not None

    def limit_bodies(self) -> None:
        """Give up the bodies that have been arriving for longest until the others fit into memory."""
        for one in list(self._phases[Phase.BODY]):
            if self.arriving <= self.limits.max_arriving:
                return
            if one.body_bytes:
                one.drop("made way")

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what has been in a phase for too long, now and from now on."""
        now = loop.time()
        for phase, seconds in self._seconds.items():
            expired = [one for one, since in self._phases[phase].items() if now - since > seconds]
            for one in expired:
                one.expire()
        for one in list(self):
            one.check_reader(now)
        if self._closed and now - self._logged_at > _LOG_SECONDS:
            log.warning("connections closed", extra={"facts": dict(self._closed)})
            self._closed.clear()
            self._logged_at = now
        shortest = min(*self._seconds.values(), self.limits.timeout)
        loop.call_later(min(max(shortest / 4, 0.02), 1.0), self.watch, loop)


class Connection(HttpToolsProtocol):
    """uvicorn's connection, which is closed when it sends too much or too slowly, or does not read its answer."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._all = connections
        self.phase = Phase.OPEN
        self.body_bytes = 0  # of a body that is not complete
        self._part = Phase.IDLE  # what is arriving: headers, a body, or nothing
        self._n_messages = self._n_parsed = 0  # requests that have begun; parts that the parser has recognised
        self._named_bytes = 0  # of the address and the headers that are complete
        self._unnamed_bytes = 0  # that arrived since the parser last made anything of them
        self._shed = False  # the request that is arriving has been refused already
        self._unread_since: float | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.max_size = _READ_BYTES
        self._all.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._forget_body()
        self._all.remove(self)

    def data_received(self, data: bytes) -> None:
        if self.phase is Phase.ENDING:
            return
        n_messages, n_parsed = self._n_messages, self._n_parsed
        super().data_received(data)
        if self._n_parsed == n_parsed:
            self._unnamed_bytes += len(data)
            if self._unnamed_bytes > self._all.limits.max_headers:
                return self._refuse_headers()
        self._settle(begun=self._n_messages > n_messages)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._n_messages += 1
        self._part = Phase.HEADERS
        self._named_bytes = self._unnamed_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._named_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or what comes after the last chunk of a body: that is counted and otherwise ignored."""
        self._note_parsed()
        self._named_bytes += len(name) + len(value) + 4
        if self.phase is Phase.ENDING:
            return
        if self._named_bytes > self._all.limits.max_headers:
            self._refuse_headers()
        elif self._part is Phase.HEADERS:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._note_parsed()
        if self.phase is Phase.ENDING:
            return
        if self._named_bytes > self._all.limits.max_headers:
            return self._refuse_headers()
        if len(self.pipeline) >= _PIPELINED:
            return self.drop("pipelined")
        self._part = Phase.BODY
        if self._is_too_much():
            self._shed_request()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._note_parsed()
        if self._shed or self.phase is Phase.ENDING:
            return
        if not self.cycle.response_complete:
            self.body_bytes += len(body)
            self._all.arriving += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._note_parsed()
        self._part = Phase.IDLE
        if not self._shed and self.phase is not Phase.ENDING:
            super().on_message_complete()
            if not self._all.capacity.arrived:
                self.loop.call_soon(self._all.capacity.forget_arrived)
            self._all.capacity.arrived += self._is_work()
        self._shed = False

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._settle()

    def send_400_response(self, message: str) -> None:
        self.refuse(400, "this is not a request in HTTP/1.1")

    def _unsupported_upgrade_warning(self) -> None:
        """There is nothing to upgrade to: the answer is a plain one, and the parser reads no further."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def refuse(self, status: int, sentence: str) -> None:
        """Say why, and close the connection; if it is not the turn of such an answer, only close it."""
        if not self._is_turn():
            return self.drop(Phase.ENDING.value)
        if self.cycle is not None:
            self.cycle.disconnected = True  # for the app, the client has gone
            self.cycle.message_event.set()
        self._all.metrics.requests.labels("none", "other", str(status)).inc()
        self._all.count(Phase.ENDING.value)
        self._forget_body()
        self._all.move(self, Phase.ENDING)
        self.transport.write(_answer(status, sentence, keep=False))
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _is_turn(self) -> bool:
        """Whether the next answer is the one to what is arriving now, and has not begun."""
        if self.cycle is None or self.cycle.response_complete:
            return self._part is not Phase.BODY
        return self._part is Phase.BODY and not self.cycle.response_started and not self.pipeline

    def drop(self, reason: str) -> None:
        """Close the connection at once, whatever has not been read."""
        self._all.count(reason)
        self._all.remove(self)
        self.phase = Phase.ENDING
        self._forget_body()
        self.transport.abort()

    def expire(self) -> None:
        """The connection has been in its phase for too long."""
        if self.phase is Phase.HEADERS:
            self.refuse(408, "the headers of the request took too long")
        else:
            self.drop(self.phase.value)

    def check_reader(self, now: float) -> None:
        """A client that does not read its answer in time is given up."""
        if not self.transport.get_write_buffer_size():
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        elif now - self._unread_since > self._all.limits.timeout:
            self.drop(Phase.ANSWER.value)

    def _note_parsed(self) -> None:
        self._n_parsed += 1
        self._unnamed_bytes = 0

    def _refuse_headers(self) -> None:
        self.refuse(431, f"the address and the headers are larger than {self._all.limits.max_headers:,} bytes")

    def _is_work(self) -> bool:
        return self.url.startswith(b"/v1/") and not self.url.endswith(b"/reload")

    def _is_too_much(self) -> bool:
        """Whether a request is refused at once; one that waits for an answer before its own is left to the app."""
        free = self.cycle is None or self.cycle.response_complete
        return free and self._is_work() and self.parser.get_method() in (b"GET", b"POST") and self._all.capacity.full()

    def _shed_request(self) -> None:
        method = self.parser.get_method().decode()
        if self.flow.write_paused:  # it sends requests and does not read the answers
            return self.drop(Phase.ANSWER.value)
        if self.parser.get_http_version() == "1.0" or not self.parser.should_keep_alive():
            self._part = Phase.HEADERS
            return self.refuse(503, BUSY)
        self._all.metrics.requests.labels("none", method, "503").inc()
        self._shed = True
        self.transport.write(_BUSY_ANSWER)

    def _settle(self, begun: bool = False) -> None:
        """Note what the connection is doing now; a request that has begun starts the clock again."""
        if self.phase is Phase.ENDING or self.transport.is_closing():
            return
        complete = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if self.pipeline or complete:
            phase = Phase.ANSWER
        elif self._part is Phase.IDLE and not self._n_messages:
            phase = Phase.OPEN
        else:
            phase = self._part
        if phase is not self.phase or begun:
            self._all.move(self, phase)
        if phase is Phase.BODY:
            self._all.limit_bodies()
        else:
            self._forget_body()

    def _forget_body(self) -> None:
        self._all.arriving -= self.body_bytes
        self.body_bytes = 0


def _answer(status: int, sentence: str, keep: bool) -> bytes:
    """A whole answer of one sentence, as the app would send it."""
    content = json.dumps({"error": sentence}).encode()
    headers = [
        (b"content-length", str(len(content)).encode()),
        (b"content-type", b"application/json"),
        *SAFE_HEADERS,
        (b"cache-control", b"no-store"),
    ]
    if status == 503:
        headers.append((b"retry-after", RETRY_SECONDS.encode()))
    if not keep:
        headers.append((b"connection", b"close"))
    return STATUS_LINE[status] + b"".join(b"%s: %s\r\n" % pair for pair in headers) + b"\r\n" + content


_BUSY_ANSWER = _answer(503, BUSY, keep=True)
