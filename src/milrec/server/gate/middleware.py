"""What every request passes through on its way in and out: ASGI layers that do one thing each (see `create_app`).

Those that ask who is calling are in access.py, and how much there is to do in admission.py. A log line names the route
and not the path, and never a body, a key or an id: who asked for what stays private.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import re
import secrets
import time
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from milrec.server.batcher import STOPPING
from milrec.server.gate.access import KEY_OWNER, Headers, Refusal, headers_of, refuse
from milrec.server.gate.admission import RELOAD, RETRY_SECONDS
from milrec.server.telemetry import Metrics, log, note_request

_REQUEST_ID = "milrec.request_id"
_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
SAFE_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
        b"form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_METHODS = ("GET", "HEAD", "POST", "OPTIONS")
_CLIENT_HAS_GONE = 499
_PATIENCE = 0.25  # seconds before we start to watch whether the client is still there


class RequestIds:
    """The id of each request: a proxy's, or a new one."""

    def __init__(self) -> None:
        self._prefix, self._numbers = secrets.token_hex(4).encode(), itertools.count(1)

    def of(self, headers: Headers) -> bytes:
        given = headers.get(b"x-request-id")
        return given if given and _GIVEN_ID.fullmatch(given) else b"%s-%d" % (self._prefix, next(self._numbers))


class AnswerHeaders:
    """Gives every answer the id of its request, and headers that keep browsers out of trouble."""

    def __init__(self, app: ASGIApp, ids: RequestIds) -> None:
        self._app, self._ids = app, ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = self._ids.of(headers_of(scope))
        scope[_REQUEST_ID] = request_id.decode()
        caching = b"no-store" if scope["path"].startswith("/v1") else b"no-cache"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", [])
                names = {name.lower() for name, _ in own}
                more = [*SAFE_HEADERS, (b"x-request-id", request_id), (b"cache-control", caching)]
                message = {**message, "headers": [*own, *(pair for pair in more if pair[0] not in names)]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


class Ledger:
    """Counts and times requests, and writes one line about each to the log."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._figures_of = cache(self._figures)

    def note(self, request: Request) -> None:
        count, observe = self._figures_of(request.route, request.method, request.status)
        count()
        observe(request.seconds)
        note_request(
            {
                "id": request.id,
                "method": request.method,
                "route": request.route,
                "status": request.status,
                "ms": round(1000 * request.seconds, 2),
                "client": request.client,
                "key": request.key,
            }
        )

    def _figures(self, route: str, method: str, status: int) -> tuple[Callable[[], None], Callable[[float], None]]:
        """What counts and what times requests of one kind, looked up once."""
        count, time = self.metrics.requests.labels(route, method, str(status)), self.metrics.seconds.labels(route)
        return count.inc, time.observe


class Request(NamedTuple):
    """A request that has been answered, or given up."""

    id: str
    method: str
    route: str
    status: int
    seconds: float
    client: str | None
    key: str | None  # whose it is


class RequestLog:
    """The ASGI layer that notes every request, and failures of ours with a traceback."""

    def __init__(self, app: ASGIApp, ledger: Ledger) -> None:
        self._app, self._ledger, self._running = app, ledger, ledger.metrics.running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, status = time.perf_counter(), _CLIENT_HAS_GONE

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._running.inc()
        try:
            await self._app(scope, receive, noting)
        except asyncio.CancelledError:  # the server stops, and has waited for long enough
            if status == _CLIENT_HAS_GONE:
                await refuse(scope, receive, noting, Refusal(503, STOPPING, {"retry-after": RETRY_SECONDS}))
        except Exception:  # the app has answered already
            log.exception("failed", extra={"facts": {"id": scope[_REQUEST_ID]}})
        finally:
            self._running.dec()
            self._ledger.note(_request(scope, status, time.perf_counter() - started))


def _request(scope: Scope, status: int, seconds: float) -> Request:
    method = scope["method"] if scope["method"] in _METHODS else "other"
    route = getattr(scope.get("route"), "path", "none")
    client = scope.get("client")
    return Request(
        scope[_REQUEST_ID], method, route, status, seconds, client[0] if client else None, scope.get(KEY_OWNER)
    )


class Patience:
    """Gives a request up when its client has gone before the answer began, or when it takes too long.

    A reload takes as long as its folder is large. One timer is all that a request costs that is answered quickly.
    """

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app, self._seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_reload = scope["method"] == "POST" and RELOAD.fullmatch(scope["path"]) is not None
        watched = _Watched(receive, send, math.inf if is_reload else self._seconds)
        try:
            await self._app(scope, watched.receive, watched.send)
        except asyncio.CancelledError:
            if watched.given_up is None:
                raise
            watched.request.uncancel()
            if watched.given_up is not _GONE:
                await self._refuse(scope, receive, send, watched.given_up)
        finally:
            watched.stop()

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, reason: str) -> None:
        if reason is _NOT_ARRIVED:
            sentence = f"the request did not arrive within {self._seconds:g} seconds"
            return await refuse(scope, receive, send, Refusal(408, sentence, {"connection": "close"}))
        sentence = f"there was no answer within {self._seconds:g} seconds; ask for less, or try again"
        headers = {"retry-after": RETRY_SECONDS, "connection": "close"}
        await refuse(scope, receive, send, Refusal(503, sentence, headers))


_GONE, _NOT_ARRIVED, _NOT_ANSWERED = "gone", "not arrived", "not answered"


class _Watched:
    """A request, and how long it has been under way; one that is answered quickly is not watched at all."""

    def __init__(self, receive: Receive, send: Send, seconds: float) -> None:
        self._receive, self._send, self._seconds = receive, send, seconds
        self._reading = self._answering = False
        self._arrived = False
        self.request = cast("asyncio.Task[None]", asyncio.current_task())
        self._watcher: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._timer = self._loop.call_at(self._began + min(_PATIENCE, seconds), self._look)
        self.given_up: str | None = None

    async def receive(self) -> Message:
        self._reading = True
        message = await self._receive()
        self._reading = message.get("more_body", False)
        self._arrived = not self._reading
        return message

    async def send(self, message: Message) -> None:
        self._answering = True  # half an answer cannot be taken back; how long it may take is up to the connection
        await self._send(message)

    def stop(self) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _look(self) -> None:
        """Ask from time to time whether it is too late; once the body has arrived, also whether the client is there."""
        now = self._loop.time()
        if self._answering:
            return
        if now >= self._began + self._seconds:
            return self._give_up(_NOT_ANSWERED if self._arrived else _NOT_ARRIVED)
        if not self._reading and self._watcher is None:  # while it reads, the app itself would learn that it has gone
            self._watcher = self._loop.create_task(self._watch())
        later = now + _PATIENCE if self._watcher is None else math.inf
        if min(later, self._began + self._seconds) < math.inf:
            self._timer = self._loop.call_at(min(later, self._began + self._seconds), self._look)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._answering:
            self._give_up(_GONE)

    def _give_up(self, reason: str) -> None:
        if self.given_up is None:
            self.given_up = reason
            self.request.cancel()
