"""The command line speaks of options where the library speaks of arguments."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from commands import milrec
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
    files = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "cli"]
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


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fitt"], "unknown command 'fitt'; did you mean 'fit'? (help: milrec --help)"),
        (["fit", "--ouut", "x"], "unknown option --ouut; did you mean --out? (help: milrec fit --help)"),
        (["fit", "--usr", "x"], "unknown option --usr (help: milrec fit --help)"),
        (["recommend", "m", "--usr", "x"], "unknown option --usr; did you mean --user? (help: "),
        (["recommend", "m", "--n", "5"], "unknown option --n; did you mean -n? (help: "),
        (["recommend", "m", "--json"], "unknown option --json (help: "),
        (["split"], "DATA is missing (help: milrec split --help)"),
        (["split", "data"], "--out is missing (help: milrec split --help)"),
        (["recommend", "model", "--user"], "--user needs a value (help: milrec"),
        (["similar", "model", "1", "2", "3"], "too many arguments: 2 3 (help: milrec similar --help)"),
        (["serve", "model", "--port", "80x"], "--port must be a whole number (help: milrec serve --help)"),
        (["prepare", "x.csv", "--out", "d", "--adopt-min", "abc"], "--adopt-min must be a number (help: "),
        (["split", "data", "--out", "s", "--seed", "-1"], "--seed must be at least 0 (help: milrec split --help)"),
        (
            ["split", "d", "--out", "s", "--protocol", "foo"],
            "must be one of 'interactions', 'users', not 'foo'",
        ),
    ],
)
def test_wrong_usage_is_one_sentence_in_our_own_words(arguments, sentence):
    done = milrec(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("milrec: ") and sentence in done.stderr and done.stderr.count("\n") == 1


def test_words_that_people_stumbled_over_stay_away():
    assert "Resume an interrupted fit." in milrec("fit", "--help").stdout
    shown = milrec("models").stdout
    assert "decisions" not in shown and not re.search(r"\bD\d", shown)
    odd = [
        "broken off",
        "Whom",
        "cannot be listened on",
        "does not go with",
        "do not hold",
        "replace it with --force (",
    ]
    for file in [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.js"), *SOURCE.rglob("*.html")]:
        text = file.read_text(encoding="utf-8")
        assert not [words for words in odd if words in text], file
