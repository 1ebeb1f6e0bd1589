"""A process of milrec that waits at a named point (milrec.interrupts) until it is let go, or disturbed there."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from pathlib import Path

from torture.commands import ROOT, environment, started


class Pause:
    """A point, and the process that arrives there."""

    def __init__(self, point: str) -> None:
        self.point = point
        self._door = socket.create_server(("127.0.0.1", 0))
        self._arrived: list[socket.socket] = []

    def started(self, arguments: list[str], cwd: Path, log: Path) -> subprocess.Popen[bytes]:
        """A command that is to wait here."""
        more = {"MILREC_PAUSE_AT": f"{self.point}@{self._door.getsockname()[1]}"}
        if self.point.startswith(("import ", "between two renames")):
            imports = str(ROOT / "tests" / "pausing_imports")
            more["PYTHONPATH"] = os.pathsep.join([imports, environment()["PYTHONPATH"]])
        process = started(arguments, cwd, log, **more)
        threading.Thread(target=self._knock, args=(process,), daemon=True).start()
        return process

    def _knock(self, process: subprocess.Popen[bytes]) -> None:
        """Wake up the trial that waits for an arrival if the process ends instead."""
        with contextlib.suppress(OSError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            socket.create_connection(self._door.getsockname()).close()

    def arrive(self, limit: float) -> bool:
        """Whether a process is here; otherwise it ended, or it was too slow."""
        self._door.settimeout(limit)
        with contextlib.suppress(TimeoutError):
            visitor, _ = self._door.accept()
            self._arrived.append(visitor)
            visitor.settimeout(limit)
            return bool(visitor.recv(100))
        return False

    def close(self) -> None:
        """Let all go, and hold nobody any more."""
        self._door.close()
        for visitor in self._arrived:
            visitor.close()
