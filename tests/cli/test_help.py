"""What `--help` shows: examples that work, and everything that can be set."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer.main

from commands import succeeds
from milrec.cli.app import app
from milrec.cli.help.examples import EXAMPLES
from milrec.losses import LOSSES
from milrec.models.settings import MODELS
from milrec.training.sections import TargetSettings, TrainingSettings

pytestmark = pytest.mark.xdist_group("help")
ELSEWHERE = ("demo", "download", "serve", "serve-demo", "paper")  # a minute, the network, no end, a large archive
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
RECIPE = """
title = "A small run"
[data.simulate]
users = 200
items = 60
seed = 0
[[models]]
name = "Popularity"
model = "popularity"
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """A folder with the files that the examples name, besides those that other examples make."""
    folder = tmp_path_factory.mktemp("examples")
    rows = [(user, item, 1 + (user + item) % 5) for user in range(60) for item in range(20) if (user * item) % 3]
    (folder / "plays.csv").write_text("user,item\n" + "".join(f"u{user},i{item}\n" for user, item, _ in rows))
    ratings = "".join(f"u{user},i{item},{rating}\n" for user, item, rating in rows)
    (folder / "ratings.csv").write_text(f"user,item,rating\n{ratings}")
    (folder / "titles.csv").write_text("item,title\n" + "".join(f"i{item},Title {item}\n" for item in range(20)))
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


def test_every_command_has_an_example_in_its_help():
    assert set(EXAMPLES) == set(COMMANDS)
    for name, lines in EXAMPLES.items():
        shown = " ".join(succeeds(name, "--help").stdout.split())
        assert lines
        for line in lines:
            assert line.startswith(f"milrec {name}") and line in shown


def test_help_is_wrapped_to_the_terminal_and_not_where_the_source_breaks_its_lines():
    shown = succeeds("evaluate", "--help").stdout
    assert "what that costs is the difference" in shown
    shown = succeeds("serve", "--help").stdout
    assert "\n milrec serve mil=runs/mil ce=runs/ce     two, side by side on the page " in shown


def test_every_example_that_can_be_run_here_works(work):
    for name in COMMANDS:  # in their order, in which one makes what the next one needs
        for line in EXAMPLES[name] if name not in ELSEWHERE else ():
            succeeds(*shlex.split(line)[1:], cwd=work)
    assert (work / "lists.parquet").exists() and (work / "measures.json").exists() and (work / "report.html").exists()


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_other_examples_are_understood(name):
    for line in EXAMPLES[name]:
        _, command, *arguments = shlex.split(line)
        COMMANDS[command].make_context(command, arguments)


def test_the_help_of_fit_lists_all_that_can_be_set():
    shown = succeeds("fit", "--help").stdout
    kinds = [TrainingSettings, TargetSettings, *LOSSES.values(), *MODELS.values()]
    for kind in kinds:
        for name in set(kind.model_fields) - {"model", "loss"}:
            assert re.search(rf"^ {name}=\S+", shown, re.MULTILINE), name
    assert "patience=3 " in shown and "epochs=unset " in shown  # milrec's own defaults
    assert "--model vae" in shown and "--loss mil" in shown


def test_examples_are_lines_that_a_shell_takes():
    shell = shutil.which("sh")
    assert shell is not None
    for lines in EXAMPLES.values():
        for line in lines:
            subprocess.run([shell, "-n", "-c", line], check=True)
