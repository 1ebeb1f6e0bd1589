"""Files and folders that appear complete or not at all, and whose files are checked before they are read.

Everything milrec keeps (data, splits, models, runs) is a folder with a `milrec.json` that names its kind, its format
version, its facts, the size and SHA-256 of every other file, and a SHA-256 of its own content. A folder is
written under a temporary name and then renamed; nothing in it is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milrec.disk.files import (
    draft_folder,
    leftovers,
    make_folders,
    parse_json,
    read_text,
    readable,
    remove_empty,
    replace_file,
    replace_folder,
    restore_folder,
    sweep,
    sync_file,
    system_errors,
)
from milrec.disk.locks import only_writer
from milrec.disk.manifest import KINDS, checked_manifest, hash_of
from milrec.disk.manifest import MANIFEST as MANIFEST
from milrec.disk.manifest import Manifest as Manifest
from milrec.errors import FolderError, cut
from milrec.interrupts import pause_point

_LONGEST_NAME = 230  # bytes: a name on a disk has at most 255, and a draft's is longer by `..milrec-XXXXXXXX.tmp`


def is_url(place: str) -> bool:
    """Whether a place is in object storage, such as s3://bucket/folder, and not a path."""
    return "://" in place


@dataclass
class Draft:
    """A folder that is being written: put files into `path`, and facts for the manifest into `facts`."""

    path: Path
    facts: dict[str, Any] = field(default_factory=dict)
    version: int = 1  # of the format: 2 if older versions of milrec could misread it


def check_place(path: Path) -> None:
    """Refuse a place where a file could not be written, before the work for it is done."""
    if not path.parent.is_dir():
        raise FolderError(f"folder '{path.parent}' does not exist; create it, or write '{path.name}' elsewhere")
    if path.is_dir():
        raise FolderError(f"'{path}' is a folder; name a file to write")
    if path.exists() and not path.is_file():
        raise FolderError(f"'{path}' is not a file that can be replaced; name another one")
    _refuse_long_name(path)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary path near `path`: renamed to it if the block succeeds, removed if it fails."""
    path = Path(path)
    check_place(path)
    path = path.resolve()  # a link stays, and what it points at is replaced
    with only_writer(path), system_errors(path):
        sweep(path)
        folder = draft_folder(path)  # libraries may put temporary files of their own beside a draft
        try:
            draft = folder / path.name
            yield draft
            pause_point(f"new file {path.name}")
            replace_file(draft, path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_file(path: Path) -> None:
    """Remove a file, if it is there, and whatever killed processes left while writing it."""
    if path.parent.is_dir():
        with only_writer(path):
            path.unlink(missing_ok=True)
            sweep(path)


def write_json(path: Path, value: Any) -> None:
    """JSON that any program can read: UTF-8, indented, no NaN (undefined numbers are null)."""
    with new_file(path) as draft:
        draft.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """JSON as `write_json` writes it; what other readers would understand otherwise, or choke on, is refused."""
    try:
        return parse_json(read_text(path))
    except FileNotFoundError:
        raise FolderError(f"there is no file '{path}'") from None
    except OSError as error:
        raise FolderError(f"'{path}' cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        raise FolderError(f"'{path}' is not readable JSON ({_json_fault(error)})") from None


def _json_fault(error: ValueError | RecursionError) -> str:
    """What is wrong with a text that should be JSON, in words of ours rather than of Python's parser."""
    if isinstance(error, json.JSONDecodeError):
        return f"the mistake is in line {error.lineno:,}" if error.doc.strip() else "it is empty"
    if isinstance(error, UnicodeError):
        return "it is not text in UTF-8"
    return "it is nested too deep" if isinstance(error, RecursionError) else str(error)


def _refuse_long_name(path: Path) -> None:
    """Before the work for it is done: drafts and locks have longer names than what they are for."""
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise FolderError(f"the name '{cut(path.name)}' is too long; at most {_LONGEST_NAME} bytes are possible")


@contextmanager
def alone_at(path: Path, kind: str) -> Iterator[Path]:
    """Be the only writer of a folder for the block: its place, links followed; folders above it are created.

    If a process was killed while it replaced the folder, the older one is put back first.
    """
    place = Path(path).resolve()
    if not place.name:
        raise FolderError(f"'{path}' cannot be a {kind} folder; choose another place")
    _refuse_long_name(place)
    try:
        made = make_folders(place.parent)
    except (FileExistsError, NotADirectoryError):
        raise FolderError(f"'{place.parent}' is not a folder; choose another place for the {kind} folder") from None
    try:
        with only_writer(path):
            _restore(place)
            sweep(place)
            yield place
    finally:
        remove_empty(made)


@contextmanager
def reserved(path: Path, kind: str, replace: bool = False) -> Iterator[Path]:
    """Keep a place for a new folder during the block; refused, before any work is done, if something is in the way."""
    refuse_if_in_the_way(Path(path), kind, replace)
    with alone_at(path, kind) as place:
        refuse_if_in_the_way(place, kind, replace)  # now that nobody else can put something there
        yield place


