"""Files and folders appear whole or not at all, and are checked before they are used."""

import json
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from milrec.disk.locks import locked
from milrec.disk.manifest import FORMAT_VERSION
from milrec.errors import FolderError
from milrec.storage import (
    MANIFEST,
    check_files,
    folder_kind,
    new_file,
    new_folder,
    open_folder,
    read_json,
    write_json,
    write_manifest,
)


def saved(path: Path, kind: str = "data", words: str = "hello", replace: bool = False) -> Path:
    """A small folder with two files and a fact."""
    with new_folder(path, kind, replace) as draft:
        (draft.path / "words.txt").write_text(words)
        (draft.path / "numbers.bin").write_bytes(bytes(range(9)))
        draft.facts["answer"] = 42
    return path


def interrupted(block: AbstractContextManager[Any], error: type[BaseException]) -> None:
    """Something is written in the block, and then it fails."""
    with block as draft:
        file = draft if isinstance(draft, Path) else draft.path / "words.txt"
        file.write_text("half of it")
        raise error


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def change_manifest(folder: Path, **changes: Any) -> None:
    """Say something else, with no hash of it, as in the first folders."""
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["sha256"]
    (folder / MANIFEST).write_text(json.dumps(manifest | changes))


# A folder being written


def test_a_new_folder_holds_its_files_its_facts_and_a_manifest(tmp_path: Path) -> None:
    saved(tmp_path / "mine")
    assert names(tmp_path) == ["mine"]
    assert names(tmp_path / "mine") == [MANIFEST, "numbers.bin", "words.txt"]
    manifest = open_folder(tmp_path / "mine", "data")
    assert manifest.kind == "data"
    assert manifest.facts == {"answer": 42}
    assert set(manifest.hashes) == {"numbers.bin", "words.txt"}


def test_a_folder_is_not_there_until_the_block_ends(tmp_path: Path) -> None:
    with new_folder(tmp_path / "mine", "data") as draft:
        (draft.path / "words.txt").write_text("hello")
        assert not (tmp_path / "mine").exists()
    assert (tmp_path / "mine").is_dir()


def test_folders_above_are_created(tmp_path: Path) -> None:
    saved(tmp_path / "deep" / "deeper" / "mine")
    assert open_folder(tmp_path / "deep" / "deeper" / "mine", "data").facts == {"answer": 42}


