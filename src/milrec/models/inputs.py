"""What a model reads about users: what they adopted and rejected, and who they are, as a few sparse rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from milrec.data.splits import Audience
from milrec.kernels.sparse import Rows

Numbers = npt.NDArray[np.int64]

_WEIGHTS: dict[str, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    "binary": np.ones_like,
    "counts": np.copy,
    "log": np.log1p,
}


@dataclass(frozen=True)
class Users:
    """Some users, taken from an audience or from the training part."""

    adopted: Rows
    rejected: Rows
    numbers: Numbers | None  # their rows in the training part; None for users the model has not met

    @classmethod
    def of(cls, audience: Audience, block: slice) -> Users:
        rows = np.arange(block.start, block.stop)
        numbers = None if audience.rows is None else audience.rows[block]
        return cls(Rows.of(audience.adopted, rows), Rows.of(audience.rejected, rows), numbers)

    @property
    def n_users(self) -> int:
        return self.adopted.n_rows

    def part(self, start: int, stop: int) -> Users:
        """Users start … stop-1, or as many of them as there are."""
        numbers = None if self.numbers is None else self.numbers[start:stop]
        if start == 0 and stop >= self.n_users:
            return self
        stop = min(stop, self.n_users)
        return Users(self.adopted.cut(start, stop), self.rejected.cut(start, stop), numbers)

    def without_each(self, most: int) -> Iterator[Users]:
        """One user as a new one, then the same user without each adopted item; at most this many at a time."""
        n = len(self.adopted.items)
        for start in range(-1, n, most):  # -1: nothing is left out
            kept = [np.arange(n) != left_out for left_out in range(start, min(start + most, n))]
            items = [self.adopted.items[own] for own in kept]
            adopted = Rows.stacked(items, [self.adopted.values[own] for own in kept])
            yield Users(adopted, Rows.stacked([self.rejected.items] * len(kept)), None)


@dataclass(frozen=True)
class Reader:
    """Which inputs an encoder reads: a column for each adopted item, for each rejected one, and for each user, in this
    order; a model has some of them.
    """

    n_items: int = 0  # 0: it does not read what users adopted
    n_users: int = 0  # 0: it does not know users
    weights: str = "binary"
    unit_length: bool = True  # whether every row of items is divided by its length
    corruption: float = 0.0  # probability that a fit hides an item
    scale: npt.NDArray[np.float64] | None = None  # (n_items,) what the weight of an item is multiplied by; None: 1
    rejected: bool = False  # whether it reads what users rejected, too

    @property
    def n_columns(self) -> int:
        return self.first_user + self.n_users

    @property
    def first_user(self) -> int:
        return self.n_items * (2 if self.rejected else 1)

    def inputs(self, users: Users) -> Rows:
        """What the encoder sees when lists are made."""
        return self._with_users(self._items(users), users)

    def corrupted_inputs(self, users: Users, random: np.random.Generator) -> Rows:
        """The same in a step of a fit: each item is hidden with a probability, the user's own column never."""
        return self._with_users(corrupted(self._items(users), self.corruption, random), users)

    def _items(self, users: Users) -> Rows:
        if not self.n_items:
            return Rows.none(users.n_users)
        if self.unit_length:
            adopted = unit_rows(users.adopted, self.weights, self.scale)
            return beside(adopted, unit_rows(users.rejected, "binary"), self.n_items) if self.rejected else adopted
        values = _WEIGHTS[self.weights](users.adopted.values).astype(np.float32)
        return Rows(users.adopted.indptr, users.adopted.items, values)

    def _with_users(self, inputs: Rows, users: Users) -> Rows:
        if not self.n_users or users.numbers is None:
            return inputs
        return with_entry(inputs, self.first_user + users.numbers)


def popularity_scale(popularity: npt.NDArray[np.int64], exponent: float) -> npt.NDArray[np.float64]:
    """n_i^-α: with α above 0, what is rare says more about a user than what everybody has."""
    scale: npt.NDArray[np.float64] = np.maximum(popularity, 1).astype(np.float64) ** -exponent
    return scale


def unit_rows(adopted: Rows, weights: str, scale: npt.NDArray[np.float64] | None = None) -> Rows:
    """1, r_ui or log(1 + r_ui) for each adopted item, times its scale, every row of length 1."""
    values = _WEIGHTS[weights](adopted.values).astype(np.float64)
    if scale is not None:
        values *= scale[adopted.items]
    length = np.sqrt(np.bincount(adopted.users, weights=values**2, minlength=adopted.n_rows))
    return Rows(adopted.indptr, adopted.items, (values / length[adopted.users]).astype(np.float32))


def beside(left: Rows, right: Rows, offset: int) -> Rows:
    """Rows next to each other: the columns of the right ones are moved on, past those of the left."""
    ends = np.repeat(left.indptr[1:], right.counts)
    items = np.insert(left.items, ends, right.items + np.int32(offset))
    return Rows(left.indptr + right.indptr, items, np.insert(left.values, ends, right.values))


def with_entry(inputs: Rows, columns: Numbers) -> Rows:
    """The same with one more entry at the end of each row: 1 in the given column."""
    ends = inputs.indptr[1:]
    indptr = inputs.indptr + np.arange(inputs.n_rows + 1)
    return Rows(indptr, np.insert(inputs.items, ends, columns), np.insert(inputs.values, ends, 1))


def corrupted(inputs: Rows, corruption: float, random: np.random.Generator) -> Rows:
    """Inputs with each entry hidden with the given probability, the others scaled up to keep the mean."""
    if corruption == 0:
        return inputs
    seen = random.random(len(inputs.items), dtype=np.float32) >= corruption
    indptr = np.concatenate([[0], np.cumsum(seen)])[inputs.indptr]
    return Rows(indptr, inputs.items[seen], inputs.values[seen] / np.float32(1 - corruption))
