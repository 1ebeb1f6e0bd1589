"""A run folder: new or of the same recipe, and for one process at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from milrec.disk.files import make_folders
from milrec.disk.locks import held
from milrec.errors import FolderError
from milrec.experiments.protocol import JOBS, LOCK
from milrec.experiments.recipe import Recipe
from milrec.storage import MANIFEST, folder_kind, open_folder, write_manifest

_WORDS = ("title", "description")  # these may change at any time
_OF_THE_SPLIT = ("data", "split")


@contextmanager
def opened(recipe: Recipe, out: Path) -> Iterator[None]:
    """A run folder, new or of the same recipe, for one process at a time."""
    refuse_other_folder(out)
    make_folders(out)
    with held(out / LOCK, f"the run in '{out}' is being carried out"):
        _check_same_recipe(recipe, out)
        write_manifest(out, "run", {"title": recipe.title, "recipe": recipe.model_dump()}, files={})
        yield


def refuse_other_folder(out: Path) -> None:
    """A run is not written to a place that holds something else."""
    if out.exists() and not out.is_dir():
        raise FolderError(f"'{out}' exists and is a file; choose another place for the run")
    if out.exists() and _holds_something(out) and folder_kind(out) != "run":
        raise FolderError(f"'{out}' is not empty and holds no milrec run; choose another place")


def _holds_something(out: Path) -> bool:
    """Anything but what a run leaves that was killed before it wrote its manifest."""
    return any(path.name != LOCK and not path.name.startswith(f".{MANIFEST}.") for path in out.iterdir())


def _check_same_recipe(recipe: Recipe, out: Path) -> None:
    """A run is resumed with the recipe that it was started with.

    If it has no job yet, only a split (after an estimate), then only data and split have to be the same.
    """
    if not (out / "split").exists():
        return
    begun = open_folder(out, "run").facts.get("recipe")
    defaults = _plain(Recipe.model_construct(title="", models=[]))  # of what an older run does not have yet
    begun = {**defaults, **begun} if isinstance(begun, dict) else defaults
    wanted = _plain(recipe)
    for key in wanted if (out / JOBS).exists() else _OF_THE_SPLIT:
        if key not in _WORDS and wanted[key] != begun.get(key):
            raise FolderError(f"'{out}' holds a run of another recipe ('{key}' differs); choose another place")


def _plain(recipe: Recipe) -> dict[str, Any]:
    """As a manifest has it."""
    values: dict[str, Any] = json.loads(json.dumps(recipe.model_dump()))
    return values
