"""Commands of milrec and how they may end: with 0, or with one sentence and code 1 (usage: 2)."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import milrec
from torture.verdicts import Outcome, accepted, refused

ROOT = Path(__file__).resolve().parents[1]
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_LONGEST = 2_000  # characters of a sentence


class Ended(NamedTuple):
    """A command that has ended; below zero, its code is a signal."""

    code: int
    out: str
    error: str


def command_here(arguments: Sequence[object], cwd: Path) -> Ended:
    """A command in this process, which saves seconds of loading."""
    from milrec.cli.app import main

    out, error = io.StringIO(), io.StringIO()
    code: int | str = 0
    before, sys.argv = sys.argv, ["milrec", *map(str, arguments)]
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        except BaseException:  # whatever it is, a user would see it
            error.write(traceback.format_exc())
            code = 1
        finally:
            sys.argv = before
    return Ended(code if isinstance(code, int) else 1, out.getvalue(), error.getvalue())


def environment(**more: str) -> dict[str, str]:
    """That of a process of milrec: the package that this process has, and one thread for each product."""
    package = Path(milrec.__file__).parents[1]
    path = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILREC_")}
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def started(arguments: Sequence[object], cwd: Path, log: Path, **more: str) -> subprocess.Popen[bytes]:
    """A command in a process of its own, in a session of its own; what it says is written to files."""
    command = [sys.executable, "-m", "milrec", *map(str, arguments)]
    with log.with_suffix(".out").open("wb") as out, log.with_suffix(".err").open("wb") as error:
        return subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=error, env=environment(**more),
            start_new_session=True, preexec_fn=_end_with_parent,
        )  # fmt: skip


_libc = ctypes.CDLL(None)


def _end_with_parent() -> None:
    """A process that a campaign starts does not outlive it."""
    _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def ended(process: subprocess.Popen[bytes], log: Path, limit: float) -> Ended | None:
    """How a command ended; None if it did not within the limit, and was killed."""
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        kill_group(process.pid)
        process.wait()
        return None
    texts = [log.with_suffix(suffix).read_text(encoding="utf-8", errors="replace") for suffix in (".out", ".err")]
    return Ended(code, *texts)


def kill_group(leader: int) -> None:
    """Kill a process that leads a session, and everything in it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def verdict(end: Ended | None) -> Outcome:
    """Whether a command ended as it may."""
    if end is None:
        return Outcome("hang", "the command did not end")
    if "Traceback (most recent call last)" in end.error:
        return Outcome("traceback", end.error[-3000:])
    if end.code < 0:
        return Outcome("crash", f"signal {-end.code}\n{end.error[-2000:]}")
    if end.code == 70:
        return Outcome("exit 70", end.error[-2000:])
    if end.code not in (0, 1, 2):
        return Outcome("wrong exit code", f"exit code {end.code}: {end.error[-500:]}")
    if found := _CONTROL.search(end.out + end.error):
        return Outcome("not one sentence", f"control character {found[0]!r} in what is printed")
    if end.code == 0:
        return accepted
    return _sentence(end) if end.code == 1 else refused


def _sentence(end: Ended) -> Outcome:
    lines = [line for line in end.error.splitlines() if line.startswith("milrec: ")]
    others = [
        line for line in end.error.splitlines() if line.strip() and not line.startswith(("milrec: ", "note: "))
    ]  # a bar may stand above the sentence
    if len(lines) != 1 or any("Error" in line for line in others):
        return Outcome("not one sentence", f"exit code 1 with {len(lines)} sentences: {end.error[-500:]!r}")
    if len(lines[0]) > _LONGEST or end.error.rstrip().splitlines()[-1] != lines[0].rstrip():
        return Outcome("not one sentence", f"a sentence of {len(lines[0])} characters: {end.error[-300:]!r}")
    return Outcome("refused", lines[0])
