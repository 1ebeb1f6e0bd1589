"""Disks that fail under a command that writes: full, broken, read-only, or with no file handle left.

A small tmpfs is really full; a library that is loaded before all others makes the n-th call of a kind fail. The command
must end with one sentence and code 1, or be right all the same; nothing is half-written, and nothing is left behind.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import random
import shutil
import struct
import subprocess
from pathlib import Path

from torture.bases import Bases
from torture.cases import Case
from torture.commands import Ended, ended, started, verdict
from torture.verdicts import ACCEPTED, Outcome, accepted
from torture.workers import OwnFault
from torture.written import COMMANDS, LIMIT, Command, content_of, half_written, laid_out, left_behind, reference

_CALLS = ("open", "write", "fsync", "rename", "mkdir", "mmap", "read")  # as in faults.c
_ERRORS = {
    "open": ("EMFILE", "EROFS", "ENOSPC", "EIO", "EACCES"),
    "write": ("ENOSPC", "ENOSPC", "EIO", "EDQUOT", "EFBIG"),
    "fsync": ("EIO", "ENOSPC"),
    "rename": ("EIO", "ENOSPC", "EROFS"),
    "mkdir": ("ENOSPC", "EROFS", "EMLINK"),
    "mmap": ("ENOMEM", "EIO", "ENODEV"),
    "read": ("EIO",),
}
_SOURCE = Path(__file__).with_name("faults.c")


def make_fault(chance: random.Random, bases: Bases) -> Case:
    name = chance.choice([name for name in COMMANDS if name != "experiment"])
    if chance.random() < 0.25:
        return Case("disks", name, {"room": round(chance.random(), 3)})
    call = chance.choice(("open", "write", "write", "write", "fsync", "rename", "mkdir", "mmap", "read"))
    facts = {"call": call, "share": round(chance.random(), 3), "error": chance.choice(_ERRORS[call])}
    return Case("disks", name, {**facts, "stays": chance.random() < 0.5})


def run_fault(case: Case, place: Path, bases: Bases) -> Outcome:
    command, facts = COMMANDS[case.kind], case.facts
    if "room" in facts:
        return _on_a_full_disk(case.kind, facts["room"], place, bases)
    library = built(bases)
    calls = _calls(case.kind, library, bases)[facts["call"]]
    if not calls:
        return Outcome(ACCEPTED, trials=0)  # there is nothing to fail
    laid_out(command, place, bases)
    stays = ":stays" if facts["stays"] else ""
    number = math.ceil(facts["share"] * calls) or 1
    fault = f"{facts['call']}:{number}:{getattr(errno, facts['error'])}{stays}"
    outcome = _judged(_with_faults(command, place, library, TORTURE_FAULT=fault), case.kind, place, bases)
    if outcome.failed or (facts["call"] == "open" and facts["stays"]):  # a folder that cannot be opened stays as it is
        return outcome
    return left_behind(place) or outcome


def lacks() -> str | None:
    return None if _compiler() else "there is no C compiler: install gcc"


def _compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def built(bases: Bases) -> Path:
    """The library that makes calls fail, compiled once."""
    library = bases.place / "faults.so"
    if not library.exists():
        made = library.with_suffix(f".{os.getpid()}")
        subprocess.run([_compiler() or "cc", "-shared", "-fPIC", "-O1", "-o", made, _SOURCE, "-ldl"], check=True)
        made.rename(library)
    return library


def _with_faults(command: Command, place: Path, library: Path, **more: str) -> Ended | None:
    preload = {"LD_PRELOAD": str(library), "TORTURE_UNDER": str(place.resolve()), **more}
    return ended(started(command.arguments, place, place / "log", **preload), place / "log", LIMIT)


def _calls(name: str, library: Path, bases: Bases) -> dict[str, int]:
    """How many calls of each kind an undisturbed command makes."""
    kept = bases.place / "reference" / f"{name.replace(' ', '-')}.calls"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        place = bases.place / "reference" / f"counting-{os.getpid()}"
        laid_out(COMMANDS[name], place, bases)
        counted = kept.with_suffix(f".{os.getpid()}")
        outcome = verdict(_with_faults(COMMANDS[name], place, library, TORTURE_COUNTS=str(counted)))
        if outcome is not accepted:
            raise OwnFault(f"'{name}' fails while its calls are counted: {outcome.what}")
        shutil.rmtree(place)
        counted.rename(kept)
    return dict(zip(_CALLS, struct.unpack(f"<{len(_CALLS)}q", kept.read_bytes()), strict=True))


def _judged(end: Ended | None, name: str, place: Path, bases: Bases) -> Outcome:
    outcome = verdict(end)
    if outcome.failed:
        return outcome
    command = COMMANDS[name]
    if outcome is accepted and content_of(place / command.out) != reference(name, bases).content:
        return Outcome("silent loss", "the command says that all is well, but wrote something else")
    shutil.rmtree(place / f"{command.out}.partial", ignore_errors=True)  # a checkpoint may stay, to be resumed
    return half_written(command, name, place, bases) or outcome


def _on_a_full_disk(name: str, room: float, place: Path, bases: Bases) -> Outcome:
    """A file system with room for a part of what the command writes, which is mounted for it."""
    small = place / "small"
    command, page = COMMANDS[name], 4096
    needed = reference(name, bases).sizes
    laid_out(command, place / "whole", bases)
    held = sum(path.stat().st_size + page for path in (place / "whole").rglob("*"))
    small.mkdir()
    size = int(held + room * needed + 2 * page)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", small], capture_output=True)
    if mounted.returncode:
        return Outcome("refused", "a tmpfs cannot be mounted here")
    try:
        shutil.copytree(place / "whole", small, dirs_exist_ok=True)
        end = ended(started(command.arguments, small, place / "log"), place / "log", LIMIT)
        outcome = _judged(end, name, small, bases)
        return outcome if outcome.failed else left_behind(small) or outcome
    finally:
        subprocess.run(["umount", "-l", small], check=False)


def unmount_all(scratch: Path) -> None:
    """What processes that were killed have left mounted."""
    for line in Path("/proc/mounts").read_text().splitlines():
        if (mounted := line.split()[1]).startswith(str(scratch)):
            with contextlib.suppress(OSError):
                subprocess.run(["umount", "-l", mounted], check=False)
