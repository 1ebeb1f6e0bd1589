"""Two light load generators: clients that wait for each answer, and requests that come when they come.

`load` has so many clients; each keeps one connection and sends its next request once it has the whole answer.
`paced` sends so many requests a second at random times, whether or not the answers keep up, as a crowd does.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

Requests = Callable[[int], Iterator[bytes]]  # what a client sends, by its number
REFUSED = 503  # the server has too much to do
_RETRY_SECONDS = 1.0  # as the server asks for


@dataclass
class Outcome:
    """What came back."""

    seconds: list[float] = field(default_factory=list)  # of each answer
    refused: list[float] = field(default_factory=list)  # of each refusal: how long it took
    last_refused: float = 0.0  # when, in seconds from the start
    statuses: Counter[int] = field(default_factory=Counter)
    broken: int = 0  # connections that ended before the whole answer had arrived
    spent: float = 0.0

    def note(self, status: int, seconds: float, at: float) -> None:
        self.statuses[status] += 1
        if status == REFUSED:
            self.refused.append(seconds)
            self.last_refused = at
        else:
            self.seconds.append(seconds)

    def figures(self) -> dict[str, Any]:
        failed = sum(count for status, count in self.statuses.items() if status >= 500 and status != REFUSED)
        found = {
            "requests": len(self.seconds),
            "per_second": len(self.seconds) / self.spent,
            "p50_ms": _quantile(self.seconds, 0.5),
            "p99_ms": _quantile(self.seconds, 0.99),
            "errors": self.broken + failed,
            "refused": len(self.refused),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
        }
        if self.refused:
            found["refused_p99_ms"] = _quantile(self.refused, 0.99)
        return found


def _quantile(seconds: list[float], share: float) -> float:
    return 1000 * sorted(seconds)[int(share * (len(seconds) - 1))]


class _Connection(asyncio.Protocol):
    """One connection with one request at a time; answers are recognised by their length alone."""

    def __init__(self, answered: Callable[[_Connection, int], None], lost: Callable[[_Connection], None]) -> None:
        self._answered, self._lost = answered, lost
        self._buffer = b""
        self.transport: Any = None
        self.due = 0.0  # when the request was to be sent

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if found and len(body) >= int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]):
            self._buffer = b""
            self._answered(self, int(head[9:12]))

    def connection_lost(self, error: Exception | None) -> None:
        self._lost(self)


def post(path: str, body: Any) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    )
    return head.encode() + b"\r\n\r\n" + content


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def load(port: int, clients: int, seconds: float, requests: Requests) -> Outcome:
    """This many clients for this many seconds; one that is refused tries again a second later."""
    loop, outcome = asyncio.get_running_loop(), Outcome()
    started = time.perf_counter()
    ends = [loop.create_future() for _ in range(clients)]

    def send(one: _Connection, what: Iterator[bytes]) -> None:
        one.due = time.perf_counter()
        one.transport.write(next(what))

    def answered(what: Iterator[bytes], end: asyncio.Future[None], one: _Connection, status: int) -> None:
        now = time.perf_counter()
        outcome.note(status, now - one.due, now - started)
        if now - started >= seconds:
            end.set_result(None)
            one.transport.close()
        elif status == REFUSED:
            loop.call_later(_RETRY_SECONDS, send, one, what)
        else:
            send(one, what)

    def lost(end: asyncio.Future[None], one: _Connection) -> None:
        if not end.done():
            outcome.broken += 1
            end.set_result(None)

    for number, end in enumerate(ends):
        what = requests(number)
        client = partial(_Connection, partial(answered, what, end), partial(lost, end))
        _, one = await loop.create_connection(client, "127.0.0.1", port)
        send(one, what)
    await asyncio.gather(*ends)
    outcome.spent = time.perf_counter() - started
    return outcome


async def paced(port: int, rate: float, seconds: float, requests: Iterator[bytes], seed: int = 0) -> Outcome:
    """So many requests a second on average, at random times; each answer is timed from when its request was due."""
    crowd = _Crowd(port)
    await crowd.open(_CONNECTIONS)
    draw, now = random.Random(seed), time.perf_counter()
    crowd.started, due = now, now
    while (due := due + draw.expovariate(rate)) < crowd.started + seconds:
        while (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        await crowd.send(next(requests), due)
    await crowd.end()
    crowd.outcome.spent = seconds
    return crowd.outcome


_CONNECTIONS = 300  # at first; more are opened when all are waiting for an answer
_PATIENCE = 60.0  # seconds before an answer is taken for lost


class _Crowd:
    """Connections, as many as have a request under way."""

    def __init__(self, port: int) -> None:
        self.outcome = Outcome()
        self.started = 0.0
        self._port = port
        self._free: deque[_Connection] = deque()
        self._waiting: set[_Connection] = set()

    async def open(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(number):
            made = partial(_Connection, self._answered, self._lost)
            _, one = await loop.create_connection(made, "127.0.0.1", self._port)
            self._free.append(one)

    async def send(self, request: bytes, due: float) -> None:
        while self._free and self._free[-1].transport.is_closing():
            self._free.pop()  # the server has closed it: it was idle
        if not self._free:
            await self.open(1)
        one = self._free.pop()
        one.due = due
        self._waiting.add(one)
        one.transport.write(request)

    def _answered(self, one: _Connection, status: int) -> None:
        now = time.perf_counter()
        self.outcome.note(status, now - one.due, one.due - self.started)
        self._waiting.discard(one)
        self._free.append(one)

    def _lost(self, one: _Connection) -> None:
        if one in self._waiting:
            self._waiting.discard(one)
            self.outcome.broken += 1

    async def end(self) -> None:
        ends = time.perf_counter() + _PATIENCE
        while self._waiting and time.perf_counter() < ends:
            await asyncio.sleep(0.01)
        self.outcome.broken += len(self._waiting)
        for one in [*self._free, *self._waiting]:
            one.transport.abort()
        self._waiting.clear()
        await asyncio.sleep(0)
