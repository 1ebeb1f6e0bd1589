"""Calibration on validation: probabilities that are right, whatever the loss and the number of threads."""

import numpy as np
import pytest

import milrec
from conftest import real_data
from milrec.data.simulation import Simulation, simulate
from milrec.evaluation.calibration import calibrate


@pytest.fixture(scope="module")
def split():
    data = simulate(Simulation(n_users=900, n_items=300, mean_shown=80), seed=3)
    return milrec.split_interactions(data, seed=0)


@pytest.mark.parametrize("loss", ["mil", "pointwise", "multinomial"])
def test_as_many_pairs_are_held_out_as_the_probabilities_say(split, loss):
    found = milrec.fit(split, "dae", loss, n_factors=16, epochs=15).evaluate(split)
    assert len(found.reliability) >= 8
    assert all(abs(one.log_ratio) < 0.4 for one in found.reliability[1:])  # the first holds what MIL gives no chance
    expected = sum(one.pairs * one.predicted for one in found.reliability)
    assert expected == pytest.approx(sum(one.held_out for one in found.reliability), rel=0.2)
    assert bool(found.link_reliability) == (loss != "multinomial")
    assert found.as_json()["calibration_error"] < 0.25


def test_little_data_gets_one_factor(split):
    few = milrec.split_interactions(simulate(Simulation(n_users=40, n_items=60, mean_shown=20), seed=1), seed=0)
    calibration = milrec.fit(few, "dae", n_factors=4, epochs=5).fitted.calibration
    assert calibration.knots == () and calibration.kind == "the loss's link and one factor"
    curve = milrec.fit(few, "ease").fitted.calibration
    assert curve.kind == "a monotone fit to the logits" and 1 <= len(curve.knots) <= 8


def test_the_same_whatever_the_number_of_threads(split):
    fitted = milrec.fit(split, "dae", n_factors=8, epochs=5).fitted
    assert calibrate(fitted.model, fitted.settings.with_values({"threads": 1}), split) == fitted.calibration
    assert calibrate(fitted.model, fitted.settings.with_values({"threads": 3}), split) == fitted.calibration


def test_held_out_users_have_probabilities_too():
    data = simulate(Simulation(n_users=900, n_items=300, mean_shown=80), seed=3)
    split = milrec.split_users(data, seed=0, held_out=200)
    recommender = milrec.fit(split, "dae", n_factors=16, epochs=15)
    assert not recommender.fitted.calibration.rest_counts
    found = recommender.evaluate(split)
    expected = sum(one.pairs * one.predicted for one in found.reliability)
    assert expected == pytest.approx(sum(one.held_out for one in found.reliability), rel=0.2)


def test_prices_are_those_of_the_lists(split):
    """The curve says how many hits a list of each share is expected to have: it is the sum of its probabilities."""
    recommender = milrec.fit(split, "dae", n_factors=16, epochs=15)
    users = [recommender.user_ids[row] for row in np.flatnonzero(np.diff(split.validation.targets.indptr))]
    for share in (0.1, 0.4, 0.8):
        lists = recommender.recommend(users, long_share=share)
        price = recommender.price(20, long_share=share)
        assert np.sum(lists["probability"].to_numpy()) / len(users) == pytest.approx(price.hits, rel=0.01)
        tails = np.array(lists["tail"].to_pylist())
        assert (tails == "long").mean() == pytest.approx(share, abs=0.01)


def test_a_long_share_and_its_probabilities_on_movielens():
    """30 % long tail in the first 20 at NDCG@20 of .254 or more; probabilities within .3 in ln(odds)."""
    folder = real_data("ml-1m")
    split = milrec.split_interactions(milrec.read(folder), seed=0)
    recommender = milrec.fit(split)
    found = recommender.evaluate(split, long_share=0.3)
    assert 28 <= found.measures["long_share@20"] <= 32 and found.measures["ndcg@20"] >= 0.254
    bins = [one for one in found.reliability if one.held_out >= 1000]
    assert len(bins) >= 10 and all(abs(one.log_ratio) <= 0.3 for one in bins)
    assert all(abs(one.log_ratio) <= 0.3 for one in found.link_reliability)
