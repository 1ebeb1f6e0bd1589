"""Calibration: by one factor, along a curve, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from milrec.losses import MissingInformationLoss
from milrec.probability.calibration import Calibration, Chances
from milrec.probability.links import link_of


def test_one_factor_multiplies_the_odds():
    found = Calibration(link=True, ln_factor=np.log(0.2), held_out=10)
    assert np.exp(found.ln_probability(np.log([0.1, 1.0, 100.0]))) == pytest.approx([0.02, 0.2, 0.999])
    alone = found.model_copy(update={"rest_counts": False})  # no test pairs among those that validation saw as missing
    assert np.exp(alone.ln_probability(np.log([0.1, 1.0]))) == pytest.approx([0.02 / 1.02, 0.2 / 1.2])
    assert found.kind == "the loss's link and one factor" and found.by_one_factor() == found


def test_a_curve_is_straight_between_its_knots_and_nearly_level_to_the_right():
    found = Calibration(link=True, knots=((-2.0, -6.0), (0.0, -2.0)), ln_factor=1.0, held_out=10)
    assert found.ln_probability(np.array([-3.0, -2.0, -1.0, 0.0])) == pytest.approx([-7.0, -6.0, -4.0, -2.0])
    beyond = found.ln_probability(np.array([0.0, 1.0, 5.0, 500.0]))
    assert (np.diff(beyond) > 0).all() and beyond[-1] <= -1.99  # a higher logit is worth a little more
    bare = Calibration(link=False, knots=((-2.0, -6.0), (0.0, -2.0)), held_out=10)
    assert bare.ln_probability(np.array([-3.0])) == pytest.approx([-8.0])  # as between the first two
    assert bare.by_one_factor() is None and found.by_one_factor().knots == ()
    assert np.isneginf(found.ln_probability(np.array([-np.inf])))


@pytest.mark.parametrize(
    ("knots", "sentence"),
    [
        (((0.0, -1.0), (0.0, -0.5)), "rise from left to right"),
        (((0.0, -1.0), (1.0, -2.0)), "rise, up to 1"),
        (((0.0, 0.5),), "rise, up to 1"),
        (((0.0, float("nan")),), "finite"),
    ],
)
def test_impossible_curves_are_refused(knots, sentence):
    with pytest.raises(ValidationError, match=sentence):
        Calibration(link=False, knots=knots, held_out=1)


def test_the_weight_of_a_missing_item_depends_on_the_user():
    calibration = Calibration(link=True, n_drawn=30, held_out=1)
    chances = Chances(calibration, link_of(MissingInformationLoss(), "sigmoid"), n_items=100)
    shifts = chances.shifts(np.array([40, 40, 90]), np.array([0, 10, 0]))
    assert np.exp(shifts) == pytest.approx([0.5, 0.6, 1.0])
    as_missing = Chances(calibration, chances.link, 100, rejected_count=False)
    assert np.exp(as_missing.shifts(np.array([40]), np.array([10]))) == pytest.approx([0.5])
    whole = Chances(calibration.model_copy(update={"n_drawn": None}), chances.link, 100)
    assert whole.shifts(np.array([40]), np.array([0])) == pytest.approx([0.0])


@given(st.lists(st.floats(-30, 30), min_size=2, max_size=40))
def test_a_probability_never_falls_with_the_logit(logits):
    ordered = np.sort(np.array(logits))
    curve = Calibration(link=True, knots=((-9.0, -9.0), (-3.0, -4.0), (0.0, -4.0), (2.0, -0.1)), held_out=1)
    chances = Chances(curve, link_of(MissingInformationLoss(), "sigmoid"), 10)
    found = chances.probabilities(ordered, 0.0)
    assert (np.diff(found) >= 0).all() and (found >= 0).all() and (found <= 0.999).all()
