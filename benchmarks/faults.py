"""What a soak does to a server: ordinary requests, and faults. Each kind says which answers are right."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import shutil
import signal
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.load import REFUSED, get, post
from benchmarks.served import N_ITEMS

GONE = 0  # the connection was closed without an answer
_SETTLED = 1.0  # seconds after a burst in which other requests may still be refused
_LONG = 90.0  # seconds: an answer that takes longer is taken for a hang
_NO_HTTP = (
    b"hello\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    bytes(range(256)),
    b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
)
_NO_REQUESTS: tuple[Any, ...] = (
    {},
    [],
    {"user": "nobody"},
    {"user": "x" * 100_000},
    {"adopted": ["nothing"]},
    {"adopted": [], "n": 0},
    {"adopted": [], "dial": "much"},
    {"adopted": [], "rules": [{"tail": "fat"}]},
)


@dataclass
class Tally:
    """What was answered, by kind of request; what should not have been, and the first of it in full."""

    answers: dict[str, Counter[int]] = field(default_factory=dict)
    wrong: int = 0
    examples: list[str] = field(default_factory=list)
    burst_ends: float = 0.0  # until then, any request may be refused
    reloading: bool = False  # so there are two models in memory

    def note(self, kind: str, status: int, expected: tuple[int, ...], said: bytes = b"") -> None:
        self.answers.setdefault(kind, Counter())[status] += 1
        if status not in expected and not (status == REFUSED and time.monotonic() < self.burst_ends):
            self.complain(f"{kind}: {status} {said[:200]!r}")

    def complain(self, what: str) -> None:
        self.wrong += 1
        if len(self.examples) < 20:
            self.examples.append(what)


@dataclass(frozen=True)
class Target:
    """The server that is being tried: where it is, which folder it serves, and what may be listed."""

    port: int
    process: int
    folder: Path
    sources: tuple[Path, ...]  # sound folders that take each other's place
    users: list[str]
    tally: Tally
    known: set[bytes]  # the lists of one request, by any of the sources


class Client:
    """A client with one connection, which it opens again when the server has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """The status and body of an answer; a request that an idle connection loses is sent again, once."""
        kept = self._streams is not None
        status, body = await self._once(request)
        return await self._once(request) if status == GONE and kept else (status, body)

    async def _once(self, request: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        try:
            writer.write(request)
            async with asyncio.timeout(_LONG):
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                body = await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r")[0]))
        except (ConnectionError, asyncio.IncompleteReadError):
            self.close()
            return GONE, b""
        if b"connection: close" in head:
            self.close()
        return int(head[9:12]), body

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Client]:
    client = Client(target.port)
    try:
        yield client
    finally:
        client.close()


def mixed(users: list[str], number: int) -> Iterator[tuple[str, bytes, tuple[int, ...]]]:
    """Every kind of sound request, and the answers that are right."""
    for turn in itertools.count(number * 977):
        user, item = users[turn % len(users)], str(turn * 31 % N_ITEMS)
        rules = [{"tail": "long", "at_least": "30%"}]
        yield "list", post("/v1/recommend", {"user": user, "n": 1 + turn % 200, "dial": turn % 7 / 5}), (200,)
        yield "list", post("/v1/recommend", {"adopted": [item, str(turn % 100)], "reasons": 3}), (200,)
        yield "list", post("/v1/recommend", {"user": user, "rules": rules, "exclude": [item]}), (200,)
        yield "batch", post("/v1/recommend/batch", {"requests": [{"user": user}, {"user": "nobody"}]}), (200,)
        yield "search", get(f"/v1/models/live/items?search={turn % 100}"), (200,)
        yield "similar", get(f"/v1/models/live/items/{item}/similar"), (200,)
        yield "user", get(f"/v1/models/live/users/{user}"), (200,)
        yield "nothing there", get(f"/nothing/{turn}"), (404,)


async def ask_mixed(target: Target, number: int) -> None:
    async with connected(target) as client:
        for kind, request, expected in mixed(target.users, number):
            status, body = await client.ask(request)
            target.tally.note(kind, status, expected, body)
            await asyncio.sleep(0.05)


async def watch_lists(target: Target) -> None:
    """The same request over and over: its list is always one of those that the sound folders give."""
    request = post("/v1/recommend", {"user": target.users[0], "n": 50})
    async with connected(target) as client:
        while True:
            status, body = await client.ask(request)
            target.tally.note("same list", status, (200,), body)
            if status == 200 and items_of(body) not in target.known:
                target.tally.complain(f"a list that no model gives: {body[:200]!r}")
            target.tally.note("health", (await client.ask(get("/healthz")))[0], (200,))
            await asyncio.sleep(0.2)


