"""The task in RecTools: data frames of ids in and out; each row needs a weight and a time, known or not."""

from pathlib import Path
from typing import Any

import pandas as pd
from implicit.als import AlternatingLeastSquares
from rectools import Columns
from rectools.dataset import Dataset
from rectools.models import EASEModel, ImplicitALSWrapperModel

MODELS = {
    "EASE": lambda: EASEModel(regularization=500),
    "iALS": lambda: ImplicitALSWrapperModel(AlternatingLeastSquares(random_state=0)),
}


def fit(pairs: Path, name: str) -> Any:
    data = Dataset.construct(interactions(pd.read_parquet(pairs)))
    return MODELS[name]().fit(data), data


def interactions(pairs: pd.DataFrame) -> pd.DataFrame:
    table = pairs.rename(columns={"user": Columns.User, "item": Columns.Item})
    return table.assign(**{Columns.Weight: 1, Columns.Datetime: "2000-01-01"})


def lists(fitted: Any, users: list[Any], n: int) -> Any:
    model, data = fitted
    table = model.recommend(users, data, k=n, filter_viewed=True)
    return {"user": table[Columns.User], "item": table[Columns.Item]}


def list_of_allowed(fitted: Any, user: Any, allowed: list[Any], n: int) -> list[Any]:
    model, data = fitted
    return model.recommend([user], data, k=n, filter_viewed=True, items_to_recommend=allowed)[Columns.Item].tolist()


def list_for_newcomer(fitted: Any, adopted: list[Any], n: int) -> list[Any]:
    model, data = fitted
    newcomer = pd.DataFrame({"user": ["newcomer"] * len(adopted), "item": adopted})
    grown = Dataset.construct(pd.concat([data.get_raw_interactions(), interactions(newcomer)]))
    return model.recommend(["newcomer"], grown, k=n, filter_viewed=True)[Columns.Item].tolist()


def save(fitted: Any, folder: Path) -> None:
    fitted[0].save(folder / "model.pkl")