@contextmanager
def new_folder(path: Path, kind: str, replace: bool = False) -> Iterator[Draft]:
    """A folder of the given kind, which appears at `path`, complete, if the block succeeds."""
    with reserved(path, kind, replace) as place, system_errors(path):
        draft = Draft(draft_folder(place))
        try:
            yield draft
            pause_point(f"new {kind} folder")
            write_manifest(draft.path, kind, draft.facts, _checked_in(draft.path), draft.version)
            replace_folder(draft.path, place)
        finally:
            shutil.rmtree(draft.path, ignore_errors=True)


def bring_back(path: Path) -> None:
    """If a process was killed while it replaced this folder, and the folder is gone, put the older one back."""
    place = Path(path).resolve()
    if not os.path.lexists(place) and leftovers(place, "old"):
        with suppress(PermissionError), only_writer(path):
            _restore(place)


def _restore(place: Path) -> None:
    for retired in [] if os.path.lexists(place) else leftovers(place, "old"):
        with suppress(FolderError):  # not whole: it is being removed, and another took its place
            open_folder(retired, folder_kind(retired) or "milrec")
            restore_folder(retired, place)
            return


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
        manifest = json.loads(read_text(Path(path) / MANIFEST))
    except (OSError, ValueError, RecursionError):
        return None
    kind = manifest.get("kind") if isinstance(manifest, dict) and manifest.get("format") == "milrec" else None
    return kind if kind in KINDS else None


def open_manifest(path: Path, kind: str) -> Manifest:
    """Check what a folder says about itself (kind, version, hash of the manifest); its files are not looked at."""
    path = Path(path)
    bring_back(path)
    if not path.is_dir():
        raise FolderError(_no_folder(path, kind))
    if not (path / MANIFEST).is_file():
        raise FolderError(f"'{path}' is not a milrec {kind} folder: it has no file '{MANIFEST}'")
    return checked_manifest(path, kind, read_json(path / MANIFEST))


def _no_folder(path: Path, kind: str) -> str:
    """Why there is no folder at a place, and what to do about it."""
    place = str(path).replace(":/", "://", 1)  # a path has single slashes
    if is_url(place):
        return f"'{place}' is in object storage, which only a cluster reads; copy the folder to this machine first"
    if path.is_file() and kind == "data":
        return f"'{path}' is a file, not a data folder; run `milrec prepare` on it first"
    if path.is_file() and kind == "split":
        return f"'{path}' is a file; a split folder is needed (milrec prepare, then milrec split)"
    if path.is_file():
        return f"'{path}' is a file; a {kind} folder is needed"
    return f"there is no {kind} folder '{path}'"


def open_folder(path: Path, kind: str) -> Manifest:
    """Check all of a folder (kind, version, the size and hash of every file) and return its manifest."""
    manifest = open_manifest(path, kind)
    check_files(manifest, manifest.hashes)
    return manifest


@contextmanager
def opened_folder(path: Path, kind: str) -> Iterator[Manifest]:
    """A folder to be read in the block, each file once it is checked; refused if another took its place meanwhile.

    Files are found by their names: some of those that were read may then belong to the one, and some to the other.
    """
    path = Path(path)
    bring_back(path)
    before = _identity(path)
    try:
        yield open_manifest(path, kind)
    except FolderError:
        if _identity(path) == before:
            raise
    if _identity(path) != before:
        raise FolderError(f"'{path}' was replaced while it was being read; try again")


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def check_files(manifest: Manifest, names: Iterable[str]) -> None:
    """Refuse a folder if a file that is about to be read is not listed, missing, or changed since it was saved."""
    for name in names:
        if name not in manifest.hashes:
            raise FolderError(f"'{manifest.path}' is damaged: its manifest does not list '{name}'")
        _check_file(manifest, name)


def _check_file(manifest: Manifest, name: str) -> None:
    path, file = manifest.path, manifest.path / name
    try:
        if file.is_symlink() or not file.is_file():
            raise FolderError(f"'{path}' is damaged: file '{name:.80}' is missing")
        same = file.stat().st_size == manifest.sizes[name] and file_hash(file) == manifest.hashes[name]
    except OSError as error:
        raise FolderError(f"'{path}': file '{name:.80}' cannot be read ({error.strerror})") from None
    if not same:
        raise FolderError(f"'{path}' is damaged: file '{name:.80}' has changed since it was saved (its hash differs)")


def write_manifest(folder: Path, kind: str, facts: dict[str, Any], files: dict[str, Any], version: int = 1) -> None:
    """Write `milrec.json`; `files` is empty for a run, whose files come and go."""
    manifest = {
        "format": "milrec",
        "kind": kind,
        "version": version,
        "facts": facts,
        "files": files,
    }
    write_json(folder / MANIFEST, {**manifest, "sha256": hash_of(manifest)})


def _checked_in(folder: Path) -> dict[str, Any]:
    """The size and hash of every file in a folder, which is made readable and safe on the disk."""
    files = {}
    for file in sorted(folder.iterdir()):
        readable(file)
        sync_file(file)
        files[file.name] = {"bytes": file.stat().st_size, "sha256": file_hash(file)}
    return files


def file_hash(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
