"""milrec serve-demo: a simulated catalogue, three models and the explorer page, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milrec.serving import bound, check_packages, serve

if TYPE_CHECKING:
    from milrec.simulation import Simulation

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
    from milrec.fitting import FolderFit
    from milrec.folders import open_folder
    from milrec.presets import settings_for
    from milrec.show import say
    from milrec.simulation import Simulation, simulate
    from milrec.splitting import split_interactions

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
