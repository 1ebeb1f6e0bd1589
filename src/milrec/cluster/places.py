"""Places that all nodes can reach: a shared folder, or object storage such as s3://bucket/folder.

A node copies a milrec folder once into a cache, under the hash of its content, and checks it there. So it is read over
the network once, whatever happens to it meanwhile, and processes of a node share its pages.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from milrec.disk import draft_folder
from milrec.errors import ClusterError, FolderError, SettingsError, first_line
from milrec.storage import MANIFEST, is_url, open_folder

_KEPT = 8  # folders in the cache of a node


def shared_place(place: str) -> str:
    """The same for every node: a URL, or an absolute path."""
    return place if is_url(place) else str(Path(place).resolve())


def local_folder(place: str, kind: str, fingerprint: str | None = None, copied: bool = True) -> Path:
    """A milrec folder on this node, checked; refused if its content has another hash than the given one."""
    if not is_url(place) and not copied:
        path = Path(place)
        _refuse_other(open_folder(path, kind).fingerprint(), fingerprint, place)
        return path
    wanted = fingerprint or _fingerprint_at(place)
    path = _cache() / wanted
    if not path.exists():
        _copy_to_cache(place, kind, path, wanted)
    _used(path).touch()
    return path


def _copy_to_cache(place: str, kind: str, path: Path, wanted: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_folder(path)
    try:
        with storage_errors(place):
            system, root = _opened(place)
            for name in [MANIFEST, *_manifest_at(place).get("files", {})]:
                _copy(system, f"{root}/{name}", draft / Path(name).name)
        found = open_folder(draft, kind).fingerprint()
        _refuse_other(found, wanted, place)
        with suppress(OSError):  # another process of this node was faster
            draft.rename(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    _forget_old(path.parent)


def _copy(system: Any, source: str, target: Path) -> None:
    with system.open_input_stream(source) as coming, target.open("wb") as file:
        while content := coming.read(1 << 24):
            file.write(content)


def _refuse_other(found: str, wanted: str | None, place: str) -> None:
    if wanted is not None and found != wanted:
        raise FolderError(f"'{place}' has changed since the command was started; start it again")


def _fingerprint_at(place: str) -> str:
    """The hash of a folder's content, as its manifest has it; what is then copied is compared with it."""
    import hashlib

    files = _manifest_at(place).get("files", {})
    hashes = sorted((name, entry.get("sha256")) for name, entry in files.items() if isinstance(entry, dict))
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


def _manifest_at(place: str) -> dict[str, Any]:
    with storage_errors(place):
        system, root = _opened(place)
        try:
            with system.open_input_stream(f"{root}/{MANIFEST}") as file:
                found = json.loads(file.read(1 << 27))
        except FileNotFoundError:
            raise FolderError(f"there is no milrec folder at '{place}': it has no file '{MANIFEST}'") from None
        except ValueError:
            raise FolderError(f"'{place}/{MANIFEST}' is not readable JSON") from None
    if not isinstance(found, dict) or not isinstance(found.get("files"), dict):
        raise FolderError(f"'{place}/{MANIFEST}' was not written by milrec")
    return found


def _cache() -> Path:
    """Where this node keeps copies: $MILREC_CACHE, or the cache folder of this user."""
    own = os.environ.get("MILREC_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(own) if own else Path(base) / "milrec" / "folders"


def _forget_old(cache: Path) -> None:
    """Keep the folders that were used last; processes that have mapped an older one are not disturbed."""
    found = [path for path in cache.iterdir() if re.fullmatch("[0-9a-f]{64}", path.name)]
    for path in sorted(found, key=_last_use, reverse=True)[_KEPT:]:
        _used(path).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)


def _used(path: Path) -> Path:
    """An empty file that was changed when a folder of the cache was used last."""
    return path.with_name(f"{path.name}.used")


def _last_use(path: Path) -> float:
    mark = _used(path)
    return mark.stat().st_mtime if mark.exists() else 0.0


def refuse_used(place: str) -> None:
    """Refuse a place in object storage that holds something already."""
    with storage_errors(place):
        system, root = _opened(place)
        found = system.get_file_info(fs.FileSelector(root, allow_not_found=True))
    if found:
        raise FolderError(f"'{place}' is not empty; choose another place")


def send_file(path: Path, place: str) -> None:
    """Write a file to object storage: it appears there whole or not at all."""
    with storage_errors(place):
        system, target = _opened(place)
        with path.open("rb") as file, system.open_output_stream(target) as stream:
            shutil.copyfileobj(file, stream, 1 << 24)


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
        raise SettingsError(f"'{place}' is not a place that Arrow can open ({first_line(error)})") from None
    return system, path


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
