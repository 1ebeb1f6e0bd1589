"""W·v for sparse inputs: what an encoder begins with, as a function that autograd knows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from milrec.adam import RowGradient
from milrec.compiled_rows import weighted_rows
from milrec.rows import Rows, Turned
from milrec.workers import Workers, over_users


class SparseProduct:
    """W·v for sparse inputs, as a function that autograd knows; `gradient` then holds W's."""

    def __init__(self, weight: Tensor, crew: Workers) -> None:
        self.weight, self.crew = weight, crew
        self.gradient: RowGradient | None = None

    def __call__(self, inputs: Rows, turned: Turned) -> Tensor:
        """The product for a batch's inputs, which come by user and by row of W."""
        result: Tensor = _Product.apply(self.weight, self, inputs, turned)  # type: ignore[no-untyped-call]
        return result

    def value(self, inputs: Rows) -> Tensor:
        product = torch.zeros(inputs.n_rows, self.weight.shape[1])
        parts = (self.weight.detach().numpy(), inputs.indptr, inputs.items, inputs.values, product.numpy())
        self.crew.run(over_users(weighted_rows, len(product), *parts))
        return product

    def keep(self, turned: Turned, slopes: Tensor) -> None:
        left = slopes.detach().contiguous().numpy()
        self.gradient = RowGradient(turned, left, left[:0])


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, product: SparseProduct, inputs: Rows, turned: Turned) -> Tensor:
        ctx.product, ctx.turned = product, turned
        return product.value(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        ctx.product.keep(ctx.turned, gradients[0])
        return None, None, None, None
