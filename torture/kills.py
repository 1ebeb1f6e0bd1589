"""Commands that are killed, ended, interrupted or stopped: at named points, and at any time.

Afterwards what they write is whole or absent, what was there before is still there, and the same command again gives
what an undisturbed one gives, and cleans up.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from torture.bases import Bases
from torture.cases import Case
from torture.commands import Ended, ended, kill_group, started, verdict
from torture.pauses import Pause
from torture.verdicts import Outcome, accepted
from torture.written import COMMANDS, LIMIT, Command, finished, half_written, laid_out, reference

_SIGNALS = ("KILL",) * 8 + ("TERM", "TERM", "INT", "INT", "STOP")
_OFTEN = ("simulate", "simulate over", "prepare", "split", "split over", "fit", "fit", "fit over", "refit")


def make_kill(chance: random.Random, bases: Bases) -> Case:
    name = chance.choice((*COMMANDS, *_OFTEN))
    number = chance.choice(_SIGNALS)
    at: dict[str, Any] = {"point": chance.choice(COMMANDS[name].points)}
    if number != "INT" and chance.random() < 0.5:  # before milrec begins, an interrupt is Python's own
        at = {"share": round(chance.random() * 1.05, 3)}
    return Case("kills", name, {"signal": number, **at})


def run_kill(case: Case, place: Path, bases: Bases) -> Outcome:
    command = COMMANDS[case.kind]
    seconds = reference(case.kind, bases).seconds
    laid_out(command, place, bases)
    end = _disturbed(command, case.facts, seconds, place)
    wrong = _ended_well(end, case.facts["signal"]) or half_written(command, case.kind, place, bases)
    return wrong or finished(command, case.kind, place, bases) or accepted


def _disturbed(command: Command, facts: dict[str, Any], seconds: float, place: Path) -> Ended | None:
    """Start the command, send it the signal at its point or time, and wait for its end."""
    log, number = place / "log", getattr(signal, f"SIG{facts['signal']}")
    if "share" in facts:
        process = started(command.arguments, place, log)
        time.sleep(facts["share"] * seconds)
        return _after(process, number, log, None)
    pause = Pause(facts["point"])
    process = pause.started(command.arguments, place, log)
    try:
        if not pause.arrive(LIMIT):
            return ended(process, log, LIMIT)
        return _after(process, number, log, pause)
    finally:
        pause.close()
        kill_group(process.pid)


def _after(process: subprocess.Popen[bytes], number: signal.Signals, log: Path, pause: Pause | None) -> Ended | None:
    process.send_signal(number)
    if number == signal.SIGSTOP:
        time.sleep(0.3)
        process.send_signal(signal.SIGCONT)
    if pause is not None and number != signal.SIGKILL:
        pause.close()  # a step that is under way is finished first
    return ended(process, log, LIMIT)


def _ended_well(end: Ended | None, sent: str) -> Outcome | None:
    """Whether a command ended as the signal asks; it may have been done already."""
    if end is None:
        return Outcome("hang", f"no end after SIG{sent}")
    if "Traceback" in end.error:
        return Outcome("traceback", end.error[-3000:])
    expected = {"KILL": (-9,), "TERM": (-15, 143), "INT": (130,), "STOP": ()}[sent]
    if end.code == 130 and "milrec: interrupted" not in end.error:
        return Outcome("not one sentence", f"an interrupt without its sentence: {end.error[-300:]!r}")
    if end.code in expected:
        return None
    outcome = verdict(end)
    return (
        None
        if outcome.kind == "accepted"
        else Outcome("wrong exit code", f"{end.code} after SIG{sent}: {outcome.what}")
    )
