"""Recommender: ids in, ids out."""

import re
import warnings

import numpy as np
import pyarrow as pa
import pytest
import torch

import milrec
from milrec.data.splits import Split
from milrec.errors import DataError, SettingsError, SmallDataWarning, UnknownIdError
from milrec.models.item_to_item import ItemToItem, SparseItemToItem

COLUMNS = ["user", "position", "item", "title", "score", "probability", "popularity", "interval"]


@pytest.fixture(scope="module")
def split(small_catalogue):
    return milrec.split_interactions(small_catalogue, seed=0)


@pytest.fixture(scope="module")
def dae(split):
    return milrec.fit(split, "dae", "mil", n_factors=16, epochs=20)


@pytest.fixture(scope="module")
def mf(split):
    return milrec.fit(split, "mf", "pointwise", n_factors=8, epochs=150, learning_rate=2e-2, weight_decay=20)


@pytest.fixture(scope="module")
def popularity(split):
    return milrec.fit(split, "popularity")


@pytest.fixture(params=["dae", "mf", "popularity"])
def recommender(request):
    return request.getfixturevalue(request.param)


def items_of(pairs, user, recommender) -> list:
    """The ids of one user's row of a matrix of pairs."""
    row = recommender.user_ids.index(user)
    return [recommender.item_ids[item] for item in pairs[[row]].indices]


def unsplit(data) -> Split:
    """All interactions to learn from; nothing kept back."""
    whole = milrec.split_interactions(data, seed=0, held_out=0.0)
    assert whole.train.adopted.nnz == data.adopted.nnz
    return whole


def test_lists_of_known_users_are_best_first_and_say_what_is_listed(recommender, split):
    users = recommender.user_ids[5:8]
    table = recommender.recommend(users, n=10)
    assert table.column_names == COLUMNS
    assert table["user"].to_pylist() == [user for user in users for _ in range(10)]
    assert table["position"].to_pylist() == list(range(1, 11)) * 3
    for start in (0, 10, 20):
        scores = table["score"].to_numpy()[start : start + 10]
        assert (np.diff(scores) <= 0).all()
    for row in table.to_pylist():
        number = recommender.item_ids.index(row["item"])
        assert row["title"] == split.train.items["title"][number].as_py()
        assert row["popularity"] == split.train.popularity()[number]
        assert row["interval"] in ("short", "medium", "long")


def test_nothing_that_a_user_has_or_rejected_is_listed(recommender, split):
    for user in recommender.user_ids[:30]:
        listed = set(recommender.recommend([user], n=1000)["item"].to_pylist())
        known = {
            *items_of(split.train.adopted, user, recommender),
            *items_of(split.validation.targets, user, recommender),
            *items_of(split.validation.rejected_targets, user, recommender),
            *items_of(split.train.rejected, user, recommender),
        }
        assert listed == set(recommender.item_ids) - known


def test_popularity_lists_the_most_adopted_items(popularity):
    table = popularity.recommend(popularity.user_ids[:1], n=10)
    assert table["score"].to_pylist() == table["popularity"].to_pylist()


def test_a_list_is_as_long_as_what_is_allowed(recommender):
    user = recommender.user_ids[0]
    allowed = recommender.recommend([user], n=20)["item"].to_pylist()[3:13:2]
    assert recommender.recommend([user], n=20, allow=allowed)["item"].to_pylist() == allowed


def test_what_is_excluded_is_left_out_and_the_rest_stays(recommender):
    user = recommender.user_ids[0]
    usual = recommender.recommend([user], n=20)["item"].to_pylist()
    listed = recommender.recommend([user], n=15, exclude=usual[:5])["item"].to_pylist()
    assert listed == usual[5:]


def test_what_is_allowed_and_excluded_is_left_out(recommender):
    usual = recommender.recommend(recommender.user_ids[:1], n=3)["item"].to_pylist()
    table = recommender.recommend(recommender.user_ids[:1], allow=usual, exclude=usual[1:])
    assert table["item"].to_pylist() == usual[:1]


