"""The last resort: an error that milrec did not expect becomes one sentence, a log file and a code of its own."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from milrec.errors import printable

CODE = 70  # EX_SOFTWARE of sysexits.h
_KEPT = 20  # log files; older ones are removed, so that a command that fails every minute does not fill the disk


def report_crash(error: BaseException) -> int:
    """Say it in one sentence and keep the traceback in a file; with --debug, show it too. Returns the exit code."""
    trace = "".join(traceback.format_exception(error))
    log = _kept(trace)
    where = f"with the log at '{log}'" if log else "with what --debug shows, for no log could be written"
    kind, text = type(error).__name__, " ".join(str(error).split())
    what = f"{kind}: {text[:200]}" if text else kind
    sentence = f"milrec: something went wrong that milrec did not expect: {what}; please report it {where}"
    with suppress(AttributeError, OSError, ValueError):  # there is nobody to tell
        if debugging():
            sys.stderr.write("".join(f"{printable(line)}\n" for line in trace.splitlines()))
        sys.stderr.write(printable(sentence) + "\n")
    return CODE


def debugging() -> bool:
    """Whether --debug, before the command, or MILREC_DEBUG asks for tracebacks."""
    options = sys.argv[1:2]
    return os.environ.get("MILREC_DEBUG", "0") not in ("", "0") or options == ["--debug"]


def log_folders() -> list[Path]:
    """Where a log may go, the best place first: the account's folder for such things, or that for temporary files."""
    state = os.environ.get("XDG_STATE_HOME")
    folders = [Path(state) / "milrec"] if state else []
    with suppress(RuntimeError):  # an account without a home
        folders.append(Path.home() / ".local" / "state" / "milrec")
    return [*folders[:1], Path(tempfile.gettempdir())]


def _version() -> str:
    try:
        return version("milrec")
    except PackageNotFoundError:  # it was copied, and not installed
        return "of unknown version"


def _kept(trace: str) -> Path | None:
    """The file that holds the traceback; None if none can be written."""
    name = f"milrec-crash-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    text = f"milrec {_version()}, Python {platform.python_version()}, {platform.platform()}\n{sys.argv}\n{trace}"
    for folder in log_folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # no link is followed
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            _forget_old_ones(folder)
            return folder / name
    return None


def _forget_old_ones(folder: Path) -> None:
    with suppress(OSError):
        for old in sorted(folder.glob("milrec-crash-*.log"))[:-_KEPT]:
            with suppress(OSError):  # of somebody else, in a folder that is shared
                old.unlink()
