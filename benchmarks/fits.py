"""Fitting: the step against the readable path and the bare matrix product, the whole fit against implicit and EASE."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.clock import in_turns, memory_now, peak_memory, seconds
from benchmarks.shapes import N_FACTORS, binary, growing_data, large_split
from milrec.data.interactions import Interactions
from milrec.data.splits import HeldOut, Split
from milrec.evaluation.validation import validation_measure
from milrec.kernels.threads import thread_pool
from milrec.metrics import ranking
from milrec.models.known import build_model
from milrec.training.batches import batches
from milrec.training.loop import fit
from milrec.training.presets import settings_for
from milrec.training.progress import Watch
from milrec.training.sections import Shape
from milrec.training.settings import FitSettings
from milrec.training.steps.adam import Adam
from milrec.training.steps.fast import FastStep
from milrec.training.steps.readable import ReadableStep
from milrec.training.steps.step import Step

_USERS_JUDGED = 10_000


def sampled_step(folder: Path) -> dict[str, Any]:
    """Users per second of a sampled MIL fit, batches of 100 prepared while it runs, against the readable path."""
    train = large_split(folder).train
    settings = settings_for("dae", "mil", {"target_set": "shared", "batch_size": 100})
    n_fast, n_readable = 100, 6
    with ExitStack() as stack:
        fast, readable = (_stepping(train, settings, stack, engine) for engine in ("fast", "readable"))
        times = in_turns(
            {
                "fast": lambda: fast(n_fast),
                "readable": _with_all_threads(lambda: readable(n_readable)),
            },
            rounds=5,
        )
    users = {"fast": 100 * n_fast / times["fast"], "readable": 100 * n_readable / times["readable"]}
    return {"users_per_second": users, "value": users["fast"] / users["readable"]}


def whole_step(folder: Path) -> dict[str, Any]:
    """Rate of a fit with all missing items, batches of 500, against its three matrix products alone."""
    train = large_split(folder).train
    settings = settings_for("dae", "mil", {"target_set": "expectation", "batch_size": 500})
    n_steps = 6
    latent, weight = torch.randn(500, N_FACTORS), torch.randn(train.n_items, N_FACTORS)
    slopes, out = torch.randn(500, train.n_items), torch.empty(500, train.n_items)
    latent_out, weight_out = torch.empty_like(latent), torch.empty_like(weight)

    def by_torch() -> None:
        torch.mm(latent, weight.T, out=out)
        torch.mm(slopes, weight, out=latent_out)
        torch.mm(slopes.T, latent, out=weight_out)

    def by_numpy() -> None:
        np.dot(latent.numpy(), weight.numpy().T, out=out.numpy())
        np.dot(slopes.numpy(), weight.numpy(), out=latent_out.numpy())
        np.dot(slopes.numpy().T, latent.numpy(), out=weight_out.numpy())

    with ExitStack() as stack:
        threads = torch.get_num_threads()
        steps = _stepping(train, settings, stack, "fast")

        def bare() -> None:
            torch.set_num_threads(threads)
            by_torch()
            torch.set_num_threads(1)

        times = in_turns({"fit": lambda: steps(n_steps), "torch": bare, "numpy": by_numpy}, rounds=9)
    work = 6 * 500 * train.n_items * N_FACTORS / 1e9
    rates = {"fit": n_steps * work / times["fit"], "torch": work / times["torch"], "numpy": work / times["numpy"]}
    return {"gflops": rates, "value": rates["fit"] / max(rates["torch"], rates["numpy"])}


def whole_fit(folder: Path) -> dict[str, Any]:
    """A default MIL fit, to within 0.002 of its best validation NDCG@100."""
    split = large_split(folder)
    settings = settings_for("dae", "mil").for_data(Shape.of(split.train))
    judge = validation_measure("ndcg@100", settings, split.train, split.validation)
    model = build_model(settings.model, split.train.n_users, split.train.n_items)
    before, started = memory_now(), time.perf_counter()
    history = fit(model, split.train, settings, 0, Watch(judge))
    start = time.perf_counter() - started - history.seconds[-1]  # finding the first weights, and cleaning up
    best = max(history.measures)
    near = next(place for place, measure in enumerate(history.measures) if measure >= best - 0.002)
    return {
        "seconds_to_near_best": start + history.seconds[near],
        "seconds_in_all": start + history.seconds[-1],
        "seconds_to_start": start,
        "ndcg@100": best,
        "curve": list(zip(history.seconds, history.measures, strict=True)),
        "settings": settings.model_dump(),
        "memory_beyond_data": peak_memory() - before,
    }


def als(folder: Path) -> dict[str, Any]:
    """15 iterations of implicit's ALS with 200 factors: with its defaults, and with stronger regularisation."""
    from implicit.als import AlternatingLeastSquares

    split = large_split(folder)
    pairs = binary(split.train.adopted)
    results = {}
    for regularization, alpha in ((0.01, 1.0), (10.0, 1.0), (100.0, 10.0)):
        rival = AlternatingLeastSquares(
            N_FACTORS, iterations=15, regularization=regularization, alpha=alpha, num_threads=_threads(), random_state=0
        )
        spent = seconds(partial(rival.fit, pairs, show_progress=False))
        name = f"regularization {regularization:g}, alpha {alpha:g}"
        results[name] = {"seconds": spent, "ndcg@100": _judged(rival, split)}
    return {"runs": results, "seconds": statistics.median(run["seconds"] for run in results.values())}


