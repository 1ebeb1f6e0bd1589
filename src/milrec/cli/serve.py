"""`milrec serve` and `milrec serve-demo`."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milrec.errors import SettingsError
from milrec.server.process import bound, known_hosts, run
from milrec.server.requests import Limits

if TYPE_CHECKING:
    pass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milrec.data.simulation import Simulation

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
    from milrec.server.keys import new_key as make_key
    from milrec.server.keys import read_keys
    from milrec.storage import open_folder

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
    from milrec.cli.output import note
    from milrec.server.app import Server
    from milrec.server.registry import Service
    from milrec.server.telemetry import Measured

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


_LOSSES = {"ce-point": "pointwise", "multinomial": "multinomial", "mil": "mil"}


def serve_demo(
    out: Annotated[Path, typer.Option(help="Folder for the models; a second start finds them there.")] = Path(
        "milrec-serve-demo"
    ),
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
) -> None:
    """Simulate a catalogue, fit three models to it and serve them: the explorer page in about a minute."""
    check_packages()
    bound(host, port).close()  # an address that is taken is said before the fits, not after
    serve([str(folder) for folder in demo_models(out)], host, port)


def demo_models(out: Path, simulation: Simulation | None = None, **values: Any) -> list[Path]:
    """The model folders of the demo: those that are there are kept, a fit that was broken off goes on."""
    from milrec.cli.fit import FolderFit
    from milrec.cli.output import say
    from milrec.data.simulation import Simulation, simulate
    from milrec.data.splits import split_interactions
    from milrec.storage import open_folder
    from milrec.training.presets import settings_for

    split = out / "split"
    if split.exists():
        open_folder(split, "split")
    else:
        say(f"Simulating a catalogue and fitting {len(_LOSSES)} models → {out}")
        split_interactions(simulate(simulation or Simulation(), seed=0), seed=0).save(split)
    for name, loss in _LOSSES.items():
        fit = FolderFit(split, out / name, settings_for(None, loss, values), seed=0)
        if fit.broken_off or not fit.out.exists():
            fit.run(resume=fit.broken_off, force=False)
    return [out / name for name in _LOSSES]
