"""Private copies: what is served stays as it was checked, whatever happens to the folder; nothing is left behind."""

import contextlib
import errno
import os
import re
import shutil
import stat
from pathlib import Path

import pytest

from milrec.errors import FolderError
from milrec.server import copies
from milrec.server.copies import Folders, take_copy
from milrec.server.model import load_served
from milrec.server.registry import Registry
from milrec.storage import Manifest
from pausing import LONG
from serving import contents, flip, refused, turn

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long


@pytest.fixture
def folder(folders, tmp_path) -> Path:
    return Path(shutil.copytree(folders["mil"], tmp_path / "m"))


def rooms(place: Path) -> list[Path]:
    """Where private copies are, beside the folders in a place."""
    return list(place.glob(".milrec-serving*"))


def asked_for_everything(client) -> list:
    """Answers that need every file of a model, and every page of it."""
    answers = [client.post("/v1/recommend", json={"user": f"u{number:03}", "reasons": 2}) for number in range(40)]
    answers += [client.get("/v1/models/live/users", params={"search": "u", "n": 50})]
    answers += [client.get(f"/v1/models/live/users/u{number:03}") for number in range(40)]
    answers += [client.get("/v1/models/live/items", params={"search": word}) for word in ("", "the", "i001")]
    return [answer.json() for answer in answers]


def test_a_folder_that_is_overwritten_in_place_changes_nothing_and_ends_nothing(asking, live, place, folders):
    """Its files are mapped into memory: without a copy, lists would change, or the process would end by SIGBUS."""
    shutil.rmtree(place / "bad", ignore_errors=True)
    shutil.copytree(folders["mil"], place / "bad")
    turn(place, "bad")
    assert asking.post("/v1/models/live/reload").status_code == 200
    before = asked_for_everything(asking)
    for file in (place / "bad").iterdir():
        file.write_bytes((folders["other"] / file.name).read_bytes())
    assert asked_for_everything(asking) == before
    for file in (place / "bad").iterdir():
        os.truncate(file, 10)
    assert asked_for_everything(asking) == before
    shutil.rmtree(place / "bad")
    assert asked_for_everything(asking) == before and live.process.poll() is None
    assert "there is no model folder" in refused(asking.post("/v1/models/live/reload"))


def test_servers_of_one_folder_hold_one_copy_and_the_last_removes_it(folder, tmp_path):
    first, second = (Registry(Folders({name: folder}), together=4) for name in ("a", "b"))
    copy = first.model("a").source.model.path
    assert copy == second.model("b").source.model.path and contents(copy).keys() == contents(folder).keys()
    first.stop()
    assert copy.exists()
    second.reload("b")
    second.stop()
    second.stop()
    assert not rooms(tmp_path)


def test_only_the_account_itself_can_read_a_copy(folder, tmp_path):
    copy = take_copy(folder, "model")
    (room,) = rooms(tmp_path)
    assert copy.path.parent == room
    if os.name == "posix":
        assert stat.S_IMODE(room.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in copy.path.glob("*.arrow")} == {0o400}
    copy.release()


def test_a_reload_lets_the_old_copy_go(place, folders):
    turn(place, "first")
    registry = Registry(Folders({"live": place / "live"}), together=4)
    old = registry.model("live").source.model.path
    turn(place, "second")
    registry.reload("live")
    assert not old.exists() or rooms(place)  # another server of these tests may hold it
    assert registry.model("live").source.model.path != old
    registry.stop()


def test_a_model_that_is_refused_leaves_no_copy(folder, tmp_path, monkeypatch):
    registry = Registry(Folders({"m": folder}), together=4)
    flip(folder / "weights.safetensors")
    with pytest.raises(FolderError, match="has changed since it was saved"):
        registry.reload("m")
    registry.stop()
    assert not rooms(tmp_path)
    with pytest.raises(FolderError):
        Registry(Folders({"m": folder}), together=4)
    assert not rooms(tmp_path)


def test_the_copy_is_what_is_checked(folder, tmp_path, monkeypatch):
    """The folder is sound when it is looked at, and its copy is not: somebody wrote to it in between."""
    whole = copies._copy_file

    def spoilt(source: Path, target: Path) -> None:
        whole(source, target)
        if target.name == "adopted.arrow":
            target.chmod(0o600)
            flip(target)

    monkeypatch.setattr(copies, "_copy_file", spoilt)
    sentence = f"'{folder}' is damaged: file 'adopted.arrow' has changed since it was saved"
    with pytest.raises(FolderError, match=re.escape(sentence)):
        Registry(Folders({"m": folder}), together=4)
    assert not rooms(tmp_path)


