"""One writer at a time, who is named to the others; what a killed one leaves is cleaned up, and nothing is lost."""

import json
import os
import shutil
import socket
import threading
from pathlib import Path

import pytest

import milrec
from commands import milrec as command
from commands import succeeds
from milrec.disk.files import draft_folder, exchange, leftovers, retired_folder
from milrec.disk.locks import held, only_writer
from milrec.errors import FolderError
from milrec.storage import new_file, new_folder, open_folder, reserved, write_json
from pausing import held as held_at
from test_storage import contents, names, saved

QUICK = ("--model", "dae", "--set", "n_factors=4", "--set", "epochs=4", "--set", "checkpoint_seconds=0")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    data = milrec.simulate(milrec.Simulation(n_users=40, n_items=30, mean_shown=15), seed=0)
    data.save(folder / "data")
    milrec.split_interactions(data, seed=0).save(folder / "split")
    rows = [f"u{user},i{(user * step) % 23}" for user in range(40) for step in range(1, 9)]
    (folder / "table.csv").write_text("\n".join(["user,item", *rows]) + "\n")
    return folder


def refused(*arguments: object, cwd: Path) -> str:
    done = command(*arguments, cwd=cwd)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done
    return done.stderr


# Who holds a lock


def test_a_lock_file_names_its_holder_and_is_gone_afterwards(tmp_path: Path) -> None:
    with only_writer(tmp_path / "mine"):
        said = json.loads((tmp_path / ".mine.lock").read_text())
        assert (said["process"], said["host"]) == (os.getpid(), socket.gethostname()) and said["since"].endswith("UTC")
    assert names(tmp_path) == []


def test_a_lock_within_a_lock_of_the_same_thread_is_the_same_lock(tmp_path: Path) -> None:
    with only_writer(tmp_path / "mine"):
        with only_writer(tmp_path / "mine"):
            pass
        assert names(tmp_path) == [".mine.lock"]


def test_another_thread_is_refused(tmp_path: Path) -> None:
    refusals = []

    def write() -> None:
        try:
            saved(tmp_path / "mine")
        except FolderError as error:
            refusals.append(str(error))

    with only_writer(tmp_path / "mine"):
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    assert "is being written by this process already, since " in refusals[0]


def test_a_lock_file_that_says_nothing_or_nonsense_holds_too(tmp_path: Path) -> None:
    import fcntl

    for content in (b"", b"nonsense", b'{"process": {}}', b"[" * 900):
        (tmp_path / ".mine.lock").write_bytes(content)
        with (tmp_path / ".mine.lock").open("rb+") as other:
            fcntl.flock(other, fcntl.LOCK_EX)  # as another process would hold it
            with pytest.raises(FolderError, match="is being written by another process; wait until it is done"):
                saved(tmp_path / "mine")
    (tmp_path / ".mine.lock").write_bytes(b"")
    saved(tmp_path / "mine")
    assert names(tmp_path) == ["mine"]


