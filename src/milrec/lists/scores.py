"""Model + adopted items → top items, without those that the user already has.

Blocks of users go through a pool of threads: latents, scores that a product proposes, masks, top items; never users ×
items at once. Which items are listed is decided by products of one fixed order (see `decisions`), so a list does not
depend on who else is scored with it. Latents do not either: encoders read blocks of one shape, filled up with empty
rows, new users are folded in each on their own, and activations run over whole vectors of a CPU (a block has a
multiple of 64 numbers), never over a remainder that is computed in another way.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from milrec.data.interactions import Interactions
from milrec.data.splits import Audience
from milrec.errors import SettingsError
from milrec.kernels.ranking import add_bias, hide
from milrec.kernels.threads import Task, available, one_torch_thread, thread_pool, zeros
from milrec.lists.decisions import Decoder, Proposed, Ranked, Scores, Ties, top_items
from milrec.lists.fold_in import FoldIn
from milrec.models.contract import ROWS, Encode, LatentModel, Model
from milrec.models.inputs import Users
from milrec.probability.calibration import Calibration, Chances
from milrec.training.settings import FitSettings

_USERS_AT_ONCE = 2048  # after so many, lists are handed on
_LARGEST_BLOCK = 256  # users in a product: more do not make it faster
_SCORES = 8 << 20  # in the memory of a thread
_LARGEST_DIAL = 1e30  # beyond it logits no longer matter, and single precision overflows

Look = Callable[[slice, Scores], None]


class Order(Protocol):
    """Another order than that of the logits."""

    def best_items(self, scorer: Scorer, users: Users, proposed: Proposed, n: int) -> Ranked:
        """The n best items of each user; what must not be listed is proposed with -inf."""


@dataclass(frozen=True)
class Lists:
    """The lists of some users of an audience."""

    users: slice
    items: Ranked  # (n_users, n)


class Scorer:
    """Scores items with a fitted model, for users it knows and for new ones."""

    def __init__(
        self, model: Model, settings: FitSettings, train: Interactions, calibration: Calibration | None = None
    ) -> None:
        self.model = model.eval()
        self.chances = None if calibration is None else Chances.of(calibration, settings, train.n_items)
        self._threads = settings.threads
        self._fold_in = FoldIn.of(model, settings, train) if model.folds_in else None
        self._latent_model = model.latent_form
        self._decoder = None if self._latent_model is None else Decoder.of(self._latent_model)
        self.ties = Ties.by_popularity(train.popularity()) if model.needs_adopted else None

    @property
    def threads(self) -> int:
        return self._threads or available()

    @property
    def encode_new(self) -> Encode | None:
        """How new users get their latents, where the model cannot encode them itself."""
        return None if self._fold_in is None else self._fold_in.latents

    @property
    def largest_block(self) -> int:
        """How many users are scored together: a larger product is faster, but its scores must stay in the cache."""
        if self._decoder is None:
            return ROWS
        return min(max(_SCORES // max(self.model.n_items, 1) // ROWS, 1) * ROWS, _LARGEST_BLOCK)

    def block_size(self, n_users: int) -> int:
        """The same, but so that there is something for every thread."""
        return min(self.largest_block, max(-(-n_users // self.threads), ROWS))

    def propose(self, users: Users, memory: Tensor) -> Proposed:
        """Scores of a block of users, in the first rows of `memory`."""
        rows = memory[: users.n_users]
        if self._latent_model is None or self._decoder is None:
            self.model.write_logits(users, rows)
            return self._marked(Proposed(rows.numpy()))
        latents = self._latents(self._latent_model, users).cpu().numpy()
        return self._marked(self._decoder.propose(latents, rows.numpy()))

    def propose_steadily(self, users: Users, memory: Tensor, size: int = ROWS) -> Proposed:
        """The same with logits that can be looked at: no bit of them depends on who else is scored.

        The product always has `size` rows; those beyond the users are empty.
        """
        if self._latent_model is None or self._decoder is None:
            return self.propose(users, memory)
        own = self._latents(self._latent_model, users)
        latents = zeros(size, self._latent_model.width).to(own.device)
        latents[: users.n_users] = own
        logits = memory[:size] if len(memory) >= size else zeros(size, self.model.n_items)
        self._latent_model.write_decoded(latents, logits)
        return self._marked(self._decoder.proposed(own.cpu().numpy(), logits.numpy()[: users.n_users]))

    def best(self, proposed: Proposed, n: int, shift: npt.NDArray[np.float32] | None = None) -> tuple[Ranked, Scores]:
        """The n best items of each user, and their scores; `shift` is what was added to the proposed ones."""
        n = min(n, self.model.n_items)
        if self._decoder is None:
            items, scores = top_items(proposed.logits, n)
        else:
            items, scores = self._decoder.decide(proposed, n, shift)
        if self.ties is not None and proposed.silent is not None and proposed.silent.any():
            own = proposed.silent
            items[own], scores[own] = top_items(proposed.logits[own], n, self.ties)
        return items, scores

    def best_items(self, proposed: Proposed, n: int, shift: npt.NDArray[np.float32] | None = None) -> Ranked:
        """The same without scores, which is faster for long lists."""
        if self._decoder is None or self.ties is not None:
            return self.best(proposed, n, shift)[0]
        return self._decoder.decide_order(proposed, min(n, self.model.n_items), shift)

    def tie_places(self, items: Ranked, proposed: Proposed) -> Ranked:
        """What decides between items with equal scores, which are (n_users, n): the lowest number comes first."""
        if self.ties is None or proposed.silent is None:
            return items
        return np.where(proposed.silent[:, None], self.ties.places[items], items)

    def _marked(self, proposed: Proposed) -> Proposed:
        """The same, with a mark for users whose logits are all 0."""
        if self.ties is None:
            return proposed
        rows = proposed.logits if proposed.latents is None else proposed.latents
        silent: npt.NDArray[np.bool_] = np.logical_not(rows.any(axis=1))
        return replace(proposed, silent=silent)

    def _latents(self, model: LatentModel, users: Users) -> Tensor:
        """(n_users, width)"""
        parts = [users.part(start, start + ROWS) for start in range(0, users.n_users, ROWS)]
        if self._fold_in is None or users.numbers is not None:
            latents = [model.latents(part)[: part.n_users] for part in parts]
        else:
            latents = [self._fold_in.latents(part) for part in parts]
        return latents[0] if len(latents) == 1 else torch.cat(latents)


def lists_for(
    scorer: Scorer,
    audience: Audience,
    n: int,
    look: Look | None = None,
    shift: npt.NDArray[np.float32] | None = None,
    order: Order | None = None,
) -> Iterator[Lists]:
    """The n best items of each user of an audience, a few thousand users at a time.

    `look` is shown the logits of each block of users, before anything is left out; it is called by several threads.
    `shift`, one number per item, is then added to the logits (see `dial_shift`); an `order` replaces theirs.
    """
    n, propose = min(n, scorer.model.n_items), scorer.propose
    if look is not None:
        propose = partial(scorer.propose_steadily, size=scorer.largest_block)
    for first in range(0, audience.n_users, _USERS_AT_ONCE):
        several = slice(first, min(first + _USERS_AT_ONCE, audience.n_users))
        lists = Lists(several, np.empty((several.stop - first, n), dtype=np.int64))

        def score(block: slice, memory: Tensor, lists: Lists = lists) -> None:
            users = Users.of(audience, block)
            proposed = propose(users, memory)
            if look is not None:
                look(block, proposed.logits)
            if shift is not None:
                add_bias(proposed.logits, shift)
            leave_out(proposed.logits, audience, block)
            part = slice(block.start - lists.users.start, block.stop - lists.users.start)
            if order is None:
                lists.items[part] = scorer.best_items(proposed, n, shift)
            else:
                lists.items[part] = order.best_items(scorer, users, proposed, n)

        size = scorer.block_size(several.stop - first) if look is None else scorer.largest_block
        score_blocks(scorer, several, size, score)
        yield lists


def score_blocks(scorer: Scorer, users: slice, size: int, score: Callable[[slice, Tensor], None]) -> None:
    """Call `score` with each block of users and memory for their scores; several threads do it, if there are several.

    Torch uses one thread meanwhile, and is free again afterwards: the caller may use it between two rounds.
    """
    blocks = [slice(start, min(start + size, users.stop)) for start in range(users.start, users.stop, size)]
    rows = max((block.stop - block.start for block in blocks), default=0)
    memory = [_scores(rows, scorer.model.n_items) for _ in range(min(scorer.threads, len(blocks)))]

    def task(block: slice) -> Task:
        return lambda worker: score(block, memory[worker])

    if len(blocks) == 1:
        with one_torch_thread():
            score(blocks[0], memory[0])
        return
    with thread_pool(scorer.threads) as pool:
        pool.run([task(block) for block in blocks])


def _scores(n_users: int, n_items: int) -> Tensor:
    """Memory that is written before it is read."""
    return torch.empty(n_users, n_items) if n_users < ROWS else zeros(n_users, n_items)


def logits_of(scorer: Scorer, users: Users, memory: Tensor | None = None) -> Scores:
    """The logits of at most `ROWS` users: (n_users, n_items)."""
    own = zeros(ROWS, scorer.model.n_items) if memory is None else memory
    return scorer.propose_steadily(users, own, ROWS).logits


def first_logits(scorer: Scorer, audience: Audience) -> Scores:
    """The logits of the first few users of an audience, to see how large they are."""
    return logits_of(scorer, Users.of(audience, slice(0, min(ROWS, audience.n_users))))


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


def warn_of_the_old_dial(dial: float | None) -> None:
    """For somebody who calls a method that calls this."""
    if dial:
        warnings.warn(
            "dial is deprecated: its scale differs from model to model; use long_share; milrec 0.4.0 removes it",
            DeprecationWarning,
            stacklevel=3,
        )
