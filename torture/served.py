"""A real `milrec serve` process, and raw connections to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torture.bases import Bases
from torture.commands import kill_group, started
from torture.workers import OwnFault

LIMIT = 60.0  # seconds for an answer
MODELS = ("dae", "ease")


@dataclass(frozen=True)
class Answer:
    """What came back: no status if the connection was closed without one."""

    status: int | None
    headers: dict[str, str]
    body: bytes


class Served:
    """A server of two models, from copies of their folders."""

    def __init__(self, place: Path, bases: Bases) -> None:
        self.place = place
        self.folders = {name: place / f"served-{name}" for name in MODELS}
        for name, folder in self.folders.items():
            shutil.copytree(bases.model(name), folder)
        models = [f"{name}={folder}" for name, folder in self.folders.items()]
        self.log = place / "server"
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most))  # as most systems have it
        self.process = started(["serve", *models, "--port", "0"], place, self.log)
        self.port = self._port()

    def _port(self) -> int:
        until = time.monotonic() + LIMIT
        while time.monotonic() < until and self.process.poll() is None:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", self.log.with_suffix(".out").read_text()):
                return int(found[1])
            time.sleep(0.05)
        raise OwnFault(f"the server does not start: {self.said()[-1000:]}")

    def said(self) -> str:
        return self.log.with_suffix(".err").read_text(encoding="utf-8", errors="replace")

    def ended(self) -> int | None:
        """Ask it to end; its code, or None if it does not."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(Exception):
            return self.process.wait(LIMIT)
        return None

    def kill(self) -> None:
        kill_group(self.process.pid)
        self.process.wait()


class Client:
    """A connection that is kept, and opened again when the server has closed it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, raw: bytes) -> Answer:
        """Send a whole request and wait for its answer; TimeoutError if there is none in time."""
        for fresh in (False, True):
            if self._streams is None or fresh:
                await self.close()
                self._streams = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", self.port), LIMIT)
            reader, writer = self._streams
            with contextlib.suppress(ConnectionError):
                writer.write(raw)
                answer = await asyncio.wait_for(read_answer(reader, raw.startswith(b"HEAD")), LIMIT)
                if answer.headers.get("connection") == "close" or answer.status is None:
                    await self.close()
                if answer.status is not None or fresh:
                    return answer
        return Answer(None, {}, b"")

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            with contextlib.suppress(ConnectionError, TimeoutError):
                await asyncio.wait_for(self._streams[1].wait_closed(), 5)
            self._streams = None


async def read_answer(reader: asyncio.StreamReader, headless: bool = False) -> Answer:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return Answer(None, {}, b"")
    lines = head.decode("latin-1").split("\r\n")
    status = int(lines[0].split(" ")[1])
    pairs = [line.partition(":") for line in lines[1:] if line]
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if headless:
        return Answer(status, headers, b"")
    if headers.get("transfer-encoding") == "chunked":
        return Answer(status, headers, await _chunks(reader))
    try:
        return Answer(status, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
    except asyncio.IncompleteReadError:
        return Answer(None, {}, b"")


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)


async def send_raw(port: int, raw: bytes, then_close: bool = True) -> Answer:
    """Send bytes that may be no request at all on a connection of their own, and see what comes back."""
    reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), LIMIT)
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(raw)
            if then_close:
                writer.write_eof()
            await asyncio.wait_for(writer.drain(), LIMIT)
            return await asyncio.wait_for(read_answer(reader, raw.startswith(b"HEAD")), LIMIT)
        return Answer(None, {}, b"")
    finally:
        writer.close()


def post(path: str, body: Any, *headers: str) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8", "surrogatepass")
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    lines.append(f"Content-Length: {len(content)}")
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + content


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode("latin-1", "replace")
