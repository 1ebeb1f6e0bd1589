"""A weight from each item to others: EASE and SLIM to all of them, sparse EASE to a few."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from milrec.kernels.rows import added_sparse_rows, cells_of_rows, weighted_rows
from milrec.kernels.threads import zeros
from milrec.models.contract import Encode, Likeness, Model, Parts
from milrec.models.formula import Formula
from milrec.models.inputs import Users
from milrec.models.settings import EaseSettings, SlimSettings, SparseEaseSettings

SparseRows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]  # (indptr, items, values)
_BETWEEN = 100  # items by way of which two others may be alike
_BY_WAY = 4.0  # what such a way counts, chosen on validation (docs/log.md)


class _Weights(Model):
    """What dense and sparse weights share: which items are alike."""

    needs_adopted: ClassVar[bool] = True

    @abstractmethod
    def weights(self, item: int) -> npt.NDArray[np.float32]:
        """What an item gives to each of all items, (n_items,)."""

    def likeness(self) -> Likeness:
        """An item's weights a = B_i, then twice a + 4·Σ a_k·B_k over the 100 items k with the largest a.

        A weight is what an item adds to all others of a user, so some items that go together have none: they are alike
        by way of others.
        """

        def alike(item: int) -> npt.NDArray[np.float32]:
            return self._passed_on(self._passed_on(self.weights(item)))

        return alike

    def _passed_on(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The same, and what the items with the largest values give to others in turn."""
        found = values.copy()
        for between in np.argsort(-values, kind="stable")[:_BETWEEN]:
            if values[between] > 0:
                found += np.float32(_BY_WAY) * values[between] * self.weights(between)
        return found


class ItemToItem(_Weights):
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

    def formula(self) -> Formula:
        return Formula((), item_weight=self.item_weight.detach())

    def weights(self, item: int) -> npt.NDArray[np.float32]:
        row: npt.NDArray[np.float32] = self.item_weight.detach()[item].numpy()
        return row


class SparseItemToItem(_Weights):
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

    def weights(self, item: int) -> npt.NDArray[np.float32]:
        indptr, items, values = self.rows
        own = slice(indptr[item], indptr[item + 1])
        weights = np.zeros(self.n_items, dtype=np.float32)
        weights[items[own]] = values[own]
        return weights


_BY_WEIGHT = ("weight_items", "item_weight")
