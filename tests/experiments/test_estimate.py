"""How large a run is, and how long it takes: what is said before it begins. No test depends on how fast anything is."""

import json
from pathlib import Path

import pytest

import milrec
from commands import succeeds
from milrec.experiments import estimate, probe, probes
from milrec.experiments.estimate import Estimate, Jobs, Part, duration, estimated
from milrec.experiments.probe import timed
from milrec.experiments.probes import Timing, Untimed, timings
from milrec.experiments.recipe import Recipe
from milrec.training.presets import settings_for

pytestmark = pytest.mark.xdist_group("experiment")  # one worker: its processes take long to start

HOUR = Timing(fit_seconds=3000, judge_seconds=600, at_most=False, steps=1000, step_seconds=3.0)
HOUR_AT_MOST = HOUR.model_copy(update={"at_most": True})
HOW = "judging by a few steps of each model on this machine and these data."


def part(trials=0, fits=1, done=Jobs(), timing=HOUR, **more):  # noqa: B008
    return Part("MIL", Jobs(trials, fits), done, timing, **more)


@pytest.mark.parametrize(
    ("parts", "at_once", "sentences"),
    [
        ([part()], 1, ["1 model: 1 fit, no search.", f"Time: about 1 h, one job at a time, {HOW}"]),
        (
            [part(fits=3, timing=HOUR_AT_MOST), part()],
            2,
            [
                "2 models: 4 fits, no search.",
                f"Time: at most 2 h, 2 jobs at a time, {HOW}",
                "It takes less if fits stop early.",
            ],
        ),
        (
            [part(trials=8, fits=2, done=Jobs(trials=2))],
            1,
            [
                "1 model: at most 8 trials and 2 fits.",
                "Already finished: 2 trials.",
                f"Time left: at most 7 h, one job at a time, {HOW}",
                "It takes less if fits stop early or trials are given up.",
            ],
        ),
        (
            [part(trials=1, fits=2, done=Jobs(1, 2), timing=None)],
            2,
            [
                "1 model: at most 1 trial and 2 fits.",
                "Already finished: 1 trial and 2 fits.",
                "Nothing is left to fit.",
            ],
        ),
        (
            [part(), Part("SLIM", Jobs(fits=1), Jobs(), Untimed(error="it needs 9.9 GiB"))],
            1,
            [
                "2 models: 2 fits, no search.",
                f"Time: about 1 h, one job at a time, {HOW}",
                "The time of SLIM is not known: it needs 9.9 GiB.",
            ],
        ),
        (
            [part(timing=Untimed(error="it does not say"))],
            1,
            ["1 model: 1 fit, no search.", "The time of MIL is not known: it does not say."],
        ),
    ],
)
def test_the_size_of_a_run_is_said_in_a_few_sentences(parts, at_once, sentences):
    assert Estimate(tuple(parts), at_once, 4).sentences() == sentences


def test_a_run_is_no_faster_than_its_longest_search_however_many_jobs_run_at_once():
    alone = Estimate((part(trials=8, fits=3),), at_once=100, round=4)
    assert alone.seconds == 2 * 3000 + 3600, "two rounds of four trials, then all fits at once"
    assert Estimate((part(trials=8, fits=3),), at_once=1, round=4).seconds == 8 * 3000 + 3 * 3600


def test_refits_dials_and_the_start_of_processes_count():
    late = HOUR.model_copy(update={"start_seconds": 5})
    assert part(timing=late, fits_per_job=2, evaluations=4).seconds == 2 * 3000 + 4 * 600
    assert Estimate((part(timing=late),), 1, 4).seconds == 3605


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.01, "1 second"), (1.2, "2 seconds"), (59.5, "60 seconds"), (60, "1 minute"), (61, "2 minutes"),
        (3599, "1 h"), (3600, "1 h"), (3601, "1 h 1 min"), (86_000, "23 h 54 min"), (86_400, "1 day"),
        (86_401, "1 day 1 h"), (200_000, "2 days 8 h"),
    ],
)  # fmt: skip
def test_a_duration_is_rounded_up(seconds, words):
    assert duration(seconds) == words


SEARCHED = {
    "title": "three models",
    "seeds": [0, 1],
    "search": {"trials": 4, "round": 2},
    "models": [
        {"name": "Popularity", "model": "popularity"},
        {"name": "MIL", "loss": "mil", "dials": [0.1, 0.2]},
        {
            "name": "Searched",
            "loss": "mil",
            "search": {
                "weight_decay": {"low": 1e-6, "high": 1e-2, "log": True},
                "target_factor": [10.0, 100.0, 50.0],
                "missing_weight, missing_exponent": [[1e3, 4], [1e6, 10]],
            },
        },
    ],
}


def job(run: Path, name: str, judged: bool, result: dict | None) -> None:
    folder = run / "jobs" / name
    folder.mkdir(parents=True)
    told = {"name": name, "title": name, "seed": 0, "settings": {}, "judged": judged}
    (folder / "job.json").write_text(json.dumps(told))
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))


DONE = {"state": "done", "settings": {"model": {"model": "dae"}}, "fit_seconds": 3.0}
JUDGED = {**DONE, "evaluation": {"ndcg@100": 0.3}}
GIVEN_UP = {"state": "given up", "value": 0.1, "history": {"iterations": [1], "measures": [0.1]}}


