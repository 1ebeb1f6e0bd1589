"""The search for a model's settings, on validation: a small grid is tried whole; otherwise the model's own settings
first, and Optuna chooses the others.

Trials are chosen a round at a time from what earlier rounds gave, each by a sampler seeded with (seed, its number), so
that a search that was stopped goes on to the same end. Every trial also goes into a journal that Optuna's tools open.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from milrec.errors import FitError, SettingsError
from milrec.experiments.job import Curve, Job
from milrec.experiments.pool import Results
from milrec.experiments.recipe import ModelEntry, SearchEntry
from milrec.storage import new_file


@dataclass(frozen=True)
class Search:
    """What a search found, and what it tried."""

    values: dict[str, Any]
    trials: list[dict[str, Any]]


def search(entry: ModelEntry, wanted: SearchEntry, n_trials: int, run: Path) -> Generator[list[Job], Results, Search]:
    """A plan that ends with the values that were best on validation."""
    optuna = optuna_library()
    grid = entry.grid()
    finished: list[Any] = []  # Optuna's trials
    known: dict[str, dict[str, Any]] = {}  # results by the name of the job
    rivals: dict[str, Curve] = {}
    tried: list[dict[str, Any]] = []
    for start in range(0, n_trials, wanted.round):
        numbers = range(start, min(start + wanted.round, n_trials))
        if grid is not None and len(grid) <= n_trials:
            places: list[dict[str, Any]] = [dict(grid[number]) for number in numbers]
        else:
            places = _chosen(optuna, entry, wanted, finished, numbers)
            if not start and (own := entry.own_places()) is not None:
                places[0] = own
        jobs = [_job(entry, wanted, entry.values(one), list(rivals.values())) for one in places]
        new = {job.name: job for job in jobs if job.name not in known}  # values that come again are not tried again
        if new:
            known |= yield list(new.values())
        for number, job, one in zip(numbers, jobs, places, strict=True):
            result = known[job.name]
            if result["state"] == "broken":  # nothing is chosen as long as something could not be tried
                raise FitError(f"a trial of '{entry.name}' was broken off ({result['error']})")
            finished.append(_trial(optuna, entry, one, result))
            tried.append({"number": number, "values": entry.values(one), **_outcome(result)})
            if result["state"] == "done" and (curve := _curve(result)):
                rivals[job.name] = curve
        _keep(optuna, finished, run / "tuning" / f"{entry.slug}.journal")
    done = [trial for trial in tried if trial["state"] == "done" and trial["value"] is not None]
    if not done:
        why = tried[0]["error"] or "it has no validation measure"
        raise FitError(f"no trial of '{entry.name}' came to an end; the first: {why}")
    return Search(max(done, key=lambda trial: trial["value"])["values"], tried)


def optuna_library() -> Any:
    """Optuna, or the sentence that says how to get it."""
    try:
        import optuna
    except ImportError:
        raise SettingsError("a recipe with a search needs Optuna: pip install 'milrec[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _chosen(
    optuna: Any, entry: ModelEntry, wanted: SearchEntry, finished: list[Any], numbers: range
) -> list[dict[str, Any]]:
    """The trials of a round: places in lists, numbers from ranges."""
    study = optuna.create_study(direction="maximize")
    study.add_trials(finished)
    places = []
    for number in numbers:
        study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=2 * wanted.round,
            seed=int(np.random.SeedSequence([wanted.seed, number]).generate_state(1)[0]),
            constant_liar=len(numbers) > 1,
        )
        params = study.ask(_distributions(optuna, entry)).params
        places.append({key: _place(entry, key, value) for key, value in params.items()})
    return places


def _distributions(optuna: Any, entry: ModelEntry) -> dict[str, Any]:
    kinds = optuna.distributions
    return {
        key: kinds.CategoricalDistribution([json.dumps(one) for one in choices])
        if isinstance(choices, list)
        else kinds.FloatDistribution(choices.low, choices.high, log=choices.log)
        for key, choices in entry.search.items()
    }


def _place(entry: ModelEntry, key: str, value: Any) -> Any:
    choices = entry.search[key]
    return [json.dumps(one) for one in choices].index(value) if isinstance(choices, list) else value


def _trial(optuna: Any, entry: ModelEntry, places: dict[str, Any], result: dict[str, Any]) -> Any:
    """A finished trial as Optuna keeps it."""
    params = {
        key: json.dumps(choices[places[key]]) if isinstance(choices, list) else places[key]
        for key, choices in entry.search.items()
    }
    states = optuna.trial.TrialState
    value = result.get("value")
    state = {"done": states.COMPLETE, "given up": states.PRUNED}.get(result["state"], states.FAIL)
    curve = _curve(result)
    return optuna.trial.create_trial(
        state=states.FAIL if value is None else state,
        params=params,
        distributions=_distributions(optuna, entry),
        value=None if state == states.FAIL else value,
        intermediate_values=dict(zip(curve.iterations, curve.measures, strict=True)) if curve else {},
    )


def _keep(optuna: Any, finished: list[Any], path: Path) -> None:
    """The study so far, in the run folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path) as draft:
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(draft)))
        optuna.create_study(storage=storage, study_name=path.stem, direction="maximize").add_trials(finished)


def _job(entry: ModelEntry, wanted: SearchEntry, values: dict[str, Any], rivals: list[Curve]) -> Job:
    """One trial; the same values are the same job, and are not tried twice."""
    settings = entry.chosen(values, wanted.measure)
    mark = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]
    shown = ", ".join(f"{key}={value}" for key, value in values.items())
    return Job(
        name=f"{entry.slug}-trial-{mark}",
        title=f"{entry.name}: {shown}",
        seed=wanted.seed,
        settings=settings.model_dump(),
        measure=wanted.measure,
        judged=False,
        rivals=rivals,
    )


def _outcome(result: dict[str, Any]) -> dict[str, Any]:
    return {"state": result["state"], "value": result.get("value"), "error": result.get("error")}


def _curve(result: dict[str, Any]) -> Curve | None:
    history = result.get("history")
    if not history or not history["measures"]:
        return None
    return Curve(iterations=history["iterations"], measures=history["measures"])
