"""What it takes for a write to last through a power cut, or to leave nothing behind when it fails.

What is being written lies in a folder of its own beside its place, called `.NAME.milrec-XXXXXXXX.tmp`. A finished
folder changes places with the older one in a single step; where the system cannot do that, the older one is called
`.NAME.milrec-XXXXXXXX.old` for a moment. The process that holds the lock of the place may remove or restore what a
killed process left there.
"""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from milrec.errors import MilrecError
from milrec.interrupts import pause_point

_WINDOWS = sys.platform == "win32"
_CURRENT_FOLDER, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}
_DEEPEST = 50  # how deep JSON may be nested: our own is nested 8 deep
_UNSYNCED = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}  # some file systems sync files, and no folders
_RUST_ERROR = re.compile(r"\(os error (\d+)\)")  # how safetensors passes on what the system said


def draft_folder(place: Path) -> Path:
    """A new folder beside a place for what will be renamed to it."""
    return Path(tempfile.mkdtemp(prefix=f".{place.name}.milrec-", suffix=".tmp", dir=place.parent))


def retired_folder(place: Path) -> Path:
    """A new, empty folder beside a place that a folder from there can be renamed to."""
    return Path(tempfile.mkdtemp(prefix=f".{place.name}.milrec-", suffix=".old", dir=place.parent))


def leftovers(place: Path, kind: str) -> list[Path]:
    """The folders of one kind, `tmp` or `old`, that killed processes left beside a place."""
    name = re.compile(rf"\.{re.escape(place.name)}\.milrec-[a-z0-9_]{{8}}\.{kind}")
    try:
        return sorted(path for path in place.parent.iterdir() if name.fullmatch(path.name) and path.is_dir())
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def sweep(place: Path) -> None:
    """Remove what killed processes left beside a place; only for those who hold its lock."""
    for path in [*leftovers(place, "tmp"), *leftovers(place, "old")]:
        shutil.rmtree(path, ignore_errors=True)


def read_text(file: Path, most: int = 1 << 27) -> str:
    """A text file in UTF-8; refused with a ValueError if it is larger than such a file can be, or has no end."""
    with Path(file).open("rb") as handle:
        content = handle.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it is larger than {most >> 20} MiB")
    return content.decode("utf-8")


def parse_json(text: str) -> Any:
    """JSON; a ValueError for what other readers would understand otherwise, or choke on."""
    value = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_number)
    _check_plain(value)
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _check_plain(value: Any) -> None:
    """Refuse values nested beyond reason, numbers beyond double precision and halves of characters."""
    waiting = [(value, 1)]
    while waiting:
        one, depth = waiting.pop()
        if depth > _DEEPEST:
            raise ValueError(f"it is nested more than {_DEEPEST} deep")
        if isinstance(one, dict):
            waiting += [(inner, depth + 1) for pair in one.items() for inner in pair]
        elif isinstance(one, list):
            waiting += [(inner, depth + 1) for inner in one]
        elif isinstance(one, str):
            one.encode()
        elif isinstance(one, float) and not math.isfinite(one):
            raise ValueError("a number in it is too large")


def sync_file(file: Path) -> None:
    with file.open("r+b") as handle:  # Windows flushes nothing that was opened for reading only
        os.fsync(handle.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last: a file that was synced may still be lost with its name."""
    if _WINDOWS:  # which syncs no folders
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _UNSYNCED:
            raise
    finally:
        os.close(handle)


def make_folders(folder: Path) -> list[Path]:
    """Make a folder and those above it, so that they last; returns those that were not there, the lowest first."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(made):
        sync_folder(path.parent)
    return made


def remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # something is in it, or it is gone
            folder.rmdir()


def replace_file(draft: Path, to: Path) -> None:
    """Put a finished file in place: its content lasts before its new name does."""
    readable(draft)
    sync_file(draft)
    draft.replace(to)
    sync_folder(to.parent)


def replace_folder(draft: Path, to: Path) -> None:
    """Put a finished folder, whose files are synced, in place of nothing, of an empty folder or of an older one."""
    readable(draft)
    sync_folder(draft)
    if not to.exists() or not any(to.iterdir()):
        _rename_folder(draft, to)
        sync_folder(to.parent)
        return
    if exchange(draft, to):
        _settle_exchange(draft, to)
    else:
        _replace_in_two_steps(draft, to)


def exchange(one: Path, other: Path) -> bool:
    """Let two folders change places in a single step; False, and nothing done, where the system cannot do that."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    if rename(_CURRENT_FOLDER, os.fsencode(one), _CURRENT_FOLDER, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(other))


def _settle_exchange(retired: Path, to: Path) -> None:
    try:
        pause_point("after the exchange")
        sync_folder(to.parent)  # before the older one is gone for good
    except BaseException:
        exchange(retired, to)
        raise
    shutil.rmtree(retired, ignore_errors=True)


def _replace_in_two_steps(draft: Path, to: Path) -> None:
    retired = retired_folder(to)
    _rename_folder(to, retired)
    try:
        pause_point("between two renames")
        _rename_folder(draft, to)
    except BaseException:
        _rename_folder(retired, to)  # at once, and not only when the next command comes
        raise
    sync_folder(to.parent)
    shutil.rmtree(retired, ignore_errors=True)


def restore_folder(retired: Path, to: Path) -> None:
    """Undo the first half of a replacement whose second half never came."""
    _rename_folder(retired, to)
    sync_folder(to.parent)


def _rename_folder(folder: Path, to: Path) -> None:
    """In one step, also to the place of an empty folder; except on Windows, which wants that place free."""
    if _WINDOWS and to.exists():
        to.rmdir()
    folder.replace(to)


def readable(path: Path) -> None:
    """Give a file or folder the permissions that new ones have: some libraries let only its owner read it."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


@contextmanager
def system_errors(place: Path) -> Iterator[None]:
    """What libraries say about a full or broken disk while they write, as an OSError that names the place."""
    try:
        yield
    except MilrecError:
        raise
    except Exception as error:
        rust = None if isinstance(error, OSError) else _RUST_ERROR.search(str(error))
        number = int(rust[1]) if rust else getattr(error, "errno", None)
        if not isinstance(number, int) or getattr(error, "filename", None) is not None:
            raise
        raise OSError(number, os.strerror(number), str(place)) from error
