"""python -m benchmarks.large_tables --out FOLDER [--rows 100000000]: tables that do not have to fit into memory.

A table of plays is made (2 million users, 200,000 items, ids as text, 5 % of the rows repeat a pair, and popularity has
a long tail) and prepared by way of the disk. A tenth of it is prepared in memory and by way of the disk too: the same
bytes, and rows per second beside each other. Then the large one is split, and a model is fitted to it for a few steps.
Each is done in a process of its own, whose anonymous memory is watched: what is mapped from files can be dropped at any
time, and is not counted.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

import milrec
from benchmarks.clock import machine
from benchmarks.watching import watched
from milrec.data.preparation import Wanted, prepare_folder
from milrec.data.reading.columns import Columns
from milrec.storage import open_folder, write_json

_USERS, _ITEMS = 2_000_000, 200_000
_TOGETHER = 5_000_000
_STEPS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables and the result")
    parser.add_argument("--rows", type=float, default=1e8)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    large, small = given.out / "large.csv", given.out / "small.csv"
    found: dict[str, Any] = {"machine": machine(), "rows": int(given.rows)}
    for table, rows in ((small, int(given.rows) // 10), (large, int(given.rows))):
        if not table.exists():
            write_plays(table, rows)
    found["small_in_memory"] = watched(in_memory, small, given.out / "memory")
    found["small_by_disk"] = watched(by_disk, small, given.out / "disk")
    hashes = [open_folder(given.out / name, "data").hashes for name in ("memory", "disk")]
    found["same_bytes"] = hashes[0] == hashes[1]
    found["large_by_disk"] = watched(by_disk, large, given.out / "large")
    rate = found["large_by_disk"]["rows_per_second"] / found["small_in_memory"]["rows_per_second"]
    found["rate_of_large_over_memory"] = round(rate, 3)
    found["large_split"] = watched(divide, given.out / "large", given.out / "split")
    found["large_fit"] = watched(fit_a_while, given.out / "split", given.out / "model")
    found["large_fit"]["model_gib"] = round(model_bytes(given.out / "model") / 2**30, 2)
    beyond = found["large_fit"]["anonymous_gib"] - found["large_fit"]["model_gib"]
    found["gib_of_fit_beyond_the_model"] = round(beyond, 2)
    write_json(given.out / "large-tables.json", found)
    print(json.dumps(found, indent=1))  # noqa: T201


def write_plays(path: Path, n_rows: int) -> None:
    """The same rows for the same number of them."""
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(b"user_id,item_id,plays\n")
        for start in range(0, n_rows, _TOGETHER):
            size = min(_TOGETHER, n_rows - start)
            fresh = round(0.95 * size)
            users = (_USERS * random.random(fresh) ** 2).astype(np.int64) * 7919 % _USERS
            items = (_ITEMS * random.random(fresh) ** 4).astype(np.int64)
            again = random.integers(0, fresh, size - fresh)
            order = random.permutation(size)
            table = pa.table(
                {
                    "user_id": _named("user-", np.concatenate([users, users[again]])[order]),
                    "item_id": _named("item-", np.concatenate([items, items[again]])[order]),
                    "plays": random.integers(1, 20, size),
                }
            )
            options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
            pyarrow.csv.write_csv(table, file, options)


def _named(start: str, numbers: Any) -> pa.Array:
    return pc.binary_join_element_wise(start, pa.array(numbers).cast(pa.string()), "")


def in_memory(table: Path, out: Path) -> int:
    data = milrec.read(table, value="plays")
    data.save(out, replace=True)
    return int(data.reading["rows"])


def by_disk(table: Path, out: Path) -> int:
    wanted = Wanted(columns=Columns(value="plays"))
    return int(prepare_folder(table, wanted, out, lambda rows: None, replace=True).facts["rows"])


def divide(data: Path, out: Path) -> int:
    whole = milrec.Interactions.load(data)
    milrec.split_interactions(whole, seed=0).save(out, replace=True)
    return int(whole.adopted.nnz)


def fit_a_while(split: Path, out: Path) -> int:
    """The default model for a few steps, with one validation."""
    divided = milrec.Split.load(split)
    milrec.fit(divided, iterations=_STEPS, validate_every=_STEPS).save(out, replace=True)
    return int(divided.train.adopted.nnz)


def model_bytes(folder: Path) -> int:
    """What a fit keeps of each weight: itself, its two moments, its running mean and the best so far."""
    return 5 * (folder / "weights.safetensors").stat().st_size


if __name__ == "__main__":
    main()
