"""What the shape of the data decides about a fit, where the settings leave it open.

The rules were measured beforehand (docs/log.md). Nothing is timed, so the same data always gives the same fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milrec.data.interactions import Interactions

_STEPS_PER_EPOCH = 60  # that the batch size aims for
_SMALLEST_BATCH, _LARGEST_BATCH = 100, 500
_CELLS = 5_000_000  # users × items of a step, at most, where more would not save steps
_WHOLE_CATALOGUE = 50_000  # up to this many items, every step can use them all
_FEW_ADOPTERS = 40  # for each item, on average
_FEW_PAIRS = 0.005  # of all users × items: below both, the data is sparse


@dataclass(frozen=True)
class Shape:
    """How large data is."""

    n_users: int
    n_items: int
    n_pairs: int  # adopted ones

    @classmethod
    def of(cls, train: Interactions) -> Shape:
        return cls(train.n_users, train.n_items, train.adopted.nnz)

    @property
    def sparse(self) -> bool:
        """Whether items have so few adopters that weights cannot follow the noise, and a fit may start far along."""
        return self.n_pairs < min(_FEW_ADOPTERS, _FEW_PAIRS * self.n_users) * self.n_items


def batch_size(shape: Shape) -> int:
    """A 60th of the users, from 100 to 500; fewer where the data is sparse and the catalogue wide.

    What counts is the number of steps, more than of users in them.
    """
    users = min(max(shape.n_users // _STEPS_PER_EPOCH, _SMALLEST_BATCH), _LARGEST_BATCH)
    affordable = max(_CELLS // max(shape.n_items, 1), _SMALLEST_BATCH)
    return min(users, affordable) if shape.sparse else users


def target_set(shape: Shape) -> str:
    return "expectation" if shape.n_items <= _WHOLE_CATALOGUE else "shared"


def beginning(shape: Shape) -> dict[str, Any]:
    """Where a fit starts, and how soon it takes its largest steps.

    On sparse data a fit from biases of 0 spends most of its steps on moving them to where the loss puts them.
    """
    if shape.sparse:
        return {"start_bias": "rest", "start_logit": 0.1, "warmup": 100}
    return {"start_bias": "zero", "start_logit": 0.05, "warmup": 200}