def test_an_empty_folder_may_be_written_into(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    saved(tmp_path / "mine")
    assert names(tmp_path / "mine") == [MANIFEST, "numbers.bin", "words.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_in_the_block_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        interrupted(new_folder(tmp_path / "mine", "data"), error)
    assert names(tmp_path) == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_while_replacing_leaves_the_old_folder_as_it_was(
    tmp_path: Path, error: type[BaseException]
) -> None:
    before = contents(saved(tmp_path / "mine"))
    with pytest.raises(error):
        interrupted(new_folder(tmp_path / "mine", "data", replace=True), error)
    assert names(tmp_path) == ["mine"]
    assert contents(tmp_path / "mine") == before


def test_facts_that_json_cannot_hold_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"), new_folder(tmp_path / "mine", "data") as draft:
        draft.facts["loss"] = float("nan")
    assert names(tmp_path) == []


# What is in the way


def test_a_folder_is_not_replaced_unless_it_is_said(tmp_path: Path) -> None:
    before = contents(saved(tmp_path / "mine"))
    with pytest.raises(FolderError, match=r"already holds a data folder; .*`replace=True`"):
        saved(tmp_path / "mine", words="new")
    assert contents(tmp_path / "mine") == before


def test_a_folder_of_the_same_kind_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    saved(tmp_path / "mine")
    with new_folder(tmp_path / "mine", "data", replace=True) as draft:
        (draft.path / "other.txt").write_text("new")
    assert names(tmp_path) == ["mine"]
    assert names(tmp_path / "mine") == [MANIFEST, "other.txt"]


@pytest.mark.parametrize("replace", [False, True])
def test_a_folder_of_another_kind_is_never_replaced(tmp_path: Path, replace: bool) -> None:
    before = contents(saved(tmp_path / "mine", kind="model"))
    with pytest.raises(FolderError, match="holds a milrec model folder; choose another place"):
        saved(tmp_path / "mine", kind="data", replace=replace)
    assert names(tmp_path) == ["mine"]
    assert contents(tmp_path / "mine") == before


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("manifest", [None, "not JSON", "[]", '{"kind": "data"}', '{"format": "milrec", "kind": 3}'])
def test_a_folder_that_milrec_did_not_write_is_never_replaced(
    tmp_path: Path, manifest: str | None, replace: bool
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    if manifest is not None:
        (tmp_path / "mine" / MANIFEST).write_text(manifest)
    before = contents(tmp_path / "mine")
    with pytest.raises(FolderError, match="is not empty and holds no milrec folder"):
        saved(tmp_path / "mine", replace=replace)
    assert contents(tmp_path) == {f"mine/{name}": content for name, content in before.items()}


@pytest.mark.parametrize("replace", [False, True])
def test_a_file_is_never_replaced_by_a_folder(tmp_path: Path, replace: bool) -> None:
    (tmp_path / "mine").write_text("a file")
    with pytest.raises(FolderError, match="exists and is a file"):
        saved(tmp_path / "mine", replace=replace)
    assert contents(tmp_path) == {"mine": b"a file"}


def test_a_link_to_nowhere_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(tmp_path / "gone")
    with pytest.raises(FolderError):
        saved(tmp_path / "mine")
    assert names(tmp_path) == ["mine"]


def test_a_folder_inside_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("user,item\n")
    with pytest.raises(FolderError):
        saved(tmp_path / "table.csv" / "mine")
    assert contents(tmp_path) == {"table.csv": b"user,item\n"}


def test_a_folder_is_replaced_through_a_link_to_it(tmp_path: Path) -> None:
    saved(tmp_path / "disk" / "real")
    (tmp_path / "mine").symlink_to(tmp_path / "disk" / "real")
    saved(tmp_path / "mine", words="new", replace=True)
    assert (tmp_path / "mine" / "words.txt").read_text() == "new"
    assert names(tmp_path) == ["disk", "mine"]
    assert names(tmp_path / "disk") == ["real"]


def test_an_empty_folder_is_written_into_through_a_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "disk" / "real").mkdir(parents=True)
    (tmp_path / "mine").symlink_to(tmp_path / "disk" / "real")
    saved(tmp_path / "mine")
    assert open_folder(tmp_path / "mine", "data").facts == {"answer": 42}
    assert names(tmp_path) == ["disk", "mine"]


def test_the_kind_of_a_folder_is_what_its_manifest_says(tmp_path: Path) -> None:
    assert folder_kind(saved(tmp_path / "mine", kind="split")) == "split"
    assert folder_kind(tmp_path) is None
    assert folder_kind(tmp_path / "absent") is None


# A folder being opened


def test_the_fingerprint_is_of_the_content_and_not_of_the_place(tmp_path: Path) -> None:
    here, there = (open_folder(saved(tmp_path / name), "data") for name in ("here", "there"))
    other = open_folder(saved(tmp_path / "other", words="hallo"), "data")
    assert here.fingerprint() == there.fingerprint()
    assert here.fingerprint() != other.fingerprint()


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="there is no data folder"):
        open_folder(tmp_path / "absent", "data")


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("a file")
    with pytest.raises(FolderError, match=r"'.*mine' is a file, not a data folder; run `milrec prepare` on it first"):
        open_folder(tmp_path / "mine", "data")


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=f"it has no file '{MANIFEST}'"):
        open_folder(tmp_path, "data")


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "mine", kind="model")
    with pytest.raises(FolderError, match="is a model folder; a data folder is needed"):
        open_folder(tmp_path / "mine", "data")


