"""Reliability diagrams, against counts by hand."""

import math

import numpy as np
import pytest

from milrec.metrics.reliability import ReliabilityBin, calibration_error, reliability


def test_bins_hold_about_as_many_held_out_pairs():
    probabilities = np.array([0.01, 0.1, 0.5])
    bins = reliability(probabilities, np.array([20_000, 2_000, 400]), np.array([200, 200, 200]), n_bins=3)
    assert [(one.pairs, one.held_out) for one in bins] == [(20_000, 200), (2_000, 200), (400, 200)]
    assert [one.predicted for one in bins] == pytest.approx([0.01, 0.1, 0.5])
    assert calibration_error(bins) == pytest.approx(0.0, abs=1e-12)


def test_few_held_out_pairs_make_few_bins():
    bins = reliability(np.array([0.1, 0.2]), np.array([100, 100]), np.array([9, 21]))
    assert len(bins) == 1 and bins[0].predicted == pytest.approx(0.15) and bins[0].observed == pytest.approx(0.15)
    assert reliability(np.array([0.1]), np.array([5]), np.array([0])) == ()
    assert math.isnan(calibration_error(()))


def test_the_error_is_in_odds():
    one = ReliabilityBin(pairs=100, held_out=20, predicted=0.5, observed=0.2)
    assert one.log_ratio == pytest.approx(math.log(4)) and calibration_error([one]) == pytest.approx(math.log(4))
