"""A recipe → split, search, fit, judge for model × seed → results.json. A run that was stopped goes on where it was.

A run folder holds `split`, `jobs/…` (each fit with its log, checkpoint, model and result), `tuning/…` (Optuna's
studies) and `results.json`, which is a function of the rest.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from milrec.data.interactions import Interactions
from milrec.data.simulation import Simulation, simulate
from milrec.data.splits import Split, split_given, split_interactions, split_users
from milrec.errors import FolderError, MilrecError
from milrec.experiments.job import COMPARED, Job
from milrec.experiments.pool import Plan, Watcher, carry_out
from milrec.experiments.recipe import ModelEntry, Recipe
from milrec.experiments.search import optuna_library, search
from milrec.metrics import tail
from milrec.metrics.comparison import compare
from milrec.storage import FORMAT_VERSION, MANIFEST, folder_kind, open_folder, read_json, write_json


@dataclass
class _Outcome:
    """What came of an entry of the recipe."""

    tuned: dict[str, Any] = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)
    done: list[tuple[Job, dict[str, Any]]] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)


def run(recipe: Recipe, out: str | Path, watcher: Watcher, at_once: int | None = None) -> dict[str, Any]:
    """Carry a recipe out in a run folder, so many jobs at once; what is finished there already is kept.

    A job that fails does not stop the others; the results name it.
    """
    out = Path(out)
    if any(entry.search for entry in recipe.models):
        optuna_library()  # before anything is written
    with _opened(recipe, out):
        split = _split(recipe, out, watcher)
        outcomes = {entry.name: _Outcome() for entry in recipe.models}
        plans = [_plan(entry, recipe, out, outcomes[entry.name]) for entry in recipe.models]
        carry_out(plans, out, watcher, at_once)
        results = _results(recipe, split, out, outcomes)
        write_json(out / "results.json", results)
    return results


def _plan(entry: ModelEntry, recipe: Recipe, out: Path, outcome: _Outcome) -> Plan:
    """Search where there is something to search, then fit and judge with every seed."""
    outcome.tuned = entry.tuned
    if n_trials := recipe.n_trials(entry):
        try:
            found = yield from search(entry, recipe.search, n_trials, out)
        except MilrecError as error:
            outcome.failures.append({"name": entry.name, "error": str(error)})
            return
        outcome.tuned, outcome.trials = found.values, found.trials
    settings = entry.chosen(outcome.tuned, recipe.search.measure)
    jobs = [
        Job(
            name=f"{entry.slug}-seed{seed}",
            title=entry.name if len(recipe.seeds) == 1 else f"{entry.name}, seed {seed}",
            seed=seed,
            settings=settings.model_dump(),
            measure=recipe.search.measure,
            refit=recipe.refit,
            dials=entry.dials,
        )
        for seed in entry.seeds(recipe.seeds)
    ]
    results = yield jobs
    for job in jobs:
        result = results[job.name]
        if result["state"] == "done":
            outcome.done.append((job, result))
        else:
            outcome.failures.append({"name": job.title, "error": result["error"]})


@contextmanager
def _opened(recipe: Recipe, out: Path) -> Iterator[None]:
    """A run folder, new or of the same recipe, for one process at a time; the lock ends with the process."""
    if out.exists() and any(out.iterdir()) and folder_kind(out) != "run":
        raise FolderError(f"'{out}' is not empty and holds no milrec run; choose another place")
    for path in () if recipe.data is None else (recipe.data.path, recipe.data.test):
        if path is not None and not (out / "split").exists():
            open_folder(Path(path), "data")  # before anything is written
    out.mkdir(parents=True, exist_ok=True)
    if not (out / MANIFEST).exists():
        _write_manifest(recipe, out)
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FolderError(f"another process is running in '{out}'; wait for it, or choose another place") from None
        if (out / "split").exists():
            _check_same_recipe(recipe, out)
        _write_manifest(recipe, out)
        yield


def _write_manifest(recipe: Recipe, out: Path) -> None:
    facts = {"title": recipe.title, "recipe": recipe.model_dump()}
    manifest = {"format": "milrec", "kind": "run", "version": FORMAT_VERSION, "facts": facts, "files": {}}
    write_json(out / MANIFEST, manifest)


def _check_same_recipe(recipe: Recipe, out: Path) -> None:
    """A run goes on with the recipe it began with; words may have changed."""
    begun = read_json(out / MANIFEST).get("facts", {}).get("recipe", {})
    wanted = json.loads(json.dumps(recipe.model_dump()))
    for key in wanted:
        if key not in ("title", "description") and wanted[key] != begun.get(key):
            raise FolderError(f"'{out}' holds a run of another recipe ('{key}' differs); choose another place")


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


def _results(recipe: Recipe, split: Split, out: Path, outcomes: dict[str, _Outcome]) -> dict[str, Any]:
    popularity = split.train.popularity()
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
        "paper": None if recipe.paper is None else recipe.paper.model_dump(),
        "models": [
            _model(name, job, result, outcome) for name, outcome in outcomes.items() for job, result in outcome.done
        ],
        "searches": [
            {"name": name, "measure": recipe.search.measure, "trials": outcome.trials, "tuned": outcome.tuned}
            for name, outcome in outcomes.items()
            if outcome.trials
        ],
        "comparisons": {measure: compare(_per_user(measure, out, outcomes)) for measure in COMPARED},
        "failures": [failure for outcome in outcomes.values() for failure in outcome.failures],
        "versions": {name: version(name) for name in ("milrec", "torch", "numpy", "scipy", "numba")},
        "machine": {"cores": os.cpu_count(), "platform": sys.platform},
        "finished": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _model(name: str, job: Job, result: dict[str, Any], outcome: _Outcome) -> dict[str, Any]:
    kept = ("settings", "evaluation", "dialled", "history", "fit_seconds", "threads", "peak_memory_mib")
    return {
        "name": name,
        "seed": job.seed,
        "tuned": outcome.tuned,
        "validation": result["value"],
        **{key: result[key] for key in kept if key in result},
    }


def _per_user(measure: str, out: Path, outcomes: dict[str, _Outcome]) -> dict[str, Any]:
    """A measure of every user under every model, mean over the seeds; empty where the data do not have it."""
    values = {}
    for name, outcome in outcomes.items():
        tables = [pq.read_table(job.folder(out) / "per_user.parquet") for job, _ in outcome.done]
        if tables and all(measure in table.column_names for table in tables):
            values[name] = np.mean([table[measure].to_numpy() for table in tables], axis=0, dtype=np.float64)
    return values


def _curve(popularity: Any, n_points: int = 240) -> list[list[int]]:
    """Adopters at some ranks, evenly spread on a logarithmic scale."""
    ordered = np.sort(popularity)[::-1]
    ranks = np.unique(np.geomspace(1, len(ordered), n_points).round().astype(int))
    return [[int(rank), int(ordered[rank - 1])] for rank in ranks]
