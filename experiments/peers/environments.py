"""An environment for each library, made by pip from package names alone: what it takes to install it."""

import importlib.metadata
import json
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TORCH = "torch==2.13.0"  # the CPU build, where there is one; a newer one brings several GB of GPU libraries
PACKAGES = {  # what is installed: one call of pip after another
    "milrec": (TORCH, f"{ROOT}"),
    "implicit": ("implicit",),
    "lenskit": (TORCH, "lenskit"),
    "cornac": (TORCH, "cornac"),
    "rectools": ("rectools",),
    "recbole": (TORCH, "recbole"),
    "recbole-older": (TORCH, "recbole numpy<2 pandas<2.3 scipy<1.14 setuptools<81"),
    "warprec": ("warprec",),
}
NO_PACKAGE = {
    "gorse": "it is a server written in Go, and no registry here has it: 'PyGorse' is only its client, and the package "
    "'gorse' is something else"
}
_FACTS = "peer.json"  # in the environment, once it is complete


class CannotInstall(Exception):
    """In the words of pip."""


@dataclass(frozen=True)
class Environment:
    """A Python that has the library."""

    python: str
    facts: dict[str, Any]  # version, packages, megabytes


def name_of(library: str) -> str:
    """Of its package and of its file here: recbole-older is recbole with older packages around it."""
    return library.partition("-")[0]


def here(library: str) -> Environment:
    """This Python, for a library that it has."""
    return Environment(sys.executable, {"version": importlib.metadata.version(name_of(library))})


def environment(library: str, folder: Path) -> Environment:
    """The library's own environment, made unless it is there."""
    place = folder / library
    python = str(place / "bin" / "python")
    if not (place / _FACTS).exists():
        venv.create(place, clear=True, with_pip=True)
        empty = _megabytes(place)
        for packages in PACKAGES[library]:
            _pip(python, packages)
        installed = _installed(python)
        facts = {
            "version": installed[name_of(library)],
            "packages": len(installed.keys() - {"pip", "setuptools"}),
            "megabytes": round(_megabytes(place) - empty),
        }
        if "pyarrow" not in installed:  # of the trial, not of the library
            _pip(python, "pyarrow<20" if installed["numpy"].startswith("1.") else "pyarrow")
        (place / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
    return Environment(python, json.loads((place / _FACTS).read_text(encoding="utf-8")))


def _pip(python: str, packages: str) -> None:
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        raise CannotInstall((errors or done.stderr.splitlines() or ["pip failed"])[-1].removeprefix("ERROR: ")[:200])


def _installed(python: str) -> dict[str, str]:
    listed = [python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    done = subprocess.run(listed, capture_output=True, text=True, check=True)
    return {one["name"].lower(): one["version"] for one in json.loads(done.stdout)}


def _megabytes(place: Path) -> float:
    """Of all packages in it."""
    packages = (place / "lib").rglob("*")
    return sum(path.stat().st_size for path in packages if path.is_file() and path.suffix != ".pyc") / 1e6
