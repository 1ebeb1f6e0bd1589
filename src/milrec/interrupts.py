"""Ctrl-C that waits until nothing is half done, and points at which a test can hold a process."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any

_PAUSE_AT = os.environ.get("MILREC_PAUSE_AT")  # POINT@PORT; only tests set it


class Interruptible:
    """Ctrl-C waits for the current step to finish, so that a checkpoint can be written; a second Ctrl-C does not wait.

    It is then passed on to the previous handler, which raises KeyboardInterrupt. A process that ignores Ctrl-C (a
    shell's background job) keeps ignoring it.
    """

    def __init__(self) -> None:
        self.asked = False
        self.before: Any = None

    def __enter__(self) -> Interruptible:
        self.before = signal.getsignal(signal.SIGINT)
        if self.before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *error: object) -> None:
        if self.before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self.before)
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            self.check()  # it came after the last step

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            self._pass_on()
        self.asked = True

    def check(self) -> None:
        if self.asked:
            self._pass_on()

    def _pass_on(self) -> None:
        if callable(self.before):
            self.before(signal.SIGINT, None)
        raise KeyboardInterrupt


def pause_point(name: str, number: int | None = None) -> None:
    """A place where a test can hold this process: it sends the test its process id and waits until the test lets it go.

    Without MILREC_PAUSE_AT in the environment it does nothing.
    """
    if _PAUSE_AT is None:
        return
    point, _, port = _PAUSE_AT.rpartition("@")
    if point == (name if number is None else f"{name} {number}"):
        _wait_for_the_test(int(port))


def _wait_for_the_test(port: int) -> None:
    import socket

    with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)) as test:  # unless the test is over
        test.sendall(f"{os.getpid()}\n".encode())
        test.recv(1)  # returns when the test lets go; signals still arrive meanwhile