@pytest.mark.parametrize("name", ["words.txt", "numbers.bin"])
def test_a_flipped_byte_in_any_file_is_refused(tmp_path: Path, name: str) -> None:
    file = saved(tmp_path / "mine") / name
    content = file.read_bytes()
    for place in range(len(content)):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(FolderError, match=f"file '{name}' has changed since it was saved"):
            open_folder(tmp_path / "mine", "data")
    file.write_bytes(content)
    open_folder(tmp_path / "mine", "data")


@pytest.mark.parametrize("length", [0, 4, 6])
def test_a_file_cut_or_lengthened_is_refused(tmp_path: Path, length: int) -> None:
    saved(tmp_path / "mine", words="hello")
    (tmp_path / "mine" / "words.txt").write_text("hello?"[:length])
    with pytest.raises(FolderError, match=r"'words\.txt' has changed since it was saved"):
        open_folder(tmp_path / "mine", "data")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "mine")
    (tmp_path / "mine" / "words.txt").unlink()
    with pytest.raises(FolderError, match=r"file 'words\.txt' is missing"):
        open_folder(tmp_path / "mine", "data")


def test_a_link_in_place_of_a_file_is_refused_even_to_the_same_content(tmp_path: Path) -> None:
    saved(tmp_path / "mine")
    (tmp_path / "mine" / "words.txt").rename(tmp_path / "words.txt")
    (tmp_path / "mine" / "words.txt").symlink_to(tmp_path / "words.txt")
    with pytest.raises(FolderError, match=r"words\.txt"):
        open_folder(tmp_path / "mine", "data")


@pytest.mark.parametrize("name", ["../words.txt", "/etc/passwd", "sub/words.txt", "..", ".", "", "words.txt/"])
def test_a_manifest_that_names_a_file_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    saved(tmp_path / "mine")
    (tmp_path / "words.txt").write_text("hello")
    (tmp_path / "mine" / "sub").mkdir()
    (tmp_path / "mine" / "sub" / "words.txt").write_text("hello")
    entry = json.loads((tmp_path / "mine" / MANIFEST).read_text())["files"]["words.txt"]
    change_manifest(tmp_path / "mine", files={name: entry})
    with pytest.raises(FolderError, match="is damaged"):
        open_folder(tmp_path / "mine", "data")


@pytest.mark.parametrize("entry", [None, 5, [], {}, {"bytes": 5}, {"bytes": 5, "sha256": "0", "extra": 1}])
def test_a_manifest_entry_that_is_not_understood_is_refused(tmp_path: Path, entry: Any) -> None:
    saved(tmp_path / "mine")
    change_manifest(tmp_path / "mine", files={"words.txt": entry})
    with pytest.raises(FolderError, match=r"entry for file 'words\.txt' cannot be understood"):
        open_folder(tmp_path / "mine", "data")


@pytest.mark.parametrize("change", [{"files": None}, {"files": []}, {"facts": None}, {"facts": "none"}])
def test_a_manifest_without_facts_or_files_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    saved(tmp_path / "mine")
    change_manifest(tmp_path / "mine", **change)
    with pytest.raises(FolderError, match="'facts' or 'files' is missing"):
        open_folder(tmp_path / "mine", "data")


def test_a_newer_version_is_refused_with_the_cure(tmp_path: Path) -> None:
    saved(tmp_path / "mine")
    change_manifest(tmp_path / "mine", version=FORMAT_VERSION + 1)
    with pytest.raises(FolderError, match=f"format version {FORMAT_VERSION + 1}.*upgrade milrec"):
        open_folder(tmp_path / "mine", "data")


