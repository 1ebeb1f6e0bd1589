"""Made-up results: any models with any figures. Parts are plain JSON, a run is the typed value."""

import itertools
import math

import numpy as np

from milrec.report import paper
from milrec.results import Results

TAILS = ("short", "medium", "long")
LIN_CE = [85.1, 13.1, 0.79, 0.35, 0.33, 0.35]
LIN_MIL = [0.0, 0.4, 5.5, 31.6, 60.2, 2.3]
LIN_PAIR = [38.3, 49.8, 6.5, 2.2, 1.6, 1.6]


def places(short: float, long: float, length: int = 200) -> dict[str, list[float]]:
    """Share of users with an item of each interval at each place: short falls, long rises; means as given (percent)."""
    rank = np.arange(length) / max(length - 1, 1)
    falling = np.exp(-rank * 60 / short)
    falling = np.clip(falling * short / 100 / falling.mean(), 0, 0.98)
    rising = np.minimum(2 * long / 100 * rank, 1 - falling)
    return {"short": falling.tolist(), "medium": (1 - falling - rising).tolist(), "long": rising.tolist()}


def evaluation(shares=(36.0, 41.0, 23.0), preferences=None, curves=None, **measures) -> dict:
    """`measures` by name, with `_at_` for @."""
    named = {name.replace("_at_", "@"): value for name, value in measures.items()}
    values = {
        "recall@1": 0.25,
        "recall@20": 0.36,
        "recall@50": 0.5,
        "ndcg@20": 0.27,
        "ndcg@100": 0.35,
        "novelty_ndcg@100": 0.33,
        **{f"{tail}_share@200": share for tail, share in zip(TAILS, shares, strict=True)},
        "coverage@20": 0.4,
        "exposure_gini@20": 0.87,
        "mean_popularity@20": 8123.4,
        **named,
    }
    return {
        **values,
        "n_users": 1000,
        "dropped_targets": 0,
        "top_200_share": dict(zip(TAILS, shares, strict=True)),
        "interval_cuts": [177, 784],
        "preference_distribution": preferences,
        "rank_evolution": curves or places(shares[0], shares[2]),
        "intervals": {name: [value * 0.98, value * 1.02] for name, value in values.items() if "coverage" not in name},
        "undefined": {},
    }


def model(
    name: str, seed: int = 0, loss: str = "pointwise", tuned: dict | None = None, dialled=None, **figures
) -> dict:
    found = evaluation(**figures)
    best = found["ndcg@100"]
    epochs = [2.0 * number for number in range(1, 13)]
    curve = [best * (1 - 0.5 * math.exp(-epoch / 5)) for epoch in epochs]
    return {
        "name": name,
        "seed": seed,
        "tuned": tuned or {},
        "validation": best - 0.004,
        "settings": {
            "model": {"model": "dae"},
            "loss": {"loss": loss, **({"missing_weight": 1e6, "missing_exponent": 10.0} if loss == "mil" else {})},
            "training": {"measure": "ndcg@100"},
        },
        "evaluation": found,
        **({"dialled": dialled} if dialled else {}),
        "history": {"epochs": epochs, "measures": curve, "iterations": [100] * 12, "kept_iteration": 1200},
        "fit_seconds": 12.3 + seed,
        "peak_memory_mib": 812 + seed,
    }


def run(*arguments, **more) -> Results:
    return Results.of(run_as_json(*arguments, **more), "a made-up run")


def run_as_json(
    models: list[dict], protocol: str = "interactions", users: int = 2000, items: int = 1500, **more
) -> dict:
    held_out = users // 10 if protocol == "users" else users
    curve = [[rank, int(60_000 / rank**0.7) + 1] for rank in sorted({int(1.05**k) for k in range(200)}) if rank < items]
    return {
        "format": "milrec-results",
        "version": 1,
        "title": "A made-up run",
        "description": "",
        "data": {
            "users": users,
            "items": items,
            "adopted": 40 * users,
            "rejected": 0,
            "interval_cuts": [177, 790],
            "popularity_curve": curve,
        },
        "split": {
            "protocol": protocol,
            "seed": 0,
            "validation_users_in_part": held_out,
            "test_users_in_part": held_out,
            "test_users": held_out,
            "test_targets": 5 * users,
            "test_dropped_targets": 12,
        },
        "models": models,
        "versions": {"milrec": "0", "torch": "0"},
        "machine": {"cores": 2, "platform": "linux"},
        "finished": "2026-01-01 00:00 UTC",
        **more,
    }


