"""A study that survives a break: its finished fits in one JSON file, which is rewritten after each."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from milrec.storage import new_file


@dataclass
class Study:
    """What is finished, in FILE; what each user got is beside it, in FILE.users."""

    path: Path
    found: dict[str, Any]

    @classmethod
    def at(cls, path: Path) -> Self:
        return cls(path, json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"fits": []})

    def has(self, wanted: dict[str, Any]) -> bool:
        return any(wanted.items() <= one.items() for one in self.found["fits"])

    def write(self) -> None:
        with new_file(self.path) as draft:
            draft.write_text(json.dumps(self.found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in values.items()}


def plain(number: float) -> str:
    """1e6 and 5e-6, not 1e+06 and 5e-06."""
    return f"{number:.3g}".replace("e+0", "e").replace("e-0", "e-")


def p_text(p: float) -> str:
    return "p < .001" if p < 0.001 else f"p = {p:.3f}".replace("0.", ".")
