"""Adam, for all rows of a weight or only for those that a step touches.

Where the loss is sampled (`target_set=shared`), a step has a gradient for a few thousand rows, whatever the size of
the catalogue; only these are updated. A row that was not touched for k - 1 steps catches up when it is touched again:
its moments fade by β^k, its weights drift on as the fading mean would have moved them (a geometric series), and
its weight decay is k times that of one step: over the fit each row decays as much as if it were updated every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from milrec.kernels.rows import adam_rows
from milrec.kernels.sparse import Transposed
from milrec.kernels.threads import Task, zeros

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
_NUMBERS_PER_TASK = 200_000

Floats = npt.NDArray[np.float32]
Decay = float | npt.NDArray[np.float64]  # of all rows of a weight, or of each: (n_rows,)


@dataclass(frozen=True)
class RowGradient:
    """The gradient of some rows: Σ coefficient · left[user] over sparse pairs, for the first rows plus a dense part."""

    sparse: Transposed
    left: Floats  # (n_users, n_columns)
    dense: Floats  # (n_dense ≤ n_rows, n_columns)


class Adam:
    """The moments of every weight, and the step at which each row was last touched."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self.parameters = parameters
        self.step = 0
        self.mean = {name: zeros(*value.shape).to(value.device) for name, value in parameters.items()}
        self.square = {name: zeros(*value.shape).to(value.device) for name, value in parameters.items()}
        self.last = {
            name: torch.zeros(len(matrix(value)), dtype=torch.int32, device=value.device)
            for name, value in parameters.items()
        }

    def parts(self) -> dict[str, dict[str, Tensor]]:
        """All that changes from step to step, by kind and weight."""
        return {"mean": self.mean, "square": self.square, "last": self.last}

    def update(self, name: str, gradient: Tensor, rate: float, decay: Decay) -> None:
        """A step on all rows of a weight; `decay` is the slope of the weight decay per unit of weight, for all rows or
        for each of them.
        """
        weight, mean, square = self.parameters[name].detach(), self.mean[name], self.square[name]
        slope = gradient.view(weight.shape) + (_by_row(decay, weight) * matrix(weight)).view(weight.shape)
        mean.lerp_(slope, 1 - BETA1)
        square.mul_(BETA2).addcmul_(slope, slope, value=1 - BETA2)
        unbias1, unbias2 = 1 - BETA1**self.step, (1 - BETA2**self.step) ** 0.5
        weight.addcdiv_(mean, square.sqrt() / unbias2 + EPSILON, value=-rate / unbias1)
        self.last[name].fill_(self.step)

    def update_touched(self, name: str, gradient: Tensor, rows: Tensor, rate: float, decay: Decay) -> None:
        """The same on some rows, whose gradient is given; they catch up on the steps since they were last touched."""
        weights, means, squares = (matrix(part[name].detach()) for part in (self.parameters, self.mean, self.square))
        weight, mean, square = weights[rows], means[rows], squares[rows]
        idle = (self.step - self.last[name][rows])[:, None]  # (n_rows, 1) 1 where the row was touched a step ago
        unbias1, unbias2 = 1 - BETA1**self.step, (1 - BETA2**self.step) ** 0.5
        ratio = BETA1 / BETA2**0.5  # by which the size of a step fades while there is no gradient
        drift = ratio * (1 - ratio ** (idle - 1)) / (1 - ratio)
        weight -= rate / unbias1 * drift * mean / (square.sqrt() / unbias2 + EPSILON)
        slope = gradient + _by_row(decay, weights)[rows] * idle * weight
        mean = BETA1**idle * mean + (1 - BETA1) * slope
        square = BETA2**idle * square + (1 - BETA2) * slope.square()
        weight -= rate / unbias1 * mean / (square.sqrt() / unbias2 + EPSILON)
        weights[rows], means[rows], squares[rows] = weight, mean, square
        self.last[name][rows] = self.step

    def row_tasks(self, name: str, gradient: RowGradient, rate: float, decay: Decay) -> list[Task]:
        """Either of the two, compiled, as tasks for a pool."""
        weight = matrix(self.parameters[name]).detach().numpy()
        moments = (matrix(self.mean[name]).numpy(), matrix(self.square[name]).numpy(), self.last[name].numpy())
        parts = (*vars(gradient.sparse).values(), gradient.left, gradient.dense)
        n_rows = len(gradient.sparse.rows)
        per_task = max(1, _NUMBERS_PER_TASK // weight.shape[1])
        decays = np.ascontiguousarray(np.broadcast_to(np.asarray(decay, dtype=np.float64), (len(weight),)))

        def task(low: int) -> Task:
            high = min(low + per_task, n_rows)
            return lambda worker: adam_rows(
                weight, moments, parts, low, high, self.step, rate, decays, BETA1, BETA2, EPSILON
            )

        return [task(low) for low in range(0, n_rows, per_task)]


def _by_row(decay: Decay, weight: Tensor) -> Tensor:
    """Of every row: (n_rows, 1)."""
    rows = np.broadcast_to(np.asarray(decay, dtype=np.float32), (len(matrix(weight)),)).copy()
    return torch.from_numpy(rows).to(weight.device)[:, None]


def matrix(value: Tensor) -> Tensor:
    """A weight by rows; a bias as rows of one number, a single number as one row."""
    return value.view(len(value) if value.dim() else 1, -1)