def test_ids_outside_the_catalogue_may_be_allowed_and_excluded(recommender):
    table = recommender.recommend(recommender.user_ids[:1], n=3, exclude=["no such item"])
    assert table.equals(recommender.recommend(recommender.user_ids[:1], n=3))
    assert recommender.recommend(recommender.user_ids[:1], allow=["no such item"]).num_rows == 0
    assert recommender.recommend(recommender.user_ids[:1], allow=[]).num_rows == 0
    assert recommender.outside_catalogue(["no such item", recommender.item_ids[0]]) == 1


def test_unknown_users_and_items_are_named(recommender):
    with pytest.raises(UnknownIdError, match=r"unknown user 'nobody'.*give adopted items"):
        recommender.recommend([recommender.user_ids[0], "nobody"])
    with pytest.raises(UnknownIdError, match="unknown item 'nothing'"):
        recommender.recommend_new(["nothing"])
    with pytest.raises(UnknownIdError, match="unknown item 'nothing'"):
        recommender.recommend_new([], rejected=["nothing"])


def test_users_come_in_the_order_asked_for_and_as_often(recommender):
    first, second = recommender.user_ids[:2]
    table = recommender.recommend([second, first, second], n=2)
    assert table["user"].to_pylist() == [second] * 2 + [first] * 2 + [second] * 2
    assert table.slice(0, 2).equals(table.slice(4, 2))


def test_no_users_give_an_empty_table_with_the_same_columns(recommender):
    table = recommender.recommend([])
    assert table.num_rows == 0 and table.schema == recommender.recommend(recommender.user_ids[:1]).schema


def test_lists_for_all_are_the_lists_for_each(recommender):
    whole = pa.Table.from_batches(list(recommender.recommend_all(n=12)))
    assert whole.equals(recommender.recommend(recommender.user_ids, n=12).combine_chunks())
    for user in recommender.user_ids[::40]:
        alone = recommender.recommend([user], n=12)
        assert whole.filter(pa.compute.equal(whole["user"], user)).combine_chunks().equals(alone.combine_chunks())


def test_lists_for_all_keep_to_what_is_allowed(recommender):
    allowed = recommender.item_ids[:7]
    whole = pa.Table.from_batches(list(recommender.recommend_all(allow=allowed, exclude=allowed[:2])))
    assert set(whole["item"].to_pylist()) == set(allowed[2:])


@pytest.mark.parametrize("n", [0, -1])
def test_a_list_of_less_than_one_item_is_refused(recommender, n):
    for ask in (
        lambda: recommender.recommend(recommender.user_ids[:1], n=n),
        lambda: recommender.recommend_new(recommender.item_ids[:1], n=n),
        lambda: list(recommender.recommend_all(n=n)),
    ):
        with pytest.raises(SettingsError, match=f"a whole number of 1 or more, not {n}"):
            ask()


def test_a_new_user_with_the_items_of_a_known_one_gets_the_same_list(dae, split):
    for user in dae.user_ids[:25]:
        adopted = items_of(split.train.adopted, user, dae)
        rejected = items_of(split.train.rejected, user, dae)
        kept_back = split.validation.targets + split.validation.rejected_targets
        validation = items_of(kept_back, user, dae)
        new = dae.recommend_new(adopted, rejected, n=30, exclude=validation)
        assert new.combine_chunks().equals(dae.recommend([user], n=30).drop_columns("user").combine_chunks())


def test_a_new_user_folded_into_a_factorization_gets_much_of_the_list_of_a_known_one(mf, split):
    overlaps = []
    for user in mf.user_ids[:15]:
        adopted = items_of(split.train.adopted, user, mf)
        rejected = items_of(split.train.rejected, user, mf)
        kept_back = split.validation.targets + split.validation.rejected_targets
        validation = items_of(kept_back, user, mf)
        new = mf.recommend_new(adopted, rejected, n=10, exclude=validation)["item"].to_pylist()
        known = mf.recommend([user], n=10)["item"].to_pylist()
        overlaps.append(len({*new} & {*known}) / 10)
    assert np.mean(overlaps) >= 0.6


