"""Folders whose hashes are right and whose content is not: refused with one sentence, or used without a crash.

Every value of every manifest, of results.json and of a job's files is replaced by twenty wrong ones, and every Arrow
and safetensors file is overwritten in places. Here a sample of each is tried, the same in every run; set
MILREC_FORGERIES to the number that you want of each kind (all: a million).
"""

import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.feather as feather
import pytest

import made_up
import milrec
from commands import succeeds
from forging import WRONG, changed, places_in, reseal
from milrec.cli.output import measures_table, show_folder
from milrec.errors import FolderError, MilrecError
from milrec.experiments.recipe import read_recipe
from milrec.experiments.run import run as carry_out
from milrec.report.page import render
from milrec.results import Results
from milrec.storage import folder_kind, open_folder
from own_encoders import Gated

SAMPLE = int(os.environ.get("MILREC_FORGERIES", "30"))
MODELS = ("dae", "cdae", "vae", "mf", "ease", "ease-sparse", "slim", "wmf", "popularity", "gated", "without-users")
FOLDERS = ("data", "split", "split-users", "split-given", *MODELS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of each kind."""
    place = tmp_path_factory.mktemp("whole")
    data = milrec.simulate(milrec.Simulation(n_users=40, n_items=30, mean_shown=15), seed=0)
    data.save(place / "data")
    split = milrec.split_interactions(data, seed=0)
    split.save(place / "split")
    milrec.split_users(data, seed=0).save(place / "split-users")
    milrec.split_given(data, milrec.simulate(milrec.Simulation(40, 30, 15), seed=1), seed=0).save(place / "split-given")
    short = {"iterations": 4, "n_factors": 4, "validate_every": 2}
    for name in MODELS[:-2]:
        values = short if name in ("dae", "cdae", "vae", "mf") else {"n_factors": 4} if name == "wmf" else {}
        milrec.fit(split, name, **values).save(place / name)
    milrec.fit(split, Gated, **short).save(place / "gated")
    milrec.load(place / "dae").without_users().save(place / "without-users")
    return place


def use(folder: Path, split: milrec.Split) -> None:
    """Everything that somebody may do with a folder."""
    kind = folder_kind(folder)
    if kind is None:
        raise FolderError(f"'{folder}' is not a milrec folder")
    show_folder(open_folder(folder, kind))
    if kind == "data":
        milrec.split_interactions(milrec.Interactions.load(folder), seed=0)
    elif kind == "split":
        opened = milrec.Split.load(folder)
        opened.facts()
        milrec.fit(opened, "popularity").evaluate(opened)
    elif kind == "model":
        use_model(milrec.load(folder, models=[Gated]), split)


def use_model(model: milrec.Recommender, split: milrec.Split) -> None:
    items = model.item_ids
    model.recommend(model.user_ids[:2], n=3, reasons=1, dial=0.2) if model.fitted.train.has_users else None
    model.recommend_new(items[:2], n=3, reasons=1)
    model.find_items("a", 3)
    with contextlib.suppress(MilrecError):  # some models have nothing to compare
        model.similar_items(items[0], 3)
    model.evaluate(split)


def survives(what: Callable[[], object]) -> bool:
    """Whether it succeeds; it may also be refused with one sentence, and nothing else."""
    with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(overflow|invalid value|divide by zero)", RuntimeWarning)  # other figures
        try:
            what()
        except MilrecError as refusal:
            sentence: str | None = str(refusal)
        else:
            sentence = None
    assert sentence is None or ("\n" not in sentence and len(sentence) < 1000), sentence
    assert "\x1b" not in out.getvalue()
    return sentence is None


def sample(cases: list[Any], name: str) -> list[Any]:
    seed = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)
    return cases if len(cases) <= SAMPLE else random.Random(seed).sample(cases, SAMPLE)


def wrong_values(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The same value with something wrong in one place, many times over; with the hash of the place in the name."""
    cases = [(place, wrong) for place in places_in(value) for wrong in WRONG]
    for place, wrong in sample(cases, name):
        yield f"{'.'.join(map(str, place))}: {wrong}", changed(value, place, WRONG[wrong])


@pytest.mark.parametrize("name", FOLDERS)
def test_a_manifest_with_anything_in_it_is_refused_or_used(whole: Path, tmp_path: Path, name: str) -> None:
    split = milrec.Split.load(whole / "split")
    folder = shutil.copytree(whole / name, tmp_path / name)
    manifest = json.loads((folder / "milrec.json").read_text())
    assert survives(lambda: use(folder, split))
    del manifest["sha256"]
    for case, forged in wrong_values(manifest, name):
        reseal(folder, forged)
        try:
            survives(lambda: use(folder, split))
        except BaseException as error:
            error.add_note(case)
            raise


def overwritten(content: bytes, draw: random.Random) -> bytes:
    """A few bytes somewhere replaced: one bit, or a number of eight bytes that makes a bad length or offset."""
    forged = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(forged) - 8)
        if draw.random() < 0.5:
            forged[place] ^= 1 << draw.randrange(8)
        else:
            place -= place % 8
            number = draw.choice([2**45, -1, 2**31, 2**31 - 1, 0, 1, 2**62, -(2**63), draw.getrandbits(60)])
            forged[place : place + 8] = struct.pack("<q", number)
    return bytes(forged) if draw.random() < 0.9 else bytes(forged[: draw.randrange(len(forged))])


