"""What `milrec.json` says about a folder: its kind, format version and facts, and the size and SHA-256 of every file.

It is checked against a SHA-256 of its own content.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milrec.errors import FolderError

MANIFEST = "milrec.json"
KINDS = ("data", "split", "model", "run")
FORMAT_VERSION = 2  # the newest that is read; a folder is written in the oldest that can hold it
_KEYS = {"format", "kind", "version", "facts", "files"}

_MAKERS = {("data", "split"): "split", ("split", "model"): "fit"}  # the command that makes the one from the other


@dataclass(frozen=True)
class Manifest:
    """What `milrec.json` says about a folder. It vouches for no file: `check_files` does, before one is read."""

    path: Path
    kind: str
    facts: dict[str, Any]
    hashes: dict[str, str]
    sizes: dict[str, int] = field(default_factory=dict)  # of the same files, in bytes

    def fingerprint(self) -> str:
        """One hash for the content of the whole folder, independent of its name, place and date."""
        content = json.dumps(sorted(self.hashes.items())).encode()
        return hashlib.sha256(content).hexdigest()


def checked_manifest(path: Path, kind: str, found: Any) -> Manifest:
    """What was read from a folder's `milrec.json`, checked; the files that it lists are not looked at."""
    _check_header(path, kind, found)
    _check_manifest(path, found)
    facts, files = found.get("facts"), found.get("files")
    if not isinstance(facts, dict) or not isinstance(files, dict):
        raise FolderError(f"'{path / MANIFEST}' is damaged: 'facts' or 'files' is missing")
    for name, entry in files.items():
        if Path(name).name != name or not isinstance(entry, dict) or set(entry) != {"bytes", "sha256"}:
            raise FolderError(f"'{path / MANIFEST}' is damaged: its entry for file {name!r:.80} cannot be understood")
    hashes, sizes = ({name: entry[key] for name, entry in files.items()} for key in ("sha256", "bytes"))
    return Manifest(path, kind, facts, hashes, sizes)


def _check_header(path: Path, kind: str, found: Any) -> None:
    if not isinstance(found, dict) or found.get("format") != "milrec":
        raise FolderError(f"'{path / MANIFEST}' was not written by milrec")
    if found.get("kind") not in KINDS:
        raise FolderError(f"'{path / MANIFEST}' is damaged: '{found.get('kind')!s:.40}' is not a kind of folder")
    if found["kind"] != kind:
        maker = _MAKERS.get((found["kind"], kind))
        cure = f" (made by milrec {maker})" if maker else ""
        raise FolderError(f"'{path}' is a {found['kind']} folder; a {kind} folder is needed{cure}")
    version = found.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise FolderError(
            f"'{path / MANIFEST}' is damaged: format version {version!r:.40} is not a whole number of 1 or more"
        )
    if version > FORMAT_VERSION:
        raise FolderError(
            f"'{path}' has format version {version!r:.40}, and this milrec reads up to {FORMAT_VERSION}; upgrade milrec"
        )


def _check_manifest(path: Path, found: dict[str, Any]) -> None:
    """Compare a manifest with its own hash. The oldest folders have none; otherwise no key may be unknown."""
    said = {name: value for name, value in found.items() if name != "sha256"}
    if not set(said) <= _KEYS or ("sha256" in found and found["sha256"] != hash_of(said)):
        raise FolderError(f"'{path / MANIFEST}' is damaged: it has changed since it was saved (its hash differs)")


def hash_of(manifest: dict[str, Any]) -> str:
    """One hash for the content of a manifest, independent of its layout: that of plain JSON, as it is read back."""
    plain = json.loads(json.dumps(manifest))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
