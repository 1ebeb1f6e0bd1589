"""A light load generator: each client keeps one connection and sends its next request once it has the whole answer."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

Requests = Callable[[int], Iterator[bytes]]  # what a client sends, by its number


@dataclass
class Outcome:
    """What came back."""

    seconds: list[float] = field(default_factory=list)  # of each answer
    statuses: Counter[int] = field(default_factory=Counter)
    broken: int = 0  # connections that ended before the whole answer had arrived
    spent: float = 0.0

    def figures(self) -> dict[str, Any]:
        ordered = sorted(self.seconds)
        return {
            "requests": len(ordered),
            "per_second": len(ordered) / self.spent,
            "p50_ms": 1000 * statistics.median(ordered),
            "p99_ms": 1000 * ordered[int(0.99 * (len(ordered) - 1))],
            "errors": self.broken + sum(count for status, count in self.statuses.items() if status >= 500),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
        }


class _Client(asyncio.Protocol):
    """One connection; answers are recognised by their length alone."""

    def __init__(self, requests: Iterator[bytes], until: float, outcome: Outcome, done: asyncio.Future[None]) -> None:
        self._requests, self._until, self._outcome, self._done = requests, until, outcome, done
        self._buffer = b""
        self._sent = 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]):
            return
        now = time.perf_counter()
        self._outcome.seconds.append(now - self._sent)
        self._outcome.statuses[int(head[9:12])] += 1
        self._buffer = b""
        if now < self._until:
            self._send()
        else:
            self._until = 0.0
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if self._until:
            self._outcome.broken += 1
        if not self._done.done():
            self._done.set_result(None)


def post(path: str, body: Any) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    )
    return head.encode() + b"\r\n\r\n" + content


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def load(port: int, clients: int, seconds: float, requests: Requests) -> Outcome:
    """This many clients for this many seconds."""
    loop, outcome = asyncio.get_running_loop(), Outcome()
    started = time.perf_counter()
    ends = [loop.create_future() for _ in range(clients)]

    def client(number: int) -> _Client:
        return _Client(requests(number), started + seconds, outcome, ends[number])

    for number in range(clients):
        await loop.create_connection(partial(client, number), "127.0.0.1", port)
    await asyncio.gather(*ends)
    outcome.spent = time.perf_counter() - started
    return outcome
