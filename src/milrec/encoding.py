"""W·v for sparse inputs: what an encoder begins with, as a function that autograd knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from milrec.adam import RowGradient, SparsePart
from milrec.compiled_rows import transposed, weighted_rows
from milrec.rows import Rows
from milrec.workers import Workers, over_users


class SparseProduct:
    """W·v for sparse inputs, as a function that autograd knows; `gradient` then holds W's."""

    def __init__(self, weight: Tensor, crew: Workers, touched_only: bool) -> None:
        self.weight, self.crew = weight, crew
        self.gradient: RowGradient | None = None
        self._counts = np.zeros(len(weight), dtype=np.int64)
        self._first_rows = np.arange(0 if touched_only else len(weight), dtype=np.int32)

    def __call__(self, inputs: Rows) -> Tensor:
        result: Tensor = _Product.apply(self.weight, self, inputs)  # type: ignore[no-untyped-call]
        return result

    def value(self, inputs: Rows) -> Tensor:
        product = torch.zeros(inputs.n_rows, self.weight.shape[1])
        parts = (self.weight.detach().numpy(), inputs.indptr, inputs.items, inputs.values, product.numpy())
        self.crew.run(over_users(weighted_rows, len(product), *parts))
        return product

    def keep(self, inputs: Rows, slopes: Tensor) -> None:
        by_row = SparsePart(*transposed(inputs.users, inputs.items, inputs.values, self._first_rows, self._counts))
        left = slopes.detach().contiguous().numpy()
        self.gradient = RowGradient(by_row, left, left[:0])


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, product: SparseProduct, inputs: Rows) -> Tensor:
        ctx.product, ctx.inputs = product, inputs
        return product.value(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        ctx.product.keep(ctx.inputs, gradients[0])
        return None, None, None
