"""Nothing that somebody put into a title, an id or a path is obeyed by the terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import milrec
from commands import milrec as command
from commands import succeeds
from milrec.errors import printable

EVIL = "\x1b]0;owned\x07 \x1b[2J \u202e evil\r\n\t\x9b31m\x7f"
SHOWN = r"\x1b]0;owned\x07 \x1b[2J \u202e evil\r\n\t\x9b31m\x7f"


def test_a_text_is_shown_on_one_line_without_anything_that_a_terminal_obeys() -> None:
    assert printable(EVIL) == SHOWN
    assert printable("half \ud800, \u2028, \x00") == r"half \ud800, \u2028, \x00"


@pytest.mark.parametrize(
    "text", ["Amélie", "千と千尋の神隠し", "שלום", "👩‍👧", "[bold]", r"C:\new", "naïve – “quoted”"]
)
def test_ordinary_texts_stay_as_they_are(text: str) -> None:
    assert printable(text) == text


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose users, items and titles are all meant badly."""
    folder = tmp_path_factory.mktemp("work")
    users, items = zip(*((user, item) for user in range(12) for item in range(10) if (user + item) % 3), strict=True)
    data = milrec.read({"user": [f"{EVIL}u{user}" for user in users], "item": [f"{EVIL}i{item}" for item in items]})
    titles = pa.array([f"{EVIL} title {number}" for number in range(data.n_items)], type=pa.large_string())
    data = milrec.Interactions(data.adopted, data.rejected, data.users, data.items.append_column("title", titles))
    data.save(folder / "data", facts={"source": EVIL, EVIL: EVIL})
    split = milrec.split_interactions(data, seed=0)
    split.save(folder / "split")
    milrec.fit(split, "ease").save(folder / "model")
    return folder


COMMANDS = [
    ("show", "data"),
    ("items", "model"),
    ("items", "model", "--search", "title"),
    ("similar", "model", f"{EVIL}i1"),
    ("recommend", "model", "--user", f"{EVIL}u1", "--reasons", "1"),
    ("recommend", "model", "--adopted", f'"{EVIL}i1"'),
    ("recommend", "model", "--user", f"{EVIL}u1", "--rule", "long >= 100%"),
    ("recommend", "model", "--user", f"{EVIL} nobody"),
    ("similar", "model", f"{EVIL} nothing"),
    ("show", f"{EVIL[:8]} nowhere"),
    ("evaluate", f"{EVIL[:8]} nowhere", "split"),
    ("fit", "split", "--out", "m", "--set", f"{EVIL}=1"),
    ("fit", "split", "--out", "m", "--model", EVIL),
    ("prepare", f"{EVIL[:8]} nowhere.csv", "--out", "d"),
    ("prepare", EVIL, "--out", f"{EVIL[:8]}/d"),
    (EVIL,),
    ("show", f"--{EVIL}"),
    ("recommend", "model", "-n", EVIL),
    ("recommend", "model", "--dial", EVIL),
    ("evaluate", "model", "split", "--on", EVIL),
    ("report", EVIL),
    ("experiment", EVIL, "--out", "run"),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda one: f"{one[0]!a:.12}")
def test_no_command_prints_a_control_character(work: Path, arguments: tuple[str, ...]) -> None:
    done = command(*arguments, cwd=work)
    said = done.stdout + done.stderr
    assert done.returncode in (0, 1, 2) and "Traceback" not in said
    control = {character for character in said if not character.isprintable()} - {"\n", "\t"}
    if done.returncode == 2:  # what typer says of somebody's own arguments: it escapes what commands a terminal
        assert control <= {"\u202e"}, said
    else:
        assert not control and r"\x1b" in said, said


def test_a_line_break_in_an_id_is_not_the_end_of_a_command(work: Path) -> None:
    done = command("recommend", "model", "--adopted", "1\n2", cwd=work)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "ids separated by commas" in done.stderr


def test_files_have_titles_and_ids_exactly_as_they_were(work: Path) -> None:
    import json

    succeeds("recommend", "model", "--user", f"{EVIL}u1", "--out", "lists.jsonl", cwd=work)
    rows = [json.loads(line) for line in (work / "lists.jsonl").read_text().splitlines()]
    assert rows and all(row["user"] == f"{EVIL}u1" and row["title"].startswith(EVIL) for row in rows)


def test_on_a_real_terminal_only_the_colours_are_ours(work: Path) -> None:
    """On a terminal tables have frames and bars; what is in them is as harmless as in a pipe."""
    inner, outer = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "milrec", "items", "model"],
        cwd=work,
        stdout=outer,
        stderr=subprocess.PIPE,
        env={**os.environ, "COLUMNS": "400", "TERM": "xterm"},
    )
    os.close(outer)
    shown = b""
    while True:
        try:
            part = os.read(inner, 65536)
        except OSError:  # the end, on Linux
            break
        if not part:
            break
        shown += part
    os.close(inner)
    assert process.wait() == 0 and process.stderr is not None
    process.stderr.close()
    assert b"owned" in shown and b"\x1b]0;" not in shown and b"\x1b[2J" not in shown and b"\x9b31m" not in shown
    assert "\u202e".encode() not in shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_that_lacks_a_character_shows_its_number(work: Path, encoding: str) -> None:
    command_line = [sys.executable, "-m", "milrec", "show", "split"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command_line, cwd=work, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
