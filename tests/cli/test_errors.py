"""The command line speaks of options where the library speaks of arguments."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from milrec.cli import app as cli
from milrec.cli.errors import in_options

SOURCE = Path(cli.__file__).parents[1]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("replace it with `replace=True`", "replace it with --force"),
        ("model 'ease' has no loss; leave `loss` out", "model 'ease' has no loss; leave --loss out"),
        ("give `model='dae'` or `model='mf'`", "give --model dae or --model mf"),
        ("give `value='my stars'` and `adopt_min=4`", "give --value 'my stars' and --adopt-min 4"),
        ("make a key with `new_key(NAME)`", "make a key with --new-key NAME"),
        ("port 80 is in use; choose another `port`", "port 80 is in use; choose another --port"),
        ("'loss' is not a setting; write KEY=VALUE", "'loss' is not a setting; write KEY=VALUE"),
        ("give the folder to `milrec prepare`", "give the folder to `milrec prepare`"),
    ],
)
def test_arguments_become_options_and_nothing_else_changes(said, shown):
    assert in_options(said) == shown


def messages() -> list[tuple[str, str]]:
    """What the library may say, file by file: the source lines of its sentences."""
    files = [path for path in SOURCE.rglob("*.py") if path.parent.name != "cli"]
    return [(path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")) for path in files]


def test_no_message_of_the_library_names_an_option_of_the_command_line():
    allowed = {"server/gate/access.py": "--allow-host"}  # said over HTTP, where there is no translator
    for name, text in messages():
        options = set(re.findall(r"""["' (](--[a-z][a-z-]+)""", "\n".join(strings_of(text))))
        assert options <= {allowed.get(name), "--help"}, (name, options)


def strings_of(source: str) -> list[str]:
    """The string literals of a file that may be shown: everything but docstrings and styles of a page."""
    import ast

    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    return [
        f" {node.value}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        if "var(--" not in node.value
    ]


def test_every_argument_that_the_library_names_has_an_option():
    options = set()
    for command in cli.app.registered_commands:
        for name in inspect.signature(command.callback).parameters:
            options.add(f"--{name.replace('_', '-')}")
    named = set()
    for _, text in messages():
        for said in strings_of(text):
            named |= {in_options(found).split()[0] for found in re.findall(r"`[a-z_]+(?:=[^`]+|\([^`]*\))?`", said)}
    assert named and named <= options, named - options


def test_a_mistake_is_printed_in_the_words_of_the_command_line(tmp_path):
    (tmp_path / "table.csv").write_text("user,item,rating\na,b,5\nb,a,-1\n")
    for arguments, sentence in (
        (["fit", "split", "--out", "m", "--model", "ease", "--loss", "mil"], "leave --loss out"),
        (
            ["prepare", "table.csv", "--out", "d", "--adopt-min", "4", "--reject-max", "4"],
            "--reject-max 4 must be",
        ),
        (["prepare", "table.csv", "--out", "d", "--value", "rating"], "(if these are ratings, give --adopt-min)"),
    ):
        command = [sys.executable, "-m", "milrec", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and sentence in done.stderr and "`" not in done.stderr, done.stderr
