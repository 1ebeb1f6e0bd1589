"""Recipes: what they may say, and runs that are stopped and resumed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
from optuna.storages.journal import JournalFileBackend

import milrec
from milrec.disk.locks import locked
from milrec.errors import FolderError, MilrecError, SettingsError
from milrec.experiments.recipe import Instead, Recipe, demo_recipe, read_recipe
from milrec.experiments.run import run
from milrec.results import Results
from milrec.storage import open_folder, write_manifest
from pausing import held

pytestmark = pytest.mark.xdist_group("experiment")  # one worker: what it sets up takes long

RECIPE = """
title = "two models"
seeds = [0, 1]
[data.simulate]
users = 150
items = 80
seed = 1
[[models]]
name = "Popularity"
model = "popularity"
[[models]]
name = "MIL"
loss = "mil"
settings = { epochs = 4, n_factors = 8, checkpoint_seconds = 0 }
"""


class Quiet:
    """A watcher that remembers how the jobs ended."""

    def __init__(self):
        self.stages, self.done = [], []

    def stage(self, text):
        self.stages.append(text)

    def progress(self, job, event):
        pass

    def ended(self, job, outcome):
        self.done.append((job.title, outcome.state))


def written(tmp_path: Path, text: str = RECIPE) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def timeless(results: Results) -> dict:
    """Results as JSON, without times and memory."""
    kept = results.as_json()
    kept.pop("finished")
    for model in kept["models"]:
        model.pop("fit_seconds")
        model.pop("peak_memory_mib")
        model.pop("threads")
        if model["history"]:
            model["history"].pop("seconds")
    return kept


SEARCHED = (
    RECIPE
    + """
[[models]]
name = "Searched"
loss = "mil"
settings = { epochs = 4, validate_every = 2, n_factors = 8, checkpoint_seconds = 0, patience = 0 }
[models.search]
weight_decay = { low = 1e-6, high = 1e-2, log = true }
"missing_weight, missing_exponent" = [[1e3, 4], [1e6, 10]]
[search]
trials = 4
round = 2
"""
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An unbroken run: its recipe, its folder and its results."""
    folder = tmp_path_factory.mktemp("whole")
    recipe, watcher = written(folder, SEARCHED), Quiet()
    results = run(read_recipe(recipe), folder / "run", watcher, at_once=1)
    return SimpleNamespace(recipe=recipe, folder=folder / "run", results=results, ended=watcher.done)


def test_a_run_fits_every_model_with_every_seed(whole):
    models = [(model.name, model.seed) for model in whole.results.models]
    assert models == [("Popularity", 0), ("MIL", 0), ("MIL", 1), ("Searched", 0), ("Searched", 1)], (
        "popularity does not depend on the seed"
    )
    ended = [("MIL, seed 0", "done"), ("MIL, seed 1", "done"), ("Popularity, seed 0", "done")]
    assert sorted(one for one in whole.ended if not one[0].startswith("Searched")) == ended
    assert whole.results.failures == () and [one.name for one in whole.results.searches] == ["Searched"]
    assert whole.results == Results.read(whole.folder)
    assert whole.results.as_json() == json.loads((whole.folder / "results.json").read_text())


def test_models_are_compared_user_by_user(whole):
    compared = whole.results.comparisons["ndcg@100"]
    assert [(one.first, one.second) for one in compared] == [
        ("Popularity", "MIL"),
        ("Popularity", "Searched"),
        ("MIL", "Searched"),
    ]
    means: dict[str, list[float]] = {model.name: [] for model in whole.results.models}
    for model in whole.results.models:
        means[model.name].append(model.evaluation.mean("ndcg@100"))
    expected = np.mean(means["Popularity"]) - np.mean(means["MIL"])
    assert compared[0].difference == pytest.approx(expected, abs=1e-6)
    assert len(whole.results.comparisons["true_ndcg@20"]) == 3, "the data are simulated: there is a truth"


def test_a_second_run_in_the_same_folder_fits_nothing_again(whole):
    written_at = {path: path.stat().st_mtime_ns for path in whole.folder.rglob("result.json")}
    assert len(written_at) == 9
    assert timeless(run(read_recipe(whole.recipe), whole.folder, Quiet())) == timeless(whole.results)
    assert written_at == {path: path.stat().st_mtime_ns for path in whole.folder.rglob("result.json")}


