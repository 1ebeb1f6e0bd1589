"""A process that serves, as its supervisor sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass

from milrec.server.processes.channel import Answer, Channel
from milrec.server.telemetry import Snapshot, log

_POLL_SECONDS = 0.02
_PROCESS = "from milrec.entry import part; part()"


@dataclass(eq=False)
class Member:
    """A process, and what it said last about what it has counted."""

    number: int
    process: subprocess.Popen[bytes]
    channel: Channel
    counted: Snapshot | None = None

    @classmethod
    async def start(cls, which: int, taken: socket.socket, number: int, answer: Answer) -> Member:
        """Start a process, one of so many; it has a session of its own, so that Ctrl-C reaches it through us alone."""
        ours, theirs = socket.socketpair()
        with theirs:
            files = (taken.fileno(), theirs.fileno())
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROCESS, *map(str, files)],  # -P: no module from the current folder
                stdin=subprocess.DEVNULL,
                pass_fds=files,
                env=_environment(number),
                start_new_session=True,
            )
        try:
            return cls(which, process, await Channel.over(ours, answer))
        except BaseException:
            process.kill()
            process.wait()
            raise

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def how_it_ended(self) -> str:
        """Wait until it has."""
        await self.channel.ended()
        while (code := self.process.poll()) is None:
            await asyncio.sleep(_POLL_SECONDS)
        self.channel.close()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"

    async def end_within(self, seconds: float) -> None:
        """Wait for its end, and do not wait for ever."""
        try:
            await asyncio.wait_for(self.how_it_ended(), seconds)
        except TimeoutError:
            log.error("process killed", extra={"facts": {"process": self.number, "pid": self.process.pid}})
            self.process.kill()
            self.process.wait()
            self.channel.close()


def _environment(number: int) -> dict[str, str]:
    """The processes have the cores between them; no list depends on the number of threads."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"OMP_NUM_THREADS": str(max(1, cores // number)), **os.environ}
