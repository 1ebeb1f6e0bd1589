"""Servers in tests: an app that is asked directly, and a process of its own."""

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import httpx

from milrec.lists.query import Query
from milrec.server.gate.connections import Connections
from milrec.server.gate.keys import Keys
from milrec.server.limits import Limits
from milrec.server.listener import Listener
from milrec.server.process import bound
from milrec.server.registry import Registry
from milrec.server.service import Server
from pausing import LONG, Pause

TASTE = {"adopted": ["i001"]}


class Client:
    """Requests to an app, one after another, without a process."""

    def __init__(self, app, raises: bool = True) -> None:
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=raises)

    def request(self, method: str, path: str, **values) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://test") as client:
                return await client.request(method, path, **values)

        return asyncio.run(ask())

    def get(self, path: str, **values) -> httpx.Response:
        return self.request("GET", path, **values)

    def post(self, path: str, **values) -> httpx.Response:
        return self.request("POST", path, **values)


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in sorted(folder.iterdir())}


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def as_json(answer) -> list[dict]:
    """The items of an answer of the library, as the server sends them."""
    return [
        {
            **{name: value for name, value in one._asdict().items() if name != "number"},
            "item": str(one.item),
            "reasons": [{**r._asdict(), "item": str(r.item)} for r in one.reasons],
        }
        for one in answer.items
    ]


def refused(answer: httpx.Response) -> str:
    """The sentence of a refusal."""
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
    body = json.loads(answer.content)
    assert list(body) == ["error"] and isinstance(body["error"], str)
    assert 8 < len(body["error"]) < 1_000 and "\n" not in body["error"] and "Traceback" not in body["error"]
    return body["error"]


def post(client, path, body) -> httpx.Response:
    return client.post(path, content=json.dumps(body).encode(), headers={"content-type": "application/json"})


def figures(text: str) -> dict[str, float]:
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


class Here(NamedTuple):
    """A server in this process, on a real socket."""

    port: int
    server: Server
    connections: Connections

    def connection(self, receive_buffer: int | None = None) -> socket.socket:
        link = socket.socket()
        link.settimeout(LONG)
        if receive_buffer is not None:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        link.connect(("127.0.0.1", self.port))
        return link

    def said(self, *pieces: bytes) -> bytes:
        """All that the server answers until it closes the connection."""
        with self.connection() as link:
            with contextlib.suppress(ConnectionError):  # it has stopped listening, and said why
                for piece in pieces:
                    link.sendall(piece)
            return rest_of(link)

    def closed(self, reason: str) -> float:
        """How many connections the server has closed for this reason."""
        return self.server.metrics.registry.get_sample_value("milrec_connections_closed_total", {"reason": reason}) or 0


def rest_of(link: socket.socket) -> bytes:
    """What arrives on a connection until it is closed."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := link.recv(65_536):
            found += piece
    return found


def request(path: str, body: object = None, *headers: str, end: bool = True) -> bytes:
    """A request as it is sent; `end`: the last one of its connection."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = ["GET" if body is None else "POST", f" {path} HTTP/1.1\r\nHost: localhost\r\n"]
    lines += [f"{header}\r\n" for header in headers] + (["Connection: close\r\n"] if end else [])
    if body is not None:
        lines.append(f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n")
    return "".join(lines).encode() + b"\r\n" + content


def answers_of(registry: Registry, *queries: Query) -> list[dict]:
    """What the first model of a registry answers when it is asked for all of this at once."""

    async def ask() -> list[str]:
        return await asyncio.gather(*(registry.batcher.answer(registry.model(None), query) for query in queries))

    return [json.loads(text) for text in asyncio.run(ask())]


def statuses(answers: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", answers)]


@contextlib.contextmanager
def listening(registry: Registry, limits: Limits | None = None, keys: Keys | None = None):
    server = Server(registry, limits or Limits(), keys or Keys())
    taken, ready = bound("127.0.0.1", 0), threading.Event()
    port = taken.getsockname()[1]
    listener = Listener(server, taken, lambda _: ready.set())
    listener.config.lifespan = "off"  # other tests have the same models
    thread = threading.Thread(target=listener.run, args=([taken],), daemon=True)
    thread.start()
    assert ready.wait(LONG)
    try:
        yield Here(port, server, listener.connections)
    finally:
        listener.should_exit = True
        thread.join(LONG)


class Running:
    """A server in a process of its own."""

    def __init__(self, *arguments, wait: bool = True, pause: Pause | None = None, begin=("-m", "milrec")) -> None:
        command = [sys.executable, *begin, "serve", "--port", "0", *map(str, arguments)]
        environment = {**(os.environ if pause is None else pause.environment)}
        environment.pop("MILREC_KEYS", None)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.log: list[str] = []
        self._grown = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = 0
        if wait:
            line = self.process.stdout.readline()
            assert line, self.ended()[1]
            place = re.search(r"at http://127\.0\.0\.1:(\d+)", line)
            assert place, line
            self.port = int(place[1])
            self.url = f"http://127.0.0.1:{self.port}"

    def _read(self) -> None:
        for line in self.process.stderr:
            with self._grown:
                self.log.append(line)
                self._grown.notify_all()

    def ended(self) -> tuple[int, str]:
        code = self.process.wait(LONG)
        self._reader.join(LONG)
        return code, "".join(self.log)

    def events(self, name: str, **facts) -> list[dict]:
        found = [line for line in map(json.loads, list(self.log)) if line["event"] == name]
        return [line for line in found if facts.items() <= line.items()]

    def until(self, name: str, number: int, **facts) -> list[dict]:
        """Wait for so many log lines of a kind."""
        with self._grown:
            assert self._grown.wait_for(lambda: len(self.events(name, **facts)) >= number, LONG), self.log
        return self.events(name, **facts)

    def first_words(self) -> str:
        with self._grown:
            assert self._grown.wait_for(lambda: self.log, LONG)
        return self.log[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()


@contextlib.contextmanager
def running(*arguments, **how):
    server = Running(*arguments, **how)
    try:
        yield server
    finally:
        server.kill()


def turn(place: Path, target: str) -> None:
    (place / "new").symlink_to(target)
    (place / "new").replace(place / "live")


def until_ready(client: httpx.Client) -> None:
    """A server that had no moment for a second is asked again: the machine may be busy."""
    ends = time.monotonic() + LONG
    while (answer := client.get("/readyz")).status_code == 503 and time.monotonic() < ends:
        pass
    assert answer.json() == {"status": "ready"}
