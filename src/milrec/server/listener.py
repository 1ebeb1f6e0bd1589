"""A socket that listens, as uvicorn does, with our signals and limits, and no more files than the system allows."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import ceil
from typing import Any, ClassVar, cast

import uvicorn
from uvicorn.server import HANDLED_SIGNALS

from milrec.server.app import create_app
from milrec.server.gate.connection import Connection
from milrec.server.gate.connections import Connections
from milrec.server.gate.desk import Desk
from milrec.server.process import Started, address_of
from milrec.server.service import Server
from milrec.server.telemetry import log

_BACKLOG = 2048  # connections that wait to be accepted
_ACCEPTED = 128  # the most that are accepted before anything else is done
_OTHER_FILES = 256  # files and pipes that a server has open, generously


class Listener(uvicorn.Server):
    """Answers on a socket that has its address; `started` is called with the URL as soon as it does.

    The signals that end a process end it with code 0, and SIGHUP reloads the models.
    """

    accepted_at_once: ClassVar[int] = _ACCEPTED

    def __init__(self, server: Server, taken: socket.socket, started: Started) -> None:
        limits, self._taken, self._started, self._server = server.limits, taken, started, server
        self._most = connections_allowed(limits.max_connections)
        config = uvicorn.Config(
            create_app(server),
            loop="asyncio",  # uvloop leaves some of many connections waiting for seconds (docs/log.md)
            http=cast(Any, self._connection),
            backlog=self.accepted_at_once,
            timeout_keep_alive=ceil(limits.idle_timeout),
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=ceil(limits.timeout) + 3,  # after what is too slow has been given up
        )
        super().__init__(config)
        desk = Desk(server, cast(str, config.forwarded_allow_ips))
        self.connections = Connections(limits, server.capacity, server.metrics, desk, self._most)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run([_Listening(fileno=self._taken.detach())])

    def _connection(self, **given: Any) -> Connection:
        return Connection(self.connections, **given)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_note_loop_error)
        self.connections.watch(loop)
        await super().startup(sockets)
        if self._most < self._server.limits.max_connections:
            log.warning("the system allows fewer files", extra={"facts": {"max_connections": self._most}})
        self._started(address_of(cast("list[socket.socket]", sockets)[0]))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop, wanted = asyncio.get_running_loop(), asyncio.Event()
        handlers: dict[int, Any] = dict.fromkeys(HANDLED_SIGNALS, self.handle_exit)
        if hasattr(signal, "SIGHUP"):  # not on Windows
            handlers[signal.SIGHUP] = lambda *_: loop.call_soon_threadsafe(wanted.set)
        reloading = loop.create_task(_reload_when(wanted, self._server))
        with _handled(handlers):
            yield
        reloading.cancel()


class _Listening(socket.socket):
    """asyncio has one number for how many connections wait and for how many it accepts at once; it means the latter."""

    def listen(self, backlog: int = 0, /) -> None:
        super().listen(_BACKLOG)


def connections_allowed(wanted: int) -> int:
    """How many connections may be open: as many as are wanted, or as many as there are file handles for.

    The limit on open files is raised to what is needed, as far as the system lets us.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + 2 * _ACCEPTED + _OTHER_FILES
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):  # macOS: the kernel's own limit is lower still
            most = soft
    return min(wanted, max(most - 2 * _ACCEPTED - _OTHER_FILES, most // 4))


@contextmanager
def _handled(handlers: dict[int, Any]) -> Iterator[None]:
    """Our own signal handlers for a while: plain ones, as every system has them. Only the main thread may set any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


async def _reload_when(wanted: asyncio.Event, server: Server) -> None:
    """Reload all models when this is wanted, and once more if it is wanted again meanwhile."""
    while await wanted.wait():
        wanted.clear()
        for name in [served.name for served in server.registry.models]:
            with suppress(Exception):  # the log has it
                await server.reload(name, wait=True)


def _note_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """asyncio reports each connection that it cannot accept with a traceback, thousands of times a second."""
    error = context.get("exception")
    if isinstance(error, OSError) and "accept" in context["message"]:
        logging.getLogger("asyncio").warning("a connection cannot be accepted (%s)", error.strerror)
    else:
        loop.default_exception_handler(context)
