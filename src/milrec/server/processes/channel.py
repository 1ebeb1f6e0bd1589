"""What the processes of a server tell each other: JSON over a pair of sockets that nobody else can reach.

Each side may ask the other; answers come in any order. A message is its length in four bytes, and then its text.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from milrec.errors import BusyError, DataError, FolderError, MilrecError, SettingsError, UnknownIdError

Message = dict[str, Any]
Answer = Callable[[str, Message], Awaitable[Message]]  # what is asked, and with which values → what is answered

_LENGTH = struct.Struct("!I")
_KINDS = {kind.__name__: kind for kind in (BusyError, DataError, FolderError, SettingsError, UnknownIdError)}


class GoneError(Exception):
    """The process at the other end has ended."""


class Channel:
    """One end of a pair, in an event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> None:
        self._reader, self._writer, self._answer = reader, writer, answer
        self._asked: dict[int, asyncio.Future[Message]] = {}
        self._number = 0
        self._answering: set[asyncio.Task[None]] = set()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def over(cls, link: socket.socket, answer: Answer) -> Channel:
        reader, writer = await asyncio.open_connection(sock=link)
        return cls(reader, writer, answer)

    async def ask(self, what: str, **values: Any) -> Message:
        """What the other process answers; an error that it answers with is raised here."""
        self._number += 1
        number, future = self._number, asyncio.Future[Message]()
        if self._listening.done():
            raise GoneError
        self._asked[number] = future
        try:
            self._send({"ask": what, "number": number, "values": values})
            return await future
        finally:
            del self._asked[number]

    async def ended(self) -> None:
        """Wait until the other process has ended."""
        await asyncio.wait([self._listening])

    def close(self) -> None:
        for task in (self._listening, *self._answering):
            task.cancel()
        self._writer.close()

    async def _listen(self) -> None:
        try:
            while True:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                self._take(json.loads(await self._reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(GoneError())

    def _take(self, message: Message) -> None:
        if "ask" in message:
            task = asyncio.create_task(self._reply(message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        future = self._asked.get(message["number"])
        if future is None or future.done():
            return  # nobody waits for it any more
        if "error" in message:
            future.set_exception(_KINDS.get(message["kind"], FolderError)(message["error"]))
        else:
            future.set_result(message["values"])

    async def _reply(self, message: Message) -> None:
        number = message["number"]
        try:
            self._send({"number": number, "values": await self._answer(message["ask"], message["values"])})
        except Exception as error:
            self._send(refusal(number, error))

    def _send(self, message: Message) -> None:
        with suppress(ConnectionError):
            self._writer.write(in_bytes(message))


def refusal(number: int, error: Exception) -> Message:
    """The answer that there is none; an error that nobody expected is a sentence too."""
    sentence = str(error) if isinstance(error, MilrecError) else f"{type(error).__name__}: {error}"
    return {"number": number, "error": sentence, "kind": type(error).__name__}


def in_bytes(message: Message) -> bytes:
    text = json.dumps(message).encode()
    return _LENGTH.pack(len(text)) + text


def tell(link: socket.socket, message: Message) -> None:
    """A message from a process that has no event loop yet."""
    link.sendall(in_bytes(message))


def hear(link: socket.socket) -> Message:
    """The next message, for a process that has no event loop yet."""
    (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size))
    message: Message = json.loads(_exactly(link, length))
    return message


def _exactly(link: socket.socket, number: int) -> bytes:
    found = b""
    while len(found) < number:
        piece = link.recv(number - len(found))
        if not piece:
            raise GoneError
        found += piece
    return found
