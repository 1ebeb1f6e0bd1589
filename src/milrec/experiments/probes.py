"""Processes that time the models of a run before it begins: what they are asked, and what they answer (see probe.py).

They run as the jobs will run: as many at once, and with as many threads each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from milrec.kernels.threads import available
from milrec.settings import Settings

_PROCESS = "from milrec.entry import probe; probe()"


class Timing(Settings):
    """What a fit takes on this machine and these data, in seconds."""

    fit_seconds: float  # a whole fit with its validations
    judge_seconds: float  # all users of the test part
    at_most: bool  # whether a fit may take less
    start_seconds: float = 0.0  # until the process had begun and opened the split
    steps: int | None = None  # of a whole fit; None for a model that is not fitted in steps
    step_seconds: float | None = None


class Untimed(Settings):
    """A model could not be timed, and why."""

    error: str


_ANSWERS: TypeAdapter[Timing | Untimed] = TypeAdapter(Timing | Untimed)
_NO_ANSWER = Untimed(error="the process that was to time it ended early")


def timings(wanted: Sequence[dict[str, Any]], split: Path, at_once: int) -> list[Timing | Untimed]:
    """One for each of these settings of a fit; `at_once` jobs will run at a time."""
    n_processes = min(at_once, len(wanted))
    threads = max(1, available() // at_once)
    found: list[Timing | Untimed] = [_NO_ANSWER] * len(wanted)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(n_processes):
            processes.append(_started(wanted[number::n_processes], split, threads))
        for number, process in enumerate(processes):
            assert process.stdout is not None
            for place, line in zip(range(number, len(wanted), n_processes), process.stdout, strict=False):
                found[place] = _answer(line)
    finally:
        for process in processes:
            process.kill()  # nothing is lost with it
            with suppress(BrokenPipeError), process:
                pass
    return found


def _started(wanted: Sequence[dict[str, Any]], split: Path, threads: int) -> subprocess.Popen[bytes]:
    env = {name: value for name, value in os.environ.items() if name != "MILREC_PAUSE_AT"}  # tests hold jobs, not us
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _PROCESS, str(split)],  # -P: no module from the current folder
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**env, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)},
        start_new_session=True,  # Ctrl-C reaches the run alone, which ends it
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # the process is gone, and its output will end
        process.stdin.write(json.dumps({"started": time.time(), "settings": wanted}).encode() + b"\n")
        process.stdin.flush()
    return process


def _answer(line: bytes) -> Timing | Untimed:
    try:
        return _ANSWERS.validate_json(line)
    except ValidationError:
        return _NO_ANSWER
