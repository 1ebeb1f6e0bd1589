"""Model folders: what is saved comes back the same, and what was tampered with is refused and never executed."""

import hashlib
import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import milrec
from milrec.errors import FolderError
from milrec.training.artifact import Fitted

WEIGHTS = "weights.safetensors"
FILES = ["adopted.arrow", "items.arrow", "rejected.arrow", "removed.arrow", "truth.safetensors", "users.arrow", WEIGHTS]


@pytest.fixture(scope="module")
def split(small_catalogue):
    return milrec.split_interactions(small_catalogue, seed=0)


@pytest.fixture(scope="module")
def recommender(split):
    return milrec.fit(split, "dae", "mil", n_factors=8, epochs=2)


@pytest.fixture(scope="module")
def saved(recommender, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model"
    recommender.save(path)
    return path


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    """A copy of the saved model, to be damaged."""
    return shutil.copytree(saved, tmp_path / "model")


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / "milrec.json").read_text(encoding="utf-8"))


def write_manifest(folder: Path, manifest: dict) -> None:
    manifest.pop("sha256", None)  # vouched for by nobody, as in the first folders
    (folder / "milrec.json").write_text(json.dumps(manifest), encoding="utf-8")


def vouch(folder: Path, name: str) -> None:
    """Make the manifest say that the file is the one that was saved."""
    manifest, content = manifest_of(folder), (folder / name).read_bytes()
    manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    write_manifest(folder, manifest)


def flip(file: Path, place: float) -> None:
    content = bytearray(file.read_bytes())
    content[int(place * (len(content) - 1))] ^= 0xFF
    file.write_bytes(content)


