"""Phases of a talk to a server in which something happens beside right requests, which must be answered throughout."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import shutil
import signal
import socket
import struct
from typing import Any

from torture.served import LIMIT, MODELS, Client, post
from torture.talk import Talk, all_of, ask_right
from torture.verdicts import REFUSED

_SILENT = 1_100  # connections, more than a process may have open by default


async def silent(talk: Talk, size: int) -> None:
    """Connections that say nothing lock nobody out."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2 * _SILENT), most))
    sockets = []
    try:
        for _ in range(min(_SILENT, most - 100)):
            with contextlib.suppress(OSError):
                sockets.append(socket.create_connection(("127.0.0.1", talk.served.port), timeout=5))
        await _let_in(talk)
    finally:
        for one in sockets:
            one.close()
    await _let_in(talk)
    await ask_right(talk, size // 4)


async def _let_in(talk: Talk) -> None:
    """Ask until there is a list, as a patient client would; TimeoutError if that takes too long."""
    raw, expected = talk.chance.choice(talk.right)
    async with asyncio.timeout(LIMIT):
        while (answer := await Client(talk.served.port).ask(raw)).status in (None, 503):
            talk.counts[REFUSED] += 1
            await asyncio.sleep(0.2)
    talk.judge(raw, answer, expected)


async def slow(talk: Talk, size: int) -> None:
    """Clients that send a byte now and then."""

    async def trickle() -> None:
        raw = talk.chance.choice(talk.right)[0]
        with contextlib.suppress(ConnectionError, TimeoutError):
            _, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", talk.served.port), 10)
            for place in range(30):
                writer.write(raw[place : place + 1])
                await asyncio.sleep(0.05)
            writer.close()

    await all_of(ask_right(talk, size), *(trickle() for _ in range(50)))


async def aborted(talk: Talk, size: int) -> None:
    """Clients that hang up as soon as they have asked."""
    for number in range(size // 2):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", talk.served.port), timeout=5) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw = talk.chance.choice(talk.right)[0]
            one.sendall(raw if number % 2 else raw[: len(raw) // 2])
        talk.counts[REFUSED] += 1
    await ask_right(talk, size // 4)


async def reload(talk: Talk, size: int) -> None:
    """Models are loaded again under load."""

    async def again() -> None:
        client = Client(talk.served.port)
        for _ in range(4):
            await _reloaded(talk, client, talk.chance.choice(MODELS), (200,))
        await client.close()

    await all_of(ask_right(talk, size), again())


async def hangup(talk: Talk, size: int) -> None:
    """SIGHUP, several times and under load."""

    async def signals() -> None:
        for _ in range(4):
            talk.served.process.send_signal(signal.SIGHUP)
            await asyncio.sleep(0.1)

    await all_of(ask_right(talk, size), signals())


async def overwrite(talk: Talk, size: int) -> None:
    """The served folder is overwritten in place, file by file, by bytes that are no model; then it is put right."""
    name = talk.chance.choice(MODELS)
    folder = talk.served.folders[name]
    kept = {path: path.read_bytes() for path in sorted(folder.iterdir())}

    async def spoil() -> None:
        for path, content in kept.items():
            with path.open("r+b") as file:
                file.write(talk.chance.randbytes(len(content)))
                if talk.chance.random() < 0.5:
                    file.truncate(talk.chance.choice((0, len(content) // 2)))
            await asyncio.sleep(0.02)

    await all_of(ask_right(talk, size), spoil())
    client = Client(talk.served.port)
    await _reloaded(talk, client, name, (409,))
    await ask_right(talk, size // 4)
    for path, content in kept.items():
        path.write_bytes(content)
    await _reloaded(talk, client, name, (200,))
    await client.close()
    await ask_right(talk, size // 4)


async def replace(talk: Talk, size: int) -> None:
    """The served folder is replaced by rename, as our own commands do, and loaded again."""
    name = talk.chance.choice(MODELS)
    folder = talk.served.folders[name]

    async def again() -> None:
        client = Client(talk.served.port)
        for _ in range(3):
            fresh, old = folder.with_name("fresh"), folder.with_name("old")
            shutil.copytree(folder, fresh)
            folder.rename(old)
            fresh.rename(folder)
            shutil.rmtree(old)
            await _reloaded(talk, client, name, (200,))
        await client.close()

    await all_of(ask_right(talk, size), again())


async def _reloaded(talk: Talk, client: Client, name: str, statuses: tuple[int, ...]) -> None:
    raw = post(f"/v1/models/{name}/reload", {})
    answer = await client.ask(raw)
    if answer.status not in (*statuses, 503):
        return talk.fail("wrong answer", f"status {answer.status} for a reload: {answer.body[:300]!r}", raw)
    return talk.judge(raw, answer)


PHASES: dict[str, Any] = {
    "silent": silent, "slow": slow, "aborted": aborted, "reload": reload, "hangup": hangup, "overwrite": overwrite,
    "replace": replace,
}  # fmt: skip
