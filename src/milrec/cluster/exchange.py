"""Slices of a step shared by several processes: the owner of a slice sends its slopes to all, in the order of slices.

All processes hold the same weights, get the same slopes in the same order, and so take the same step, bit for bit,
however many they are. A sum that the network forms (all-reduce) would round differently for each number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from milrec.training.batches import Batch, Sliced
from milrec.training.progress import Validate
from milrec.training.steps.adam import matrix
from milrec.training.steps.slices import Made
from milrec.training.steps.slopes import Slope, Slopes, sum_in_order

_NOTHING, _ALL = -2.0, -1.0  # of a weight's rows


class Shared:
    """The part of one process in a group of them; slices are dealt out in turn."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.shapes = {name: tuple(matrix(value.detach()).shape) for name, value in weights.items()}

    def own(self, n_slices: int) -> range:
        return range(self.rank, n_slices, self.world)

    def total(self, slices: Sliced, made: Made) -> Slopes:
        if self.world == 1:
            return sum_in_order(made(batch) for batch in slices.slices)
        return sum_in_order(self._in_turn(slices, made))

    def _in_turn(self, slices: Sliced, made: Made) -> Iterator[Slopes]:
        """The slopes of all slices; one of our own is computed while others send theirs, and no sooner."""
        waiting = iter(slices.slices)
        mine = _next(waiting, made)
        for place in range(slices.n_slices):
            if place % self.world == self.rank:
                assert mine is not None
                yield self._sent(mine, place, slices.iteration)
                mine = _next(waiting, made)
            else:
                yield self._sent(None, place, slices.iteration)

    def _sent(self, slopes: Slopes | None, place: int, iteration: int) -> Slopes:
        """The slopes of a slice: from here to all others, or from its owner to here."""
        owner = place % self.world
        head = self._head(slopes, iteration)
        dist.broadcast(head, owner)
        if head[0].item() != iteration:
            raise RuntimeError(f"a process is at step {head[0].item():.0f}, and this one is at {iteration}")
        counts = dict(zip(self.shapes, head[2:].tolist(), strict=True))
        rows, values = self._packed(slopes, counts)
        for part in (rows, values):
            if len(part):
                dist.broadcast(part, owner)
        return slopes or self._unpacked(head[1].item(), counts, rows, values)

    def _head(self, slopes: Slopes | None, iteration: int) -> Tensor:
        """The step, the loss, and how many rows of each weight there are."""
        head = torch.full((2 + len(self.shapes),), _NOTHING, dtype=torch.float64)
        if slopes is not None:
            head[0], head[1] = iteration, slopes.loss
            for place, name in enumerate(self.shapes, start=2):
                if (slope := slopes.by_weight.get(name)) is not None:
                    head[place] = _ALL if slope.rows is None else len(slope.rows)
        return head

    def _packed(self, slopes: Slopes | None, counts: dict[str, float]) -> tuple[Tensor, Tensor]:
        """All rows and all values, each in one piece; room for them where they are to come."""
        if slopes is not None:
            known = [slopes.by_weight[name] for name in self.shapes if name in slopes.by_weight]
            rows = [torch.from_numpy(slope.rows) for slope in known if slope.rows is not None]
            none, nothing = torch.zeros(0, dtype=torch.int32), torch.zeros(0)
            return torch.cat([none, *rows]), torch.cat([nothing, *(slope.values.reshape(-1) for slope in known)])
        n_rows = sum(int(count) for count in counts.values() if count >= 0)
        n_values = sum(self._n_rows(name, count) * self.shapes[name][1] for name, count in counts.items())
        return torch.empty(n_rows, dtype=torch.int32), torch.empty(n_values)

    def _n_rows(self, name: str, count: float) -> int:
        return 0 if count == _NOTHING else self.shapes[name][0] if count == _ALL else int(count)

    def _unpacked(self, loss: float, counts: dict[str, float], rows: Tensor, values: Tensor) -> Slopes:
        found, first_row, first_value = {}, 0, 0
        for name, count in counts.items():
            if count == _NOTHING:
                continue
            n_rows, n_columns = self._n_rows(name, count), self.shapes[name][1]
            own = None
            if count != _ALL:
                own = rows[first_row : first_row + n_rows].numpy().astype(np.int32, copy=False)
                first_row += n_rows
            size = n_rows * n_columns
            found[name] = Slope(own, values[first_value : first_value + size].view(n_rows, n_columns))
            first_value += size
        return Slopes(loss, found)


def _next(waiting: Iterator[Batch], made: Made) -> Slopes | None:
    batch = next(waiting, None)
    return None if batch is None else made(batch)


def measured_once(validate: Validate | None) -> Validate:
    """The measure of the first process, which it sends to all others."""

    def measured(model: object) -> float:
        found = torch.zeros(1, dtype=torch.float64)
        if dist.get_rank() == 0:
            assert validate is not None
            found[0] = validate(model)
        dist.broadcast(found, 0)
        return float(found.item())

    return measured
