"""Matrix products in which no row depends on its place."""

import numpy as np
import pytest
import torch

from milrec.kernels import products
from milrec.kernels.products import steady_product
from milrec.kernels.ranking import row_products


def some_matrix(n_rows, n_columns, seed=0) -> torch.Tensor:
    return torch.randn(n_rows, n_columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("width", "n_columns"), [(1, 1), (2, 3), (7, 5), (13, 11), (16, 40), (200, 9)])
def test_our_own_loop_is_the_product_and_gives_equal_rows_equal_bits(width, n_columns):
    left, right = some_matrix(64, width).numpy(), some_matrix(n_columns, width, 1).numpy()
    left[40:] = left[0]
    out = np.full((64, n_columns), np.nan, dtype=np.float32)
    row_products(left, right, out)
    assert out == pytest.approx(left.astype(np.float64) @ right.T.astype(np.float64), abs=1e-4)
    assert (out[40:] == out[0]).all()


@pytest.mark.parametrize("one_order", [True, False])
def test_a_product_is_the_same_to_rounding_in_both_ways(monkeypatch, one_order):
    monkeypatch.setattr(products, "_has_one_order", lambda *layouts: one_order)
    left, right = some_matrix(64, 26)[:, :13], some_matrix(7, 13, 1)
    expected = left.double() @ right.double().T
    assert torch.allclose(steady_product(left, right.T).double(), expected, atol=1e-5)
    whole = torch.full((64, 20), 5.0)
    steady_product(left, right.T, out=whole[:, 10:17])
    assert torch.allclose(whole[:, 10:17].double(), expected, atol=1e-5)
    assert (whole[:, :10] == 5).all() and (whole[:, 17:] == 5).all()


def test_a_shape_in_which_rows_come_out_differently_is_found(monkeypatch):
    def even(left, right, out):
        out[:] = (left[:1].double() @ right.double()).float()

    def uneven(left, right, out):
        even(left, right, out)
        out[9, 0] = torch.nextafter(out[9, 0], torch.tensor(np.inf))

    layouts = (((64, 6), (6, 1), 0), ((6, 30), (1, 6), 4), ((64, 30), (30, 1), 60))
    for mm, one_order in ((even, True), (uneven, False)):
        monkeypatch.setattr(torch, "mm", mm)
        assert products._has_one_order.__wrapped__(*layouts, 1) == one_order


@pytest.mark.parametrize("begin", [0, 1, 7, 15])
@pytest.mark.parametrize("view", [lambda whole: whole[:, :6], lambda whole: whole[:6].T, lambda whole: whole[3:3]])
def test_a_shape_is_tried_where_its_numbers_would_lie_in_memory(view, begin):
    matrix = view(torch.zeros(20 * 12 + begin)[begin:].view(20, 12))
    assert products._layout(products._laid_out(products._layout(matrix))) == products._layout(matrix)


def test_a_product_asks_for_no_gradient():
    left, right = some_matrix(64, 5).requires_grad_(), some_matrix(5, 6).requires_grad_()
    assert not steady_product(left, right).requires_grad
