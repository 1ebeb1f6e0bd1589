"""A weight from each item to others: EASE and SLIM to all of them, sparse EASE to a few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from milrec.kernels.rows import added_sparse_rows, cells_of_rows, weighted_rows
from milrec.kernels.threads import zeros
from milrec.models.contract import Encode, Likeness, Model, Parts
from milrec.models.inputs import Users
from milrec.models.settings import EaseSettings, SlimSettings, SparseEaseSettings

SparseRows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]  # (indptr, items, values)


class ItemToItem(Model):
    """The logits are the sum of the adopted items' rows."""

    settings: EaseSettings | SlimSettings

    def __init__(self, settings: EaseSettings | SlimSettings, n_items: int) -> None:
        super().__init__()
        self.settings = settings
        self.item_weight = nn.Parameter(zeros(n_items, n_items), requires_grad=False)

    @classmethod
    def build(cls, settings: EaseSettings | SlimSettings, n_users: int, n_items: int) -> Self:
        return cls(settings, n_items)

    @property
    def n_items(self) -> int:
        return len(self.item_weight)

    def write_logits(self, users: Users, out: Tensor) -> None:
        adopted, ones = users.adopted, np.ones(len(users.adopted.items), dtype=np.float32)
        own = out[: users.n_users].zero_()
        weight = self.item_weight.detach().numpy()
        weighted_rows(0, adopted.n_rows, weight, adopted.indptr, adopted.items, ones, own.numpy())

    def parts(self, user: Users, items: npt.NDArray[np.int64], encode: Encode | None = None) -> Parts:
        weights: Parts = self.item_weight.detach().numpy()[np.ix_(user.adopted.items, items)].astype(np.float64)
        return weights

    def likeness(self) -> Likeness:
        """The weights above 0 that an item gives to others."""
        return Likeness("weight", self._weights_above_0)

    def _weights_above_0(self, item: int) -> npt.NDArray[np.float32]:
        weights = self.item_weight.detach()[item].numpy().copy()  # (n_items,)
        weights[weights <= 0] = -np.inf
        return weights


class SparseItemToItem(Model):
    """The same where most weights are 0: for each item the items that it has a weight to, ascending, and these weights.

    Rows are added one by one, in the order of the user's items: a logit is the same no matter who else is scored.
    """

    settings: SparseEaseSettings
    weight_indptr: Tensor  # (n_items + 1,) int64: where the weights of an item begin
    weight_items: Tensor  # (n_weights,) int32

    def __init__(self, settings: SparseEaseSettings, n_items: int) -> None:
        super().__init__()
        self.settings = settings
        self.register_buffer("weight_indptr", torch.zeros(n_items + 1, dtype=torch.int64))
        self.register_buffer("weight_items", torch.zeros(0, dtype=torch.int32))
        self.item_weight = nn.Parameter(torch.zeros(0), requires_grad=False)  # (n_weights,)

    @classmethod
    def build(cls, settings: SparseEaseSettings, n_users: int, n_items: int) -> Self:
        return cls(settings, n_items)

    @property
    def n_items(self) -> int:
        return len(self.weight_indptr) - 1

    @property
    def rows(self) -> SparseRows:
        return self.weight_indptr.numpy(), self.weight_items.numpy(), self.item_weight.detach().numpy()

    def take(self, rows: SparseRows) -> None:
        """Have these weights from now on."""
        self.weight_indptr, self.weight_items, self.item_weight.data = (torch.from_numpy(part) for part in rows)

    def make_room(self, found: Mapping[str, Tensor]) -> None:
        sizes = [len(found[name]) if name in found and found[name].dim() else 0 for name in _BY_WEIGHT]
        self.weight_items, self.item_weight.data = torch.zeros(sizes[0], dtype=torch.int32), torch.zeros(sizes[1])

    def flaw(self) -> str | None:
        indptr, items, values = self.rows
        if len(items) != len(values):
            return f"{len(values)} weights to {len(items)} items"
        if indptr[0] != 0 or indptr[-1] != len(items) or (indptr[1:] < indptr[:-1]).any():
            return "it is not clear which item they belong to"
        if len(items) and not 0 <= int(items.min()) <= int(items.max()) < self.n_items:
            return "they lead to items that do not exist"
        sources = np.repeat(np.arange(self.n_items), np.diff(indptr))
        if (np.diff(sources * self.n_items + items) <= 0).any():
            return "those of an item are out of order"
        return "one leads from an item to itself" if (sources == items).any() else None

    def write_logits(self, users: Users, out: Tensor) -> None:
        adopted, own = users.adopted, out[: users.n_users].zero_()
        added_sparse_rows(*self.rows, adopted.indptr, adopted.items, own.numpy())

    def parts(self, user: Users, items: npt.NDArray[np.int64], encode: Encode | None = None) -> Parts:
        weights: Parts = cells_of_rows(*self.rows, user.adopted.items, items)
        return weights

    def likeness(self) -> Likeness:
        """The weights above 0 that an item gives to others."""
        return Likeness("weight", self._weights_above_0)

    def _weights_above_0(self, item: int) -> npt.NDArray[np.float32]:
        indptr, items, values = self.rows
        own = slice(indptr[item], indptr[item + 1])
        weights = np.full(self.n_items, -np.inf, dtype=np.float32)
        weights[items[own]] = np.where(values[own] > 0, values[own], -np.inf)
        return weights


_BY_WEIGHT = ("weight_items", "item_weight")
