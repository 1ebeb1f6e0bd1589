"""The search for settings: what is tried, and what it depends on."""

import pytest

from milrec.errors import FitError
from milrec.experiments.job import _pruner
from milrec.experiments.protocol import Broken, Curve, Done, Failed, GivenUp, Outcome
from milrec.experiments.recipe import ModelEntry, SearchEntry
from milrec.experiments.search import search
from milrec.results import FitHistory, FittedSettings

WANTED = SearchEntry(trials=6, round=3)


def entry(**choices) -> ModelEntry:
    return ModelEntry(name="MIL", loss="mil", search=choices)


def carried_out(plan, value) -> tuple:
    """A plan with outcomes made up by value(settings); the jobs it asked for, and what it found."""
    asked, outcomes = [], None
    try:
        while True:
            jobs = plan.send(outcomes) if outcomes is not None else next(plan)
            asked.append(jobs)
            outcomes = {job.name: value(job.settings) for job in jobs}
    except StopIteration as end:
        return asked, end.value


def done(measure: float) -> Done:
    history = FitHistory(iterations=(10, 20), measures=(measure / 2, measure))
    return Done(value=measure, settings=FittedSettings(model={}), history=history, fit_seconds=1.0)


def decay(settings) -> float:
    return settings["training"]["weight_decay"]


def test_a_small_grid_is_tried_whole_and_in_order(tmp_path):
    wanted = entry(weight_decay=[1e-6, 1e-5], **{"missing_weight, missing_exponent": [[1e3, 4], [1e6, 10]]})
    asked, found = carried_out(search(wanted, WANTED, 4, tmp_path), lambda settings: done(decay(settings)))
    assert [len(jobs) for jobs in asked] == [3, 1]
    assert [trial.values for trial in found.trials] == [
        {"weight_decay": rate, "missing_weight": weight, "missing_exponent": exponent}
        for rate in (1e-6, 1e-5)
        for weight, exponent in ((1e3, 4), (1e6, 10))
    ]
    assert found.values == {"weight_decay": 1e-5, "missing_weight": 1e3, "missing_exponent": 4}, "the first of equals"


def test_trials_know_the_rivals_of_earlier_rounds_alone(tmp_path):
    wanted = entry(weight_decay=[1e-6, 2e-6, 3e-6, 4e-6, 5e-6, 6e-6])
    asked, _ = carried_out(search(wanted, WANTED, 6, tmp_path), lambda settings: done(1e3 * decay(settings)))
    assert [len(job.rivals) for jobs in asked for job in jobs] == [0, 0, 0, 3, 3, 3]


def test_a_search_begins_anew_with_the_same_choices(tmp_path):
    wanted = entry(weight_decay={"low": 1e-7, "high": 1e-2, "log": True}, target_factor=[1.0, 5.0, 10.0])
    first, found = carried_out(search(wanted, WANTED, 12, tmp_path / "a"), lambda settings: done(decay(settings)))
    again, same = carried_out(search(wanted, WANTED, 12, tmp_path / "b"), lambda settings: done(decay(settings)))
    assert first == again and found == same
    assert len({job.name for jobs in first for job in jobs}) > 6
    other = SearchEntry(trials=6, round=3, seed=1)
    assert carried_out(search(wanted, other, 12, tmp_path / "c"), lambda settings: done(decay(settings)))[0] != first


def test_optuna_learns_from_earlier_rounds(tmp_path):
    wanted = entry(weight_decay={"low": 1e-6, "high": 1e-2, "log": True})

    def near(settings) -> Outcome:
        return done(1.0 - abs(decay(settings) - 3e-4) / 1e-2)

    _, found = carried_out(search(wanted, SearchEntry(round=4), 40, tmp_path), near)
    assert found.values["weight_decay"] == pytest.approx(3e-4, rel=0.5)


def test_trials_that_fail_are_passed_over(tmp_path):
    wanted = entry(weight_decay=[1e-6, 1e-5, 1e-4])

    def value(settings) -> Outcome:
        if decay(settings) == 1e-4:
            return Failed(error="the loss became nan; lower learning_rate")
        if decay(settings) == 1e-5:
            return GivenUp(value=0.9, history=FitHistory(iterations=(10,), measures=(0.9,)))
        return done(0.5)

    _, found = carried_out(search(wanted, WANTED, 3, tmp_path), value)
    assert found.values == {"weight_decay": 1e-6}, "a trial that was given up is not chosen"
    assert [trial.state for trial in found.trials] == ["done", "given up", "failed"]


def test_a_search_without_any_result_says_why(tmp_path):
    plan = search(entry(weight_decay=[1e-6]), WANTED, 1, tmp_path)
    (job,) = next(plan)
    with pytest.raises(FitError, match="no trial of 'MIL' was completed; the first: no memory"):
        plan.send({job.name: Failed(error="no memory")})


def test_a_trial_that_was_interrupted_leaves_nothing_to_choose(tmp_path):
    plan = search(entry(weight_decay=[1e-6, 1e-5]), WANTED, 2, tmp_path)
    first, second = next(plan)
    with pytest.raises(FitError, match=r"a trial of 'MIL' was interrupted \(killed by signal 9\)"):
        plan.send({first.name: done(0.5), second.name: Broken(error="killed by signal 9")})


def test_a_trial_below_the_median_of_its_rivals_is_hopeless():
    rivals = [Curve(iterations=[4, 10, 20], measures=[0.05, 0.1 * n, 0.2 * n]) for n in (1, 2, 3, 4)]
    assert not _pruner(rivals)(10, 0.26)
    assert _pruner(rivals)(10, 0.24)
    assert not _pruner(rivals)(15, 0.01), "no rival was validated at that step"
    assert not _pruner(rivals)(4, 0.01), "before half the steps of the rivals nothing is given up"
    assert not _pruner(rivals[:3])(10, 0.0), "three are too few to judge by"


def test_the_models_own_settings_are_tried_first_where_the_search_may_choose_them(tmp_path):
    wanted = entry(weight_decay=[1e-6, 5e-6, 1e-5, 2e-5], target_factor=[10.0, 50.0])
    pairs = {"missing_weight, missing_exponent": [[1e3, 4], [1e6, 10]], "target_factor": {"low": 1.0, "high": 100.0}}
    assert wanted.own_places() == {"weight_decay": 1, "target_factor": 1}
    assert entry(**pairs).own_places() == {"missing_weight, missing_exponent": 1, "target_factor": 50.0}
    assert entry(weight_decay=[1e-6]).own_places() is None
    assert entry(weight_decay={"low": 1e-5, "high": 1e-4}).own_places() is None
    _, found = carried_out(search(wanted, SearchEntry(round=3), 6, tmp_path), lambda settings: done(decay(settings)))
    assert found.trials[0].values == {"weight_decay": 5e-6, "target_factor": 50.0}


def test_values_that_come_again_are_not_tried_again(tmp_path):
    wanted = entry(weight_decay=[1e-6, 5e-6, 1e-5], target_factor=[10.0, 50.0, 100.0])
    near = {1e-6: 0.1, 5e-6: 0.2, 1e-5: 0.3}
    asked, found = carried_out(
        search(wanted, SearchEntry(round=2), 8, tmp_path), lambda settings: done(near[decay(settings)])
    )
    names = [job.name for jobs in asked for job in jobs]
    assert len(names) == len(set(names)) < len(found.trials) == 8
