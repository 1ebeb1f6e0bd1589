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
from typing import Any

import numpy as np
import pytest
import typer.main

import milrec
from commands import succeeds
from milrec.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("experiments/README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
]


def blocks(path: Path) -> list[tuple[str, str]]:
    """(language, code) of each fenced block."""
    return re.findall(r"```(\w+)\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def examples(code: str) -> list[list[str]]:
    """The commands of milrec in a block, in words: without comments, what is set before them and what comes after."""
    found = []
    for line in code.replace("\\\n", " ").splitlines():
        for command in re.split(r"&&|&$| >>? ", line):
            words = shlex.split(command, comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]):
                words.pop(0)
            if words and words[0] == "milrec":
                found.append(words[1:])
    return found


def run_console(code: str, folder: Path) -> None:
    for words in examples(code):
        if words[0] != "serve":  # which does not end
            succeeds(*words, cwd=folder)


def run_python(code: str, folder: Path, names: dict | None = None) -> str:
    """What code of a document prints, run in this process and in a folder, whose modules it can import."""
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(compile(code, "<document>", "exec"), {"__name__": "__main__"} if names is None else names)
    return printed.getvalue()


def run_page(page: Path, folder: Path) -> str:
    """A page from top to bottom, as somebody would follow it; `# name.py` in the first line makes code a file."""
    names: dict = {"__name__": "__main__"}
    printed = ""
    for language, code in blocks(page):
        if language == "console":
            run_console("\n".join(line for line in code.splitlines() if "milrec serve model" not in line), folder)
        elif language == "python" and (named := re.match(r"# (\w+\.py)\n", code)):
            (folder / named[1]).write_text(code.removeprefix(named[0]))
        elif language == "python":
            printed += run_python(code, folder, names)
    return printed


@pytest.fixture
def plays(tmp_path: Path) -> Path:
    """The plays.csv of the README: two groups of users with a taste of their own."""
    random = np.random.default_rng(0)
    rows = ["user,item,plays,test"]
    for user in range(60):
        for place, item in enumerate(random.choice(20, size=10, replace=False)):
            rows.append(f"user {user},item {item * 2 + user % 2},{random.integers(1, 50)},{int(place == 9)}")
    (tmp_path / "plays.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_the_python_of_the_readme_runs(plays):
    (code,) = [code for language, code in blocks(ROOT / "README.md") if language == "python"]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    run_python(code, plays)


RECIPES = [f"how-to/{name}" for name in ("compare", "embeddings", "matrices", "onnx")]


@pytest.mark.parametrize("name", ["lists", "tail", "start", "how-to/tail-share", "how-to/export", *RECIPES])
def test_a_page_runs_from_top_to_bottom(name, tmp_path):
    run_page(ROOT / "docs" / f"{name}.md", tmp_path)


def test_the_page_on_data_runs(plays):
    run_page(ROOT / "docs" / "data.md", plays)
    assert (plays / "split" / "milrec.json").exists()


def test_the_page_for_users_of_other_libraries_runs_from_top_to_bottom(tmp_path):
    codes = [code for language, code in blocks(ROOT / "docs" / "python.md") if language == "python"]
    printed = run_python("\n".join(codes), tmp_path)
    assert "'position'" in printed and "Differences from dae" in printed
    assert (tmp_path / "model.onnx").exists() and (tmp_path / "trade.svg").read_text().startswith("<svg")


def test_the_training_loop_of_the_page_on_pytorch_runs_and_its_loss_falls(tmp_path):
    codes = [code for language, code in blocks(ROOT / "docs" / "pytorch.md") if language == "python"]
    assert len(codes[0].splitlines()) < 40
    losses = [float(value) for value in re.findall(r"loss ([\d.]+)", run_python("\n".join(codes), tmp_path))]
    assert len(losses) == 10 and losses[-1] < losses[0] / 2


def test_the_training_loop_of_the_recipe_runs_and_its_loss_falls(tmp_path):
    printed = run_page(ROOT / "docs" / "how-to" / "training-loop.md", tmp_path)
    losses = [float(value) for value in re.findall(r"loss ([\d.]+)", printed)]
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
        [sys.executable, "-m", "experiments.tables", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


RUN = {  # pages whose commands are run, by the tests above and in test_recipes.py
    "README.md", "data.md", "tutorial.md", "own-encoder.md", "start.md", "lists.md", "tail.md",
    "export.md", "tail-share.md", "training-loop.md", "nightly.md", "security.md", "onnx.md",
}  # fmt: skip
NOT_RUN = {  # page or command → why its arguments are checked and nothing more
    "serve": "it does not end; tests/server and test_recipes.py start servers",
    "experiments.md": "it fits for hours on MovieLens; tests/experiments runs recipes",
    "scale.md": "it needs a cluster; tests/cluster starts one",
    "experiments/README.md": "it needs the original archives; tests/data reads small ones",
    "deploy.md": "it sets up a machine; test_deploy.py checks its files",
    "peers.md": "it needs MovieLens and other libraries",
    "serving.md": "it replaces a model that is being served; test_recipes.py does that",
}


def commands_of_the_documents() -> list[tuple[str, list[str]]]:
    found = []
    for document in DOCUMENTS:
        name = document.relative_to(ROOT).as_posix() if document.name == "README.md" else document.name
        for language, code in blocks(document):
            if language in ("console", "sh"):
                found += [(name, words) for words in examples(code)]
    return found


def test_every_command_in_a_document_is_one_that_milrec_understands():
    """Whether it is run or not: the command exists, and so do its options."""
    whole: Any = typer.main.get_command(app)
    context = whole.context_class(whole, info_name="milrec")
    found = commands_of_the_documents()
    assert len(found) > 60
    for _, (name, *rest) in found:
        whole.commands[name].make_context(name, rest, parent=context)


def test_every_command_in_a_document_is_run_or_has_a_reason_not_to_be():
    left = {
        (name, words[0]) for name, words in commands_of_the_documents()
        if name not in RUN and name not in NOT_RUN and words[0] not in NOT_RUN
    }  # fmt: skip
    assert not left


def test_the_page_on_security_runs(plays):
    data = milrec.read(plays / "plays.csv")
    milrec.split_interactions(data, seed=0).save(plays / "split")
    commands = [words for name, words in commands_of_the_documents() if name == "security.md" and words[0] != "serve"]
    assert commands
    for words in commands:
        succeeds(*words, cwd=plays)


def test_every_page_of_results_begins_with_its_verdict_which_the_index_repeats():
    index = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    pages = [page for page in (ROOT / "docs" / "results").glob("*.md") if page.name != "notes.md"]
    assert len(pages) >= 9
    for page in pages:
        question, verdict, *_ = page.read_text(encoding="utf-8").split("\n\n")
        assert question.startswith("# ") and verdict.startswith("**"), page.name
        assert f"#{question}\n\n{verdict} [Tables](results/{page.name})\n" in index, page.name
