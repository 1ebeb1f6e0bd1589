"""The cache of a node: a folder is copied once, checked, healed, and makes way for others."""

import json
import os
import threading
from pathlib import Path

import pytest

import milrec
from milrec.cluster import places
from milrec.cluster.places import joined_place, local_folder
from milrec.errors import FolderError
from milrec.storage import open_folder

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    place = tmp_path / "cache"
    monkeypatch.setenv("MILREC_CACHE", str(place))
    return place


@pytest.fixture
def folders(tmp_path):
    """Several data folders, each with another content."""
    made = []
    for number in range(11):
        path = tmp_path / f"data-{number}"
        milrec.simulate(milrec.Simulation(n_users=20 + number, n_items=15), seed=number).save(path)
        made.append(path)
    return made


def copied(folder: Path) -> Path:
    return local_folder(str(folder), "data", open_folder(folder, "data").fingerprint())


def test_a_folder_is_copied_once_under_its_hash(cache, folders, monkeypatch):
    copies: list[str] = []
    copy = places._copy_to

    def counted(path, place, kind, wanted):
        copies.append(place)
        copy(path, place, kind, wanted)

    monkeypatch.setattr(places, "_copy_to", counted)
    threads = [threading.Thread(target=copied, args=(folders[0],)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    path = copied(folders[0])
    assert copies == [str(folders[0])]
    assert path.parent == cache and path.name == open_folder(path, "data").fingerprint()


def test_the_folders_that_were_used_last_are_kept(cache, folders):
    found = []
    for number, folder in enumerate(folders):
        found.append(copied(folder))
        assert found[-1].is_dir()
        os.utime(places._used(found[-1]), (number, number))
        assert copied(folders[0]).is_dir()  # is used all the time
    kept = [path.is_dir() for path in found]
    assert kept[0] and kept[-1] and sum(kept) == places._KEPT
    assert not [path.name for path in cache.iterdir() if path.name.endswith(".tmp")]


def test_a_copy_that_is_not_whole_is_made_again(cache, folders):
    path = copied(folders[0])
    (path / "items.arrow").unlink()
    assert open_folder(copied(folders[0]), "data")
    (path / "milrec.json").write_text("{")
    assert open_folder(copied(folders[0]), "data")


def test_another_content_than_was_asked_for_is_refused(cache, folders):
    with pytest.raises(FolderError, match="has changed since the command was started"):
        local_folder(str(folders[0]), "data", open_folder(folders[1], "data").fingerprint())
    with pytest.raises(FolderError, match="has changed since the command was started"):
        local_folder(str(folders[0]), "data", open_folder(folders[1], "data").fingerprint(), copied=False)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "a/b"])
def test_a_forged_manifest_reads_nothing_outside(cache, folders, name):
    manifest = folders[0] / "milrec.json"
    content = json.loads(manifest.read_text())
    content["files"][name] = {"bytes": 3, "sha256": "0" * 64}
    manifest.write_text(json.dumps(content))
    with pytest.raises(FolderError, match="cannot be understood"):
        local_folder(str(folders[0]), "data")
    (folders[1] / "items.arrow").rename(folders[1] / "kept")
    (folders[1] / "items.arrow").symlink_to("kept")
    with pytest.raises(FolderError, match="is a link"):
        local_folder(str(folders[1]), "data")


def test_names_in_object_storage():
    assert joined_place("s3://bucket/lists/", "part") == "s3://bucket/lists/part"
    assert joined_place("s3://bucket/lists?region=x", "part") == "s3://bucket/lists/part?region=x"
