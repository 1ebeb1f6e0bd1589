"""The sections of a campaign: how a case of each is made, how it is run, and how much of the time it gets."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torture import archives, disks, folders, guided, kills, parquet, requests, tables, texts, writers
from torture.bases import Bases
from torture.cases import Case
from torture.verdicts import Outcome
from torture.workers import LIMIT

_LONG = 1_000.0  # for trials that start processes, which have limits of their own

Make = Callable[[random.Random, Bases], Case]
Run = Callable[[Case, Path, Bases], Outcome | list[Outcome]]


@dataclass(frozen=True)
class Section:
    """Trials of one sort, carried out by processes that may crash."""

    name: str
    share: float  # of the campaign's time
    few: int  # trials of the quick part; 0 where tests/cases has several that are always run
    make: Make
    run: Run
    limit: float = LIMIT  # seconds for a trial
    lacks: Callable[[], str | None] = lambda: None  # what it needs and does not find


def _make_input(chance: random.Random, bases: Bases) -> Case:
    make = chance.choice(
        (tables.make_table, tables.make_table, parquet.make_parquet, archives.make_archive, texts.make_text)
    )
    return make(chance)


def _run_input(case: Case, place: Path, bases: Bases) -> Outcome:
    if case.kind in ("table", "parquet", "archive"):
        run = {"table": tables.run_table, "parquet": parquet.run_parquet, "archive": archives.run_archive}[case.kind]
        return run(case, place)
    return texts.run_text(case, place, bases)


def _make_folder(chance: random.Random, bases: Bases) -> Case:
    return (folders.make_checkpoint if chance.random() < 0.1 else folders.make_folder)(chance, bases)


def _run_folder(case: Case, place: Path, bases: Bases) -> Outcome:
    return (folders.run_checkpoint if case.kind == "checkpoint" else folders.run_folder)(case, place, bases)


def load_milrec() -> None:
    """What the trials use, so that a fresh process has it at once."""
    import milrec.cli.app
    import milrec.experiments.recipe
    import milrec.recommender
    import milrec.report.page  # noqa: F401


SECTIONS = (
    Section("inputs", 0.5, 300, _make_input, _run_input),
    Section("guided", 0.04, 0, guided.make_guided, guided.run_guided, _LONG, guided.lacks),
    Section("folders", 0.05, 50, _make_folder, _run_folder),
    Section("requests", 0.05, 1, requests.make_requests, requests.run_requests, _LONG),
    Section("kills", 0.3, 0, kills.make_kill, kills.run_kill, _LONG),
    Section("disks", 0.04, 0, disks.make_fault, disks.run_fault, _LONG, disks.lacks),
    Section("writers", 0.02, 0, writers.make_writers, writers.run_writers, _LONG),
)
