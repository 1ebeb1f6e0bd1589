"""`milrec serve` and `milrec serve-demo`."""

from __future__ import annotations

import inspect
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milrec.cli.options import ModelClass, named_classes
from milrec.errors import SettingsError
from milrec.server.limits import Limits
from milrec.settings import build

if TYPE_CHECKING:
    from milrec.data.simulation import Simulation
    from milrec.server.copies import Folders
    from milrec.server.processes.plan import Plan

_NEEDED = ("fastapi", "uvicorn", "prometheus_client")


def limit_options(command: Callable[..., None]) -> Callable[..., None]:
    """The same command with one option for each field of `Limits`, in place of its argument `limits`."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    options = []
    for name, field in Limits.model_fields.items():
        (least,) = [one.ge for one in field.metadata]
        assert field.description is not None
        option = typer.Option(min=least, help=f"{field.description[0].upper()}{field.description[1:]}.")
        kind = Annotated[field.annotation, option]  # type: ignore[name-defined]
        options.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=kind))

    @wraps(command)
    def with_options(*arguments: Any, **values: Any) -> None:
        given = {name: values.pop(name) for name in Limits.model_fields if name in values}
        command(*arguments, **values, limits=build(Limits, given))

    parameters = [one for one in own if one.name != "limits"]
    with_options.__signature__ = inspect.Signature([*parameters, *options])  # type: ignore[attr-defined]
    return with_options


@limit_options
def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL...", help="Model folders: FOLDER or NAME=FOLDER. The first is the default."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8000,
    known: Annotated[
        Path | None, typer.Option(help="Data folder: items that users have or rejected there are never listed.")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="File with key hashes; /v1 then needs a key. Also: MILREC_KEYS.")
    ] = None,
    new_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Make a key, print it and its hash line once, and exit.")
    ] = None,
    open_metrics: Annotated[bool, typer.Option("--open-metrics", help="Let /metrics be read without a key.")] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host name to answer to, as a proxy passes it on; may be repeated."),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(help="Folder for the server's private copies of the models; by default beside each model."),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, max=64, help="How many processes serve; they share the socket and the models' memory.")
    ] = 1,
    together: Annotated[int, typer.Option(min=1, help="The most requests that are scored together.")] = 256,
    model_class: ModelClass = None,
    *,
    limits: Limits,
) -> None:
    """Serve models over HTTP: lists, reasons, similar items and search for programs, and a page for people.

    \b
    milrec serve model                       one model, on this machine only
    milrec serve mil=runs/mil ce=runs/ce     two, side by side on the page
    milrec serve --new-key shop >> keys.txt  show a key once, keep its hash
    milrec serve model --keys keys.txt --host 0.0.0.0

    Open http://127.0.0.1:8000: / is the page, /docs describes the API, /metrics is for Prometheus, /healthz and
    /readyz are for monitoring.

    The server serves a private copy of each folder: whatever happens to a folder, lists stay the same. To change a
    model, replace its folder (milrec fit --force, or a symbolic link), then send SIGHUP or POST
    /v1/models/NAME/reload. No request is dropped, and a damaged folder is refused.

    SIGTERM ends the process once the requests under way are answered. The log is JSON on standard error, one line
    per request.
    """
    if new_key is not None:
        return _show_new_key(new_key)
    check_packages()
    folders = named_folders(models or [])
    if not folders:
        raise SettingsError("say what to serve: milrec serve MODEL, one or more model folders")
    from milrec.server.copies import Folders
    from milrec.server.gate.keys import read_keys
    from milrec.server.process import bound
    from milrec.server.processes.plan import Plan
    from milrec.storage import open_folder

    accepted = read_keys(keys)
    for folder in folders.values():
        open_folder(folder, "model")
    taken = bound(host, port)
    hosts = _hosts(taken.getsockname()[0], bool(accepted), allow_host or [])
    plan = Plan(
        limits=limits,
        together=together,
        key_hashes=list(accepted.hashes),
        open_metrics=open_metrics,
        hosts=hosts,
        model_classes=model_class or [],
    )
    _serve(plan, Folders(folders, known, scratch), taken, processes)


def _hosts(address: str, has_keys: bool, more: list[str]) -> list[str] | None:
    from milrec.cli.output import note
    from milrec.server.gate.access import known_hosts

    if not has_keys and not ipaddress.ip_address(address).is_loopback:
        note(f"anyone who can reach {address} may use this server: there are no keys (--keys FILE)")
    found = known_hosts(address, has_keys, more)
    return None if found is None else sorted(found)


def _serve(plan: Plan, folders: Folders, taken: socket.socket, processes: int) -> None:
    from milrec.cli.output import say
    from milrec.server.process import serve_alone
    from milrec.server.processes.supervisor import serve_together

    def started(url: str) -> None:
        say(f"Serving {', '.join(folders.names)} at {url} (the page) and {url}/docs (the API). Press Ctrl-C to stop.")
        sys.stdout.flush()

    with _ended_by_sigterm():
        if processes == 1:
            serve_alone(plan, folders, named_classes(plan.model_classes), taken, started)
        else:
            serve_together(processes, plan, folders, taken, started)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends a server that is still starting: without a handler, the first process of a container ignores it."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def serve_part() -> None:
    """A process of a server that has several: the socket that all listen on, and the one to the supervisor."""
    taken, link = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    from milrec.server.processes.part import serve_part as serve

    serve(taken, link, named_classes)


def _show_new_key(name: str) -> None:
    from milrec.server.gate.keys import new_key

    key, line = new_key(name)
    sys.stderr.write(f"{key}\nKeep this key: it is not shown again. The line for the key file:\n")
    sys.stdout.write(line + "\n")


def check_packages() -> None:
    for name in _NEEDED:
        if find_spec(name) is None:
            raise SettingsError("serving needs more packages: pip install 'milrec[serve]'")


def named_folders(models: Sequence[str]) -> dict[str, Path]:
    """FOLDER or NAME=FOLDER → the folder of each name."""
    found: dict[str, Path] = {}
    for text in models:
        name, equals, folder = text.partition("=")
        if not equals or Path(text).exists():
            name, folder = Path(text).absolute().name, text
        if not name or "/" in name or not name.isprintable():
            raise SettingsError(f"'{name}' cannot be the name of a model; write NAME=FOLDER with a plain name")
        if name in found:
            raise SettingsError(f"two models are called '{name}'; name them: NAME=FOLDER")
        found[name] = Path(folder)
    return found


_DEMO: dict[str, tuple[str, dict[str, Any]]] = {  # a loss, and settings: the simulation has rejections for MIL's term
    "ce-point": ("pointwise", {}),
    "multinomial": ("multinomial", {}),
    "mil": ("mil", {"rejected_as": "rejected"}),
}


def serve_demo(
    out: Annotated[Path, typer.Option(help="Folder for the models; a second start finds them there.")] = Path(
        "milrec-serve-demo"
    ),
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8000,
) -> None:
    """Simulate a catalogue, fit three models to it and serve them: the explorer page in about a minute."""
    from milrec.server.process import bound

    check_packages()
    bound(host, port).close()  # if the address is taken, say so before the fits, not after
    serve([str(folder) for folder in demo_models(out)], host, port)


def demo_models(out: Path, simulation: Simulation | None = None, **values: Any) -> list[Path]:
    """The model folders of the demo; those that exist are kept, and an interrupted fit is resumed."""
    from milrec.cli.folder_fit import FolderFit
    from milrec.cli.output import say
    from milrec.data.simulation import Simulation, simulate
    from milrec.data.splits import split_interactions
    from milrec.storage import open_folder
    from milrec.training.presets import settings_for

    split = out / "split"
    if split.exists():
        open_folder(split, "split")
    else:
        say(f"Simulating a catalogue and fitting {len(_DEMO)} models → {out}")
        split_interactions(simulate(simulation or Simulation(), seed=0), seed=0).save(split)
    for name, (loss, own) in _DEMO.items():
        fit = FolderFit(split, out / name, settings_for(None, loss, {**own, **values}), seed=0)
        if fit.interrupted or not fit.out.exists():
            fit.run(resume=fit.interrupted, force=False)
    return [out / name for name in _DEMO]
