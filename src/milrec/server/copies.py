"""Private copies of the folders that are served: whatever happens to a folder, what was checked is what is served.

The files of a model are mapped into memory, so a folder that is overwritten in place would change lists, or end the
process. A copy lies beside its folder (or in `scratch`), in `.milrec-serving-UID`, and is named after the hash of the
folder's manifest: servers on one machine hold the same copy together, each by a lock that ends with its process. The
last one to let go removes the copy, or, after a kill, the next server that starts. Where the file system can, a copy
shares the blocks of its folder (a reflink) and takes up no room.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milrec.errors import FolderError, MilrecError
from milrec.interrupts import pause_point
from milrec.storage import MANIFEST, Manifest, open_folder

RELOADING = "another reload is running; try again when it is done"
_WAIT_SECONDS = 600.0  # for another server that is copying
_CHUNK = 1 << 20
_NO_ROOM = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


class Copy:
    """A private copy of a folder, which stays as long as anybody holds it."""

    def __init__(self, path: Path, fingerprint: str, lock: int | None = None) -> None:
        """`fingerprint` is that of the folder: the copy has its hashes, or is refused when it is opened.

        Without a lock, it is another process that holds the copy.
        """
        self.path, self.fingerprint = path, fingerprint
        self._lock = lock

    def release(self) -> None:
        """Let go; if nobody else holds the copy, it is removed. What is mapped already stays readable."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)
            with suppress(OSError, FolderError), _alone_in(self.path.parent, wait=1.0):
                _clean_up(self.path.parent)  # otherwise the server that is copying does it when it ends


@dataclass(frozen=True)
class Source:
    """What a model is read from: a copy of its folder and, if it is to leave out what users have, of that data."""

    folder: Path
    model: Copy
    known_folder: Path | None = None
    known: Copy | None = None

    def release(self) -> None:
        self.model.release()
        if self.known is not None:
            self.known.release()

    def as_json(self) -> dict[str, Any]:
        """For another process, which reads the same copies while this one holds them."""
        names = {"folder": self.folder, "model": self.model.path, "known_folder": self.known_folder}
        names["known"] = None if self.known is None else self.known.path
        texts = {name: None if path is None else str(path) for name, path in names.items()}
        return {**texts, "fingerprint": self.model.fingerprint}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Source:
        model = Copy(Path(said["model"]), said["fingerprint"])
        if said["known"] is None:
            return cls(Path(said["folder"]), model)
        return cls(Path(said["folder"]), model, Path(said["known_folder"]), Copy(Path(said["known"]), ""))


@dataclass(frozen=True)
class Folders:
    """The folders of the models that are served, by name, and where their private copies are made."""

    folders: Mapping[str, Path]
    known: Path | None = None  # data whose items are never listed to the users who have them
    scratch: Path | None = None  # by default, each copy is made beside its folder

    @property
    def names(self) -> list[str]:
        return list(self.folders)

    def take(self, name: str) -> Source:
        """What the folder of a model holds now.

        The folder may be removed, replaced or overwritten at any moment. While it is being copied, the error says so;
        from then on it does not matter.
        """
        folder = self.folders[name]
        with ExitStack() as undone:
            with reading(folder):
                model = take_copy(folder, "model", self.scratch)
                undone.callback(model.release)
            if self.known is None:
                undone.pop_all()
                return Source(folder, model)
            with reading(self.known):
                known = take_copy(self.known, "data", self.scratch)
            undone.pop_all()
            return Source(folder, model, self.known, known)


@contextmanager
def reading(path: Path, copy: Copy | None = None) -> Iterator[None]:
    """What goes wrong while a folder is read is an error of one sentence, about the folder and not about its copy."""
    try:
        yield
    except FolderError as error:
        raise FolderError(str(error).replace(str(copy.path), str(path)) if copy else str(error)) from error
    except MilrecError:
        raise
    except Exception as error:
        why = f"{error.__class__.__name__}: {error}"
        raise FolderError(f"'{path}' cannot be read ({why}); if it is being replaced, try again") from error


def take_copy(folder: Path, kind: str, scratch: Path | None = None) -> Copy:
    """A private copy of a folder that has just been checked; the copy has yet to be checked.

    A link is followed first, so that no file of another folder is read if the link is changed meanwhile.
    """
    if not folder.is_dir():
        raise FolderError(f"there is no {kind} folder '{folder}'")
    place = folder.resolve()
    source = open_folder(place, kind)
    if kind == "model":
        _refuse_foreign_files(source)
    content = _manifest_of(source)
    parent = place.parent if scratch is None else scratch.absolute()
    try:
        room = parent / _room_name()
        with _alone_in(room, _WAIT_SECONDS):
            _clean_up(room)
            path = room / hashlib.sha256(content).hexdigest()[:32]
            if not path.exists():
                _make(path, source, content)
            return Copy(path, source.fingerprint(), _held(path))
    except OSError as error:
        raise FolderError(_why_not(folder, parent, error)) from error


