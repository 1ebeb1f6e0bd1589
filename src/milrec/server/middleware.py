"""What every request passes: host, key, limits, time-out; and on its way out: safe headers, a log line, the figures.

A log line names the route and not the path, never a body, a key or an id: who asks for what is nobody's business.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.exceptions import HTTPException

from milrec.server.keys import Keys
from milrec.server.requests import Limits
from milrec.server.telemetry import Measured

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("milrec.server.app")

_HEADERS = {
    b"content-security-policy": b"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    b"form-action 'self'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
}
_PROBES = ("/healthz", "/readyz")  # asked by address, whatever the server is called
_PATIENCE = 0.25  # seconds until it is watched whether the client is still there
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class Refused(HTTPException):
    """A request that is not let in: a status and a sentence."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(status, sentence, {name.replace("_", "-"): value for name, value in headers.items()})


class Room:
    """How many lists, or other requests, are being worked on."""

    def __init__(self) -> None:
        self.taken = 0

    @contextmanager
    def take(self, number: int) -> Iterator[None]:
        self.taken += number
        try:
            yield
        finally:
            self.taken -= number

    def check(self, limit: int) -> None:
        if self.taken > limit:
            raise Refused(503, "the server is busy; try again in a second", retry_after="1")


@dataclass
class _Sent:
    """What has gone out so far of an answer."""

    status: int | None = None


class _Inward:
    """The body of a request, but not more of it than is allowed, whatever its head said."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._limit = receive, limit
        self._read = 0
        self.reading = False  # whether the app waits for more of the body

    async def __call__(self) -> Message:
        self.reading = True
        message = await self._receive()
        self.reading = message.get("more_body", False)
        self._read += len(message.get("body", b""))
        if self._read > self._limit:
            raise Refused(413, _too_large(self._limit), connection="close")
        return message

    async def end(self) -> None:
        """Wait until the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class _Watch:
    """Gives a request up when its client has gone; one that is answered at once is not watched at all."""

    def __init__(self, inward: _Inward, sent: _Sent) -> None:
        self._inward, self._sent = inward, sent
        self._request = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_PATIENCE, self._begin)
        self.gone = False

    def _begin(self) -> None:
        if self._inward.reading:
            self._timer = self._loop.call_later(_PATIENCE, self._begin)
        else:
            self._watcher = self._loop.create_task(self._wait())

    async def _wait(self) -> None:
        await self._inward.end()
        if self._sent.status is None and self._request is not None:
            self.gone = True
            self._request.cancel()

    def stop(self) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()