def test_what_is_finished_is_counted_and_not_timed_again(tmp_path, monkeypatch):
    asked = []

    def noted(wanted, split, at_once):
        asked.extend(wanted)
        return [HOUR] * len(wanted)

    monkeypatch.setattr(estimate, "timings", noted)
    recipe = Recipe.model_validate(SEARCHED)
    whole = estimated(recipe, tmp_path, str, at_once=1)
    assert [one.all for one in whole.parts] == [Jobs(0, 1), Jobs(0, 2), Jobs(4, 2)] and not whole.done
    assert [one.evaluations for one in whole.parts] == [1, 3, 1] and len(asked) == 3
    target, decay = asked[2]["target_set"]["target_factor"], asked[2]["training"]["weight_decay"]
    assert target == 100 and decay == 1e-6, "of the values to search, those that take longest"
    job(tmp_path, "popularity-seed0", True, JUDGED)
    job(tmp_path, "mil-seed0", True, {"state": "failed", "error": "it will be tried again"})
    job(tmp_path, "searched-trial-0123456789", False, DONE)
    job(tmp_path, "searched-trial-abcdef0123", False, GIVEN_UP)
    job(tmp_path, "searched-trial-abcdef0124", False, None)
    asked.clear()
    resumed = estimated(recipe, tmp_path, str, at_once=1)
    assert [one.done for one in resumed.parts] == [Jobs(0, 1), Jobs(0, 0), Jobs(2, 0)]
    assert resumed.parts[0].timing is None and len(asked) == 2
    job(tmp_path, "searched-seed1", True, None)
    assert estimated(recipe, tmp_path, str, at_once=1).parts[2].done == Jobs(4, 0), "its search is over"


@pytest.fixture(scope="module")
def split(small_catalogue):
    return milrec.split_interactions(small_catalogue, seed=0)


def test_a_fit_is_as_many_steps_as_it_has_and_may_stop_early_unless_it_must_not(split):
    found = timed(settings_for("mil-lin-sig", values={"n_factors": 4}), split)
    assert found.steps == 120_000 and found.at_most
    assert found.fit_seconds > found.steps * found.step_seconds > 0 and found.judge_seconds > 0
    short = timed(settings_for("mf-ce", values={"n_factors": 4, "iterations": 1, "patience": 0}), split)
    assert short.steps == 1 and short.step_seconds > 0 and not short.at_most


@pytest.mark.parametrize("model", ["popularity", "ease", "slim", "ease-sparse"])
def test_a_model_without_steps_is_timed_on_a_part_of_large_data(split, monkeypatch, model):
    assert not timed(settings_for(model), split).at_most
    monkeypatch.setattr(probe, "_CELLS", 4_000)
    part_of_it = timed(settings_for(model), split)
    assert part_of_it.at_most and part_of_it.steps is None and part_of_it.fit_seconds > part_of_it.judge_seconds > 0


def test_held_out_users_are_timed_too(small_catalogue):
    split = milrec.split_users(small_catalogue, seed=0)
    for model in ("multi-tanh-lin", "slim"):
        assert timed(settings_for(model), split).judge_seconds > 0


def test_a_model_that_cannot_be_timed_says_why(split, tmp_path):
    split.save(tmp_path / "split")
    wanted = [settings_for(loss="mil", values={"learning_rate": rate, "n_factors": 4}) for rate in (1e-3, 2e37, 1e-3)]
    found = timings([settings.model_dump() for settings in wanted], tmp_path / "split", at_once=2)
    assert [type(one) for one in found] == [Timing, Untimed, Timing]
    assert "lower it" in found[1].error and found[0].start_seconds > 0


def test_a_process_that_does_not_answer_holds_nothing_up(tmp_path):
    wanted = [settings_for(loss="mil").model_dump()] * 3
    assert timings(wanted, tmp_path / "nowhere", at_once=2) == [probes._NO_ANSWER] * 3


RECIPE = """
title = "a search and a fit"
[data.simulate]
users = 150
items = 80
[search]
trials = 2
[[models]]
name = "Searched"
model = "ease"
search = { regularization = [10.0, 100.0, 500.0] }
[[models]]
name = "MIL"
loss = "mil"
settings = { epochs = 2, n_factors = 8 }
"""


def test_an_experiment_says_how_large_it_is_and_an_estimate_stops_there(tmp_path):
    (tmp_path / "recipe.toml").write_text(RECIPE)
    command = ("experiment", "recipe.toml", "--out", "run", "--jobs", "1")
    done = succeeds(*command, "--estimate", cwd=tmp_path)
    said = "2 models: at most 2 trials and 2 fits."
    assert f"\n{said}\nTime: at most " in done.stdout and "trials are given up.\nNothing has been fitted" in done.stdout
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"milrec.json", "split"}
    done = succeeds(*command, cwd=tmp_path)
    assert f"\n{said}\nTime: at most " in done.stderr and "Already finished" not in done.stderr
    (tmp_path / "run/jobs/mil-seed0/result.json").unlink()
    done = succeeds(*command, cwd=tmp_path)
    assert f"{said}\nAlready finished: 2 trials and 1 fit.\nTime left: at most " in done.stderr
    assert "Nothing is left to fit." in succeeds(*command, cwd=tmp_path).stderr
