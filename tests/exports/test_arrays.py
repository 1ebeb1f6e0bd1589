"""Lists as arrays."""

import numpy as np
import pytest

import milrec
from milrec.errors import SettingsError, UnknownIdError


@pytest.fixture(scope="module")
def model(checkerboard):
    return milrec.fit(milrec.split_interactions(checkerboard, seed=0), model="ease")


def test_arrays_are_the_lists_of_the_table(model):
    users = [5, 0, 5]
    ids, scores = model.recommend_arrays(users, n=4)
    table = model.recommend(users, n=4)
    assert ids.dtype == np.int64 and ids.shape == scores.shape == (3, 4)
    assert ids.ravel().tolist() == table["item"].to_pylist()
    assert np.array_equal(scores.ravel(), table["score"].to_numpy())


def test_a_list_that_ends_early_is_filled_with_minus_one_and_nan(model):
    ids, scores = model.recommend_arrays([0], n=3, allow=[1])
    assert ids.tolist() == [[1, -1, -1]]
    assert np.isnan(scores).tolist() == [[False, True, True]]
    ids, scores = model.recommend_arrays([0], n=3, allow=[])
    assert ids.tolist() == [[-1, -1, -1]] and np.isnan(scores).all()


def test_texts_are_filled_with_none():
    plays = {"user": [1, 1, 2, 2, 3, 3, 3], "item": ["a", "b", "b", "c", "a", "b", "c"]}
    model = milrec.fit(milrec.split_interactions(milrec.read(plays), seed=0), model="popularity")
    ids, scores = model.recommend_arrays(model.user_ids[:1], n=5)
    assert ids.dtype == object and ids[0, -1] is None and isinstance(ids[0, 0], str | None)
    assert np.isnan(scores[0, -1])


def test_wishes_and_mistakes_are_those_of_recommend(model):
    ids, _ = model.recommend_arrays([0], n=3, exclude=[1])
    assert 1 not in ids
    with pytest.raises(UnknownIdError, match="'nobody'"):
        model.recommend_arrays(["nobody"])
    with pytest.raises(SettingsError, match="of 1 or more"):
        model.recommend_arrays([0], n=0)


def test_no_users_make_empty_arrays(model):
    ids, scores = model.recommend_arrays([], n=3)
    assert ids.shape == scores.shape == (0, 3)
