"""Evaluation: a tiny case by hand, what becomes of it in JSON, and that it does not depend on the size of blocks."""

import json
import math
import sys

import numpy as np
import pytest
import torch

import milrec
from milrec.data.pairs import empty_pairs, pairs_matrix
from milrec.data.splits import Audience, HeldOut
from milrec.errors import DataError
from milrec.evaluation.judging import evaluate
from milrec.evaluation.validation import validation_measure
from milrec.lists import scores
from milrec.lists.scores import Scorer, logits_of
from milrec.models.contract import ROWS
from milrec.models.factorization import MatrixFactorization
from milrec.models.inputs import Users
from milrec.models.popularity import Popularity
from milrec.models.settings import FactorizationSettings
from milrec.training.presets import settings_for

KEYS = {
    *(f"recall@{cutoff}" for cutoff in (1, 5, 10, 20, 50, 100)),
    *(f"ndcg@{cutoff}" for cutoff in (10, 20, 100)),
    *(f"novelty_ndcg@{cutoff}" for cutoff in (20, 100)),
    "n_users",
    "dropped_targets",
    "top_200_share",
    "interval_cuts",
    "preference_distribution",
}


@pytest.fixture(scope="module")
def split(small_catalogue):
    return milrec.split_interactions(small_catalogue, seed=0)


@pytest.fixture(scope="module")
def fitted(split):
    return milrec.fit(split, "dae", "mil", n_factors=8, epochs=10, learning_rate=1e-2)


@pytest.fixture(scope="module")
def evaluation(fitted, split):
    return fitted.evaluate(split)


@pytest.fixture
def four_items():
    """Three users who have (0, 3), (0, 1) and (0, 2) of four items; the first lacks 2, the second lacks 2 and 3."""
    train = milrec.read({"user": [0, 0, 1, 1, 2, 2], "item": [0, 3, 0, 1, 0, 2]})
    targets = pairs_matrix(np.array([0, 1, 1]), np.array([2, 2, 3]), np.ones(3), (3, 4))
    rejected = pairs_matrix(np.array([0, 2]), np.array([1, 1]), np.ones(2), (3, 4))
    audience = Audience(train.adopted, train.rejected, train.adopted, np.arange(3))
    return train, HeldOut(audience, targets, rejected, dropped_targets=5)


@pytest.fixture
def by_popularity(four_items):
    """The popularity model's evaluation: it lists 1, 2 to the first user and 2, 3 to the second."""
    train, held_out = four_items
    model = Popularity(4)
    with torch.no_grad():
        model.decoder_bias.copy_(torch.from_numpy(train.popularity().astype(np.float32)))
    return evaluate(model, settings_for("popularity"), train, held_out)


def test_ranking_measures_by_hand(by_popularity):
    measures = by_popularity.measures
    second = 1 / math.log2(3)
    assert measures["recall@1"] == measures["recall_of_all@20"] - 0.5 == 0.5
    assert measures["recall@20"] == 1
    assert measures["ndcg@10"] == pytest.approx((second + 1) / 2)
    assert measures["novelty_ndcg@20"] == pytest.approx((second + 1) / 2)  # all targets are equally popular
    assert measures["novelty_ndcg_maximum@100"] == pytest.approx((second + 1) / 2)


def test_only_users_with_targets_are_judged_and_dropped_targets_are_counted(by_popularity):
    assert by_popularity.n_users == 2
    assert by_popularity.dropped_targets == 5
    assert all(len(values) == 2 for values in by_popularity.per_user.values())


def test_the_popularity_of_lists_by_hand(by_popularity):
    # popularity 3, 1, 1, 1: item 0 holds a third of 6, items 0 and 1 two thirds
    assert by_popularity.interval_cuts == (1, 2)
    assert by_popularity.top_shares == {"short": 0, "medium": 25, "long": 75}
    assert by_popularity.rank_evolution["medium"] == [0.5, 0, 0, 0]
    assert by_popularity.rank_evolution["long"] == [0.5, 1, 0, 0]
    assert by_popularity.measures["mean_popularity@20"] == 1
    assert by_popularity.measures["coverage@20"] == 0.75
    assert by_popularity.measures["exposure_gini@20"] == pytest.approx((-3 * 0 - 1 * 1 + 1 * 1 + 3 * 2) / (4 * 4))


