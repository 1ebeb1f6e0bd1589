"""What the library says, in the words of the command line.

A library error names an argument in backticks, as a caller would write it: `loss`, `value='rating'`, `replace=True`.
Here it becomes the option of the command line that stands for the argument: --loss, --value rating, --force.
"""

from __future__ import annotations

import re
import shlex

_OPTIONS = {"replace": "--force", "n": "-n", "models": "--model-class"}  # where the option is not simply called --NAME
# Control characters, line and paragraph separators, changes of direction, halves of characters
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
