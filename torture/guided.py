"""Fuzzing that is guided by coverage (atheris): inputs that reach new lines of milrec are kept and changed further.

Only Python code is seen, not what Arrow and pydantic do inside. Verdicts are those of the other sections. This runs in
processes of their own: `python -m torture.guided TARGET FOLDER`, with options of libFuzzer.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import milrec
from torture.bases import RECIPE, Bases
from torture.cases import Case, text_of
from torture.commands import ROOT, environment
from torture.verdicts import ACCEPTED, Outcome

_RUNS = 2_000  # of a target in one trial, at most
_SECONDS = 60  # for them
_LIMIT = 900  # seconds


def _table(data: bytes) -> Case:
    return Case("inputs", "table", {"name": "t.csv", "how": "library", "options": {}}, {"t.csv": data})


def _rated_table(data: bytes) -> Case:
    options = {"value": "rating", "time": "time", "adopt_min": 4, "min_per_item": 0}
    return Case("inputs", "table", {"name": "t.csv", "how": "library", "options": options}, {"t.csv": data})


def _settings(data: bytes) -> Case:
    model, *values = data.decode("utf-8", "replace").split("\n")
    return Case("inputs", "settings", {"model": model or None, "loss": None, "set": values})


def _recipe(data: bytes) -> Case:
    return Case("inputs", "recipe", {}, {"recipe.toml": data})


def _keys(data: bytes) -> Case:
    return Case("inputs", "keys", {"variable": None}, {"keys.txt": data})


def _rule(data: bytes) -> Case:
    rule = data.decode("utf-8", "replace").replace("\0", "")
    return Case("inputs", "command", {"command": ["recommend", "MODEL", "--adopted", "i01", "--rule", rule]})


def _results(data: bytes) -> Case:
    return Case("folders", "run", {"signed": True, "gone": []}, {"results.json": data})


TARGETS: dict[str, tuple[Callable[[bytes], Case], bytes]] = {  # what makes a case of bytes, and bytes to begin with
    "table": (_table, b'user,item,title\nu1,i1,"A ""title"""\nu2,i2,x\n'),
    "rated table": (_rated_table, b"user,item,rating,time\nu1,i1,5,1700000000\nu2,i2,3,2024-01-31\n"),
    "settings": (_settings, b"dae\nepochs=3\nn_factors=5\nlearning_rate=1e-3"),
    "recipe": (_recipe, RECIPE.encode()),
    "keys": (_keys, b"# keys\nshop sha256:" + b"a1" * 32 + b"\n"),
    "rule": (_rule, b"long >= 30% in 10"),
    "results": (_results, b""),  # those of the base
}


def lacks() -> str | None:
    return None if importlib.util.find_spec("atheris") else "atheris is not installed: pip install 'milrec[torture]'"


def make_guided(chance: random.Random, bases: Bases) -> Case:
    return Case("guided", chance.choice(list(TARGETS)), {"seed": chance.randrange(1, 2**31), "runs": _RUNS})


def run_guided(case: Case, place: Path, bases: Bases) -> Outcome:
    """Let libFuzzer have its way with a target; what it found is a case of another section."""
    corpus = place / "corpus"
    corpus.mkdir()
    make, first = TARGETS[case.kind]
    (corpus / "first").write_bytes(first or (bases.run / "results.json").read_bytes())
    options = [
        f"-seed={case.facts['seed']}",
        f"-runs={case.facts['runs']}",
        "-print_final_stats=1",
        "-timeout=60",
        f"-max_total_time={_SECONDS}",
    ]
    command = [sys.executable, "-m", "torture.guided", case.kind, bases.place, place, *options, corpus]
    path = os.pathsep.join([str(ROOT), environment()["PYTHONPATH"]])
    done = subprocess.run(
        [*map(str, command), f"-artifact_prefix={place}/found-"], env=environment(PYTHONPATH=path), cwd=place,
        capture_output=True, text=True, errors="replace", timeout=_LIMIT, check=False,
    )  # fmt: skip
    runs = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    found = sorted(place.glob("found-*"))
    if not done.returncode and runs:
        return Outcome(ACCEPTED, trials=int(runs[1]))
    if not found:
        return Outcome("own fault", done.stderr[-3000:])
    said = done.stderr.partition("Uncaught Python exception")[2].partition("==")[0] or done.stderr[-1500:]
    kind = re.search(r"Failed: ([a-z0-9 ]+):", said)
    smaller = text_of(make(found[0].read_bytes()), said[:500])
    return Outcome(kind[1] if kind else "crash", said[-3000:], case=smaller)


def _compiled() -> list[str]:
    """The modules that numba compiles, which cannot be watched."""
    kernels = Path(milrec.__file__).with_name("kernels")
    return [f"milrec.kernels.{path.stem}" for path in kernels.glob("*.py")]


class Failed(Exception):
    """A verdict, as the exception that libFuzzer wants."""


def main() -> None:
    """The process of a target."""
    import atheris

    target, bases, place, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["milrec"], exclude=_compiled()):
        from torture import sections

        sections.load_milrec()
    make, scratch = TARGETS[target][0], Path(place) / "trial"
    runs = {section.name: section.run for section in sections.SECTIONS}

    def once(data: bytes) -> None:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        case = make(data)
        outcome = runs[case.section](case, scratch, Bases(Path(bases)))
        if isinstance(outcome, Outcome) and outcome.failed:
            raise Failed(f"{outcome.kind}: {outcome.what}")

    atheris.Setup([sys.argv[0], *options], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
