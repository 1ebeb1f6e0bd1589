"""What every request passes through on its way in and out: ASGI layers that do one thing each (see `create_app`).

Those that ask who is calling are in access.py. A log line names the route and not the path, and never a body, a key
or an id: who asked for what stays private.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from milrec.errors import BusyError
from milrec.server.access import KEY_OWNER, header, refuse
from milrec.server.telemetry import Metrics, log

_REQUEST_ID = "milrec.request_id"
_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_SAFE_HEADERS = [
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
_RELOAD = re.compile(r"/v1/models/[^/]+/reload")


class AnswerHeaders:
    """Gives every answer its request's id (a proxy's, or a new one) and headers that keep browsers out of trouble."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._prefix, self._numbers = secrets.token_hex(4).encode(), itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = header(scope, b"x-request-id")
        request_id = given if _GIVEN_ID.fullmatch(given) else b"%s-%d" % (self._prefix, next(self._numbers))
        scope[_REQUEST_ID] = request_id.decode()
        caching = b"no-store" if scope["path"].startswith("/v1") else b"no-cache"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", [])
                names = {name.lower() for name, _ in own}
                more = [*_SAFE_HEADERS, (b"x-request-id", request_id), (b"cache-control", caching)]
                message = {**message, "headers": [*own, *(pair for pair in more if pair[0] not in names)]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


class RequestLog:
    """Counts and times every request, and writes one line about it to the log; failures of ours with a traceback."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, status = time.perf_counter(), _CLIENT_HAS_GONE

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._metrics.running.inc()
        try:
            await self._app(scope, receive, noting)
        except Exception:  # the app has answered already
            log.exception("failed", extra={"facts": {"id": scope[_REQUEST_ID]}})
        finally:
            self._metrics.running.dec()
            self._write(scope, status, time.perf_counter() - started)

    def _write(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests.labels(route, method, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        client = scope.get("client")
        facts = {
            "id": scope[_REQUEST_ID],
            "method": method,
            "route": route,
            "status": status,
            "ms": round(1000 * seconds, 2),
            "client": client[0] if client else None,
            "key": scope.get(KEY_OWNER),
        }
        log.info("request", extra={"facts": facts})


class ClientWatch:
    """Gives a request up when its client has gone before the answer began."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watched = _Watched(receive, send)
        try:
            await self._app(scope, watched.receive, watched.send)
        except asyncio.CancelledError:
            if not watched.client_has_gone:
                raise
        finally:
            watched.stop()


class _Watched:
    """A request whose client is watched; one that is answered quickly is not watched at all."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._reading = self._answering = False
        self._request = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_PATIENCE, self._begin)
        self.client_has_gone = False

    async def receive(self) -> Message:
        self._reading = True
        message = await self._receive()
        self._reading = message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        self._answering = True
        await self._send(message)

    def stop(self) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _begin(self) -> None:
        if self._reading:  # the app itself would learn that the client has gone
            self._timer = self._loop.call_later(_PATIENCE, self._begin)
        else:
            self._watcher = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._answering and self._request is not None:
            self.client_has_gone = True
            self._request.cancel()


class Capacity:
    """How many lists, or other requests, are being worked on."""

    def __init__(self) -> None:
        self.used = 0

    @contextmanager
    def take(self, number: int) -> Iterator[None]:
        self.used += number
        try:
            yield
        finally:
            self.used -= number

    def check(self, limit: int) -> None:
        if self.used > limit:
            raise BusyError("the server is busy; try again in a second")


class CapacityLimit:
    """Refuses API requests while as much as possible is being worked on already."""

    def __init__(self, app: ASGIApp, capacity: Capacity, limit: int) -> None:
        self._app, self._capacity, self._limit = app, capacity, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._capacity.take(1):
            try:
                if scope["path"].startswith("/v1/"):
                    self._capacity.check(self._limit)
            except BusyError as error:
                return await refuse(scope, receive, send, 503, str(error), retry_after="1")
            await self._app(scope, receive, send)


class BodyLimit:
    """Refuses a body that is too large, and reads no more than is allowed of one whose length is not declared."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app, self._limit = app, limit
        self._sentence = f"the request body is larger than {limit:,} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = header(scope, b"content-length")
        if length.isdigit() and int(length[:20]) > self._limit:
            return await refuse(scope, receive, send, 413, self._sentence, connection="close")
        n_read = 0

        async def receive_within_limit() -> Message:
            nonlocal n_read
            message = await receive()
            n_read += len(message.get("body", b""))
            if n_read > self._limit:
                raise HTTPException(413, self._sentence, {"connection": "close"})
            return message

        await self._app(scope, receive_within_limit, send)


class TimeLimit:
    """Gives up requests that take too long; but for a reload, which takes as long as its folder is large."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app, self._seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST" and _RELOAD.fullmatch(scope["path"]):
            return await self._app(scope, receive, send)
        answering = False

        async def noting(message: Message) -> None:
            nonlocal answering
            answering = True
            await send(message)

        try:
            async with asyncio.timeout(self._seconds) as limit:
                await self._app(scope, receive, noting)
        except TimeoutError:
            if not limit.expired():
                raise
            if not answering:  # half an answer cannot be taken back
                sentence = f"there was no answer within {self._seconds:g} seconds; ask for less, or try again"
                await refuse(scope, receive, send, 503, sentence, retry_after="1")
