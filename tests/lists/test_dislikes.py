"""Lists by P(adopted) - c·P(rejected), against the same worked out for all items at once."""

import re
from typing import Any

import numpy as np
import pytest

import milrec
from commands import in_a_process, succeeds
from commands import milrec as command
from milrec.data.roles import exchanged, of_rejections
from milrec.errors import DataError, SettingsError
from milrec.lists.scores import Scorer, logits_of
from milrec.models.inputs import Users

SHORT = {"n_factors": 8, "iterations": 40}


@pytest.fixture(scope="module")
def split(small_catalogue):
    return milrec.split_interactions(small_catalogue, seed=0)


@pytest.fixture(scope="module")
def liked(split):
    return milrec.fit(split, rejected_as="missing", **SHORT)


@pytest.fixture(scope="module")
def disliked(split):
    return milrec.fit_dislikes(split, **SHORT)


def failing(*arguments, cwd):
    done = command(*arguments, cwd=cwd)
    assert done.returncode, arguments
    return done.stderr


def chances(model, audience, adopted, rejected):
    """(n_users, n_items), from all logits."""
    fitted = model.fitted
    scorer = Scorer(fitted.model, fitted.settings, fitted.train, fitted.calibration)
    found = []
    for start in range(0, audience.n_users, 64):
        users = Users.of(audience, slice(start, min(start + 64, audience.n_users)))
        own = Users(getattr(users, adopted), getattr(users, rejected), None)
        shifts = scorer.chances.shifts(own.adopted.counts, own.rejected.counts)
        logits = logits_of(scorer, own)[: users.n_users].copy()
        found.append(scorer.chances.probabilities(logits, shifts[:, None]))
    return np.concatenate(found)


@pytest.mark.parametrize("cost", [0, 0.5, 2, 50])
def test_lists_are_those_of_a_search_through_all_items(split, liked, disliked, cost):
    audience = split.test.audience
    worth = chances(liked, audience, "adopted", "rejected")
    worth = worth - cost * chances(disliked, audience, "rejected", "adopted")
    hidden = (audience.removed.toarray() > 0) | (audience.rejected.toarray() > 0)
    worth[hidden] = -np.inf
    lists = liked.recommend(liked.user_ids, n=10, dislikes=disliked.at_cost(cost))
    listed, ids = lists["item"].to_pylist(), liked.item_ids
    for user in range(len(liked.user_ids)):
        own = worth[user, [ids.index(item) for item in listed[10 * user : 10 * user + 10]]]
        assert own == pytest.approx(np.sort(worth[user])[::-1][:10], rel=1e-6)


def test_a_dislike_that_costs_nothing_changes_nothing(liked, disliked):
    users = liked.user_ids[:20]
    assert liked.recommend(users, dislikes=disliked.at_cost(0)).equals(liked.recommend(users))


def test_a_list_does_not_depend_on_who_else_is_asked_for(liked, disliked):
    spared = disliked.at_cost(1)
    together = liked.recommend(liked.user_ids, n=7, dislikes=spared).to_pylist()
    for place in (0, 70, 269):
        alone = liked.recommend([liked.user_ids[place]], n=7, dislikes=spared).to_pylist()
        assert alone == together[7 * place : 7 * place + 7]