def compared(models: list[dict], measure: str, p: float = 0.0004) -> list[dict]:
    """Every model against every other, by the figures of the first seed."""
    first: dict[str, float] = {}
    for fitted in models:
        first.setdefault(fitted["name"], fitted["evaluation"][measure])
    rows = []
    for one, other in itertools.combinations(first, 2):
        difference = first[one] - first[other]
        rows.append(
            {
                "first": one,
                "second": other,
                "difference": difference,
                "low": difference - 0.003,
                "high": difference + 0.003,
                "p": p if abs(difference) > 0.003 else 0.4,
                "users": 1000,
            }
        )
    return rows


def searched(name: str, n: int = 12) -> dict:
    random = np.random.default_rng(len(name))
    states = ["done", "done", "given up", "done", "failed"]
    trials: list[dict] = []
    for number in range(n):
        state = states[number % len(states)]
        value = None if state == "failed" else float(0.33 + random.normal(0, 0.008) - 0.02 * (state == "given up"))
        values = {"weight_decay": 10.0 ** -random.integers(4, 7), "target_factor": 50.0}
        error = "it did not fit" if state == "failed" else None
        trials.append({"number": number, "values": values, "state": state, "value": value, "error": error})
    best = max((trial for trial in trials if trial["state"] == "done"), key=lambda trial: trial["value"])
    return {"name": name, "measure": "ndcg@100", "trials": trials, "tuned": best["values"]}


def the_papers_run(seeds: int = 3) -> Results:
    """The paper's ten models with its figures for MovieLens-20M, moved by the seed, and all that a run may have."""
    shares = {
        "CE_Point lin-sig": (41.1, 40.1, 18.8),
        "MULTI tanh-lin": (36.3, 40.8, 22.9),
        "MIL lin-sig": (32.2, 39.9, 27.9),
        "MIL sig-sig": (33.0, 40.0, 27.0),
    }
    models = [
        model("Popularity", recall_at_1=0.12, ndcg_at_100=0.18, novelty_ndcg_at_100=0.15, shares=(80.0, 20.0, 0.0))
    ]
    for place, (name, figures) in enumerate(paper.figures("metrics", "ml-20m").items()):
        loss = "mil" if "mil" in name.lower() else "multinomial" if "MULTI" in name else "pointwise"
        preferences = None if "MULTI" in name else LIN_MIL if loss == "mil" else LIN_PAIR if "Pair" in name else LIN_CE
        share = shares.get(name, (38.0 - place, 40.0, 22.0 + place))
        tuned = {} if place < 3 else searched(name)["tuned"]
        for seed in range(seeds):
            moved = {metric.replace("@", "_at_"): value + 0.0015 * (seed - 1) for metric, value in figures.items()}
            dialled = [
                {"dial": dial, "ndcg@100": moved["ndcg_at_100"] - dial**2 / 2, "long_share@200": share[2] + 40 * dial}
                for dial in (-0.2, -0.1, 0.0, 0.1, 0.2, 0.3)
            ]
            models.append(
                model(
                    name, seed, loss, tuned, dialled if name in shares else None,
                    shares=share, preferences=preferences, **moved,
                )
            )  # fmt: skip
    names = list(dict.fromkeys(one["name"] for one in models))
    return run(
        models,
        users=136_677,
        items=20_280,
        paper={"table": "metrics", "dataset": "ml-20m"},
        searches=[searched(name) for name in names[4:]],
        comparisons={measure: compared(models, measure) for measure in ("recall@1", "ndcg@100")},
        failures=[{"name": "SLIM, seed 1", "error": "the fit ran out of memory; choose fewer items"}],
    )