def test_two_links_to_a_place_are_one_place(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with only_writer(tmp_path / "real" / "mine"):
        assert (tmp_path / "real" / ".mine.lock").exists()
        with only_writer(tmp_path / "link" / "mine"):
            pass


def test_a_file_system_without_locks_locks_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import fcntl

    def none(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    saved(tmp_path / "mine")
    assert names(tmp_path) == ["mine"]


# Commands that write to the same place

COMMANDS = [
    ("new data folder", "data", ("prepare", "table.csv", "--out", "place")),
    ("new data folder", "data", ("simulate", "--out", "place", "--users", "60", "--items", "40")),
    ("new split folder", "split", ("split", "data", "--out", "place")),
    ("fit step 2", "model", ("fit", "split", "--out", "place", *QUICK)),
]


@pytest.mark.parametrize(("point", "kind", "arguments"), COMMANDS, ids=[one[2][0] for one in COMMANDS])
def test_the_first_writer_is_named_to_the_second_and_if_killed_its_place_is_free_and_clean(
    work: Path, point: str, kind: str, arguments: tuple[str, ...]
) -> None:
    before = names(work)
    with held_at(point, *arguments, cwd=work) as first:
        sentence = refused(*arguments, cwd=work)
        assert f"'place' is being written by process {first.process.pid} on '{socket.gethostname()}' since" in sentence
        first.killed()
    assert len(names(work)) > len(before)
    succeeds(*arguments, *(("--resume",) if kind == "model" else ()), cwd=work)
    assert names(work) == sorted([*before, "place"])
    open_folder(work / "place", kind)
    shutil.rmtree(work / "place")


def test_a_run_names_the_process_that_carries_it_out(work: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(
        'title = "one"\n[data.simulate]\nusers = 40\nitems = 30\n[[models]]\nname = "P"\nmodel = "popularity"\n'
    )
    arguments = ("experiment", "recipe.toml", "--out", "run")
    with held_at("new split folder", *arguments, cwd=tmp_path) as first:
        sentence = refused(*arguments, cwd=tmp_path)
        assert f"the run in 'run' is being carried out by process {first.process.pid} on" in sentence


def test_a_run_that_was_killed_before_its_manifest_was_there_can_be_started_again(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(
        'title = "one"\n[data.simulate]\nusers = 40\nitems = 30\n[[models]]\nname = "P"\nmodel = "popularity"\n'
    )
    arguments = ("experiment", "recipe.toml", "--out", "run")
    with held_at("new file milrec.json", *arguments, cwd=tmp_path) as first:
        first.killed()
    assert not (tmp_path / "run" / "milrec.json").exists()
    succeeds(*arguments, cwd=tmp_path)
    assert names(tmp_path / "run") == ["jobs", "milrec.json", "report.html", "results.json", "split"]


def test_a_place_is_free_again_after_a_refusal_and_folders_above_it_do_not_stay(tmp_path: Path) -> None:
    assert "there is no data folder" in refused("split", "nowhere", "--out", "deep/deeper/place", cwd=tmp_path)
    assert names(tmp_path) == []


# What a killed process leaves


def test_only_leftovers_of_the_same_place_are_removed(tmp_path: Path) -> None:
    others = [".mine.txt", ".mine.backup.tmp", ".mine.abcdefgh.tmp", ".mine.old", ".mine.milrec-notours.tmp2"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / ".mine.milrec-abcdefgh.tmp").write_text("a file, and ours are folders")
    neighbour = draft_folder(tmp_path / "mine.too")
    ours = draft_folder(tmp_path / "mine")
    (ours / "half.arrow").write_text("half")
    saved(tmp_path / "mine")
    kept = [*others, ".mine.milrec-abcdefgh.tmp", neighbour.name, "mine"]
    assert names(tmp_path) == sorted(kept)


def test_a_file_is_swept_like_a_folder(tmp_path: Path) -> None:
    left = draft_folder(tmp_path / "a.json")
    (left / "a.json").write_text("{")
    (left / ".tmpX1").write_text("of a library")
    write_json(tmp_path / "a.json", 1)
    assert names(tmp_path) == ["a.json"]


def test_a_folder_killed_between_two_renames_is_put_back_by_the_next_writer(work: Path, tmp_path: Path) -> None:
    succeeds("split", work / "data", "--out", "place", "--seed", "1", cwd=tmp_path)
    before = contents(tmp_path / "place")
    again = ("split", work / "data", "--out", "place", "--seed", "2", "--force")
    with held_at("between two renames", *again, cwd=tmp_path) as process:
        process.killed()
    assert not (tmp_path / "place").exists()
    assert "already holds a split folder" in refused(*again[:-1], cwd=tmp_path)
    assert contents(tmp_path / "place") == before
    succeeds(*again, cwd=tmp_path)
    assert names(tmp_path) == ["place"] and contents(tmp_path / "place") != before


@pytest.mark.parametrize("reader", [("show", "place"), ("fit", "place", "--out", "model", "--model", "popularity")])
def test_a_folder_killed_between_two_renames_is_put_back_by_the_next_reader(
    work: Path, tmp_path: Path, reader: tuple[str, ...]
) -> None:
    succeeds("split", work / "data", "--out", "place", "--seed", "1", cwd=tmp_path)
    before = contents(tmp_path / "place")
    again = ("split", work / "data", "--out", "place", "--seed", "2", "--force")
    with held_at("between two renames", *again, cwd=tmp_path) as process:
        assert "is being written by process" in refused(*reader, cwd=tmp_path)  # not gone: just being replaced
        process.killed()
    succeeds(*reader, cwd=tmp_path)
    assert contents(tmp_path / "place") == before


def test_half_of_an_older_folder_is_not_put_back(tmp_path: Path) -> None:
    saved(tmp_path / "mine")
    retired = retired_folder(tmp_path / "mine")
    (tmp_path / "mine").rename(retired)
    (retired / "words.txt").unlink()
    with pytest.raises(FolderError, match="there is no data folder"):
        open_folder(tmp_path / "mine", "data")
    saved(tmp_path / "mine", words="new")
    assert names(tmp_path) == ["mine"] and not leftovers(tmp_path / "mine", "old")


def test_nothing_is_put_back_into_a_place_that_is_taken(tmp_path: Path) -> None:
    saved(tmp_path / "mine")
    shutil.copytree(saved(tmp_path / "older", words="older"), retired_folder(tmp_path / "mine"), dirs_exist_ok=True)
    saved(tmp_path / "mine", words="new", replace=True)
    assert (tmp_path / "mine" / "words.txt").read_text() == "new"
    assert names(tmp_path) == ["mine", "older"]


def test_a_lock_that_was_removed_while_we_waited_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder removes the file and lets go between our opening and our locking it, and a third process comes."""
    from milrec.disk import locks

    real, calls = locks._try_lock, []

    def slow(handle: int) -> bool:
        calls.append(handle)
        if len(calls) == 1:
            (tmp_path / ".mine.lock").unlink()
        return real(handle)

    monkeypatch.setattr(locks, "_try_lock", slow)
    with only_writer(tmp_path / "mine"):
        assert len(calls) == 2 and (tmp_path / ".mine.lock").exists()


def test_held_says_what_its_holder_does(tmp_path: Path) -> None:
    refusals = []

    def other() -> None:
        with pytest.raises(FolderError) as refusal, held(tmp_path / ".lock", "the run is being carried out"):
            pass
        refusals.append(str(refusal.value))

    with held(tmp_path / ".lock", "the run is being carried out"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert refusals[0].startswith("the run is being carried out by this process already")


def test_writing_a_file_that_another_process_writes_is_refused(tmp_path: Path) -> None:
    import fcntl

    (tmp_path / ".list.csv.lock").write_text("{}")
    with (tmp_path / ".list.csv.lock").open("rb+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(FolderError, match="is being written by another process"), new_file(tmp_path / "list.csv"):
            pass
    with new_folder(tmp_path / "mine", "data"):
        pass


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_an_older_folder_is_put_back_at_once_if_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr("milrec.disk.files.exchange", lambda one, other: False)
    before = contents(saved(tmp_path / "mine"))
    real = Path.replace
    renames: list[Path] = []

    def second_fails(folder: Path, to: Path) -> Path:
        if Path(to) == tmp_path / "mine" and not renames:
            renames.append(to)
            raise error
        return real(folder, to)

    monkeypatch.setattr(Path, "replace", second_fails)
    with pytest.raises(type(error)):
        saved(tmp_path / "mine", words="new", replace=True)
    assert renames and names(tmp_path) == ["mine"] and contents(tmp_path / "mine") == before


def test_the_place_of_a_replaced_folder_is_never_empty(work: Path, tmp_path: Path) -> None:
    succeeds("split", work / "data", "--out", "place", "--seed", "1", cwd=tmp_path)
    before = contents(tmp_path / "place")
    again = ("split", work / "data", "--out", "place", "--seed", "2", "--force")
    if not exchange(tmp_path / "place", tmp_path / "place"):
        pytest.skip("two folders cannot change places in one step on this file system")
    with held_at("after the exchange", *again, cwd=tmp_path) as process:
        new = contents(tmp_path / "place")
        process.killed()
    assert new != before and contents(tmp_path / "place") == new
    assert leftovers(tmp_path / "place", "tmp"), "the older one, until the next writer comes"
    succeeds(*again, cwd=tmp_path)
    assert names(tmp_path) == ["place"] and contents(tmp_path / "place") == new


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_an_older_folder_comes_back_if_the_exchange_cannot_be_made_to_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    before = contents(saved(tmp_path / "mine"))

    def fails(folder: Path) -> None:
        if folder == tmp_path:
            raise error

    monkeypatch.setattr("milrec.disk.files.sync_folder", fails)
    with pytest.raises(type(error)):
        saved(tmp_path / "mine", words="new", replace=True)
    assert names(tmp_path) == ["mine"] and contents(tmp_path / "mine") == before


def test_an_exchange_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileNotFoundError, match="mine"):
        exchange(tmp_path / "none", tmp_path / "mine")


def test_no_lock_is_written_through_a_link_or_into_a_file_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    (tmp_path / ".linked.lock").symlink_to("precious.txt")
    (tmp_path / ".own.lock").write_text("notes of somebody")
    (tmp_path / ".folder.lock").mkdir()
    (tmp_path / "first.lock").touch()
    os.link(tmp_path / "first.lock", tmp_path / ".twice.lock")
    for name in ("linked", "own", "folder", "twice"):
        with pytest.raises(FolderError, match="should be a lock file, but it is something else"):
            saved(tmp_path / name)
    assert (tmp_path / "precious.txt").read_text() == "mine"
    assert (tmp_path / ".own.lock").read_text() == "notes of somebody"


@pytest.mark.parametrize("there", ["a file", "a folder with something in it", "a model"])
def test_what_is_at_the_place_of_checkpoints_stays(work: Path, tmp_path: Path, there: str) -> None:
    place = tmp_path / "m.partial"
    if there == "a model":
        succeeds("fit", work / "split", "--out", place, "--model", "popularity")
    elif there == "a file":
        place.write_text("mine")
    else:
        place.mkdir()
        (place / "notes.txt").write_text("mine")
    before = contents(tmp_path) if place.is_dir() else place.read_text()
    said = refused("fit", work / "split", "--out", tmp_path / "m", "--model", "popularity", "--force", cwd=tmp_path)
    assert "m.partial' should hold checkpoints, but it holds other files" in said
    assert before == (contents(tmp_path) if place.is_dir() else place.read_text())


def test_a_link_to_a_file_stays_and_a_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("real.json")
    write_json(tmp_path / "link.json", 1)
    assert (tmp_path / "link.json").is_symlink() and (tmp_path / "real.json").read_text() == "1\n"
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.json")
        with pytest.raises(FolderError, match="is not a file that can be replaced"):
            write_json(tmp_path / "pipe.json", 1)
        assert (tmp_path / "pipe.json").is_fifo()


def test_a_name_that_is_too_long_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="is too long; at most 230 bytes"), reserved(tmp_path / ("n" * 231), "data"):
        raise AssertionError
    with pytest.raises(FolderError, match="is too long"):
        write_json(tmp_path / ("é" * 120), 1)
    saved(tmp_path / ("n" * 230))


def test_a_folder_that_is_replaced_while_it_is_read_is_refused(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = milrec.Interactions.load(work / "data")
    second = milrec.simulate(milrec.Simulation(n_users=40, n_items=30, mean_shown=15), seed=5)
    first.save(tmp_path / "data")
    real = milrec.Interactions.read_from.__func__  # type: ignore[attr-defined]

    def slowly(cls: type, manifest: object) -> object:
        found = real(cls, manifest)
        second.save(tmp_path / "data", replace=True)
        return found

    monkeypatch.setattr(milrec.Interactions, "read_from", classmethod(slowly))
    with pytest.raises(FolderError, match="was replaced while it was being read; try again"):
        milrec.Interactions.load(tmp_path / "data")
    monkeypatch.undo()
    assert milrec.Interactions.load(tmp_path / "data").fingerprint() == second.fingerprint()
