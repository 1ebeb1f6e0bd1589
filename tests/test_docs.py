"""README and tutorial run as they stand."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commands import succeeds

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("experiments/README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
]


def blocks(path: Path) -> list[tuple[str, str]]:
    """(language, code) of each fenced block."""
    return re.findall(r"```(\w+)\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def run_console(code: str, folder: Path) -> None:
    for line in code.strip().splitlines():
        command = line.split("#")[0].strip()
        if command.startswith("milrec"):
            succeeds(*shlex.split(command)[1:], cwd=folder)


def run_python(code: str, folder: Path) -> None:
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "<document>", "exec"), {"__name__": "__main__"})


@pytest.fixture
def plays(tmp_path: Path) -> Path:
    """The plays.csv of the README: two groups of users with a taste of their own."""
    random = np.random.default_rng(0)
    rows = ["user,item,plays"]
    for user in range(60):
        for item in random.choice(20, size=10, replace=False):
            rows.append(f"user {user},item {item * 2 + user % 2},{random.integers(1, 50)}")
    (tmp_path / "plays.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_the_python_of_the_readme_runs(plays):
    (code,) = [code for language, code in blocks(ROOT / "README.md") if language == "python"]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    run_python(code, plays)


def test_the_python_of_the_page_on_lists_runs(tmp_path):
    (code,) = [code for language, code in blocks(ROOT / "docs" / "lists.md") if language == "python"]
    run_python(code, tmp_path)


def test_the_commands_of_the_readme_run(plays):
    for language, code in blocks(ROOT / "README.md"):
        if language == "console":
            run_console(code, plays)
    assert (plays / "lists.parquet").exists() and (plays / "measures.json").exists()


def test_the_tutorial_runs_from_top_to_bottom(tmp_path):
    for language, code in blocks(ROOT / "docs" / "tutorial.md"):
        if language == "console":
            run_console(code, tmp_path)
        elif language == "toml":
            (tmp_path / "compare.toml").write_text(code)
        else:
            run_python(code, tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_between_documents_leads_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


def test_every_function_and_test_of_the_paper_map_exists():
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    import importlib

    for name in re.findall(r"`(\w+)\.(\w+)`", text):
        module = importlib.import_module(f"milrec.{name[0]}")
        assert hasattr(module, name[1]), name
    for test in set(re.findall(r"`(test_\w+)`", text)):
        assert (ROOT / "tests" / f"{test}.py").exists(), test


def test_every_setting_is_documented():
    from milrec.config import MODELS, TargetSettings, TrainingSettings
    from milrec.losses import LOSSES

    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    for settings in (*MODELS.values(), TargetSettings, TrainingSettings, *LOSSES.values()):
        for name in settings.model_fields:
            if name not in ("model", "loss", "pair_epsilon"):
                assert name in text, f"{settings.__name__}.{name}"


def test_no_document_names_a_place_that_a_user_does_not_have():
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        assert "shared/data" not in text and f"{os.sep}work{os.sep}" not in text, document.name


def test_the_tables_of_the_results_are_what_the_kept_results_say():
    done = subprocess.run(
        [sys.executable, ROOT / "experiments" / "tables.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
