"""A command's docstring as `--help` shows it: wrapped to the terminal, not where the source breaks its lines."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def prose(command: Callable[..., Any]) -> str:
    """Each paragraph in one line; those that begin with \\b keep their lines."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(one if one.startswith("\b") else " ".join(one.split("\n")) for one in paragraphs)
