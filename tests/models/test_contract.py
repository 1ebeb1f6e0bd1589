"""Every model, with every loss and every target set: it fits, saves, loads and recommends as it should."""

import itertools

import numpy as np
import pytest

import milrec
from milrec.errors import SettingsError
from milrec.losses import LOSSES
from milrec.models.settings import MODELS
from milrec.training.settings import TargetSettings

TARGET_SETS = TargetSettings.model_fields["target_set"].annotation.__args__
DRAWS = [target_set for target_set in TARGET_SETS if target_set != "auto"]  # auto becomes one of the others
WITHOUT_LOSS = [model for model, kind in MODELS.items() if not kind.needs_loss]
COMBINATIONS = [
    (model, loss, target_set)
    for model, loss in [*itertools.product(("dae", "cdae", "mf"), LOSSES), ("vae", "multinomial")]
    for target_set in ((None,) if loss == "multinomial" else DRAWS)
]
PAIRS = pytest.mark.parametrize(("model", "loss"), dict.fromkeys((model, loss) for model, loss, _ in COMBINATIONS))


@pytest.fixture(scope="module")
def split(small_catalogue):
    return milrec.split_interactions(small_catalogue, seed=0)


def fitted(split, model, loss, target_set, seed=0):
    values = {} if target_set is None else {"target_set": target_set, "target_factor": 2}
    return milrec.fit(split, model, loss, seed=seed, n_factors=4, epochs=2, **values, **small(model))


def small(model):
    return {"n_hidden": 5} if model == "vae" else {}


def weights(recommender) -> dict[str, bytes]:
    return {name: value.detach().numpy().tobytes() for name, value in recommender.fitted.model.named_parameters()}


def test_every_combination_is_here():
    assert set(LOSSES) == {"square", "pointwise", "pairwise", "multinomial", "mil"}
    assert set(TARGET_SETS) == {"per_user", "shared", "expectation", "all", "auto"}
    assert set(DRAWS) == {"per_user", "shared", "expectation", "all"}
    assert len(COMBINATIONS) == 3 * (4 * 4 + 1) + 1
    assert set(WITHOUT_LOSS) == {"ease", "slim", "wmf", "popularity"}


@pytest.mark.parametrize(("model", "loss", "target_set"), COMBINATIONS)
def test_a_model_keeps_its_contract(split, tmp_path, model, loss, target_set):
    recommender = fitted(split, model, loss, target_set)
    history = recommender.fitted.history
    assert history.iterations == [6] and np.isfinite(history.losses).all()
    assert all(np.isfinite(value.detach().numpy()).all() for value in recommender.fitted.model.parameters())
    assert weights(fitted(split, model, loss, target_set)) == weights(recommender)
    assert weights(fitted(split, model, loss, target_set, seed=1)) != weights(recommender)
    saves_loads_and_lists(recommender, split, tmp_path)


@pytest.mark.parametrize("model", WITHOUT_LOSS)
def test_a_model_without_a_loss_keeps_the_same_contract(split, tmp_path, model):
    recommender = milrec.fit(split, model)
    assert recommender.fitted.history is None
    assert all(np.isfinite(value.numpy()).all() for value in recommender.fitted.model.parameters())
    assert weights(milrec.fit(split, model)) == weights(recommender)
    assert (weights(milrec.fit(split, model, seed=1)) != weights(recommender)) == recommender.fitted.settings.seeded
    saves_loads_and_lists(recommender, split, tmp_path)


def saves_loads_and_lists(recommender, split, tmp_path):
    recommender.save(tmp_path / "model")
    loaded = milrec.load(tmp_path / "model")
    assert loaded.fitted.settings == recommender.fitted.settings and weights(loaded) == weights(recommender)

    table = loaded.recommend(loaded.user_ids, n=200)
    assert table.equals(recommender.recommend(recommender.user_ids, n=200))
    users = np.searchsorted(loaded.user_ids, table["user"].to_pylist())
    items = np.searchsorted(loaded.item_ids, table["item"].to_pylist())
    validation = split.validation.targets + split.validation.rejected_targets
    known = (split.train.adopted + split.train.rejected + validation).toarray() > 0
    assert not known[users, items].any(), "an adopted or rejected item is listed"
    assert len(table) == (~known).sum(), "an item that could be listed is not"
    assert np.isfinite(table["score"].to_numpy()).all()


@pytest.mark.parametrize("model", ["dae", "cdae", "mf"])
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss != "multinomial"])
def test_auto_is_the_expectation_on_a_small_catalogue(split, model, loss):
    auto, expectation = (fitted(split, model, loss, target_set) for target_set in ("auto", "expectation"))
    assert auto.fitted.settings == expectation.fitted.settings
    assert auto.fitted.settings.target_set.target_set == "expectation"
    assert weights(auto) == weights(expectation)


