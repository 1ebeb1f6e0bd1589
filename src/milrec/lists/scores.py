"""Model + adopted items → top items, without those that the user already has.

Blocks of users go through a pool of threads: latents, logits in matrix products of one fixed shape (the last block is
filled up with empty rows), masks, top items; never users × items at once. A product of another shape may round
differently, and then a list would depend on how many users were scored with it. Within that shape no row depends on its
place: products are `steady_product`s, new users are folded in each on their own, and activations run over whole vectors
of a CPU (a block has a multiple of 64 numbers), never over a remainder that is computed in another way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from milrec.data.interactions import Interactions
from milrec.data.splits import Audience
from milrec.errors import SettingsError
from milrec.kernels.ranking import add_bias, hide, top_lists
from milrec.kernels.threads import Task, available, thread_pool, zeros
from milrec.lists.fold_in import FoldIn
from milrec.models.contract import ROWS, Encode, Model
from milrec.models.inputs import Users
from milrec.training.settings import FitSettings

_BLOCKS_AT_ONCE = 32  # lists are handed on every 2048 users
_LARGEST_DIAL = 1e30  # beyond it logits no longer matter, and single precision overflows

Scores = npt.NDArray[np.float32]
Look = Callable[[slice, Scores], None]


@dataclass(frozen=True)
class Lists:
    """The lists of some users of an audience."""

    users: slice
    items: npt.NDArray[np.int64]  # (n_users, n) best first, -1 where no item is left to list
    scores: Scores  # (n_users, n)


class Scorer:
    """Makes the logits of a fitted model, for users it knows and for new ones."""

    def __init__(self, model: Model, settings: FitSettings, train: Interactions) -> None:
        self.model = model.eval()
        self._threads = settings.threads
        self._fold_in = FoldIn.of(model, settings, train) if model.folds_in else None

    @property
    def threads(self) -> int:
        return self._threads or available()

    @property
    def encode_new(self) -> Encode | None:
        """How new users get their latents, where the model cannot encode them itself."""
        return None if self._fold_in is None else self._fold_in.latents

    def write_logits(self, users: Users, out: Tensor) -> None:
        """The logits of at most `ROWS` users into the first rows of `out`."""
        if self._fold_in is not None and users.numbers is None:
            self._fold_in.write_logits(users, out)
        else:
            self.model.write_logits(users, out)


def lists_for(
    scorer: Scorer,
    audience: Audience,
    n: int,
    look: Look | None = None,
    shift: npt.NDArray[np.float32] | None = None,
) -> Iterator[Lists]:
    """The n best items of each user of an audience, a few thousand users at a time.

    `look` is shown the logits of each block of users, before anything is left out; it is called by several threads.
    `shift`, one number per item, is then added to the logits (see `dial_shift`).
    """
    n = min(n, scorer.model.n_items)
    per_round = ROWS * _BLOCKS_AT_ONCE
    for first in range(0, audience.n_users, per_round):
        users = slice(first, min(first + per_round, audience.n_users))
        shape = (users.stop - first, n)
        lists = Lists(users, np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32))

        def use(block: slice, scores: Scores, lists: Lists = lists) -> None:
            if look is not None:
                look(block, scores)
            if shift is not None:
                add_bias(scores, shift)
            leave_out(scores, audience, block)
            part = slice(block.start - lists.users.start, block.stop - lists.users.start)
            _fill(scores, lists.items[part], lists.scores[part])

        score_blocks(scorer, users, partial(Users.of, audience), use)
        yield lists


def score_blocks(scorer: Scorer, users: slice, cut: Callable[[slice], Users], use: Look) -> None:
    """Hand the logits of each block of users to `use`, which may change them; several threads call both functions."""
    starts = range(users.start, users.stop, ROWS)
    memory = [zeros(ROWS, scorer.model.n_items) for _ in range(min(scorer.threads, len(starts)))]

    def task(block: slice) -> Task:
        return lambda worker: use(block, logits_of(scorer, cut(block), memory[worker]))

    with thread_pool(scorer.threads) as pool:  # for this round alone: the caller may use torch between two of them
        pool.run([task(slice(start, min(start + ROWS, users.stop))) for start in starts])


def logits_of(scorer: Scorer, users: Users, memory: Tensor | None = None) -> Scores:
    """The logits of at most `ROWS` users: (n_users, n_items)."""
    out = torch.empty(ROWS, scorer.model.n_items) if memory is None else memory
    scorer.write_logits(users, out)
    return out.numpy()[: users.n_users]


def checked_dial(dial: float) -> float:
    if not isinstance(dial, int | float | np.number) or not math.isfinite(dial):
        raise SettingsError(f"the dial must be a finite number, not {dial!r}")
    return min(max(float(dial), -_LARGEST_DIAL), _LARGEST_DIAL)


def dial_shift(dial: float, logs: npt.NDArray[np.float64]) -> npt.NDArray[np.float32] | None:
    """-dial × ln(popularity) for each item, which favours rare items, or popular ones; None for a dial of 0."""
    dial = checked_dial(dial)
    return (-dial * logs).astype(np.float32) if dial else None


def leave_out(scores: Scores, audience: Audience, block: slice) -> None:
    """Set the scores of items that a user has or rejected to -inf."""
    for pairs in (audience.removed, audience.rejected):
        hide(scores, pairs.indptr[block.start : block.stop + 1], pairs.indices)


def top_items(scores: Scores, n: int) -> npt.NDArray[np.int64]:
    """The n best items of each user, best first, equal scores in item order; -1 where no item is left to list."""
    n = min(n, scores.shape[1])
    items = np.empty((len(scores), n), dtype=np.int64)
    if n:
        top_lists(np.ascontiguousarray(scores, dtype=np.float32), n, items)
    return items


def _fill(scores: Scores, items: npt.NDArray[np.int64], values: Scores) -> None:
    if items.shape[1]:
        top_lists(scores, items.shape[1], items)
        values[:] = np.take_along_axis(scores, np.maximum(items, 0), axis=1)