@pytest.mark.parametrize("version", [None, 0, -1, "1", 1.5])
def test_a_version_that_is_no_number_from_1_up_is_refused(tmp_path: Path, version: Any) -> None:
    saved(tmp_path / "mine")
    change_manifest(tmp_path / "mine", version=version)
    with pytest.raises(FolderError, match="is not a whole number of 1 or more"):
        open_folder(tmp_path / "mine", "data")


@pytest.mark.parametrize("manifest", ["{}", "[]", "null", "3", '"milrec"', '{"format": "other", "kind": "data"}'])
def test_a_foreign_manifest_is_refused(tmp_path: Path, manifest: str) -> None:
    (tmp_path / MANIFEST).write_text(manifest)
    with pytest.raises(FolderError, match="was not written by milrec"):
        open_folder(tmp_path, "data")


@pytest.mark.parametrize(
    "manifest",
    [b"", b"hello", b'{"format": "milrec"', b"\xff\xfe\x00", b"\x00" * 20, b"[" * 100_000],
    ids=["empty", "a word", "cut short", "not UTF-8", "zeros", "nested too deep"],
)
def test_a_manifest_that_is_not_json_is_refused(tmp_path: Path, manifest: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(manifest)
    with pytest.raises(FolderError, match="is not readable JSON"):
        open_folder(tmp_path, "data")


def test_a_file_that_the_manifest_does_not_list_must_not_be_read(tmp_path: Path) -> None:
    saved(tmp_path / "mine")
    (tmp_path / "mine" / "guest.txt").write_text("who vouches for me?")
    manifest = open_folder(tmp_path / "mine", "data")
    check_files(manifest, ["words.txt", "numbers.bin"])
    with pytest.raises(FolderError, match=r"does not list 'guest\.txt'"):
        check_files(manifest, ["words.txt", "guest.txt"])


# Single files


def test_a_new_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    with new_file(tmp_path / "list.csv") as draft:
        draft.write_text("user,item\n")
        assert not (tmp_path / "list.csv").exists()
    assert contents(tmp_path) == {"list.csv": b"user,item\n"}


def test_an_exception_while_a_file_is_written_leaves_the_old_one_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("old")
    with pytest.raises(RuntimeError):
        interrupted(new_file(tmp_path / "list.csv"), RuntimeError)
    assert contents(tmp_path) == {"list.csv": b"old"}


def test_a_file_in_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="does not exist; create it"), new_file(tmp_path / "absent" / "list.csv"):
        pass


def test_a_folder_is_not_overwritten_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "list").mkdir()
    with pytest.raises(FolderError, match="is a folder; name a file to write"), new_file(tmp_path / "list"):
        pass


def test_json_comes_back_as_it_went_in_and_is_readable(tmp_path: Path) -> None:
    value = {"title": "Les Misérables", "shares": [0.1, None], "n": 3}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value
    assert "Les Misérables" in (tmp_path / "a.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_json_never_holds_nan(tmp_path: Path, number: float) -> None:
    write_json(tmp_path / "a.json", 1)
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"loss": number})
    assert contents(tmp_path) == {"a.json": b"1\n"}


def test_json_that_is_not_there_or_not_json_is_a_folder_error(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="there is no file"):
        read_json(tmp_path / "absent.json")
    with pytest.raises(FolderError, match="cannot be read \\(Is a directory\\)"):
        read_json(tmp_path)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"user,item\n", "the mistake is in line 1"),
        (b'{"a": 1,\n"b"', "the mistake is in line 2"),
        (b" \n", "it is empty"),
        (b"\xff\xfe", "it is not text in UTF-8"),
        (b"[" * 100_000, "it is nested too deep"),
        (b'{"a": 1, "a": 2}', "a key occurs twice in one object"),
    ],
)
def test_a_file_that_is_not_json_is_refused_in_plain_words(tmp_path: Path, content: bytes, fault: str) -> None:
    (tmp_path / "plays.csv").write_bytes(content)
    with pytest.raises(FolderError) as error:
        read_json(tmp_path / "plays.csv")
    assert str(error.value) == f"'{tmp_path / 'plays.csv'}' is not readable JSON ({fault})"


