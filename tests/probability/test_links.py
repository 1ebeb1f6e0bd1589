"""The link of a loss: odds → the preference at which the loss rests → the same odds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milrec.losses import LOSSES, MissingInformationLoss, PointwiseCrossEntropy
from milrec.probability.links import link_of


def logit(q):
    return np.log(q) - np.log1p(-q)


def ln_odds(loss, logits):
    link = link_of(loss, "sigmoid")
    assert link is not None
    return link(logits)


@given(
    st.floats(1e-5, 0.6),
    st.sampled_from([(5e1, 2), (1e3, 4), (2e4, 6), (1e6, 10), (5e9, 15)]),
    st.sampled_from([1.0, 1.5, 2.0]),
    st.floats(0.05, 1.0),
)
def test_mil_rests_where_its_link_says(chance, pair, adopted_exponent, weight):
    loss = MissingInformationLoss(missing_weight=pair[0], missing_exponent=pair[1], adopted_exponent=adopted_exponent)
    odds = np.array([chance / (1 - chance)])
    rests = loss.resting_preference(odds, weight)
    if rests[0] > 1 - 1e-9:  # the cap: every higher probability has the same preference
        return
    found = ln_odds(loss, logit(rests)) + np.log(weight)
    assert found[0] == pytest.approx(np.log(odds[0]), abs=1e-5)


def test_cross_entropy_has_the_logistic_link():
    loss = PointwiseCrossEntropy()
    rests = loss.resting_preference(np.array([0.25]), 0.5)
    assert ln_odds(loss, logit(rests))[0] + np.log(0.5) == pytest.approx(np.log(0.25))
    weighted = PointwiseCrossEntropy(confidence=4.0)
    rests = weighted.resting_preference(np.array([0.25]), 1.0)
    assert ln_odds(weighted, logit(rests))[0] == pytest.approx(np.log(0.25))


def test_below_one_half_mil_gives_no_chance():
    loss = MissingInformationLoss()
    assert np.isneginf(ln_odds(loss, np.array([0.0, -0.1, -50.0]))).all()
    rising = ln_odds(loss, np.linspace(0.01, 30, 500))
    assert np.isfinite(rising).all() and (np.diff(rising) >= 0).all()


@pytest.mark.parametrize("name", ["square", "pairwise", "multinomial"])
def test_other_losses_have_no_link(name):
    assert link_of(LOSSES[name](), "sigmoid") is None


def test_without_a_wall_or_a_sigmoid_there_is_no_link():
    assert link_of(MissingInformationLoss(missing_weight=0.0), "sigmoid") is None
    assert link_of(MissingInformationLoss(), "linear") is None
    assert link_of(None, None) is None
