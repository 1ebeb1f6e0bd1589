"""A socket that listens, as uvicorn does, with our limits on connections and no more files than the system allows."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from math import ceil
from typing import Any, cast

import uvicorn

from milrec.server.app import create_app
from milrec.server.gate.connection import Connection
from milrec.server.gate.connections import Connections
from milrec.server.gate.desk import Desk
from milrec.server.service import Server
from milrec.server.telemetry import log

_BACKLOG = 2048  # connections that wait to be accepted
_ACCEPTED = 128  # the most that are accepted before anything else is done
_OTHER_FILES = 256  # files and pipes that a server has open, generously


class Listener(uvicorn.Server):
    """Answers on a socket that has its address; `started` is called with the URL as soon as it does."""

    def __init__(self, server: Server, taken: socket.socket, started: Callable[[str], None]) -> None:
        limits, self._taken, self._started, self._server = server.limits, taken, started, server
        self._most = connections_allowed(limits.max_connections)
        config = uvicorn.Config(
            create_app(server),
            loop="asyncio",  # uvloop leaves some of many connections waiting for seconds (docs/log.md)
            http=cast(Any, self._connection),
            backlog=_ACCEPTED,
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

    def _connection(self, **given: Any) -> Connection:
        return Connection(self.connections, **given)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_note_loop_error)
        self.connections.watch(loop)
        await super().startup(sockets)
        self._taken.listen(_BACKLOG)  # asyncio has one number for this and for what it accepts at once
        if self._most < self._server.limits.max_connections:
            log.warning("the system allows fewer files", extra={"facts": {"max_connections": self._most}})
        host, port = self._taken.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        names = [served.name for served in self._server.registry.models]
        log.info("serving", extra={"facts": {"address": address, "models": names, "keys": bool(self._server.keys)}})
        self._started(address)


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


def _note_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """asyncio reports each connection that it cannot accept with a traceback, thousands of times a second."""
    error = context.get("exception")
    if isinstance(error, OSError) and "accept" in context["message"]:
        logging.getLogger("asyncio").warning("a connection cannot be accepted (%s)", error.strerror)
    else:
        loop.default_exception_handler(context)
