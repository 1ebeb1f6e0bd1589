"""Random weights for models that hold few of them, as sparse rows."""

import numpy as np
from scipy.sparse import csr_array

from milrec.models.item_to_item import SparseRows


def random_rows(n_items: int) -> SparseRows:
    """About a third of all weights from an item to another."""
    random = np.random.default_rng(1)
    dense = np.where(random.random((n_items, n_items)) < 1 / 3, random.standard_normal((n_items, n_items)), 0)
    np.fill_diagonal(dense, 0)
    rows = csr_array(dense)
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data.astype(np.float32)
