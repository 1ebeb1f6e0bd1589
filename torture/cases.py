"""A case: everything that is needed to carry out one trial again, as a value that fits into a small file."""

from __future__ import annotations

import base64
import json
import random
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Case:
    """A trial: the section it belongs to, what kind of trial it is, its facts, and the files that it needs."""

    section: str
    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def write_files(self, folder: Path) -> None:
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def chance(seed: int, section: str, number: int) -> random.Random:
    """The randomness of one trial, independent of all others and of how many processes share the work."""
    return random.Random(f"{seed}/{section}/{number}")


def text_of(case: Case, found: str = "") -> str:
    """A case as the text of its file."""
    value = {
        "section": case.section,
        "kind": case.kind,
        "found": found,
        "facts": case.facts,
        "files": {name: _written(content) for name, content in case.files.items()},
    }
    return json.dumps(value, indent=1) + "\n"


def read_case(path: Path) -> Case:
    value = json.loads(path.read_text(encoding="utf-8"))
    files = {name: _read(content) for name, content in value["files"].items()}
    return Case(value["section"], value["kind"], value["facts"], files)


def _written(content: bytes) -> dict[str, str]:
    """As text where a person could read it, otherwise packed."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if len(text) < 10_000 and all(character.isprintable() or character in "\n\t\r" for character in text):
        return {"text": text}
    return {"packed": base64.b64encode(zlib.compress(content, 9)).decode()}


def _read(content: dict[str, str]) -> bytes:
    return content["text"].encode() if "text" in content else zlib.decompress(base64.b64decode(content["packed"]))
