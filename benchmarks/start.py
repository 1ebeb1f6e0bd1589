"""How long a person waits before anything happens."""

from __future__ import annotations

import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.clock import seconds


def start(folder: Path) -> dict[str, Any]:
    """`import milrec` and `milrec --help`, each in its own process."""
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "import": [sys.executable, "-c", "import milrec"],
        "help": [sys.executable, "-m", "milrec", "--help"],
    }
    times = {
        name: statistics.median(
            seconds(partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)) for _ in range(7)
        )
        for name, command in commands.items()
    }
    return {"seconds": times, "value": max(times["import"], times["help"])}