def test_rejected_items_in_lists_are_counted_for_users_who_have_any(by_popularity):
    assert by_popularity.measures["rejected_share@20"] == 0.5
    assert by_popularity.undefined == {"rejected_share@5": 1, "rejected_share@20": 1, "auc_rejected": 1}


def test_the_order_of_adopted_and_rejected_items_by_hand(four_items):
    """The first user has items 1 and 2 to find and rejects 0 and 3; the second has only items to find."""
    train, held_out = four_items
    targets = pairs_matrix(np.array([0, 0, 1]), np.array([1, 2, 2]), np.ones(3), (3, 4))
    rejected = pairs_matrix(np.array([0, 0, 2]), np.array([0, 3, 1]), np.ones(3), (3, 4))
    model = Popularity(4)
    for given, share in (([0, 1, 2, 3], 0.5), ([0, 3, 2, 1], 1), ([3, 1, 1, 2], 0), ([0, 0, 1, 0], 0.75)):
        with torch.no_grad():
            model.decoder_bias.copy_(torch.tensor(given))
        judged = HeldOut(held_out.audience, targets, rejected, 0)
        found = evaluate(model, settings_for("popularity"), train, judged)
        assert found.measures["auc_rejected"] == share
        assert found.undefined["auc_rejected"] == 1
        assert found.per_user["auc_rejected"].tolist() == pytest.approx([share, math.nan], nan_ok=True)


@pytest.mark.parametrize(("model", "loss"), [("dae", "mil"), ("mf", "pointwise"), ("dae", "multinomial")])
def test_the_order_of_adopted_and_rejected_items_is_that_of_counting_pairs(split, model, loss):
    recommender = milrec.fit(split, model, loss, n_factors=4, epochs=4)
    fitted, audience = recommender.fitted, split.test.audience
    scorer = Scorer(fitted.model, fitted.settings, fitted.train)
    assert audience.n_users > 2 * ROWS
    values = []
    for user in range(audience.n_users):
        logits = logits_of(scorer, Users.of(audience, slice(user, user + 1)))[0]
        own, lower = (logits[pairs[[user]].indices] for pairs in (split.test.targets, split.test.rejected_targets))
        if len(own) and len(lower):
            values.append(np.mean(np.sign(own[:, None] - lower[None, :]).astype(np.float64) / 2 + 0.5))
    found = recommender.evaluate(split)
    assert len(values) > 50
    assert found.measures["auc_rejected"] == pytest.approx(np.mean(values), abs=1e-12)
    assert found.undefined["auc_rejected"] == found.n_users - len(values)
    low, high = found.intervals["auc_rejected"]
    assert low < found.measures["auc_rejected"] < high


def test_without_rejections_there_is_no_order_to_judge(checkerboard):
    split = milrec.split_interactions(checkerboard, seed=0)
    assert "auc_rejected" not in milrec.fit(split, "popularity").evaluate(split).measures


def test_a_model_without_preferences_has_no_distribution_of_them(by_popularity, split):
    assert by_popularity.preference_distribution is None
    multinomial = milrec.fit(split, "dae", "multinomial", n_factors=2, epochs=1)
    assert multinomial.evaluate(split).preference_distribution is None


def test_the_distribution_of_preferences_by_hand(four_items):
    train, held_out = four_items
    settings = settings_for("mf", "mil", {"n_factors": 1})
    model = MatrixFactorization(settings.model, 3, 4)
    wanted = torch.tensor([0.005, 0.3, 0.8, 0.95])
    with torch.no_grad():
        model.decoder_bias.copy_(torch.logit(wanted))
    distribution = evaluate(model, settings, train, held_out).preference_distribution
    assert distribution == pytest.approx([25, 0, 25, 0, 25, 25])


