"""Every exception of the package.

    MilrecError
    ├── DataError        a table, an archive or a prepared set cannot be used as it is
    ├── SettingsError    a setting is unknown, of the wrong kind or out of range
    ├── UnknownIdError   a user or an item that the data or the model has never seen
    ├── FolderError      a data, split, model or run folder is absent, damaged, foreign or in the way
    ├── DownloadError    a data set could not be fetched, or is not what its publisher offers
    ├── BusyError        the server cannot take a request now
    └── FitError         fitting cannot go on (the loss is not finite, the checkpoint belongs to another fit)

Each message is one sentence: what is wrong, the value, the cure. Values are quoted; an argument that the caller can
change stands in backticks, as it would be written in a call: `loss`, `replace=True`. The command line writes it as an
option (cli/errors.py), prints the sentence and exits with a non-zero code, never with a traceback.
"""

from collections.abc import Iterable


class MilrecError(Exception):
    """Anything that the caller can put right."""


class DataError(MilrecError):
    """A table, an archive or a prepared set cannot be used as it is."""


class SettingsError(MilrecError):
    """A setting is unknown, of the wrong kind or out of range."""


class UnknownIdError(MilrecError):
    """A user or an item that the data or the model has never seen."""


class FolderError(MilrecError):
    """A data, split, model or run folder is absent, damaged, foreign or in the way."""


class DownloadError(MilrecError):
    """A data set could not be fetched, or is not what its publisher offers."""


class BusyError(MilrecError):
    """The server cannot take a request now; the same may be asked again."""


class FitError(MilrecError):
    """Fitting cannot go on."""


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """The sentence for a name that is not in a list: it always shows the list."""
    return f"unknown {what} '{name}'; known {what}s: {', '.join(sorted(known))}"