def test_a_folder_that_is_replaced_while_it_is_copied_is_refused(folder):
    other = Manifest(folder, "model", {}, {"weights.safetensors": "0" * 64})
    with pytest.raises(FolderError, match="was replaced while it was being read; try again"):
        copies._manifest_of(other)


def test_a_copy_may_lie_elsewhere(folder, tmp_path):
    (tmp_path / "scratch").mkdir()
    copy = take_copy(folder, "model", tmp_path / "scratch")
    assert copy.path.parent.parent == tmp_path / "scratch" and not rooms(tmp_path)
    copy.release()
    assert not list((tmp_path / "scratch").iterdir())


def failing(number: int):
    def fails(*_):
        raise OSError(number, os.strerror(number))

    return fails


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "for a private copy of '{}'; free some, or choose another `scratch`"),
        (errno.EIO, "a private copy of '{}' cannot be made in"),
    ],
)
def test_a_place_without_room_is_one_sentence_and_stays_clean(folder, tmp_path, monkeypatch, number, sentence):
    monkeypatch.setattr(os, "copy_file_range", failing(number), raising=False)
    monkeypatch.setattr(os, "write", failing(number))
    with pytest.raises(FolderError, match=re.escape(sentence.format(folder))):
        take_copy(folder, "model")
    assert not rooms(tmp_path)


def test_a_place_that_does_not_exist_is_one_sentence(folder, tmp_path):
    with pytest.raises(FolderError, match=r"cannot be made in '.*none' \(No such file or directory\)"):
        take_copy(folder, "model", tmp_path / "none")


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS, errno.EINVAL])
def test_a_file_system_that_cannot_copy_is_read_and_written(folder, monkeypatch, number):
    monkeypatch.setattr(os, "copy_file_range", failing(number), raising=False)
    monkeypatch.setattr(copies, "_CHUNK", 1000)
    copy = take_copy(folder, "model")
    for name, (content, _) in contents(folder).items():
        assert (copy.path / name).read_bytes() == content
    copy.release()


def test_a_room_that_others_can_write_to_is_refused(folder, tmp_path):
    room = tmp_path / copies._room_name()
    room.write_text("in the way")
    with pytest.raises(FolderError, match=r"cannot be made in|is in the way"):
        take_copy(folder, "model")
    room.unlink()
    (tmp_path / "elsewhere").mkdir()
    room.symlink_to("elsewhere")
    with pytest.raises(FolderError, match="is not a folder for private copies"):
        take_copy(folder, "model")
    room.unlink()
    room.mkdir()
    room.chmod(0o777)
    with pytest.raises(FolderError, match="other users can write to"):
        take_copy(folder, "model")


def test_what_a_killed_server_left_is_removed(folder, tmp_path):
    left = take_copy(folder, "model")
    os.close(left._lock)  # as a kill does
    (left.path.parent / "half-a-copy").mkdir()
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    flip_fact(other)
    copy = take_copy(other, "model")
    assert sorted(one.name for one in copy.path.parent.iterdir()) == sorted(
        [copy.path.name, f"{copy.path.name}.lock", "lock"]
    )
    copy.release()
    assert not rooms(tmp_path)


def flip_fact(folder: Path) -> None:
    """Another manifest that means the same, as of another folder with the same files."""
    manifest = folder / "milrec.json"
    manifest.write_text(manifest.read_text() + "\n")


def test_a_server_that_copies_for_ever_is_not_waited_for(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(copies, "_WAIT_SECONDS", 0.0)
    with contextlib.ExitStack() as held:
        held.enter_context(copies._alone_in(tmp_path / copies._room_name(), wait=LONG))
        with pytest.raises(FolderError, match="another server has been copying"):
            take_copy(folder, "model")


def test_a_copy_that_cannot_be_removed_now_is_removed_by_the_server_that_is_copying(folder, tmp_path):
    copy = take_copy(folder, "model")
    with copies._alone_in(copy.path.parent, wait=LONG):
        copy.release()
        assert copy.path.exists()
    take_copy(folder, "model").release()
    assert not rooms(tmp_path)


def test_the_data_that_users_have_is_not_held(folders, small_catalogue, folder, tmp_path):
    small_catalogue.save(tmp_path / "data")
    source = Folders({"m": folder}, tmp_path / "data").take("m")
    load_served("m", source)
    assert [one.name for one in rooms(tmp_path)[0].iterdir() if one.is_dir()] == [source.model.path.name]
    source.release()
    assert not rooms(tmp_path)