def test_no_user_to_judge_is_an_error(four_items):
    train, held_out = four_items
    nothing = empty_pairs((3, 4))
    with pytest.raises(DataError, match="no user has held-out items"):
        evaluate(Popularity(4), settings_for("popularity"), train, HeldOut(held_out.audience, nothing, nothing, 0))


@pytest.mark.parametrize("model", [("dae", "mil"), ("mf", "pointwise"), ("dae", "multinomial"), ("popularity", None)])
@pytest.mark.parametrize("protocol", ["interactions", "users"])
def test_an_evaluation_is_valid_json_with_its_keys(small_catalogue, model, protocol):
    divide = {"interactions": milrec.split_interactions, "users": milrec.split_users}[protocol]
    split = divide(small_catalogue, seed=0)
    values = {} if model[0] == "popularity" else {"n_factors": 3, "epochs": 1, "batch_size": 300}
    result = milrec.fit(split, *model, **values).evaluate(split)
    written = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert set(written) >= KEYS
    assert sum(written["top_200_share"].values()) == pytest.approx(100)
    assert set(written["top_200_share"]) == {"short", "medium", "long"}
    short, medium = written["interval_cuts"]
    assert 0 < short <= medium <= split.train.n_items
    if model in (("dae", "multinomial"), ("popularity", None)):
        assert written["preference_distribution"] is None
    else:
        assert len(written["preference_distribution"]) == 6
        assert sum(written["preference_distribution"]) == pytest.approx(100)
    assert written["n_users"] == int((np.diff(split.test.targets.indptr) > 0).sum())
    assert all(0 <= written[key] <= 1 for key in KEYS if "@" in key)


def test_measures_lie_within_their_intervals(evaluation):
    assert set(evaluation.intervals) == set(evaluation.per_user)
    for name, (low, high) in evaluation.intervals.items():
        assert low <= evaluation.measures[name] <= high, name


def test_measures_are_the_means_of_their_values_per_user(evaluation):
    for name, values in evaluation.per_user.items():
        assert evaluation.measures[name] == pytest.approx(np.nanmean(values)), name
        assert len(values) == evaluation.n_users


def test_shares_are_those_of_the_lists_that_are_recommended(fitted, split, evaluation):
    """The catalogue has fewer than 200 items: a list holds all that a user does not have."""
    judged = [fitted.user_ids[row] for row in np.flatnonzero(np.diff(split.test.targets.indptr))]
    tails = fitted.recommend(judged, n=200)["interval"].to_pylist()
    assert evaluation.top_shares == pytest.approx({name: 100 * tails.count(name) / len(tails)
                                                   for name in ("short", "medium", "long")})  # fmt: skip


def test_recall_is_that_of_the_lists_that_are_recommended(fitted, split, evaluation):
    ids = np.array(fitted.item_ids, dtype=object)
    values = []
    for row in np.flatnonzero(np.diff(split.test.targets.indptr)):
        wanted = set(ids[split.test.targets[[row]].indices])
        listed = fitted.recommend([fitted.user_ids[row]], n=20)["item"].to_pylist()
        values.append(len(wanted & set(listed)) / min(20, len(wanted)))
    assert evaluation.measures["recall@20"] == pytest.approx(np.mean(values))


def score_at_once(monkeypatch, rows) -> None:
    """Blocks of so many users, wherever blocks are made."""
    for name, module in list(sys.modules.items()):
        if name.startswith("milrec.") and hasattr(module, "ROWS"):
            monkeypatch.setattr(module, "ROWS", rows)


@pytest.mark.parametrize("rows", [1, 7, 1000])
@pytest.mark.parametrize(("model", "loss"), [("dae", "mil"), ("mf", "mil")])
def test_an_evaluation_does_not_depend_on_how_many_users_are_scored_at_once(split, monkeypatch, model, loss, rows):
    recommender = milrec.fit(split, model, loss, n_factors=8, epochs=4, learning_rate=1e-2)
    assert ROWS == 64
    usual = recommender.evaluate(split)
    score_at_once(monkeypatch, rows)
    other = recommender.evaluate(split)
    assert other.measures == pytest.approx(usual.measures, abs=1e-9)
    assert other.top_shares == pytest.approx(usual.top_shares, abs=1e-9)
    assert other.preference_distribution == pytest.approx(usual.preference_distribution, abs=1e-9)
    assert {name: (low, high) for name, (low, high) in other.intervals.items()} == {
        name: pytest.approx(interval, abs=1e-9) for name, interval in usual.intervals.items()
    }


