"""What an encoder reads of a user: weights by popularity, and rows of length 1."""

import numpy as np
import pytest

import milrec
from milrec.kernels.sparse import Rows
from milrec.models.inputs import Reader, Users, beside, popularity_scale, unit_rows
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


def test_rejected_items_enter_after_all_adopted_ones_with_a_length_of_their_own():
    adopted = Rows.stacked([np.array([0, 2], dtype=np.int32), np.array([], dtype=np.int32)])
    rejected = Rows.stacked([np.array([1], dtype=np.int32), np.array([0, 1, 2], dtype=np.int32)])
    reader = Reader(n_items=3, rejected=True)
    inputs = reader.inputs(Users(adopted, rejected, None))
    assert reader.n_columns == 6
    assert inputs.dense(6) == pytest.approx(
        np.array([[0.5, 0, 0.5, 0, 1, 0], [0, 0, 0, 1 / 3, 1 / 3, 1 / 3]]) ** 0.5, rel=1e-6
    )
    plain = Reader(n_items=3).inputs(Users(adopted, rejected, None))
    assert plain.dense(3) == pytest.approx(inputs.dense(6)[:, :3])


def test_rows_side_by_side_are_those_of_two_dense_tables():
    random = np.random.default_rng(0)
    for _ in range(50):
        tables = [(random.random((4, 5)) < 0.4).astype(np.float32) for _ in range(2)]
        left, right = (Rows.stacked([np.flatnonzero(row).astype(np.int32) for row in table]) for table in tables)
        both = beside(left, right, 5)
        assert (both.dense(10) == np.hstack(tables)).all()
        assert all((np.diff(own) > 0).all() for own in np.split(both.items, both.indptr[1:-1]))


def test_a_model_that_reads_rejections_lists_otherwise_for_those_who_reject(small_catalogue, tmp_path):
    split = milrec.split_interactions(small_catalogue, seed=0)
    model = milrec.fit(split, iterations=60, n_factors=8, reads_rejected=True)
    model.save(tmp_path / "model")
    again, taste = milrec.load(tmp_path / "model"), model.item_ids[:4]
    without, refused = model.recommend_new(taste, n=10), model.item_ids[60:64]
    told = model.recommend_new(taste, refused, n=10)
    kept = [item for item in without["item"].to_pylist() if item not in refused]
    assert told["item"].to_pylist()[: len(kept)] != kept  # not the same list with some items struck out
    assert again.recommend_new(taste, refused, n=10).equals(told)
    assert again.recommend(model.user_ids[:5]).equals(model.recommend(model.user_ids[:5]))
    assert "reads_rejected" not in settings_for("dae").model_dump()["model"]


def test_what_speaks_for_an_item_is_what_the_logit_loses_without_it_also_beside_rejections(small_catalogue):
    """The parts of a linear encoder, against logits that are computed anew without each adopted item."""
    split = milrec.split_interactions(small_catalogue, seed=0)
    model = milrec.fit(split, iterations=60, n_factors=8, reads_rejected=True)
    taste, refused = model.item_ids[:3], model.item_ids[60:64]
    (answer,) = model.answer([model.ask(milrec.Query(None, taste, refused, n=5, reasons=3))])
    nothing = model.recommend_new([], refused, n=200)
    without = dict(zip(nothing["item"].to_pylist(), nothing["score"].to_pylist(), strict=True))
    for one in answer.items:
        parts = sum(reason.weight for reason in one.reasons)
        assert parts == pytest.approx(one.score - without[one.item], abs=1e-4)