def bpr(folder: Path) -> dict[str, Any]:
    """15 iterations of implicit's BPR with 200 factors."""
    from implicit.bpr import BayesianPersonalizedRanking

    split = large_split(folder)
    rival = BayesianPersonalizedRanking(N_FACTORS, iterations=15, num_threads=_threads(), random_state=0)
    spent = seconds(lambda: rival.fit(binary(split.train.adopted), show_progress=False))
    return {"seconds": spent, "iterations": rival.iterations, "ndcg@100": _judged(rival, split)}


def ease(folder: Path) -> dict[str, Any]:
    """EASE in closed form: B = I - P / diag(P), P = (X'X + λI)⁻¹."""
    split = large_split(folder)
    pairs = binary(split.train.adopted)
    users, removed, targets = _judged_part(split.validation)
    seen = pairs[users]
    results, started = {}, time.perf_counter()
    gram = torch.from_numpy((pairs.T @ pairs).toarray().astype(np.float32))
    gram_seconds = time.perf_counter() - started
    strength, started = 500.0, time.perf_counter()
    gram.diagonal().add_(strength)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))  # half the work of a general inverse
    weight = inverse.div_(-inverse.diagonal())
    weight.fill_diagonal_(0)
    results["seconds"] = gram_seconds + time.perf_counter() - started
    values = []
    for start in range(0, len(users), 500):
        block = slice(start, start + 500)
        scores = torch.from_numpy(seen[block].toarray()) @ weight
        scores[torch.from_numpy(removed[block].toarray() > 0)] = -torch.inf
        lists = torch.topk(scores, 100).indices.numpy()
        values.append(_ndcg(lists, targets[block]))
    return {**results, "regularization": strength, "ndcg@100": float(np.nanmean(np.concatenate(values)))}


def ml_1m(folder: Path, source: Path) -> dict[str, Any]:
    """MovieLens-1M: seconds until the test NDCG@100 is 0.350, against the readable path with the paper's settings."""
    import milrec

    split = milrec.split_interactions(milrec.read(source), seed=0)
    rivals = {
        "fast": settings_for("dae", "mil"),
        "readable": settings_for("mil-lin-sig", None, {"engine": "readable"}),
    }
    for settings in rivals.values():  # load kernels (the first time: compile them) before the clock runs
        milrec.fit(split, settings, iterations=1, epochs=None)
    results = {name: _until(split, settings, 0.350) for name, settings in rivals.items()}
    return {"runs": results, "value": results["readable"]["seconds"] / results["fast"]["seconds"]}


def quality(folder: Path, source: Path) -> dict[str, Any]:
    """MovieLens-1M on three seeds: the fast defaults against the readable path with the paper's settings, on test."""
    import milrec

    split = milrec.split_interactions(milrec.read(source), seed=0)
    rivals = {
        "fast": settings_for("dae", "mil"),
        "readable": settings_for("mil-lin-sig", None, {"engine": "readable"}),
    }
    results: dict[str, Any] = {}
    for name, settings in rivals.items():
        for seed in range(3):
            judged = milrec.fit(split, settings, seed=seed).evaluate(split)
            results.setdefault(name, []).append(
                {
                    "ndcg@100": judged.measures["ndcg@100"],
                    "recall@1": judged.measures["recall@1"],
                    "long_share": judged.top_shares["long"] / 100,
                }
            )
    means = {
        name: {key: statistics.mean(run[key] for run in runs) for key in runs[0]} for name, runs in results.items()
    }
    worst = min(means["fast"][key] - means["readable"][key] for key in means["fast"])
    return {"runs": results, "means": means, "value": worst}


