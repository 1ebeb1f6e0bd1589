"""Ctrl-C, wherever it comes: code 130, one sentence, no traceback, and nothing half-written."""

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import milrec
from made_up import the_papers_run
from milrec.interrupts import Interruptible
from pausing import Held, held

RECIPE = """
title = "one model"
[data.simulate]
users = 60
items = 40
[[models]]
name = "MIL"
loss = "mil"
settings = { epochs = 4, n_factors = 8, checkpoint_seconds = 1000 }
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """A folder with something for each command."""
    folder = tmp_path_factory.mktemp("work")
    rows = [f"u{user},i{(user * step) % 23}" for user in range(40) for step in range(1, 9)]
    (folder / "table.csv").write_text("\n".join(["user,item", *rows]) + "\n")
    data = milrec.simulate(milrec.Simulation(n_users=60, n_items=40, mean_shown=20), seed=0)
    data.save(folder / "data")
    split = milrec.split_interactions(data, seed=0)
    split.save(folder / "split")
    milrec.fit(split, "popularity").save(folder / "model")
    (folder / "recipe.toml").write_text(RECIPE)
    the_papers_run().write(folder / "results.json")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


QUICK = ("--set", "epochs=4", "--set", "checkpoint_seconds=1000")
COMMANDS = [
    ("import milrec.interrupts", "--help"),  # just after the line from which on Ctrl-C is heard
    ("import milrec.cli", "--help"),
    ("import typer.main", "--help"),  # in the middle of the command line's own imports
    ("import milrec.data.reading.tables", "prepare", "table.csv", "--out", "prepared"),
    ("new data folder", "prepare", "table.csv", "--out", "prepared"),
    ("import torch.nn", "fit", "split", "--out", "fitted", *QUICK),
    ("evaluate", "evaluate", "model", "split", "--json", "measures.json"),
    ("write lists", "recommend", "model", "--all", "--out", "lists.parquet"),
    ("import jinja2", "report", "results.json"),
    ("new file report.html", "report", "results.json"),
    ("import uvicorn.config", "serve", "model", "--port", "0"),  # its models are loaded, and it does not serve yet
    ("exit", "show", "data"),
    ("exit", "show", "nowhere"),
    ("exit", "fit", "--wrong"),
]
MISTAKES = (("show", "nowhere"), ("fit", "--wrong"))  # they have said what is wrong before they end


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command[1]} at {command[0]}")
def test_an_interrupt_is_one_sentence_and_leaves_nothing_half_written(work, command):
    before = names(work)
    with held(*command, cwd=work) as process:
        ended = process.interrupted()
    said = [line for line in ended.error.splitlines() if line.strip()]  # a bar that is taken away leaves an empty line
    assert ended.code == 130, ended
    assert said[-1] == "milrec: interrupted" and ended.error.count("nterrupted") == 1
    assert "Traceback" not in ended.error and "Exception ignored" not in ended.error
    assert len(said) == 1 or command[1:] in MISTAKES
    assert names(work) == before


def test_an_experiment_interrupted_before_its_first_job_says_how_to_resume(work, tmp_path):
    command = ("experiment", "recipe.toml", "--out", tmp_path / "run")
    with held("import milrec.experiments.run", *command, cwd=work) as process:
        assert process.interrupted() == (130, "", "milrec: interrupted\n")
    with held("new split folder", "experiment", "recipe.toml", "--out", tmp_path / "run", cwd=work) as process:
        ended = process.interrupted()
    assert ended.code == 130 and ended.error.endswith("milrec: interrupted\n") and "Traceback" not in ended.error
    assert "Interrupted; the same command resumes the run\n" in ended.error


@pytest.mark.parametrize("point", ["import torch.nn", "fit step 2", "evaluate"])
def test_an_experiment_interrupts_its_job_wherever_it_is(work, point, tmp_path):
    with held(point, "experiment", "recipe.toml", "--out", tmp_path / "run", cwd=work) as process:
        if point == "import torch.nn":
            process.pause.arrive()  # the command itself was the first to arrive
        ended = process.interrupted()
    assert ended.code == 130 and ended.error.endswith("milrec: interrupted\n") and "Traceback" not in ended.error
    assert "Interrupted; the same command resumes the run\n" in ended.error
    log = tmp_path / "run/jobs/mil-seed0/log.txt"
    if point != "import torch.nn":  # a job has its log from when it begins
        assert log.read_text().endswith("milrec: interrupted\n") and "Traceback" not in log.read_text()
    assert (log.with_name("checkpoint.safetensors")).exists() == (point == "fit step 2")


def test_a_process_that_does_not_hear_interrupts_stays_so(work):
    """As a shell starts its background jobs."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a process inherits it
    try:
        process = Held("fit step 2", "fit", "split", "--out", "unheard", *QUICK, cwd=work)
    finally:
        signal.signal(signal.SIGINT, before)
    with closing(process):
        process.pause.arrive()
        assert process.interrupted().code == 0


PROGRAM = """
import atexit, signal, sys
from milrec import entry

def interrupt():
    signal.raise_signal(signal.SIGINT)

def swallowed():
    try:
        interrupt()
    except BaseException:
        pass

def turned_into_another_error():
    try:
        interrupt()
    except KeyboardInterrupt:
        raise ImportError("cannot import name 'x' from partially initialized module 'y'")

class Interrupting:
    def __del__(self):
        interrupt()

def in_a_finaliser():
    Interrupting()

def at_exit():
    atexit.register(interrupt)

entry._run(globals()[sys.argv[1]])
"""


@pytest.mark.parametrize(
    "how",
    ["interrupt", "swallowed", "turned_into_another_error", "in_a_finaliser", "at_exit"],
)
def test_whatever_becomes_of_an_interrupt_the_process_ends_with_130(how):
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "milrec: interrupted\n")


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("print('done')", 0, "done\n"),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no')", 1, "no\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import atexit; atexit.register(lambda: print('at exit', end=''))", 0, "at exit"),
        ("import threading; threading.Thread(target=lambda: print('thread', end='')).start()", 0, "thread"),
    ],
)
def test_a_command_that_is_not_interrupted_ends_as_in_any_python(program, code, said):
    command = f"from milrec import entry\ndef command():\n    {program}\nentry._run(command)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == code and (done.stdout + done.stderr).endswith(said)


def test_an_interrupt_after_the_last_step_is_not_forgotten():
    interruptible = Interruptible()
    with pytest.raises(KeyboardInterrupt), interruptible:
        signal.raise_signal(signal.SIGINT)


def interrupt_and_check(interruptible, heard):
    signal.raise_signal(signal.SIGINT)
    assert heard == []  # it waits for the end of a step
    interruptible.check()


def test_an_interrupt_is_handed_on_to_the_handler_from_before():
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        interruptible = Interruptible()
        with pytest.raises(KeyboardInterrupt), interruptible:
            interrupt_and_check(interruptible, heard)
        assert heard == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)
