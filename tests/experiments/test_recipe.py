"""The recipes of the repository: each can be read, and the large data sets' formats run through them, made small."""

import tomllib
from pathlib import Path

import pytest

from commands import succeeds
from milrec.errors import SettingsError
from milrec.experiments.recipe import Instead, read_recipe, recipe_from
from milrec.results import Results
from small_archives import ml_20m

RECIPES = Path(__file__).parents[2] / "experiments"
PAPER = {
    "MF-square", "MF-CE", "MF-mil", "CE_Point lin-sig", "CE_Point sig-sig", "CE_Pair lin-sig", "CE_Pair sig-sig",
    "MULTI tanh-lin", "MIL lin-sig", "MIL sig-sig",
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_can_be_read(path, tmp_path):
    needs_test = "like_test = true" in path.read_text(encoding="utf-8")
    recipe = read_recipe(path, data=tmp_path, instead=Instead(test=tmp_path if needs_test else None))
    for entry in recipe.models:
        for places in entry.grid() or []:
            entry.chosen(entry.values(places))  # every value of the grid exists


def test_the_tables_have_the_models_of_the_paper(tmp_path):
    assert {entry.name for entry in read_recipe(RECIPES / "metrics.toml", tmp_path).models} > PAPER
    held_out = {entry.name for entry in read_recipe(RECIPES / "held-out-users.toml", tmp_path).models}
    assert held_out == {
        "Multi-VAE^PR", "Multi-DAE", "WMF", "SLIM", "CDAE", "EASE",
        "CE_Point lin-sig", "CE_Point sig-sig", "MIL lin-sig", "MIL sig-sig",
    }  # fmt: skip


def test_seeds_and_trials_of_a_recipe_may_be_replaced(tmp_path):
    recipe = read_recipe(RECIPES / "metrics.toml", tmp_path, Instead(seeds=[7], trials=2))
    assert recipe.seeds == [7] and recipe.search.trials == 2 and recipe.search.round == 4
    with pytest.raises(SettingsError, match="trials"):
        read_recipe(RECIPES / "metrics.toml", tmp_path, Instead(trials=0))
    with pytest.raises(SettingsError, match="the recipe has no model 'MILL'; its models are Popularity, WMF"):
        read_recipe(RECIPES / "metrics.toml", tmp_path, Instead(models=["MILL"]))


@pytest.mark.parametrize(
    ("archive", "recipe", "models"),
    [
        (
            ml_20m,
            "metrics",
            ["MF-square", "MF-CE", "CE_Point sig-sig", "CE_Pair lin-sig", "MULTI tanh-lin", "MIL lin-sig"],
        ),
        (ml_20m, "held-out-users", ["Multi-VAE^PR", "WMF", "SLIM", "CDAE", "EASE", "MIL sig-sig"]),
    ],
)  # test_paper.py has the archives of Netflix and Last.fm
def test_a_recipe_runs_on_an_archive_of_a_large_data_set_made_small(tmp_path, archive, recipe, models):
    only = [part for name in models for part in ("--only", name)]
    few = ["--data", "data", "--out", "run", "--seed", "0", "--trials", "1", *only]
    succeeds("prepare", archive(tmp_path), "--out", "data", cwd=tmp_path)
    succeeds("experiment", RECIPES / f"{recipe}.toml", *few, cwd=tmp_path)
    results = Results.read(tmp_path / "run")
    assert [model.name for model in results.models] == models and results.failures == ()
    assert all(model.evaluation.mean("ndcg@100") > 0.2 for model in results.models)
    assert "Beside the paper" in (tmp_path / "run/report.html").read_text()


def test_a_value_that_is_set_counts_more_than_one_that_a_run_chose(tmp_path):
    tuned = RECIPES.parent / "docs" / "results" / "metrics-ml-1m.json"
    found = read_recipe(RECIPES / "metrics.toml", tmp_path, Instead(tuned=tuned, values={"weight_decay": 0.123}))
    decays = [
        entry.chosen().training.weight_decay for entry in found.models if "weight_decay" in entry.chosen().known_keys()
    ]
    assert decays and set(decays) == {0.123}


def test_only_a_split_over_users_is_rounded():
    text = 'title = "x"\n[data.simulate]\n[split]\nrounding = "down"\n[[models]]\nname = "a"\n'
    with pytest.raises(SettingsError, match="rounding is for protocol 'users'"):
        recipe_from(tomllib.loads(text), "the recipe", Instead())


def test_only_a_test_part_that_is_given_can_be_resembled():
    text = 'title = "x"\n[data.simulate]\n[split]\nlike_test = true\n[[models]]\nname = "a"\n'
    with pytest.raises(SettingsError, match=r"\[split\] like_test needs a test part in \[data\]"):
        recipe_from(tomllib.loads(text), "the recipe", Instead())
    users = text.replace("like_test = true", 'like_test = true\nprotocol = "users"')
    with pytest.raises(SettingsError, match="like_test is for data with a test part, not for protocol 'users'"):
        recipe_from(tomllib.loads(users), "the recipe", Instead())
