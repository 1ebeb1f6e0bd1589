"""The task in implicit: matrices of numbers, so ids are turned into rows and columns, and back, by the caller."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking
from scipy.sparse import csr_matrix

MODELS = {"ALS": AlternatingLeastSquares, "BPR": BayesianPersonalizedRanking}


def fit(pairs: Path, name: str) -> Any:
    table = pq.read_table(pairs)
    user_ids, rows = np.unique(table["user"], return_inverse=True)
    item_ids, columns = np.unique(table["item"], return_inverse=True)
    train = csr_matrix((np.ones(len(rows), dtype=np.float32), (rows, columns)))
    kind = MODELS[name]
    model = kind(random_state=0)
    model.fit(train, show_progress=False)
    return model, train, user_ids, item_ids


def lists(fitted: Any, users: list[Any], n: int) -> dict[str, Any]:
    model, train, user_ids, item_ids = fitted
    rows = np.searchsorted(user_ids, users)
    items, _ = model.recommend(rows, train[rows], N=n)
    return {"user": np.repeat(users, n), "item": item_ids[items].ravel()}


def list_of_allowed(fitted: Any, user: Any, allowed: list[Any], n: int) -> list[Any]:
    model, train, user_ids, item_ids = fitted
    row = np.searchsorted(user_ids, user)
    items, _ = model.recommend(row, train[row], N=n, items=np.searchsorted(item_ids, allowed))
    return item_ids[items].tolist()


def list_without(fitted: Any, user: Any, excluded: list[Any], n: int) -> list[Any]:
    model, train, user_ids, item_ids = fitted
    row = np.searchsorted(user_ids, user)
    items, _ = model.recommend(row, train[row], N=n, filter_items=np.searchsorted(item_ids, excluded))
    return item_ids[items].tolist()


def list_for_newcomer(fitted: Any, adopted: list[Any], n: int) -> list[Any]:
    model, _, _, item_ids = fitted
    taste = np.isin(item_ids, adopted).astype(np.float32)
    items, _ = model.recommend(0, csr_matrix(taste), N=n, recalculate_user=True)
    return item_ids[items].tolist()


def save(fitted: Any, folder: Path) -> None:
    fitted[0].save(folder / "model.npz")  # the ids are not in it