def _refuse_foreign_files(source: Manifest) -> None:
    """A model folder may contain only what milrec wrote."""
    foreign = {file.name for file in source.path.iterdir()} - {MANIFEST, *source.hashes}
    if foreign:
        raise FolderError(f"'{source.path}' holds '{min(foreign)}', which milrec did not write; remove it")


def _manifest_of(source: Manifest) -> bytes:
    """The manifest's own bytes, of the folder that was checked and of no other that has taken its place since."""
    content = (source.path / MANIFEST).read_bytes()
    try:
        hashes = {name: entry["sha256"] for name, entry in json.loads(content)["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        hashes = {}
    if hashes != source.hashes:
        raise FolderError(f"'{source.path}' was replaced while it was being read; try again")
    return content


def _why_not(folder: Path, parent: Path, error: OSError) -> str:
    if error.errno in _NO_ROOM:
        return (
            f"there is no room in '{parent}' for a private copy of '{folder}'; free some, or choose another `scratch`"
        )
    why = error.strerror or error.__class__.__name__
    return f"a private copy of '{folder}' cannot be made in '{parent}' ({why}); choose another `scratch`"


def _room_name() -> str:
    """One room for each account: nobody else may change what is served."""
    return f".milrec-serving-{os.geteuid()}" if hasattr(os, "geteuid") else ".milrec-serving"


@contextmanager
def _alone_in(room: Path, wait: float) -> Iterator[None]:
    """Only one process at a time copies and cleans up; a room with no copy in it is removed at the end."""
    handle = _entered(room, wait)
    try:
        yield
    finally:
        with suppress(OSError):
            if [one.name for one in room.iterdir()] == ["lock"]:
                (room / "lock").unlink()
                room.rmdir()
        os.close(handle)


def _entered(room: Path, wait: float) -> int:
    ends = time.monotonic() + wait
    while True:
        room.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):  # the room was removed just now
            _check_owner(room)
            handle = os.open(room / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            if _locked(handle, shared=False) and _is_still(handle, room / "lock"):
                return handle
            os.close(handle)
        if time.monotonic() > ends:
            raise FolderError(f"another server has been copying into '{room}' for too long; stop it, or try again")
        time.sleep(0.02)


def _check_owner(room: Path) -> None:
    """Refuse a room that somebody else made, or may write to."""
    found = room.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise FolderError(f"'{room}' is not a folder for private copies; remove it, or choose another `scratch`")
    if hasattr(os, "geteuid") and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
        raise FolderError(f"other users can write to '{room}', so private copies are not safe there; remove it")


def _is_still(handle: int, path: Path) -> bool:
    """Whether a lock file that was opened is still the one at this path."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _clean_up(room: Path) -> None:
    """Remove what nobody holds: copies that were let go, and what a killed server left behind."""
    for orphan in [one for one in room.glob("*.lock") if not one.with_suffix("").exists()]:
        orphan.unlink(missing_ok=True)  # nobody can be about to use it: only one process at a time is here
    for path in [one for one in room.iterdir() if one.is_dir()]:
        lock = path.with_suffix(".lock")
        if not lock.exists():
            shutil.rmtree(path, ignore_errors=True)
            continue
        handle = os.open(lock, os.O_RDWR)
        try:
            if _locked(handle, shared=False):
                shutil.rmtree(path, ignore_errors=True)
                lock.unlink()
        finally:
            os.close(handle)


def _held(path: Path) -> int:
    handle = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    if not _locked(handle, shared=True):
        os.close(handle)
        raise FolderError(f"'{path}' is locked; try again")
    return handle


def _make(path: Path, source: Manifest, content: bytes) -> None:
    """The copy appears whole; it need not outlast a power cut, so nothing waits for the disk."""
    draft = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
    draft.mkdir(mode=0o700)
    try:
        for name in source.hashes:
            _copy_file(source.path / name, draft / name)
        (draft / MANIFEST).write_bytes(content)
        pause_point("private copy")
        draft.rename(path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _copy_file(source: Path, target: Path) -> None:
    reading = os.open(source, _READ)
    try:
        writing = os.open(target, _WRITE, 0o400)
        try:
            _copy_bytes(reading, writing, os.fstat(reading).st_size)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_bytes(reading: int, writing: int, size: int) -> None:
    """No more than `size`: a file that grows meanwhile is not the one that was checked."""
    left = size
    with suppress(AttributeError, OSError):  # the system cannot, or not between these places: read and write instead
        while left and (copied := os.copy_file_range(reading, writing, left)):  # type: ignore[attr-defined,unused-ignore]
            left -= copied
    while left and (chunk := os.read(reading, min(_CHUNK, left))):
        left -= len(chunk)
        while chunk:
            chunk = chunk[os.write(writing, chunk) :]


if sys.platform == "win32":

    def _locked(handle: int, shared: bool) -> bool:
        """Windows knows no shared locks here: each process locks a byte of its own, or all of them."""
        import msvcrt

        os.lseek(handle, os.getpid() % (1 << 22) if shared else 0, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1 if shared else 1 << 22)
        except OSError:
            return False
        return True

else:

    def _locked(handle: int, shared: bool) -> bool:
        import fcntl

        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
