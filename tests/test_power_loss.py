"""The power fails at any moment: what is on the disk then is the old or the new, whole, and never neither.

A library in C (power_loss.c) sees the system calls of a real command. After each of them that matters two disks are
put together: one that has written down nothing but what was synced, and one on which every change of a name arrived
at once, and the content of files only where it was synced.
"""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import made_up
import milrec
from milrec.errors import FolderError
from milrec.storage import bring_back, folder_kind, open_folder, read_json
from milrec.training.checkpoints import _read_whole

SOURCE = Path(__file__).with_name("power_loss.c")


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("no C compiler for Linux, to build the library that sees what is synced")
    library = tmp_path_factory.mktemp("shim") / "power_loss.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)
    return library


Tree = dict[str, tuple[str, str]]  # each path below the root → its kind and its inode
Picture = dict[str, bytes | None]  # each path → the content of a file; None for a folder


@dataclass
class Disk:
    """What is known to last. An inode is known by its number and by how often that number was given to another."""

    root: str
    content: dict[str, bytes] = field(default_factory=dict)  # of files, by inode
    names: dict[str, Tree] = field(default_factory=dict)  # in folders, by inode
    lives: Counter[str] = field(default_factory=Counter)

    @classmethod
    def before(cls, root: Path) -> "Disk":
        """Everything that is there before a command lasts."""
        disk = cls(str(root.stat().st_ino))
        tree: Tree = {}
        for path in sorted(root.rglob("*")):
            inode = str(path.stat().st_ino)
            tree[os.path.relpath(path, root)] = ("folder" if path.is_dir() else "file", inode)
            if path.is_file():
                disk.content[disk.life(inode)] = path.read_bytes()
        for inode in [disk.root, *(inode for kind, inode in tree.values() if kind == "folder")]:
            disk.keep_names(inode, tree)
        return disk

    def life(self, inode: str) -> str:
        return f"{inode}.{self.lives[inode]}"

    def keep_names(self, inode: str, tree: Tree) -> None:
        folder = next((path for path, (_, one) in tree.items() if one == inode), ".")
        inner = {path: found for path, found in tree.items() if str(Path(path).parent) == folder}
        self.names[self.life(inode)] = {Path(path).name: (kind, self.life(one)) for path, (kind, one) in inner.items()}

    def names_at_once(self, tree: Tree) -> Picture:
        """Every change of a name has arrived, and of the content of files what was synced."""
        return {
            path: None if kind == "folder" else self.content.get(self.life(inode), b"")
            for path, (kind, inode) in tree.items()
        }

    def only_synced(self, folder: str, path: str = "") -> Picture:
        picture: Picture = {}
        for name, (kind, inode) in self.names.get(folder, {}).items():
            place = f"{path}{name}"
            picture[place] = None if kind == "folder" else self.content.get(inode, b"")
            if kind == "folder":
                picture |= self.only_synced(inode, f"{place}/")
        return picture


def pictures(disk: Disk, store: Path, root: Path) -> Iterator[tuple[str, Picture]]:
    """After each event, what each of the two disks holds."""
    for number, line in enumerate((store / "events").read_text().splitlines()):
        what, inode = line.split()
        tree = listing(store / f"{number}.tree", root)
        if what == "sync-file":
            disk.content[disk.life(inode)] = (store / f"{number}.content").read_bytes()
        elif what == "sync-folder":
            disk.keep_names(inode, tree)
        elif what in ("remove", "rename"):
            disk.lives[inode] += 1
        yield f"{number}: {what}, names at once", disk.names_at_once(tree)
        yield f"{number}: {what}, only what was synced", disk.only_synced(disk.life(disk.root))


def listing(tree: Path, root: Path) -> Tree:
    lines = (line.split("\t") for line in tree.read_text().splitlines())
    return {os.path.relpath(path, root): (kind, inode) for kind, inode, path in lines}


