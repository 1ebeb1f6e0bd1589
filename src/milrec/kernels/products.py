"""Matrix products in which no row depends on its place or on its neighbours, down to the last bit.

A BLAS chooses its loops by the shapes of the matrices. In most shapes it sums every row in the same order; in some,
mostly narrow ones, the order changes from row to row. Which shapes these are differs from CPU to CPU, so each one is
tried out once per process; where rows come out differently, our own loop takes over, with one order for all of them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from milrec.kernels.ranking import row_products

_TRIED = 512  # numbers that have to be equal in all rows: two orders of summation agree by chance in many of them

_LINE = 64  # bytes of a cache line

Layout = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, strides, and where in a cache line the numbers begin


def steady_product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """left @ right, where each row is the same in any place; no gradient flows."""
    left, right = left.detach(), right.detach()
    if left.device.type != "cpu":
        product = left @ right
        return product if out is None else out.copy_(product)
    if out is None:
        out = torch.empty(len(left), right.shape[1])
    if _has_one_order(_layout(left), _layout(right), _layout(out), torch.get_num_threads()):
        return torch.mm(left, right, out=out)
    product = torch.empty(out.shape)
    row_products(np.ascontiguousarray(left.numpy()), np.ascontiguousarray(right.T.numpy()), product.numpy())
    return out.copy_(product)


@lru_cache(maxsize=4096)
def _has_one_order(left: Layout, right: Layout, out: Layout, n_threads: int) -> bool:
    """Whether equal rows give equal rows in a product of matrices with these layouts, by this many threads."""
    rows, columns, product = (_laid_out(layout) for layout in (left, right, out))
    random = torch.Generator().manual_seed(0)
    columns.copy_(torch.randn(columns.shape, generator=random))
    for _ in range(2 + _TRIED // max(product.shape[1], 1)):
        rows.copy_(torch.randn(1, rows.shape[1], generator=random).expand_as(rows))
        torch.mm(rows, columns, out=product)
        if not torch.equal(product, product[:1].expand_as(product)):
            return False
    return True


def _layout(matrix: Tensor) -> Layout:
    return tuple(matrix.shape), matrix.stride(), matrix.data_ptr() % _LINE


def _laid_out(layout: Layout) -> Tensor:
    """New memory in a layout, its content whatever was there."""
    shape, strides, begin = layout
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    memory = torch.empty(max(extent, 0) + _LINE)
    return memory.as_strided(shape, strides, (begin - memory.data_ptr()) % _LINE // memory.element_size())
