"""Target sets: how many missing items are drawn, which ones, and with which weight."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import chisquare

from milrec.kernels.sparse import Rows
from milrec.training.sections import TargetSettings
from milrec.training.targets import Draws, dense_targets, draw_targets, n_missing_drawn, user_importance

N_ITEMS = 30


@pytest.fixture
def known():
    """Four users who know 3, 10, 28 and all of 30 items."""
    known = np.zeros((4, N_ITEMS), dtype=bool)
    for user, count in enumerate((3, 10, 28, 30)):
        known[user, np.random.default_rng(user).permutation(N_ITEMS)[:count]] = True
    return known


def equally_likely(n_items, n_drawn) -> Draws:
    return Draws.by_popularity(np.ones(n_items), n_drawn)


def rows(dense) -> Rows:
    """Sparse rows of a plain matrix."""
    dense = np.asarray(dense, dtype=np.float32)
    items = np.nonzero(dense)[1].astype(np.int32)
    return Rows(np.concatenate([[0], np.cumsum((dense != 0).sum(axis=1))]), items, dense[dense != 0])


def weights(target_set, known, n_drawn, random) -> np.ndarray:
    """The weights of missing items, users × items; every other known item is rejected, the others are adopted."""
    adopted = known & (np.arange(known.shape[1]) % 2 == 0)
    settings = TargetSettings(target_set=target_set)
    drawn = draw_targets(
        rows(adopted), rows(known & ~adopted), settings, equally_likely(known.shape[1], n_drawn), random
    )
    return dense_targets(drawn, known.shape[1], pairs=False).missing.numpy()


def draw_per_user(known, n_drawn, random):
    return weights("per_user", known, n_drawn, random)


def draw_shared(known, n_drawn, random):
    return weights("shared", known, n_drawn, random)


def expected(known, n_drawn):
    return weights("expectation", known, n_drawn, np.random.default_rng(0))


def partners(adopted, random) -> torch.Tensor:
    """The partner of each item, users × items."""
    nothing = Rows.none(len(adopted))
    drawn = draw_targets(rows(adopted), nothing, TargetSettings(), equally_likely(adopted.shape[1], 1), random)
    partner = dense_targets(drawn, adopted.shape[1], pairs=True).partner
    assert partner is not None
    return partner


def adopted_by(counts):
    rows = np.zeros((len(counts), max(counts)), dtype=np.float32)
    for user, count in enumerate(counts):
        rows[user, :count] = 1
    return csr_array(rows)


@pytest.mark.parametrize(
    ("counts", "factor", "drawn"),
    [([1, 2, 9], 5, 10), ([1, 2, 3, 9], 50, 125), ([4, 4], 0.5, 2), ([1, 1], 0.01, 1), ([3], 1, 3)],
)
def test_the_number_drawn_is_the_factor_times_the_median_and_at_least_1(counts, factor, drawn):
    assert n_missing_drawn(adopted_by(counts), factor) == drawn


@pytest.mark.parametrize(
    ("exponent", "importance"), [(0, [1, 1, 1]), (1, [16 / 7, 4 / 7, 1 / 7]), (0.5, [12 / 7, 6 / 7, 3 / 7])]
)
def test_with_an_exponent_users_with_few_items_count_more_and_all_together_as_much(exponent, importance):
    assert user_importance(adopted_by([1, 4, 16]), exponent) == pytest.approx(importance)


@pytest.mark.parametrize("n_drawn", [1, 2, 5, 27, 29, 30, 1000])
def test_a_draw_per_user_has_exactly_as_many_items_as_it_can(known, n_drawn):
    drawn = draw_per_user(known, n_drawn, np.random.default_rng(0))
    assert drawn.sum(axis=1).tolist() == [min(n_drawn, missing) for missing in (27, 20, 2, 0)]
    assert set(np.unique(drawn)) <= {0.0, 1.0}


@pytest.mark.parametrize("n_drawn", [19_999, 20_000, 20_001, 39_999])
def test_a_draw_per_user_of_a_large_catalogue_has_exactly_as_many_items(n_drawn):
    """About half of the items: from there on those that are not drawn are named instead."""
    drawn = draw_per_user(np.zeros((16, 40_000), dtype=bool), n_drawn, np.random.default_rng(88))
    assert drawn.sum(axis=1).tolist() == [n_drawn] * 16


@pytest.mark.parametrize("n_drawn", [4, 23])
def test_those_that_are_fewer_are_named_the_drawn_items_or_the_others(n_drawn):
    adopted = rows(np.eye(1, N_ITEMS) + np.eye(1, N_ITEMS, 7))
    drawn = draw_targets(
        adopted, Rows.none(1), TargetSettings(), equally_likely(N_ITEMS, n_drawn), np.random.default_rng(0)
    )
    few_are_drawn = n_drawn == 4
    assert len(drawn.exceptions.items) == (4 if few_are_drawn else 28 - 23)
    assert drawn.weight.tolist() == [0 if few_are_drawn else 1]
    assert set(drawn.exceptions.values) == {1.0 if few_are_drawn else 0.0}
    assert not {0, 7} & set(drawn.exceptions.items.tolist())
    assert (np.diff(drawn.exceptions.items) > 0).all()


@pytest.mark.parametrize("draw", [draw_per_user, draw_shared])
def test_a_draw_never_has_a_known_item(known, draw):
    random = np.random.default_rng(0)
    for n_drawn in (1, 7, 29, 200):
        assert not draw(known, n_drawn, random)[known].any()


@pytest.mark.parametrize("n_drawn", [4, 15])
def test_a_draw_per_user_is_uniform_over_the_missing_items(known, n_drawn):
    random = np.random.default_rng(0)
    n_draws = 4000
    counts = sum(draw_per_user(known, n_drawn, random) for _ in range(n_draws))
    for user in (0, 1):
        seen = counts[user, ~known[user]]
        # without replacement the counts vary less than a multinomial's, by (1 - n/missing)
        statistic = chisquare(seen).statistic / (1 - n_drawn / len(seen))
        assert chisquare(seen).pvalue > 0.001
        assert 0.3 < statistic / (len(seen) - 1) < 2
    assert counts[2, ~known[2]].tolist() == [n_draws] * 2


def test_a_draw_per_user_differs_between_users_and_between_draws():
    nothing = np.zeros((2, 200), dtype=bool)
    random = np.random.default_rng(0)
    first, second = draw_per_user(nothing, 50, random), draw_per_user(nothing, 50, random)
    assert not np.array_equal(first[0], first[1]) and not np.array_equal(first, second)


def test_the_same_generator_gives_the_same_draw(known):
    for draw in (draw_per_user, draw_shared):
        draws = [draw(known, 5, np.random.default_rng(3)) for _ in range(2)]
        assert np.array_equal(*draws)


def test_a_shared_draw_has_the_same_items_for_all_users(known):
    drawn = draw_shared(known, 8, np.random.default_rng(0))
    items = np.flatnonzero(drawn.any(axis=0))
    assert len(items) <= 8
    everyone = draw_shared(np.zeros((5, N_ITEMS), dtype=bool), 8, np.random.default_rng(0)) > 0
    assert (everyone == everyone[0]).all() and 4 <= everyone[0].sum() <= 8  # an item may be drawn twice
    assert np.array_equal(drawn > 0, everyone[:4] & ~known)


@pytest.mark.parametrize("n_drawn", [1, 6, 25])
def test_a_shared_draw_is_unbiased(known, n_drawn):
    random = np.random.default_rng(0)
    n_draws = 8_000
    mean = sum(draw_shared(known, n_drawn, random).astype(np.float64) for _ in range(n_draws)) / n_draws
    weight = expected(known, n_drawn).astype(np.float64)
    noise = weight * np.sqrt((N_ITEMS / n_drawn - 1) / n_draws)  # a weight is there or not with chance n/N_ITEMS
    assert (np.abs(mean - weight) <= 4.5 * noise + 1e-6).all()


@given(
    popularity=st.lists(st.integers(0, 10**6), min_size=1, max_size=40), n_drawn=st.integers(1, 60), seed=st.integers(0)
)
def test_shared_items_are_as_likely_as_they_are_popular(popularity, n_drawn, seed):
    draws = Draws.by_popularity(popularity, n_drawn)
    n_drawn, sizes = min(n_drawn, len(popularity)), np.array(popularity) + 1.0
    assert draws.chances.sum() == pytest.approx(n_drawn)
    assert (draws.chances > 0).all() and draws.chances.max() <= 1
    others = draws.chances < 1
    assert draws.chances[others] / sizes[others] == pytest.approx(np.full(others.sum(), _scale(draws, sizes)))
    assert (sizes[~others] * _scale(draws, sizes) >= 1 - 1e-9).all()
    items, counts = draws.shared(np.random.default_rng(seed))
    assert (np.diff(items) > 0).all() and counts @ draws.chances[items] == pytest.approx(n_drawn, rel=1e-5)
    assert set(np.flatnonzero(~others)) <= set(items.tolist())


def _scale(draws, sizes):
    """Chance over size of the items that are not always drawn."""
    others = draws.chances < 1
    return (draws.chances[others] / sizes[others]).mean() if others.any() else np.inf


def test_shared_items_stand_for_as_many_missing_ones_as_they_are_rarely_drawn():
    draws, random = Draws.by_popularity([999, 89, 9, 0, 0], 2), np.random.default_rng(0)
    total = np.zeros(5)
    for _ in range(4000):
        items, counts = draws.shared(random)
        total[items] += counts
    assert draws.chances[0] == 1 and total[0] == 4000
    assert total / 4000 == pytest.approx(np.ones(5), abs=0.35)  # the rarest is drawn about 40 times


def test_a_shared_draw_of_the_whole_catalogue_is_the_expectation(known):
    for n_drawn in (30, 500):
        assert draw_shared(known, n_drawn, np.random.default_rng(0)) == pytest.approx(expected(known, n_drawn))


def test_expected_weights_are_the_chances_to_be_drawn(known):
    weight = expected(known, 5)
    assert weight.dtype == np.float32
    assert not weight[known].any()
    for user, chance in enumerate((5 / 27, 5 / 20, 1)):
        assert weight[user, ~known[user]] == pytest.approx(chance)
    assert weight.sum(axis=1) == pytest.approx([5, 5, 2, 0])


def test_a_draw_per_user_has_the_expected_weights_on_average(known):
    random = np.random.default_rng(0)
    n_draws = 4000
    mean = sum(draw_per_user(known, 5, random) for _ in range(n_draws)) / n_draws
    assert mean == pytest.approx(expected(known, 5), abs=0.03)


@pytest.mark.parametrize("target_set", ["per_user", "shared", "expectation", "all"])
def test_rejected_items_are_never_drawn_as_missing(target_set):
    adopted, rejected = (np.zeros((2, 6), dtype=np.float32) for _ in range(2))
    adopted[0, :2] = adopted[1, 3] = 1
    rejected[0, 2] = rejected[1, :3] = 1
    settings = TargetSettings(target_set=target_set)
    drawn = draw_targets(rows(adopted), rows(rejected), settings, equally_likely(6, 4), np.random.default_rng(0))
    targets = dense_targets(drawn, 6, pairs=False)
    assert targets.adopted.tolist() == adopted.tolist() and targets.rejected.tolist() == rejected.tolist()
    assert not targets.missing[torch.from_numpy(adopted + rejected) > 0].any()
    assert targets.missing.dtype == torch.float32 and targets.partner is None


def test_what_was_adopted_counts_as_1_whatever_its_weight():
    drawn = draw_targets(
        rows([[3, 0, 0.5]]), rows([[0, 7, 0]]), TargetSettings(), equally_likely(3, 1), np.random.default_rng(0)
    )
    targets = dense_targets(drawn, 3, pairs=False)
    assert targets.adopted.tolist() == [[1, 0, 1]] and targets.rejected.tolist() == [[0, 1, 0]]


def test_all_missing_items_have_weight_1():
    adopted = np.eye(3, 5, dtype=np.float32)
    settings = TargetSettings(target_set="all")
    drawn = draw_targets(rows(adopted), Rows.none(3), settings, equally_likely(5, 1), np.random.default_rng(0))
    assert dense_targets(drawn, 5, pairs=False).missing.tolist() == (1 - adopted).tolist()


def test_without_a_target_set_no_missing_item_is_named():
    drawn = draw_targets(rows(np.eye(3, 5)), Rows.none(3), None, equally_likely(5, 1), np.random.default_rng(0))
    assert not dense_targets(drawn, 5, pairs=False).missing.any()


def test_partners_are_adopted_items():
    random = np.random.default_rng(0)
    adopted = (random.random((40, 25)) < 0.2).astype(np.float32)
    adopted[:, 7] = 1  # everybody has something
    drawn = partners(adopted, random)
    assert drawn.shape == (40, 25) and drawn.dtype == torch.int64
    assert np.take_along_axis(adopted, drawn.numpy(), axis=1).all()


def test_partners_are_uniform_over_the_adopted_items_and_independent_of_the_item():
    adopted = np.zeros((2, 10), dtype=np.float32)
    adopted[0, [1, 4, 6, 9]] = 1
    adopted[1, [0, 2]] = 1
    random = np.random.default_rng(0)
    drawn = np.stack([partners(adopted, random).numpy() for _ in range(2000)])  # (n_draws, 2, 10)
    for user, own in enumerate(([1, 4, 6, 9], [0, 2])):
        for item in range(10):
            assert chisquare([(drawn[:, user, item] == one).sum() for one in own]).pvalue > 0.0005
    agree = (drawn[:, 0, 0] == drawn[:, 0, 1]).mean()
    assert agree == pytest.approx(0.25, abs=0.04)


def test_partners_of_a_batch_without_adopted_items_are_drawn_without_an_error():
    assert partners(np.zeros((2, 3), dtype=np.float32), np.random.default_rng(0)).shape == (2, 3)


def test_what_a_fit_draws_follows_its_training_part(small_catalogue):
    draws = Draws.of(small_catalogue, target_factor=2)
    median = np.median(np.diff(small_catalogue.adopted.indptr))
    assert draws.n_drawn == round(2 * median) and draws.n_items == small_catalogue.n_items
    assert (np.argsort(-draws.chances, kind="stable") == np.argsort(-small_catalogue.popularity(), kind="stable")).all()
