"""The last resort: what nobody expected is one sentence with a code of its own, and a traceback in a file."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from commands import in_a_process
from milrec.cli.crash import _KEPT, log_folders, report_crash

PROGRAM = """
import sys
import milrec.cli.app as app
from milrec import entry
def crash(*arguments, **options):
    {statement}
app.app = crash
sys.argv = ["milrec", *sys.argv[1:]]
entry.main()
"""
SENTENCE = re.compile(
    r"milrec: something went wrong that milrec did not expect: (?P<what>.*); "
    r"please report it with the log at '(?P<log>.*)'"
)


def crashed(statement: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    program = PROGRAM.format(statement=statement)
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def test_an_error_that_nobody_expected_is_one_sentence_with_its_log_and_code_70(tmp_path: Path) -> None:
    done = crashed("{}['no such\\nkey']", "show", "model", XDG_STATE_HOME=str(tmp_path))
    assert done.returncode == 70 and done.stdout == ""
    found = SENTENCE.fullmatch(done.stderr.removesuffix("\n"))
    assert found is not None and found["what"] == r"KeyError: 'no such\nkey'"
    log = Path(found["log"])
    assert log.parent == tmp_path / "milrec" and log.stat().st_mode & 0o777 == 0o600
    text = log.read_text()
    assert "Traceback (most recent call last)" in text and "KeyError" in text
    assert "'show', 'model'" in text and text.startswith("milrec ") and "Python 3" in text


@pytest.mark.parametrize("how", ["--debug", "MILREC_DEBUG"])
def test_the_traceback_is_shown_if_it_is_asked_for(tmp_path: Path, how: str) -> None:
    places = {"XDG_STATE_HOME": str(tmp_path)}
    if how == "--debug":
        done = crashed("1 / 0", "--debug", "models", **places)
    else:
        done = crashed("1 / 0", "models", **places, MILREC_DEBUG="1")
    assert done.returncode == 70 and "Traceback (most recent call last)" in done.stderr
    assert SENTENCE.fullmatch(done.stderr.splitlines()[-1])
    assert "Traceback" not in crashed("1 / 0", "models", **places, MILREC_DEBUG="0").stderr


def test_what_an_error_says_cannot_command_the_terminal(tmp_path: Path) -> None:
    done = crashed("raise ValueError('\\x1b[31m red \\u202e')", "--debug", XDG_STATE_HOME=str(tmp_path))
    assert "\x1b" not in done.stderr and "\u202e" not in done.stderr and r"\x1b[31m red \u202e" in done.stderr


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("raise KeyboardInterrupt", 130),
        ("raise SystemExit(3)", 3),
        ("raise MemoryError", 1),
        ("raise OSError(28, 'No space left on device')", 1),
        ("from milrec.errors import DataError; raise DataError('no')", 1),
    ],
)
def test_what_is_expected_never_comes_here(tmp_path: Path, statement: str, code: int) -> None:
    done = crashed(statement, XDG_STATE_HOME=str(tmp_path))
    assert done.returncode == code and "did not expect" not in done.stderr and not list(tmp_path.iterdir())


def test_a_package_that_cannot_be_imported_comes_here_too(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ImportError('a broken installation')")
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = in_a_process("models", env=environment)
    assert done.returncode == 70 and "ImportError: a broken installation" in done.stderr
    assert "Traceback" not in done.stderr


def no_file(*arguments: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_where_no_log_can_be_written_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.open", no_file)
    assert report_crash(ValueError("odd")) == 70
    assert "ValueError: odd; please report it with what --debug shows, for no log could be written\n" in (
        capsys.readouterr().err
    )


def test_the_log_goes_to_the_temporary_folder_if_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("a file is in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    report_crash(ValueError("odd"))
    assert len(list(tmp_path.glob("milrec-crash-*.log"))) == 1
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert log_folders()[0] == tmp_path / ".local" / "state" / "milrec"


def test_only_the_latest_logs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "milrec").mkdir()
    for number in range(_KEPT + 5):
        (tmp_path / "milrec" / f"milrec-crash-20200101-0000{number:02}-1.log").write_text("old")
    (tmp_path / "milrec" / "notes.txt").write_text("not a log")
    report_crash(ValueError("new"))
    logs = sorted((tmp_path / "milrec").glob("*.log"))
    assert len(logs) == _KEPT and "ValueError: new" in logs[-1].read_text()
    assert (tmp_path / "milrec" / "notes.txt").exists()
