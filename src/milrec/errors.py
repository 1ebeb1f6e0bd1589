"""Every exception of the package.

    MilrecError
    ├── DataError        a table, an archive or a prepared set cannot be used as it is
    ├── SettingsError    a setting is unknown, has the wrong type or is out of range
    ├── UnknownIdError   a user or an item that the data or the model does not know
    ├── FolderError      a data, split, model or run folder is missing, damaged, not milrec's or in the way
    ├── DownloadError    a data set could not be downloaded, or is not what its publisher offers
    ├── ClusterError     a cluster cannot be reached, or cannot do its part of the work
    ├── BusyError        the server cannot answer a request at the moment
    └── FitError         a fit cannot continue (the loss is not finite, the checkpoint belongs to another fit)

Each message is one sentence: what is wrong, the value, the cure. Values are quoted; an argument that the caller can
change stands in backticks, as it would be written in a call: `loss`, `replace=True`. The command line writes it as an
option (cli/errors.py), prints the sentence and exits with a non-zero code, never with a traceback.
"""

import errno
import os
import re
from collections.abc import Iterable

from milrec.suggestions import close_names, did_you_mean

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class MilrecError(Exception):
    """Anything that the caller can correct; its sentence is on one line, whatever values it repeats."""

    def __init__(self, sentence: str = "") -> None:
        super().__init__(printable(sentence))


class DataError(MilrecError):
    """A table, an archive or a prepared set cannot be used as it is."""


class SettingsError(MilrecError):
    """A setting is unknown, has the wrong type or is out of range."""


class UnknownIdError(MilrecError):
    """A user or an item that the data or the model does not know.

    As long as nothing is suggested in its place, `unknown` is its id (the first of several), and `what` is it.
    """

    def __init__(self, sentence: str = "", unknown: str = "", what: str = "") -> None:
        super().__init__(sentence)
        self.unknown, self.what = unknown, what


class FolderError(MilrecError):
    """A data, split, model or run folder is missing, damaged, not milrec's or in the way."""


class DownloadError(MilrecError):
    """A data set could not be downloaded, or is not what its publisher offers."""


class ClusterError(MilrecError):
    """A cluster cannot be reached, or cannot do its part of the work."""


class BusyError(MilrecError):
    """The server cannot answer a request at the moment; it may be sent again."""


class FitError(MilrecError):
    """A fit cannot continue."""


class SmallDataWarning(UserWarning):
    """There is too little data, or too little is held out, for measures to say much."""


class ReadingWarning(UserWarning):
    """Something worth knowing about a source that was read; it is in `reading["note"]` of the result too."""


class SkippedItemsWarning(UserWarning):
    """Adopted or rejected items that the model does not know were skipped, as asked."""


def first_line(error: BaseException) -> str:
    """What a library says about its own error, short enough for a sentence of ours."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def system_sentence(error: OSError) -> str:
    """What the operating system refused, in one sentence; whatever was being written is removed by then."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = f"'{error.filename}' could not be written, and " if error.filename else ""
        return f"the disk is full; {what}nothing was half-written"
    said = os.strerror(error.errno) if error.errno else str(error)
    return f"{said}: '{error.filename}'" if error.filename else said


NO_PROBABILITIES = (
    "the model has no probabilities, which a share of the tail needs: fit it again, with a validation part"
)


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """The sentence for a name that is not in a list, followed by the list."""
    names = sorted(known)
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"unknown {what} '{cut(name)}'{hint(name, names)}; known {plural}: {', '.join(names) or 'none'}"


def hint(name: object, known: Iterable[str]) -> str:
    """What may have been meant by an unknown name, in brackets; nothing if no known name is like it."""
    close = close_names(name, known)
    return f" ({did_you_mean(close)})" if close else ""


def counted(number: int, name: str) -> str:
    """The number of some things: 1 user, 2 users."""
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"


def cut(value: object, most: int = 80) -> str:
    """A value as an error repeats it: not too much of it, and on one line."""
    text = str(value)
    return printable(text if len(text) <= most else text[: most - 1] + "…")


def printable(text: str) -> str:
    """The same on one line, with nothing that a terminal would obey: ESC becomes \\x1b, a line break \\n."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)