# The hash of the manifest itself


def test_a_folder_without_a_hash_of_its_manifest_is_read_as_before(tmp_path: Path) -> None:
    change_manifest(saved(tmp_path / "mine"))
    assert open_folder(tmp_path / "mine", "data").facts == {"answer": 42}


def test_the_layout_of_a_manifest_does_not_matter(tmp_path: Path) -> None:
    file = saved(tmp_path / "mine") / MANIFEST
    file.write_text(json.dumps(json.loads(file.read_text()), separators=(",", ":")))
    assert open_folder(tmp_path / "mine", "data").facts == {"answer": 42}


def test_facts_that_json_spells_otherwise_are_vouched_for_as_they_are_read_back(tmp_path: Path) -> None:
    with new_folder(tmp_path / "mine", "data") as draft:
        draft.facts.update({"pair": (1, 2), "by_number": {10: "ten", 2: "two"}, "small": 1e-300, "word": "żółw"})
    facts = open_folder(tmp_path / "mine", "data").facts
    assert facts["pair"] == [1, 2] and facts["by_number"] == {"10": "ten", "2": "two"} and facts["word"] == "żółw"


def test_a_changed_fact_is_noticed(tmp_path: Path) -> None:
    file = saved(tmp_path / "mine") / MANIFEST
    file.write_text(file.read_text().replace("42", "43"))
    with pytest.raises(FolderError, match="is damaged: it has changed since it was saved"):
        open_folder(tmp_path / "mine", "data")


def test_no_flipped_byte_of_a_manifest_changes_what_is_read(tmp_path: Path) -> None:
    file = saved(tmp_path / "mine") / MANIFEST
    whole, first = file.read_bytes(), open_folder(tmp_path / "mine", "data")
    for place in range(len(whole)):
        for bits in (0x01, 0x91):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ bits]) + whole[place + 1 :])
            try:
                found = open_folder(tmp_path / "mine", "data")
            except FolderError:
                continue
            assert found == first, place  # white space, at most


def test_a_lock_is_held_by_one_process_and_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    code = f"""
from pathlib import Path
from milrec.disk.locks import locked
with locked(Path({str(path)!r})) as mine:
    print(mine, flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "True\n"
        with locked(path) as mine:
            assert not mine
        other.kill()
    with locked(path) as mine:
        assert mine
        with locked(path) as again:
            assert not again, "nor twice by one process"
    assert path.exists()


def test_a_folder_is_put_in_place_of_another_as_windows_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows renames no folder to the place of an empty one: the place is made free first."""
    rename = Path.replace

    def strict(folder: Path, to: Path) -> Path:
        assert not Path(to).is_dir(), "refused by Windows"
        return rename(folder, to)

    monkeypatch.setattr("milrec.disk.files._WINDOWS", True)
    monkeypatch.setattr(Path, "replace", strict)
    (tmp_path / "mine").mkdir()
    for content in ("first", "second"):
        with new_folder(tmp_path / "mine", "data", replace=True) as draft:
            (draft.path / "file.txt").write_text(content)
        assert (tmp_path / "mine/file.txt").read_text() == content
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_manifest_of_a_folder_without_files_is_checked_too(tmp_path: Path) -> None:
    write_manifest(tmp_path, "run", {"title": "mine"}, files={})
    assert open_folder(tmp_path, "run").facts == {"title": "mine"}
    text = (tmp_path / MANIFEST).read_text()
    (tmp_path / MANIFEST).write_text(text.replace("mine", "yours"))
    with pytest.raises(FolderError, match="its hash differs"):
        open_folder(tmp_path, "run")
    (tmp_path / MANIFEST).write_text(text)
    change_manifest(tmp_path, facts={"title": "an older run, without a hash"})
    assert open_folder(tmp_path, "run").facts["title"].startswith("an older run")
