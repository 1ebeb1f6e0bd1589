"""Every command that writes, what it writes when nothing disturbs it, and whether what is there now is whole.

The undisturbed outcome of a command is found once, and kept beside the bases.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torture.bases import Bases
from torture.commands import command_here, ended, started, verdict
from torture.folders import files_in
from torture.verdicts import Outcome, accepted
from torture.workers import OwnFault

LIMIT = 300.0  # seconds for a command that takes a few
_TIMES = ("fit_seconds", "seconds", "peak_memory_mib", "finished", "sha256", "bytes", "loaded_at", "versions")
_STEPS = "n_factors=6 iterations=40 batch_size=8 validate_every=10 patience=0 checkpoint_seconds=0 threads=1"
_FIT = ["fit", "split", "--out", "out", *(text for one in _STEPS.split() for text in ("--set", one))]


@dataclass(frozen=True)
class Command:
    """A command in a folder with copies of the bases: what it writes, and how to do it again after it was disturbed."""

    arguments: list[str]
    out: str  # a folder, or a file
    points: list[str]  # at which it can be held
    again: list[str] = field(default_factory=list)  # options for the second time
    before: str | None = None  # a base that is at the place of `out` already

    @property
    def replaces(self) -> bool:
        return self.before is not None


_FOLDER = ["new file milrec.json", "exit"]
_IMPORTS = ["import numpy", "import pyarrow"]
_FORCE = ["--force"]
COMMANDS = {
    "simulate": Command(["simulate", "--out", "out", "--users", "30", "--items", "20", "--seed", "3"], "out",
                        [*_IMPORTS, "new data folder", *_FOLDER], _FORCE),
    "simulate over": Command(["simulate", "--out", "out", "--users", "30", "--items", "20", "--force"], "out",
                             ["new data folder", "between two renames", "after the exchange", *_FOLDER], before="data"),
    "prepare": Command(["prepare", "table.csv", "--out", "out", "--titles", "titles.csv"], "out",
                       [*_IMPORTS, "new data folder", *_FOLDER], _FORCE),
    "split": Command(["split", "data", "--out", "out", "--seed", "3"], "out", ["new split folder", *_FOLDER], _FORCE),
    "split over": Command(["split", "data", "--out", "out", "--seed", "3", "--force"], "out",
                          ["new split folder", "between two renames", "after the exchange", *_FOLDER], before="split"),
    "fit": Command(_FIT, "out", ["import torch", "fit step 1", "fit step 7", "fit step 21", "fit step 39",
                   "new file checkpoint.safetensors", "new model folder", *_FOLDER], ["--resume"]),
    "fit over": Command([*_FIT, "--force"], "out", ["fit step 3", "new file checkpoint.safetensors", "new model folder",
                        "between two renames", "after the exchange", *_FOLDER], ["--resume"], before="model-mf"),
    "refit": Command([*_FIT, "--refit"], "out", ["fit step 7", "fit step 30", "new file refit.safetensors",
                     "new model folder"], ["--resume"]),
    "ease": Command(["fit", "split", "--out", "out", "--model", "ease"], "out", ["new model folder", *_FOLDER],
                    ["--resume"]),
    "recommend": Command(["recommend", "model-dae", "--all", "--out", "lists.csv"], "lists.csv",
                         ["write lists", "new file lists.csv", "exit"]),
    "recommend over": Command(["recommend", "model-dae", "--all", "--out", "lists.parquet"], "lists.parquet",
                              ["write lists", "new file lists.parquet", "exit"], before="checkpoint.safetensors"),
    "evaluate": Command(["evaluate", "model-dae", "split", "--json", "found.json"], "found.json",
                        ["evaluate", "new file found.json", "exit"]),
    "report": Command(["report", "run", "--out", "page.html"], "page.html", ["new file page.html", "exit"]),
    "experiment": Command(["experiment", "recipe.toml", "--out", "out", "--jobs", "1"], "out",
                          ["new split folder", "new file milrec.json", "new model folder", "evaluate",
                           "new file results.json", "new file report.html", "exit"]),
}  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """What a command does when nothing disturbs it."""

    content: dict[str, Any]
    seconds: float
    sizes: int  # bytes that it wrote


def laid_out(command: Command, place: Path, bases: Bases) -> None:
    """A folder with copies of all that the command needs."""
    place.mkdir(parents=True, exist_ok=True)
    for name in ("data", "split", "model-dae", "run", "recipe.toml"):
        if name in command.arguments:
            source = bases.place / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, place / name)
    if "table.csv" in command.arguments:
        rows = "".join(f"u{number % 17:02},i{number * 7 % 23:02}\n" for number in range(150))
        titles = "".join(f'i{number:02},"Title, {number}"\n' for number in range(23))
        (place / "table.csv").write_text("user,item\n" + rows)
        (place / "titles.csv").write_text("item,title\n" + titles)
    if command.before is not None:
        source = bases.place / command.before
        (shutil.copytree if source.is_dir() else shutil.copy)(source, place / command.out)


def reference(name: str, bases: Bases) -> Reference:
    """Found once for all processes: the first to have it puts it in place."""
    kept = bases.place / "reference" / name.replace(" ", "-")
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        place = Path(tempfile.mkdtemp(dir=kept.parent, prefix="making-"))
        command = COMMANDS[name]
        laid_out(command, place, bases)
        began = time.monotonic()
        outcome = verdict(ended(started(command.arguments, place, place / "log"), place / "log", LIMIT))
        if outcome.kind != "accepted":
            raise OwnFault(f"undisturbed, '{name}' fails: {outcome.what}")
        (place / "seconds").write_text(str(time.monotonic() - began))
        if kept.exists():
            shutil.rmtree(place)
        else:
            place.rename(kept)
    out = kept / COMMANDS[name].out
    sizes = sum(map(len, files_in(out).values())) if out.is_dir() else out.stat().st_size
    return Reference(content_of(out), float((kept / "seconds").read_text()), sizes)


def content_of(out: Path) -> dict[str, Any]:
    """What a folder or a file says, without times and what follows from them."""
    if not out.is_dir():
        return {out.name: _plain(out.name, out.read_bytes())}
    if (out / "results.json").exists():  # of a run, the rest is on the way to it
        return {"results.json": _plain("results.json", (out / "results.json").read_bytes())}
    return {name: _plain(name, content) for name, content in files_in(out).items()}


def _plain(name: str, content: bytes) -> Any:
    return _timeless(json.loads(content)) if name.endswith(".json") else content


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(inner) for key, inner in value.items() if key not in _TIMES}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


def half_written(command: Command, name: str, place: Path, bases: Bases) -> Outcome | None:
    """What is wrong with what a disturbed command has left at the place of its output, if anything is.

    A folder is looked at as its next reader would, who puts back one that was caught between two renames.
    """
    out, before = place / command.out, None if command.before is None else bases.place / command.before
    if name == "experiment":
        return None  # a run comes and goes; what counts is how it ends
    if before is not None and before.is_dir() and (wrong := _not_whole(out)):
        return wrong
    if not out.exists():
        return Outcome("half-written", "what was to be replaced is gone") if command.replaces else None
    if out.is_dir() and (wrong := _not_whole(out)):
        return wrong
    if content_of(out) == reference(name, bases).content or (before is not None and _is_old(out, before)):
        return None
    return Outcome("half-written", f"'{command.out}' is neither what was there before nor what was to be written")


def _not_whole(folder: Path) -> Outcome | None:
    outcome = verdict(command_here(["show", folder], folder.parent))
    return None if outcome is accepted else Outcome("half-written", f"it cannot be shown: {outcome.what}")


def _is_old(out: Path, before: Path) -> bool:
    if out.is_dir():
        return files_in(out) == files_in(before)
    return out.read_bytes() == before.read_bytes()


def finished(command: Command, name: str, place: Path, bases: Bases) -> Outcome | None:
    """Carry the command out again: it must succeed, give what an undisturbed one gives, and leave nothing else."""
    again = command.again if (place / command.out).exists() or "--resume" in command.again else []
    arguments = [*command.arguments, *(option for option in again if option not in command.arguments)]
    outcome = verdict(ended(started(arguments, place, place / "again"), place / "again", LIMIT))
    if outcome.kind != "accepted":
        kind = "wrong resume" if outcome.kind == "refused" else outcome.kind
        return Outcome(kind, f"the second time: {outcome.what}")
    if content_of(place / command.out) != reference(name, bases).content:
        return Outcome("wrong resume", "the second time, something else is written")
    return left_behind(place)


def left_behind(place: Path) -> Outcome | None:
    """Temporary files and folders that are still there."""
    names = [path.name for path in place.iterdir() if path.name.startswith(".") or path.name.endswith(".partial")]
    left = sorted(name for name in names if not name.endswith(".lock"))
    return Outcome("left behind", f"left behind: {', '.join(left)}") if left else None
