"""The process of a server: its address and its log; a server of one process as a whole."""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from milrec.errors import SettingsError

if TYPE_CHECKING:
    from milrec.server.copies import Folders
    from milrec.server.processes.plan import Plan
    from milrec.server.registry import Registry

Started = Callable[[str], None]  # called with a server's URL as soon as it answers

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


def address_of(taken: socket.socket) -> str:
    """The URL of a server that listens here."""
    host, port = taken.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve_alone(
    plan: Plan, folders: Folders, models: Sequence[type[Any]], taken: socket.socket, started: Started
) -> None:
    """Serve with this process alone, until a signal ends it."""
    from milrec.server.listener import Listener
    from milrec.server.registry import Registry
    from milrec.server.service import Server
    from milrec.server.telemetry import Metrics, log

    def serving(url: str) -> None:
        log.info("serving", extra={"facts": {"address": url, "models": folders.names, "keys": bool(plan.keys)}})
        started(url)

    metrics = Metrics()
    registry = Registry(folders, plan.together, metrics.together.observe, models)
    try:
        server = Server(registry, plan.limits, plan.keys, metrics, plan.open_metrics, plan.known_hosts)
        set_up(registry)
        Listener(server, taken, serving).run([taken])
        log.info("stopped")
    finally:
        registry.release()


def set_up(registry: Registry, number: int | None = None) -> None:
    """Make this process one that does nothing but serve; `number` is which of several it is."""
    from milrec.server.registry import settle_memory

    write_log(number)
    settle_memory()
    registry.after_reload = settle_memory
    sys.setswitchinterval(_SWITCH_SECONDS)


def write_log(number: int | None = None) -> None:
    """The log: a line of JSON for each event, on standard error."""
    from milrec.server.telemetry import JsonLines, Seldom

    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(number))
    handler.addFilter(Seldom())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
