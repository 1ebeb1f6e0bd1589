"""The list of what milrec needs: complete, with licences, and the same every time."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "pyproject.toml").is_file())
sys.path.insert(0, str(ROOT / "tools"))

import sbom  # type: ignore[import-not-found]  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def names(requirements: list[str]) -> set[str]:
    return {sbom.normal(re.split(r"[<>=!~ \[;]", one)[0]) for one in requirements}


def test_everything_that_the_project_names_is_on_the_list() -> None:
    found = sbom.packages("milrec", sbom.EXTRAS)
    wanted = names(PROJECT["dependencies"])
    for extra in sbom.EXTRAS:
        wanted |= names(PROJECT["optional-dependencies"][extra])
    assert wanted <= set(found)
    assert not {"pytest", "ruff", "playwright"} & set(found)  # which only tests need


def test_the_bill_is_whole_and_each_package_has_a_licence_and_a_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for name in ("first.json", "second.json"):
        monkeypatch.setattr(sys, "argv", ["sbom.py", "--out", str(tmp_path / "new" / name)])
        sbom.main()
        files.append((tmp_path / "new" / name).read_bytes())
    assert files[0] == files[1]
    bill = json.loads(files[0])
    assert bill["bomFormat"] == "CycloneDX" and bill["metadata"]["component"]["name"] == "milrec"
    refs = {one["bom-ref"] for one in [*bill["components"], bill["metadata"]["component"]]}
    assert {one["ref"] for one in bill["dependencies"]} == refs
    assert all(set(one["dependsOn"]) <= refs for one in bill["dependencies"])
    for component in bill["components"]:
        (licence,) = component["licenses"]
        assert licence["license"]["name"] not in ("", "not stated", "UNKNOWN"), component["name"]
        assert re.fullmatch(r"pkg:pypi/[a-z0-9.-]+@[\w.%]+", component["purl"])
    shown = capsys.readouterr().out
    assert re.search(r"^numpy +\S+ +\S*BSD", shown, flags=re.MULTILINE)