def items_of(body: bytes) -> bytes:
    return json.dumps(json.loads(body)["items"]).encode()


async def send_nonsense(target: Target) -> None:
    for text, body in zip(itertools.cycle(_NO_HTTP), itertools.cycle(_NO_REQUESTS), strict=False):
        async with connected(target) as client:
            status, said = await client.ask(text)
            target.tally.note("not HTTP", status, (400, 431, GONE), said)
        async with connected(target) as client:
            status, said = await client.ask(post("/v1/recommend", body))
            target.tally.note("wrong request", status, (422,), said)
        await asyncio.sleep(0.3)


async def hang_up(target: Target) -> None:
    """Clients that go away: after the request, in its middle, and with a reset."""
    whole = post("/v1/recommend", {"user": target.users[1], "n": 100})
    for sent in itertools.cycle((whole, whole[:-5], whole[:30], b"")):
        link = socket.create_connection(("127.0.0.1", target.port))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        link.sendall(sent)
        await asyncio.sleep(0.1)
        link.close()
        target.tally.note("hung up", GONE, (GONE,))


async def dawdle(target: Target) -> None:
    """Clients that send slowly, do not end their request, or do not read the answer."""
    whole = post("/v1/recommend", {"user": target.users[2]})
    while True:
        async with connected(target) as client:
            status, said = await client.ask(whole[:-1])
            target.tally.note("slow body", status, (408,), said)
        async with connected(target) as client:
            status, said = await client.ask(b"GET /healthz HTTP/1.1\r\nX")
            target.tally.note("slow headers", status, (408,), said)
        with socket.socket() as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.setblocking(False)
            with suppress(BlockingIOError):
                link.connect(("127.0.0.1", target.port))
            await asyncio.sleep(0.1)
            with suppress(OSError):
                link.send(get("/openapi.json") * 500)
            await asyncio.sleep(5)
            target.tally.note("does not read", GONE, (GONE,))


async def stay_silent(target: Target) -> None:
    """Two hundred connections at a time that say nothing."""
    while True:
        links = [socket.create_connection(("127.0.0.1", target.port)) for _ in range(200)]
        await asyncio.sleep(2)
        for link in links:
            link.close()
        target.tally.note("silent", GONE, (GONE,))


async def overload(target: Target) -> None:
    """Now and then a burst of more than the server can do: it may refuse part of it."""

    async def one(number: int) -> None:
        async with connected(target) as client:
            user = target.users[number % len(target.users)]
            status, said = await client.ask(post("/v1/recommend", {"user": user}))
            target.tally.note("burst", status, (200, 503), said)

    while True:
        await asyncio.sleep(20)
        target.tally.burst_ends = math.inf
        await asyncio.gather(*(one(number) for number in range(300)))
        target.tally.burst_ends = time.monotonic() + _SETTLED


async def change_models(target: Target) -> None:
    """Reloads after replacements, with SIGHUP and by request; and the folder overwritten in place, which is refused."""
    async with connected(target) as client:
        for source in itertools.cycle(target.sources):
            target.tally.reloading = True
            await asyncio.to_thread(_replace, source, target.folder)
            status, said = await client.ask(post("/v1/models/live/reload", {}))
            target.tally.note("reload", status, (200, 409), said)  # 409: one by SIGHUP is under way
            await asyncio.sleep(0.5)
            target.tally.reloading = False
            await asyncio.sleep(2)
            await asyncio.to_thread(_overwrite, target.folder)
            status, said = await client.ask(post("/v1/models/live/reload", {}))
            target.tally.note("reload of a spoilt folder", status, (409,), said)
            os.kill(target.process, signal.SIGHUP)
            await asyncio.sleep(2)


def _replace(source: Path, live: Path) -> None:
    fresh, old = live.with_name("fresh"), live.with_name("old")
    shutil.copytree(source, fresh)
    live.rename(old)
    fresh.rename(live)
    shutil.rmtree(old)


def _overwrite(live: Path) -> None:
    for number, file in enumerate(sorted(live.iterdir())):
        if number % 2:
            os.truncate(file, 100)
        else:
            file.write_bytes(os.urandom(1_000))


EVERYTHING = (watch_lists, send_nonsense, hang_up, dawdle, stay_silent, overload, change_models)
