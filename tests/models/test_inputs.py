"""What an encoder reads of a user: weights by popularity, and rows of length 1."""

import numpy as np
import pytest

import milrec
from milrec.kernels.sparse import Rows
from milrec.models.inputs import popularity_scale, unit_rows
from milrec.training.presets import settings_for


def test_items_enter_by_their_popularity_and_the_row_has_length_1():
    """Adopters 4 and 1 with α = ½: weights ½ and 1, divided by √1.25."""
    scale = popularity_scale(np.array([4, 1, 0]), 0.5)
    assert scale.tolist() == [0.5, 1, 1]
    rows = unit_rows(Rows.stacked([np.array([0, 1])]), "binary", scale)
    assert rows.values == pytest.approx(np.array([0.5, 1]) / np.sqrt(1.25))


def test_an_exponent_of_0_leaves_settings_and_fits_as_they_were(checkerboard):
    assert "input_exponent" not in settings_for("dae").model_dump()["model"]
    assert settings_for("dae", values={"input_exponent": 0.5}).model_dump()["model"]["input_exponent"] == 0.5
    split = milrec.split_interactions(checkerboard, seed=0)
    plain, zero = (milrec.fit(split, iterations=5, n_factors=4, **more) for more in ({}, {"input_exponent": 0.0}))
    assert plain.recommend(plain.user_ids).equals(zero.recommend(plain.user_ids))


def test_a_model_reads_by_popularity_again_after_it_was_saved_also_without_its_users(small_catalogue, tmp_path):
    split = milrec.split_interactions(small_catalogue, seed=0)
    model = milrec.fit(split, iterations=20, n_factors=4, input_exponent=0.75)
    model.save(tmp_path / "model")
    model.without_users().save(tmp_path / "bare")
    taste = model.item_ids[:3]
    for folder in ("model", "bare"):
        assert milrec.load(tmp_path / folder).recommend_new(taste).equals(model.recommend_new(taste))
    loaded = milrec.load(tmp_path / "model")
    assert loaded.recommend(model.user_ids[:5]).equals(model.recommend(model.user_ids[:5]))
    other = milrec.fit(split, iterations=20, n_factors=4)
    assert not other.recommend_new(taste).equals(model.recommend_new(taste))
