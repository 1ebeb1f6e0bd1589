"""Factors with ids: their products are the scores of the lists."""

import numpy as np
import pyarrow as pa
import pytest

import milrec
from milrec.errors import SettingsError


@pytest.fixture(scope="module")
def split(checkerboard):
    return milrec.split_interactions(checkerboard, seed=0)


@pytest.mark.parametrize("name", ["dae", "vae", "cdae", "mf", "wmf"])
def test_an_item_s_score_is_its_factors_times_the_user_s_plus_its_bias(split, name):
    model = milrec.fit(split, model=name, n_factors=6, **({} if name == "wmf" else {"iterations": 10}))
    users, items = model.user_factors(), model.item_factors()
    assert users.ids == model.user_ids and items.ids == model.item_ids
    bias = model.fitted.model.tensors().get("decoder_bias", np.zeros(len(items.ids)))
    scores = users.values[9] @ items.values.T + np.asarray(bias)
    table = model.recommend([users.ids[9]], n=20)
    expected = [scores[items.ids.index(one)] for one in table["item"].to_pylist()]
    assert table["score"].to_numpy() == pytest.approx(expected, abs=1e-5)


def test_factors_are_a_pair_a_table_and_a_data_frame(split):
    found = milrec.fit(split, model="wmf", n_factors=6).item_factors()
    ids, values = found
    table, frame = found.as_table(), found.to_pandas()
    assert table.schema.field("factors").type == pa.list_(pa.float32(), 6)
    assert table["id"].to_pylist() == ids == frame.index.to_list()
    assert np.array_equal(np.array(table["factors"].to_pylist(), dtype=np.float32), values)
    assert np.array_equal(frame.to_numpy(), values)


def test_factors_are_shown_in_short(split):
    factors = milrec.fit(split, model="wmf", n_factors=6).item_factors()
    assert repr(factors) == f"<IdFactors: {len(factors.ids)} ids, 6 factors each; ids, values = …>"


def test_changing_the_factors_leaves_the_model_alone(split):
    model = milrec.fit(split, model="wmf", n_factors=6)
    before = model.item_factors().values.copy()
    model.item_factors().values[:] = 0
    assert np.array_equal(model.item_factors().values, before)


@pytest.mark.parametrize("name", ["ease", "popularity"])
def test_models_without_factors_say_so(split, name):
    model = milrec.fit(split, model=name)
    for factors in (model.item_factors, model.user_factors):
        with pytest.raises(SettingsError, match=f"model '{name}' has no factors"):
            factors()


def test_a_model_without_its_users_has_factors_of_items_only(split):
    model = milrec.fit(split, model="dae", n_factors=6, iterations=2).without_users()
    assert model.item_factors().values.shape == (20, 6)
    with pytest.raises(SettingsError, match="saved without its users"):
        model.user_factors()
