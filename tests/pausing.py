"""Processes that wait at a named point until a test lets them go, so that no test has to guess where they are.

The points are those of `milrec.interrupts.pause_point`, and `import NAME` for each module that a process imports.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

LONG = 300  # seconds: no verdict depends on it, it only ends a test that would hang
_IMPORTS = Path(__file__).with_name("pausing_imports")


class Pause:
    """A point, and the processes that arrive there one after another."""

    def __init__(self, point: str) -> None:
        self.point = point
        self._door = socket.create_server(("127.0.0.1", 0))
        self._door.settimeout(LONG)
        self._address = self._door.getsockname()
        self._arrived: socket.socket | None = None

    @property
    def environment(self) -> dict[str, str]:
        """That of a process which is to wait here."""
        values = {**os.environ, "MILREC_PAUSE_AT": f"{self.point}@{self._address[1]}"}
        if self.point.startswith(("import ", "between two renames")):
            values["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_IMPORTS), os.environ.get("PYTHONPATH")]))
        return values

    def watch(self, process: subprocess.Popen) -> None:
        """Wake up the test that waits for an arrival if the process ends instead."""

        def knock() -> None:
            process.wait()
            with contextlib.suppress(OSError):  # nobody waits any more
                socket.create_connection(self._address).close()

        threading.Thread(target=knock, daemon=True).start()

    def arrive(self) -> int:
        """Wait until a process is here; returns its id."""
        self.let_go()
        self._arrived, _ = self._door.accept()
        self._arrived.settimeout(LONG)
        number = self._arrived.recv(100)
        assert number, f"the process ended before '{self.point}'"
        return int(number)

    def let_go(self) -> None:
        if self._arrived is not None:
            self._arrived.close()
            self._arrived = None

    def wait_until_gone(self) -> None:
        """Wait until the process that is here has ended, as the run of a job may make it."""
        assert self._arrived is not None and self._arrived.recv(1) == b""

    def close(self) -> None:
        """Let all go, and hold nobody any more."""
        self.let_go()
        self._door.close()


class Ended(NamedTuple):
    code: int
    out: str
    error: str


class Held:
    """A command of milrec that has arrived at a point and waits there."""

    def __init__(self, point: str, *arguments: object, cwd: Path | None = None) -> None:
        self.pause = Pause(point)
        self._out, self._error = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - files never block
        command = [sys.executable, "-m", "milrec", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, cwd=cwd, stdout=self._out, stderr=self._error, env=self.pause.environment
        )
        self.pause.watch(self.process)

    def interrupted(self) -> Ended:
        """Ctrl-C, once."""
        self.process.send_signal(signal.SIGINT)
        self.pause.close()  # a step that is under way is finished first
        return self.ended()

    def killed(self) -> None:
        self.process.kill()
        self.process.wait(LONG)

    def ended(self) -> Ended:
        code = self.process.wait(LONG)
        texts = []
        for file in (self._out, self._error):
            file.seek(0)
            texts.append(file.read().decode())
        return Ended(code, *texts)

    def close(self) -> None:
        self.killed()
        self.pause.close()
        self._out.close()
        self._error.close()


@contextlib.contextmanager
def held(point: str, *arguments: object, cwd: Path | None = None):
    """A command that waits at a point; it is killed in the end."""
    process = Held(point, *arguments, cwd=cwd)
    try:
        process.pause.arrive()
        yield process
    finally:
        process.close()
