"""Trials in processes of their own: one that crashes or hangs is recorded, and the others carry on.

This process only loads the modules. It forks children that carry out the trials; a child that is gone is replaced by a
fresh one within milliseconds, which resumes after the trial that it died of.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import resource
import selectors
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn

from torture.verdicts import Outcome

_TRIALS_PER_CHILD = 2_000  # then a fresh one takes over, so that no trial suffers from many others
_MEMORY = 6 << 30  # bytes of address space: a file of kilobytes that asks for more gets a MemoryError
_MOST_GROWN = 1 << 20  # kilobytes that a trial may take
LIMIT = 60.0  # seconds for a trial that takes milliseconds


class OwnFault(Exception):
    """The campaign itself is at fault, not milrec."""


Trial = Callable[[int, Path], Outcome | list[Outcome]]  # a number, and an empty folder


class Result(NamedTuple):
    number: int
    outcome: Outcome


@dataclass
class _Child:
    """A process that carries out every n-th trial, and what is known about it."""

    place: Path
    following: int  # the trial that comes after the current one
    process: int = 0
    pipe: int = -1
    current: int | None = None
    since: float = field(default_factory=time.monotonic)
    text: bytes = b""


@dataclass(frozen=True)
class Crew:
    """How many processes share the trials, where they work, and for how long."""

    place: Path
    size: int
    until: float  # on the monotonic clock
    most: int | None = None  # trials
    first: int = 0
    limit: float = LIMIT


def carry_out(trial: Trial, crew: Crew) -> Iterator[Result]:
    """The results of trials, in whatever order they are finished."""
    gc.freeze()
    crew.place.mkdir(parents=True, exist_ok=True)
    waiting = selectors.DefaultSelector()
    children = [_Child(crew.place / f"worker-{number}", crew.first + number) for number in range(crew.size)]
    for child in children:
        _start(child, trial, crew, waiting)
    try:
        while waiting.get_map():
            for key, _ in waiting.select(timeout=0.5):
                yield from _heard(key.data, trial, crew, waiting)
            for child in children:
                if child.process and child.current is not None and time.monotonic() - child.since > crew.limit:
                    yield _given_up(child, trial, crew, waiting)
    finally:
        for child in children:
            _kill(child, waiting)


def alone(trial: Trial, place: Path, limit: float = LIMIT) -> Outcome:
    """One trial, in a process of its own."""
    crew = Crew(place, 1, float("inf"), most=1, limit=limit)
    return next(result.outcome for result in carry_out(trial, crew))


def _start(child: _Child, trial: Trial, crew: Crew, waiting: selectors.BaseSelector) -> None:
    receive, send = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child.process = os.fork()
    if child.process == 0:
        os.close(receive)
        _work(child, trial, crew, send)
    os.close(send)
    child.pipe, child.current, child.text, child.since = receive, None, b"", time.monotonic()
    waiting.register(receive, selectors.EVENT_READ, child)


def _work(child: _Child, trial: Trial, crew: Crew, send: int) -> NoReturn:
    """The life of a child."""
    code = 0
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        child.place.mkdir(parents=True, exist_ok=True)
        with (child.place / "stack.txt").open("w") as stack, (child.place / "stderr.txt").open("w") as said:
            os.dup2(said.fileno(), 2)  # warnings of numpy, and the like
            faulthandler.enable(stack)
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for number in _numbers(child.following, crew):
                if time.monotonic() > crew.until:
                    break
                _say(send, {"begin": number})
                outcomes = _tried(trial, number, child.place / "trial")
                _say(send, {"end": number, "outcomes": [vars(outcome) for outcome in outcomes]})
            else:
                code = 9 if crew.most is None or child.following + crew.size * _TRIALS_PER_CHILD < _last(crew) else 0
    except BaseException:
        traceback.print_exc()
        code = 8
    os._exit(code)


def _last(crew: Crew) -> int:
    return crew.first + crew.most if crew.most is not None else sys.maxsize


def _numbers(first: int, crew: Crew) -> range:
    return range(first, min(first + crew.size * _TRIALS_PER_CHILD, _last(crew)), crew.size)


def _tried(trial: Trial, number: int, place: Path) -> list[Outcome]:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        found = trial(number, place)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown > _MOST_GROWN:
            return [Outcome("memory", f"the trial took {grown >> 10} MB")]
        return found if isinstance(found, list) else [found]
    except OwnFault:
        return [Outcome("own fault", traceback.format_exc()[-4000:])]
    except Exception:
        return [Outcome("traceback", traceback.format_exc()[-4000:])]


def _say(pipe: int, value: dict[str, object]) -> None:
    data = json.dumps(value).encode() + b"\n"
    while data:
        data = data[os.write(pipe, data) :]


def _heard(child: _Child, trial: Trial, crew: Crew, waiting: selectors.BaseSelector) -> Iterator[Result]:
    data = os.read(child.pipe, 1 << 16)
    if not data:
        yield from _gone(child, trial, crew, waiting)
        return
    *lines, child.text = (child.text + data).split(b"\n")
    for line in lines:
        value = json.loads(line)
        child.since = time.monotonic()
        if "begin" in value:
            child.current, child.following = value["begin"], value["begin"] + crew.size
        else:
            child.current = None
            yield from (Result(value["end"], Outcome(**outcome)) for outcome in value["outcomes"])


def _gone(child: _Child, trial: Trial, crew: Crew, waiting: selectors.BaseSelector) -> Iterator[Result]:
    """A child has ended: because it is done, or of its trial."""
    code, current = _end(child, waiting), child.current
    if code == 8:
        raise OwnFault((child.place / "stderr.txt").read_text()[-3000:])
    if code < 0 and current is not None:
        stack = (child.place / "stack.txt").read_text()
        yield Result(current, Outcome("crash", f"{_stack(stack)}\nsignal {-code} ({signal.Signals(-code).name})"))
    if code and child.following < _last(crew):
        _start(child, trial, crew, waiting)


def _given_up(child: _Child, trial: Trial, crew: Crew, waiting: selectors.BaseSelector) -> Result:
    """A child hangs: have it write down where, and replace it."""
    assert child.current is not None
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.process, signal.SIGABRT)  # faulthandler writes the stack
        time.sleep(0.5)
    _kill(child, waiting)
    what = f"{_stack((child.place / 'stack.txt').read_text())}\nno answer after {crew.limit:g} s"
    result = Result(child.current, Outcome("hang", what))
    if child.following < _last(crew):
        _start(child, trial, crew, waiting)
    return result


def _stack(text: str) -> str:
    """The innermost calls last, as in a traceback."""
    lines = [line for line in text.splitlines() if line.strip().startswith("File ")]
    return "\n".join(reversed(lines[:12]))


def _end(child: _Child, waiting: selectors.BaseSelector) -> int:
    """Wait for a child that is about to end; its code."""
    if not child.process:
        return 0
    with contextlib.suppress(KeyError, ValueError):
        waiting.unregister(child.pipe)
    os.close(child.pipe)
    _, status = os.waitpid(child.process, 0)
    child.process, child.pipe = 0, -1
    return os.waitstatus_to_exitcode(status)


def _kill(child: _Child, waiting: selectors.BaseSelector) -> None:
    if child.process:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.process, signal.SIGKILL)
    _end(child, waiting)
