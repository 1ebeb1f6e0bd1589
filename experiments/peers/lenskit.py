"""The task in LensKit: a pipeline of components around a scorer; data frames of ids in, item lists out."""

import pickle
from pathlib import Path
from typing import Any

import pandas as pd
from lenskit import batch, recommend, topn_pipeline
from lenskit.als import ImplicitMFScorer
from lenskit.data import ItemList, RecQuery, from_interactions_df
from lenskit.knn import EASEScorer
from lenskit.training import TrainingOptions

MODELS = {"iALS": (ImplicitMFScorer, {}), "EASE": (EASEScorer, {"regularization": 500})}


def fit(pairs: Path, name: str) -> Any:
    scorer, settings = MODELS[name]
    pipeline = topn_pipeline(scorer, settings)
    pipeline.train(from_interactions_df(pd.read_parquet(pairs)), TrainingOptions(rng=0))
    return pipeline


def lists(fitted: Any, users: list[Any], n: int) -> Any:
    table = batch.recommend(fitted, users, n, n_jobs=1).to_df()
    return {"user": table["user_id"], "item": table["item_id"]}


def list_of_allowed(fitted: Any, user: Any, allowed: list[Any], n: int) -> list[Any]:
    return recommend(fitted, user, n, items=allowed).ids().tolist()


def list_for_newcomer(fitted: Any, adopted: list[Any], n: int) -> list[Any]:
    return recommend(fitted, RecQuery(user_items=ItemList(item_ids=adopted)), n).ids().tolist()


def save(fitted: Any, folder: Path) -> None:
    with (folder / "pipeline.pkl").open("wb") as file:
        pickle.dump(fitted, file)
