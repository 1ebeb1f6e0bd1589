"""Plain requests for short lists, answered as they arrive: a single one at once, and several that came, together.

For such a list, a task and a stack of layers, or the way to another thread and back, cost as much as the list itself.
Whatever is unusual about a request, or about the moment, lets it go the usual way, through the app: only answers with
status 200 are given here, and they are the same.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from milrec.errors import MilrecError
from milrec.server.gate.access import Headers, Refusal
from milrec.server.gate.middleware import Request
from milrec.server.requests import RecommendBody, read_request

if TYPE_CHECKING:
    from milrec.server.batcher import Outcome
    from milrec.server.model import Served
    from milrec.server.service import Server

LISTS = "/v1/recommend"
_LONG = 250  # items, reasons and rules, or ids, of a request that others should not wait for
_AT_ONCE = 64  # lists that are made together


class Caller(Protocol):
    """A connection that a request came in by."""

    scope: Any

    def reply(self, request_id: bytes, content: bytes) -> None:
        """Send the answer."""

    def go_the_usual_way(self) -> None:
        """Let the app answer the request."""


@dataclass(frozen=True, eq=False)
class _Waiting:
    caller: Caller
    request_id: bytes
    owner: str | None  # of its key
    client: str | None
    served: Served
    body: RecommendBody
    since: float


class Desk:
    """The requests that wait for their lists, and those whose lists are being made."""

    def __init__(self, server: Server, trusted_proxies: str) -> None:
        self._server, self._batcher = server, server.registry.batcher
        self._waiting: dict[Caller, _Waiting] = {}
        self._making: dict[Caller, _Waiting] = {}
        self._proxies = ProxyHeadersMiddleware(cast(Any, _nothing), trusted_proxies)

    def take(self, caller: Caller, headers: Headers, content: bytes) -> bool:
        """Whether a request is answered here; if not, it is to go the usual way."""
        if headers.get(b"content-type") != b"application/json" or len(content) > self._server.limits.max_body:
            return False
        if not self._making and not self._batcher.idle:
            return False  # there is no telling how long the other work takes
        visitor = self._server.access.visitor(LISTS, headers)
        if isinstance(visitor, Refusal):
            return False
        try:
            body = read_request(json.loads(content), self._server.limits)
            served = self._server.registry.model(body.model)
        except (MilrecError, ValueError, RecursionError):
            return False
        if not served.quick or body.size > _LONG or body.n_ids > _LONG:
            return False
        if not self._waiting and not self._making:
            asyncio.get_running_loop().call_soon(self._begin)
        self._server.capacity.used += 1
        self._server.metrics.running.inc()
        client = self._client_of(caller.scope, headers)
        self._waiting[caller] = _Waiting(
            caller, self._server.ids.of(headers), visitor.owner, client, served, body, time.perf_counter()
        )
        return True

    def give_back(self, caller: Caller) -> None:
        """Let go of a request, if there is one."""
        if (self._waiting.pop(caller, None) or self._making.pop(caller, None)) is not None:
            self._done()

    def _begin(self) -> None:
        """Make the lists that wait: a single one at once, several in the other thread while more requests arrive."""
        first = next(iter(self._waiting.values()), None)
        if first is None or self._making:
            return
        together = [one for one in self._waiting.values() if one.served is first.served][:_AT_ONCE]
        for one in together:
            self._making[one.caller] = self._waiting.pop(one.caller)
        queries = [one.body.query for one in together]
        try:
            if len(together) == 1:
                return self._end(together, self._batcher.answer_now(first.served, queries))
            if self._batcher.idle:
                making = self._batcher.call(partial(self._batcher.outcomes, first.served, queries))
                return making.add_done_callback(partial(self._made, asyncio.get_running_loop(), together))
        except MilrecError:  # the server is stopping
            pass
        self._end(together, None)

    def _made(self, loop: asyncio.AbstractEventLoop, together: list[_Waiting], making: Future[list[Outcome]]) -> None:
        """The other thread has done its work."""
        with suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(self._end, together, making.result())

    def _end(self, together: list[_Waiting], outcomes: list[Outcome] | None) -> None:
        """Give the answers out; requests without one go the usual way."""
        found: Sequence[Outcome | None] = outcomes or [None] * len(together)
        for one, outcome in zip(together, found, strict=True):
            if self._making.pop(one.caller, None) is None:
                continue  # it was given back
            if isinstance(outcome, str):
                self._reply(one, outcome.encode())
            else:
                self._done()
                one.caller.go_the_usual_way()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._begin)

    def _reply(self, one: _Waiting, content: bytes) -> None:
        one.caller.reply(one.request_id, content)
        self._done()
        seconds = time.perf_counter() - one.since
        self._server.ledger.note(Request(one.request_id.decode(), "POST", LISTS, 200, seconds, one.client, one.owner))

    def _done(self) -> None:
        self._server.capacity.give_back(1)
        self._server.metrics.running.dec()

    def _client_of(self, scope: Any, headers: Headers) -> str | None:
        """The address of the client, or what a proxy that is trusted says of it, as uvicorn understands it."""
        if b"x-forwarded-for" in headers:
            with suppress(StopIteration):  # it waits for nothing
                self._proxies(scope, cast(Any, None), cast(Any, None)).send(None)
        client = scope["client"]
        return client[0] if client else None


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    pass
