"""The documents: their code runs as it is, their links lead somewhere, and what they name exists."""

import contextlib
import importlib
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
    *(ROOT / name for name in ("experiments/README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
]


def blocks(path: Path) -> list[tuple[str, str]]:
    """(language, code) of each fenced block."""
    return re.findall(r"```(\w+)\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def run_console(code: str, folder: Path) -> None:
    for line in code.strip().splitlines():
        command = line.split("#")[0].strip()
        if command.startswith("milrec"):
            succeeds(*shlex.split(command)[1:], cwd=folder)


def run_python(code: str, folder: Path) -> str:
    """What code of a document prints, run in this process and in a folder, whose modules it can import."""
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(compile(code, "<document>", "exec"), {"__name__": "__main__"})
    return printed.getvalue()


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


def test_the_training_loop_of_the_page_on_pytorch_runs_and_its_loss_falls(tmp_path):
    codes = [code for language, code in blocks(ROOT / "docs" / "pytorch.md") if language == "python"]
    assert len(codes[0].splitlines()) < 40
    losses = [float(value) for value in re.findall(r"loss ([\d.]+)", run_python("\n".join(codes), tmp_path))]
    assert len(losses) == 10 and losses[-1] < losses[0] / 2


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


def test_bring_your_own_encoder_runs(plays, monkeypatch):
    found = blocks(ROOT / "docs" / "own-encoder.md")
    encoders, session = [code for language, code in found if language == "python"]
    assert encoders.startswith("# my_encoders.py\n") and len(encoders.splitlines()) < 40
    (plays / "my_encoders.py").write_text(encoders)
    monkeypatch.syspath_prepend(plays)
    monkeypatch.delitem(sys.modules, "my_encoders", raising=False)
    run_python(session, plays)
    assert (plays / "gated" / "milrec.json").exists()
    for language, code in found:
        if language == "console":
            run_console(code, plays)
    assert (plays / "gated-cli" / "milrec.json").exists()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_between_documents_leads_somewhere(document):
    for target in re.findall(r"\]\(([^)]+)\)", document.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        found = document.parent / path if path else document
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def anchors(document: Path) -> set[str]:
    """The headings of a page, as GitHub turns them into anchors: lower case, hyphens for spaces, no punctuation."""
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


CODE_LINK = re.compile(r"\[`([^`]+)`\]\([./]*src/milrec/([\w/]+)\.py\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_name_that_is_linked_to_the_code_is_in_that_file(document):
    for shown, path in CODE_LINK.findall(document.read_text(encoding="utf-8")):
        name, module = shown.replace("/", "."), path.replace("/", ".")
        if module == name or module.endswith(f".{name}"):
            continue
        found = importlib.import_module(f"milrec.{module}")
        for part in name.removeprefix(f"{module}.").split("."):
            assert hasattr(found, part), f"'{shown}' is not in {path}.py"
            found = getattr(found, part)


def test_every_function_and_test_of_the_paper_map_exists():
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    for paper, functions, tests in rows:
        assert CODE_LINK.search(functions), f"no function for {paper}"
        assert re.search(r"\[`tests/[\w/]+\.py`\]", tests), f"no test for {paper}"
    for name, path in CODE_LINK.findall(text):  # the test above checks that the names exist
        assert f"{name}.".startswith(f"{path.replace('/', '.')}."), f"'{name}' is linked to {path}.py"
    for shown, target in re.findall(r"\[`(tests/[^`]+)`\]\(([^)]+)\)", text):
        assert target == f"../{shown}" and (ROOT / shown).exists(), shown
    unlinked = re.sub(r"\[`[^`]+`\]\([^)]+\)", "", text)
    assert not re.findall(r"`(?:\w+\.)+\w+`|`tests/[^`]*`", unlinked), "a function or test without a link to its file"


def test_the_missing_term_of_mil_is_three_clicks_from_the_readme():
    assert "](docs/paper.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    linked = "[`losses.MissingInformationLoss.missing_term`](../src/milrec/losses.py)"
    assert linked in (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")


def test_every_setting_is_documented():
    from milrec.losses import LOSSES
    from milrec.models.settings import MODELS
    from milrec.training.sections import TargetSettings, TrainingSettings

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
