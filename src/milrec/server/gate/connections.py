"""All connections, within limits: when there are too many, the one that was idle for longest makes way for a new one.

So silent clients lock nobody out. What has been waiting for its client for too long is closed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING

from milrec.server.gate.admission import BUSY, Capacity
from milrec.server.limits import Limits
from milrec.server.telemetry import Metrics, log

if TYPE_CHECKING:
    from milrec.server.gate.connection import Connection
    from milrec.server.gate.desk import Desk

_ENDING_SECONDS = 2.0  # for a client to read why it was refused, before its connection is closed
_UNREAD_SECONDS = 1.0  # that a client may leave an answer unread while others wait to get in
_BODY_GRACE_SECONDS = 5.0  # the app gives up first, and says so
_LOG_SECONDS = 10.0


class Phase(Enum):
    """What a connection is doing; if it is closed in this phase, the reason that is counted."""

    ENDING = "refused"  # with an answer that says why
    OPEN = "silent"  # nothing has arrived yet
    HEADERS = "slow headers"
    IDLE = "idle"  # between two requests
    BODY = "slow body"
    ANSWER = "slow answer"  # a request is complete, its answer is not


class Connections:
    """All connections of a server, by what they are doing; in each phase, the longest there comes first."""

    def __init__(self, limits: Limits, capacity: Capacity, metrics: Metrics, desk: Desk, most: int) -> None:
        """`most` is the number that can be open at a time: no more than the system has file handles for."""
        self.limits, self.capacity, self.metrics, self.desk, self._most = limits, capacity, metrics, desk, most
        self.arriving = 0  # bytes of bodies that are not complete
        self._phases: dict[Phase, dict[Connection, float]] = {phase: {} for phase in Phase}
        self._seconds = {
            Phase.ENDING: _ENDING_SECONDS,
            Phase.OPEN: limits.header_timeout,
            Phase.HEADERS: limits.header_timeout,
            Phase.IDLE: limits.idle_timeout,
            Phase.BODY: limits.timeout + _BODY_GRACE_SECONDS,
        }
        self._closed: Counter[str] = Counter()
        self._logged_at = 0.0
        metrics.connections.set_function(self.__len__)
        metrics.arriving.set_function(lambda: self.arriving)

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
        candidates = chain(
            self._phases[Phase.ENDING], (one for one, _ in longest), self._phases[Phase.BODY], self._unread()
        )
        found = next(candidates, None)
        if found is not None:
            found.drop("made way")
        return found is not None

    def _unread(self) -> Iterator[Connection]:
        """Connections whose client has not read its answers for a while, the longest first."""
        since = {one: one.unread_since for one in self._phases[Phase.ANSWER]}
        waiting = [(start, one) for one, start in since.items() if start is not None]
        return (
            one for start, one in sorted(waiting, key=lambda pair: pair[0]) if one.loop.time() - start > _UNREAD_SECONDS
        )

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
