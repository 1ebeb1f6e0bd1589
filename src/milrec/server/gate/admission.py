"""How much work is taken on: what would have to wait too long is refused at once, so that the rest is answered in time.

By Little's law, the work under way is done after (lists under way) / (lists per second). The lists per second are
measured when something has been refused, for only then is the server known to be working as fast as it can.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from milrec.errors import BusyError
from milrec.server.gate.access import Refusal, headers_of, refuse
from milrec.server.limits import Limits

BUSY = "the server is busy; try again in a second"
RETRY_SECONDS = "1"
RELOAD = re.compile(r"/v1/models/[^/]+/reload")
_FIRST_LIMIT = 64.0  # lists under way, until the first measurement: making 64 takes hardly longer than making one
_REMEMBERED_SECONDS = 1.0
_TRUST = 0.5  # in a measurement, as against those before it


class Capacity:
    """How many lists, or other requests, are being worked on, and how many can be before new ones wait too long."""

    def __init__(self, limits: Limits, portion_seconds: Callable[[], float]) -> None:
        """`portion_seconds` is what a portion of work takes: a request waits that long even if little is ahead."""
        self._limits, self._portion_seconds = limits, portion_seconds
        self.used = 0
        self.arrived = 0  # requests that are complete, and about to be taken on in this turn of the event loop
        self.limit = _FIRST_LIMIT
        self._measuring = False
        self._measured_from = self._refused_at = -math.inf
        self._done = 0  # since then

    @contextmanager
    def take(self, number: int) -> Iterator[None]:
        self.used += number
        try:
            yield
        finally:
            self.give_back(number)

    def give_back(self, number: int) -> None:
        """So many have been done, or given up."""
        self.used -= number
        if self._measuring:
            self._measure(number)

    def forget_arrived(self) -> None:
        """What had arrived has been taken on by now, or refused."""
        self.arrived = 0

    def full(self, more: int = 0) -> bool:
        """Whether there is too much to do already, with some more; asked of each request, and noted if it is so."""
        if self.used + more < self._limit():
            return False
        self._note_refusal()
        return True

    def check(self, number: int, own: int = 0) -> None:
        """Refuse to take on so many lists more, for a request that has taken some of its own already."""
        if self.used + number > self._limits.max_running or self.used - own >= self._limit():
            self._note_refusal()
            raise BusyError(BUSY)

    def _limit(self) -> float:
        """A measurement that found the server slow holds while there is too much to do, and is then forgotten."""
        if self.limit < _FIRST_LIMIT and time.monotonic() - self._refused_at > _REMEMBERED_SECONDS:
            self.limit = _FIRST_LIMIT
        return min(self.limit, self._limits.max_running)

    def _note_refusal(self) -> None:
        self._refused_at = time.monotonic()
        if not self._measuring:
            self._measuring, self._measured_from = True, -math.inf

    def _measure(self, number: int) -> None:
        """Count what is done, from the end of one request to the end of another: they come in bursts."""
        now, wait = time.monotonic(), self._limits.max_wait + self._portion_seconds()
        spent = now - self._measured_from
        if spent > max(4 * wait, _REMEMBERED_SECONDS):  # it begins here, or again: there was nothing to do
            self._measured_from, self._done = now, 0
            return
        self._done += number
        if spent >= wait:
            self.limit = max((1 - _TRUST) * self.limit + _TRUST * wait * self._done / spent, 1.0)
            self._measuring = False


class Admission:
    """Lets a request in once its body has arrived and while there is not too much to do; a reload is always let in.

    A client that sends its body slowly takes up nothing but its connection.
    """

    def __init__(self, app: ASGIApp, capacity: Capacity, max_body: int) -> None:
        self._app, self._capacity, self._max_body = app, capacity, max_body
        self._too_large = f"the request body is larger than {max_body:,} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_work = scope["path"].startswith("/v1/") and not RELOAD.fullmatch(scope["path"])
        if is_work and self._capacity.full():
            return await self._busy(scope, receive, send)
        try:
            body = await self._body(scope, receive)
        except _TooLargeError:
            return await refuse(scope, receive, send, Refusal(413, self._too_large))
        if body is None:
            return  # the client has gone
        if not is_work:
            return await self._app(scope, _starting_with(body, receive), send)
        try:
            self._capacity.check(1)
        except BusyError:
            return await self._busy(scope, receive, send)
        with self._capacity.take(1):
            await self._app(scope, _starting_with(body, receive), send)

    async def _busy(self, scope: Scope, receive: Receive, send: Send) -> None:
        await refuse(scope, receive, send, Refusal(503, BUSY, {"retry-after": RETRY_SECONDS}))

    async def _body(self, scope: Scope, receive: Receive) -> Message | None:
        """The whole body as one message, and no more of it than is allowed, whatever its header says."""
        length = headers_of(scope).get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > self._max_body:
            raise _TooLargeError
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._max_body:
                raise _TooLargeError
        return {"type": "http.request", "body": bytes(body), "more_body": False}


class _TooLargeError(Exception):
    pass


def _starting_with(message: Message, receive: Receive) -> Receive:
    """One message, with the whole body, and then whatever the server has to say."""
    waiting = [message]

    async def receive_from_here() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_from_here
