"""Products of a sparse matrix, which is data, and a dense one, which learns."""

import warnings

import numpy as np
import torch
from scipy import sparse
from torch import Tensor


class SparseRows:
    """A SciPy matrix; `rows @ dense` has a gradient in `dense`."""

    def __init__(self, matrix: sparse.csr_matrix) -> None:
        self.rows, self.columns = _tensor(matrix), _tensor(matrix.T.tocsr())

    def __matmul__(self, dense: Tensor) -> Tensor:
        return _Product.apply(self.rows, self.columns, dense)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: Tensor, columns: Tensor, dense: Tensor) -> Tensor:
        ctx.columns = columns
        return rows @ dense

    @staticmethod
    def backward(ctx, slope: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.columns @ slope


def _tensor(matrix: sparse.csr_matrix) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(np.int64)),
            torch.from_numpy(matrix.indices.astype(np.int64)),
            torch.from_numpy(matrix.data.astype(np.float32)),
            size=matrix.shape,
            check_invariants=True,
        )
