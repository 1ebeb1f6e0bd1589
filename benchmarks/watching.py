"""Work in a process of its own, whose time and anonymous memory are watched.

Anonymous memory is what no file stands behind. What is mapped from files can be dropped at any time: it is not counted.
"""

from __future__ import annotations

import multiprocessing
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def watched(work: Callable[[Path, Path], int], table: Path, out: Path) -> dict[str, float]:
    """Do it in a new process: seconds, rows per second, and the most anonymous memory."""
    shutil.rmtree(out, ignore_errors=True)
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    process = context.Process(target=_watched, args=(work, table, out, results))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{work.__name__} of '{table}' failed")
    found: dict[str, float] = results.get()
    return found


def _watched(work: Callable[[Path, Path], int], table: Path, out: Path, results: Any) -> None:
    most, done = [0], threading.Event()

    def look() -> None:
        while not done.wait(0.05):
            most[0] = max(most[0], _anonymous())

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    started, before = time.perf_counter(), time.process_time()
    rows = work(table, out)
    seconds, cpu = time.perf_counter() - started, time.process_time() - before
    done.set()
    watcher.join()
    results.put(
        {
            "rows": rows,
            "seconds": round(seconds, 1),
            "cpu_seconds": round(cpu, 1),
            "rows_per_second": round(rows / seconds),
            "anonymous_gib": round(most[0] / 2**30, 2),
        }
    )


def _anonymous() -> int:
    """Bytes of this process that no file stands behind."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    return int(found[1]) * 1024 if found else 0
