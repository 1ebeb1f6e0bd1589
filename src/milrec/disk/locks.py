"""One writer at a time: a lock file names the process that writes to a place, and ends with that process."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from milrec.errors import FolderError

_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}  # a file system that has none
_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_IN_THE_WAY = {errno.ELOOP, errno.EISDIR, errno.ENXIO}
_ATTEMPTS = 5  # a lock may be held for a moment by somebody who only looks whether it is free, or be just removed
_mine: dict[Path, int] = {}  # the lock files that this process holds, and the thread that took each


@contextmanager
def only_writer(place: Path) -> Iterator[None]:
    """Be the only writer of a file or folder for the block; where another process is, it is named and we are refused.

    A block inside a block of the same thread needs no second lock.
    """
    where = Path(place).resolve()  # two links to a place are one place
    with held(where.with_name(f".{where.name}.lock"), f"'{place}' is being written"):
        yield


@contextmanager
def held(lock: Path, doing: str) -> Iterator[None]:
    """Hold a lock file for the block, and remove it afterwards; `doing` is what its holder is said to do."""
    lock = lock.absolute()
    if _mine.get(lock) == threading.get_ident():
        yield
        return
    handle = _acquired(lock)
    if handle is None:
        raise FolderError(f"{doing} by {_holder(lock)}; wait until it is done, or choose another place")
    try:
        _mine[lock] = threading.get_ident()
        _write_holder(handle)
        yield
    finally:
        _mine.pop(lock, None)
        _release(lock, handle)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock file `path` for the block, unless another process does; whether we hold it.

    The lock ends with the process, however it ends; the file stays.
    """
    handle = _opened(path)
    try:
        yield _try_lock(handle)
    finally:
        os.close(handle)  # which ends the lock


def _acquired(lock: Path) -> int | None:
    """A handle that holds the lock; None if another process, or another thread, has it."""
    for attempt in range(_ATTEMPTS):
        handle = _opened(lock)
        try:
            if _try_lock(handle) and _is_still(lock, handle):
                _refuse_foreign(lock, handle)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        time.sleep(attempt * 0.01)
    return None


def _opened(lock: Path) -> int:
    """A lock file, opened or made; no link is followed to a file of somebody's."""
    try:
        return os.open(lock, _OPEN, 0o666)
    except OSError as error:
        if error.errno not in _IN_THE_WAY:
            raise
        raise FolderError(f"'{lock}' should be a lock file, but it is something else; remove it") from None


def _refuse_foreign(lock: Path, handle: int) -> None:
    """Never write into a file that is not a lock of ours."""
    found, text = os.fstat(handle), os.pread(handle, 1000, 0) if hasattr(os, "pread") else b""
    with suppress(ValueError, RecursionError):
        ours = not text or set(json.loads(text)) == {"process", "host", "since"}
        if ours and stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return
    raise FolderError(f"'{lock}' should be a lock file, but it is something else; remove it")


def _is_still(lock: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), lock.stat())
    except FileNotFoundError:
        return False


def _release(lock: Path, handle: int) -> None:
    if sys.platform == "win32":  # which removes no open file
        os.close(handle)
        with suppress(OSError):
            lock.unlink()
        return
    with suppress(FileNotFoundError):
        lock.unlink()  # while we hold it: nobody else can have locked this very file
    os.close(handle)


def _write_holder(handle: int) -> None:
    """Say who we are; on a full disk the lock holds without it."""
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    text = json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since})
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, text.encode())


def _holder(lock: Path) -> str:
    try:
        said = json.loads(lock.read_bytes()[:1000])
        process, host, since = int(said["process"]), str(said["host"]), str(said["since"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
    if process == os.getpid() and host == socket.gethostname():
        return f"this process already, since {since}"
    return f"process {process} on '{host}' since {since}"


if sys.platform == "win32":

    def _try_lock(handle: int) -> bool:
        import msvcrt

        os.lseek(handle, 1 << 30, os.SEEK_SET)  # far behind the name of the holder, which others may then read
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def _try_lock(handle: int) -> bool:
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        return True
