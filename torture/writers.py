"""Several processes, one place: writers into the same folder, readers while it is replaced, writers that are killed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torture.bases import Bases
from torture.cases import Case
from torture.commands import ended, kill_group, started, verdict
from torture.pauses import Pause
from torture.reading import refusal
from torture.verdicts import Outcome, accepted
from torture.written import COMMANDS, LIMIT, content_of, finished, laid_out, left_behind, reference

if TYPE_CHECKING:
    import milrec

_TOGETHER = ("simulate", "simulate over", "prepare", "split over", "fit", "ease", "recommend", "experiment")


def make_writers(chance: random.Random, bases: Bases) -> Case:
    pick = chance.random()
    if pick < 0.4:
        return Case("writers", "together", {"command": chance.choice(_TOGETHER), "processes": chance.choice((2, 2, 3))})
    if pick < 0.6:
        return Case(
            "writers", "held", {"killed": chance.random() < 0.5, "point": f"fit step {chance.randrange(1, 39)}"}
        )
    return Case("writers", "readers", {"what": chance.choice(("data", "model-dae")), "times": 40})


def run_writers(case: Case, place: Path, bases: Bases) -> Outcome:
    run: dict[str, Callable[[Case, Path, Bases], Outcome]] = {"together": _together, "held": _held, "readers": _readers}
    return run[case.kind](case, place, bases)


def _together(case: Case, place: Path, bases: Bases) -> Outcome:
    """All at once: at least one succeeds, the others say so in one sentence, and the outcome is whole."""
    name = case.facts["command"]
    command, expected = COMMANDS[name], reference(name, bases).content
    laid_out(command, place, bases)
    logs = [place / f"log{number}" for number in range(case.facts["processes"])]
    processes = [started(command.arguments, place, log) for log in logs]
    outcomes = [verdict(ended(process, log, LIMIT)) for process, log in zip(processes, logs, strict=True)]
    for outcome in outcomes:
        if outcome.failed:
            return outcome
    if accepted not in outcomes:
        return Outcome("wrong answer", f"nobody succeeds: {'; '.join(outcome.what for outcome in outcomes)}")
    if content_of(place / command.out) != expected:
        return Outcome("half-written", "what is there is not what one process alone writes")
    return left_behind(place) or accepted


def _held(case: Case, place: Path, bases: Bases) -> Outcome:
    """A second fit into a folder that a first one is busy with is refused at once; a killed one is in nobody's way."""
    command = COMMANDS["fit"]
    laid_out(command, place, bases)
    pause = Pause(case.facts["point"])
    first = pause.started(command.arguments, place, place / "log")
    try:
        if not pause.arrive(LIMIT):
            return verdict(ended(first, place / "log", LIMIT))
        second = verdict(ended(started([*command.arguments, "--resume"], place, place / "log2"), place / "log2", LIMIT))
        if second.kind != "refused":
            return second if second.failed else Outcome("wrong answer", "two fits write into one folder")
        if not case.facts["killed"]:
            pause.close()
            outcome = verdict(ended(first, place / "log", LIMIT))
            return outcome if outcome is not accepted else finished(command, "fit", place, bases) or accepted
        first.kill()
        first.wait()
        return finished(command, "fit", place, bases) or accepted
    finally:
        pause.close()
        kill_group(first.pid)


def _readers(case: Case, place: Path, bases: Bases) -> Outcome:
    """Readers of a folder that is replaced over and over: each sees the one or the other, or is refused."""
    import milrec

    folder = place / "live"
    load = milrec.Interactions.load if case.facts["what"] == "data" else milrec.load
    first, second = load(bases.place / case.facts["what"]), _another(case.facts["what"], bases)
    first.save(folder)
    known = {_mark(first), _mark(second)}
    writer = os.fork()
    if writer == 0:
        code = 0
        try:
            for number in range(case.facts["times"]):
                (second if number % 2 else first).save(folder, replace=True)
        except BaseException:
            code = 1
        os._exit(code)
    outcome, until = accepted, time.monotonic() + LIMIT
    while os.waitpid(writer, os.WNOHANG) == (0, 0):
        try:
            if _mark(load(folder)) not in known:
                outcome = Outcome("wrong answer", "a reader sees something that was never written")
        except milrec.MilrecError as error:
            outcome = refusal(error) if not outcome.failed else outcome
        if time.monotonic() > until:
            os.kill(writer, signal.SIGKILL)
            return Outcome("hang", "a folder is replaced for ever")
    if _mark(load(folder)) not in known:
        return Outcome("wrong answer", "the last folder is none of those that were written")
    return outcome if outcome.failed else left_behind(place) or accepted


def _another(what: str, bases: Bases) -> milrec.Interactions | milrec.Recommender:
    import milrec

    if what == "data":
        return milrec.simulate(milrec.Simulation(n_users=30, n_items=20, mean_shown=10), seed=5)
    return milrec.load(bases.model("ease"))


def _mark(value: milrec.Interactions | milrec.Recommender) -> str:
    """What tells two folders apart."""
    import milrec

    if isinstance(value, milrec.Interactions):
        return value.fingerprint()
    return repr(value.recommend(value.user_ids[:2], n=3).to_pylist())
