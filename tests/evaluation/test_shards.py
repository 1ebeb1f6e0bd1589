"""Shards of users: however many there are, the evaluation is the same, bit for bit."""

import numpy as np
import pytest

import milrec
from milrec.lists import shards
from milrec.models.contract import ROWS


@pytest.fixture(scope="module")
def fitted(small_catalogue):
    split = milrec.split_interactions(small_catalogue, seed=0)
    return split, milrec.fit(split, n_factors=6, iterations=30)


@pytest.mark.parametrize("aims", [{}, {"long_share": 0.3}])
def test_an_evaluation_does_not_depend_on_the_size_of_shards(fitted, monkeypatch, aims):
    split, recommender = fitted
    whole = recommender.evaluate(split, **aims)
    monkeypatch.setattr(shards, "SHARD", ROWS)
    told: list[tuple[int, int]] = []
    in_shards = recommender.evaluate(split, report=lambda done, total: told.append((done, total)), **aims)
    assert in_shards.as_json() == whole.as_json()
    assert list(in_shards.per_user) == list(whole.per_user)
    for name, values in whole.per_user.items():
        np.testing.assert_array_equal(in_shards.per_user[name], values)
    assert told[0] == (ROWS, whole.n_users) and told[-1] == (whole.n_users, whole.n_users)
