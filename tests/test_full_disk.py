"""A disk that is really full: one sentence, code 1, nothing half-written, and nothing lost that was there before."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors import safe_open

import made_up
import milrec
from commands import milrec as command
from commands import succeeds
from milrec.data.interactions import Interactions
from milrec.disk.files import system_errors
from test_storage import contents, names

SIZE = 3 << 20  # bytes of the small disk
QUICK = ("--set", "n_factors=4", "--set", "iterations=12", "--set", "validate_every=4", "--set", "checkpoint_seconds=0")
RECIPE = """
title = "one model"
[data]
path = "data"
[[models]]
name = "MIL"
loss = "mil"
settings = { iterations = 4, n_factors = 4 }
"""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A disk of three megabytes in memory, with something for each command."""
    place = tmp_path_factory.mktemp("disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk of its own cannot be mounted here (that takes Linux and its root account)")
    try:
        data = milrec.simulate(milrec.Simulation(n_users=60, n_items=40, mean_shown=15), seed=0)
        data.save(place / "data")
        split = milrec.split_interactions(data, seed=0)
        model = milrec.fit(split, "dae", iterations=4, n_factors=4)
        for name in ("", "old-"):  # the old ones are replaced
            split.save(place / f"{name}split")
            model.save(place / f"{name}model")
        made_up.the_papers_run(seeds=1).write(place / "results.json")
        (place / "recipe.toml").write_text(RECIPE)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path, room: int) -> None:
    """Leave room for this many bytes, in pages of 4096."""
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with (disk / "ballast").open("wb") as file:
        file.write(bytes(max(free - room, 0)))


def empty(disk: Path) -> None:
    (disk / "ballast").unlink(missing_ok=True)


def sentence_of(done: subprocess.CompletedProcess[str]) -> str:
    """What a command says at its end, after its bars."""
    said = [line for line in done.stderr.splitlines() if line.startswith("milrec: ")]
    assert len(said) == 1 and done.stderr.endswith(f"{said[0]}\n") and "Traceback" not in done.stderr, done.stderr
    return said[0]


COMMANDS = {
    "simulate": ("simulate", "--out", "new", "--users", "60", "--items", "40"),
    "split": ("split", "data", "--out", "new"),
    "replace a split": ("split", "data", "--out", "old-split", "--seed", "3", "--force"),
    "fit": ("fit", "split", "--out", "new", *QUICK),
    "fit without checkpoints": ("fit", "split", "--out", "new", "--model", "ease"),
    "replace a model": ("fit", "split", "--out", "old-model", "--model", "popularity", "--force"),
    "evaluate": ("evaluate", "model", "split", "--json", "new.json"),
    "lists as Parquet": ("recommend", "model", "--all", "--out", "new.parquet"),
    "lists as CSV": ("recommend", "model", "--all", "--out", "new.csv"),
    "lists as JSON": ("recommend", "model", "--all", "--out", "new.jsonl"),
    "report": ("report", "results.json"),
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_whatever_is_written_when_the_disk_fills_up_there_is_one_sentence_and_nothing_else(
    disk: Path, arguments: tuple[str, ...]
) -> None:
    before, failed, room = contents(disk), 0, 0
    while True:
        fill(disk, room)
        done = command(*arguments, cwd=disk)
        empty(disk)
        if done.returncode == 0:
            break
        failed += 1
        assert done.returncode == 1 and sentence_of(done).startswith("milrec: the disk is full")
        shutil.rmtree(disk / "new.partial", ignore_errors=True)  # the checkpoint of a fit, which is whole
        assert contents(disk) == before
        room += 4096 if room < 12 * 4096 else 8 * 4096
    assert failed, "it was never full"
    for name in set(names(disk)) - {path.split("/")[0] for path in before}:
        shutil.rmtree(disk / name) if (disk / name).is_dir() else (disk / name).unlink()


def weights(model: Path) -> dict[str, bytes]:
    with safe_open(model / "weights.safetensors", framework="np") as file:
        return {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118


def test_a_fit_that_was_stopped_by_a_full_disk_resumes_to_the_same_weights(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from milrec.cli.progress import FitDisplay

    real = FitDisplay.report

    def fills_up(self, now) -> None:
        if now.iteration == 5:
            fill(disk, 0)
        real(self, now)

    monkeypatch.setattr(FitDisplay, "report", fills_up)
    done = command("fit", "split", "--out", "broken", *QUICK, cwd=disk)
    monkeypatch.setattr(FitDisplay, "report", real)
    empty(disk)
    assert done.returncode == 1 and sentence_of(done).startswith("milrec: the disk is full")
    assert "Stopped; to resume: milrec fit split --out broken " in done.stdout
    assert names(disk / "broken.partial") == ["checkpoint.safetensors"] and not (disk / "broken").exists()
    succeeds("fit", "split", "--out", "broken", *QUICK, "--resume", cwd=disk)
    succeeds("fit", "split", "--out", "unbroken", *QUICK, cwd=disk)
    assert weights(disk / "broken") == weights(disk / "unbroken")
    for name in ("broken", "unbroken"):
        shutil.rmtree(disk / name)


def test_a_run_on_a_full_disk_says_so_and_resumes(disk: Path) -> None:
    fill(disk, 30 * 4096)
    done = command("experiment", "recipe.toml", "--out", "run", "--jobs", "1", cwd=disk)
    empty(disk)
    assert done.returncode == 1 and "the disk is full" in sentence_of(done)
    succeeds("experiment", "recipe.toml", "--out", "run", "--jobs", "1", cwd=disk)
    assert [name for name in names(disk / "run") if name.startswith(".")] == []
    shutil.rmtree(disk / "run")


# What libraries say


class Rust(Exception):
    """As SafetensorError, which is no OSError."""


@pytest.mark.parametrize(
    "error",
    [
        Rust("Error while serializing: I/O error: No space left on device (os error 28)"),
        OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device"),
    ],
)
def test_what_libraries_say_about_the_disk_becomes_an_error_of_the_system(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device: ") as found, system_errors(tmp_path / "x"):
        raise error
    assert found.value.errno == errno.ENOSPC and found.value.filename == str(tmp_path / "x")


@pytest.mark.parametrize(
    "error",
    [Rust("header too large"), ValueError("no"), milrec.MilrecError("no, not (os error 28)"), OSError("no number")],
)
def test_other_errors_stay_what_they_are(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)) as found, system_errors(tmp_path / "x"):
        raise error
    assert found.value is error


def test_a_library_user_gets_an_os_error_and_the_old_folder(disk: Path) -> None:
    data = Interactions.load(disk / "data")
    before = contents(disk / "data")
    fill(disk, 0)
    try:
        with pytest.raises(OSError, match="No space left on device"):
            data.save(disk / "data", replace=True)
    finally:
        empty(disk)
    assert contents(disk / "data") == before
