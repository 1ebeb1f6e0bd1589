"""Compiled loops over scores against a plain sort and plain counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.special import expit

from milrec.evaluation.tally import preference_counts
from milrec.kernels import ranking
from milrec.kernels.candidates import top_lists
from milrec.kernels.ranking import add_bias, counts_below, found_in_lists, hide, ordered_shares
from milrec.lists.decisions import Ties, top_items
from milrec.metrics import ranking as measures
from milrec.metrics import tail

INF = np.float32(np.inf)
VALUES = st.one_of(
    st.sampled_from([-INF, -1.0, -0.0, 0.0, 1.0, 1e-45, -1e-45, 3e38, -3e38]),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)
SCORES = st.tuples(st.integers(1, 3), st.integers(1, 200)).flatmap(
    lambda shape: arrays.arrays(np.float32, shape, elements=VALUES, fill=st.sampled_from([-INF, 0.0, -0.0]))
)


def by_sorting(scores, n):
    """The n best items of each user by a plain sort, equal scores in item order."""
    lists = np.full((len(scores), n), -1)
    for user, row in enumerate(scores):
        order = np.lexsort((np.arange(len(row)), -row))
        best = [item for item in order if row[item] > -np.inf][:n]
        lists[user, : len(best)] = best
    return lists


def listed(scores, n):
    lists, values = np.full((len(scores), n), -7), np.full((len(scores), n), np.nan, dtype=np.float32)
    top_lists(scores, lists, values)
    assert (values == np.where(lists < 0, -INF, np.take_along_axis(scores, np.maximum(lists, 0), axis=1))).all()
    return lists


@settings(deadline=None, max_examples=150)
@given(SCORES, st.integers(1, 250))
def test_lists_are_those_of_a_plain_sort(scores, n):
    before = scores.copy()
    assert (listed(scores, n) == by_sorting(scores, n)).all()
    assert scores.tobytes() == before.tobytes()


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 200), st.integers(1, 250), st.integers(1, 4), st.integers(0, 10**6))
def test_equal_scores_stand_in_order_of_popularity_where_that_is_asked_for(n_items, n, n_values, seed):
    random = np.random.default_rng(seed)
    scores = random.choice(np.array([-INF, 0.0, -0.0, 2.0], dtype=np.float32)[:n_values], (4, n_items))
    popularity = random.integers(0, 5, n_items)
    items, values = top_items(scores, n, Ties.by_popularity(popularity))
    for user, row in enumerate(scores):
        order = np.lexsort((np.arange(n_items), -popularity, -row))
        best = [item for item in order if row[item] > -INF][:n]
        assert items[user].tolist() == best + [-1] * (min(n, n_items) - len(best))
        assert (values[user][: len(best)] == row[best]).all() and (values[user][len(best) :] == -INF).all()


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 200), st.integers(1, 12), st.integers(1, 4), st.integers(0, 10**6))
def test_lists_of_scores_with_many_ties_are_those_of_a_plain_sort(n_items, n, n_values, seed):
    random = np.random.default_rng(seed)
    scores = random.choice(np.array([-INF, 0.0, -0.0, 2.0], dtype=np.float32)[:n_values], (4, n_items))
    assert (listed(scores, n) == by_sorting(scores, n)).all()


@pytest.mark.parametrize("n_items", [1, 31, 32, 33, 64, 1000, 5003])
@pytest.mark.parametrize("n", [1, 2, 20, 200])
def test_lists_of_long_rows_are_those_of_a_plain_sort(n_items, n):
    scores = np.random.default_rng(0).standard_normal((5, n_items)).astype(np.float32)
    scores[1] = np.sort(scores[1])
    scores[2] = -np.sort(-scores[2])
    scores[3, n_items // 2 :] = -np.inf
    scores[4] = np.round(scores[4])
    assert (listed(scores, n) == by_sorting(scores, n)).all()


def test_zero_is_zero_whatever_its_sign():
    scores = np.array([[-0.0, 0.0, -0.0, 0.0]], dtype=np.float32)
    assert listed(scores, 4).tolist() == [[0, 1, 2, 3]]


def test_where_no_item_is_left_there_is_none():
    scores = np.full((2, 40), -np.inf, dtype=np.float32)
    scores[1, 35] = -3e38
    assert listed(scores, 3).tolist() == [[-1, -1, -1], [35, -1, -1]]


def test_top_items_takes_any_scores_and_any_length():
    scores = np.random.default_rng(0).standard_normal((6, 50))
    assert (top_items(scores, 7)[0] == by_sorting(scores.astype(np.float32), 7)).all()
    assert (top_items(scores.astype(np.float32)[:, ::2], 7)[0] == by_sorting(scores[:, ::2], 7)).all()
    assert top_items(scores, 99)[0].shape == (6, 50)
    assert top_items(scores, 0)[0].shape == (6, 0)
    assert top_items(scores[:0], 3)[0].shape == (0, 3)


def test_bias_is_added_to_every_row():
    logits, bias = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([10, 20, 30], dtype=np.float32)
    add_bias(logits, bias)
    assert logits.tolist() == [[10, 21, 32], [13, 24, 35]]


def sparse(mask):
    indptr = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
    return indptr, np.nonzero(mask)[1].astype(np.int32)


def test_what_a_user_has_is_hidden_also_for_users_in_the_middle():
    random = np.random.default_rng(0)
    mask = random.random((9, 30)) < 0.3
    mask[4] = False
    indptr, items = sparse(mask)
    scores = random.standard_normal((4, 30)).astype(np.float32)
    expected = np.where(mask[3:7], -np.inf, scores)
    hide(scores, indptr[3:8], items)
    assert (scores == expected).all()


def test_hits_in_lists_are_those_of_a_membership_test():
    random = np.random.default_rng(0)
    mask = random.random((20, 60)) < 0.3
    mask[5] = False
    lists = np.argsort(random.random((20, 60)), axis=1)[:, :15]
    lists[7, 4:], lists[8] = -1, -1
    found = found_in_lists(lists, *sparse(mask), 60)
    for user in range(20):
        assert (found[user] == np.isin(lists[user], np.flatnonzero(mask[user]))).all()


@settings(deadline=None)
@given(arrays.arrays(np.float32, (3, 40), elements=VALUES), arrays.arrays(np.float32, 5, elements=VALUES))
def test_counts_below_thresholds_are_plain_counts(logits, thresholds):
    assert counts_below(logits, thresholds).tolist() == [int((logits < bound).sum()) for bound in thresholds]


@pytest.mark.parametrize("linear", [True, False])
def test_counts_of_preferences_are_the_shares_of_the_tail_report(linear):
    logits = (3 * np.random.default_rng(0).standard_normal((50, 400))).astype(np.float32)
    preference = logits if linear else expit(logits.astype(np.float64))
    shares = tail.preference_shares(preference)
    counts = preference_counts(logits, linear)
    assert counts.sum() == logits.size and (counts > 0).all()
    assert counts / logits.size == pytest.approx(shares.mean(axis=0), abs=1e-12)


def test_preferences_on_a_threshold_count_as_above_it():
    inner = np.array(tail.PREFERENCE_THRESHOLDS[1:-1], dtype=np.float32)
    assert preference_counts(inner[None], linear=True).tolist() == [0, 1, 1, 1, 1, 1]
    assert preference_counts(np.zeros((1, 3), dtype=np.float32), linear=False).tolist() == [0, 0, 0, 3, 0, 0]


PAIRS = st.lists(st.lists(st.integers(0, 5), max_size=4, unique=True).map(sorted), min_size=3, max_size=3)


def as_pairs(items, offset=0):
    """Items of users as indptr and indices, behind `offset` pairs of other users."""
    indptr = offset + np.concatenate([[0], np.cumsum([len(own) for own in items])])
    return indptr.astype(np.int32), np.array([0] * offset + [item for own in items for item in own], dtype=np.int32)


@settings(deadline=None, max_examples=100)
@given(arrays.arrays(np.float32, (3, 6), elements=st.sampled_from([-1.5, -0.0, 0.0, 2.0, 7.0])), PAIRS, PAIRS)
def test_the_share_of_pairs_in_order_is_that_of_counting_them(logits, items, lower):
    shares = np.full(3, np.nan)
    ordered_shares(logits, *as_pairs(items), *as_pairs(lower, offset=2), shares)
    for user in range(3):
        differences = [logits[user, one] - logits[user, other] for one in items[user] for other in lower[user]]
        if differences:
            assert shares[user] == np.mean([1 if value > 0 else 0.5 if value == 0 else 0 for value in differences])
        else:
            assert np.isnan(shares[user])


@pytest.mark.parametrize(("n_samples", "n_users"), [(1, 1), (3, 2), (40, 1_000)])
def test_users_are_drawn_again_as_numpy_draws_them(n_samples, n_users):
    """Intervals do not depend on which of the two counts."""
    compiled, plain = np.empty((n_samples, n_users)), np.empty((n_samples, n_users))
    ranking.count_resampled(np.random.default_rng(7), compiled)
    measures.count_resampled(np.random.default_rng(7), plain)
    assert (compiled == plain).all()
    assert (compiled.sum(axis=1) == n_users).all()
