"""Reading: 20 million rows into a prepared set, and opening it."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

import milrec
from benchmarks.clock import in_turns, peak_memory, seconds
from milrec.data.interactions import Interactions

_ROWS = 20_000_000


def reading(folder: Path) -> dict[str, Any]:
    """20M rows of CSV (user, item, rating) to a prepared set, against reading the same file with pyarrow alone."""
    source, place = folder / "ratings.csv", folder / "prepared"
    random = np.random.default_rng(0)
    table = pa.table(
        {
            "user": random.integers(0, 138_000, _ROWS, dtype=np.int32),
            "item": (27_000 * random.random(_ROWS) ** 3).astype(np.int32),
            "rating": random.integers(1, 11, _ROWS).astype(np.float32) / 2,
        }
    )
    pyarrow.csv.write_csv(table, source)
    del table
    times = in_turns(
        {
            "pyarrow": lambda: pyarrow.csv.read_csv(source),
            "prepare": lambda: milrec.read(source, value="rating", adopt_min=4).save(place, replace=True),
        },
        rounds=3,
    )
    opened = statistics.median(seconds(lambda: Interactions.load(place)) for _ in range(5))
    source.unlink()
    return {
        "rows": _ROWS,
        "prepare_seconds": times["prepare"],
        "pyarrow_read_seconds": times["pyarrow"],
        "open_seconds": opened,
        "peak_memory": peak_memory(),
        "value": opened,
    }