@pytest.mark.parametrize("loss", ["square", "pointwise", "pairwise", "multinomial", "mil"])
def test_on_a_checkerboard_a_folded_in_user_gets_the_withheld_item_first(checkerboard, loss):
    values: dict[str, float | str] = {"n_factors": 4, "epochs": 200, "learning_rate": 3e-2, "weight_decay": 0.2}
    if loss == "pairwise":
        values["target_set"] = "shared"  # much quicker than the mean over all pairs
    recommender = milrec.fit(unsplit(checkerboard), "mf", loss, **values)
    for user in (26, 47):
        adopted = checkerboard.adopted[[user]].indices
        withheld = user % 2 + 2 * ((user // 2) % 10)
        assert withheld not in adopted
        assert recommender.recommend([user], n=1)["item"].to_pylist() == [withheld]
        assert recommender.recommend_new(adopted.tolist(), n=1)["item"].to_pylist() == [withheld]


def test_a_new_user_is_listed_nothing_adopted_or_rejected(recommender):
    usual = recommender.recommend_new(recommender.item_ids[:3], n=1000)["item"].to_pylist()
    assert set(usual) == set(recommender.item_ids[3:])
    listed = recommender.recommend_new(recommender.item_ids[:3], rejected=usual[:4], n=1000)["item"].to_pylist()
    assert set(listed) == set(usual[4:])


def test_a_new_user_without_items_gets_a_list(recommender):
    table = recommender.recommend_new([], n=5)
    assert table["position"].to_pylist() == [1, 2, 3, 4, 5]
    assert np.isfinite(table["score"].to_numpy()).all()


def test_an_item_given_twice_counts_once(recommender):
    once = recommender.recommend_new(recommender.item_ids[:2], n=5)
    assert recommender.recommend_new(recommender.item_ids[:2] * 2, n=5).equals(once)


def test_an_item_cannot_be_both_adopted_and_rejected(recommender):
    one = recommender.item_ids[4]
    with pytest.raises(DataError, match=f"item '{one}' is both adopted and rejected"):
        recommender.recommend_new([one], rejected=[one])


def test_similar_items_are_those_that_the_model_and_the_adopters_of_both_agree_on(dae):
    """The formula in the docstring of Nearness, computed the long way."""
    factors = dae.fitted.model.decoder_weight.detach().numpy().astype(np.float64)
    adopted = dae.fitted.train.adopted.toarray() > 0
    popularity = adopted.sum(axis=0)
    own = np.maximum(factors @ factors[3], 0) * popularity / (popularity + 10)
    counts = (adopted & adopted[:, 3:4]).sum(axis=0)
    votes = ((adopted & adopted[:, 3:4]) / np.maximum(adopted.sum(axis=1, keepdims=True), 1)).sum(axis=0)
    together = votes / np.sqrt(popularity) * counts / (counts + 100)
    own[3] = together[3] = 0
    share = 4 * popularity[3] / (popularity[3] + 10)
    blend = (own / own.max() + share * together / together.max()) / (1 + share)
    expected = np.argsort(-blend, kind="stable")[:10]
    table = dae.similar_items(dae.item_ids[3], n=10)
    assert table.column_names == ["position", "item", "title", "popularity", "interval", "blend"]
    assert table["item"].to_pylist() == [dae.item_ids[number] for number in expected]
    assert table["blend"].to_numpy() == pytest.approx(blend[expected], abs=1e-6)
    assert dae.similar_items(dae.item_ids[3], n=1000).num_rows == (blend > 0).sum()


def test_without_users_the_model_alone_says_which_items_are_similar(dae):
    factors = dae.fitted.model.decoder_weight.detach().numpy().astype(np.float64)
    popularity = dae.fitted.train.popularity()
    own = np.maximum(factors @ factors[3], 0) * popularity / (popularity + 10)
    own[3] = 0
    table = dae.without_users().similar_items(dae.item_ids[3], n=5)
    expected = np.argsort(-own, kind="stable")[:5]
    assert table["item"].to_pylist() == [dae.item_ids[number] for number in expected]
    assert table["own"].to_numpy() == pytest.approx(own[expected] / own.max(), abs=1e-6)


def test_similar_items_of_a_checkerboard_have_its_colour(checkerboard):
    recommender = milrec.fit(unsplit(checkerboard), "dae", "mil", n_factors=4, epochs=200, learning_rate=1e-2)
    for item in (4, 7):
        similar = recommender.similar_items(item, n=9)["item"].to_pylist()
        assert {one % 2 for one in similar} == {item % 2}


def with_an_item_of_one_adopter() -> Split:
    """Items 0 to 4 have 30 adopters in common; item 9 has one, who has item 0 too."""
    users = [[0, 1, 2, 3, 4]] * 30 + [[5, 6, 7, 8]] * 30 + [[0, 9]]
    pairs = [(user, item) for user, items in enumerate(users) for item in items]
    return unsplit(milrec.read({"user": [user for user, _ in pairs], "item": [item for _, item in pairs]}))


@pytest.mark.parametrize("model", ["dae", "cdae", "mf"])
def test_an_item_with_one_adopter_does_not_lead_though_its_factors_have_a_cosine_of_1(model):
    recommender = milrec.fit(with_an_item_of_one_adopter(), model, n_factors=4, epochs=5)
    weight = recommender.fitted.model.decoder_weight.data
    weight[:5], weight[5:9] = torch.tensor([1.0, 0.2, 0, 0]), torch.tensor([0, 0, 1.0, 0])
    weight[0] = weight[9] = torch.tensor([1.0, 0.0, 0, 0])
    assert recommender.similar_items(0, n=5)["item"].to_pylist() == [1, 2, 3, 4, 9]
    if model == "dae":  # the others cannot do without their users
        assert recommender.without_users().similar_items(0, n=5)["item"].to_pylist() == [1, 2, 3, 4, 9]


@pytest.mark.parametrize("model", ["ease", "ease-sparse"])
def test_an_item_with_one_adopter_does_not_lead_though_its_weight_is_the_largest(model):
    few = {"neighbours": 5} if model == "ease-sparse" else {}
    recommender = milrec.fit(with_an_item_of_one_adopter(), model, regularization=1.0, **few)
    fitted = recommender.fitted.model
    assert isinstance(fitted, ItemToItem | SparseItemToItem) and fitted.weights(0).argmax() == 9
    for one in (recommender, recommender.without_users()):
        assert one.similar_items(0, n=5)["item"].to_pylist() == [1, 2, 3, 4, 9]


def test_similar_items_need_factors_a_known_item_and_a_length(dae, popularity):
    with pytest.raises(SettingsError, match="no item factors"):
        popularity.similar_items(popularity.item_ids[0])
    with pytest.raises(UnknownIdError, match="unknown item 'nothing'"):
        dae.similar_items("nothing")
    with pytest.raises(SettingsError, match="a whole number of 1 or more"):
        dae.similar_items(dae.item_ids[0], n=0)


@pytest.mark.parametrize(
    ("users", "items"),
    [([1, 2, 30], [7, 8, 9, 10]), (["007", "07", "7"], ["00", "0", "000", "1e3"])],
    ids=["whole numbers", "texts with leading zeros"],
)
def test_ids_come_back_exactly_as_they_were_given(tmp_path, users, items):
    pairs = [(user, item) for place, user in enumerate(users) for item in items[: 2 + place % 2]]
    pairs += [(users[0], items[3])]
    data = milrec.read(pa.table({"user": [user for user, _ in pairs], "item": [item for _, item in pairs]}))
    milrec.fit(unsplit(data), "popularity").save(tmp_path / "model")
    recommender = milrec.load(tmp_path / "model")
    assert sorted(recommender.user_ids) == sorted(users) and sorted(recommender.item_ids) == sorted(items)
    table = recommender.recommend(users, n=10)
    listed = set(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))
    assert listed == {(user, item) for user in users for item in items} - set(pairs)
    new = recommender.recommend_new(items[:1], exclude=items[1:2])["item"].to_pylist()
    assert sorted(new) == sorted(items[2:])


def test_whole_number_ids_are_found_by_their_text(checkerboard):
    recommender = milrec.fit(unsplit(checkerboard), "popularity")
    assert recommender.recommend(["12"], n=3).equals(recommender.recommend([12], n=3))
    with pytest.raises(UnknownIdError, match="whole numbers"):
        recommender.recommend(["twelve"])


def test_a_model_is_judged_on_a_split_and_not_on_data(recommender, small_catalogue):
    with pytest.raises(DataError, match=r"judged on a split: milrec\.split_interactions"):
        recommender.evaluate(small_catalogue)


def test_evaluating_on_another_split_is_refused(recommender, split, small_catalogue):
    recommender.evaluate(split)
    with pytest.raises(DataError, match="another split"):
        recommender.evaluate(milrec.split_interactions(small_catalogue, seed=1))


def test_a_loaded_split_is_the_same_split(dae, split, tmp_path):
    split.save(tmp_path / "split")
    assert dae.evaluate(milrec.Split.load(tmp_path / "split")).as_json() == dae.evaluate(split).as_json()


def test_a_fit_of_held_out_users_lists_all_but_the_training_items(small_catalogue):
    split = milrec.split_users(small_catalogue, seed=0)
    recommender = milrec.fit(split, "popularity")
    user = recommender.user_ids[0]
    listed = recommender.recommend([user], n=1000)["item"].to_pylist()
    known = items_of(split.train.adopted, user, recommender) + items_of(split.train.rejected, user, recommender)
    assert set(listed) == set(recommender.item_ids) - set(known)


def test_the_same_seed_gives_the_same_lists_and_another_does_not(split):
    first, same, other = (milrec.fit(split, n_factors=4, epochs=1, seed=seed).recommend_all() for seed in (5, 5, 6))
    first, same, other = (pa.Table.from_batches(list(batches)) for batches in (first, same, other))
    assert first.equals(same) and not first.equals(other)


def test_one_id_may_be_given_as_a_text_wherever_ids_are_asked_for(popularity):
    user, item = popularity.user_ids[0], popularity.item_ids[0]
    listed = popularity.recommend(user, n=3)["item"].to_pylist()
    assert popularity.recommend([user], n=3)["item"].to_pylist() == listed
    assert popularity.recommend(user, allow=listed[1])["item"].to_pylist() == [listed[1]]
    assert popularity.recommend(user, n=2, exclude=listed[0])["item"].to_pylist() == listed[1:]
    assert item not in popularity.recommend_new(item, n=1000)["item"].to_pylist()
    assert item not in popularity.recommend_new([], rejected=item, n=1000)["item"].to_pylist()


def test_a_number_with_an_underscore_or_a_blank_is_no_id_of_a_user(checkerboard):
    recommender = milrec.fit(unsplit(checkerboard), "popularity")
    for text in ("1_2", " 12", "+12"):
        with pytest.raises(UnknownIdError):
            recommender.recommend([text])


def test_an_interrupted_fit_resumes_to_the_same_model(split, tmp_path):
    def interrupt(progress):
        if progress.iteration == 4:
            raise KeyboardInterrupt

    values = {"n_factors": 4, "epochs": 3, "validate_every": 2}
    with pytest.raises(KeyboardInterrupt):
        milrec.fit(split, checkpoint=tmp_path / "checkpoint", report=interrupt, **values)
    resumed = milrec.fit(split, checkpoint=str(tmp_path / "checkpoint"), **values)
    unbroken = milrec.fit(split, **values)
    assert resumed.recommend(resumed.user_ids).equals(unbroken.recommend(unbroken.user_ids))
    assert resumed.fitted.history.measures == unbroken.fitted.history.measures


def test_settings_may_be_given_whole(split):
    settings = milrec.settings_for("dae", "mil", {"n_factors": 4, "epochs": 1})
    whole, by_name = milrec.fit(split, settings), milrec.fit(split, "dae", "mil", n_factors=4, epochs=1)
    assert whole.fitted.settings == by_name.fitted.settings
    assert milrec.fit(split, settings, n_factors=5).fitted.model.encoder_bias.shape == (5,)
    with pytest.raises(
        SettingsError, match=r"unknown setting 'epoch' for dae with mil \(did you mean 'epochs'\?\); known settings: "
    ):
        milrec.fit(split, epoch=3)


def test_lists_that_go_live_hold_nothing_that_a_user_has_or_has_rejected(small_catalogue):
    split = milrec.split_interactions(small_catalogue, seed=0)
    recommender = milrec.fit(split, "popularity").leaving_out(small_catalogue)
    table = recommender.recommend(recommender.user_ids, n=200)
    users = np.searchsorted(small_catalogue.users["id"].to_pylist(), table["user"].to_pylist())
    items = np.searchsorted(small_catalogue.items["id"].to_pylist(), table["item"].to_pylist())
    known = (small_catalogue.adopted + small_catalogue.rejected).toarray() > 0
    assert not known[users, items].any()
    in_catalogue = np.isin(small_catalogue.items["id"].to_pylist(), recommender.item_ids)
    assert len(table) == (~known[:, in_catalogue]).sum()


def test_data_of_other_users_and_items_leaves_out_what_both_know():
    split = milrec.split_interactions(milrec.read({"user": list("aabbcc") * 2, "item": list("xyxyxyzzzwww")}), seed=0)
    recommender = milrec.fit(split, "popularity")
    other = milrec.read({"user": ["b", "nobody"], "item": ["w", "nothing"]})
    before = recommender.recommend(["b"])["item"].to_pylist()
    assert recommender.leaving_out(other).recommend(["b"])["item"].to_pylist() == [
        item for item in before if item != "w"
    ]


def test_a_part_that_is_not_known_is_refused(small_catalogue):
    split = milrec.split_interactions(small_catalogue, seed=0)
    with pytest.raises(SettingsError, match="known parts: test, validation"):
        milrec.fit(split, "popularity").evaluate(split, on="train")


def test_a_fit_without_a_split_says_how_to_make_one(small_catalogue):
    with pytest.raises(DataError, match="split_interactions"):
        milrec.fit(small_catalogue)


def test_a_dial_of_0_changes_nothing(recommender, split):
    users, items = recommender.user_ids[:20], recommender.item_ids[:4]
    assert recommender.recommend(users, dial=0.0).equals(recommender.recommend(users))
    assert recommender.recommend_new(items, dial=0).equals(recommender.recommend_new(items))
    assert recommender.evaluate(split, dial=0.0).as_json() == recommender.evaluate(split).as_json()


def test_a_dial_takes_its_part_off_every_score(recommender):
    user, dial = recommender.user_ids[3], 0.4
    plain, turned = (recommender.recommend([user], n=1000, dial=one).to_pylist() for one in (0.0, dial))
    expected = {row["item"]: row["score"] - dial * np.log(row["popularity"]) for row in plain}
    assert [row["score"] for row in turned] == pytest.approx([expected[row["item"]] for row in turned], abs=1e-4)
    assert [row["score"] for row in turned] == sorted((row["score"] for row in turned), reverse=True)
    assert {row["item"] for row in turned} == set(expected)


def test_a_large_dial_lists_the_rarest_items_and_one_far_below_0_the_most_popular(recommender):
    user, new = recommender.user_ids[3], recommender.item_ids[:4]
    for table in (
        recommender.recommend([user], n=50, dial=1e6),
        pa.Table.from_batches(recommender.recommend_all(n=50, dial=1e6)).slice(0, 50),
        recommender.recommend_new(new, n=50, dial=1e6),
    ):
        popularity = table["popularity"].to_pylist()
        assert popularity == sorted(popularity)
    popularity = recommender.recommend([user], n=50, dial=-1e6)["popularity"].to_pylist()
    assert popularity == sorted(popularity, reverse=True)


def test_a_dial_moves_what_is_judged_but_not_the_predicted_preferences(dae, split):
    plain, turned = dae.evaluate(split), dae.evaluate(split, dial=1.0)
    assert turned.measures["mean_popularity@20"] < plain.measures["mean_popularity@20"]
    assert turned.measures["novelty_ndcg@100"] != plain.measures["novelty_ndcg@100"]
    assert turned.preference_distribution == plain.preference_distribution
    assert turned.as_json()["dial"] == 1.0 and "dial" not in plain.as_json()


@pytest.mark.parametrize("dial", [float("nan"), float("inf"), "much"])
def test_a_dial_that_is_no_finite_number_is_refused(dae, split, dial):
    for refused in (
        lambda: dae.recommend(dae.user_ids[:1], dial=dial),
        lambda: list(dae.recommend_all(dial=dial)),
        lambda: dae.recommend_new(dae.item_ids[:1], dial=dial),
        lambda: dae.evaluate(split, dial=dial),
    ):
        with pytest.raises(SettingsError, match="the dial must be a finite number"):
            refused()


# Refit


def weights(recommender) -> dict[str, bytes]:
    return {name: value.detach().numpy().tobytes() for name, value in recommender.fitted.model.named_parameters()}


CHOSEN = {"n_factors": 4, "epochs": 12, "validate_every": 2, "slack": 0}


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "one_cycle"])
@pytest.mark.parametrize("model", ["dae", "mf"])
def test_a_refit_makes_as_many_steps_as_validation_chose_on_both_parts(split, model, schedule):
    first = milrec.fit(split, model, "mil", seed=3, learning_rate=0.1, schedule=schedule, **CHOSEN)
    kept, last = first.fitted.history.kept_iteration, first.fitted.history.iterations[-1]
    assert kept < last  # or else this says little
    again = milrec.refit(split, first)
    assert again.fitted.history.iterations[-1] == kept == again.fitted.settings.training.until
    assert again.fitted.history.measures == [] and again.fitted.seed == 3
    assert again.fitted.settings == first.fitted.settings.with_values({"until": kept})
    both = split.train.adopted + split.validation.targets
    assert (again.fitted.train.adopted != both).nnz == 0
    assert (again.fitted.train.rejected != split.train.rejected + split.validation.rejected_targets).nnz == 0
    assert weights(again) != weights(first) and weights(milrec.refit(split, first)) == weights(again)


