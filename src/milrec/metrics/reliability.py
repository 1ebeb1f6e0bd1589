"""Reliability: probabilities against what happened, in bins with about as many held-out pairs each (NumPy only)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

N_BINS = 12
_FEWEST = 50  # held-out pairs in a bin, where there are enough for more than one


@dataclass(frozen=True)
class ReliabilityBin:
    """Pairs with about the same predicted probability: how many there are, and how many of them were held out."""

    pairs: int
    held_out: int
    predicted: float  # mean probability
    observed: float  # share that was held out

    @property
    def log_ratio(self) -> float:
        """ln of predicted over observed odds; 0 is perfect. A prediction of 0 counts as half a pair."""
        return _ln_odds(max(self.predicted, 0.5 / self.pairs)) - _ln_odds(self.observed)


def reliability(
    probabilities: npt.NDArray[np.float64],
    pairs: npt.NDArray[np.int64],
    held_out: npt.NDArray[np.int64],
    n_bins: int = N_BINS,
) -> tuple[ReliabilityBin, ...]:
    """Bins, lowest probability first, from pairs counted at rising probabilities; empty if nothing was held out."""
    total = int(held_out.sum())
    if total == 0:
        return ()
    n_bins = max(1, min(n_bins, total // _FEWEST))
    ends = np.searchsorted(np.cumsum(held_out), np.arange(1, n_bins) * total / n_bins) + 1
    bins = []
    for part in np.split(np.arange(len(pairs)), ends):
        n_pairs, n_held = int(pairs[part].sum()), int(held_out[part].sum())
        if n_held:
            bins.append(
                ReliabilityBin(n_pairs, n_held, float(pairs[part] @ probabilities[part]) / n_pairs, n_held / n_pairs)
            )
    return tuple(bins)


def calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """The mean of |ln(predicted/observed odds)| over the bins; NaN without any."""
    return float(np.mean([abs(one.log_ratio) for one in bins])) if bins else math.nan


def _ln_odds(probability: float) -> float:
    kept = min(max(probability, 1e-12), 1 - 1e-12)
    return math.log(kept) - math.log1p(-kept)
