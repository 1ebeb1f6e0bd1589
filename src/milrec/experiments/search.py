"""The search for a model's settings, on validation: a small grid is tried whole; otherwise the model's own settings
come first, and Optuna chooses the others.

Trials are chosen a round at a time from the outcomes of earlier rounds, each by a sampler seeded with (seed, its
number), so that a search that was stopped and resumed ends as if it had not been. Every trial is also written to a
journal that Optuna's tools can open.
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
from milrec.experiments.pool import Outcomes
from milrec.experiments.protocol import Broken, Curve, Done, Failed, GivenUp, Job, Outcome
from milrec.experiments.recipe import ModelEntry, SearchEntry
from milrec.results import Trial, best_trial
from milrec.storage import new_file


@dataclass(frozen=True)
class Found:
    """What a search chose, and what it tried."""

    values: dict[str, Any]
    trials: tuple[Trial, ...]


def search(entry: ModelEntry, wanted: SearchEntry, n_trials: int, run: Path) -> Generator[list[Job], Outcomes, Found]:
    """A plan that ends with the values that were best on validation."""
    optuna = optuna_library()
    grid = entry.grid()
    finished: list[Any] = []  # Optuna's trials
    known: Outcomes = {}
    rivals: dict[str, Curve] = {}
    tried: list[Trial] = []
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
            outcome = known[job.name]
            if isinstance(outcome, Broken):  # nothing is chosen as long as something could not be tried
                raise FitError(f"a trial of '{entry.name}' was interrupted ({outcome.error})")
            finished.append(_optuna_trial(optuna, entry, one, outcome))
            tried.append(_trial(number, entry.values(one), outcome))
            if isinstance(outcome, Done) and (curve := _curve(outcome)):
                rivals[job.name] = curve
        _keep(optuna, finished, run / "tuning" / f"{entry.slug}.journal")
    return _best(entry, tried)


def _best(entry: ModelEntry, tried: list[Trial]) -> Found:
    """The values of the trial that was best on validation."""
    best = best_trial(tried)
    if best is None:
        why = tried[0].error or "it has no validation measure"
        raise FitError(f"no trial of '{entry.name}' was completed; the first: {why}")
    return Found(best.values, tuple(tried))


def optuna_library() -> Any:
    """Optuna, or an error that says how to install it."""
    try:
        import optuna
    except ImportError:
        raise SettingsError("a recipe with a search needs Optuna: pip install 'milrec[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _chosen(
    optuna: Any, entry: ModelEntry, wanted: SearchEntry, finished: list[Any], numbers: range
) -> list[dict[str, Any]]:
    """The trials of a round: places in lists, or numbers in ranges."""
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


def _optuna_trial(optuna: Any, entry: ModelEntry, places: dict[str, Any], outcome: Outcome) -> Any:
    """A finished trial in Optuna's form."""
    params = {
        key: json.dumps(choices[places[key]]) if isinstance(choices, list) else places[key]
        for key, choices in entry.search.items()
    }
    states = optuna.trial.TrialState
    value = outcome.value if isinstance(outcome, Done | GivenUp) else None
    state = states.PRUNED if isinstance(outcome, GivenUp) else states.COMPLETE
    curve = _curve(outcome)
    return optuna.trial.create_trial(
        state=states.FAIL if value is None else state,
        params=params,
        distributions=_distributions(optuna, entry),
        value=value,
        intermediate_values=dict(zip(curve.iterations, curve.measures, strict=True)) if curve else {},
    )


def _keep(optuna: Any, finished: list[Any], path: Path) -> None:
    """Write the study so far into the run folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path) as draft:
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(draft)))
        optuna.create_study(storage=storage, study_name=path.stem, direction="maximize").add_trials(finished)


def _job(entry: ModelEntry, wanted: SearchEntry, values: dict[str, Any], rivals: list[Curve]) -> Job:
    """One trial. The same values make the same job, which is not done twice."""
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


def _trial(number: int, values: dict[str, Any], outcome: Outcome) -> Trial:
    """A finished trial as results.json has it."""
    value = outcome.value if isinstance(outcome, Done | GivenUp) else None
    error = outcome.error if isinstance(outcome, Failed | Broken) else None
    return Trial(number=number, values=values, state=outcome.state, value=value, error=error)


def _curve(outcome: Outcome) -> Curve | None:
    history = outcome.history if isinstance(outcome, Done | GivenUp) else None
    if history is None or not history.measures:
        return None
    return Curve(iterations=list(history.iterations), measures=list(history.measures))
