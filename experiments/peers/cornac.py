"""The task in cornac: made for experiments on ratings, so every pair gets a rating of 1; one list at a time."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from cornac.data import Dataset
from cornac.models import EASE

MODELS = {"EASE": EASE}


def fit(pairs: Path, name: str) -> Any:
    table = pq.read_table(pairs)
    rated = zip(table["user"].to_pylist(), table["item"].to_pylist(), [1.0] * len(table), strict=True)
    train = Dataset.from_uir(rated, seed=0)
    return MODELS[name](seed=0, verbose=False).fit(train), train


def lists(fitted: Any, users: list[Any], n: int) -> dict[str, Any]:
    model, train = fitted
    found = [(user, item) for user in users for item in model.recommend(user, n, remove_seen=True, train_set=train)]
    return {"user": [user for user, _ in found], "item": [item for _, item in found]}


def list_of_allowed(fitted: Any, user: Any, allowed: list[Any], n: int) -> list[Any]:
    model, train = fitted
    items, _ = model.rank(train.uid_map[user], [train.iid_map[item] for item in allowed])
    return [model.item_ids[item] for item in items[:n]]


def save(fitted: Any, folder: Path) -> None:
    model, _ = fitted
    model.save(folder, save_trainset=True)
