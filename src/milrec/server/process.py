"""The process of a server: its address, its signals and its log."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from milrec.errors import SettingsError

if TYPE_CHECKING:
    from milrec.server.service import Server

_SWITCH_SECONDS = 0.0002  # not 0.005: the scoring thread would keep the one that talks to clients waiting for so long


def bound(host: str, port: int) -> socket.socket:
    """A socket with this address that does not listen yet: no client waits for a server that is still loading."""
    with ExitStack() as undone:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            taken = undone.enter_context(socket.socket(family, kind, protocol))
            if os.name == "posix":  # on Windows this would let two servers share a port
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(address)
        except (OSError, UnicodeError) as error:  # the latter: '..' is not a name at all
            raise SettingsError(_why_not(host, port, error)) from None
        undone.pop_all()
    return taken


def _why_not(host: str, port: int, error: OSError | UnicodeError) -> str:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return f"port {port} is in use; choose another `port`"
    if number == errno.EACCES:
        return f"you may not use port {port}; choose a `port` from 1024 up"
    why = getattr(error, "strerror", None) or "not a host name"
    return f"the server cannot listen on '{host}' ({why}); choose another `host`"


def run(server: Server, taken: socket.socket, started: Callable[[str], None]) -> None:
    """Serve until a signal ends it; `started` is called with the server's URL as soon as it answers."""
    from uvicorn.server import HANDLED_SIGNALS

    from milrec.server.listener import Listener
    from milrec.server.registry import settle_memory
    from milrec.server.telemetry import log

    names = [served.name for served in server.registry.models]

    class Process(Listener):
        """A listener with our signals: those that end it end it with code 0, and SIGHUP reloads the models."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            loop, wanted = asyncio.get_running_loop(), asyncio.Event()
            handlers: dict[int, Any] = dict.fromkeys(HANDLED_SIGNALS, self.handle_exit)
            if hasattr(signal, "SIGHUP"):  # not on Windows
                handlers[signal.SIGHUP] = lambda *_: loop.call_soon_threadsafe(wanted.set)
            reloading = loop.create_task(_reload_when(wanted, server, names))
            with _handled(handlers):
                yield
            reloading.cancel()

    _write_log()
    settle_memory()
    server.registry.after_reload = settle_memory
    sys.setswitchinterval(_SWITCH_SECONDS)
    Process(server, taken, started).run([taken])
    log.info("stopped")


def _write_log() -> None:
    """The log: a line of JSON for each event, on standard error."""
    from milrec.server.telemetry import JsonLines, Seldom

    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    handler.addFilter(Seldom())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


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


async def _reload_when(wanted: asyncio.Event, server: Server, names: Sequence[str]) -> None:
    """Reload all models when this is wanted, and once more if it is wanted again meanwhile."""
    while await wanted.wait():
        wanted.clear()
        for name in names:
            with suppress(Exception):  # the log has it
                await server.reload(name, wait=True)
