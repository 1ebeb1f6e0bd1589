"""The small valid folders that a campaign starts from: data, splits, models, a checkpoint and a run."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import milrec
    from milrec.training.progress import Progress

MODELS: dict[str, dict[str, Any]] = {
    "dae": {"n_factors": 6},
    "mf": {"n_factors": 6},
    "vae": {"n_factors": 4, "n_hidden": 8},
    "cdae": {"n_factors": 6},
    "ease": {},
    "ease-sparse": {"neighbours": 6},
    "slim": {},
    "popularity": {},
}
_STEPS: dict[str, Any] = {"iterations": 12, "validate_every": 4, "batch_size": 8, "patience": 0}
CHECKPOINTED: dict[str, Any] = {"model": "dae", "loss": "mil", "n_factors": 6, **_STEPS, "checkpoint_seconds": 0}

RECIPE = """\
title = "A small run"
seeds = [0]
[data.simulate]
users = 40
items = 25
[search]
trials = 2
[[models]]
name = "Popularity"
model = "popularity"
[[models]]
name = "EASE"
model = "ease"
search = { regularization = [1.0, 100.0] }
"""


@dataclass(frozen=True)
class Bases:
    """Where they are."""

    place: Path

    @property
    def data(self) -> Path:
        return self.place / "data"

    @property
    def split(self) -> Path:
        return self.place / "split"

    @property
    def strangers(self) -> Path:
        """A split over users."""
        return self.place / "strangers"

    @property
    def checkpoint(self) -> Path:
        return self.place / "checkpoint.safetensors"

    @property
    def run(self) -> Path:
        return self.place / "run"

    @property
    def recipe(self) -> Path:
        return self.place / "recipe.toml"

    def model(self, name: str) -> Path:
        return self.place / f"model-{name}"


def made(place: Path) -> Bases:
    """Make the bases, in a process of their own: this one must stay free of threads."""
    bases = Bases(place)
    in_a_child(lambda: _make(bases))
    return bases


def in_a_child(work: Callable[[], object]) -> None:
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        code = 0
        try:
            work()
        except BaseException:
            traceback.print_exc()
            code = 1
        os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]):
        raise RuntimeError("the campaign could not be prepared")


def _make(bases: Bases) -> None:
    import milrec
    from torture.commands import command_here

    bases.place.mkdir(parents=True, exist_ok=True)
    data = milrec.simulate(milrec.Simulation(n_users=40, n_items=25, mean_shown=15), seed=0)
    split = milrec.split_interactions(data, seed=0)
    data.save(bases.data)
    split.save(bases.split)
    milrec.split_users(data, seed=0).save(bases.strangers)
    for name, values in MODELS.items():
        steps = _STEPS if name in ("dae", "mf", "vae", "cdae") else {}
        milrec.fit(split, name, seed=0, **values, **steps).save(bases.model(name))
    _keep_a_checkpoint(split, bases.checkpoint)
    bases.recipe.write_text(RECIPE, encoding="utf-8")
    end = command_here(["experiment", bases.recipe, "--out", bases.run, "--jobs", "1"], bases.place)
    if end.code:
        raise RuntimeError(end.error)


def _keep_a_checkpoint(split: milrec.Split, checkpoint: Path) -> None:
    """That of the sixth step: the one that is there while the seventh is taken."""
    import milrec

    current = checkpoint.with_name("current.safetensors")

    def report(progress: Progress) -> None:
        if progress.iteration == 7:
            shutil.copy(current, checkpoint)

    milrec.fit(split, seed=0, checkpoint=current, report=report, **CHECKPOINTED)
    current.unlink(missing_ok=True)
