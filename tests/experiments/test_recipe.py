"""The recipes of the repository: each can be read, and the large data sets' formats run through them, made small."""

from pathlib import Path

import numpy as np
import pytest

from commands import succeeds
from data.test_archives import as_zip, lastfm_line, lastfm_targz, tar_bytes
from milrec.errors import SettingsError
from milrec.experiments.recipe import Instead, read_recipe
from milrec.results import Results

RECIPES = Path(__file__).parents[2] / "experiments"
PAPER = {
    "MF-square", "MF-CE", "MF-mil", "CE_Point lin-sig", "CE_Point sig-sig", "CE_Pair lin-sig", "CE_Pair sig-sig",
    "MULTI tanh-lin", "MIL lin-sig", "MIL sig-sig",
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_can_be_read(path, tmp_path):
    recipe = read_recipe(path, data=tmp_path)
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


# The large data sets are not available here: small archives of the same format stand in for them.


def pairs() -> list[tuple[int, int]]:
    """130 users of two tastes, each with about half of 50 items."""
    random = np.random.default_rng(0)
    taste = (np.arange(130)[:, None] % 2) == (np.arange(50)[None, :] % 2)
    return [(int(user), int(item)) for user, item in np.argwhere(random.random((130, 50)) < np.where(taste, 0.8, 0.3))]


def ml_20m(folder: Path) -> Path:
    ratings = "".join(f"{user + 1},{item + 1},4.5,1112486027\n" for user, item in pairs())
    movies = "".join(f"{item + 1},Movie {item} (1999),Drama\n" for item in range(50))
    files = {
        "ml-20m/ratings.csv": ("userId,movieId,rating,timestamp\n" + ratings).encode(),
        "ml-20m/movies.csv": ("movieId,title,genres\n" + movies).encode(),
    }
    return as_zip(folder / "ml-20m", files)


def netflix(folder: Path) -> Path:
    blocks: dict[int, str] = {item: f"{item + 1}:\n" for item in range(50)}
    for user, item in pairs():
        blocks[item] += f"{user + 1},5,2005-09-06\n"
    inner = tar_bytes({f"training_set/mv_{item + 1:07d}.txt": text.encode() for item, text in blocks.items()})
    titles = "".join(f"{item + 1},2003,Movie {item}\n" for item in range(50)).encode()
    outer = {"download/training_set.tar": inner, "download/movie_titles.txt": titles}
    archive = folder / "nf_prize_dataset.tar.gz"
    archive.write_bytes(tar_bytes(outer, "gz"))
    return archive


def lastfm(folder: Path) -> Path:
    lines = (lastfm_line(f"{user:040x}", f"{item:036x}", f"artist {item}", 1 + item) for user, item in pairs())
    return lastfm_targz(folder / "lastfm", b"".join(lines))


@pytest.mark.parametrize(
    ("archive", "recipe", "models"),
    [
        (
            ml_20m,
            "metrics",
            ["MF-square", "MF-CE", "CE_Point sig-sig", "CE_Pair lin-sig", "MULTI tanh-lin", "MIL lin-sig"],
        ),
        (ml_20m, "held-out-users", ["Multi-VAE^PR", "WMF", "SLIM", "CDAE", "EASE", "MIL sig-sig"]),
        (netflix, "rank-evolution", ["CE_Point lin-sig", "MULTI tanh-lin", "MIL lin-sig"]),
        (lastfm, "top-200-shares", ["CE_Point lin-sig", "MULTI tanh-lin", "MIL lin-sig"]),
    ],
)
def test_a_recipe_runs_on_an_archive_of_a_large_data_set_made_small(tmp_path, archive, recipe, models):
    only = [part for name in models for part in ("--only", name)]
    few = ["--data", "data", "--out", "run", "--seed", "0", "--trials", "1", *only]
    succeeds("prepare", archive(tmp_path), "--out", "data", cwd=tmp_path)
    succeeds("experiment", RECIPES / f"{recipe}.toml", *few, cwd=tmp_path)
    results = Results.read(tmp_path / "run")
    assert [model.name for model in results.models] == models and results.failures == ()
    assert all(model.evaluation.mean("ndcg@100") > 0.2 for model in results.models)
    assert "Beside the paper" in (tmp_path / "run/report.html").read_text()
