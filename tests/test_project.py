"""The files around the package: version, citation, changelog, workflow and hooks agree with one another."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import milrec

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "pyproject.toml").is_file())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def make_targets() -> set[str]:
    """The targets that the Makefile has a rule for."""
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))


def commands(workflow: Path) -> list[list[str]]:
    """Every command of a workflow, in words."""
    steps = [step for job in read_yaml(workflow)["jobs"].values() for step in job["steps"]]
    return [shlex.split(line) for step in steps for line in step.get("run", "").splitlines()]


def pinned() -> dict[str, str]:
    """The exact version of each package in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def test_the_package_knows_its_version():
    assert milrec.__version__ == PROJECT["version"]
    assert {"__version__", "figures"} <= set(dir(milrec))


def test_the_citation_names_this_version_and_the_paper():
    citation = read_yaml(ROOT / "CITATION.cff")
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Arévalo", "Duque", "Creatura"]
    assert paper["url"] == PROJECT["urls"]["Paper"]


def test_the_changelog_has_an_entry_for_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", heading) for heading in headings[1:])
    assert f"[{PROJECT['version']}]" in headings[1]


def test_every_make_target_of_a_workflow_exists():
    called = {words[1] for workflow in WORKFLOWS for words in commands(workflow) if words[0] == "make"}
    assert "test" in called
    assert called <= make_targets()


def test_workflows_may_only_read_and_pin_their_actions():
    for workflow in map(read_yaml, WORKFLOWS):
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            assert "permissions" not in job
            actions = [step["uses"] for step in job["steps"] if "uses" in step]
            assert all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in actions), actions


def test_the_workflow_tries_every_python_that_the_package_names():
    named = {text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)}
    tried = read_yaml(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["linux"]["strategy"]["matrix"]["python"]
    assert set(tried) == named
    assert PROJECT["requires-python"] == f">={min(tried, key=lambda text: int(text.split('.')[1]))}"


def test_commit_hooks_need_nothing_but_the_projects_own_environment():
    repositories = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = [hook for repository in repositories for hook in repository["hooks"]]
    assert {repository["repo"] for repository in repositories} == {"local"}
    assert all(hook["language"] == "system" and hook["entry"].startswith(".venv/bin/") for hook in hooks)
    assert {"ruff-check", "ruff-format", "mypy"} <= {hook["id"] for hook in hooks}


def test_every_package_that_is_asked_for_has_an_exact_version():
    extras = PROJECT["optional-dependencies"].values()
    wanted = [*PROJECT["dependencies"], *(requirement for extra in extras for requirement in extra)]
    names = {re.match(r"[\w.-]+", requirement).group().lower() for requirement in wanted} - {"milrec"}
    assert names <= set(pinned())


@pytest.mark.xdist_group("grouped")
def test_tests_of_a_group_are_given_to_one_process(request):
    """pytest 9.2 and pytest-xdist 3.8 ignore groups: servers, browsers and clusters would start in every process."""
    grouping = getattr(request.config.option, "loadgroup", False)
    assert not grouping or request.node.nodeid.endswith("@grouped")