@pytest.mark.parametrize("rows", [1, 3])
def test_new_users_are_evaluated_the_same_however_many_are_folded_in_at_once(small_catalogue, monkeypatch, rows):
    split = milrec.split_users(small_catalogue, seed=0)
    recommender = milrec.fit(split, "mf", "mil", n_factors=4, epochs=2)
    usual = recommender.evaluate(split)
    score_at_once(monkeypatch, rows)
    assert recommender.evaluate(split).measures == pytest.approx(usual.measures, abs=1e-9)


def test_a_model_that_ranks_by_the_truth_has_the_best_true_measures(split):
    truth = split.train.truth
    n_traits = truth.user_factors.shape[1]
    settings = settings_for("mf", "mil", {"n_factors": n_traits})
    model = MatrixFactorization(FactorizationSettings(n_factors=n_traits), split.train.n_users, split.train.n_items)
    weights = {
        "encoder_weight": truth.user_factors,
        "encoder_bias": np.zeros(n_traits, dtype=np.float32),
        "decoder_weight": truth.item_factors,
        "decoder_bias": truth.item_offsets,
    }
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    best = evaluate(model, settings, split.train, split.test)
    assert best.measures["true_ndcg@20"] == pytest.approx(1, abs=1e-6)
    assert best.measures["true_ndcg@100"] == pytest.approx(1, abs=1e-6)
    with torch.no_grad():
        model.decoder_weight.neg_()
        model.decoder_bias.neg_()
    worst = evaluate(model, settings, split.train, split.test)
    assert worst.measures["true_ndcg@20"] < 0.3
    assert worst.measures["true_preference@20"] < best.measures["true_preference@20"]


def test_true_preference_is_the_mean_over_the_short_list(fitted, split, evaluation):
    number = {item: column for column, item in enumerate(fitted.item_ids)}
    values = []
    for row in np.flatnonzero(np.diff(split.test.targets.indptr)):
        listed = fitted.recommend([fitted.user_ids[row]], n=20)["item"].to_pylist()
        values.append(split.train.truth.preference(np.array([row]))[0, [number[item] for item in listed]].mean())
    assert evaluation.measures["true_preference@20"] == pytest.approx(np.mean(values), abs=1e-6)


def test_without_a_truth_there_are_no_true_measures(checkerboard):
    split = milrec.split_interactions(checkerboard, seed=0)
    measures = milrec.fit(split, "popularity").evaluate(split).measures
    assert not any(name.startswith("true_") for name in measures)


@pytest.mark.parametrize("name", ["recall@1", "recall@20", "ndcg@10", "ndcg@100", "novelty_ndcg@20"])
@pytest.mark.parametrize("part", ["validation", "test"])
def test_the_validation_measure_is_that_of_the_evaluation(fitted, split, name, part):
    measured = validation_measure(name, fitted.fitted.settings, split.train, split.part(part))
    assert measured(fitted.fitted.model) == pytest.approx(fitted.evaluate(split, on=part).measures[name], abs=1e-12)


@pytest.mark.parametrize("at_once", [64, 128, 2048])
def test_progress_is_reported_up_to_the_last_user(fitted, split, monkeypatch, at_once):
    monkeypatch.setattr(scores, "_USERS_AT_ONCE", at_once)
    seen = []
    n_users = fitted.evaluate(split, report=lambda done, total: seen.append((done, total))).n_users
    assert [done for done, _ in seen] == [*range(at_once, n_users, at_once), n_users]
    assert {total for _, total in seen} == {n_users}


def test_evaluating_twice_gives_the_same(fitted, split, evaluation):
    assert json.dumps(fitted.evaluate(split).as_json()) == json.dumps(evaluation.as_json())