def test_a_refit_of_a_split_joined_by_hand_is_the_same(small_catalogue, split):
    """Pairs of items outside the catalogue aside, the data less the test part, fitted for so many steps."""
    first = milrec.fit(split, "dae", "pointwise", **CHOSEN)
    again = milrec.refit(split, first)
    whole = Split(again.fitted.train, split.test, split.test, "interactions", 0)
    by_hand = milrec.fit(
        milrec.split_interactions(whole.train, seed=0, held_out=0),
        "dae", "pointwise", **{**CHOSEN, "epochs": None, "iterations": first.fitted.history.kept_iteration},
    )  # fmt: skip
    assert weights(by_hand) == weights(again)


def test_a_refitted_popularity_counts_both_parts(split, popularity):
    again = milrec.refit(split, popularity)
    counts = np.bincount((split.train.adopted + split.validation.targets).indices, minlength=split.train.n_items)
    assert again.fitted.model.decoder_bias.tolist() == counts.tolist()
    assert again.fitted.history is None


def test_a_refitted_model_lists_what_the_first_may_list(split, dae):
    again = milrec.refit(split, dae)
    for user in dae.user_ids[:20]:
        first, second = (one.recommend([user], n=1000)["item"].to_pylist() for one in (dae, again))
        assert set(first) == set(second)


