"""milrec beside other libraries: python -m experiments.peers --data DATA --out FOLDER [--only LIBRARY …] [--checks].

DATA is a folder from `milrec prepare`. OUT gets the task (train.parquet, test.parquet), the lists of each model, and
results.json; what is in it about libraries that are not tried again stays. Each library gets an environment of its own
under --environments, made by pip; one that cannot be installed or run is in the results with the reason.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from experiments.peers.environments import (
    NO_PACKAGE,
    PACKAGES,
    ROOT,
    CannotInstall,
    Environment,
    environment,
    here,
    name_of,
)
from experiments.peers.judge import Judge
from experiments.peers.snippets import models_of, task_lines

from milrec import Interactions, split_interactions
from milrec.errors import MilrecError
from milrec.storage import new_file

LIBRARIES = [*PACKAGES, *NO_PACKAGE]
MINUTES = 10  # the most that a model may take


def main() -> None:
    parser = argparse.ArgumentParser(description="One task in several libraries, judged alike.")
    parser.add_argument("--data", type=Path, required=True, help="data folder from milrec prepare or simulate")
    parser.add_argument("--out", type=Path, required=True, help="folder for the task, lists and results.json")
    parser.add_argument("--environments", type=Path, help="folder for environments; by default OUT/environments")
    parser.add_argument("--here", action="store_true", help="use this Python instead; it must have the libraries")
    parser.add_argument("--only", nargs="+", choices=LIBRARIES, default=LIBRARIES, help="these libraries alone")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="of each library, only models with these names")
    parser.add_argument("--checks", action="store_true", help="also try what else models can do; fits each twice")
    options = parser.parse_args()
    try:
        found = write_task(options.data, options.out)
    except MilrecError as error:
        sys.exit(f"peers: {error}")
    judge, file = Judge.of(options.out), options.out / "results.json"
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if before.get("data") == found["data"]:
        found["libraries"] = before["libraries"]
    for library in options.only:
        say(library)
        found["libraries"][library] = tried(library, options, judge)
        with new_file(file) as draft:
            draft.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def write_task(data: Path, out: Path) -> dict[str, Any]:
    """Nine tenths of the pairs to learn from and a tenth to find, by milrec's split; the results to fill."""
    whole = Interactions.load(data)
    split = split_interactions(whole, seed=0)
    out.mkdir(parents=True, exist_ok=True)
    train = split.joined().train
    targets = split.test.targets
    for name, pairs in (("train", train.adopted), ("test", targets)):
        row, column = pairs.tocoo().coords
        ids = {"user": train.users["id"].combine_chunks().take(pa.array(row)),
               "item": train.items["id"].combine_chunks().take(pa.array(column))}  # fmt: skip
        pq.write_table(pa.table(ids), out / f"{name}.parquet")
    facts = {"name": data.name, "users": train.n_users, "items": train.n_items, "train": int(train.adopted.nnz),
             "test": int(targets.nnz), "test_users": int((targets.sum(axis=1) > 0).sum())}  # fmt: skip
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "date": time.strftime("%Y-%m-%d")}
    return {"data": facts, "machine": machine, "libraries": {}}


def tried(library: str, options: argparse.Namespace, judge: Judge) -> dict[str, Any]:
    """What came of a library: its environment, and each of its models; or why nothing did."""
    if library in NO_PACKAGE:
        return {"error": f"cannot be installed: {NO_PACKAGE[library]}"}
    folder = options.environments or options.out / "environments"
    try:
        place = here(library) if options.here else environment(library, folder.resolve())
    except CannotInstall as error:
        return {"error": f"cannot be installed: {error}"}
    name = name_of(library)
    if not (Path(__file__).parent / f"{name}.py").exists():
        return {**place.facts, "error": "installed, but the task is not written for it"}
    found: dict[str, Any] = {**place.facts, "lines": task_lines(name), "models": {}}
    for model in models_of(name):
        if options.models is not None and model not in options.models:
            continue
        found["models"][model] = judged(library, model, place, options, judge)
        say(f"  {model}: {found['models'][model]}")
    return found


def judged(library: str, model: str, place: Environment, options: argparse.Namespace, judge: Judge) -> dict[str, Any]:
    out = (options.out / f"{library}-{model.replace(' ', '-')}").resolve()
    words = ["-m", "experiments.peers.trial", name_of(library), model, str(options.out.resolve()), str(out)]
    command = [place.python, *words, *(["--checks"] if options.checks else [])]
    paths = [str(ROOT), *([os.environ["PYTHONPATH"]] if options.here and "PYTHONPATH" in os.environ else [])]
    own = {"PYTHONPATH": os.pathsep.join(paths)}
    passed = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OMP_NUM_THREADS")}
    try:
        done = subprocess.run(
            command,
            cwd=options.out,
            env=passed | own,
            capture_output=True,
            text=True,
            check=False,
            timeout=60 * MINUTES,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not finished after {MINUTES} minutes"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}
    facts = json.loads(Path(f"{out}.json").read_text(encoding="utf-8"))
    return judge.measures(Path(f"{out}.parquet")) | facts


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
