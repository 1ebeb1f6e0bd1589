"""One list at a time: the whole call with its table, against implicit's `recommend`, one thread each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from implicit.cpu.als import AlternatingLeastSquares

from benchmarks.clock import in_turns
from benchmarks.shapes import N_FACTORS, binary, growing_data
from milrec.data.interactions import Interactions
from milrec.models.known import build_model
from milrec.recommender import Recommender
from milrec.training.artifact import Fitted
from milrec.training.presets import settings_for
from milrec.training.sections import Shape

_N_ITEMS = 20_000
_USERS = 500  # a list for each, in turns
_ADOPTED = 30


def one_list(folder: Path) -> dict[str, Any]:
    """A list of 20 out of 20,000 for one known user, for a new one with reasons, and for one new to a factorization."""
    torch.set_num_threads(1)
    train = growing_data(_N_ITEMS)
    dae, mf = (_recommender(train, kind) for kind in ("dae", "mf"))
    users, items = dae.user_ids, dae.item_ids
    own = items[: _ADOPTED * 100 : 100]
    rivals: dict[str, Callable[[int], Any]] = {
        "implicit": _implicit(train),
        "known": lambda user: dae.recommend([users[user]], n=20),
        "new_with_reasons": lambda user: dae.recommend_new(own, n=20, reasons=3),
        "folded_in": lambda user: mf.recommend_new(own, n=20),
        "similar": lambda item: dae.similar_items(items[item], n=20),
    }
    times = _in_turns(rivals)
    ratios = {name: times[name] / times["implicit"] for name in rivals}
    return {
        "items": _N_ITEMS,
        "factors": N_FACTORS,
        "seconds": times,
        "over_implicit": ratios,
        "value": ratios["known"],
    }


def _in_turns(rivals: dict[str, Callable[[int], Any]]) -> dict[str, float]:
    """Median seconds of a call, for one user after another."""
    users = {name: iter(range(_USERS + 1)) for name in rivals}
    return in_turns(
        {name: lambda name=name, call=call: call(next(users[name])) for name, call in rivals.items()},  # type: ignore[misc]
        rounds=_USERS,
    )


def _recommender(train: Interactions, kind: str) -> Recommender:
    """Weights as they are before a fit, but of the size that they have after one: no time depends on more."""
    settings = settings_for(kind, "mil").for_data(Shape.of(train))
    model: Any = build_model(settings.model, train.n_users, train.n_items)
    model.initialise(0)
    with torch.no_grad():
        model.decoder_weight.mul_(10)
    return Recommender(Fitted(model.eval(), settings, train, train.adopted, 0, None, {}))


def _implicit(train: Interactions) -> Callable[[int], Any]:
    """Random factors will do: its time does not depend on them either."""
    random = np.random.default_rng(0)
    model = AlternatingLeastSquares(factors=N_FACTORS, num_threads=1)
    model.item_factors = random.standard_normal((train.n_items, N_FACTORS), dtype=np.float32)
    model.user_factors = random.standard_normal((train.n_users, N_FACTORS), dtype=np.float32)
    rows = [binary(train.adopted)[user] for user in range(_USERS + 1)]
    return lambda user: model.recommend(user, rows[user], N=20)