def test_a_refitted_model_is_judged_on_test_and_not_on_validation(split, dae, small_catalogue, tmp_path):
    again = milrec.refit(split, dae)
    first, second = dae.evaluate(split), again.evaluate(split)
    assert first.n_users == second.n_users and first.measures != second.measures
    assert first.interval_cuts == second.interval_cuts  # the tail is that of the training part
    again.save(tmp_path / "model")
    loaded = milrec.load(tmp_path / "model")
    assert loaded.fitted.facts["refitted"] is True
    assert loaded.evaluate(split).as_json() == second.as_json()
    with pytest.raises(DataError, match="refitted and has learned from validation too; judge it on test"):
        loaded.evaluate(split, "validation")
    with pytest.raises(SettingsError, match="known parts: test, validation"):
        loaded.evaluate(split, "train")
    with pytest.raises(DataError, match="another split"):
        loaded.evaluate(milrec.split_interactions(small_catalogue, seed=1))


def test_a_refitted_autoencoder_sees_the_validation_items_of_a_user(split, dae):
    """Its test lists are those of a new user with the items of both parts."""
    again = milrec.refit(split, dae)
    adopted = split.train.adopted + split.validation.targets
    rejected = split.train.rejected + split.validation.rejected_targets
    for user in again.user_ids[:10]:
        new = again.recommend_new(items_of(adopted, user, again), items_of(rejected, user, again), n=30)
        assert new.combine_chunks().equals(again.recommend([user], n=30).drop_columns("user").combine_chunks())


