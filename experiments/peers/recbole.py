"""The task in RecBole: made for experiments from configuration files; tables are first written as its atomic files."""

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.data.interaction import Interaction
from recbole.utils import get_model, get_trainer, init_seed

MODELS = {"EASE": "EASE"}


def fit(pairs: Path, name: str) -> Any:
    folder = pairs.parent / "recbole" / "task"
    folder.mkdir(parents=True, exist_ok=True)
    table = pd.read_parquet(pairs).rename(columns={"user": "user_id:token", "item": "item_id:token"})
    table.to_csv(folder / "task.inter", sep="\t", index=False)
    values = {
        "data_path": str(folder.parent),
        "checkpoint_dir": str(folder),
        "load_col": {"inter": ["user_id", "item_id"]},
        "reg_weight": 500,  # of EASE
        "eval_args": {"split": {"RS": [1, 0, 0]}, "order": "RO", "group_by": None, "mode": "full"},
    }
    config = Config(model=MODELS[name], dataset="task", config_dict=values)
    init_seed(config["seed"], config["reproducibility"])
    train, _, _ = data_preparation(config, create_dataset(config))
    model = get_model(config["model"])(config, train.dataset)
    trainer = get_trainer(config["MODEL_TYPE"], config["model"])(config, model)
    trainer.fit(train, show_progress=False)
    return model.eval(), train.dataset, trainer


@torch.no_grad()
def lists(fitted: Any, users: list[Any], n: int) -> dict[str, Any]:
    model, data, _ = fitted
    rows, had = data.token2id("user_id", [str(user) for user in users]), data.inter_matrix(form="csr")
    found = []
    for row in rows:
        scores = model.full_sort_predict(Interaction({"user_id": torch.tensor([row])})).flatten()
        scores[[0, *had[row].indices]] = -torch.inf  # number 0 is no item
        found += [int(data.id2token("item_id", item)) for item in scores.topk(n).indices]
    return {"user": [user for user in users for _ in range(n)], "item": found}


def save(fitted: Any, folder: Path) -> None:
    shutil.copy(fitted[2].saved_model_file, folder)
