"""A TOML recipe → split, fit, evaluate for model × seed → results.json. A run that was stopped goes on where it was.

A run folder holds `data`, `split`, `models/…`, `evaluations/…` and `results.json`, which is a function of the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from pydantic import Field, model_validator

from milrec import tail
from milrec.config import Settings, build, read_toml
from milrec.errors import FolderError, SettingsError
from milrec.folders import FORMAT_VERSION, MANIFEST, folder_kind, open_folder, read_json, write_json
from milrec.interactions import Interactions
from milrec.presets import FitSettings, settings_for
from milrec.recommender import Recommender, fit
from milrec.simulation import Simulation, simulate
from milrec.splitting import Split, split_given, split_interactions, split_users
from milrec.training import Progress


class SimulateEntry(Settings):
    users: int = 2_000
    items: int = 1_200
    seed: int = 0


class DataEntry(Settings):
    """A prepared data folder, perhaps with another one as its test part, or a catalogue to simulate."""

    path: str | None = None
    test: str | None = None
    simulate: SimulateEntry | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> DataEntry:
        if (self.path is None) == (self.simulate is None):
            raise ValueError("[data] needs either a path or a table [data.simulate]")
        if self.test is not None and self.path is None:
            raise ValueError("[data] has a test part without a path to learn from")
        return self


class SplitEntry(Settings):
    protocol: Literal["interactions", "users"] = "interactions"
    seed: int = 0


class ModelEntry(Settings):
    name: str
    model: str | None = None
    loss: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)

    def chosen(self) -> FitSettings:
        return settings_for(self.model, self.loss, self.settings)


class Recipe(Settings):
    """What a run is made of."""

    title: str
    description: str = ""
    seeds: list[int] = Field(default_factory=lambda: [0], min_length=1)
    data: DataEntry | None = None
    split: SplitEntry = SplitEntry()
    models: list[ModelEntry] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct_names(self) -> Recipe:
        slugs = [_slug(entry.name) for entry in self.models]
        if len(set(slugs)) != len(slugs):
            raise ValueError("two models of the recipe have the same name")
        return self

    @model_validator(mode="after")
    def _one_test_part(self) -> Recipe:
        if self.data is not None and self.data.test is not None and self.split.protocol == "users":
            raise ValueError("a recipe has a test part in [data] or holds out users in [split], not both")
        return self


class Watcher(Protocol):
    """Whoever watches a run is told these things."""

    def stage(self, text: str) -> None:
        """Something begins."""

    def fitting(self, name: str, progress: Progress) -> None:
        """A step of a fit is done."""

    def evaluating(self, name: str, done: int, total: int) -> None:
        """Some users are judged."""

    def finished(self, name: str, evaluation: dict[str, Any]) -> None:
        """A model is fitted and judged."""


def read_recipe(path: str | Path, data: str | Path | None = None, test: str | Path | None = None) -> Recipe:
    """A recipe from a TOML file, every model's settings checked.

    `data`, a prepared data folder, takes the place of the recipe's own, with `test` as its test part where it comes
    with one; a relative path in the recipe starts at the recipe's folder.
    """
    path = Path(path)
    recipe = build(Recipe, read_toml(path), f"'{path}'")
    for entry in recipe.models:
        try:
            entry.chosen()
        except SettingsError as error:
            raise SettingsError(f"model '{entry.name}' in '{path}': {error}") from None
    if data is not None:
        return _with_data(recipe, Path(data), None if test is None else Path(test))
    if test is not None:
        raise SettingsError("--test is the test part of --data; give both")
    if recipe.data is None:
        raise SettingsError(f"'{path}' names no data; give a prepared data folder with --data")
    if recipe.data.path is not None:
        given = None if recipe.data.test is None else path.parent / recipe.data.test
        return _with_data(recipe, path.parent / recipe.data.path, given)
    return recipe


def _with_data(recipe: Recipe, data: Path, test: Path | None) -> Recipe:
    entry = DataEntry(path=str(data.absolute()), test=None if test is None else str(test.absolute()))
    return build(Recipe, {**recipe.model_dump(), "data": entry.model_dump()})


def demo_recipe() -> Recipe:
    return read_recipe(str(files("milrec").joinpath("recipes/demo.toml")))


def run(recipe: Recipe, out: str | Path, watcher: Watcher) -> dict[str, Any]:
    """Carry a recipe out in a run folder; what is finished there already is kept."""
    out = Path(out)
    _open_run(recipe, out)
    split = _split(recipe, out, watcher)
    for entry in recipe.models:
        for seed in recipe.seeds:
            _one_model(entry, seed, split, out, watcher)
    results = _results(recipe, split, out)
    write_json(out / "results.json", results)
    return results


def _one_model(entry: ModelEntry, seed: int, split: Split, out: Path, watcher: Watcher) -> None:
    """Fit, keep and judge one model with one seed, unless that is done."""
    name = _slug(entry.name) + f"-seed{seed}"
    model_path, kept = out / "models" / name, out / "evaluations" / f"{name}.json"
    if kept.exists():
        watcher.stage(f"{entry.name}: done before")
        return
    if model_path.exists():
        recommender = Recommender.load(model_path)
    else:
        watcher.stage(f"{entry.name}: fitting" + (f" (seed {seed})" if seed else ""))
        checkpoint = out / "checkpoints" / f"{name}.safetensors"
        checkpoint.parent.mkdir(exist_ok=True)
        recommender = fit(
            split,
            entry.chosen(),
            seed=seed,
            checkpoint=checkpoint,
            report=lambda progress: watcher.fitting(entry.name, progress),
        )
        recommender.save(model_path)
        checkpoint.unlink(missing_ok=True)
    evaluation = recommender.evaluate(
        split, "test", lambda done, total: watcher.evaluating(entry.name, done, total)
    ).as_json()
    fitted = recommender.fitted
    kept.parent.mkdir(exist_ok=True)
    write_json(
        kept,
        {
            "name": entry.name,
            "seed": seed,
            "settings": fitted.settings.model_dump(),
            "evaluation": evaluation,
            "history": None if fitted.history is None else vars(fitted.history),
            "fit_seconds": fitted.facts["fit_seconds"],
            "peak_memory_mib": peak_memory_mib(),
        },
    )
    watcher.finished(entry.name, evaluation)


def _open_run(recipe: Recipe, out: Path) -> None:
    """Start a run folder, or go on in one of the same recipe."""
    facts = {"title": recipe.title, "recipe": recipe.model_dump()}
    if out.exists() and any(out.iterdir()):
        if folder_kind(out) != "run":
            raise FolderError(f"'{out}' is not empty and holds no milrec run; choose another place")
        if read_json(out / MANIFEST).get("facts") != json.loads(json.dumps(facts)):
            raise FolderError(f"'{out}' holds a run of another recipe; choose another place")
        return
    for path in () if recipe.data is None else (recipe.data.path, recipe.data.test):
        if path is not None:
            open_folder(Path(path), "data")  # before anything is written
    out.mkdir(parents=True, exist_ok=True)
    manifest = {"format": "milrec", "kind": "run", "version": FORMAT_VERSION, "facts": facts, "files": {}}
    write_json(out / MANIFEST, manifest)


def _split(recipe: Recipe, out: Path, watcher: Watcher) -> Split:
    if (out / "split").exists():
        return Split.load(out / "split")
    assert recipe.data is not None
    if recipe.data.simulate is not None:
        wanted = recipe.data.simulate
        watcher.stage(f"Simulating a catalogue of {wanted.users:,} users and {wanted.items:,} items")
        data = simulate(Simulation(n_users=wanted.users, n_items=wanted.items), wanted.seed)
    else:
        assert recipe.data.path is not None
        watcher.stage(f"Opening {recipe.data.path}")
        data = Interactions.load(recipe.data.path)
    if recipe.data.test is not None:
        split = split_given(data, Interactions.load(recipe.data.test), recipe.split.seed)
    else:
        split = (split_users if recipe.split.protocol == "users" else split_interactions)(data, recipe.split.seed)
    split.save(out / "split")
    return split


def _results(recipe: Recipe, split: Split, out: Path) -> dict[str, Any]:
    popularity = split.train.popularity()
    names = [f"{_slug(entry.name)}-seed{seed}" for entry in recipe.models for seed in recipe.seeds]
    return {
        "format": "milrec-results",
        "version": FORMAT_VERSION,
        "title": recipe.title,
        "description": recipe.description,
        "data": {
            **split.train.facts(),
            "interval_cuts": list(tail.interval_cuts(popularity)),
            "popularity_curve": _curve(popularity),
            "split_hash": hashlib.sha256((out / "split" / MANIFEST).read_bytes()).hexdigest(),
        },
        "split": split.facts(),
        "models": [read_json(out / "evaluations" / f"{name}.json") for name in names],
        "versions": {name: version(name) for name in ("milrec", "torch", "numpy")},
        "machine": {"cores": os.cpu_count(), "threads": torch.get_num_threads(), "platform": sys.platform},
        "finished": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _curve(popularity: Any, n_points: int = 240) -> list[list[int]]:
    """Adopters at some ranks, evenly spread on a logarithmic scale."""
    ordered = np.sort(popularity)[::-1]
    ranks = np.unique(np.geomspace(1, len(ordered), n_points).round().astype(int))
    return [[int(rank), int(ordered[rank - 1])] for rank in ranks]


def peak_memory_mib() -> int:
    """The most memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak / (1024 * 1024 if sys.platform == "darwin" else 1024))


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "model"
