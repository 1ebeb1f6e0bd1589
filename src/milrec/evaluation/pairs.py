"""All pairs of users and items that may be listed, counted by the odds that a model gives them.

A grid over ln(odds) of 16,384 bins holds them all: what follows from it (a factor, a curve, a reliability diagram)
needs no second look at the model. Counts are whole numbers, so that no order of threads changes them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from milrec.data.splits import Audience
from milrec.kernels.ranking import count_by_odds
from milrec.lists.decisions import Scores
from milrec.lists.scores import leave_out
from milrec.probability.calibration import Chances, Doubles

_BINS = 1 << 14
_PLACES = 1 << 16  # of the table from logits to bins
_FARTHEST = 20.0  # from 0 that a logit of a loss with a link is told apart
_MOST = 12.0  # ln(odds) of a loss; above, they count at the end
_LIGHTEST = -20.0  # ln of the smallest weight of a missing item
Counts = npt.NDArray[np.int64]


@dataclass(eq=False)
class PairCounts:
    """How many pairs there are at each place of the grid, and how many of them were held out."""

    chances: Chances
    low: float  # ln(odds) at the lower end of the first bin
    step: float  # width of a bin
    first_logit: float  # of the table
    scale: float  # places of the table for each unit of logit
    table: npt.NDArray[np.float32]  # the bin, not rounded, of each place
    pairs: Counts = field(default_factory=lambda: np.zeros(_BINS, dtype=np.int64))
    held_out: Counts = field(default_factory=lambda: np.zeros(_BINS, dtype=np.int64))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, chances: Chances) -> PairCounts:
        """A grid for a model that is calibrated, or whose loss has a link."""
        if chances.link is not None:
            return cls._over(chances, -_FARTHEST, _FARTHEST)
        first, last = chances.calibration.knots[0][0], chances.calibration.knots[-1][0]
        return cls._over(chances, first - (last - first) - 1.0, last + 1e-3)

    @classmethod
    def like(cls, chances: Chances, sample: Scores) -> PairCounts:
        """A grid for logits such as those of a few users."""
        finite = sample[np.isfinite(sample)]
        least, most = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        room = 0.25 * (most - least) + 1e-6
        return cls._over(chances, least - room, most + room)

    @classmethod
    def _over(cls, chances: Chances, least: float, most: float) -> PairCounts:
        ln_odds = chances.ln_odds(np.linspace(least, most, _PLACES))
        lowest = float(ln_odds[np.isfinite(ln_odds)].min()) + _LIGHTEST
        low, high = (lowest, _MOST) if chances.link is not None else (least, most)
        step = (high - low) / _BINS
        table = np.clip((ln_odds - low) / step, -2.0 * _BINS, 2.0 * _BINS).astype(np.float32)
        return cls(chances, low, step, least, (_PLACES - 1) / (most - least), table)

    @property
    def centres(self) -> Doubles:
        """ln(odds) in the middle of each bin; -inf in the first, in which all that is lower is counted too."""
        centres: Doubles = self.low + self.step * (np.arange(_BINS, dtype=np.float64) + 0.5)
        if self.chances.link is not None:
            centres[0] = -np.inf
        return centres

    def add(self, logits: Scores, audience: Audience, targets: csr_array, block: slice) -> None:
        """Count a block of users, whose logits may be those of all items; several threads may do so."""
        shown = logits.copy()
        leave_out(shown, audience, block)
        counts = [
            np.diff(pairs.indptr[block.start : block.stop + 1]) for pairs in (audience.adopted, audience.rejected)
        ]
        shifts = (self.chances.shifts(*counts) / self.step).astype(np.float32)
        own = targets.indptr[block.start : block.stop + 1]
        rows = np.repeat(np.arange(len(own) - 1), np.diff(own))
        held = shown[rows, targets.indices[own[0] : own[-1]]][:, None]
        pairs, held_out = np.zeros_like(self.pairs), np.zeros_like(self.held_out)
        place = (self.table, np.float32(self.first_logit), np.float32(self.scale))
        count_by_odds(shown, *place, shifts, pairs)
        count_by_odds(np.ascontiguousarray(held), *place, np.ascontiguousarray(shifts[rows]), held_out)
        with self._lock:
            self.pairs += pairs
            self.held_out += held_out

    def sums(self) -> dict[str, Counts]:
        return {"pairs": self.pairs, "held_out": self.held_out}

    def add_sums(self, sums: Mapping[str, Counts]) -> None:
        """What others counted on the same grid."""
        self.pairs += sums["pairs"]
        self.held_out += sums["held_out"]