def test_a_run_killed_twice_gives_the_same_results_as_an_uninterrupted_one(tmp_path, whole):
    out = tmp_path / "killed"
    command = ("experiment", whole.recipe, "--out", out, "--jobs", "1")  # one job at a time: which is held is known
    with held("fit step 2", *command) as process:
        assert (out / "jobs/mil-seed0/checkpoint.safetensors").exists()
        process.killed()
        process.pause.wait_until_gone()
    with held("fit step 2", *command) as process:
        while not (out / "tuning/searched.journal").exists():
            process.pause.arrive()
        process.killed()
        process.pause.wait_until_gone()
    ended = subprocess.run([sys.executable, "-m", "milrec", *command], capture_output=True, check=False, text=True)
    assert ended.returncode == 0, ended.stderr
    assert timeless(Results.read(out)) == timeless(whole.results)


def test_the_best_trial_on_validation_decides(whole):
    (search,) = whole.results.searches
    assert [trial.number for trial in search.trials] == list(range(4))
    best = max((trial for trial in search.trials if trial.state == "done"), key=lambda trial: trial.value)
    final = whole.results.models[-1]
    assert search.tuned == best.values == final.tuned
    assert final.settings.training["weight_decay"] == best.values["weight_decay"]
    assert final.settings.loss["missing_weight"] == best.values["missing_weight"]


def test_the_study_opens_in_optuna(whole):
    journal = JournalFileBackend(str(whole.folder / "tuning/searched.journal"))
    study = optuna.load_study(study_name="searched", storage=optuna.storages.JournalStorage(journal))
    trials = whole.results.searches[0].trials
    for kept, shown in zip(study.trials, trials, strict=True):
        assert kept.params["weight_decay"] == shown.values["weight_decay"]
        assert kept.value == shown.value or kept.state.name == "PRUNED"


def test_tuned_values_of_a_run_take_the_place_of_a_search(whole, tmp_path):
    again = read_recipe(whole.recipe, instead=Instead(models=["Searched"], tuned=whole.folder))
    assert again.models[0].search == {}
    assert again.models[0].tuned == whole.results.searches[0].tuned != {}
    with pytest.raises(FolderError, match=r"results\.json"):
        read_recipe(whole.recipe, instead=Instead(tuned=tmp_path))


def test_a_model_of_a_run_opens_like_any_other(whole):
    recommender = milrec.load(whole.folder / "jobs/mil-seed1/model")
    assert recommender.fitted.seed == 1 and recommender.recommend(recommender.user_ids[:1], n=3).num_rows == 3


def test_a_job_that_fails_does_not_lose_the_others(tmp_path):
    text = (
        RECIPE
        + """
[[models]]
name = "Diverges"
loss = "mil"
settings = { epochs = 2, n_factors = 8, learning_rate = 1e36 }
"""
    )
    results = run(read_recipe(written(tmp_path, text)), tmp_path / "run", Quiet())
    assert [model.name for model in results.models] == ["Popularity", "MIL", "MIL"]
    assert [failure.name for failure in results.failures] == ["Diverges, seed 0", "Diverges, seed 1"]
    assert all("lower learning_rate" in failure.error for failure in results.failures)
    command = [sys.executable, "-m", "milrec", "experiment", str(tmp_path / "recipe.toml"), "--out", "run"]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("result.json")}
    ended = subprocess.run(command, capture_output=True, check=False, text=True, cwd=tmp_path)
    assert ended.returncode == 1 and "Diverges, seed 0" in ended.stderr
    assert (tmp_path / "run/report.html").exists()
    again = {path.parent.name for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert again == {"diverges-seed0", "diverges-seed1"}, "what failed is tried again, and nothing else"


def test_a_search_with_a_killed_trial_chooses_nothing(tmp_path, monkeypatch):
    """Otherwise a later run, in which the trial is done, would have to change its choice."""
    text = (
        RECIPE
        + """
[[models]]
name = "Searched"
loss = "mil"
settings = { epochs = 4, n_factors = 8 }
search = { learning_rate = [1e-3, 5e-3] }
"""
    )
    recipe = read_recipe(written(tmp_path, text), instead=Instead(models=["Searched"]))
    started, start = [], subprocess.Popen

    def noted(*args, **how):
        started.append(start(*args, **how))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)

    class Killer(Quiet):
        """Kills the process that has ended the first trial and is to take the second."""

        def ended(self, job, outcome):
            if not self.done:
                started[-1].kill()
            super().ended(job, outcome)

    results = run(recipe, tmp_path / "run", Killer(), at_once=1)
    assert results.models == () and "was killed by signal 9" in results.failures[0].error
    results = run(recipe, tmp_path / "run", Quiet())
    assert results.failures == () and results.models[0].tuned == results.searches[0].tuned


