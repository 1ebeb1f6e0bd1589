"""Recipes: what they may say, and runs that go on where they were."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import milrec
from milrec.errors import FolderError, SettingsError
from milrec.experiment import Recipe, demo_recipe, read_recipe, run

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
    """A watcher that remembers what it was told."""

    def __init__(self):
        self.stages, self.done = [], []

    def stage(self, text):
        self.stages.append(text)

    def fitting(self, name, progress):
        pass

    def evaluating(self, name, done, total):
        pass

    def finished(self, name, evaluation):
        self.done.append(name)


def written(tmp_path: Path, text: str = RECIPE) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def timeless(results: dict) -> dict:
    """Results without times and memory."""
    kept = json.loads(json.dumps(results))
    kept.pop("finished")
    for model in kept["models"]:
        model.pop("fit_seconds")
        model.pop("peak_memory_mib")
        if model["history"]:
            model["history"].pop("seconds")
    return kept


def test_a_run_fits_every_model_with_every_seed(tmp_path):
    watcher = Quiet()
    results = run(read_recipe(written(tmp_path)), tmp_path / "run", watcher)
    assert [(model["name"], model["seed"]) for model in results["models"]] == [
        ("Popularity", 0),
        ("Popularity", 1),
        ("MIL", 0),
        ("MIL", 1),
    ]
    assert watcher.done == ["Popularity", "Popularity", "MIL", "MIL"]
    assert results == json.loads((tmp_path / "run" / "results.json").read_text())


def test_a_second_run_in_the_same_folder_fits_nothing_again(tmp_path):
    recipe = read_recipe(written(tmp_path))
    first = run(recipe, tmp_path / "run", Quiet())
    watcher = Quiet()
    assert timeless(run(recipe, tmp_path / "run", watcher)) == timeless(first)
    assert watcher.done == []


def test_a_run_killed_twice_gives_the_results_of_an_unbroken_one(tmp_path):
    recipe = written(tmp_path)
    command = [sys.executable, "-m", "milrec", "experiment", str(recipe), "--out", str(tmp_path / "killed")]
    for waited_for in ("checkpoints/mil-seed0.safetensors", "evaluations/mil-seed0.json"):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (tmp_path / "killed" / waited_for).exists():
            time.sleep(0.005)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    killed = json.loads((tmp_path / "killed" / "results.json").read_text())
    assert timeless(killed) == timeless(run(read_recipe(recipe), tmp_path / "whole", Quiet()))


def test_a_folder_with_a_run_of_another_recipe_is_refused(tmp_path):
    run(read_recipe(written(tmp_path)), tmp_path / "run", Quiet())
    other = read_recipe(written(tmp_path, RECIPE.replace("two models", "another")))
    with pytest.raises(FolderError, match="another recipe"):
        run(other, tmp_path / "run", Quiet())


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
        ('loss = "mil"', 'loss = "mill"', "unknown loss 'mill'; known losses: mil"),
        ("epochs = 4", "epoch = 4", "model 'MIL'.*unknown setting 'epoch'"),
        ("[data.simulate]", "[data]", "unknown setting 'data.users'"),
        ('name = "MIL"', 'name = "popularity"', "same name"),
        ("seeds = [0, 1]", "seeds = []", "seeds"),
        ("title =", "title", "not readable TOML"),
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
    assert results["split"]["protocol"] == "given" and results["split"]["test_unknown_users"] == 1
    assert results["models"][0]["evaluation"]["recall@1"] == 1  # there is nothing else to list
    recipe = written(tmp_path, WITH_TEST.replace('path = "train"\ntest = "test"', 'path = "elsewhere"'))
    named = run(read_recipe(recipe, tmp_path / "train", tmp_path / "test"), tmp_path / "named", Quiet())
    assert named["split"] == results["split"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (WITH_TEST.replace('path = "train"', "[data.simulate]\nusers = 50"), "unknown setting 'data.simulate.test'"),
        (WITH_TEST.replace('path = "train"\n', "simulate = { users = 50 }\n"), "a test part without a path"),
        (WITH_TEST + '[split]\nprotocol = "users"\n', "in .data. or holds out users in .split., not both"),
        (WITH_TEST + '[split]\nprotocol = "given"\n', "setting 'split.protocol'"),
    ],
)
def test_a_test_part_that_cannot_be_is_answered_with_a_sentence(tmp_path, text, sentence):
    with pytest.raises(SettingsError, match=sentence):
        read_recipe(written(tmp_path, text))


def test_a_test_part_without_its_data_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="--test is the test part of --data; give both"):
        read_recipe(written(tmp_path), test=tmp_path)