def test_what_cannot_be_refitted_is_refused(split, dae, small_catalogue, checkerboard):
    with pytest.raises(DataError, match="already refitted"):
        milrec.refit(split, milrec.refit(split, dae))
    with pytest.raises(DataError, match="fitted on another split"):
        milrec.refit(milrec.split_interactions(small_catalogue, seed=1), dae)
    with pytest.raises(DataError, match="no validation part"):
        milrec.refit(unsplit(checkerboard), milrec.fit(unsplit(checkerboard), "popularity"))
    users = milrec.split_users(small_catalogue, seed=0)
    with pytest.raises(DataError, match="holds out users for validation"):
        milrec.refit(users, milrec.fit(users, "popularity"))


def test_a_model_of_a_given_test_part_is_fitted_judged_and_refitted():
    """Everybody has two of three items; the third is to be found, and there is nothing else to list."""
    table = {"user": np.repeat(np.arange(30), 2), "item": [(user + step) % 3 for user in range(30) for step in (0, 1)]}
    test = milrec.read({"user": np.arange(30), "item": (np.arange(30) + 2) % 3})
    split = milrec.split_given(milrec.read(table), test, seed=0)
    assert (split.train.adopted.nnz, split.validation.targets.nnz, split.test.targets.nnz) == (54, 6, 30)
    for recommender in (milrec.fit(split, n_factors=2, epochs=3), milrec.fit(split, "popularity")):
        for one in (recommender, milrec.refit(split, recommender)):
            assert one.evaluate(split).measures["recall@1"] == 1
            assert one.recommend([0, 1], n=5)["item"].to_pylist() == [2, 0]