def test_a_damaged_checkpoint_or_journal_does_no_harm(tmp_path, whole):
    shutil.copytree(whole.folder, tmp_path / "run")
    job = tmp_path / "run/jobs/searched-seed0"
    (job / "result.json").unlink()
    shutil.rmtree(job / "model")
    (job / "checkpoint.safetensors").write_bytes(b"junk")
    journal = tmp_path / "run/tuning/searched.journal"
    journal.write_bytes(journal.read_bytes()[:-30])
    assert timeless(run(read_recipe(whole.recipe), tmp_path / "run", Quiet())) == timeless(whole.results)


def test_a_result_of_other_settings_is_not_taken(tmp_path, whole):
    shutil.copytree(whole.folder, tmp_path / "run")
    job = tmp_path / "run/jobs/mil-seed0/job.json"
    job.write_text(job.read_text().replace('"weight_decay": 5e-06', '"weight_decay": 6e-06'))
    before = (job.parent / "result.json").stat().st_mtime_ns
    assert timeless(run(read_recipe(whole.recipe), tmp_path / "run", Quiet())) == timeless(whole.results)
    assert (job.parent / "result.json").stat().st_mtime_ns != before


def test_what_libraries_print_does_not_disturb_a_run(tmp_path, monkeypatch):
    monkeypatch.setenv("MKL_VERBOSE", "1")
    recipe = read_recipe(written(tmp_path), instead=Instead(models=["MIL"], seeds=[0]))
    assert run(recipe, tmp_path / "run", Quiet()).failures == ()


def test_a_process_that_dies_is_reported_and_its_job_tried_again(tmp_path, monkeypatch):
    recipe = read_recipe(written(tmp_path), instead=Instead(models=["Popularity"]))
    monkeypatch.setenv("PYTHONHOME", "/nowhere")  # no Python starts so
    results = run(recipe, tmp_path / "run", Quiet())
    assert results.models == () and "ended with code" in results.failures[0].error
    monkeypatch.delenv("PYTHONHOME")
    assert run(recipe, tmp_path / "run", Quiet()).failures == ()


def test_jobs_end_with_the_run_that_started_them(tmp_path):
    with held("fit step 2", "experiment", written(tmp_path), "--out", tmp_path / "run", "--only", "MIL") as process:
        process.killed()
        process.pause.wait_until_gone()


def test_two_runs_do_not_share_a_folder(tmp_path):
    recipe = read_recipe(written(tmp_path), instead=Instead(models=["Popularity"]))
    run(recipe, tmp_path / "run", Quiet())
    with locked(tmp_path / "run/.lock") as mine:
        assert mine
        with pytest.raises(FolderError, match="is being carried out by another process"):
            run(recipe, tmp_path / "run", Quiet())


def test_a_folder_with_a_run_of_another_recipe_is_refused(tmp_path, whole):
    other = read_recipe(written(tmp_path, SEARCHED.replace("trials = 4", "trials = 5")))
    with pytest.raises(FolderError, match=r"a run of another recipe \('search' differs\)"):
        run(other, whole.folder, Quiet())
    renamed = read_recipe(written(tmp_path, SEARCHED.replace("two models", "three models")))
    assert run(renamed, whole.folder, Quiet()).title == "three models", "its words may change"


def test_a_run_is_resumed_though_its_recipe_lacks_what_came_later(tmp_path, whole):
    shutil.copytree(whole.folder, tmp_path / "run")
    facts = open_folder(tmp_path / "run", "run").facts
    del facts["recipe"]["refit"]
    write_manifest(tmp_path / "run", "run", facts, files={})
    watcher = Quiet()
    run(read_recipe(whole.recipe), tmp_path / "run", watcher)
    assert sorted(watcher.done) == sorted(whole.ended)