@pytest.mark.parametrize("name", FOLDERS)
def test_files_with_anything_in_them_are_refused_or_used(whole: Path, tmp_path: Path, name: str) -> None:
    split = milrec.Split.load(whole / "split")
    folder = shutil.copytree(whole / name, tmp_path / name)
    files = {path: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "milrec.json"}
    for number in range(SAMPLE):
        draw = random.Random(f"{name} {number}")
        path = draw.choice(sorted(files))
        path.write_bytes(overwritten(files[path], draw))
        reseal(folder)
        try:
            survives(lambda: use(folder, split))
        except BaseException as error:
            error.add_note(f"{path.name} {number}")
            raise
        path.write_bytes(files[path])


def test_offsets_far_beyond_the_end_of_a_file_are_refused(whole: Path, tmp_path: Path) -> None:
    """They were read, and ended the process with SIGSEGV or SIGBUS."""
    folder = shutil.copytree(whole / "dae", tmp_path / "model")
    content = (folder / "users.arrow").read_bytes()
    ids = milrec.load(folder).user_ids
    ends = [len(ids[0]), len(ids[0] + ids[1])]
    offsets = struct.pack("<qqq", 0, *ends)
    assert content.count(offsets) == 1
    for far in (2**45, 2**62, -1):
        (folder / "users.arrow").write_bytes(content.replace(offsets, struct.pack("<qqq", 0, far, ends[1])))
        reseal(folder)
        with pytest.raises(FolderError, match=r"users\.arrow' is not an Arrow file that can be used"):
            milrec.load(folder)


def small_results() -> dict[str, Any]:
    """Two models, one of them with two seeds, and one of everything else that a run may have."""
    value = made_up.the_papers_run(seeds=2).as_json()
    value["models"] = [one for one in value["models"] if one["name"] in ("Popularity", "MIL lin-sig")]
    value["searches"] = value["searches"][:1]
    value["comparisons"] = {measure: made[:1] for measure, made in value["comparisons"].items()}
    return value


def test_results_with_anything_in_them_are_refused_or_reported(tmp_path: Path) -> None:
    path = tmp_path / "results.json"

    def report() -> None:
        results = Results.read(path)
        measures_table(results)
        render(results)

    for case, forged in wrong_values(small_results(), "results"):
        path.write_text(json.dumps(forged))
        try:
            survives(report)
        except BaseException as error:
            error.add_note(case)
            raise


RECIPE = """
title = "two seeds"
seeds = [0, 1]
[data]
path = "data"
[[models]]
name = "MIL"
loss = "mil"
settings = { iterations = 4, n_factors = 4, validate_every = 2 }
"""


class Quiet:
    """Watches a run, and says nothing."""

    def stage(self, text: str) -> None: ...
    def progress(self, job: object, event: object) -> None: ...
    def ended(self, job: object, outcome: object) -> None: ...


def no_process(*arguments: object) -> None:
    raise FolderError("a job would be done again")


@pytest.fixture(scope="module")
def finished(whole: Path) -> Path:
    """A run with two jobs."""
    (whole / "recipe.toml").write_text(RECIPE)
    succeeds("experiment", "recipe.toml", "--out", "run", "--jobs", "1", cwd=whole)
    return whole / "run"


@pytest.mark.parametrize("file", ["milrec.json", "jobs/mil-seed0/result.json", "jobs/mil-seed0/job.json"])
def test_a_run_with_anything_in_its_files_is_refused_or_shown_and_resumed(
    whole: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr("milrec.experiments.pool.JobProcess", no_process)
    folder = shutil.copytree(finished, tmp_path / "run")
    recipe = read_recipe(whole / "recipe.toml")
    content = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def resume() -> None:
        carry_out(recipe, folder, Quiet())

    assert survives(lambda: show_folder(open_folder(folder, "run"))) and survives(resume)
    value = json.loads((finished / file).read_text())
    value.pop("sha256", None)
    for case, forged in wrong_values(value, file):
        if file == "milrec.json":
            reseal(folder, forged)
        else:
            (folder / file).write_text(json.dumps(forged))
        try:
            survives(lambda: show_folder(open_folder(folder, folder_kind(folder) or "run")))
            survives(resume)
        except BaseException as error:
            error.add_note(case)
            raise
        for path, before in content.items():
            if not path.exists() or path.read_bytes() != before:
                path.write_bytes(before)


def test_measures_of_single_users_with_anything_in_them_are_refused_or_compared(
    whole: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milrec.experiments.pool.JobProcess", no_process)
    folder = shutil.copytree(finished, tmp_path / "run")
    recipe, path = read_recipe(whole / "recipe.toml"), folder / "jobs/mil-seed0/per_user.parquet"
    content = path.read_bytes()
    for number in range(SAMPLE):
        path.write_bytes(overwritten(content, random.Random(f"per user {number}")))
        try:
            survives(lambda: carry_out(recipe, folder, Quiet()))
        except BaseException as error:
            error.add_note(str(number))
            raise


def test_an_arrow_file_that_unpacks_to_more_than_it_is_gets_refused(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(whole / "ease", folder)
    items = feather.read_table(folder / "items.arrow")
    for compression in ("zstd", "lz4"):
        feather.write_feather(items, folder / "items.arrow", compression=compression)
        reseal(folder)
        with pytest.raises(FolderError, match="it is compressed, which milrec's own files are not"):
            milrec.load(folder)
    for content in (b"", b"ARROW1", b"ARROW1" * 9, b"\xff" * 60 + b"ARROW1"):
        (folder / "items.arrow").write_bytes(content)
        reseal(folder)
        with pytest.raises(FolderError, match="is not an Arrow file that can be used"):
            milrec.load(folder)
