"""Folders whose content was changed by somebody who knows how to make the hashes right again."""

import copy
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Place = tuple[str | int, ...]
MISSING = object()  # in place of a value: its key is removed
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]

WRONG: dict[str, Any] = {
    "missing": MISSING,
    "null": None,
    "true": True,
    "zero": 0,
    "minus one": -1,
    "a half": 0.5,
    "a huge number": 1e308,
    "infinity": float("inf"),
    "nan": float("nan"),
    "a huge whole number": 10**40,
    "2^53 + 1": 2**53 + 1,
    "an empty text": "",
    "a word": "word",
    "ESC": "\x1b[31m",
    "half a character": "\ud800",
    "an empty list": [],
    "a list": [1, "two"],
    "an empty table": {},
    "a table": {"word": 1},
    "nested too deep": DEEP,
}


def places_in(value: Any, here: Place = ()) -> Iterator[Place]:
    """Where something is in a JSON value: every leaf, every list and every table, and the first two of a long list."""
    if here:
        yield here
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places_in(inner, (*here, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:2]):
            yield from places_in(inner, (*here, number))


def changed(value: Any, place: Place, to: Any) -> Any:
    """The same value with something else in one place."""
    new = copy.deepcopy(value)
    part = new
    for key in place[:-1]:
        part = part[key]
    if to is MISSING:
        del part[place[-1]]
    else:
        part[place[-1]] = to
    return new


def reseal(folder: Path, manifest: dict[str, Any] | None = None) -> None:
    """Make every hash in a folder right: those of its files, and that of the manifest itself."""
    path = folder / "milrec.json"
    said = json.loads(path.read_text(encoding="utf-8")) if manifest is None else copy.deepcopy(manifest)
    if isinstance(said.get("files"), dict):
        for name, entry in said["files"].items():
            file = folder / name
            if isinstance(entry, dict) and manifest is None and file.is_file():
                content = file.read_bytes()
                entry.update({"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
    said.pop("sha256", None)
    said["sha256"] = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(said), encoding="utf-8")
