"""Lists by P + bonus of the tail, against a sort of everything; weights of new users."""

from typing import Any

import numpy as np
import pytest

import milrec
from milrec.errors import DataError, SettingsError
from milrec.lists.scores import Scorer, logits_of
from milrec.models.inputs import Users

MODELS = [("dae", "mil"), ("dae", "multinomial"), ("mf", "pointwise"), ("ease", None), ("popularity", None)]


@pytest.fixture(scope="module")
def split(small_catalogue):
    return milrec.split_interactions(small_catalogue, seed=0)


@pytest.fixture(scope="module", params=MODELS, ids=lambda one: "-".join(filter(None, one)))
def recommender(request, split):
    model, loss = request.param
    quick = {"n_factors": 8, "epochs": 8, "learning_rate": 1e-2} if loss else {}
    return milrec.fit(split, model, loss, **quick)


def worth_of_all(recommender, split, row, bonuses):
    """P + bonus of every item that may be listed to a user, by a way of its own: all logits, one after the other."""
    fitted, audience = recommender.fitted, split.test.audience
    scorer = Scorer(fitted.model, fitted.settings, fitted.train, fitted.calibration)
    logits = logits_of(scorer, Users.of(audience, slice(row, row + 1)))[0].astype(np.float64)
    counts = [np.diff(pairs.indptr)[row : row + 1] for pairs in (audience.adopted, audience.rejected)]
    chance = scorer.chances.probabilities(logits, scorer.chances.shifts(*counts))
    worth = chance.copy()
    for own, bonus in zip(recommender.catalogue.tail_classes, bonuses, strict=True):
        worth[own] += bonus
    taken = np.concatenate([audience.removed[[row]].indices, audience.rejected[[row]].indices])
    worth[taken], logits[taken] = -np.inf, -np.inf
    return worth, logits, chance


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 1.0])
def test_a_list_has_the_highest_p_plus_bonus(recommender, split, share):
    price = recommender.price(20, long_share=share)
    ids = recommender.item_ids
    for row in range(0, 40, 7):
        worth, logits, chance = worth_of_all(recommender, split, row, price.bonuses)
        best = np.lexsort((np.arange(len(worth)), -logits, -worth))[:20]
        found = recommender.recommend([recommender.user_ids[row]], long_share=share).to_pylist()
        listed = [ids.index(one["item"]) for one in found]
        assert worth[listed] == pytest.approx(worth[best], rel=1e-4, abs=1e-7)  # the best, apart from rounding
        assert [one["probability"] for one in found] == pytest.approx(chance[listed], rel=1e-3, abs=1e-7)


def test_shares_are_reached_on_average_and_cost_hits(recommender, split):
    plain = recommender.evaluate(split, "validation")
    before = plain.measures["long_share@20"]
    for share in (0.5, 0.9):
        found = recommender.evaluate(split, "validation", long_share=share)
        assert found.measures["long_share@20"] >= before - 1e-9
        assert found.price.hits <= found.price.hits_without + 1e-9
        before = found.measures["long_share@20"]
    assert before == pytest.approx(90, abs=8)  # small data, and validation items may be listed here


def test_a_bonus_of_0_changes_nothing(recommender):
    users = recommender.user_ids[:20]
    plain, aimed = recommender.recommend(users), recommender.recommend(users, long_bonus=0.0)
    assert plain["item"].to_pylist() == aimed["item"].to_pylist()


def test_lists_do_not_depend_on_who_else_is_asked_for(recommender):
    users = recommender.user_ids[:30]
    together = recommender.recommend(users, long_share=0.4, n=10).to_pylist()
    apart = [row for user in users for row in recommender.recommend([user], long_share=0.4, n=10).to_pylist()]
    assert together == apart


def test_rules_hold_for_every_list_whatever_its_aim(recommender):
    found = recommender.recommend(recommender.user_ids[:10], rules=["short >= 40%"], long_share=0.5, n=10)
    for first in range(0, found.num_rows, 10):
        assert found["interval"].to_pylist()[first : first + 10].count("short") >= 4


def test_mean_popularity_and_other_shares(recommender, split):
    plain = recommender.evaluate(split, "validation").measures
    lower = recommender.evaluate(split, "validation", mean_popularity=plain["mean_popularity@20"] / 2).measures
    assert lower["mean_popularity@20"] < plain["mean_popularity@20"]
    few = recommender.evaluate(split, "validation", short_share=0.0).measures
    assert few["short_share@20"] <= plain["short_share@20"]
    many = recommender.evaluate(split, "validation", medium_share=1.0).measures
    assert many["medium_share@20"] >= plain["medium_share@20"]


def test_aims_are_refused_where_they_cannot_be(recommender, split):
    user = recommender.user_ids[0]
    with pytest.raises(SettingsError, match="give either the old dial or a share of the tail, not both"):
        recommender.recommend([user], long_share=0.3, dial=0.1)
    with pytest.raises(SettingsError, match="give either the old dial or a share of the tail, not both"):
        recommender.evaluate(split, dial=0.1, long_share=0.3)
    with pytest.raises(SettingsError, match="give only one of"):
        recommender.recommend([user], long_share=0.3, long_bonus=0.1)


def test_without_validation_there_are_no_probabilities(small_catalogue):
    split = milrec.split_interactions(small_catalogue, seed=0, held_out=0.0)
    recommender = milrec.fit(split, "ease")
    found = recommender.recommend(recommender.user_ids[:2])
    assert recommender.fitted.calibration is None and "probability" not in found.column_names
    with pytest.raises(SettingsError, match="the model has no probabilities, which a share of the tail needs"):
        recommender.recommend(recommender.user_ids[:2], long_share=0.3)


def test_a_refit_keeps_the_probabilities_of_the_fit_before_it(split, tmp_path):
    recommender = milrec.fit(split, "dae", n_factors=8, epochs=5)
    again = milrec.refit(split, recommender)
    again.save(tmp_path / "model")
    assert milrec.load(tmp_path / "model").fitted.calibration == recommender.fitted.calibration is not None
    assert again.price(20, long_share=0.5) == recommender.price(20, long_share=0.5)


def test_the_weights_of_a_new_user_reach_the_encoder(small_catalogue):
    split = milrec.split_interactions(small_catalogue, seed=0)
    weighted = milrec.fit(split, "dae", n_factors=8, epochs=5, input_weights="counts")
    first, second = weighted.item_ids[:2]
    one, other = (weighted.recommend_new({first: a, second: b})["score"].to_pylist() for a, b in ((9, 1), (1, 9)))
    even = weighted.recommend_new({first: 1, second: 1}).to_pylist()
    assert one != other and even == weighted.recommend_new([first, second]).to_pylist()
    many: list[Any] = [0, -1, float("nan"), "often", True]
    for wrong in many:
        with pytest.raises(DataError, match=f"the weight of item '{first}' must be a number from 1e-30"):
            weighted.recommend_new({first: wrong})
