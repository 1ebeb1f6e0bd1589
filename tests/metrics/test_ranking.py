"""Ranking measures by hand, and against pytrec-eval."""

import math

import numpy as np
import pytest
import pytrec_eval

from milrec.metrics.ranking import (
    bootstrap_interval,
    discounts,
    find_hits,
    graded_ndcg,
    ndcg,
    novelties,
    novelty_ndcg,
    recall,
    recall_of_all,
)

SECOND, THIRD = 1 / math.log2(3), 1 / math.log2(4)  # discounts of the second and third place


def random_lists(n_users=60, n_items=80, length=30, seed=0):
    """Lists and targets at random; every user has 1 to 40 targets."""
    random = np.random.default_rng(seed)
    lists = np.stack([random.permutation(n_items)[:length] for _ in range(n_users)])
    targets = [random.permutation(n_items)[: random.integers(1, 41)] for _ in range(n_users)]
    return lists, targets


def by_pytrec_eval(lists, targets, measure, cutoff):
    relevant = {str(user): {str(item): 1 for item in items} for user, items in enumerate(targets)}
    scored = {
        str(user): {str(item): float(-place) for place, item in enumerate(items)} for user, items in enumerate(lists)
    }
    values = pytrec_eval.RelevanceEvaluator(relevant, {f"{measure}.{cutoff}"}).evaluate(scored)
    return [values[str(user)][f"{measure}_{cutoff}"] for user in range(len(lists))]


def test_hits_are_the_places_of_the_targets():
    hits = find_hits([[3, 1, 0], [2, 0, -1], [5, 4, 1]], [[1, 2], [2], []])
    assert hits.found.tolist() == [[False, True, False], [True, False, False], [False, False, False]]
    assert hits.n_targets.tolist() == [2, 1, 0]


def test_an_empty_place_is_never_a_hit():
    hits = find_hits([[7, -1], [-1, -1]], [[6, 7], [7]])
    assert hits.found.tolist() == [[True, False], [False, False]]


def test_a_target_of_one_user_is_no_hit_of_another():
    assert not find_hits([[0, 1], [2, 3]], [[2, 3], [0, 1]]).found.any()


def test_recall_by_hand():
    hits = find_hits([[3, 1], [1, 2], [0, 3]], [[1, 2], [1, 2], [2]])
    assert recall(hits, 2).tolist() == [0.5, 1, 0]
    assert recall(hits, 1).tolist() == [0, 1, 0]


def test_recall_divides_by_what_a_list_can_hold_and_recall_of_all_by_all_targets():
    hits = find_hits([[1, 2, 9]], [[1, 2, 3, 4]])
    assert recall(hits, 1).tolist() == [1] and recall_of_all(hits, 1).tolist() == [0.25]
    assert recall(hits, 3).tolist() == [pytest.approx(2 / 3)] and recall_of_all(hits, 3).tolist() == [0.5]
    assert recall(hits, 4).tolist() == recall_of_all(hits, 4).tolist() == [0.5]


def test_ndcg_by_hand():
    hits = find_hits([[3, 1, 2], [1, 9, 2], [9, 8, 7], [1, 2, 3]], [[1, 2], [1, 2], [1, 2], [1, 2, 3]])
    ideal = 1 + SECOND
    assert ndcg(hits, 3) == pytest.approx([(SECOND + THIRD) / ideal, (1 + THIRD) / ideal, 0, 1])
    assert ndcg(hits, 1) == pytest.approx([0, 1, 0, 1])


def test_a_cutoff_beyond_the_list_counts_what_is_there():
    hits = find_hits([[3, 1]], [[1, 2, 4]])
    assert recall(hits, 100) == pytest.approx([1 / 3])
    assert ndcg(hits, 100) == pytest.approx([SECOND / (1 + SECOND + THIRD)])


@pytest.mark.parametrize("cutoff", [1, 5, 20, 30])
def test_recall_of_all_and_ndcg_are_those_of_pytrec_eval(cutoff):
    lists, targets = random_lists()
    hits = find_hits(lists, targets)
    assert recall_of_all(hits, cutoff) == pytest.approx(by_pytrec_eval(lists, targets, "recall", cutoff), abs=1e-12)
    assert ndcg(hits, cutoff) == pytest.approx(by_pytrec_eval(lists, targets, "ndcg_cut", cutoff), abs=1e-12)


@pytest.mark.parametrize("cutoff", [1, 5, 20, 30])
def test_the_papers_recall_differs_by_its_divisor_only(cutoff):
    lists, targets = random_lists()
    hits = find_hits(lists, targets)
    n_targets = np.array([len(items) for items in targets])
    divided_anew = recall_of_all(hits, cutoff) * n_targets / np.minimum(n_targets, cutoff)
    assert recall(hits, cutoff) == pytest.approx(divided_anew)
    assert (recall(hits, cutoff) <= 1).all()


def test_measures_do_not_depend_on_the_order_of_targets():
    lists, targets = random_lists()
    novelty = novelties(np.arange(1, 81))
    forwards, backwards = find_hits(lists, targets), find_hits(lists, [items[::-1] for items in targets])
    assert np.array_equal(ndcg(forwards, 20), ndcg(backwards, 20))
    assert np.array_equal(novelty_ndcg(forwards, novelty, 20), novelty_ndcg(backwards, novelty, 20))


def test_novelty_is_minus_the_logarithm_of_an_items_share():
    assert novelties(np.array([2, 1, 1])) == pytest.approx([math.log(2), math.log(4), math.log(4)])


