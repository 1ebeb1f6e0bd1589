"""Batches of users, prepared ahead of the step that takes them (the paper feeds them by queues).

The order of epoch e and the draws of step t come from generators seeded with (seed, e) and (seed, t), or (seed, t, s)
for slice s of a step that is cut into slices: a fit that is resumed from a checkpoint, and one that is shared among
processes, gets exactly the same batches as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from milrec.data.interactions import Interactions
from milrec.errors import FitError
from milrec.kernels.sparse import Rows, Transposed
from milrec.kernels.threads import ahead
from milrec.models.contract import GradientModel
from milrec.models.inputs import Users
from milrec.training.settings import GradientFit
from milrec.training.targets import Draws, TargetSet, draw_targets, user_importance

_BATCHES_AHEAD = 3


@dataclass(frozen=True)
class Batch:
    """A batch of users, ready for a step: all of them, or a slice."""

    iteration: int
    inputs: Rows  # what the encoder reads: adopted items, the user's own number, or both
    transposed: Transposed  # the same by column
    targets: TargetSet
    noise: npt.NDArray[np.float32] | None = None  # what else a model draws: ε (n_batch, n_factors) of a variational one
    place: int = 0  # of a slice within its step
    share: float = 1.0  # of the step's users


Owned = Callable[[int], range]  # how many slices a step has → which of them are wanted


@dataclass(frozen=True)
class Sliced:
    """A step: the slices that are computed here, and how many there are in all."""

    iteration: int
    slices: list[Batch]
    n_slices: int


def batches(
    train: Interactions, model: GradientModel, settings: GradientFit, seed: int, steps: range, own: Owned = range
) -> Iterator[Sliced]:
    """The given steps, prepared by a second thread."""
    return ahead(_made(train, model, settings, seed, steps, own), _BATCHES_AHEAD)


def _made(
    train: Interactions, model: GradientModel, settings: GradientFit, seed: int, steps: range, own: Owned
) -> Iterator[Sliced]:
    maker = _BatchMaker(train, model, settings)
    for iteration in steps:
        epoch, place = divmod(iteration, maker.per_epoch)
        if iteration == steps.start or place == 0:
            order = np.random.default_rng([seed, 3, epoch]).permutation(train.n_users)
        last = place == maker.per_epoch - 1
        users = order[place * maker.batch_size : None if last else (place + 1) * maker.batch_size]
        n_slices = min(settings.training.slices, max(1, len(users) // model.smallest_batch))
        slices = [maker.slice(users, iteration, seed, one, n_slices) for one in own(n_slices)]
        yield Sliced(iteration, slices, n_slices)


def without_singles(train: Interactions, smallest_batch: int) -> Interactions:
    """The users with at least two items, who have to be enough for a step."""
    several = train.items_per_user() > 1
    kept = train if several.all() else train.subset(several, np.ones(train.n_items, dtype=np.bool_))
    if kept.n_users < smallest_batch or not kept.adopted.nnz:
        raise FitError("too few users have more than one item; set skip_singles=false")
    return kept


def steps_per_epoch(n_users: int, batch_size: int, smallest: int) -> int:
    """Steps in which every user is seen once; a rest that is too small for a step joins the one before it."""
    whole, rest = divmod(n_users, batch_size)
    return max(1, whole + (rest >= smallest))


class _BatchMaker:
    """Takes users from the training part and draws what is random about a batch."""

    def __init__(self, train: Interactions, model: GradientModel, settings: GradientFit) -> None:
        self.train, self.model, self.target_set = train, model, settings.target_set
        self.batch_size = settings.batch_size
        self.per_epoch = steps_per_epoch(train.n_users, self.batch_size, model.smallest_batch)
        n_columns = model.reader.n_columns
        self.counts = np.zeros(n_columns, dtype=np.int64)
        self.first_rows = np.arange(0 if settings.touches_few_rows else n_columns, dtype=np.int32)
        self.draws = Draws.of(train, settings.target_factor)
        self.importance = user_importance(train.adopted, settings.training.user_exponent).astype(np.float32)

    def slice(self, users: npt.NDArray[np.int64], iteration: int, seed: int, place: int, n_slices: int) -> Batch:
        """One of the slices of a step's users, with draws of its own; all of them, if there is only one."""
        if n_slices == 1:
            return self.batch(users, iteration, np.random.default_rng([seed, 4, iteration]))
        numbers = np.array_split(users, n_slices)[place]
        batch = self.batch(numbers, iteration, np.random.default_rng([seed, 4, iteration, place]))
        return replace(batch, place=place, share=len(numbers) / len(users))

    def batch(self, numbers: npt.NDArray[np.int64], iteration: int, random: np.random.Generator) -> Batch:
        users = Users(Rows.of(self.train.adopted, numbers), Rows.of(self.train.rejected, numbers), numbers)
        targets = draw_targets(users.adopted, users.rejected, self.target_set, self.draws, random)
        inputs = self.model.reader.corrupted_inputs(users, random)
        targets = replace(targets, importance=self.importance[numbers])
        transposed = inputs.transposed(self.first_rows, self.counts)
        return Batch(iteration, inputs, transposed, targets, self.model.noise(users.n_users, random))
