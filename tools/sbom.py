"""make sbom: which packages milrec needs here, in which versions and under which licences, without asking anybody.

It follows the requirements of the installed packages, from milrec with its extras, and writes what it finds as a table
and as a CycloneDX file (a software bill of materials), the same for the same installation.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement

EXTRAS = ("serve", "tune", "wmf")  # what a user may install; not what only tests and benchmarks need


@dataclass(frozen=True)
class Package:
    """An installed package, and the names of those that it needs."""

    name: str
    version: str
    licence: str
    needs: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{quote(self.version)}"

    def component(self, kind: str = "library") -> dict[str, Any]:
        return {
            "type": kind,
            "bom-ref": self.purl,
            "name": self.name,
            "version": self.version,
            "purl": self.purl,
            "licenses": [{"license": {"name": self.licence}}],
        }


def normal(name: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence_of(found: Distribution) -> str:
    """What a package says about its licence: an expression, a classifier, or the first line of a text."""
    metadata: Any = found.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classifiers = [one.split(" :: ")[-1] for one in metadata.get_all("Classifier") or [] if "License ::" in one]
    if classifiers:
        return " or ".join(sorted(set(classifiers)))
    lines = (metadata.get("License") or "").strip().splitlines()
    return lines[0][:60] if lines else "not stated"


def needed(found: Distribution, extras: tuple[str, ...]) -> list[Requirement]:
    """The requirements of a package that hold on this machine, with these extras."""
    requirements = [Requirement(text) for text in found.requires or []]
    return [
        one
        for one in requirements
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def packages(root: str, extras: tuple[str, ...]) -> dict[str, Package]:
    """Everything that a package needs, directly or not, by name; what is not installed is left out."""
    found: dict[str, Package] = {}
    waiting = [(root, extras)]
    while waiting:
        name, wanted = waiting.pop()
        if normal(name) in found:
            continue
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        requirements = needed(installed, wanted)
        needs = tuple(sorted({normal(one.name) for one in requirements}))
        found[normal(name)] = Package(normal(name), installed.version, licence_of(installed), needs)
        waiting += [(one.name, tuple(sorted(one.extras))) for one in requirements]
    return dict(sorted(found.items()))


def bill(found: dict[str, Package], root: str) -> dict[str, Any]:
    """The bill of materials in CycloneDX's JSON."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": found[root].component("application")},
        "components": [package.component() for name, package in found.items() if name != root],
        "dependencies": [
            {"ref": package.purl, "dependsOn": [found[name].purl for name in package.needs if name in found]}
            for package in found.values()
        ],
    }


def table(found: dict[str, Package]) -> str:
    widths = [max(len(getattr(one, field)) for one in found.values()) for field in ("name", "version")]
    rows = (f"{one.name:<{widths[0]}}  {one.version:<{widths[1]}}  {one.licence}" for one in found.values())
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("dist") / "sbom.json", help="the CycloneDX file to write")
    out: Path = parser.parse_args().out
    found = packages("milrec", EXTRAS)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(bill(found, "milrec"), indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(table(found) + f"{len(found) - 1} packages besides milrec → {out}\n")


if __name__ == "__main__":
    main()
