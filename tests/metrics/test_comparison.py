"""Paired comparisons of models."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from milrec.metrics.comparison import compare, holm


def test_a_comparison_is_of_the_same_users():
    random = np.random.default_rng(0)
    base = random.random(400)
    better = base + 0.1 + 0.01 * random.standard_normal(400)
    (row,) = compare({"better": better, "base": base})
    assert (row.first, row.second, row.users) == ("better", "base", 400)
    assert row.difference == pytest.approx((better - base).mean())
    assert row.low < row.difference < row.high
    assert row.p == pytest.approx(stats.ttest_rel(better, base).pvalue)


def test_users_without_a_value_are_left_out():
    (row,) = compare({"a": np.array([1.0, np.nan, 0.5]), "b": np.array([0.0, 1.0, 0.5])})
    assert row.users == 2 and row.difference == 0.5


def test_models_that_do_not_differ_are_not_told_apart():
    values = np.array([0.1, 0.5, 0.3])
    (row,) = compare({"a": values, "b": values})
    assert (row.difference, row.p) == (0.0, 1.0)
    assert compare({"a": values}) == []


def test_users_that_all_differ_by_the_same_are_certain():
    (row,) = compare({"a": np.array([0.5, 1.0, 0.75]), "b": np.array([0.25, 0.75, 0.5])})
    assert row.p == 0.0


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_makes_no_p_value_smaller_and_keeps_their_order(p_values):
    corrected = holm(p_values)
    assert all(after >= before and after <= 1 for before, after in zip(p_values, corrected, strict=True))
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.array(corrected)[order]) >= 0).all()
