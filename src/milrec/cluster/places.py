"""Places that all nodes can reach: a shared folder, or object storage such as s3://bucket/folder.

A node copies a milrec folder once into a cache, under the hash of its content, and checks it there. So it is read over
the network once, whatever happens to it meanwhile, and processes of a node share its pages.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from milrec.disk.files import draft_folder, parse_json, sweep
from milrec.disk.locks import locked
from milrec.errors import ClusterError, FolderError, SettingsError, first_line
from milrec.storage import MANIFEST, is_url, open_folder

_KEPT = 8  # folders in the cache of a node
_POLL = 0.2  # seconds between two looks at a lock
_LARGEST_MANIFEST = 1 << 27  # bytes


def shared_place(place: str) -> str:
    """The same for every node: a URL, or an absolute path."""
    return place if is_url(place) else str(Path(place).resolve())


def joined_place(place: str, name: str) -> str:
    """The place of a file in object storage; what follows a question mark stays at the end."""
    path, mark, options = place.partition("?")
    return f"{path.rstrip('/')}/{name}{mark}{options}"


def local_folder(place: str, kind: str, fingerprint: str | None = None, copied: bool = True) -> Path:
    """A milrec folder on this node, to be loaded, which checks it; refused if its content has another hash."""
    if not is_url(place) and not copied:
        path = Path(place)
        _refuse_other(open_folder(path, kind).fingerprint(), fingerprint, place)
        return path
    wanted = fingerprint or _fingerprint_of(_manifest_at(place))
    path = _cache() / wanted
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path):
        if not _is_whole(path, wanted):
            _remove(path)
            _copy_to(path, place, kind, wanted)
        _used(path).touch()
        _forget_old(path)
    return path


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process of a node at a time copies a folder; the others wait for it."""
    lock = path.with_name(f"{path.name}.lock")
    while True:
        with locked(lock) as free:
            if free:
                yield
                return
        time.sleep(_POLL)


