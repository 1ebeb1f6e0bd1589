"""python -m torture: a campaign of damaged inputs, forged folders, kills, disk faults and hostile requests.

By default it takes about an hour on two cores. It ends with a table, and with code 1 if anything failed; each failing
case is a file that can be run again with --case.
"""

from __future__ import annotations

import os

# Before numpy is imported: a process with threads cannot fork well.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from torture import folders
from torture.bases import Bases, in_a_child, made
from torture.cases import Case, chance, read_case, text_of
from torture.disks import unmount_all
from torture.sections import SECTIONS, Section, load_milrec
from torture.verdicts import Outcome, Tally, show, write_tallies
from torture.workers import Crew, OwnFault, carry_out

_CASES_PER_FAULT = 3
_WHOLE = 60  # minutes of a whole campaign, which is held to these numbers:
LEAST = {"inputs": 100_000, "folders": 5_000, "requests": 50_000, "kills": 300, "disks": 30, "writers": 10}
_ROOM = 1 << 30  # bytes


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and clean up
    load_milrec()
    with tempfile.TemporaryDirectory(prefix="milrec-torture-", dir=_scratch()) as scratch:
        bases = made(Path(scratch) / "bases")
        if options.case:
            tallies = [_again(options.case, bases, Path(scratch))]
        else:
            wanted = [section for section in SECTIONS if not options.only or section.name in options.only]
            whole = sum(section.share for section in wanted)
            tallies = [_section(section, section.share / whole, bases, Path(scratch), options) for section in wanted]
        unmount_all(Path(scratch))
    facts = {"seed": options.seed, "minutes": options.minutes, "command": " ".join(sys.argv[1:])}
    write_tallies(options.out / "torture.json", tallies, facts)
    show(tallies, Console(width=None if sys.stdout.isatty() else 160))
    short = _too_few(tallies, options)
    for sentence in short:
        print(sentence)  # noqa: T201 - the verdict of a command
    sys.exit(bool(short) or any(tally.failures for tally in tallies))


def _too_few(tallies: list[Tally], options: argparse.Namespace) -> list[str]:
    """What a whole campaign has tried too little of."""
    if options.case or options.only or options.quick or options.trials or options.minutes < _WHOLE:
        return []
    done = Counter({tally.section: tally.trials for tally in tallies})
    done["inputs"] += done.pop("guided", 0)
    return [f"too few {name}: {done[name]:,} of {least:,}" for name, least in LEAST.items() if done[name] < least]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    names = [section.name for section in SECTIONS]
    parser.add_argument(
        "--out", type=Path, default=Path("runs/torture"), help="folder for the results and failing cases"
    )
    parser.add_argument("--minutes", type=float, default=60, help="how long all sections take together")
    parser.add_argument("--trials", type=int, help="so many trials of each section instead, however long they take")
    parser.add_argument(
        "--quick", action="store_true", help="a few inputs, folders and requests: the part that `make test` runs"
    )
    parser.add_argument("--only", action="append", choices=names, help="only this section; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same trials")
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--workers", type=int, default=2, help="processes that share the trials")
    parser.add_argument(
        "--case", type=Path, action="append", metavar="FILE", help="run this case again; may be repeated"
    )
    return parser.parse_args()


def _scratch() -> str | None:
    """In memory where that is possible: a campaign writes a great many small files."""
    memory = Path("/dev/shm")
    return str(memory) if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM else None


def _section(section: Section, share: float, bases: Bases, scratch: Path, options: argparse.Namespace) -> Tally:
    tally, started = Tally(section.name), time.monotonic()
    if lacking := section.lacks():
        tally.notes.append(f"left out, for {lacking}")
        return tally
    trials = section.few if options.quick else options.trials
    if section.name == "folders":
        in_a_child(lambda: folders.check_signatures(bases, scratch))

    def trial(number: int, place: Path) -> Outcome | list[Outcome]:
        return section.run(_made(section, options.seed, number, bases), place, bases)

    until = started + 60 * share * options.minutes if trials is None else float("inf")
    crew = Crew(scratch / section.name, options.workers, until, trials, options.first, section.limit)
    for number, outcome in carry_out(trial, crew):
        fault = tally.add(outcome, f"{options.seed}/{section.name}/{number}")
        if fault is not None and outcome.kind != "own fault" and len(fault.cases) < _CASES_PER_FAULT:
            path = options.out / "cases" / f"{section.name}-{options.seed}-{number}.json"
            path.parent.mkdir(exist_ok=True)
            _write_case(path, outcome, lambda: _made(section, options.seed, number, bases))  # noqa: B023 - at once
            fault.cases.append(str(path))
    tally.seconds = time.monotonic() - started
    return tally


def _made(section: Section, seed: int, number: int, bases: Bases) -> Case:
    try:
        return section.make(chance(seed, section.name, number), bases)
    except Exception as error:
        raise OwnFault(f"trial {seed}/{section.name}/{number} cannot be made") from error


def _write_case(path: Path, outcome: Outcome, make: Callable[[], Case]) -> None:
    """Make the case again and write it down, in another process: its making may need threads."""
    found = f"{outcome.kind}: {outcome.what[-500:]}"
    in_a_child(lambda: path.write_text(outcome.case or text_of(make(), found), encoding="utf-8"))


def _again(paths: list[Path], bases: Bases, scratch: Path) -> Tally:
    """Cases from files, each in a process of its own."""
    sections = {section.name: section for section in SECTIONS}
    tally, started = Tally("cases"), time.monotonic()

    def trial(number: int, place: Path) -> Outcome | list[Outcome]:
        case: Case = read_case(paths[number])
        return sections[case.section].run(case, place, bases)

    for number, outcome in carry_out(trial, Crew(scratch / "cases", 1, float("inf"), len(paths))):
        fault = tally.add(outcome, paths[number].stem)
        if fault is not None:
            fault.cases.append(str(paths[number]))
    tally.seconds = time.monotonic() - started
    return tally


if __name__ == "__main__":
    main()
