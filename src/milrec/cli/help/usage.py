"""Wrong usage of the command line in one plain sentence, in place of the words of typer and its parsers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from milrec.suggestions import close_names

_MEANT = r"; did you mean \g<meant>?"
_OF = r"Invalid value for '(?P<name>[^']+)'(?: / '[^']+')*: (?:Value error, )?"
_PLAIN = {  # what the parsers say → what milrec says
    _OF + r"Input should be a valid integer.*": r"\g<name> must be a whole number",
    _OF + r"Input should be a valid number.*": r"\g<name> must be a number",
    _OF + r"Input should be a finite number.*": r"\g<name> must be a finite number",
    _OF + r"Input should be greater than or equal to (?P<end>\S+)": r"\g<name> must be at least \g<end>",
    _OF + r"Input should be less than or equal to (?P<end>\S+)": r"\g<name> must be at most \g<end>",
    _OF + r"Input should be greater than (?P<end>\S+)": r"\g<name> must be greater than \g<end>",
    _OF + r"Input should be less than (?P<end>\S+)": r"\g<name> must be less than \g<end>",
    _OF + r"'(?P<given>.*)' is not one of (?P<known>.*?)\.?": r"\g<name> must be one of \g<known>, not '\g<given>'",
    r"No such command '(?P<name>.*?)'\. Did you mean (?P<meant>'.*')\?": r"unknown command '\g<name>'" + _MEANT,
    r"No such command '(?P<name>.*?)'\.": r"unknown command '\g<name>'",
    r"Missing option '(?P<name>.*?)'(?: / '.*')*\.?": r"\g<name> is missing",
    r"Option '(?P<name>.*?)' requires an argument\.?": r"\g<name> needs a value",
    r"Got unexpected extra arguments? \((?P<given>.*)\)": r"too many arguments: \g<given>",
    r"Got unexpected extra argument\(s\) \((?P<given>.*)\)": r"too many arguments: \g<given>",
}


def usage_sentence(message: str, command: str, options: Sequence[str] = ()) -> str:
    """What is wrong with a command that has these options, and where its help is."""
    return f"{_sentence(message, options)} (help: {command} --help)"


def _sentence(message: str, options: Sequence[str]) -> str:
    if found := re.match(r"No such option: (?P<name>\S+)", message):
        return f"unknown option {found['name']}{_meant(found['name'], options)}"
    if found := re.fullmatch(r"Missing argument '(?P<name>.*?)'\.?", message):
        return f"{found['name'].upper()} is missing"
    for pattern, plain in _PLAIN.items():
        if found := re.fullmatch(pattern, message, re.DOTALL):
            return found.expand(plain)
    return message[:1].lower() + message[1:].rstrip(".")


def _meant(name: str, options: Sequence[str]) -> str:
    """The option that an unknown one looks like, dashes aside, if there is one."""
    by_letters = {option.lstrip("-"): option for option in options}
    plain = name.lstrip("-")
    close = [plain] if plain in by_letters else close_names(plain, by_letters)
    return f"; did you mean {by_letters[close[0]]}?" if close else ""
