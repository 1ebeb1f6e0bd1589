"""Files and folders that appear complete or not at all, and that are checked before they are used.

Everything milrec keeps (data, splits, models, runs) is a folder with a `milrec.json` that names its kind, its format
version, its facts, the size and SHA-256 of every other file, and a SHA-256 of its own content. A folder is
written under a temporary name and then renamed; nothing in it is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milrec.errors import FolderError
from milrec.interrupts import pause_point

_WINDOWS = sys.platform == "win32"
MANIFEST = "milrec.json"
FORMAT_VERSION = 1
_KEYS = {"format", "kind", "version", "facts", "files"}


@dataclass(frozen=True)
class Manifest:
    """What `milrec.json` says about a folder whose files have been checked."""

    path: Path
    kind: str
    facts: dict[str, Any]
    hashes: dict[str, str]

    def fingerprint(self) -> str:
        """One hash for the content of the whole folder, independent of its name, place and date."""
        content = json.dumps(sorted(self.hashes.items())).encode()
        return hashlib.sha256(content).hexdigest()


@dataclass
class Draft:
    """A folder that is being written: put files into `path`, and facts for the manifest into `facts`."""

    path: Path
    facts: dict[str, Any] = field(default_factory=dict)


def check_place(path: Path) -> None:
    """Refuse a place where a file could not be written, before the work for it is done."""
    if not path.parent.is_dir():
        raise FolderError(f"folder '{path.parent}' does not exist; create it, or write '{path.name}' elsewhere")
    if path.is_dir():
        raise FolderError(f"'{path}' is a folder; name a file to write")


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary path next to `path`: renamed to it if the block succeeds, removed if it fails."""
    path = Path(path)
    check_place(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield draft
        pause_point(f"new file {path.name}")
        _flush_to_disk(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """JSON that any program can read: UTF-8, indented, no NaN (undefined numbers are null)."""
    with new_file(path) as draft:
        draft.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FolderError(f"there is no file '{path}'") from None
    except (ValueError, RecursionError, OSError) as error:
        raise FolderError(f"'{path}' is not readable JSON ({error})") from None


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock file `path` for the block, unless another process does; whether we hold it.

    The lock ends with the process, however it ends; the file stays.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield _try_lock(handle)
    finally:
        os.close(handle)  # which ends the lock


if sys.platform == "win32":

    def _try_lock(handle: int) -> bool:
        import msvcrt

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
        except OSError:
            return False
        return True


@contextmanager
def new_folder(path: Path, kind: str, replace: bool = False) -> Iterator[Draft]:
    """A folder of the given kind, which appears at `path`, complete, if the block succeeds."""
    refuse_if_in_the_way(Path(path), kind, replace)
    path = Path(path).resolve()  # follow links to where the folder really is
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise FolderError(f"'{path.parent}' is not a folder; choose another place for the {kind} folder") from None
    draft = Draft(Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)))
    try:
        yield draft
        pause_point(f"new {kind} folder")
        write_manifest(draft.path, kind, draft.facts, _checked_in(draft.path))
        draft.path.chmod(0o777 & ~_umask())
        _put_in_place(draft.path, path)
    finally:
        shutil.rmtree(draft.path, ignore_errors=True)


def refuse_if_in_the_way(path: Path, kind: str, replace: bool) -> None:
    """Never overwrite what is there, except a folder of the same kind with `replace`."""
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise FolderError(f"'{path}' exists and is a file; choose another place for the {kind} folder")
    if not any(path.iterdir()):
        return
    found = folder_kind(path)
    if found != kind:
        held = f"holds a milrec {found} folder" if found else "is not empty and holds no milrec folder"
        raise FolderError(f"'{path}' {held}; choose another place for the {kind} folder")
    if not replace:
        raise FolderError(
            f"'{path}' already holds a {kind} folder; choose another place, or replace it with `replace=True`"
        )