def growth(folder: Path) -> dict[str, Any]:
    """Milliseconds of a sampled step of 100 users and 2,000 drawn items, by the size of the catalogue."""
    times = {}
    for n_items in (20_000, 100_000, 1_000_000):
        train = growing_data(n_items)
        factor = 2000 / float(np.median(np.diff(train.adopted.indptr)))
        settings = settings_for(
            "dae", "mil", {"target_set": "shared", "target_factor": factor, "batch_size": 100, "averaging": 0}
        )
        n_steps = 100
        with ExitStack() as stack:
            steps = _stepping(train, settings, stack, "fast")
            spent = in_turns({"steps": partial(steps, n_steps)}, rounds=5)
        times[n_items] = {
            "milliseconds": 1000 * spent["steps"] / n_steps,
            "items": train.n_items,
            "adopted_per_user": float(np.mean(np.diff(train.adopted.indptr))),
        }
    return {"steps": times, "value": times[1_000_000]["milliseconds"] / times[20_000]["milliseconds"]}


def _stepping(train: Interactions, settings: FitSettings, stack: ExitStack, engine: str) -> Callable[[int], None]:
    """The first steps of a fit, as many as asked for, their batches prepared by the second thread."""
    model = build_model(settings.model, train.n_users, train.n_items)
    model.initialise(0)
    optimiser = Adam(dict(model.named_parameters()))
    step: Step = ReadableStep(model, settings, optimiser)
    if engine != "readable":
        step = FastStep(model, settings, optimiser, stack.enter_context(thread_pool()))

    def run(n_steps: int) -> None:
        for (batch,) in (each.slices for each in batches(train, model, settings, 0, range(n_steps))):
            step(batch, 1e-3)

    return run


def _with_all_threads(work: Callable[[], None]) -> Callable[[], None]:
    """Work with all of torch's threads, which the fast path limits to one while it runs."""

    def run() -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(_threads())
        work()
        torch.set_num_threads(before)

    return run


def _until(split: Split, settings: FitSettings, wanted: float) -> dict[str, Any]:
    """Seconds of a fit, including its validations, until a test measure is reached; judging on test is not counted."""
    settings = settings.for_data(Shape.of(split.train))
    validate = validation_measure("ndcg@100", settings, split.train, split.validation)
    test = validation_measure("ndcg@100", settings, split.train, split.test)
    model = build_model(settings.model, split.train.n_users, split.train.n_items)
    curve: list[tuple[float, float]] = []
    not_counted = 0.0

    class Reached(Exception):
        pass

    def judge(fitted: Any) -> float:
        nonlocal not_counted
        measure = validate(fitted)
        spent = time.perf_counter() - started - not_counted
        began = time.perf_counter()
        curve.append((spent, test(fitted)))
        not_counted += time.perf_counter() - began
        if curve[-1][1] >= wanted:
            raise Reached
        return measure

    started = time.perf_counter()
    with suppress(Reached):
        fit(model, split.train, settings, 0, Watch(judge))
    return {"seconds": curve[-1][0], "reached": curve[-1][1] >= wanted, "curve": curve}


def _judged_part(part: HeldOut) -> tuple[Any, Any, Any]:
    """The users that a default fit is validated on: the same for every rival."""
    users = np.flatnonzero(np.diff(part.targets.indptr))
    users = np.sort(np.random.default_rng(0).choice(users, min(_USERS_JUDGED, len(users)), replace=False))
    return users, part.audience.removed[users], part.targets[users]


def _judged(rival: Any, split: Split) -> float:
    users, removed, targets = _judged_part(split.validation)
    lists, _ = rival.recommend(users, binary(removed), N=100, filter_already_liked_items=True)
    return float(np.nanmean(_ndcg(lists, targets)))


def _ndcg(lists: Any, targets: Any) -> Any:
    wanted: Iterator[Any] = (targets.indices[a:b] for a, b in zip(targets.indptr, targets.indptr[1:], strict=False))
    return ranking.ndcg(ranking.find_hits(lists.astype(np.int64), list(wanted)), 100)


def _threads() -> int:
    from milrec.kernels.threads import available

    return available()