class Payload:
    """A pickle that creates a file when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


@pytest.mark.parametrize(
    ("model", "loss"), [("dae", "mil"), ("dae", "multinomial"), ("mf", "pointwise"), ("popularity", None)]
)
def test_a_saved_model_gives_exactly_the_same_lists(split, tmp_path, model, loss):
    values = {} if model == "popularity" else {"n_factors": 8, "epochs": 2}
    before = milrec.fit(split, model, loss, seed=3, **values)
    before.save(tmp_path / "model")
    after = milrec.load(tmp_path / "model")
    users = before.user_ids
    assert after.recommend(users, n=30).equals(before.recommend(users, n=30))
    adopted = before.item_ids[:4]
    assert after.recommend_new(adopted, n=30).equals(before.recommend_new(adopted, n=30))
    assert after.evaluate(split).as_json() == before.evaluate(split).as_json()


def test_what_a_model_was_fitted_with_comes_back(recommender, saved):
    before, after = recommender.fitted, Fitted.load(saved)
    assert (after.settings, after.seed, after.history) == (before.settings, before.seed, before.history)
    assert after.train.fingerprint() == before.train.fingerprint() == after.facts["train_fingerprint"]
    assert (after.removed != before.removed).nnz == 0


def test_saving_a_loaded_model_writes_the_same_files(saved, tmp_path):
    milrec.load(saved).save(tmp_path / "again")
    assert manifest_of(tmp_path / "again")["files"] == manifest_of(saved)["files"]


def test_a_model_folder_holds_what_is_known_and_nothing_else(saved):
    assert sorted(file.name for file in saved.iterdir()) == sorted([*FILES, "milrec.json"])


@pytest.mark.parametrize("place", [0, 0.5, 1])
@pytest.mark.parametrize("name", [*FILES, "milrec.json"])
def test_a_flipped_byte_is_refused(folder, name, place):
    flip(folder / name, place)
    with pytest.raises(FolderError):
        milrec.load(folder)


@pytest.mark.parametrize("name", [*FILES, "milrec.json"])
def test_a_missing_file_is_refused(folder, name):
    (folder / name).unlink()
    with pytest.raises(FolderError, match=name):
        milrec.load(folder)


@pytest.mark.parametrize("name", [name for name in FILES if name != "truth.safetensors"])
def test_a_file_that_the_manifest_does_not_vouch_for_is_refused(folder, name):
    manifest = manifest_of(folder)
    del manifest["files"][name]
    write_manifest(folder, manifest)
    with pytest.raises(FolderError, match=name):
        milrec.load(folder)


@pytest.mark.parametrize("vouched", [False, True], ids=["old manifest", "manifest made to match"])
@pytest.mark.parametrize("writer", ["pickle", "torch"])
@pytest.mark.parametrize("name", [WEIGHTS, "truth.safetensors", "adopted.arrow", "items.arrow"])
def test_a_pickle_in_place_of_a_file_is_refused_and_not_executed(folder, tmp_path, name, writer, vouched):
    marker = tmp_path / "executed"
    if writer == "pickle":
        (folder / name).write_bytes(pickle.dumps(Payload(marker)))
        pickle.loads((folder / name).read_bytes())
        assert marker.exists(), "the payload is meant to work"
        marker.unlink()
    else:
        torch.save({"encoder_weight": Payload(marker)}, folder / name)
    if vouched:
        vouch(folder, name)
    with pytest.raises(FolderError, match=name):
        milrec.load(folder)
    assert not marker.exists()


def test_a_newer_format_version_is_refused(folder):
    write_manifest(folder, {**manifest_of(folder), "version": 3})
    with pytest.raises(FolderError, match=r"version 3.*upgrade"):
        milrec.load(folder)


def test_another_kind_of_folder_is_refused(split, tmp_path):
    split.save(tmp_path / "split")
    with pytest.raises(FolderError, match="is a split folder; a model folder is needed"):
        milrec.load(tmp_path / "split")


def changed_weights(change):
    def write(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        weights = change({name: value.clone() for name, value in weights.items()})
        save_file({name: value.contiguous() for name, value in weights.items()}, folder / WEIGHTS)

    return write


@pytest.mark.parametrize(
    "change",
    [
        lambda weights: {**weights, "decoder_weight": weights["decoder_weight"][:, :-1]},
        lambda weights: {**weights, "decoder_weight": weights["decoder_weight"][:-1]},
        lambda weights: {**weights, "decoder_bias": weights["decoder_bias"][:, None]},
        lambda weights: {**weights, "extra": torch.zeros(1)},
        lambda weights: {name: value for name, value in weights.items() if name != "encoder_bias"},
        lambda weights: {**weights, "decoder_bias": weights["decoder_bias"].double()},
        lambda weights: {
            **weights,
            "decoder_bias": weights["decoder_bias"].index_fill(0, torch.tensor([3]), torch.nan),
        },
        lambda weights: {**weights, "encoder_weight": weights["encoder_weight"] / 0},
    ],
    ids=["narrower", "fewer items", "another rank", "extra", "missing", "double", "one nan", "infinite"],
)
def test_weights_that_do_not_fit_are_refused_even_when_the_manifest_vouches_for_them(folder, change):
    changed_weights(change)(folder)
    vouch(folder, WEIGHTS)
    with pytest.raises(FolderError, match=WEIGHTS):
        milrec.load(folder)


@pytest.mark.parametrize("key", ["settings", "seed", "history"])
@pytest.mark.parametrize("value", ["nonsense", {"unknown": 1}, [1]])
def test_facts_that_are_not_understood_are_refused(folder, key, value):
    manifest = manifest_of(folder)
    manifest["facts"][key] = value
    write_manifest(folder, manifest)
    with pytest.raises(FolderError, match="does not understand"):
        milrec.load(folder)


def test_a_manifest_without_facts_is_refused(folder):
    write_manifest(folder, {**manifest_of(folder), "facts": {}})
    with pytest.raises(FolderError):
        milrec.load(folder)


def test_a_model_is_not_written_over_without_leave(recommender, folder):
    with pytest.raises(FolderError, match="already holds a model folder"):
        recommender.save(folder)
    recommender.save(folder, replace=True)
    assert milrec.load(folder).item_ids == recommender.item_ids


@pytest.mark.parametrize("change", ["adopted", "rejected", "ids"])
def test_the_fingerprint_of_a_training_part_tells_it_from_others(small_catalogue, change):
    everybody, everything = slice(None), torch.ones(small_catalogue.n_items, dtype=torch.bool).numpy()
    users = torch.ones(small_catalogue.n_users, dtype=torch.bool).numpy()
    same = small_catalogue.subset(users, everything)
    assert same.fingerprint() == small_catalogue.fingerprint()
    if change == "ids":
        swapped = small_catalogue.items.take(list(reversed(range(small_catalogue.n_items))))
        other = type(same)(same.adopted, same.rejected, same.users, swapped)
    else:
        part = {"adopted": same.adopted, "rejected": same.rejected}
        part[change] = part[change][everybody].copy()
        part[change].data[0] += 1
        other = type(same)(**part, users=same.users, items=same.items)
    assert other.fingerprint() != small_catalogue.fingerprint()
