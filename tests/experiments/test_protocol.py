"""What runs and jobs tell each other: events as lines, outcomes as files, also those of earlier versions."""

import json
import math

import pytest

from milrec.disk.locks import locked
from milrec.errors import FolderError
from milrec.experiments import protocol
from milrec.experiments.memory import forget_peak_memory, peak_memory
from milrec.experiments.protocol import (
    Broken,
    Done,
    Ended,
    Failed,
    Fitting,
    GivenUp,
    Job,
    Judging,
    is_running,
    jobs_of,
    read_event,
    read_outcome,
)
from milrec.results import FitHistory, FittedSettings
from milrec.storage import write_json

CURVE = FitHistory(iterations=(10, 20), measures=(0.1, 0.2))


@pytest.mark.parametrize(
    "event",
    [
        Fitting(iteration=3, total=10, epoch=0.5, loss=1.25, measure=0.1, best=0.2),
        Fitting(iteration=1, total=15),
        Judging(judged=500, total=6040),
        Ended(name="mil-seed0"),
    ],
)
def test_an_event_is_a_line(event):
    line = event.model_dump_json() + "\n"
    assert line.count("\n") == 1 and read_event(line.encode()) == event


def test_a_loss_that_is_not_finite_does_not_hide_the_event():
    event = read_event(Fitting(iteration=1, total=2, loss=math.nan).model_dump_json().encode())
    assert event.iteration == 1 and event.loss is None


@pytest.mark.parametrize("line", [b"MKL_VERBOSE oneMKL 2026\n", b"{}\n", b'{"event": "party"}\n', b"\xff\n", b"3\n"])
def test_what_libraries_print_is_not_an_event(line):
    assert read_event(line) is None


@pytest.mark.parametrize(
    "outcome",
    [
        Done(value=0.2, settings=FittedSettings(model={"model": "dae"}), history=CURVE, fit_seconds=1.5, threads=2),
        GivenUp(value=0.1, history=CURVE, peak_memory_mib=None),
        Failed(error="the loss became nan"),
        Broken(error="its process was killed by signal 9"),
    ],
)
def test_an_outcome_comes_back_from_its_file(tmp_path, outcome):
    write_json(tmp_path / "result.json", outcome.as_json())
    assert read_outcome(tmp_path / "result.json") == outcome
    assert next(iter(json.loads((tmp_path / "result.json").read_text()))) == "state"


def test_only_what_was_set_is_written():
    trial = Done(value=None, settings=FittedSettings(model={}), history=None, fit_seconds=1.0)
    assert list(trial.as_json()) == ["state", "value", "settings", "history", "fit_seconds"]


def test_an_outcome_of_an_earlier_version_is_read(tmp_path):
    """Before threads were noted, and before there were dials."""
    old = {
        "state": "done",
        "value": 0.3,
        "settings": {"model": {"model": "popularity"}, "loss": None, "target_set": None, "training": None},
        "history": None,
        "fit_seconds": 0,
        "evaluation": {"ndcg@100": 0.25, "n_users": 10, "undefined": {}},
        "peak_memory_mib": 400,
    }
    write_json(tmp_path / "result.json", old)
    outcome = read_outcome(tmp_path / "result.json")
    assert outcome.evaluation.mean("ndcg@100") == 0.25 and outcome.threads is None and outcome.dialled == ()
    assert outcome.as_json() == old


@pytest.mark.parametrize("value", [{"state": "lost"}, {"state": "failed"}, [], {"value": 1}, "done"])
def test_a_damaged_outcome_is_refused_with_a_sentence(tmp_path, value):
    write_json(tmp_path / "result.json", value)
    with pytest.raises(FolderError, match=r"result\.json' is damaged"):
        read_outcome(tmp_path / "result.json")


def begun(run, name: str, outcome=None, **values) -> Job:
    job = Job(name=name, title=name.upper(), seed=0, settings={}, **values)
    job.folder(run).mkdir(parents=True)
    write_json(job.folder(run) / "job.json", job.model_dump())
    if outcome is not None:
        write_json(job.folder(run) / "result.json", outcome.as_json())
    return job


def test_the_jobs_of_a_run_are_listed_with_their_outcomes(tmp_path):
    assert jobs_of(tmp_path) == []
    first, second = begun(tmp_path, "a", Failed(error="no memory")), begun(tmp_path, "b")
    assert jobs_of(tmp_path) == [(first, Failed(error="no memory")), (second, None)]


def test_a_job_is_finished_unless_it_failed_or_was_another_job(tmp_path):
    job = begun(tmp_path, "a", GivenUp(value=0.1, history=CURVE))
    assert job.finished(tmp_path) == GivenUp(value=0.1, history=CURVE)
    assert job.model_copy(update={"seed": 1}).finished(tmp_path) is None
    assert begun(tmp_path, "b", Failed(error="no memory")).finished(tmp_path) is None
    assert begun(tmp_path, "c").finished(tmp_path) is None


def test_a_run_is_running_while_its_lock_is_held(tmp_path):
    assert not is_running(tmp_path) and not (tmp_path / protocol.LOCK).exists()
    with locked(tmp_path / protocol.LOCK):
        assert is_running(tmp_path)
    assert not is_running(tmp_path)


def test_the_peak_of_memory_is_of_this_process():
    forget_peak_memory()
    before = peak_memory()
    assert before is not None
    held = b"x" * (64 << 20)
    assert peak_memory() >= max(before, len(held) >> 20)


def test_the_peak_of_memory_comes_from_elsewhere_on_systems_without_proc(tmp_path, monkeypatch):
    monkeypatch.setattr("milrec.experiments.memory._STATUS", tmp_path / "nowhere")
    assert peak_memory() > 10
    monkeypatch.setattr("milrec.experiments.memory._peak_bytes", lambda: None)
    assert peak_memory() is None
