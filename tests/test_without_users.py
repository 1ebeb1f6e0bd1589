"""A model folder without its users: nothing about any of them is in it, and everything else works."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pytest

import milrec
from commands import milrec as command
from commands import succeeds
from forging import reseal
from milrec.errors import DataError, FolderError, SettingsError, UnknownIdError
from milrec.server.copies import Folders
from milrec.server.model import load_served
from own_encoders import Gated

SHORT = {"iterations": 4, "n_factors": 4}
FILES = ["adopters.arrow", "items.arrow", "milrec.json", "weights.safetensors"]


@pytest.fixture(scope="module")
def split() -> milrec.Split:
    """Users have ids that can be looked for in files."""
    data = milrec.simulate(milrec.Simulation(n_users=60, n_items=40, mean_shown=15), seed=0)
    renamed = data.users.set_column(0, "id", [[f"secret-{number:03}" for number in range(data.n_users)]])
    users = renamed.cast(data.users.schema)
    return milrec.split_interactions(
        milrec.Interactions(data.adopted, data.rejected, users, data.items, data.truth), seed=0
    )


@pytest.fixture(scope="module")
def work(split: milrec.Split, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    split.save(folder / "split")
    settings = ("--set", "iterations=4", "--set", "n_factors=4")
    succeeds("fit", "split", "--out", "whole", *settings, cwd=folder)
    succeeds("fit", "split", "--out", "model", *settings, "--without-users", cwd=folder)
    return folder


def test_the_folder_holds_items_their_adopters_and_weights_and_nothing_about_users(work: Path) -> None:
    assert sorted(path.name for path in (work / "model").iterdir()) == FILES
    content = b"".join(path.read_bytes() for path in (work / "model").iterdir())
    assert b"secret-" not in content
    assert b"secret-" in b"".join(path.read_bytes() for path in (work / "whole").iterdir())
    adopters = feather.read_table(work / "model" / "adopters.arrow")
    assert adopters["adopters"].to_pylist() == milrec.load(work / "whole").catalogue.popularity.tolist()


def test_new_users_get_the_same_lists(work: Path) -> None:
    whole, model = milrec.load(work / "whole"), milrec.load(work / "model")
    items = whole.item_ids
    for wishes in ({}, {"reasons": 2}, {"dial": 0.3}, {"rules": ["long >= 30%"]}):
        assert model.recommend_new(items[:4], items[5:6], 8, **wishes) == whole.recommend_new(
            items[:4], items[5:6], 8, **wishes
        )
    assert model.similar_items(items[3], 5).column_names[-1] == "own"  # nobody's items say which go together
    assert model.find_items("a", 5) == whole.find_items("a", 5)
    assert model.user_ids == [] and model.find_users("secret") == []
    assert repr(model) == f"<Recommender: dae with mil, without users, {len(items)} items>"


def test_it_is_judged_on_its_split_like_the_whole_model(work: Path, split: milrec.Split) -> None:
    whole, model = milrec.load(work / "whole"), milrec.load(work / "model")
    assert model.evaluate(split).measures == whole.evaluate(split).measures


SENTENCE = "the model was saved without its users; give adopted items instead"


def test_a_known_user_is_refused_with_one_sentence(work: Path, split: milrec.Split) -> None:
    model = milrec.load(work / "model")
    for ask in (
        lambda: model.recommend(["secret-001"]),
        lambda: model.user_items("secret-001"),
        lambda: list(model.recommend_all()),
        lambda: model.ask(milrec.Query("secret-001")),
    ):
        with pytest.raises(UnknownIdError, match=SENTENCE):
            ask()
    with pytest.raises(
        DataError, match="saved without its users, so their known items cannot be left out; omit `known`"
    ):
        model.leaving_out(split.train)


def test_the_commands_work_for_new_users_and_refuse_known_ones(work: Path) -> None:
    succeeds("recommend", "model", "--adopted", milrec.load(work / "model").item_ids[0], cwd=work)
    succeeds("items", "model", cwd=work)
    succeeds("similar", "model", milrec.load(work / "model").item_ids[0], cwd=work)
    succeeds("evaluate", "model", "split", cwd=work)
    shown = succeeds("show", "model", cwd=work).stdout
    assert "adopters.arrow" in shown and "secret" not in shown
    for arguments in (("--user", "secret-001"), ("--all", "--out", "lists.csv")):
        done = command("recommend", "model", *arguments, cwd=work)
        assert (done.returncode, done.stderr.strip()) == (1, f"milrec: {SENTENCE}")
    assert not (work / "lists.csv").exists()


def test_it_is_served(work: Path) -> None:
    folders = Folders({name: work / name for name in ("model", "whole")})
    served, whole = (load_served(name, folders.take(name)) for name in folders.names)
    assert served.facts()["n_users"] == 0
    for same in ("n_items", "n_interactions", "intervals"):
        assert served.facts()[same] == whole.facts()[same]
    assert served.find_users("s", 5) == []


@pytest.mark.parametrize("model", ["mf", "wmf", "cdae"])
def test_models_with_weights_for_each_user_are_refused(
    split: milrec.Split, work: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = milrec.fit(split, model, **(SHORT if model != "wmf" else {"n_factors": 4}))
    with pytest.raises(SettingsError, match=f"a model '{model}' has weights for each user, so there is no"):
        fitted.without_users()

    def never(*arguments: object, **values: object) -> None:
        raise AssertionError("it was fitted first")

    monkeypatch.setattr("milrec.fits.fit", never)
    done = command("fit", "split", "--out", "no", "--model", model, "--without-users", cwd=work)
    assert done.returncode == 1 and "there is no --without-users for it" in done.stderr
    assert done.stderr.count("\n") == 1 and not list(work.glob("no*"))


@pytest.mark.parametrize("model", ["dae", "vae", "ease", "ease-sparse", "slim", "popularity", "gated"])
def test_every_other_model_can_be_kept_without_users(split: milrec.Split, tmp_path: Path, model: str) -> None:
    values = SHORT if model in ("dae", "vae", "gated") else {}
    fitted = milrec.fit(split, Gated if model == "gated" else model, **values)
    fitted.without_users().save(tmp_path / "model")
    again = milrec.load(tmp_path / "model", models=[Gated])
    items = fitted.item_ids
    assert again.recommend_new(items[:3], n=5) == fitted.recommend_new(items[:3], n=5)
    again.without_users().save(tmp_path / "again")
    assert (tmp_path / "again" / "adopters.arrow").read_bytes() == (tmp_path / "model" / "adopters.arrow").read_bytes()
    facts = [json.loads((tmp_path / name / "milrec.json").read_text())["facts"] for name in ("model", "again")]
    assert facts[0] == facts[1] and facts[0]["users"] == split.train.n_users


def test_the_format_version_says_that_older_versions_cannot_read_it(work: Path) -> None:
    versions = [json.loads((work / name / "milrec.json").read_text())["version"] for name in ("whole", "model")]
    assert versions == [1, 2]


def test_a_fit_without_users_resumes_and_is_not_mistaken_for_one_with_them(work: Path) -> None:
    settings = ("--set", "iterations=4", "--set", "n_factors=4", "--resume")
    done = succeeds("fit", "split", "--out", "model", *settings, "--without-users", cwd=work)
    assert "already fitted" in done.stdout
    assert "with other data, settings or seed" in command("fit", "split", "--out", "model", *settings, cwd=work).stderr
    other = command("fit", "split", "--out", "whole", *settings, "--without-users", cwd=work)
    assert "with other data, settings or seed" in other.stderr


@pytest.mark.parametrize(("column", "number", "short"), [("adopters", 1, 1), ("adopters", -1, 0), ("other", 1, 0)])
def test_impossible_numbers_of_adopters_are_refused(
    work: Path, tmp_path: Path, column: str, number: int, short: int
) -> None:
    folder = shutil.copytree(work / "model", tmp_path / "model")
    n_items = len(milrec.load(folder).item_ids)
    table = pa.table({column: [number] * (n_items - short)})
    feather.write_feather(table, folder / "adopters.arrow", compression="uncompressed")
    reseal(folder)
    with pytest.raises(FolderError, match=r"adopters\.arrow'"):
        milrec.load(folder)