def test_a_recipe_that_could_not_begin_may_be_put_right(tmp_path):
    text, wanted = RECIPE.replace("users = 150", "users = 1"), Instead(models=["Popularity"])
    few = read_recipe(written(tmp_path, text), instead=wanted)
    with pytest.raises(MilrecError):
        run(few, tmp_path / "run", Quiet())
    enough = read_recipe(written(tmp_path), instead=wanted)
    assert run(enough, tmp_path / "run", Quiet()).failures == ()


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(FolderError, match="holds no milrec run"):
        run(read_recipe(written(tmp_path)), tmp_path / "mine", Quiet())
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("title =", "titel =", "unknown setting 'titel'"),
        ('loss = "mil"', 'loss = "mill"', r"unknown loss 'mill' \(did you mean 'mil'\?\); known losses: mil"),
        (
            'loss = "mil"',
            'loss = "mil"\nserch = {}',
            r"'models\.1\.serch'.*known settings: name, model, loss, settings, search",
        ),
        ("users = 150", "user = 150", "'data.simulate.user'.*known settings: users, items, seed"),
        ("epochs = 4", "epoch = 4", "model 'MIL'.*unknown setting 'epoch'"),
        ("[data.simulate]", "[data]", "unknown setting 'data.users'"),
        ('name = "MIL"', 'name = "popularity"', "same name"),
        ("seeds = [0, 1]", "seeds = []", "seeds"),
        ("seeds = [0, 1]", "seeds = [1, 1]", "a seed is given twice"),
        ("seeds = [0, 1]", "seeds = [-1]", "seeds.0.*at least 0"),
        ("seeds = [0, 1]", "refit = true\n[split]\nprotocol = 'users'", "refit needs a validation part"),
        ("[data.simulate]", "[search]\nmeasure = 'foo'\n[data.simulate]", "unknown measure 'foo'; known measures"),
        ('loss = "mil"', 'loss = "mil"\nsearch = { epochs = [3, 0] }', "model 'MIL'.*'epochs' is 0"),
        ('loss = "mil"', 'loss = "mil"\nsearch = { n_factors = { low = 4, high = 8 } }', "model 'MIL'.*'n_factors'"),
        ('loss = "mil"', 'loss = "mil"\nsearch = { epochs = [3], "epochs, n_factors" = [[3, 4]] }', "by two keys"),
        ('loss = "mil"', 'loss = "mil"\nsearch = { epoch = [3] }', "model 'MIL'.*unknown setting 'epoch'"),
        ('loss = "mil"', 'loss = "mil"\nsearch = { epochs = [] }', "nothing to try for 'epochs'"),
        ('loss = "mil"', 'loss = "mil"\nsearch = { "epochs, n_factors" = [[3]] }', "needs lists of 2 values"),
        ('loss = "mil"', 'loss = "mil"\nsearch = { weight_decay = { low = 1, high = 0 } }', "low < high"),
        ("title =", "title", "not valid TOML"),
    ],
)
def test_a_wrong_recipe_is_answered_with_a_sentence(tmp_path, old, new, sentence):
    with pytest.raises(SettingsError, match=sentence):
        read_recipe(written(tmp_path, RECIPE.replace(old, new)))


def test_the_demo_has_the_four_models_of_the_readme():
    recipe = demo_recipe()
    assert isinstance(recipe, Recipe)
    losses = [None if entry.chosen().loss is None else entry.chosen().loss.loss for entry in recipe.models]
    assert losses == [None, "pointwise", "multinomial", "mil"]


WITH_TEST = """
title = "a given test part"
[data]
path = "train"
test = "test"
[[models]]
name = "Popularity"
model = "popularity"
"""


def test_a_recipe_may_have_a_test_part(tmp_path):
    milrec.read({"user": list("aabbcc"), "item": list("xyyzzx")}).save(tmp_path / "train")
    milrec.read({"user": list("abd"), "item": list("zxx")}).save(tmp_path / "test")
    results = run(read_recipe(written(tmp_path, WITH_TEST)), tmp_path / "run", Quiet())
    assert results.split.protocol == "given" and results.split.as_json()["test_unknown_users"] == 1
    assert results.models[0].evaluation.mean("recall@1") == 1  # there is nothing else to list
    recipe = written(tmp_path, WITH_TEST.replace('path = "train"\ntest = "test"', 'path = "elsewhere"'))
    named = run(read_recipe(recipe, tmp_path / "train", Instead(test=tmp_path / "test")), tmp_path / "named", Quiet())
    assert named.split == results.split


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (WITH_TEST.replace('path = "train"', "[data.simulate]\nusers = 50"), "unknown setting 'data.simulate.test'"),
        (WITH_TEST.replace('path = "train"\n', "simulate = { users = 50 }\n"), "a test part without a path"),
        (WITH_TEST + '[split]\nprotocol = "users"\n', "in .data. or hold out users in .split., not both"),
        (WITH_TEST + '[split]\nprotocol = "given"\n', "setting 'split.protocol'"),
    ],
)
def test_a_test_part_that_cannot_be_is_answered_with_a_sentence(tmp_path, text, sentence):
    with pytest.raises(SettingsError, match=sentence):
        read_recipe(written(tmp_path, text))


def test_a_test_part_without_its_data_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="`test` needs `data`; give both"):
        read_recipe(written(tmp_path), instead=Instead(test=tmp_path))
