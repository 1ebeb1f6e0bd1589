"""milrec serve: the command, its process, its signals and its log."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from milrec.errors import SettingsError

if TYPE_CHECKING:
    from milrec.server.app import Server

_SWITCH_SECONDS = 0.0002  # not 0.005: so long the scoring thread would keep the one that talks to clients waiting
_THIS_MACHINE = frozenset({"127.0.0.1", "::1", "localhost"})


def known_hosts(address: str, keys: bool, more: Sequence[str]) -> frozenset[str] | None:
    """The names that the server may be asked by; None: any.

    Without keys, whoever reaches the port may ask. On a loopback address that is this machine alone, unless a page of
    another site makes its own name lead here; such a name is refused.
    """
    if not more and (keys or not ipaddress.ip_address(address).is_loopback):
        return None
    return _THIS_MACHINE | {address} | {name.lower() for name in more}


def bound(host: str, port: int) -> socket.socket:
    """The address, taken but not listening: nobody waits at a server that is still loading."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        taken = socket.socket(family, kind, protocol)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
    except (OSError, UnicodeError) as error:  # the latter: '..' is no name at all
        why = getattr(error, "strerror", None) or "not a name of a host"
        raise SettingsError(f"'{host}' port {port} cannot be listened on ({why}); choose another") from None
    return taken


def run(server: Server, taken: socket.socket) -> None:
    """Serve until a signal ends it."""
    import uvicorn

    from milrec.cli.output import say
    from milrec.server.app import create_app
    from milrec.server.middleware import JsonLines, log

    host, port = taken.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    names = [served.name for served in server.service.models]

    class Process(uvicorn.Server):
        """uvicorn's server with our signals: it ends with code 0, and SIGHUP reloads."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self.handle_exit, number, None)
            wanted = asyncio.Event()
            loop.add_signal_handler(signal.SIGHUP, wanted.set)
            reloading = loop.create_task(_reload_when(wanted, server, names))
            yield
            reloading.cancel()

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            log.info("serving", extra={"facts": {"address": address, "models": names, "keys": bool(server.keys)}})
            say(f"Serving {', '.join(names)} at {address} (the page), {address}/docs (the API); Ctrl-C ends it.")
            sys.stdout.flush()

    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    config = uvicorn.Config(
        create_app(server),
        loop="asyncio",  # uvloop leaves some of many connections waiting for seconds (docs/log.md)
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=int(server.limits.timeout) + 1,
    )
    sys.setswitchinterval(_SWITCH_SECONDS)
    Process(config).run([taken])
    log.info("stopped")


async def _reload_when(wanted: asyncio.Event, server: Server, names: Sequence[str]) -> None:
    """Reload all models whenever it is wanted; if it is again meanwhile, once more."""
    while await wanted.wait():
        wanted.clear()
        for name in names:
            with suppress(Exception):  # the log says it
                await server.reload(name, wait=True)
