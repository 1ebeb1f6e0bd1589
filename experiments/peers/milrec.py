"""The task in milrec: tables of ids in, tables of ids out. A tenth of the pairs is for validation; then it refits."""

from pathlib import Path
from typing import Any

import milrec

MODELS = {"MIL autoencoder": "dae", "EASE": "ease"}


def fit(pairs: Path, name: str) -> Any:
    split = milrec.split_given(milrec.read(pairs), milrec.read(pairs.with_name("test.parquet")), seed=0)
    return milrec.refit(split, milrec.fit(split, MODELS[name]))


def lists(fitted: Any, users: list[Any], n: int) -> Any:
    return fitted.recommend(users, n)


def list_of_allowed(fitted: Any, user: Any, allowed: list[Any], n: int) -> list[Any]:
    return fitted.recommend([user], n, allow=allowed)["item"].to_pylist()


def list_without(fitted: Any, user: Any, excluded: list[Any], n: int) -> list[Any]:
    return fitted.recommend([user], n, exclude=excluded)["item"].to_pylist()


def list_for_newcomer(fitted: Any, adopted: list[Any], n: int) -> list[Any]:
    return fitted.recommend_new(adopted, n=n)["item"].to_pylist()


def save(fitted: Any, folder: Path) -> None:
    fitted.save(folder / "model")
