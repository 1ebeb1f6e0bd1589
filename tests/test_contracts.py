"""Every model with every loss and every target set: it fits, saves, loads and recommends as it should."""

import itertools

import numpy as np
import pytest

import milrec
from milrec.config import TargetSettings
from milrec.errors import SettingsError
from milrec.losses import LOSSES

TARGET_SETS = TargetSettings.model_fields["target_set"].annotation.__args__
COMBINATIONS = [
    (model, loss, target_set)
    for model, loss in itertools.product(("dae", "mf"), LOSSES)
    for target_set in ((None,) if loss == "multinomial" else TARGET_SETS)
]


@pytest.fixture(scope="module")
def split(small_catalogue):
    return milrec.split_interactions(small_catalogue, seed=0)


def fitted(split, model, loss, target_set, seed=0):
    values = {} if target_set is None else {"target_set": target_set, "target_factor": 2}
    return milrec.fit(split, model, loss, seed=seed, n_factors=4, epochs=2, **values)


def weights(recommender) -> dict[str, bytes]:
    return {name: value.detach().numpy().tobytes() for name, value in recommender.fitted.model.named_parameters()}


def test_every_combination_is_here():
    assert set(LOSSES) == {"square", "pointwise", "pairwise", "multinomial", "mil"}
    assert set(TARGET_SETS) == {"per_user", "shared", "expectation", "all"}
    assert len(COMBINATIONS) == 2 * (4 * 4 + 1)


@pytest.mark.parametrize(("model", "loss", "target_set"), COMBINATIONS)
def test_a_model_keeps_its_contract(split, tmp_path, model, loss, target_set):
    recommender = fitted(split, model, loss, target_set)
    history = recommender.fitted.history
    assert history.iterations == [6] and np.isfinite(history.losses).all()
    assert all(np.isfinite(value.detach().numpy()).all() for value in recommender.fitted.model.parameters())
    assert weights(fitted(split, model, loss, target_set)) == weights(recommender)
    assert weights(fitted(split, model, loss, target_set, seed=1)) != weights(recommender)

    recommender.save(tmp_path / "model")
    loaded = milrec.load(tmp_path / "model")
    assert loaded.fitted.settings == recommender.fitted.settings and weights(loaded) == weights(recommender)

    table = loaded.recommend(loaded.user_ids, n=200)
    assert table.equals(recommender.recommend(recommender.user_ids, n=200))
    users = np.searchsorted(loaded.user_ids, table["user"].to_pylist())
    items = np.searchsorted(loaded.item_ids, table["item"].to_pylist())
    known = (split.train.adopted + split.validation.targets + split.train.rejected).toarray() > 0
    assert not known[users, items].any(), "an adopted or rejected item is listed"
    assert len(table) == (~known).sum(), "an item that could be listed is not"
    assert np.isfinite(table["score"].to_numpy()).all()


@pytest.mark.parametrize("model", ["dae", "mf"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_model_of_a_loss_recommends_to_a_new_user(split, model, loss):
    recommender = fitted(split, model, loss, None if loss == "multinomial" else "shared")
    adopted, rejected = recommender.item_ids[:5], recommender.item_ids[5:8]
    table = recommender.recommend_new(adopted, rejected, n=1000)
    assert sorted(table["item"].to_pylist()) == recommender.item_ids[8:]
    assert np.isfinite(table["score"].to_numpy()).all()


@pytest.mark.parametrize("model", ["dae", "mf"])
@pytest.mark.parametrize("target_set", TARGET_SETS)
def test_the_multinomial_loss_takes_no_target_set(split, model, target_set):
    with pytest.raises(SettingsError, match="unknown setting 'target_set'"):
        milrec.fit(split, model, "multinomial", target_set=target_set)