def _is_whole(path: Path, wanted: str) -> bool:
    """Whether the cache holds a folder with all its files; their content is checked when they are loaded."""
    try:
        found = parse_json((path / MANIFEST).read_text(encoding="utf-8"))
        sizes = {name: entry["bytes"] for name, entry in found["files"].items()}
        return _fingerprint_of(found) == wanted and all(
            (path / name).stat().st_size == size for name, size in sizes.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _copy_to(path: Path, place: str, kind: str, wanted: str) -> None:
    sweep(path)  # what killed copies left
    draft = draft_folder(path)
    try:
        with storage_errors(place):
            manifest = _manifest_at(place)
            system, root = _opened(place)
            for name, size in {MANIFEST: _LARGEST_MANIFEST, **_sizes(manifest, place)}.items():
                if not is_url(place) and (Path(place) / name).is_symlink():
                    raise FolderError(f"'{place}' is damaged: '{name:.80}' is a link")
                _copy(system, f"{root}/{name}", draft / name, size)
        _refuse_other(open_folder(draft, kind).fingerprint(), wanted, place)
        draft.rename(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sizes(manifest: dict[str, Any], place: str) -> dict[str, int]:
    """The files of a folder and their sizes; a name that leads out of the folder is refused."""
    sizes = {}
    for name, entry in manifest["files"].items():
        size = entry.get("bytes") if isinstance(entry, dict) else None
        if Path(name).name != name or type(size) is not int or size < 0:
            raise FolderError(f"'{place}/{MANIFEST}' is damaged: its entry for file {name!r:.80} cannot be understood")
        sizes[name] = size
    return sizes


def _copy(system: Any, source: str, target: Path, most: int) -> None:
    """No more than so many bytes, and one: a file that is too long is then seen to be."""
    left = most + 1
    with system.open_input_stream(source) as coming, target.open("wb") as file:
        while left and (content := coming.read(min(1 << 24, left))):
            file.write(content)
            left -= len(content)


def _refuse_other(found: str, wanted: str | None, place: str) -> None:
    if wanted is not None and found != wanted:
        raise FolderError(f"'{place}' has changed since the command was started; start it again")


def _fingerprint_of(manifest: dict[str, Any]) -> str:
    """The hash of a folder's content, as its manifest has it; what is then copied is compared with it."""
    files = manifest.get("files", {})
    hashes = sorted((name, entry.get("sha256")) for name, entry in files.items() if isinstance(entry, dict))
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


def _manifest_at(place: str) -> dict[str, Any]:
    with storage_errors(place):
        system, root = _opened(place)
        try:
            with system.open_input_stream(f"{root}/{MANIFEST}") as file:
                found = parse_json(file.read(_LARGEST_MANIFEST).decode("utf-8"))
        except FileNotFoundError:
            raise FolderError(f"there is no milrec folder at '{place}': it has no file '{MANIFEST}'") from None
        except (ValueError, RecursionError):
            raise FolderError(f"'{place}/{MANIFEST}' is not readable JSON") from None
    if not isinstance(found, dict) or not isinstance(found.get("files"), dict):
        raise FolderError(f"'{place}/{MANIFEST}' was not written by milrec")
    return found


def _cache() -> Path:
    """Where this node keeps copies: $MILREC_CACHE, or the cache folder of this user."""
    own = os.environ.get("MILREC_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(own) if own else Path(base) / "milrec" / "folders"


def _forget_old(newest: Path) -> None:
    """Keep the folders that were used last; processes that have mapped an older one are not disturbed."""
    others = [mark for mark in newest.parent.glob("*.used") if mark != _used(newest)]
    for mark in sorted(others, key=lambda mark: mark.stat().st_mtime, reverse=True)[_KEPT - 1 :]:
        with locked(mark.with_suffix(".lock")) as free:
            if free:
                _remove(mark.with_suffix(""))
                mark.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    """At once under another name, and then file by file."""
    if path.exists():
        gone = draft_folder(path)
        path.replace(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _used(path: Path) -> Path:
    """An empty file that was changed when a folder of the cache was used last."""
    return path.with_name(f"{path.name}.used")


def refuse_used(place: str) -> None:
    """Refuse a place in object storage that holds something already."""
    with storage_errors(place):
        system, root = _opened(place)
        found = system.get_file_info(fs.FileSelector(root, allow_not_found=True))
    if found:
        raise FolderError(f"'{place}' is not empty; choose another place")


def empty_place(place: str) -> None:
    """Remove what a command that failed has put into object storage, as far as that is possible."""
    with suppress(Exception):
        system, root = _opened(place)
        system.delete_dir(root)


def send_file(path: Path, place: str) -> None:
    """Write a file to object storage: it appears there whole or not at all."""
    with storage_errors(place):
        system, target = _opened(place)
        try:
            with path.open("rb") as file, system.open_output_stream(target) as stream:
                shutil.copyfileobj(file, stream, 1 << 24)
        except BaseException:  # what was sent so far has become a file: Arrow ends an upload when it closes it
            with suppress(Exception):
                system.delete_file(target)
            raise


def send_text(text: str, place: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text"
        path.write_text(text, encoding="utf-8")
        send_file(path, place)


def _opened(place: str) -> tuple[Any, str]:
    """The file system of a place, and the path there."""
    if not is_url(place):
        return fs.LocalFileSystem(), place
    try:
        system, path = fs.FileSystem.from_uri(place)
    except (pa.ArrowException, ValueError) as error:
        raise SettingsError(f"'{place}' cannot be opened ({first_line(error)})") from None
    return system, path.rstrip("/")


@contextmanager
def storage_errors(place: str) -> Iterator[None]:
    """What object storage says, in one sentence."""
    try:
        yield
    except OSError as error:
        if not is_url(place):
            raise
        said = first_line(error)
        hint = "" if "not exist" in said or "NO_SUCH" in said else "; every node needs credentials for it"
        raise ClusterError(f"'{place}' cannot be used ({said}){hint}") from None
