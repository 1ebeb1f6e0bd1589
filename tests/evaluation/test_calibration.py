"""Calibration on validation: probabilities that are right, whatever the loss and the number of threads."""

import json
from dataclasses import replace

import numpy as np
import pytest

import milrec
import milrec.evaluation.calibration as calibration_module
from conftest import real_data
from forging import reseal
from milrec.data.simulation import Simulation, simulate
from milrec.errors import FolderError
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
        tails = np.array(lists["interval"].to_pylist())
        assert (tails == "long").mean() == pytest.approx(share, abs=0.01)


def test_prices_do_not_depend_on_the_order_of_users(split, monkeypatch):
    """Ids often follow the date on which users joined: those who are looked at are drawn from all of them."""
    monkeypatch.setattr(calibration_module, "_PRICED_USERS", 300)
    data = simulate(Simulation(n_users=900, n_items=300, mean_shown=80), seed=3)
    rows = np.argsort(np.diff(data.adopted.indptr), kind="stable")  # those with few items first
    sorted_data = replace(
        data, adopted=data.adopted[rows], rejected=data.rejected[rows], users=data.users.take(rows), truth=None
    )
    divided = milrec.split_interactions(sorted_data, seed=0)
    found = milrec.fit(divided, "ease").evaluate(divided, long_share=0.3)
    assert found.measures["long_share@20"] == pytest.approx(30, abs=3)


def test_probabilities_rise_with_the_logit_and_stay_near_what_was_held_out():
    """A weak fit: a quarter of the pairs lie where MIL's link is so steep that they would get no chance at all."""
    data = simulate(Simulation(n_users=300, n_items=120, mean_shown=40), seed=2)
    divided = milrec.split_interactions(data, seed=0)
    recommender = milrec.fit(divided, "dae", "mil", n_factors=8, epochs=10)
    lowest = recommender.evaluate(divided).reliability[0]
    assert abs(lowest.log_ratio) < 0.7
    knots = np.array(recommender.fitted.calibration.knots)
    assert (np.diff(knots, axis=0) > 0).all()  # no two logits are worth the same: a dial has something to turn


def test_more_items_may_be_drawn_than_there_are(split):
    recommender = milrec.fit(split, "dae", n_factors=4, epochs=1, target_factor=1e9)
    assert recommender.fitted.calibration.n_drawn == split.train.n_items
    assert recommender.evaluate(split, long_share=0.3).price is not None


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("dae", {"link": False}),
        ("ease", {"link": True}),
        ("ease", {"knots": []}),
        ("dae", {"knots": [[float(place), -9.0 + place / 1e4] for place in range(1_001)]}),
        ("dae", {"prices": {"adopters": [-1.0, 1.0, 1.0, 1.0]}}),
    ],
)
def test_a_forged_calibration_is_refused(split, tmp_path, name, changes):
    milrec.fit(split, name, **({"n_factors": 4, "epochs": 1} if name == "dae" else {})).save(tmp_path / "m")
    manifest = json.loads((tmp_path / "m" / "milrec.json").read_text())
    calibration = manifest["facts"]["calibration"]
    prices = {**calibration["prices"], **changes.get("prices", {})}
    calibration.update({**changes, "prices": prices})
    reseal(tmp_path / "m", manifest)
    with pytest.raises(FolderError, match="has settings that this milrec does not understand"):
        milrec.load(tmp_path / "m")


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
