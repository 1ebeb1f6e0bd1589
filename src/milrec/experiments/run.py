"""A recipe → split, search, fit, judge for model × seed → results.json. A run that was stopped can be resumed.

A run folder holds `split`, `jobs/…` (each fit with its log, checkpoint, model and outcome), `tuning/…` (Optuna's
studies) and `results.json`, which is a function of the rest.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from milrec.data.interactions import Interactions
from milrec.data.simulation import Simulation, simulate
from milrec.data.splits import Split, split_given, split_interactions, split_users
from milrec.errors import FolderError, MilrecError, first_line
from milrec.experiments.estimate import Estimate, estimated
from milrec.experiments.folder import opened, refuse_other_folder
from milrec.experiments.groups import MEASURE, user_groups
from milrec.experiments.job import COMPARED
from milrec.experiments.pool import Crew, Plan, Processes, Watcher, carry_out
from milrec.experiments.protocol import Done, GivenUp, Job
from milrec.experiments.recipe import ModelEntry, Recipe
from milrec.experiments.search import optuna_library, search
from milrec.measured import aimed_measure
from milrec.metrics import tail
from milrec.metrics.comparison import compare
from milrec.results import (
    FILE,
    Comparison,
    DataFacts,
    Failure,
    Machine,
    ModelRun,
    PaperTable,
    Results,
    Search,
    SplitFacts,
    Trial,
    Versions,
)
from milrec.storage import MANIFEST, open_folder

_POINTS = 240  # of the popularity curve


@dataclass
class _Findings:
    """What came of an entry of the recipe."""

    tuned: dict[str, Any] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    done: list[tuple[Job, Done]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


def run(
    recipe: Recipe,
    out: str | Path,
    watcher: Watcher,
    at_once: int | None = None,
    announce: Callable[[Estimate], None] | None = None,
    crew: Crew | None = None,
) -> Results:
    """Carry out a recipe in a run folder, `at_once` jobs at a time; what is finished there already is kept.

    The jobs are done by processes of this machine, or by another crew. A job that fails does not stop the others; the
    results name it. `announce` is told, before the first job, how large the run is.
    """
    out = Path(out)
    with _begun(recipe, out, watcher) as split:
        if announce is not None:
            announce(estimated(recipe, out, watcher.stage, at_once))
        findings = {entry.name: _Findings() for entry in recipe.models}
        plans = [_plan(entry, recipe, out, findings[entry.name]) for entry in recipe.models]
        carry_out(plans, out, watcher, crew or Processes(at_once))
        results = _results(recipe, split, out, findings)
        results.write(out / FILE)
    return results


def estimate(recipe: Recipe, out: str | Path, watcher: Watcher, at_once: int | None = None) -> Estimate:
    """How large a run is and how long it takes. Nothing is fitted; the split in the run folder is kept for the run."""
    out = Path(out)
    with _begun(recipe, out, watcher):
        return estimated(recipe, out, watcher.stage, at_once)


@contextmanager
def _begun(recipe: Recipe, out: Path, watcher: Watcher) -> Iterator[Split]:
    """A run folder with its split."""
    if any(entry.search for entry in recipe.models):
        optuna_library()  # before anything is written
    refuse_other_folder(out)
    for path in () if recipe.data is None else (recipe.data.path, recipe.data.test):
        if path is not None and not (out / "split").exists():
            open_folder(Path(path), "data")  # before anything is written, too
    with opened(recipe, out):
        yield _split(recipe, out, watcher)


def _plan(entry: ModelEntry, recipe: Recipe, out: Path, findings: _Findings) -> Plan:
    """Search if there is something to search, then fit and judge with every seed."""
    findings.tuned = entry.tuned
    if n_trials := recipe.n_trials(entry):
        try:
            found = yield from search(entry, recipe.search, n_trials, out)
        except MilrecError as error:
            findings.failures.append(Failure(name=entry.name, error=str(error)))
            return
        findings.tuned, findings.trials = found.values, found.trials
    jobs = _jobs(entry, recipe, findings.tuned)
    outcomes = yield jobs
    for job in jobs:
        outcome = outcomes[job.name]
        if isinstance(outcome, Done):
            findings.done.append((job, outcome))
        elif not isinstance(outcome, GivenUp):  # which only trials are
            findings.failures.append(Failure(name=job.title, error=outcome.error))


def _jobs(entry: ModelEntry, recipe: Recipe, tuned: dict[str, Any]) -> list[Job]:
    """One for each seed."""
    settings = entry.chosen(tuned, recipe.search.measure)
    return [
        Job(
            name=f"{entry.slug}-seed{seed}",
            title=entry.name if len(recipe.seeds) == 1 else f"{entry.name}, seed {seed}",
            seed=seed,
            settings=settings.model_dump(),
            measure=recipe.search.measure,
            refit=recipe.refit,
            dials=entry.dials,
            long_shares=recipe.long_shares,
        )
        for seed in entry.seeds(recipe.seeds)
    ]


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
        test = Interactions.load(recipe.data.test)
        split = split_given(data, test, recipe.split.seed, like_test=recipe.split.like_test)
    else:
        split = _divided(recipe, data)
    split.save(out / "split")
    return split


def _divided(recipe: Recipe, data: Interactions) -> Split:
    if recipe.split.protocol == "users":
        return split_users(data, recipe.split.seed, rounding=recipe.split.rounding)
    return split_interactions(data, recipe.split.seed)


def _results(recipe: Recipe, split: Split, out: Path, findings: dict[str, _Findings]) -> Results:
    measure = recipe.search.measure
    paper = None if recipe.paper is None else PaperTable(table=recipe.paper.table, dataset=recipe.paper.dataset)
    return Results(
        title=recipe.title,
        description=recipe.description,
        data=_data_facts(split, out),
        split=SplitFacts.model_validate(split.facts()),
        paper=paper,
        models=tuple(
            _model_run(name, job, outcome, found.tuned)
            for name, found in findings.items()
            for job, outcome in found.done
        ),
        searches=tuple(
            Search(name=name, measure=measure, trials=found.trials, tuned=found.tuned)
            for name, found in findings.items()
            if found.trials
        ),
        comparisons={
            measure: _comparisons(measure, out, findings)
            for measure in (*COMPARED, *(aimed_measure(share) for share in recipe.long_shares))
        },
        groups=user_groups(split.test, _by_seed(MEASURE, out, findings)),
        failures=tuple(failure for found in findings.values() for failure in found.failures),
        versions=Versions(**{name: version(name) for name in ("milrec", "torch", "numpy", "scipy", "numba")}),
        machine=Machine(cores=os.cpu_count(), platform=sys.platform),
        finished=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _data_facts(split: Split, out: Path) -> DataFacts:
    popularity = split.train.popularity()
    ranks, adopters = tail.popularity_curve(np.sort(popularity)[::-1], _POINTS)
    return DataFacts.model_validate(
        {
            **split.train.facts(),
            "interval_cuts": tail.interval_cuts(popularity),
            "popularity_curve": zip(ranks.tolist(), adopters.tolist(), strict=True),
            "split_hash": hashlib.sha256((out / "split" / MANIFEST).read_bytes()).hexdigest(),
        }
    )


def _model_run(name: str, job: Job, outcome: Done, tuned: dict[str, Any]) -> ModelRun:
    assert outcome.evaluation is not None  # the job was judged
    return ModelRun(
        name=name,
        seed=job.seed,
        tuned=tuned,
        validation=outcome.value,
        settings=outcome.settings,
        evaluation=outcome.evaluation,
        **({"dialled": outcome.dialled} if outcome.dialled else {}),
        **({"aimed": outcome.aimed} if outcome.aimed else {}),
        history=outcome.history,
        fit_seconds=outcome.fit_seconds,
        threads=outcome.threads,
        peak_memory_mib=outcome.peak_memory_mib,
    )


def _comparisons(measure: str, out: Path, findings: dict[str, _Findings]) -> tuple[Comparison, ...]:
    values = _by_seed(measure, out, findings)
    means = {name: by_seed.mean(axis=0, dtype=np.float64) for name, by_seed in values.items()}
    return tuple(Comparison(**vars(one)) for one in compare(means))


def _by_seed(measure: str, out: Path, findings: dict[str, _Findings]) -> dict[str, npt.NDArray[np.float64]]:
    """A measure for every seed and user under every model, (n_seeds, n_users); empty if the data do not have it."""
    values = {}
    for name, found in findings.items():
        tables = [_read_per_user(job.folder(out) / "per_user.parquet") for job, _ in found.done]
        if tables and all(measure in table.column_names for table in tables):
            if len({table.num_rows for table in tables}) > 1:
                raise FolderError(f"the jobs of '{name}' in '{out}' do not judge the same users; start the run again")
            values[name] = np.stack([table[measure].to_numpy() for table in tables])
    return values


def _read_per_user(path: Path) -> pa.Table:
    """The measures of single users that a job kept."""
    try:
        table = pq.read_table(path)
        table.validate(full=True)
    except (pa.ArrowException, OSError, MemoryError, ValueError) as error:
        raise FolderError(
            f"'{path}' is damaged ({first_line(error)}); delete the folder '{path.parent}' and run again"
        ) from None
    if any(kind != pa.float32() for kind in table.schema.types):
        raise FolderError(f"'{path}' does not hold measures; delete the folder '{path.parent}' and run again")
    return table
