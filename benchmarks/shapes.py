"""The data of the benchmarks: simulated catalogues, made once and kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

import milrec
from milrec.splitting import Split

N_FACTORS = 200
LARGE = milrec.Simulation(n_users=136_700, n_items=20_300, mean_shown=205, rejection_rate=0)  # as MovieLens-20M


def large_split(folder: Path) -> Split:
    """136.7k users × 20.3k items, about 8M adopted pairs to learn from; no true preferences, as in real data."""
    place = folder / "large"
    if not place.exists():
        data = milrec.simulate(LARGE, seed=0)
        data = milrec.Interactions(data.adopted, data.rejected, data.users, data.items)
        milrec.split_interactions(data, seed=0).save(place)
    return Split.load(place)


def growing_split(folder: Path, n_items: int) -> Split:
    """20,000 users of about 50 items each, in a catalogue of any size."""
    place = folder / f"items-{n_items}"
    if not place.exists():
        shape = milrec.Simulation(n_users=20_000, n_items=n_items, mean_shown=175, rejection_rate=0)
        data = milrec.simulate(shape, seed=0)
        data = milrec.Interactions(data.adopted, data.rejected, data.users, data.items)
        milrec.split_interactions(data, seed=0, held_out=0.0).save(place)
    return Split.load(place)


def binary(pairs: csr_matrix) -> csr_matrix:
    """The training pairs as other libraries want them."""
    ones = np.ones(pairs.nnz, dtype=np.float32)
    return csr_matrix((ones, pairs.indices.astype(np.int32), pairs.indptr.astype(np.int32)), shape=pairs.shape)
