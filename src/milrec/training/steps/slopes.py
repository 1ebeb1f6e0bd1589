"""Slopes: the gradient of a slice of a step, spelled out, so that slices can be sent and added up in their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Places = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Slope:
    """The gradient of a weight: of some of its rows, or of all."""

    rows: Places | None  # each once; None: all of them
    values: Tensor  # (n_rows, n_columns)


@dataclass(frozen=True)
class Slopes:
    """A mean loss, and its gradient by every weight that has one."""

    loss: float
    by_weight: dict[str, Slope]

    def times(self, share: float) -> Slopes:
        """Those of a slice that has this share of the users of a step."""
        by_weight = {name: Slope(slope.rows, slope.values * share) for name, slope in self.by_weight.items()}
        return Slopes(self.loss * share, by_weight)


def sum_in_order(parts: Iterable[Slopes]) -> Slopes:
    """Added up one after another, whatever they were computed by: the same bytes for the same parts."""
    loss, whole, some = 0.0, dict[str, Tensor](), dict[str, list[Slope]]()
    for part in parts:
        loss += part.loss
        for name, slope in part.by_weight.items():
            if slope.rows is not None:
                some.setdefault(name, []).append(slope)
            elif name in whole:
                whole[name] += slope.values
            else:
                whole[name] = slope.values
    summed = {name: Slope(None, values) for name, values in whole.items()}
    return Slopes(loss, summed | {name: _joined(several) for name, several in some.items()})


def _joined(several: list[Slope]) -> Slope:
    """The rows of all of them, in order."""
    own = [slope.rows for slope in several if slope.rows is not None]
    rows = np.unique(np.concatenate(own))
    first = several[0].values
    values = torch.zeros(len(rows), first.shape[1], dtype=first.dtype, device=first.device)
    for places, slope in zip(own, several, strict=True):
        values.index_add_(0, torch.from_numpy(np.searchsorted(rows, places)).to(first.device), slope.values)
    return Slope(rows, values)
