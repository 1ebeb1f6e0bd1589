"""The popularity tail, on catalogues small enough to count."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milrec.metrics.tail import (
    TailInterval,
    exposure,
    gini,
    interval_counts,
    interval_cuts,
    list_popularity,
    list_shares,
    popularity_curve,
    popularity_order,
    preference_shares,
    tail_intervals,
)

SHORT, MEDIUM, LONG = TailInterval
POPULARITY = np.array([1, 12, 2, 5, 6, 4])
# In order of popularity: items 1, 4, 3, 5, 2, 0 with 12, 6, 5, 4, 2, 1 adopters: 30 in all, a third is 10.
# Cumulative: 12, 18, 23, 27, 29, 30. 10 is reached by the first item, 20 by the third.


# Intervals


def test_items_stand_in_order_of_popularity_and_equals_in_item_order() -> None:
    assert popularity_order(POPULARITY).tolist() == [1, 4, 3, 5, 2, 0]
    assert popularity_order(np.array([2, 3, 2, 3, 0])).tolist() == [1, 3, 0, 2, 4]


def test_the_cuts_are_the_numbers_of_items_that_hold_one_and_two_thirds() -> None:
    assert interval_cuts(POPULARITY) == (1, 3)


def test_every_item_is_in_the_interval_of_its_place() -> None:
    assert tail_intervals(POPULARITY).tolist() == [LONG, SHORT, LONG, MEDIUM, MEDIUM, LONG]


def test_a_third_that_is_met_exactly_ends_the_interval() -> None:
    # 9 interactions: 3 | 2 + 1 | 1 + 1 + 1; a third is 3, met by the first item; 6 is met by the third.
    assert interval_cuts(np.array([3, 2, 1, 1, 1, 1])) == (1, 3)
    # Equal items: a third of the items each.
    assert interval_cuts(np.full(9, 7)) == (3, 6)


def test_thirds_that_are_no_whole_numbers_are_not_rounded() -> None:
    # 10 interactions: 10/3 = 3.33 is not reached by 3, and 6.67 not by 6.
    assert interval_cuts(np.array([3, 3, 3, 1])) == (2, 3)
    # 11: 3.67 is reached by 4, 7.33 by 4 + 4.
    assert interval_cuts(np.array([4, 4, 3])) == (1, 2)


def test_an_item_that_holds_two_thirds_leaves_the_medium_interval_empty() -> None:
    assert interval_cuts(np.array([8, 1, 1])) == (1, 1)
    assert tail_intervals(np.array([8, 1, 1])).tolist() == [SHORT, LONG, LONG]


def test_one_item_is_the_short_tail() -> None:
    assert tail_intervals(np.array([5])).tolist() == [SHORT]


def test_unsigned_counts_are_ordered_like_others() -> None:
    assert popularity_order(np.array([0, 5, 2], dtype=np.uint32)).tolist() == [1, 2, 0]


@settings(deadline=None)
@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=40).filter(any))
def test_cuts_hold_a_third_and_two_thirds_and_with_one_item_less_they_do_not(counts: list[int]) -> None:
    popularity = np.array(counts)
    ordered = sorted(counts, reverse=True)
    for cut, third in zip(interval_cuts(popularity), (1, 2), strict=True):
        assert 3 * sum(ordered[:cut]) >= third * sum(counts)
        assert 3 * sum(ordered[: cut - 1]) < third * sum(counts)
    intervals = tail_intervals(popularity)
    short, medium = interval_cuts(popularity)
    assert np.bincount(intervals, minlength=3).tolist() == [short, medium - short, len(counts) - medium]


# Lists (-1: no item at this place)

INTERVALS = np.array([SHORT, MEDIUM, LONG, LONG], dtype=np.int8)
LISTS = np.array([[0, 1, 2, 3], [0, 2, 3, -1], [-1, -1, -1, -1]])


def test_the_share_of_each_interval_is_of_what_a_user_is_listed() -> None:
    shares = list_shares(LISTS, INTERVALS)
    assert shares[0].tolist() == [0.25, 0.25, 0.5]
    assert shares[1] == pytest.approx([1 / 3, 0, 2 / 3])


def test_the_shares_of_an_empty_list_are_undefined() -> None:
    assert np.isnan(list_shares(LISTS, INTERVALS)[2]).all()


def test_intervals_are_counted_at_each_place() -> None:
    assert interval_counts(LISTS, INTERVALS).tolist() == [
        [2, 0, 0, 0],  # both lists begin in the short tail
        [0, 1, 0, 0],
        [0, 1, 2, 1],
    ]


def test_the_popularity_of_a_list_is_the_mean_of_its_items() -> None:
    found = list_popularity(LISTS, np.array([10, 6, 4, 0]))
    assert found[:2] == pytest.approx([5, 14 / 3])  # (10 + 6 + 4 + 0) / 4 and (10 + 4 + 0) / 3


def test_the_popularity_of_an_empty_list_is_undefined() -> None:
    assert np.isnan(list_popularity(LISTS, np.array([10, 6, 4, 0]))[2])


def test_exposure_counts_the_places_of_every_item() -> None:
    assert exposure(LISTS, 6).tolist() == [2, 1, 2, 2, 0, 0]
    assert exposure(LISTS[2:], 3).tolist() == [0, 0, 0]


# Gini


def test_gini_is_0_when_every_item_has_the_same() -> None:
    assert gini(np.array([4, 4, 4, 4])) == 0
    assert gini(np.array([7])) == 0


def test_gini_is_near_1_when_one_item_has_all() -> None:
    assert gini(np.array([0, 0, 0, 8])) == 0.75  # 1 - 1/n
    assert gini(np.eye(1, 1_000, dtype=np.int64)[0] * 50) == pytest.approx(0.999)


def test_gini_of_a_hand_made_example() -> None:
    # 1, 2, 5 in order: weights 2·rank - 4 = -2, 0, 2: (-2 + 0 + 10) / (3 · 8) = 1/3.
    assert gini(np.array([5, 1, 2])) == pytest.approx(1 / 3)


def test_gini_without_any_place_is_undefined() -> None:
    assert np.isnan(gini(np.array([0, 0])))


@settings(deadline=None)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=20).filter(any))
def test_gini_is_half_the_mean_difference_over_the_mean(counts: list[int]) -> None:
    values = np.array(counts, dtype=np.float64)
    by_definition = np.abs(values[:, None] - values[None, :]).mean() / (2 * values.mean())
    assert gini(np.array(counts)) == pytest.approx(by_definition, abs=1e-12)


# Predicted preferences


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_preference_on_a_threshold_belongs_to_the_interval_above(dtype: type) -> None:
    on_thresholds: np.ndarray = np.array([[0, 0.01, 0.25, 0.5, 0.7, 0.9]], dtype=dtype)
    assert preference_shares(on_thresholds)[0] == pytest.approx([1 / 6] * 6)
    below = np.nextafter(on_thresholds[:, 1:], dtype(0))  # .01, .25, .5, .7 and .9, and a hair less
    assert preference_shares(below)[0] == pytest.approx([1 / 5] * 5 + [0])


def test_a_preference_of_1_is_in_the_last_interval_and_0_in_the_first() -> None:
    assert preference_shares(np.array([[0.0, 1.0, 1.0, 1.0]]))[0].tolist() == [0.25, 0, 0, 0, 0, 0.75]


def test_shares_are_of_each_user_and_sum_to_1() -> None:
    preference = np.array([[0.005, 0.1, 0.3, 0.6], [0.8, 0.95, 0.95, 0.95]])
    assert preference_shares(preference).tolist() == [
        [0.25, 0.25, 0.25, 0.25, 0, 0],
        [0, 0, 0, 0, 0.25, 0.75],
    ]


def test_the_popularity_curve_has_the_adopters_at_ranks_spread_by_their_logarithm():
    falling = np.array([90, 40, 30, 9, 8, 7, 6, 5, 4, 1])
    ranks, adopters = popularity_curve(falling, 4)
    assert ranks.tolist() == [1, 2, 5, 10] and adopters.tolist() == [90, 40, 8, 1]
    ranks, adopters = popularity_curve(falling, 240)
    assert ranks.tolist() == list(range(1, 11)) and adopters.tolist() == falling.tolist(), "no rank comes twice"
    assert popularity_curve(falling[:1], 5)[0].tolist() == [1]