def folder_kind(path: Path) -> str | None:
    """The kind of a folder according to its manifest, or None if it has no readable manifest."""
    try:
        manifest = json.loads((Path(path) / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    kind = manifest.get("kind") if isinstance(manifest, dict) and manifest.get("format") == "milrec" else None
    return kind if isinstance(kind, str) else None


def open_folder(path: Path, kind: str) -> Manifest:
    """Check all of a folder (kind, version, the size and hash of every file) and return its manifest."""
    path = Path(path)
    if not path.is_dir():
        raise FolderError(f"there is no {kind} folder '{path}'")
    if not (path / MANIFEST).is_file():
        raise FolderError(f"'{path}' is not a milrec {kind} folder: it has no file '{MANIFEST}'")
    found = read_json(path / MANIFEST)
    _check_header(path, kind, found)
    _check_manifest(path, found)
    facts, files = found.get("facts"), found.get("files")
    if not isinstance(facts, dict) or not isinstance(files, dict):
        raise FolderError(f"'{path / MANIFEST}' is damaged: 'facts' or 'files' is missing")
    for name, expected in files.items():
        _check_file(path, name, expected)
    return Manifest(path, kind, facts, {name: entry["sha256"] for name, entry in files.items()})


def require_files(manifest: Manifest, names: list[str]) -> None:
    """Refuse a folder whose manifest does not list a file that is about to be read."""
    for name in names:
        if name not in manifest.hashes:
            raise FolderError(f"'{manifest.path}' is damaged: its manifest does not list '{name}'")


def _check_header(path: Path, kind: str, found: Any) -> None:
    if not isinstance(found, dict) or found.get("format") != "milrec":
        raise FolderError(f"'{path / MANIFEST}' was not written by milrec")
    if found.get("kind") != kind:
        raise FolderError(f"'{path}' is a {found.get('kind')} folder; a {kind} folder is needed")
    version = found.get("version")
    if not isinstance(version, int) or version < 1:
        raise FolderError(f"'{path / MANIFEST}' is damaged: format version {version!r} is not a whole number from 1 up")
    if version > FORMAT_VERSION:
        raise FolderError(
            f"'{path}' has format version {version}, and this milrec reads up to {FORMAT_VERSION}; upgrade milrec"
        )


def _check_manifest(path: Path, found: dict[str, Any]) -> None:
    """Compare a manifest with its own hash. The oldest folders have none; otherwise no key may be unknown."""
    said = {name: value for name, value in found.items() if name != "sha256"}
    if not set(said) <= _KEYS or ("sha256" in found and found["sha256"] != _hash_of(said)):
        raise FolderError(f"'{path / MANIFEST}' is damaged: it has changed since it was saved (its hash differs)")


def _check_file(path: Path, name: str, expected: Any) -> None:
    if Path(name).name != name or not isinstance(expected, dict) or set(expected) != {"bytes", "sha256"}:
        raise FolderError(f"'{path / MANIFEST}' is damaged: its entry for file {name!r} cannot be understood")
    file = path / name
    if file.is_symlink() or not file.is_file():
        raise FolderError(f"'{path}' is damaged: file '{name}' is missing")
    if file.stat().st_size != expected["bytes"] or _sha256(file) != expected["sha256"]:
        raise FolderError(f"'{path}' is damaged: file '{name}' has changed since it was saved (its hash differs)")


def write_manifest(folder: Path, kind: str, facts: dict[str, Any], files: dict[str, Any]) -> None:
    """Write `milrec.json`; `files` is empty for a run, whose files come and go."""
    manifest = {
        "format": "milrec",
        "kind": kind,
        "version": FORMAT_VERSION,
        "facts": facts,
        "files": files,
    }
    write_json(folder / MANIFEST, {**manifest, "sha256": _hash_of(manifest)})


def _checked_in(folder: Path) -> dict[str, Any]:
    """The size and hash of every file in a folder, which is made readable and safe on the disk."""
    files = {}
    readable = 0o666 & ~_umask()  # some libraries write files that only their owner may read
    for file in sorted(folder.iterdir()):
        _flush_to_disk(file)
        file.chmod(readable)
        files[file.name] = {"bytes": file.stat().st_size, "sha256": _sha256(file)}
    return files


def _put_in_place(draft: Path, path: Path) -> None:
    if not path.exists() or not any(path.iterdir()):
        _rename_folder(draft, path)
        return
    retired = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
    _rename_folder(path, retired)
    _rename_folder(draft, path)
    shutil.rmtree(retired)


def _rename_folder(folder: Path, to: Path) -> None:
    """In one step, also to the place of an empty folder; except on Windows, which wants that place free."""
    if _WINDOWS and to.exists():
        to.rmdir()
    folder.replace(to)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _flush_to_disk(file: Path) -> None:
    with file.open("r+b") as handle:  # Windows flushes nothing that was opened for reading only
        os.fsync(handle.fileno())


def _hash_of(manifest: dict[str, Any]) -> str:
    """One hash for the content of a manifest, independent of its layout: that of plain JSON, as it is read back."""
    plain = json.loads(json.dumps(manifest))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
