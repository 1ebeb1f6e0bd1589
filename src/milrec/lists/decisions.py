"""Which items are the best of a user, decided by dot products of one fixed order.

Any product may propose scores, as long as it is known how far they can be from the deciding ones: items closer to the
n-th best than twice that margin are scored again. Many users get a matrix product. Its sums of k products in single
precision are within γ·‖h‖·‖w‖, γ = k·u/(1 - k·u), of the true ones in whatever order it adds (Higham, Accuracy and
Stability of Numerical Algorithms, 3.1); in the deciding ones, sums of halves, log₂ k takes the place of k. A few users
get a product of whole numbers, which reads a quarter of the bytes: with weights ŵ and a latent ĥ rounded to them it is
within ‖h‖·‖w-ŵ‖ + ‖h-ĥ‖·‖ŵ‖.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from milrec.kernels.candidates import (
    decide,
    decide_order,
    largest_square,
    propose,
    quantize,
    top_lists,
    top_lists_by_place,
)
from milrec.kernels.ranking import add_bias
from milrec.metrics.tail import popularity_order
from milrec.models.contract import LatentModel

_ROUNDING = 2.0**-24  # u: half the distance from 1 to the next number of single precision
_HALVINGS = 16  # at most, in the deciding sum, which is off by one rounding for each
_SMALLEST = 2.0**-149  # what a product may lose when it gets too small
_LARGEST = 1e37  # logits that could be larger may overflow on the way
_LARGEST_INPUT = 32767  # of the whole numbers that stand for a latent
_TINY = np.finfo(np.float32).tiny
_COLUMNS = 1024  # items per matrix product: their weights stay in the cache
_FEW = 24  # users: for more, one matrix product is faster than a pass over the weights for each

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Scores = npt.NDArray[np.float32]  # (n_users, n_items), or of one user
Ranked = npt.NDArray[np.int64]  # (n_users, n) items by number, best first, -1 where no item is left to list


@dataclass(frozen=True, eq=False)
class Proposed:
    """Scores of some users, which may be shifted, or set to -inf for what is not to be listed."""

    logits: Scores  # (n_users, n_items)
    latents: Floats | None = None  # (n_users, width); None if the scores decide by themselves
    margins: Doubles | None = None  # (n_users,) how far they may be from the deciding ones; inf if these may overflow
    silent: npt.NDArray[np.bool_] | None = None  # (n_users,) those whose logits are all 0

    def one(self, user: int) -> Proposed:
        """The same of a single user."""
        return self.some(slice(user, user + 1))

    def some(self, users: slice | npt.NDArray[np.integer[Any]]) -> Proposed:
        """The same of some users."""
        silent = None if self.silent is None else self.silent[users]
        if self.latents is None or self.margins is None:
            return Proposed(self.logits[users], silent=silent)
        return Proposed(self.logits[users], self.latents[users], self.margins[users], silent)

    def with_logits(self, logits: Scores) -> Proposed:
        return replace(self, logits=logits)


@dataclass(frozen=True, eq=False)
class Decoder:
    """The weights that logits are made of, in plain arrays."""

    weight: Floats  # (n_items, width)
    bias: Floats  # (n_items,)

    @classmethod
    def of(cls, model: LatentModel) -> Self:
        weight = model.decoder_weight.detach().cpu().numpy()
        if model.decoder_bias is None:
            return cls(weight, np.zeros(len(weight), dtype=np.float32))
        return cls(weight, model.decoder_bias.detach().cpu().numpy())

    def propose(self, latents: Floats, out: Scores) -> Proposed:
        """The logits of some users, by the product that is fastest for so many."""
        if len(latents) <= _FEW:
            return self._proposed_roughly(latents, out)
        left, weight, logits = torch.from_numpy(latents), torch.from_numpy(self.weight), torch.from_numpy(out)
        for start in range(0, len(weight), _COLUMNS):
            columns = slice(start, min(start + _COLUMNS, len(weight)))
            torch.mm(left, weight[columns].T, out=logits[:, columns])
        add_bias(out, self.bias)
        return self.proposed(latents, out)

    def proposed(self, latents: Floats, logits: Scores) -> Proposed:
        """Logits that come from any product of these latents and the weights in single precision."""
        return self._within(_lengths(latents), 0.0, latents, logits)

    def _proposed_roughly(self, latents: Floats, out: Scores) -> Proposed:
        rounded = self._rounded
        largest = min(_LARGEST_INPUT, (1 << 30) // (127 * self.weight.shape[1]))  # sums stay below 2³¹
        finite = np.where(np.isfinite(latents), latents, np.float32(0.0))  # others are scored again in any case
        scales = np.maximum(np.abs(finite).max(axis=1, initial=0.0), _TINY) / np.float32(largest)
        numbers = np.rint(finite / scales[:, None]).astype(np.int16)
        propose(numbers, scales, rounded.numbers, rounded.scales, self.bias, out)
        lengths, lost = _lengths(latents), _lengths(finite - scales[:, None].astype(np.float64) * numbers)
        off = lengths * rounded.distance + lost * (self._largest_norm + rounded.distance)
        return self._within(lengths, off, latents, out)

    def _within(self, lengths: Doubles, off: Doubles | float, latents: Floats, logits: Scores) -> Proposed:
        """Logits that are at most `off` from the true ones, apart from the rounding of sums."""
        reach = lengths * self._largest_norm + self._largest_bias  # no logit is larger
        width = (
            self.weight.shape[1] + 8 + _HALVINGS
        )  # of the proposed sum in any order, and of the deciding one by halves
        margins = 1.01 * (off + width * (_ROUNDING * reach + 2 * _SMALLEST))
        for user in np.flatnonzero(~(reach < _LARGEST)):
            margins[user] = np.inf
            np.nan_to_num(logits[user], copy=False, nan=0.0, posinf=1e38, neginf=-1e38)
        return Proposed(logits, latents, margins)

    def decide(self, proposed: Proposed, n: int, shift: Floats | None) -> tuple[Ranked, Scores]:
        """The n best items of each user, and their scores; `shift` is what was added to the proposed ones."""
        assert proposed.latents is not None
        shape = (len(proposed.logits), n)
        items, scores = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32)
        if n:
            decide(proposed.logits, _slacks(proposed, shift), proposed.latents, self._parts(shift), items, scores)
        return items, scores

    def decide_order(self, proposed: Proposed, n: int, shift: Floats | None) -> Ranked:
        """The same items, without scores."""
        assert proposed.latents is not None
        items = np.empty((len(proposed.logits), n), dtype=np.int64)
        if n:
            decide_order(proposed.logits, _slacks(proposed, shift), proposed.latents, self._parts(shift), items)
        return items

    def _parts(self, shift: Floats | None) -> tuple[Floats, Floats, Floats]:
        return self.weight, self.bias, self._no_shift if shift is None else shift

    @cached_property
    def _rounded(self) -> _Rounded:
        numbers, scales = np.empty(self.weight.shape, dtype=np.int8), np.empty(len(self.weight), dtype=np.float32)
        return _Rounded(numbers, scales, 1.001 * quantize(self.weight, numbers, scales))

    @cached_property
    def _largest_norm(self) -> float:
        return 1.001 * float(np.sqrt(largest_square(self.weight)))

    @cached_property
    def _largest_bias(self) -> float:
        return float(np.abs(self.bias).max(initial=0.0))

    @cached_property
    def _no_shift(self) -> Floats:
        return np.zeros(len(self.weight), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class _Rounded:
    """Weights in whole numbers, each row with a scale, and how far any row is from what it stands for."""

    numbers: npt.NDArray[np.int8]  # (n_items, width)
    scales: Floats  # (n_items,)
    distance: float


def _slacks(proposed: Proposed, shift: Floats | None) -> Doubles:
    """How much better than another one an item must be proposed to be better for sure."""
    assert proposed.margins is not None
    moved = 0.0 if shift is None else float(np.abs(shift).max(initial=0.0))
    slacks: Doubles = 2 * (proposed.margins + 4 * _ROUNDING * moved)
    return slacks


def _lengths(rows: npt.NDArray[Any]) -> Doubles:
    lengths: Doubles = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1))
    return lengths


@dataclass(frozen=True, eq=False)
class Ties:
    """The order of items whose scores are equal, where it is not that of their numbers: the most popular first."""

    order: npt.NDArray[np.int64]  # (n_items,) items by place
    places: npt.NDArray[np.int64]  # (n_items,) the place of each item

    @classmethod
    def by_popularity(cls, popularity: npt.NDArray[Any]) -> Self:
        order = popularity_order(popularity)
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return cls(order, places)


def top_items(scores: Scores, n: int, ties: Ties | None = None) -> tuple[Ranked, Scores]:
    """The n best items of each user by scores that decide, best first, equal scores in item order or that of `ties`."""
    shape = (len(scores), min(n, scores.shape[1]))
    items, values = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32)
    if shape[1]:
        plain = np.ascontiguousarray(scores, dtype=np.float32)
        if ties is None:
            top_lists(plain, items, values)
        else:
            top_lists_by_place(plain, ties.order, ties.places, items, values)
    return items, values
