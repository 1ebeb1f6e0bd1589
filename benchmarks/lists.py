"""Lists and evaluation for everybody, against faiss, implicit and the bare matrix product."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.clock import in_turns
from benchmarks.shapes import N_FACTORS, large_split
from milrec.data.splits import Audience
from milrec.evaluation.judging import evaluate
from milrec.kernels.threads import available
from milrec.lists.scores import Scorer, lists_for
from milrec.models.autoencoders import DenoisingAutoencoder
from milrec.models.known import build_model
from milrec.training.presets import settings_for

_USERS = 40_000  # of 136.7k: enough for steady times


def top_lists(folder: Path) -> dict[str, Any]:
    """Top-200 without adopted items, against faiss.knn and implicit, which list all items, and the bare product."""
    import faiss
    from implicit.cpu.topk import topk

    split = large_split(folder)
    model, settings = _model(split.train.n_users, split.train.n_items)
    scorer, audience = Scorer(model, settings, split.train), _some(split.test.audience)
    latent = _latents(model, audience)
    weight, bias = model.decoder_weight.detach().numpy(), model.decoder_bias.detach().numpy()
    queries = np.ascontiguousarray(np.hstack([latent, np.ones((len(latent), 1), dtype=np.float32)]))
    items = np.ascontiguousarray(np.hstack([weight, bias[:, None]]))
    times = in_turns(
        {
            "milrec": lambda: list(lists_for(scorer, audience, 200)),
            "faiss": lambda: faiss.knn(queries, items, 200, metric=faiss.METRIC_INNER_PRODUCT),
            "implicit": lambda: topk(items, queries, 200, num_threads=available()),
            "product": lambda: _product(latent, weight),
        },
        rounds=3,
    )
    return {"users": _USERS, "seconds": times, "value": times["milrec"] / times["faiss"]}


def evaluation(folder: Path) -> dict[str, Any]:
    """All measures of a full evaluation, against the matrix product of its scores alone."""
    split = large_split(folder)
    model, settings = _model(split.train.n_users, split.train.n_items)
    latent = _latents(model, split.test.audience)
    weight = model.decoder_weight.detach().numpy()
    times = in_turns(
        {
            "evaluation": lambda: evaluate(model, settings, split.train, split.test),
            "product": lambda: _product(latent, weight),
        },
        rounds=1,
    )
    return {"users": len(latent), "seconds": times, "value": times["evaluation"] / times["product"]}


def _model(n_users: int, n_items: int) -> tuple[DenoisingAutoencoder, Any]:
    settings = settings_for("dae", "mil")
    model = build_model(settings.model, n_users, n_items)
    assert isinstance(model, DenoisingAutoencoder)
    model.initialise(0)
    return model, settings


def _some(audience: Audience) -> Audience:
    return audience.part(np.arange(_USERS))


def _latents(model: DenoisingAutoencoder, audience: Audience) -> Any:
    """Random latents will do for the rivals: the time of a product does not depend on them."""
    return torch.randn(audience.n_users, N_FACTORS, generator=torch.Generator().manual_seed(0)).numpy()


def _product(latent: Any, weight: Any) -> None:
    out = np.empty((2000, len(weight)), dtype=np.float32)
    for start in range(0, len(latent), 2000):
        part = latent[start : start + 2000]
        np.dot(part, weight.T, out=out[: len(part)])
