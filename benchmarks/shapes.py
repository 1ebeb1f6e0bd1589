"""The data of the benchmarks: simulated catalogues, generated once and kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array, csr_matrix

import milrec
from milrec.data.interactions import Interactions
from milrec.data.splits import Split

N_FACTORS = 200
LARGE = milrec.Simulation(n_users=136_700, n_items=20_300, mean_shown=205, rejection_rate=0)  # like MovieLens-20M


def large_split(folder: Path) -> Split:
    """136.7k users × 20.3k items, about 8M training pairs; no true preferences, as in real data."""
    place = folder / "large"
    if not place.exists():
        data = milrec.simulate(LARGE, seed=0)
        data = milrec.Interactions(data.adopted, data.rejected, data.users, data.items)
        milrec.split_interactions(data, seed=0).save(place)
    return Split.load(place)


def growing_data(n_items: int) -> Interactions:
    """20,000 users with about 70 items each, in a catalogue of any size that includes items without an adopter."""
    data = milrec.simulate(milrec.Simulation(n_users=20_000, n_items=n_items, mean_shown=175, rejection_rate=0), seed=0)
    numbers = np.sort(np.random.default_rng(0).permutation(n_items)[: data.n_items])  # places of its items
    shape = (data.n_users, n_items)
    adopted = csr_array((data.adopted.data, numbers[data.adopted.indices], data.adopted.indptr), shape=shape)
    items = pa.table({"id": np.arange(n_items)})
    return Interactions(adopted, csr_array(shape, dtype=np.float32), data.users, items)


def binary(pairs: csr_matrix) -> csr_matrix:
    """The training pairs as other libraries want them."""
    ones = np.ones(pairs.nnz, dtype=np.float32)
    return csr_matrix((ones, pairs.indices.astype(np.int32), pairs.indptr.astype(np.int32)), shape=pairs.shape)