def test_the_more_a_dislike_costs_the_fewer_are_expected_of_the_lists(split, liked, disliked):
    expected, ids = chances(disliked, split.test.audience, "rejected", "adopted"), liked.item_ids
    sums = []
    for cost in (0, 1, 20):
        listed = liked.recommend(liked.user_ids, n=10, dislikes=disliked.at_cost(cost))["item"].to_pylist()
        sums.append(sum(expected[place // 10, ids.index(item)] for place, item in enumerate(listed)))
    assert sums[0] > sums[1] > sums[2]


def test_evaluation_judges_the_lists_that_are_given_out(split, liked, disliked):
    """Hits in the first five places, counted from the lists."""
    spared = disliked.at_cost(2)
    lists = liked.recommend(liked.user_ids, n=5, dislikes=spared)["item"].to_pylist()
    targets, ids = split.test.targets.toarray() > 0, liked.item_ids
    shares = []
    for user in np.flatnonzero(targets.any(axis=1)):
        hits = sum(targets[user, ids.index(item)] for item in lists[5 * user : 5 * user + 5])
        shares.append(hits / min(5, targets[user].sum()))
    found = liked.evaluate(split, dislikes=spared)
    assert found.measures["recall@5"] == pytest.approx(np.mean(shares))
    assert found.preference_distribution == liked.evaluate(split).preference_distribution  # the model's own


def test_new_users_are_spared_too(liked, disliked):
    taste, refused = liked.item_ids[:3], liked.item_ids[50:56]
    plain = liked.recommend_new(taste, refused, n=10)
    spared = liked.recommend_new(taste, refused, n=10, dislikes=disliked.at_cost(20))
    assert plain["item"].to_pylist() != spared["item"].to_pylist()
    assert not set(spared["item"].to_pylist()) & {*taste, *refused}


def test_what_does_not_go_together_is_refused(small_catalogue, split, liked, disliked):
    spared, users = disliked.at_cost(1), liked.user_ids[:1]
    more: dict[str, Any]
    for more in ({"long_share": 0.3}, {"dial": 0.1}, {"rules": ["long >= 30%"]}):
        with pytest.raises(SettingsError, match="`dislikes` cannot be combined with rules"):
            liked.recommend(users, dislikes=spared, **more)
    with pytest.raises(SettingsError, match="`dislikes` cannot be combined with rules"):
        liked.evaluate(split, dislikes=spared, long_share=0.3)
    with pytest.raises(SettingsError, match=r"fit one to what they reject: milrec\.fit_dislikes"):
        liked.at_cost(1)
    for cost in (-1, float("nan"), "much", True, 1e9):
        with pytest.raises(SettingsError, match="the cost of a dislike must be a number from 0 to 1,000"):
            disliked.at_cost(cost)
    with pytest.raises(SettingsError, match="has weights for each user"):
        milrec.fit_dislikes(split, "mf", **SHORT).at_cost(1)
    for wrong in (disliked, "dislikes", 0.5):
        with pytest.raises(SettingsError, match="`dislikes` must be a model of rejections at a cost"):
            liked.recommend(users, dislikes=wrong)
    smaller = small_catalogue.subset(np.ones(270, dtype=bool), np.arange(120) < 100)
    other = milrec.fit_dislikes(milrec.split_interactions(smaller, seed=0), **SHORT)
    for asked in (
        lambda: liked.recommend(users, dislikes=other.at_cost(1)),
        lambda: liked.evaluate(split, dislikes=other.at_cost(1)),
    ):
        with pytest.raises(DataError, match="the model of `dislikes` has other items"):
            asked()


def test_a_cost_at_which_most_items_are_worth_less_than_nothing_compares_them_all(liked, disliked):
    """Alone and together: where the first candidates do not decide, each user is looked at alone."""
    spared = disliked.at_cost(1000)
    together = liked.recommend(liked.user_ids[:80], n=3, dislikes=spared).to_pylist()
    assert together[210:213] == liked.recommend([liked.user_ids[70]], n=3, dislikes=spared).to_pylist()


def test_an_evaluation_refuses_dislikes_that_were_learned_elsewhere(small_catalogue, split, liked, disliked):
    other = milrec.split_interactions(small_catalogue, seed=9)
    foreign = milrec.fit_dislikes(other, **SHORT)
    with pytest.raises(DataError, match=r"fitted on another split|has other items"):
        liked.evaluate(split, dislikes=foreign.at_cost(1))
    again = milrec.refit(split, disliked)  # on training and validation
    assert again.fitted.predicts_rejections
    with pytest.raises(DataError, match="the model of dislikes is refitted"):
        liked.evaluate(split, "validation", dislikes=again.at_cost(1))
    found = milrec.refit(split, liked).evaluate(split, dislikes=again.at_cost(1))
    assert found.dislike_cost == 1 and found.as_json()["dislike_cost"] == 1
    assert "dislike_cost" not in liked.evaluate(split).as_json()


def test_a_split_over_users_and_a_saved_split_of_rejections_are_refused(small_catalogue, split, tmp_path):
    with pytest.raises(DataError, match="a split over users holds out no rejections"):
        milrec.fit_dislikes(milrec.split_users(small_catalogue, seed=0))
    with pytest.raises(DataError, match="save the split itself"):
        of_rejections(split).save(tmp_path / "swapped")


def test_data_without_rejections_has_no_dislikes(checkerboard):
    with pytest.raises(DataError, match="no rejected pairs to learn from"):
        milrec.fit_dislikes(milrec.split_interactions(checkerboard, seed=0))


def test_roles_are_exchanged_and_nothing_known_is_predicted(split):
    swapped = of_rejections(split)
    assert (swapped.train.adopted != split.train.rejected).nnz == 0
    assert (swapped.test.targets != split.test.rejected_targets).nnz == 0
    hidden = (swapped.test.audience.removed + swapped.test.audience.rejected).toarray() > 0
    known = (split.test.audience.removed + split.test.audience.rejected + split.train.adopted).toarray() > 0
    assert (hidden == known).all()
    assert (exchanged(exchanged(split.train)).adopted != split.train.adopted).nnz == 0


def test_a_model_of_rejections_is_judged_on_them_and_refitted(split, disliked, tmp_path):
    found = disliked.evaluate(split)
    assert found.measures == disliked.evaluate(of_rejections(split)).measures
    assert found.n_users == (np.diff(split.test.rejected_targets.indptr) > 0).sum()
    disliked.save(tmp_path / "dislikes")
    assert milrec.load(tmp_path / "dislikes").fitted.predicts_rejections


def test_the_commands_do_the_same(split, liked, disliked, tmp_path):
    split.save(tmp_path / "split")
    liked.save(tmp_path / "liked")
    quick = [word for key, value in SHORT.items() for word in ("--set", f"{key}={value}")]
    succeeds("fit", "split", "--out", "dislikes", "--predict", "rejections", *quick, cwd=tmp_path)
    assert (
        milrec.load(tmp_path / "dislikes").recommend(liked.user_ids[:3]).equals(disliked.recommend(liked.user_ids[:3]))
    )
    user = str(liked.user_ids[0])
    asked = ("recommend", "liked", "--user", user, "-n", "5", "--dislikes", "dislikes")
    done = succeeds(*asked, "--dislike-cost", "20", cwd=tmp_path)
    spared = liked.recommend([liked.user_ids[0]], n=5, dislikes=disliked.at_cost(20))
    assert [line.split("\t")[2] for line in done.stdout.splitlines()[1:]] == [
        str(one) for one in spared["item"].to_pylist()
    ]
    done = succeeds("evaluate", "liked", "split", "--dislikes", "dislikes", cwd=tmp_path)
    share = liked.evaluate(split, dislikes=disliked.at_cost(0.5)).measures["rejected_share@20"]
    assert f"{100 * share:.2f} %" in done.stdout
    assert "--dislike-cost needs --dislikes" in failing(
        "recommend", "liked", "--user", user, "--dislike-cost", "1", cwd=tmp_path
    )
    refused = failing("evaluate", "liked", "split", "--dislikes", "liked", cwd=tmp_path)
    assert "--dislikes takes one of what they reject" in refused
    assert "there is no model folder" in failing(*asked[:-1], "nowhere", cwd=tmp_path)
    shown = succeeds("show", "dislikes", cwd=tmp_path).stdout
    assert re.search(rf"adopted +{split.train.adopted.nnz:,}\n +rejected +{split.train.rejected.nnz:,}\n", shown)
    refused = failing("fit", "split", "--out", "other", "--predict", "rejections", "--cluster", "local", cwd=tmp_path)
    done = succeeds("recommend", "dislikes", "--user", user, cwd=tmp_path)
    assert "this model predicts what users reject" in done.stderr
    done = in_a_process("serve", "dislikes", "--port", "0", cwd=tmp_path, timeout=300)
    assert done.returncode and "serve a model of what they adopt" in done.stderr
    assert "predicts what users reject, too" in failing(
        "recommend", "dislikes", "--user", user, "--dislikes", "dislikes", cwd=tmp_path
    )
    assert "hits are rejected items" in succeeds("evaluate", "dislikes", "split", cwd=tmp_path).stdout
    assert "leave --cluster out" in refused and not (tmp_path / "other").exists()
