"""What every request passes through on its way in and out: ASGI layers that do one thing each (see `create_app`).

Those that ask who is calling are in access.py, and how much there is to do in admission.py. A log line names the route
and not the path, and never a body, a key or an id: who asked for what stays private.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from milrec.server.batcher import STOPPING
from milrec.server.gate.access import KEY_OWNER, header, refuse
from milrec.server.gate.admission import RELOAD, RETRY_SECONDS
from milrec.server.telemetry import Metrics, log

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
                more = [*SAFE_HEADERS, (b"x-request-id", request_id), (b"cache-control", caching)]
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
        except asyncio.CancelledError:  # the server stops, and has waited for long enough
            if status == _CLIENT_HAS_GONE:
                await refuse(scope, receive, noting, 503, STOPPING, retry_after=RETRY_SECONDS)
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


class TimeLimit:
    """Gives up requests that take too long; but for a reload, which takes as long as its folder is large."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app, self._seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST" and RELOAD.fullmatch(scope["path"]):
            return await self._app(scope, receive, send)
        arrived = False

        async def noting_arrival() -> Message:
            nonlocal arrived
            message = await receive()
            arrived = not message.get("more_body", False)
            return message

        async def noting_answer(message: Message) -> None:
            limit.reschedule(None)  # half an answer cannot be taken back; how long it may take is up to the connection
            await send(message)

        try:
            async with asyncio.timeout(self._seconds) as limit:
                await self._app(scope, noting_arrival, noting_answer)
        except TimeoutError:
            if not limit.expired():
                raise
            await self._give_up(scope, receive, send, arrived)

    async def _give_up(self, scope: Scope, receive: Receive, send: Send, arrived: bool) -> None:
        if not arrived:
            sentence = f"the request did not arrive within {self._seconds:g} seconds"
            return await refuse(scope, receive, send, 408, sentence, connection="close")
        sentence = f"there was no answer within {self._seconds:g} seconds; ask for less, or try again"
        await refuse(scope, receive, send, 503, sentence, retry_after=RETRY_SECONDS, connection="close")
