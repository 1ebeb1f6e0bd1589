"""python -m benchmarks.overhead --out FOLDER [--users 524288]: what Ray costs where it cannot help, on the same cores.

`recommend --all` into one Parquet file, without a cluster and with --cluster local, in turns, as commands. The time
without is that of the command; with, it is counted from the first task that is handed out until the file is there, and
what it takes to start Ray is told apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

import milrec
from benchmarks.clock import machine
from milrec.cluster.lists import ListOrder, plain_wishes, write_file
from milrec.cluster.session import joined
from milrec.data.interactions import Interactions
from milrec.lists.export import write_batches
from milrec.storage import open_folder, write_json

_ITEMS, _PAIRS_OF_A_USER = 20_000, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the model and the result")
    parser.add_argument("--users", type=int, default=8 * 65_536)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    out: Path = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    model = fitted(out / f"model-{given.users}", given.users)
    alone: list[float] = []
    shared: list[float] = []
    starts: list[float] = []
    for _ in range(given.rounds):
        alone.append(write_alone(model, out / "alone.parquet"))
        with joined("local") as cluster:
            starts.append(cluster.seconds)
            shared.append(write_shared(cluster, model, out / "shared.parquet"))
        if (out / "alone.parquet").read_bytes() != (out / "shared.parquet").read_bytes():
            raise SystemExit("the two files differ")
    found = {
        "machine": machine(),
        "users": given.users,
        "items": _ITEMS,
        "seconds_alone": [round(one, 1) for one in alone],
        "seconds_on_ray": [round(one, 1) for one in shared],
        "seconds_to_start_ray": [round(one, 1) for one in starts],
        "ratio": round(statistics.median(shared) / statistics.median(alone), 3),
    }
    write_json(out / "overhead.json", found)
    print(json.dumps(found, indent=1))  # noqa: T201


def fitted(place: Path, n_users: int) -> Path:
    """A model of random plays, fitted for a few steps: what it lists does not matter here."""
    if not place.exists():
        random = np.random.default_rng(0)
        items = np.sort((_ITEMS * random.random((n_users, _PAIRS_OF_A_USER)) ** 3).astype(np.int32), axis=1)
        kept = np.diff(items, axis=1, prepend=-1) > 0
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int32)
        shape = (n_users, _ITEMS)
        adopted = csr_array((np.ones(indptr[-1], dtype=np.float32), items[kept], indptr), shape=shape)
        users, titles = (pa.table({"id": pa.array(np.arange(size))}) for size in shape)
        data = Interactions(adopted, csr_array(shape, dtype=np.float32), users, titles)
        milrec.fit(milrec.split_interactions(data, seed=0), iterations=20, validate_every=20).save(place)
    return place


def write_alone(model: Path, out: Path) -> float:
    """Load the model, make all lists and write them."""
    started = time.perf_counter()
    recommender = milrec.load(model)
    write_batches(out, recommender.recommend_all())
    return time.perf_counter() - started


def write_shared(cluster: Any, model: Path, out: Path) -> float:
    n_users = milrec.load(model).fitted.train.n_users
    order = ListOrder(
        model=str(model),
        model_hash=open_folder(model, "model").fingerprint(),
        known=None,
        known_hash=None,
        copied=cluster.copies,
        n=20,
        wishes=plain_wishes({}),
    )
    started = time.perf_counter()
    write_file(cluster, order, n_users, out, lambda done, total: None)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
