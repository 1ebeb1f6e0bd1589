"""What the library says, in the words of the command line.

A library error names an argument in backticks, as a caller would write it: `loss`, `value='rating'`, `replace=True`.
Here it becomes the option of the command line that stands for the argument: --loss, --value rating, --force.
"""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from milrec.errors import SmallDataWarning, printable

_OPTIONS = {"replace": "--force", "n": "-n", "models": "--model-class"}  # where the option is not simply called --NAME
_ARGUMENT = re.compile(r"`(?P<name>[a-z_]+)(?:=(?P<value>[^`]+)|\((?P<given>[^`]*)\))?`")


def in_options(sentence: str) -> str:
    """The same sentence with options instead of arguments."""
    return _ARGUMENT.sub(_option, sentence)


def _option(found: re.Match[str]) -> str:
    option = _OPTIONS.get(found["name"], f"--{found['name'].replace('_', '-')}")
    value = found["value"] or found["given"]
    if value is None or value == "True":
        return option
    text = value[1:-1] if value[0] == value[-1] == "'" else value
    return f"{option} {shlex.quote(text)}"


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Within the block, what the library warns of is a line on standard error, in the words of the command line."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, SmallDataWarning):
                sys.stderr.write(f"warning: {printable(in_options(str(message)))}\n")
            else:
                others(message, category, *where, **more)

        warnings.simplefilter("always", SmallDataWarning)
        warnings.showwarning = show
        yield
