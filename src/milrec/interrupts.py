"""Ctrl-C that waits until nothing is half done."""

from __future__ import annotations

import signal
from typing import Any


class Interruptible:
    """Ctrl-C waits for the step that is under way, so that a checkpoint can be written; a second one does not wait."""

    def __init__(self) -> None:
        self.asked = False
        self.before: Any = None

    def __enter__(self) -> Interruptible:
        self.before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self.before)

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def check(self) -> None:
        if self.asked:
            raise KeyboardInterrupt
