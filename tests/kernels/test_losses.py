"""The compiled exponential, logarithm and sigmoid against double precision, and the hash that pairs items."""

import numba
import numpy as np
import pytest
from scipy.stats import chisquare

from milrec.kernels import losses
from milrec.kernels.losses import partner_place, partner_places


@numba.njit
def exps(x):
    out = np.empty_like(x)
    for j in range(x.size):
        out[j] = losses.exp(x[j])
    return out


@numba.njit
def logs(x):
    out = np.empty_like(x)
    for j in range(x.size):
        out[j] = losses.log(x[j])
    return out


@numba.njit
def sigmoids(x):
    out = np.empty_like(x)
    for j in range(x.size):
        out[j] = losses.sigmoid(x[j])
    return out


def far_and_near(low, high):
    """Numbers all over a range, and many near 0."""
    near = np.concatenate([sign * np.logspace(-30, 0, 5001) for sign in (-1, 1)])
    return np.concatenate([np.linspace(low, high, 200_001), near, [0.0, -0.0, low, high]]).astype(np.float32)


def test_the_exponential_is_as_good_as_it_says():
    x = far_and_near(-60, 88)
    true = np.exp(x.astype(np.float64))
    assert (np.abs(exps(x) - true) / true).max() < 2e-7


def test_the_exponential_of_zero_is_one():
    assert exps(np.array([0.0, -0.0], dtype=np.float32)).tolist() == [1, 1]


def test_the_exponential_of_anything_is_finite_positive_and_never_falls():
    x = np.array([-np.inf, -3e38, -1e4, -88, -60, -59.9, 0, 87.9, 88, 89, 1e4, 3e38, np.inf], dtype=np.float32)
    values = exps(x)
    assert np.isfinite(values).all() and (values > 0).all() and (np.diff(values) >= 0).all()
    assert values[0] == values[4] < 1e-26 and values[-1] == values[8] > 1e38


def test_the_logarithm_is_good_to_single_precision_near_and_far():
    x = np.concatenate([np.logspace(-37, 38, 200_001), np.linspace(0.25, 4, 200_001)]).astype(np.float32)
    true = np.log(x.astype(np.float64))
    assert (np.abs(logs(x) - true) / np.maximum(np.abs(true), 1e-3)).max() < 2e-7
    near_one = np.float32(1) + np.arange(-2000, 2001, dtype=np.float32) * np.float32(2**-23)
    true = np.log(near_one.astype(np.float64))
    assert np.abs(logs(near_one) - true).max() < 1e-10
    assert logs(np.ones(1, dtype=np.float32))[0] == 0


def test_the_logarithm_of_zero_and_of_the_smallest_numbers_is_about_minus_87():
    values = logs(np.array([0, 1e-45, 1e-40, 1.17e-38], dtype=np.float32))
    assert np.abs(values + 87.5).max() < 1.5


def test_the_sigmoid_is_good_to_single_precision():
    x = far_and_near(-85, 85)
    true = 1 / (1 + np.exp(-x.astype(np.float64)))
    values = sigmoids(x)
    assert (np.abs(values - true) / true).max() < 3e-7
    assert sigmoids(np.zeros(1, dtype=np.float32))[0] == 0.5


def test_the_sigmoid_of_anything_is_within_0_and_1():
    x = np.array([-np.inf, -3e38, -200, -100, 100, 200, 3e38, np.inf], dtype=np.float32)
    values = sigmoids(x)
    assert (values[:4] < 1e-37).all() and (values[:4] >= 0).all() and (values[4:] == 1).all()


@pytest.mark.parametrize(
    "function",
    [exps, sigmoids],
    ids=["exp", "sigmoid"],
)
def test_what_is_no_number_stays_so(function):
    assert np.isnan(function(np.full(20, np.nan, dtype=np.float32))).all()


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 64])
def test_every_place_is_as_likely_to_be_a_partner_by_key_and_by_item(n):
    random = np.random.default_rng(n)
    keys, items = random.integers(2**32, size=20_000, dtype=np.uint32), random.integers(100_000, size=20_000)
    counts = {
        "by key and item": [partner_place(key, item, n) for key, item in zip(keys, items, strict=True)],
        "by key": [partner_place(key, 17, n) for key in keys],
        "by item": partner_places(keys[0], 20_000, n),
    }
    for places in counts.values():
        found = np.bincount(places, minlength=n)
        assert len(found) == n
        assert n == 1 or chisquare(found).pvalue > 1e-3


def test_partners_of_neighbours_are_independent():
    n = 5
    pairs = np.zeros((n, n), dtype=int)
    for key in np.random.default_rng(0).integers(2**32, size=100, dtype=np.uint32):
        places = partner_places(key, 201, n)
        np.add.at(pairs, (places[:-1], places[1:]), 1)
    assert chisquare(pairs.ravel()).pvalue > 1e-3


def test_the_places_of_all_items_are_those_of_each():
    key = np.uint32(4_000_000_000)
    assert partner_places(key, 50, 6).tolist() == [partner_place(key, item, 6) for item in range(50)]
    assert partner_places(key, 0, 6).size == 0