def built(picture: Picture, place: Path) -> Path:
    """The disk as a folder."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for path, content in sorted(picture.items()):
        if content is None:
            (place / path).mkdir(parents=True, exist_ok=True)
        else:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(content)
    return place


def facts_of(place: Path, name: str) -> dict | None:
    """What a folder says, checked in full; None if there is none."""
    bring_back(place / name)
    if not (place / name).exists():
        return None
    return open_folder(place / name, folder_kind(place / name) or "milrec").facts


def run_watched(shim: Path, root: Path, store: Path, *arguments: object, deaf: bool = False) -> None:
    """A command of milrec in `root`, with the library watching."""
    store.mkdir()
    environment = {
        **os.environ,
        "LD_PRELOAD": str(shim),
        "SHIM_ROOT": str(root),
        "SHIM_STORE": str(store),
        **({"SHIM_DEAF": "1"} if deaf else {}),
    }
    command = [sys.executable, "-m", "milrec", *map(str, arguments)]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a split of it, and the report of a run."""
    folder = tmp_path_factory.mktemp("work")
    data = milrec.simulate(milrec.Simulation(n_users=40, n_items=30, mean_shown=15), seed=0)
    data.save(folder / "data")
    milrec.split_interactions(data, seed=1).save(folder / "split")
    made_up.the_papers_run(seeds=1).write(folder / "results.json")
    (folder / "report.html").write_text("an older report")
    return folder


def after_a_cut(
    shim: Path, work: Path, tmp_path: Path, *arguments: object, deaf: bool = False
) -> Iterator[tuple[str, Path]]:
    """The folder as it would be after a power cut at any moment of a command; the last one: after its end."""
    root = shutil.copytree(work, tmp_path / "root")
    disk = Disk.before(root)
    run_watched(shim, root, tmp_path / "store", *arguments, deaf=deaf)
    n_pictures = 0
    for when, picture in pictures(disk, tmp_path / "store", root):
        n_pictures += 1
        yield when, built(picture, tmp_path / "cut")
    assert n_pictures > 8, "the library has seen the command at work"


def test_a_folder_that_is_replaced_is_the_old_or_the_new_one(shim: Path, work: Path, tmp_path: Path) -> None:
    seeds = []
    for when, place in after_a_cut(shim, work, tmp_path, "split", "data", "--out", "split", "--seed", 2, "--force"):
        facts = facts_of(place, "split")
        assert facts is not None, when
        seeds.append(facts["seed"])
        assert facts_of(place, "data") is not None
    assert set(seeds) == {1, 2} and seeds[-1] == 2 and facts_of(tmp_path / "cut", "split") is not None


def test_a_new_folder_is_whole_or_not_there_and_lasts_once_the_command_has_ended(
    shim: Path, work: Path, tmp_path: Path
) -> None:
    found = [
        facts_of(place, "deep/new") is not None
        for _, place in after_a_cut(shim, work, tmp_path, "split", "data", "--out", "deep/new")
    ]
    for one in (found[::2], found[1::2]):  # the two disks in turn
        assert one == sorted(one) and not one[0] and one[-1]


def test_a_file_that_is_replaced_is_the_old_or_the_new_one(shim: Path, work: Path, tmp_path: Path) -> None:
    sizes = []
    for when, place in after_a_cut(shim, work, tmp_path, "report", "results.json"):
        text = (place / "report.html").read_text()
        assert text == "an older report" or text.endswith("</html>"), when
        sizes.append(len(text))
        read_json(place / "results.json")
    assert len(set(sizes)) == 2 and sizes[-1] == sizes[-2] > 1000


def test_a_checkpoint_can_be_resumed_from_whenever_the_power_fails(shim: Path, work: Path, tmp_path: Path) -> None:
    short = ("--set", "iterations=4", "--set", "n_factors=4", "--set", "checkpoint_seconds=0")
    seen = set()
    for _, place in after_a_cut(shim, work, tmp_path, "fit", "split", "--out", "model", *short):
        checkpoint = place / "model.partial" / "checkpoint.safetensors"
        seen.add((checkpoint.exists(), facts_of(place, "model") is not None))
        if checkpoint.exists():
            _read_whole(checkpoint)
    assert seen >= {(False, False), (True, False), (True, True), (False, True)}
    assert facts_of(tmp_path / "cut", "model") is not None


def test_without_any_sync_the_pictures_show_the_loss(shim: Path, work: Path, tmp_path: Path) -> None:
    """The test of the tests: where nothing is synced, a folder is damaged or does not last."""
    lost = False
    for _, place in after_a_cut(shim, work, tmp_path, "split", "data", "--out", "new", deaf=True):
        try:
            lost |= facts_of(place, "new") is None
        except FolderError:
            return
    assert lost, "a folder of empty files was not noticed"
    pytest.fail("no picture shows a damaged folder")