@PAIRS
def test_a_model_of_a_loss_recommends_to_a_new_user(split, model, loss):
    recommender = fitted(split, model, loss, None if loss == "multinomial" else "shared")
    adopted, rejected = recommender.item_ids[:5], recommender.item_ids[5:8]
    table = recommender.recommend_new(adopted, rejected, n=1000)
    assert sorted(table["item"].to_pylist()) == recommender.item_ids[8:]
    assert np.isfinite(table["score"].to_numpy()).all()


@pytest.mark.parametrize("model", WITHOUT_LOSS)
def test_a_model_without_a_loss_recommends_to_a_new_user(split, model):
    recommender = milrec.fit(split, model)
    adopted, rejected = recommender.item_ids[:5], recommender.item_ids[5:8]
    table = recommender.recommend_new(adopted, rejected, n=1000)
    assert sorted(table["item"].to_pylist()) == recommender.item_ids[8:]
    assert np.isfinite(table["score"].to_numpy()).all()
    assert recommender.recommend_new([], n=1000).num_rows == len(recommender.item_ids)


@pytest.mark.parametrize("model", WITHOUT_LOSS)
def test_a_model_without_a_loss_is_judged_on_held_out_users(small_catalogue, model):
    split = milrec.split_users(small_catalogue, seed=0)
    assert np.isfinite(milrec.fit(split, model).evaluate(split).measures["ndcg@100"])


@pytest.mark.parametrize("model", ["dae", "cdae", "mf"])
@pytest.mark.parametrize("target_set", TARGET_SETS)
def test_the_multinomial_loss_takes_no_target_set(split, model, target_set):
    with pytest.raises(SettingsError, match="unknown setting 'target_set'"):
        milrec.fit(split, model, "multinomial", target_set=target_set)


@pytest.mark.parametrize("model", ["dae", "cdae", "mf"])
@pytest.mark.parametrize("loss", ["square", "pointwise"])
def test_a_model_with_a_confidence_in_adopted_items_is_another_model(split, model, loss):
    plain, confident = (
        milrec.fit(split, model, loss, n_factors=4, epochs=2, target_set="all", **values)
        for values in ({}, {"confidence": 4})
    )
    assert weights(plain) != weights(confident)
    assert confident.fitted.history.losses[0] != plain.fitted.history.losses[0]


@PAIRS
def test_the_loss_falls_where_a_model_is_given_time(split, model, loss):
    values = {} if loss == "multinomial" else {"target_set": "per_user", "target_factor": 2}
    length = {"epochs": 20, "validate_every": 15, "learning_rate": 2e-2, "patience": 0}
    losses = milrec.fit(split, model, loss, n_factors=4, **length, **values, **small(model)).fitted.history.losses
    assert losses[-1] < losses[0]


def split_with_an_empty_user() -> milrec.Split:
    data = milrec.read({"user": [0, 0, 1, 1, 2, 2, 3], "item": [0, 1, 1, 2, 0, 2, 1]})
    adopted = data.adopted.copy()
    adopted.data[-1] = 0
    adopted.eliminate_zeros()
    whole = milrec.split_interactions(data, seed=0, held_out=0.0)
    train = milrec.Interactions(adopted, data.rejected, data.users, data.items)
    return milrec.Split(train, whole.validation, whole.test, "interactions", 0)


@PAIRS
def test_a_user_without_training_items_does_no_harm(model, loss):
    """A split may keep back the only item of a user."""
    values = {} if loss == "multinomial" else {"target_set": "per_user", "target_factor": 1}
    values |= {"n_factors": 2, "epochs": 3, "batch_size": 2, **small(model)}
    recommender = milrec.fit(split_with_an_empty_user(), model, loss, **values)
    assert all(value.isfinite().all() for value in recommender.fitted.model.parameters())
    assert recommender.recommend([3], n=3).num_rows == 2


@pytest.mark.parametrize("model", WITHOUT_LOSS)
def test_a_user_without_training_items_does_no_harm_to_a_model_without_a_loss(model):
    recommender = milrec.fit(split_with_an_empty_user(), model)
    assert all(value.isfinite().all() for value in recommender.fitted.model.parameters())
    assert recommender.recommend([3], n=3).num_rows == 2


@PAIRS
def test_one_user_and_one_item_are_enough(model, loss):
    split = milrec.split_interactions(milrec.read({"user": ["a"], "item": ["x"]}), seed=0, held_out=0.0)
    recommender = milrec.fit(split, model, loss, n_factors=1, epochs=2)
    assert recommender.recommend(["a"]).num_rows == 0
    assert recommender.recommend_new([], n=5)["item"].to_pylist() == ["x"]


@pytest.mark.parametrize("model", WITHOUT_LOSS)
def test_one_user_and_one_item_are_enough_for_a_model_without_a_loss(model):
    split = milrec.split_interactions(milrec.read({"user": ["a"], "item": ["x"]}), seed=0, held_out=0.0)
    recommender = milrec.fit(split, model)
    assert recommender.recommend(["a"]).num_rows == 0
    assert recommender.recommend_new([], n=5)["item"].to_pylist() == ["x"]