class Gate:
    """The outermost layer of the server."""

    def __init__(
        self,
        app: App,
        keys: Keys,
        limits: Limits,
        measured: Measured,
        open_metrics: bool,
        hosts: frozenset[str] | None,
        room: Room,
    ) -> None:
        self._app, self._keys, self._limits, self._measured = app, keys, limits, measured
        self._open_metrics, self._hosts, self._room = open_metrics, hosts, room
        self._prefix, self._numbers = secrets.token_hex(4).encode(), itertools.count(1)  # of requests without an id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        started, sent = time.perf_counter(), _Sent()
        headers = {name.lower(): value for name, value in scope["headers"]}
        given = headers.get(b"x-request-id", b"")
        request_id = given if _REQUEST_ID.fullmatch(given) else b"%s-%d" % (self._prefix, next(self._numbers))
        outward = _outward(send, sent, request_id, scope["path"])
        owner: str | None = None
        inward = _Inward(receive, self._limits.max_body)
        watch = _Watch(inward, sent)
        self._measured.running.inc()
        try:
            with self._room.take(1):
                owner = self._admitted(scope, headers)
                async with asyncio.timeout(None if _takes_its_time(scope) else self._limits.timeout):
                    await self._app(scope, inward, outward)
        except Refused as refused:
            await _refuse(outward, sent, refused)
        except TimeoutError:
            sentence = f"there was no answer within {self._limits.timeout:g} seconds; ask for less or try again"
            await _refuse(outward, sent, Refused(503, sentence, retry_after="1"))
        except asyncio.CancelledError:
            if not watch.gone:
                raise
        except Exception:  # answered in the app already; said here, once
            log.exception("failed", extra={"facts": {"id": request_id.decode()}})
        finally:
            watch.stop()
            self._measured.running.dec()
            self._note(scope, sent, request_id, owner, time.perf_counter() - started)

    def _admitted(self, scope: Scope, headers: dict[bytes, bytes]) -> str | None:
        """The owner of the key, where one is needed."""
        path, owner = scope["path"], None
        self._refuse_strangers(headers, path)
        guarded = path.startswith("/v1/") or path == "/v1" or (path == "/metrics" and not self._open_metrics)
        if self._keys and guarded:
            key = _key(headers)
            if key is None:
                raise Refused(
                    401,
                    "this server needs a key: send it as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'",
                    www_authenticate="Bearer",
                )
            owner = self._keys.owner(key)
            if owner is None:
                raise Refused(401, "this key is not known to the server", www_authenticate="Bearer")
        if path.startswith("/v1/"):
            self._room.check(self._limits.max_running)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self._limits.max_body:
            raise Refused(413, _too_large(self._limits.max_body), connection="close")
        return owner

    def _refuse_strangers(self, headers: dict[bytes, bytes], path: str) -> None:
        """Keep pages of other sites out: those in the same browser, and those that give our address another name."""
        host = _name_of(headers.get(b"host", b"").decode("latin-1"))
        if self._hosts is not None and host not in self._hosts and path not in _PROBES:
            raise Refused(421, f"this server is not known as '{host[:100]}'; start it with --allow-host NAME")
        if path.startswith("/v1/") and headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
            raise Refused(403, "pages of other sites may not ask this server")

    def _note(self, scope: Scope, sent: _Sent, request_id: bytes, owner: str | None, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        status = sent.status or 499  # nothing went out: the client has gone
        known = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "OPTIONS") else "other"
        self._measured.requests.labels(route, known, str(status)).inc()
        self._measured.seconds.labels(route).observe(seconds)
        client = scope.get("client")
        facts = {
            "id": request_id.decode(),
            "method": known,
            "route": route,
            "status": status,
            "ms": round(1000 * seconds, 2),
            "client": client[0] if client else None,
            "key": owner,
        }
        log.info("request", extra={"facts": facts})


def _name_of(host: str) -> str:
    """The name in a Host header, without its port."""
    name, bracket, _ = host.partition("]")
    return name.removeprefix("[") if bracket else host.partition(":")[0].lower()


def _key(headers: dict[bytes, bytes]) -> str | None:
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    key = token.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"").strip()
    return key.decode("latin-1") or None


def _too_large(limit: int) -> str:
    return f"the request body is larger than {limit:,} bytes"


def _takes_its_time(scope: Scope) -> bool:
    """A reload: it lasts as long as the folder is large, and goes on whoever waits for it."""
    return bool(scope["method"] == "POST" and re.fullmatch(r"/v1/models/[^/]+/reload", scope["path"]))


def _outward(send: Send, sent: _Sent, request_id: bytes, path: str) -> Send:
    async def outward(message: Message) -> None:
        if message["type"] == "http.response.start":
            sent.status = message["status"]
            own = {name.lower() for name, _ in message.get("headers", [])}
            more = {**_HEADERS, b"x-request-id": request_id}
            more[b"cache-control"] = b"no-store" if path.startswith("/v1") else b"no-cache"
            extra = [(name, value) for name, value in more.items() if name not in own]
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return outward


async def _refuse(send: Send, sent: _Sent, refused: Refused) -> None:
    """Say what is wrong, unless an answer is half out already."""
    if sent.status is not None:
        return
    body = json.dumps({"error": refused.detail}).encode()
    more = [(name.encode(), value.encode()) for name, value in (refused.headers or {}).items()]
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": refused.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class JsonLines(logging.Formatter):
    """Each log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
