"""Queries for new users, for known ones, and for known users with new items; items that the model does not know."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy.sparse import csr_array

import milrec
from milrec.errors import DataError, SkippedItemsWarning, UnknownIdError
from milrec.lists.query import Query
from milrec.lists.scores import Scorer, lists_for
from milrec.metrics.tail import popularity_order
from milrec.recommender import Recommender

SILENT = ["ease", "ease-sparse", "slim", "wmf"]  # models that say nothing about somebody who adopted nothing
QUICK = {"n_factors": 4, "epochs": 2}
MODELS: dict[str, dict] = {
    "dae": QUICK,
    "cdae": QUICK,
    "mf": QUICK,
    "wmf": {"n_factors": 4},
    "ease": {},
    "ease-sparse": {"neighbours": 3},
    "slim": {},
    "popularity": {},
}
NO_ITEMS = "no adopted items of this user are known, so the list is ranked by popularity"


@pytest.fixture(scope="module")
def split(small_catalogue):
    return milrec.split_interactions(small_catalogue, seed=0)


@pytest.fixture(scope="module")
def fitted(split):
    known = {}

    def fit(name):
        if name not in known:
            known[name] = milrec.fit(split, name, **MODELS[name])
        return known[name]

    return fit


@pytest.fixture(params=MODELS)
def recommender(request, fitted):
    return fitted(request.param)


def one(recommender, **values):
    (answer,) = recommender.answer([recommender.ask(Query(**values))])
    return answer


def test_unknown_items_are_skipped_and_named_if_a_query_is_not_strict(recommender):
    known = one(recommender, adopted=["i001", "i002"], rejected=["i003"])
    given = {"adopted": ["i001", "x", "i002", "y", "x"], "rejected": ["z", "i003"]}
    found = one(recommender, **given, strict=False)
    assert found == replace(known, skipped=("x", "y", "z"))
    weighted = one(recommender, adopted={"i001": 1, "x": 2, "i002": 1}, rejected=["i003"], strict=False)
    assert weighted == replace(known, skipped=("x",))
    with pytest.raises(UnknownIdError, match="unknown items 'x', 'y', 'x'"):
        recommender.ask(Query(**given))


def test_at_least_one_adopted_item_must_be_known(fitted):
    model = fitted("popularity")
    with pytest.raises(UnknownIdError, match="none of the adopted items is known: unknown items 'x', 'y'"):
        model.ask(Query(adopted=["x", "y"], rejected=["i001"], strict=False))
    with pytest.raises(UnknownIdError, match="none of the adopted items is known: unknown item 'x'"):
        model.ask(Query(adopted={"x": 3}, strict=False))
    with pytest.raises(DataError, match="the weight of item 'x' must be a number"):
        model.ask(Query(adopted={"x": 0, "i001": 1}, strict=False))
    assert model.ask(Query(adopted=[], rejected=["x"], strict=False)).skipped == ("x",)


def test_ids_that_are_numbers_are_skipped_like_any_other(checkerboard):
    model = milrec.fit(milrec.split_interactions(checkerboard, seed=0), "ease")
    asked = model.ask(Query(adopted=[2, "4", "04", "nothing", 2.5, 10**30], strict=False))
    assert [model.item_ids[item] for item in asked.adopted] == [2, 4]
    assert asked.skipped == ("04", "nothing", 2.5, 10**30)


def test_the_table_of_a_list_tells_what_was_skipped(fitted):
    told = []
    table = fitted("dae").recommend_new(["i001", "x"], n=3, on_unmet=lambda *said: told.append(said), strict=False)
    assert table.equals(fitted("dae").recommend_new(["i001"], n=3))
    assert told == [(None, "an unknown item was skipped: 'x'")]
    many = [f"x{number}" for number in range(30)]
    fitted("dae").recommend_new(["i001", *many], on_unmet=lambda *said: told.append(said), strict=False)
    assert told[1][1].endswith("'x19' and 10 more")


def test_a_known_user_can_have_new_items_none_of_which_is_listed(recommender):
    user = recommender.user_ids[3]
    before = recommender.ask(Query(user=user))
    usual = [listed.item for listed in one(recommender, user=user, n=200).items]
    adopted, rejected = usual[:2], usual[2:4]
    asked = recommender.ask(Query(user=user, adopted=adopted, rejected=rejected))
    ids = recommender.item_ids
    assert {ids[item] for item in asked.adopted} == {*(ids[item] for item in before.adopted), *adopted}
    assert {ids[item] for item in asked.rejected} == {*(ids[item] for item in before.rejected), *rejected}
    assert (np.diff(asked.adopted) > 0).all()
    listed = [listed.item for listed in one(recommender, user=user, adopted=adopted, rejected=rejected, n=200).items]
    assert set(listed) == set(usual) - {*adopted, *rejected}


@pytest.mark.parametrize("name", [name for name in MODELS if name != "cdae"])
def test_the_list_is_that_of_a_new_user_with_all_these_items(fitted, name):
    """Also where the model has weights for each user, mf and wmf: these know nothing of the new items."""
    model = fitted(name)
    asked = model.ask(Query(user=model.user_ids[3], adopted=["i001", "i002"], rejected=["i003"]))
    everything = [model.item_ids[item] for item in asked.adopted]
    gone = [model.item_ids[item] for item in asked.removed]
    rejected = [model.item_ids[item] for item in asked.rejected]
    expected = one(model, adopted=everything, rejected=rejected, exclude=gone, reasons=2)
    found = one(model, user=model.user_ids[3], adopted=["i001", "i002"], rejected=["i003"], reasons=2)
    assert found == expected


def test_a_model_that_reads_items_and_users_keeps_what_it_knows_about_a_user(fitted):
    """cdae: h = s(W·v + V_u + b), with the new items in v."""
    model = fitted("cdae")
    asked = model.ask(Query(user=model.user_ids[3], adopted=["i001"]))
    assert asked.number == 3
    answer = one(model, user=model.user_ids[3], adopted=["i001"], n=5)
    own = model.fitted.model
    inputs = np.zeros(len(own.encoder_weight), dtype=np.float32)
    inputs[asked.adopted] = 1 / np.sqrt(len(asked.adopted))
    inputs[own.n_items + 3] = 1
    with torch.no_grad():
        scores = own.decode(own.latent(torch.from_numpy(inputs) @ own.encoder_weight)).numpy()
    found = {listed.number: listed.score for listed in answer.items}
    assert found == pytest.approx({number: scores[number] for number in found}, rel=1e-4)


def test_nothing_new_changes_nothing(recommender):
    user = recommender.user_ids[3]
    usual = one(recommender, user=user)
    assert one(recommender, user=user, adopted=[], rejected=[]) == usual
    assert one(recommender, user=user, adopted=["x"], strict=False) == replace(usual, skipped=("x",))
    table = recommender.recommend_new([], user=user)
    assert table.equals(recommender.recommend([user]))


def test_what_is_said_today_counts(fitted, split):
    model = fitted("ease")
    row = int(np.argmax(np.diff(split.train.rejected.indptr)))
    user, ids = model.user_ids[row], model.item_ids
    before = model.ask(Query(user=user))
    changed, regretted = ids[before.rejected[0]], ids[before.adopted[0]]
    asked = model.ask(Query(user=user, adopted=[changed], rejected=[regretted]))
    assert before.rejected[0] in asked.adopted and before.rejected[0] not in asked.rejected
    assert before.adopted[0] in asked.rejected and before.adopted[0] not in asked.adopted
    listed = {listed.item for listed in one(model, user=user, adopted=[changed], rejected=[regretted], n=200).items}
    assert not listed & {changed, regretted}
    with pytest.raises(DataError, match="item 'i001' is both adopted and rejected"):
        model.ask(Query(user=user, adopted=["i001"], rejected=["i001"]))


def test_weights_of_today_are_added_to_those_of_the_training_part():
    table = pa.table({"user": ["a", "a", "b", "b"], "item": ["x", "y", "y", "z"], "plays": [3, 1, 1, 2]})
    data = milrec.read(table, value="plays")
    whole = milrec.fit(milrec.split_interactions(data, seed=0, held_out=0), "popularity")
    asked = whole.ask(Query(user="a", adopted={"x": 4, "z": 0.5}))
    assert dict(zip((whole.item_ids[item] for item in asked.adopted), asked.weights.tolist(), strict=True)) == {
        "x": 7,
        "y": 1,
        "z": 0.5,
    }
    assert whole.ask(Query(user="a", adopted={"x": 1e30})).weights.max() == np.float32(1e30)


def test_a_model_without_its_users_knows_nobody_with_new_items_either(fitted):
    with pytest.raises(UnknownIdError, match="saved without its users"):
        fitted("ease").without_users().ask(Query(user="u001", adopted=["i001"]))


@pytest.mark.parametrize("name", SILENT)
def test_a_list_for_somebody_who_adopted_nothing_goes_by_popularity_and_says_so(fitted, name):
    model = fitted(name)
    by_popularity = [model.item_ids[item] for item in popularity_order(model.fitted.train.popularity())]
    for n in (5, len(by_popularity)):
        answer = one(model, adopted=[], n=n)
        assert [listed.item for listed in answer.items] == by_popularity[:n] and answer.unmet == (NO_ITEMS,)
    answer = one(model, adopted=[], rejected=by_popularity[1:3], n=3)
    assert [listed.item for listed in answer.items] == [by_popularity[0], *by_popularity[3:5]]
    ruled = one(model, adopted=[], n=10, rules=["long >= 0"])
    assert [listed.item for listed in ruled.items] == by_popularity[:10] and ruled.unmet == (NO_ITEMS,)
    bonus = one(model, adopted=[], n=10, long_bonus=0)
    assert [listed.item for listed in bonus.items] == by_popularity[:10]


@pytest.mark.parametrize("name", ["dae", "cdae", "mf", "popularity"])
def test_a_model_with_biases_has_a_list_of_its_own_for_somebody_who_adopted_nothing(fitted, name):
    answer = one(fitted(name), adopted=[], n=30)
    assert answer.unmet == () and len({listed.score for listed in answer.items}) > 1


@pytest.mark.parametrize("name", ["ease", "ease-sparse", "slim"])
def test_known_users_who_adopted_nothing_get_popular_items(fitted, split, name):
    model = fitted(name)
    nobody = csr_array(split.train.adopted.shape, dtype=np.float32)
    known = replace(split.train, adopted=nobody)
    empty = Recommender(replace(model.fitted, train=known, removed=split.train.adopted))
    told = []
    table = pa.Table.from_batches(empty.recommend_all(3, lambda *said: told.append(said), range(2)))
    assert told == [(user, NO_ITEMS) for user in model.user_ids[:2]] and table.num_rows == 6


@pytest.mark.parametrize("name", SILENT)
def test_lists_that_are_judged_go_by_popularity_too(fitted, split, name):
    model = fitted(name)
    nobody = csr_array(split.train.adopted.shape, dtype=np.float32)
    scorer = Scorer(model.fitted.model, model.fitted.settings, split.train)
    audience = replace(split.part("test").audience, adopted=nobody, removed=nobody, rejected=nobody, rows=None)
    (first, *_) = lists_for(scorer, audience, 7)
    assert (first.items == popularity_order(split.train.popularity())[:7]).all()


def test_a_list_to_which_adopted_items_say_nothing_says_so():
    """Only x and y go together; z, the most popular, and w go with nothing."""
    rows = [(user, item) for user in range(8) for item in ("x", "y")] + [(user, "z") for user in range(8, 21)]
    rows += [(user, "w") for user in range(21, 31)]
    data = milrec.read(pa.table({"user": [user for user, _ in rows], "item": [item for _, item in rows]}))
    model = milrec.fit(milrec.split_interactions(data, seed=0), "slim")
    answer = one(model, adopted=["w"])
    assert answer.items[0].item == "z" and {listed.score for listed in answer.items} == {0}
    assert answer.unmet == ("the adopted items say nothing about others, so the list is ranked by popularity",)
    assert one(model, adopted=["x"]).items[0].item == "y" and one(model, adopted=["x", "w"]).unmet == ()


def test_items_may_come_from_an_iterator(fitted):
    model = fitted("ease")
    items = model.item_ids[:2]
    with pytest.warns(SkippedItemsWarning):
        skipping = model.recommend_new(iter([*items, "nothing"]), strict=False)
    assert skipping == model.recommend_new(items)


def test_skipped_items_are_warned_of_where_nobody_else_is_told(fitted):
    model = fitted("ease")
    with pytest.warns(SkippedItemsWarning, match="^unknown items were skipped: 'zz', 'yy'$"):
        model.recommend_new(["i001", "zz"], rejected=["yy"], strict=False)
    with pytest.warns(SkippedItemsWarning, match="^an unknown item was skipped: 'zz'$"):
        model.recommend_new(["zz"], user=model.user_ids[0], strict=False)


def test_a_table_for_an_empty_taste_says_that_it_goes_by_popularity(fitted):
    assert set(fitted("ease").recommend_new([], n=3)["unmet"].to_pylist()) == {NO_ITEMS}
    assert "unmet" not in fitted("dae").recommend_new([], n=3).column_names


def test_a_known_user_who_rejects_something_else_is_not_folded_in_anew(fitted):
    model = fitted("mf")
    user = model.user_ids[0]
    before = model.recommend([user], n=10)["item"].to_pylist()
    after = model.recommend_new([], rejected=before[:1], user=user, n=9)["item"].to_pylist()
    assert after == before[1:]
