"""What came of a trial, and the table of a campaign: trials, failures and their seeds."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ACCEPTED, REFUSED = "accepted", "refused"
FAILURES = (
    "traceback",  # an exception that is not milrec's, or one that was printed
    "exit 70",  # the last-resort handler had to answer
    "wrong exit code",
    "not one sentence",  # an error without a sentence, with several, or with control characters in it
    "hang",
    "crash",  # ended by a signal
    "memory",  # a file of kilobytes took a gigabyte
    "silent loss",  # rows were dropped, added or changed, and nothing was said
    "wrong answer",
    "5xx",
    "half-written",
    "wrong resume",
    "own fault",  # the campaign could not carry out a trial: not milrec's fault, but not a success either
    "left behind",  # temporary files that nobody cleans up
)


@dataclass(frozen=True)
class Outcome:
    """What came of a trial: accepted, refused, or a kind of failure."""

    kind: str
    what: str = ""  # a sentence, or the end of a traceback
    trials: int = 1  # how many trials this one stands for
    case: str = ""  # a smaller case than that of the whole trial, as the text of a file

    @property
    def failed(self) -> bool:
        return self.kind in FAILURES

    @property
    def signature(self) -> str:
        """The same for failures that are probably one fault: the kind, and where it happened."""
        lines = [line.strip() for line in self.what.splitlines() if line.strip()]
        places = [line for line in lines if line.startswith("File ") and "/torture/torture/" not in line]
        last = re.sub(r"'[^']*'?|0x[0-9a-f]+|[^a-zA-Z:. ]+", "", lines[-1])[:50] if lines else ""
        return f"{self.kind}: {last} {places[-1] if places else ''}".strip()


accepted = Outcome(ACCEPTED)
refused = Outcome(REFUSED)


@dataclass
class Found:
    """One fault, as far as signatures tell, with the trials that hit it and the files of its first cases."""

    kind: str
    what: str
    seeds: list[str] = field(default_factory=list)
    cases: list[str] = field(default_factory=list)


@dataclass
class Tally:
    """A section of a campaign: how many trials ended how, and the faults that were found."""

    section: str
    counts: Counter[str] = field(default_factory=Counter)
    found: dict[str, Found] = field(default_factory=dict)
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def trials(self) -> int:
        return sum(self.counts.values())

    @property
    def failures(self) -> int:
        return sum(self.counts[kind] for kind in FAILURES)

    def add(self, outcome: Outcome, seed: str) -> Found | None:
        """Count an outcome; the fault it belongs to, if it is a failure."""
        self.counts[outcome.kind] += outcome.trials
        if not outcome.failed:
            return None
        fault = self.found.setdefault(outcome.signature, Found(outcome.kind, outcome.what))
        if seed not in fault.seeds:
            fault.seeds.append(seed)
        return fault

    def as_json(self) -> dict[str, Any]:
        return {
            "section": self.section,
            "trials": self.trials,
            "failures": self.failures,
            "seconds": round(self.seconds, 1),
            "outcomes": dict(sorted(self.counts.items())),
            "found": [vars(fault) for fault in self.found.values()],
            "notes": self.notes,
        }


def write_tallies(path: Path, tallies: Iterable[Tally], facts: dict[str, Any]) -> None:
    value = {**facts, "sections": [tally.as_json() for tally in tallies]}
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def show(tallies: list[Tally], console: Console) -> None:
    """The table, then each fault with its first seeds."""
    table = Table("section", "trials", "refused", "accepted", "failures", "faults", "first seeds", "seconds")
    for tally in tallies:
        seeds = [fault.seeds[0] for fault in tally.found.values()]
        table.add_row(
            tally.section,
            *(f"{count:,}" for count in (tally.trials, tally.counts[REFUSED], tally.counts[ACCEPTED], tally.failures)),
            str(len(tally.found)),
            " ".join(seeds[:3]) + (" …" if len(seeds) > 3 else ""),
            f"{tally.seconds:.0f}",
        )
    console.print(table)
    for tally in tallies:
        for note in tally.notes:
            console.print(f"{tally.section}: {note}", markup=False)
        for fault in tally.found.values():
            lines = "\n".join(f"    {line}" for line in fault.what.splitlines()[-6:])
            console.print(f"{fault.kind} × {len(fault.seeds)}, seed {fault.seeds[0]}", style="bold", markup=False)
            console.print(lines, markup=False, highlight=False)
            for case in fault.cases[:1]:
                console.print(f"    again: python -m torture --case {case}", markup=False, highlight=False)
