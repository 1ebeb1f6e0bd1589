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
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milrec.errors import SettingsError
from milrec.limits import Limits

if TYPE_CHECKING:
    from milrec.serve import Server

_SWITCH_SECONDS = 0.0002  # not 0.005: so long the scoring thread would keep the one that talks to clients waiting
_THIS_MACHINE = frozenset({"127.0.0.1", "::1", "localhost"})
_UNSET = Limits()
_NEEDED = ("fastapi", "uvicorn", "prometheus_client")


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL...", help="Model folders, as FOLDER or NAME=FOLDER; the first is the default."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    known: Annotated[
        Path | None, typer.Option(help="Data folder: never list what users have or rejected there.")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="File with key hashes; all of /v1 then needs a key. Also: MILREC_KEYS.")
    ] = None,
    new_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Make a key, print it and its hash line once, and end.")
    ] = None,
    open_metrics: Annotated[bool, typer.Option("--open-metrics", help="Let /metrics be read without a key.")] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host name that a proxy passes on; may be given several times."),
    ] = None,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request body.")] = _UNSET.max_body,
    max_list: Annotated[int, typer.Option(min=1, help="Items in a list (n).")] = _UNSET.max_list,
    max_ids: Annotated[
        int, typer.Option(min=1, help="Ids in adopted, rejected, allow, exclude, each.")
    ] = _UNSET.max_ids,
    max_reasons: Annotated[int, typer.Option(min=0, help="Reasons for each item.")] = _UNSET.max_reasons,
    max_batch: Annotated[int, typer.Option(min=1, help="Requests in a batch.")] = _UNSET.max_batch,
    max_total: Annotated[
        int, typer.Option(min=1, help="n × (1 + reasons + rules), over all lists of a request.")
    ] = _UNSET.max_total,
    max_running: Annotated[
        int, typer.Option(min=1, help="Lists at a time; who asks for more is told to try again.")
    ] = _UNSET.max_running,
    timeout: Annotated[float, typer.Option(min=0.01, help="Seconds until a request is given up.")] = _UNSET.timeout,
    together: Annotated[int, typer.Option(min=1, help="Requests scored together at most.")] = 256,
) -> None:
    """Serve models over HTTP: lists, reasons, similar items and search for programs, a page for people.

    \b
    milrec serve model                       one model, on this machine only
    milrec serve mil=runs/mil ce=runs/ce     two, side by side on the page
    milrec serve --new-key shop >> keys.txt  shows a key once, keeps its hash
    milrec serve model --keys keys.txt --host 0.0.0.0

    Open http://127.0.0.1:8000: / is the page, /docs tells what can be asked, /metrics is for Prometheus, /healthz and
    /readyz are for whoever watches the process.

    A new model: replace the folder (milrec fit --force, or turn a link), then send SIGHUP or POST
    /v1/models/NAME/reload. No request is dropped, and a folder that is not whole is refused.

    SIGTERM ends the process when the requests under way are answered. The log is JSON on standard error, a line for
    each request.
    """
    from milrec.folders import open_folder
    from milrec.keys import new_key as make_key
    from milrec.keys import read_keys

    if new_key is not None:
        key, line = make_key(new_key)
        sys.stderr.write(f"{key}\nKeep this key; it is not shown again. The line for the key file:\n")
        sys.stdout.write(line + "\n")
        return
    check_packages()
    folders = named_folders(models or [])
    if not folders:
        raise SettingsError("say what to serve: milrec serve MODEL, one or more model folders")
    accepted = read_keys(keys)
    for folder in folders.values():
        open_folder(folder, "model")
    taken = bound(host, port)
    from milrec.measured import Measured
    from milrec.serve import Server
    from milrec.service import Service
    from milrec.show import note

    limits = Limits(
        max_body=max_body,
        max_list=max_list,
        max_ids=max_ids,
        max_reasons=max_reasons,
        max_batch=max_batch,
        max_total=max_total,
        max_running=max_running,
        timeout=timeout,
    )
    address = taken.getsockname()[0]
    if not accepted and not ipaddress.ip_address(address).is_loopback:
        note(f"whoever reaches {address} may ask: there are no keys (--keys FILE)")
    measured = Measured()
    service = Service(folders, together, known, measured.together.observe)
    hosts = known_hosts(address, bool(accepted), allow_host or ())
    run(Server(service, limits, accepted, measured, open_metrics, hosts), taken)


def check_packages() -> None:
    for name in _NEEDED:
        if find_spec(name) is None:
            raise SettingsError("serving needs further packages: pip install 'milrec[serve]'")


def named_folders(models: Sequence[str]) -> dict[str, Path]:
    """FOLDER or NAME=FOLDER → the folder of each name."""
    found: dict[str, Path] = {}
    for text in models:
        name, equals, folder = text.partition("=")
        if not equals or Path(text).exists():
            name, folder = Path(text).absolute().name, text
        if not name or "/" in name or not name.isprintable():
            raise SettingsError(f"'{name}' is not a name for a model; write NAME=FOLDER with a plain name")
        if name in found:
            raise SettingsError(f"two models are called '{name}'; name them: NAME=FOLDER")
        found[name] = Path(folder)
    return found


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

    from milrec.gate import JsonLines, log
    from milrec.serve import create_app
    from milrec.show import say

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