def test_the_old_dial_is_deprecated(dae, split):
    with pytest.warns(DeprecationWarning, match="use long_share; milrec 0.4.0 removes it"):
        dae.recommend(dae.user_ids[:1], dial=0.1)
    with pytest.warns(DeprecationWarning, match="use long_share; milrec 0.4.0 removes it"):
        dae.evaluate(split, dial=0.1)


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"rejected": [1]}, "'rejected' cannot be given for a list of known users; use recommend_new"),
        ({"adopted": ["zzz"]}, "'adopted' cannot be given"),
        ({"user": 3}, "'user' cannot be given"),
        ({"long_sahre": 0.3}, "unknown argument 'long_sahre' (did you mean 'long_share'?)"),
    ],
)
def test_what_a_list_of_known_users_does_not_take_is_refused_and_not_ignored(dae, wishes, sentence):
    users = [dae.user_ids[0]]
    for ask in (dae.recommend, dae.recommend_arrays):
        with pytest.raises(SettingsError, match=re.escape(sentence)):
            ask(users, n=2, **wishes)
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        next(dae.recommend_all(n=2, **wishes))


def test_a_fit_without_users_for_validation_says_what_is_missing(small_catalogue):
    split = milrec.split_interactions(small_catalogue, seed=0, held_out=0.0)
    consequence = "so the model has no probabilities; hold out more data"
    with pytest.warns(SmallDataWarning, match=f"no user has a held-out validation item, {consequence}") as caught:
        milrec.fit(split, "popularity")
    assert [one.filename for one in caught] == [__file__]
    with pytest.warns(SmallDataWarning, match="so the fit cannot stop early and the model has no probabilities"):
        milrec.fit(split, "mf", iterations=1)


def test_a_refit_is_silent_about_the_validation_part_that_it_learns_from(split):
    model = milrec.fit(split, "popularity")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        milrec.refit(split, model)