def test_novelty_ndcg_by_hand_in_both_forms():
    """Decision D4: the ideal list has the most novel targets first, or the largest novelty at every place."""
    novelty = np.array([1.0, 2.0, 4.0, 9.0])
    hits = find_hits([[1, 3, 0, 2]], [[0, 1, 2]])
    gained = 2.0 + 1.0 * THIRD + 4.0 / math.log2(5)
    in_order = 4.0 + 2.0 * SECOND + 1.0 * THIRD
    at_most = 4.0 * (1 + SECOND + THIRD)
    assert novelty_ndcg(hits, novelty, 4) == pytest.approx([gained / in_order])
    assert novelty_ndcg(hits, novelty, 4, ideal="maximum") == pytest.approx([gained / at_most])
    assert novelty_ndcg(hits, novelty, 2) == pytest.approx([2.0 / (4.0 + 2.0 * SECOND)])
    assert novelty_ndcg(hits, novelty, 2, ideal="maximum") == pytest.approx([2.0 / (4.0 * (1 + SECOND))])


def test_novelty_ndcg_of_the_ideal_list_is_1():
    novelty = np.array([1.0, 2.0, 4.0, 9.0])
    assert novelty_ndcg(find_hits([[3, 1, 0, 2]], [[0, 1, 3]]), novelty, 3) == pytest.approx([1])


def test_novelty_ndcg_is_ndcg_where_all_items_are_equally_novel():
    lists, targets = random_lists()
    hits, novelty = find_hits(lists, targets), np.full(80, 3.7)
    for ideal in ("sorted", "maximum"):
        assert novelty_ndcg(hits, novelty, 20, ideal) == pytest.approx(ndcg(hits, 20))


def test_graded_ndcg_by_hand():
    gains, ideal = np.array([[0.5, 1.0, 0.0]]), np.array([[1.0, 0.5, 0.25]])
    assert graded_ndcg(gains, ideal, 2) == pytest.approx([(0.5 + SECOND) / (1 + 0.5 * SECOND)])
    assert graded_ndcg(ideal, ideal, 3) == pytest.approx([1])
    assert math.isnan(graded_ndcg(gains, np.zeros((1, 3)), 2)[0])


def test_discounts_start_at_1():
    assert discounts(3) == pytest.approx([1, SECOND, THIRD])


@pytest.mark.parametrize("measure", [recall, recall_of_all, ndcg])
def test_a_user_without_targets_has_no_value(measure):
    assert np.isnan(measure(find_hits([[3, 1], [1, 2]], [[], [1]]), 2)).tolist() == [True, False]


@pytest.mark.parametrize("ideal", ["sorted", "maximum"])
def test_a_user_without_targets_has_no_novelty_value(ideal):
    values = novelty_ndcg(find_hits([[3, 1], [1, 2]], [[], [1]]), np.ones(4), 2, ideal)
    assert np.isnan(values).tolist() == [True, False]


def test_a_user_with_an_empty_list_has_found_nothing():
    hits = find_hits([[-1, -1]], [[0, 1]])
    assert recall(hits, 2).tolist() == ndcg(hits, 2).tolist() == [0]
    assert novelty_ndcg(hits, np.ones(2), 2).tolist() == [0]


def test_the_bootstrap_interval_covers_the_true_mean_as_often_as_it_says():
    random = np.random.default_rng(0)
    samples = random.exponential(2.0, (80, 200))  # 200 measures of 80 users, each with a true mean of 2
    low, high = bootstrap_interval(samples, np.random.default_rng(1), n_samples=400)
    assert 0.88 <= ((low <= 2) & (high >= 2)).mean() <= 0.98


def test_the_bootstrap_interval_is_about_two_standard_errors_each_way():
    values = np.random.default_rng(0).normal(5, 3, (900, 1))
    low, high = bootstrap_interval(values, np.random.default_rng(1))[:, 0]
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 30, rel=0.1)


def test_the_bootstrap_interval_is_the_same_for_the_same_generator():
    values = np.random.default_rng(0).random((50, 3))
    first, second, other = (bootstrap_interval(values, np.random.default_rng(seed)) for seed in (4, 4, 5))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_the_bootstrap_interval_leaves_out_users_without_a_value():
    values = np.array([[1.0], [1.0], [np.nan], [1.0]])
    assert bootstrap_interval(values, np.random.default_rng(0)).tolist() == [[1], [1]]


def test_the_bootstrap_interval_of_nothing_is_undefined():
    assert np.isnan(bootstrap_interval(np.full((4, 2), np.nan), np.random.default_rng(0))).all()
    assert np.isnan(bootstrap_interval(np.zeros((0, 2)), np.random.default_rng(0))).all()
    mixed = bootstrap_interval(np.array([[np.nan, 1.0], [np.nan, 1.0]]), np.random.default_rng(0))
    assert np.isnan(mixed[:, 0]).all() and mixed[:, 1].tolist() == [1, 1]


def test_an_item_that_nobody_adopted_changes_nothing_for_other_users():
    novelty = np.array([1.0, 2.0, 3.0, np.inf])
    lists, targets = [[2, 0, 1], [0, 1, 2], [1, 2, 0]], [[0, 1, 2], [3, 0], [2, 1]]
    alone = [novelty_ndcg(find_hits(lists[u : u + 1], targets[u : u + 1]), novelty, 3)[0] for u in (0, 2)]
    with np.errstate(invalid="ignore"):
        together = novelty_ndcg(find_hits(lists, targets), novelty, 3)
    assert together[[0, 2]].tolist() == alone
