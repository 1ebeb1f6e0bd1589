"""Fitting: what is learned, what repeats bit for bit, when it stops, and how it resumes."""

import json
import math
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import milrec
from milrec.data.interactions import Interactions
from milrec.data.pairs import empty_pairs, pairs_matrix
from milrec.data.splits import Audience, HeldOut
from milrec.errors import FitError, MilrecError, SettingsError
from milrec.evaluation.validation import validation_measure
from milrec.kernels.sparse import Rows
from milrec.models.inputs import unit_rows
from milrec.models.known import build_model
from milrec.training import batches, checkpoints, loop
from milrec.training.loop import fit
from milrec.training.presets import settings_for
from milrec.training.progress import History, Progress, Watch
from milrec.training.sections import Shape, TrainingSettings
from pausing import Pause

QUICK = {"n_factors": 6, "batch_size": 20, "learning_rate": 1e-2, "schedule": "constant", "averaging": 0}
QUICK |= {"validate_every": None, "patience": 8, "slack": 0}
ENGINES = ("fast", "readable")


def quick(model="dae", loss="mil", **values):
    """Settings of a short fit: 4 epochs of 3 steps on the checkerboard, unless stated otherwise."""
    length = {} if "iterations" in values else {"epochs": 4}
    return settings_for(model, loss, {**QUICK, **length, **values})


def fitted(data, settings, seed=0, **options):
    model = build_model(settings.model, data.n_users, data.n_items)
    return model, fit(model, data, settings, seed, Watch(**options))


def weight_bytes(model) -> bytes:
    return b"".join(value.detach().numpy().tobytes() for value in model.parameters())


def withheld(data: Interactions) -> np.ndarray:
    """For each user of the checkerboard the one item of the user's colour that the data does not have."""
    users = np.arange(data.n_users)
    return 2 * ((users // 2) % 10) + users % 2


def withheld_part(data: Interactions) -> HeldOut:
    users, nothing = np.arange(data.n_users), empty_pairs(data.adopted.shape)
    targets = pairs_matrix(users, withheld(data), np.ones(data.n_users), data.adopted.shape)
    return HeldOut(Audience(data.adopted, data.rejected, data.adopted, users), targets, nothing, 0)


def measure(name, settings, data):
    return validation_measure(name, settings, data, withheld_part(data))


def interrupt_at(step):
    """A report that breaks the fit off when a step is done, as Ctrl-C would."""

    def report(progress):
        if progress.iteration == step:
            raise KeyboardInterrupt

    return report


def without_seconds(history):
    return {key: value for key, value in asdict(history).items() if key != "seconds"}


@pytest.mark.parametrize(
    ("model", "loss", "values"),
    [
        ("dae", "mil", {}),
        ("dae", "mil", {"target_set": "per_user"}),
        ("dae", "mil", {"target_set": "shared", "target_factor": 0.5}),
        ("dae", "pointwise", {}),
        ("dae", "pairwise", {"target_set": "per_user"}),
        ("dae", "multinomial", {}),
        ("dae", "square", {}),
        ("cdae", "pointwise", {}),
        ("cdae", "mil", {"target_set": "shared", "target_factor": 0.5, "encoder": "linear"}),
        ("vae", "multinomial", {"n_hidden": 12}),
        ("mf", "square", {}),
        ("mf", "pointwise", {"weight_decay": 1}),
        ("mf", "mil", {"weight_decay": 1}),
    ],
)
def test_the_checkerboard_is_learned(checkerboard, model, loss, values):
    settings = quick(model, loss, epochs=60, n_factors=8, **values)
    model, history = fitted(checkerboard, settings)
    assert measure("recall@1", settings, checkerboard)(model) == 1.0
    assert history.losses[-1] < history.losses[0]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["dae", "cdae", "mf"])
@pytest.mark.parametrize("target_set", ["per_user", "shared", "expectation", "all"])
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(checkerboard, model, target_set, engine):
    settings = quick(model, "mil", target_set=target_set, target_factor=0.5, engine=engine)
    runs = [fitted(checkerboard, settings, seed) for seed in (5, 5, 6)]
    first, second, other = (weight_bytes(model) for model, _ in runs)
    assert first == second
    assert first != other
    assert without_seconds(runs[0][1]) == without_seconds(runs[1][1])


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_seed_gives_the_same_bytes_of_a_variational_autoencoder_and_another_does_not(checkerboard, engine):
    settings = quick("vae", "multinomial", n_hidden=9, engine=engine)
    first, second, other = (weight_bytes(fitted(checkerboard, settings, seed)[0]) for seed in (5, 5, 6))
    assert first == second
    assert first != other


@pytest.mark.parametrize(
    "settings",
    [quick(target_set="per_user", target_factor=0.5), quick("vae", "multinomial", n_hidden=9)],
    ids=["dae", "vae"],
)
def test_a_fit_depends_on_no_global_generator(checkerboard, settings):
    torch.manual_seed(1)
    first, _ = fitted(checkerboard, settings)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second, _ = fitted(checkerboard, settings)
    assert weight_bytes(first) == weight_bytes(second)
    assert torch.equal(state, torch.get_rng_state())


def test_a_fit_does_not_depend_on_the_order_of_rows():
    table = pa.table({"user": ["b", "a", "a", "c", "b"], "item": ["x", "y", "x", "z", "z"]})
    shuffled = table.take([4, 2, 0, 3, 1])
    settings = quick(batch_size=2)
    first, second = (fitted(milrec.read(rows), settings)[0] for rows in (table, shuffled))
    assert weight_bytes(first) == weight_bytes(second)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("factor", "chance"), [(50, 1), (0.5, 4 / 11)])
def test_the_first_loss_is_that_of_the_starting_weights_by_hand(checkerboard, engine, factor, chance):
    """Of 20 items everybody has 9; all of the other 11 are drawn, or half of 9, which is 4 of them."""
    settings = quick(
        iterations=1, batch_size=60, corruption=0, weight_decay=0.5, target_factor=factor, missing_weight=1e9,
        start="glorot", engine=engine,
    )  # fmt: skip
    _, history = fitted(checkerboard, settings, seed=3)
    model = build_model(settings.model, 60, 20)
    model.initialise(3)
    inputs = unit_rows(Rows.of(checkerboard.adopted, np.arange(60)), "binary").dense(20)
    with torch.no_grad():
        q = torch.sigmoid(model.decode(model.latent(torch.from_numpy(inputs) @ model.encoder_weight))).double().numpy()
    adopted = checkerboard.adopted.toarray() > 0
    by_hand = np.where(adopted, 1 - q, chance * 1e9 * (q - 0.5) ** 20).sum(axis=1).mean()
    assert history.losses == [pytest.approx(by_hand, rel=1e-5)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("form", ["plain", "scaled"])
def test_the_first_step_is_adams_on_the_loss_with_weight_decay(checkerboard, form, engine):
    decay = {"weight_decay": 0.3, "weight_decay_form": form}
    values = {"iterations": 1, "batch_size": 60, "learning_rate": 0.02, "start": "glorot", "engine": engine}
    settings = quick("mf", "square", **values, **decay)
    model, _ = fitted(checkerboard, settings, seed=3)
    start = build_model(settings.model, 60, 20)
    start.initialise(3)
    adopted = torch.from_numpy((checkerboard.adopted.toarray() > 0).astype(np.float32))
    q = start.decode(start.latent(start.encoder_weight))
    loss = torch.where(adopted > 0, (1 - q) ** 2, q**2).sum(dim=1).mean()  # all missing items are drawn
    shares = (1, 1) if form == "plain" else (1 / 6 / 60, 1 / 6 / 20)  # one by factors and rows
    sizes = (start.encoder_weight.square().sum(), start.decoder_weight.square().sum())
    (loss + 0.3 * sum(share * size for share, size in zip(shares, sizes, strict=True))).backward()
    for before, after in zip(start.parameters(), model.parameters(), strict=True):
        step = 0.02 * before.grad / (before.grad.abs() + 1e-8)
        assert (before - after).detach().numpy() == pytest.approx(step.numpy(), abs=2e-5)


def test_epochs_are_passes_over_the_users_and_iterations_are_steps(checkerboard):
    by_epochs, history = fitted(checkerboard, quick(epochs=4, validate_every=5))
    by_iterations, _ = fitted(checkerboard, quick(iterations=12, validate_every=5))
    assert weight_bytes(by_epochs) == weight_bytes(by_iterations)
    assert history.iterations == [5, 10, 12]
    assert history.epochs == [1.667, 3.333, 4.0]
    assert len(history.losses) == len(history.seconds) == 3 and history.measures == []


@pytest.mark.parametrize("batch_size", [1, 7, 20, 59, 60, 100])
def test_every_epoch_sees_every_user_once(checkerboard, batch_size):
    settings = quick("mf", batch_size=batch_size, epochs=2).for_data(Shape(60, 20, 300))
    steps, model = loop._Steps(60, settings), build_model(settings.model, 60, 20)
    every_step = [
        one for each in batches.batches(checkerboard, model, settings, 0, range(steps.total)) for one in each.slices
    ]
    assert [batch.iteration for batch in every_step] == list(range(steps.total))
    seen = [batch.inputs.items.tolist() for batch in every_step]
    assert len(seen) == steps.total == 2 * math.ceil(60 / batch_size)
    first, second = (list(chain(*half)) for half in (seen[: steps.per_epoch], seen[steps.per_epoch :]))
    assert sorted(first) == sorted(second) == list(range(60))
    assert first != second


def with_length(**values):
    """A fit with the training settings that are those of no model, but for these."""
    return settings_for("dae", "mil").model_copy(update={"training": TrainingSettings(**values)})


@pytest.mark.parametrize(
    ("n_users", "total", "between"), [(60, 5_000, 50), (10_000, 20_000, 100), (100, 5_000, 50), (101, 5_000, 50)]
)
def test_a_fit_without_a_set_length_is_long_and_validates_once_an_epoch_or_every_50_steps(n_users, total, between):
    steps = loop._Steps(n_users, with_length())
    assert (steps.total, steps.between) == (total, between)
    assert [steps.validates(step) for step in (1, between, between + 1, total)] == [False, True, False, True]


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [0.1, 0.1, 0.1, 0.1, 0.1]),
        ("linear", [0.1, 0.07, 0.065, 0.05, 0.01]),
        ("cosine", [0.1] + [0.05 * (1 + math.cos(math.pi * part)) for part in (0.3, 0.35, 0.5, 0.9)]),
        (
            "one_cycle",
            [0.004, 0.1] + [0.05 * (1 + math.cos(math.pi * (part - 0.3) / 0.7)) for part in (0.35, 0.5, 0.9)],
        ),
        ("inverse_sqrt", [0.0002, 0.0602, 0.0702] + [0.1 * math.sqrt(500 / step) for step in (501, 901)]),
    ],
)
def test_learning_rates_by_value(schedule, rates):
    values = {"iterations": 1000, "learning_rate": 0.1, "schedule": schedule, "warmup": 500}
    steps = loop._Steps(100, with_length(**values))
    assert [steps.learning_rate(step) for step in (0, 300, 350, 500, 900)] == pytest.approx(rates)


def test_one_cycle_rises_steadily_to_its_peak_and_falls_steadily_to_nothing():
    steps = loop._Steps(100, with_length(iterations=1000, learning_rate=0.1, schedule="one_cycle"))
    rates = np.array([steps.learning_rate(step) for step in range(1000)])
    assert (np.diff(rates[:301]) > 0).all() and (np.diff(rates[300:]) < 0).all()
    assert rates.max() == pytest.approx(0.1) and rates[-1] < 1e-6


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "one_cycle", "inverse_sqrt"])
def test_a_fit_that_ends_early_makes_the_first_steps_of_the_whole_one(checkerboard, schedule):
    kept = {}

    def keep(progress):
        if progress.iteration == 4:
            kept.update({name: value.detach().clone() for name, value in model.named_parameters()})

    settings = quick(iterations=10, schedule=schedule)
    model = build_model(settings.model, 60, 20)
    loop.fit(model, checkerboard, settings, 0, Watch(report=keep))
    short = build_model(settings.model, 60, 20)
    history = loop.fit(short, checkerboard, settings.with_values({"until": 4}), 0, Watch())
    assert history.iterations == [4]
    assert all(torch.equal(value, kept[name]) for name, value in short.named_parameters())


def test_a_fit_does_not_go_on_beyond_its_length():
    steps = loop._Steps(100, with_length(iterations=10, until=20))
    assert (steps.last, steps.total) == (10, 10)


def test_the_schedule_sets_the_size_of_the_step(checkerboard):
    start = build_model(quick().model, 60, 20)
    start.initialise(0)
    for schedule, rate in (("constant", 1e-2), ("one_cycle", 4e-4), ("inverse_sqrt", 1e-2 / 200)):
        model, _ = fitted(checkerboard, quick(iterations=1, schedule=schedule))
        moved = (model.decoder_bias - start.decoder_bias).abs()
        assert moved.max().item() == pytest.approx(rate, rel=1e-3)


def test_early_stopping_keeps_the_best_weights(checkerboard):
    measures = iter([0.2, 0.5, 0.4, 0.3, 0.9])
    settings = quick(epochs=100, validate_every=4, patience=2)
    model, history = fitted(checkerboard, settings, validate=lambda model: next(measures))
    assert history.measures == [0.2, 0.5, 0.4, 0.3]
    assert (history.best, history.kept_iteration, history.stopped_early) == (0.5, 8, True)
    best, _ = fitted(checkerboard, quick(iterations=8))
    assert weight_bytes(model) == weight_bytes(best)


def with_singles(data: Interactions, n_singles: int) -> Interactions:
    """The same data and some more users, each with a single item."""
    pairs = data.adopted.tocoo()
    users = np.concatenate([pairs.row, data.n_users + np.arange(n_singles)])
    items = np.concatenate([pairs.col, np.arange(n_singles) % data.n_items])
    return milrec.read(pa.table({"user": users, "item": items}))


def test_users_with_a_single_item_change_nothing_where_they_are_skipped(checkerboard):
    more = with_singles(checkerboard, 30)
    shape = Shape.of(more)
    assert (shape.n_singles, shape.n_single_pairs) == (30, 30)
    without, _ = fitted(checkerboard, quick())
    skipped, _ = fitted(more, quick(skip_singles=True))
    kept, _ = fitted(more, quick(skip_singles=False))
    assert weight_bytes(skipped) == weight_bytes(without) != weight_bytes(kept)


def test_users_with_a_single_item_are_skipped_by_default_where_enough_others_are_left():
    users, items = np.divmod(np.arange(300), 3)  # 100 users with 3 items each
    data = milrec.read(pa.table({"user": users, "item": (users + items) % 20}))
    skipped, _ = fitted(with_singles(data, 30), quick(epochs=1))
    assert weight_bytes(skipped) == weight_bytes(fitted(data, quick(epochs=1))[0])


def test_a_fit_that_would_skip_everybody_is_refused():
    alone = milrec.read(pa.table({"user": [1, 2, 3], "item": [1, 2, 1]}))
    with pytest.raises(FitError, match="too few users have more than one item; set skip_singles=false"):
        fitted(alone, quick(skip_singles=True))
    fitted(alone, quick())


def test_users_with_rejections_alone_are_no_reason_to_skip_all_who_adopted():
    table = pa.table({"user": [1, 2, 3, 4, 4], "item": [1, 2, 1, 2, 3], "rating": [5, 5, 5, 1, 1]})
    data = milrec.read(table, value="rating", adopt_min=4, reject_max=2, min_per_item=0)
    with pytest.raises(FitError, match="too few users"):
        fitted(data, quick(skip_singles=True))


def stops_after(measures, **values):
    """How many of these measures a fit asks for before it stops, or None if it wants more."""
    history, settings = (
        History(),
        quick(**{"validate_every": 50, "slack": 0.002, **values}).for_data(Shape(60, 20, 300)),
    )
    for number, measure in enumerate(measures, start=1):
        history.iterations.append(50 * number)
        history.measures.append(measure)
        if loop._exhausted(history, settings):
            return number
    return None


AVERAGED = {"schedule": "inverse_sqrt", "averaging": 0.15, "warmup": 100, "patience": 4}


def test_a_fit_that_falls_clearly_stops_at_once_where_weights_are_averaged():
    falling = [0.23, 0.30, 0.323, 0.313, 0.289, 0.27]
    assert stops_after(falling, **AVERAGED) == 5
    assert stops_after(falling, **{**AVERAGED, "averaging": 0}) is None


def test_a_fit_whose_last_validations_are_no_better_than_those_before_stops_where_weights_are_averaged():
    level = [0.2659, 0.2653, 0.2663, 0.2667, 0.2645, 0.2662]
    assert stops_after([0.21, 0.24, *level], **AVERAGED) == 8
    assert stops_after([0.21, 0.24, *level], **{**AVERAGED, "averaging": 0}) is None
    assert stops_after([0.21, 0.24, *level], **{**AVERAGED, "patience": 20}) is None
    slow = [0.4730 + 0.0001 * step for step in range(20)]
    assert stops_after(slow, **AVERAGED) is None


@pytest.mark.parametrize(
    "dip",
    [
        [0.0345, 0.0029, 0.0074, 0.0095, 0.0111, 0.0186, 0.0302, 0.0330, 0.04, 0.09, 0.15],
        [0.0345, 0.0029, 0.0074, 0.0070, 0.0111, 0.0186, 0.0302, 0.0330, 0.04, 0.09, 0.15],
        [0.053, 0.040, 0.02, 0.021, 0.03, 0.04, 0.05, 0.06],
    ],
)
@pytest.mark.parametrize("averaging", [0, 0.15])
def test_a_dip_at_the_beginning_does_not_end_a_fit(dip, averaging):
    """What point-wise cross-entropy with shared draws does on citeulike-a from biases of 0."""
    assert stops_after(dip, **{**AVERAGED, "warmup": 150, "averaging": averaging}) is None


def test_without_averaging_patience_alone_decides_and_counts_no_validation_before_the_peak_of_the_learning_rate():
    assert stops_after([0.5, 0.49, 0.48, 0.47, 0.46], patience=3) == 4
    later = {"schedule": "inverse_sqrt", "warmup": 150, "patience": 3}
    assert stops_after([0.5, 0.49, 0.48, 0.47, 0.46, 0.45], **later) == 6


def test_the_first_of_equally_good_weights_is_kept(checkerboard):
    settings = quick(iterations=12, validate_every=4)
    model, history = fitted(checkerboard, settings, validate=lambda model: 0.5)
    assert history.kept_iteration == 4
    assert weight_bytes(model) == weight_bytes(fitted(checkerboard, quick(iterations=4))[0])


def test_without_patience_a_fit_never_stops_early_and_keeps_the_best_weights_all_the_same(checkerboard):
    measures = iter([0.9, 0.1, 0.1, 0.1, 0.1, 0.1])
    settings = quick(iterations=12, validate_every=2, patience=0)
    model, history = fitted(checkerboard, settings, validate=lambda model: next(measures))
    assert (len(history.measures), history.kept_iteration, history.stopped_early) == (6, 2, False)
    assert weight_bytes(model) == weight_bytes(fitted(checkerboard, quick(iterations=2))[0])


def test_without_validation_the_last_weights_stay(checkerboard):
    model, history = fitted(checkerboard, quick(iterations=12, validate_every=2))
    assert history.best is None and history.kept_iteration is None
    assert weight_bytes(model) == weight_bytes(fitted(checkerboard, quick(iterations=12))[0])


def test_progress_is_reported_after_every_step(checkerboard):
    seen: list[Progress] = []
    measures = iter([0.3, 0.1])
    settings = quick(epochs=2, validate_every=3)
    fitted(checkerboard, settings, validate=lambda model: next(measures), report=seen.append)
    assert [progress.iteration for progress in seen] == [1, 2, 3, 4, 5, 6]
    assert {progress.total for progress in seen} == {6}
    assert [round(progress.epoch, 3) for progress in seen] == [0.333, 0.667, 1, 1.333, 1.667, 2]
    assert [progress.measure for progress in seen] == [None, None, 0.3, 0.3, 0.3, 0.1]
    assert seen[-1].best == 0.3
    assert all(math.isfinite(progress.loss) for progress in seen)


BROKEN_FITS = [
    ("dae", "mil", {"target_set": "per_user", "target_factor": 0.5, "schedule": "one_cycle"}),
    ("dae", "multinomial", {"schedule": "linear"}),
    ("cdae", "pointwise", {"target_set": "shared", "target_factor": 0.5}),
    ("vae", "multinomial", {"n_hidden": 9, "annealing_steps": 10}),
    ("mf", "pairwise", {"target_set": "shared", "target_factor": 0.5, "schedule": "cosine"}),
]


@pytest.mark.parametrize("step", [1, 4, 7, 12, 17, 18])
@pytest.mark.parametrize(("model", "loss", "values"), BROKEN_FITS)
def test_an_interrupted_fit_resumes_to_exactly_the_same_weights(checkerboard, tmp_path, model, loss, values, step):
    settings = quick(model, loss, epochs=6, validate_every=4, **values)
    validate = measure("ndcg@10", settings, checkerboard)
    checkpoint = tmp_path / "checkpoint"
    unbroken, history = fitted(checkerboard, settings, seed=7, validate=validate)
    with pytest.raises(KeyboardInterrupt):
        fitted(checkerboard, settings, 7, validate=validate, checkpoint=checkpoint, report=interrupt_at(step))
    resumed, again = fitted(checkerboard, settings, seed=7, validate=validate, checkpoint=checkpoint)
    assert weight_bytes(resumed) == weight_bytes(unbroken)
    assert without_seconds(again) == without_seconds(history)


def test_a_fit_may_be_interrupted_again_and_again(checkerboard, tmp_path):
    settings = quick(target_set="per_user", target_factor=0.5)
    unbroken, _ = fitted(checkerboard, settings)
    for step in range(1, 12):
        with pytest.raises(KeyboardInterrupt):
            fitted(checkerboard, settings, checkpoint=tmp_path / "checkpoint", report=interrupt_at(step))
    resumed, _ = fitted(checkerboard, settings, checkpoint=tmp_path / "checkpoint")
    assert weight_bytes(resumed) == weight_bytes(unbroken)


def test_a_fit_that_was_interrupted_when_it_was_about_to_stop_early_stops_all_the_same(checkerboard, tmp_path):
    settings = quick(iterations=30, validate_every=1, patience=2)
    unbroken_measures, measures = iter([0.5, 0.4, 0.3]), iter([0.5, 0.4, 0.3, 0.9, 0.8, 0.7])
    unbroken, history = fitted(checkerboard, settings, validate=lambda model: next(unbroken_measures))
    options = {"validate": lambda model: next(measures), "checkpoint": tmp_path / "checkpoint"}
    with pytest.raises(KeyboardInterrupt):
        fitted(checkerboard, settings, **options, report=interrupt_at(3))
    resumed, again = fitted(checkerboard, settings, **options)
    assert without_seconds(again) == without_seconds(history)
    assert weight_bytes(resumed) == weight_bytes(unbroken)


def test_a_fit_that_is_interrupted_before_its_first_step_says_so(checkerboard, tmp_path, monkeypatch):
    def interrupted(self, users, iteration, random):
        raise KeyboardInterrupt

    monkeypatch.setattr(batches._BatchMaker, "batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted(checkerboard, quick(), checkpoint=tmp_path / "checkpoint")


KILLED_PROGRAM = """
import json
import sys
from pathlib import Path

import torch

from milrec.data.interactions import Interactions
from milrec.models.known import build_model
from milrec.training.loop import fit
from milrec.training.progress import Watch
from milrec.training.settings import fit_settings

folder, threads = Path(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(threads)
data = Interactions.load(folder / "data")
settings = fit_settings(json.loads((folder / "settings.json").read_text()))
model = build_model(settings.model, data.n_users, data.n_items)
fit(model, data, settings, 7, Watch(checkpoint=folder / "checkpoint"))
"""


def test_a_killed_fit_resumes_to_exactly_the_same_weights(checkerboard, tmp_path):
    values = {"target_set": "per_user", "target_factor": 0.5, "schedule": "cosine", "iterations": 200}
    settings = quick(checkpoint_seconds=0, **values)
    checkerboard.save(tmp_path / "data")
    (tmp_path / "settings.json").write_text(json.dumps(settings.model_dump()))
    command = [sys.executable, "-c", KILLED_PROGRAM, str(tmp_path), str(torch.get_num_threads())]
    with closing(Pause("fit step 30")) as pause, subprocess.Popen(command, env=pause.environment) as process:
        pause.watch(process)
        pause.arrive()
        process.kill()
    with safe_open(tmp_path / "checkpoint", framework="pt") as file:
        assert json.loads(file.metadata()["milrec"])["iteration"] == 30
    steps = []
    resumed, again = fitted(
        checkerboard,
        settings.with_values({"checkpoint_seconds": 30}),
        seed=7,
        checkpoint=tmp_path / "checkpoint",
        report=lambda progress: steps.append(progress.iteration),
    )
    unbroken, history = fitted(checkerboard, settings, seed=7)
    assert steps == list(range(31, 201))
    assert weight_bytes(resumed) == weight_bytes(unbroken)
    assert without_seconds(again) == without_seconds(history)


def test_a_finished_fit_writes_no_checkpoint_of_its_end(checkerboard, tmp_path):
    fitted(checkerboard, quick(iterations=1, checkpoint_seconds=0), checkpoint=tmp_path / "checkpoint")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def unfinished(checkerboard, tmp_path) -> Path:
    """The checkpoint of a fit with seed 7 after 5 of 12 steps."""
    with pytest.raises(KeyboardInterrupt):
        fitted(checkerboard, quick(), seed=7, checkpoint=tmp_path / "checkpoint", report=interrupt_at(5))
    return tmp_path / "checkpoint"


def test_a_checkpoint_of_a_fit_with_another_seed_is_refused(checkerboard, unfinished):
    with pytest.raises(FitError, match="belongs to a fit with other data, settings or seed"):
        fitted(checkerboard, quick(), seed=8, checkpoint=unfinished)


@pytest.mark.parametrize(
    "values",
    [{"learning_rate": 2e-2}, {"epochs": 5}, {"missing_weight": 5e5}, {"target_factor": 51}, {"corruption": 0.4}],
)
def test_a_checkpoint_of_a_fit_with_other_settings_is_refused(checkerboard, unfinished, values):
    with pytest.raises(FitError, match="belongs to a fit with other data, settings or seed"):
        fitted(checkerboard, quick(**values), seed=7, checkpoint=unfinished)


def test_how_often_to_write_does_not_make_it_another_fit(checkerboard, unfinished):
    resumed, _ = fitted(checkerboard, quick(checkpoint_seconds=1000), seed=7, checkpoint=unfinished)
    assert weight_bytes(resumed) == weight_bytes(fitted(checkerboard, quick(), seed=7)[0])


def test_a_checkpoint_of_a_fit_on_other_data_is_refused(checkerboard, unfinished):
    users, items = checkerboard.adopted.nonzero()
    others = {
        "a pair more": milrec.read({"user": [*users, 0], "item": [*items, 1]}),
        "a pair less": milrec.read({"user": users[1:], "item": items[1:]}),
        "another pair": milrec.read({"user": [0, *users[1:]], "item": [1, *items[1:]]}),
        "another weight": milrec.read({"user": users, "item": items, "n": [2] + [1] * 539}, value="n"),
    }
    for other in others.values():
        with pytest.raises(FitError, match="belongs to a fit with other data, settings or seed"):
            fitted(other, quick(), seed=7, checkpoint=unfinished)


def test_a_checkpoint_of_a_fit_in_which_other_users_have_the_same_items_is_refused(tmp_path):
    first = milrec.read({"user": ["a", "a", "b"], "item": ["x", "y", "z"]})
    second = milrec.read({"user": ["a", "b", "b"], "item": ["x", "y", "z"]})
    with pytest.raises(KeyboardInterrupt):
        fitted(first, quick(), checkpoint=tmp_path / "checkpoint", report=interrupt_at(2))
    with pytest.raises(FitError, match="belongs to a fit with other data, settings or seed"):
        fitted(second, quick(), checkpoint=tmp_path / "checkpoint")


def test_a_checkpoint_of_a_fit_with_other_rejections_is_refused(tmp_path):
    rows = {"user": ["a", "a", "b", "b"], "item": ["x", "y", "y", "x"]}
    first = milrec.read({**rows, "stars": [5, 5, 5, 1]}, value="stars", adopt_min=4, reject_max=2)
    second = milrec.read({**rows, "stars": [5, 5, 5, 3]}, value="stars", adopt_min=4, reject_max=2)
    with pytest.raises(KeyboardInterrupt):
        fitted(first, quick(), checkpoint=tmp_path / "checkpoint", report=interrupt_at(2))
    with pytest.raises(FitError, match="belongs to a fit with other data, settings or seed"):
        fitted(second, quick(), checkpoint=tmp_path / "checkpoint")


@pytest.mark.parametrize("damage", ["empty", "cut short", "header", "no safetensors", "without metadata"])
def test_a_damaged_checkpoint_is_refused(checkerboard, unfinished, damage):
    whole = unfinished.read_bytes()
    if damage == "without metadata":
        save_file({"weight": torch.zeros(2)}, unfinished)
    else:
        contents = {
            "empty": b"",
            "cut short": whole[: len(whole) // 2],
            "header": b"\xff" * 8 + whole[8:],
            "no safetensors": b"PK\x03\x04" + bytes(500),
        }
        unfinished.write_bytes(contents[damage])
    with pytest.raises(FitError, match=r"checkpoint '.*' cannot be read"):
        fitted(checkerboard, quick(), seed=7, checkpoint=unfinished)


def test_a_checkpoint_with_a_flipped_byte_among_its_weights_is_refused(checkerboard, unfinished):
    damaged = bytearray(unfinished.read_bytes())
    damaged[-2] ^= 0x40
    unfinished.write_bytes(damaged)
    with pytest.raises(FitError, match="checkpoint"):
        fitted(checkerboard, quick(), seed=7, checkpoint=unfinished)


def rewritten(path: Path, change_state=lambda state: state, change_tensors=lambda tensors: tensors) -> None:
    with safe_open(path, framework="pt") as file:
        state = json.loads(file.metadata()["milrec"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    tensors = change_tensors(tensors)
    text = json.dumps(change_state(state))
    save_file(tensors, path, metadata={"milrec": text, "sha256": checkpoints._digest(text, tensors)})


def test_no_flipped_bit_of_what_a_checkpoint_says_changes_what_is_read(unfinished):
    """`"iteration": 5` became 4 or 7, and the fit ended with another model."""
    whole = unfinished.read_bytes()
    first, _ = checkpoints._read_whole(unfinished)
    header = 8 + int.from_bytes(whole[:8], "little")
    assert b"iteration" in whole[:header] and first.iteration == 5
    refused = 0
    for place in range(header):
        unfinished.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        try:
            found, _ = checkpoints._read_whole(unfinished)
        except Exception:
            refused += 1
            continue
        assert found == first, whole[place - 20 : place + 1]
    assert refused > 0.9 * header  # white space at the end may be anything


def test_a_flipped_bit_of_the_iteration_is_refused_with_one_sentence(checkerboard, unfinished):
    whole = unfinished.read_bytes()
    assert whole.count(b'\\"iteration\\": 5') == 1
    unfinished.write_bytes(whole.replace(b'\\"iteration\\": 5', b'\\"iteration\\": 4'))
    with pytest.raises(FitError, match=r"cannot be read \(it has changed since it was written: its hash differs\)"):
        fitted(checkerboard, quick(), seed=7, checkpoint=unfinished)


def test_a_checkpoint_of_0_1_0_is_refused_by_name(checkerboard, unfinished):
    """Its hash is among the rest of the state."""
    with safe_open(unfinished, framework="pt") as file:
        state = json.loads(file.metadata()["milrec"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    save_file(tensors, unfinished, metadata={"milrec": json.dumps({**state, "sha256": "0"})})
    with pytest.raises(FitError, match=r"cannot be read \(it was written by milrec 0.1.0\); delete it to start over"):
        fitted(checkerboard, quick(), seed=7, checkpoint=unfinished)


@pytest.mark.parametrize("what", ["best", "average"])
def test_kept_weights_of_another_shape_are_refused(checkerboard, tmp_path, what):
    settings, path = quick(averaging=0.5, validate_every=5), tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        fitted(checkerboard, settings, checkpoint=path, report=interrupt_at(11), validate=lambda model: 0.5)
    rewritten(path, change_tensors=lambda own: {**own, f"{what}.decoder_bias": torch.zeros(1)})
    with pytest.raises(FitError, match=f"does not match the model: '{what}.decoder_bias' has another shape"):
        fitted(checkerboard, settings, checkpoint=path)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: [state],
        lambda state: {key: value for key, value in state.items() if key != "iteration"},
        lambda state: {**state, "history": {**state["history"], "mood": "good"}},
        lambda state: {**state, "loss_sum": "much"},
        lambda state: {**state, "iteration": "five"},
        lambda state: {**state, "iteration": -1},
        lambda state: {**state, "loss_sum": "nan"},
        lambda state: {**state, "history": {**state["history"], "kept_iteration": 3}},
    ],
    ids=["a list", "without iteration", "foreign history", "no number", "a text", "before the start", "nan", "unknown"],
)
def test_a_checkpoint_whose_state_is_not_understood_is_refused(checkerboard, unfinished, change):
    rewritten(unfinished, change_state=change)
    with pytest.raises(FitError, match="checkpoint"):
        fitted(checkerboard, quick(), seed=7, checkpoint=unfinished)


@pytest.mark.parametrize(
    ("kind", "instead"),
    [("weight", {}), ("mean", {}), ("square", {}), ("last", {}), ("weight", {"weight.decoder_bias": torch.zeros(3)})],
    ids=["without a weight", "without a mean", "without a square", "without a last step", "of another shape"],
)
def test_a_checkpoint_that_does_not_fit_the_model_is_refused(checkerboard, unfinished, kind, instead):
    name = f"{kind}.decoder_bias"
    rewritten(unfinished, change_tensors=lambda own: {key: own[key] for key in own if key != name} | instead)
    with pytest.raises(FitError, match=f"does not match the model: '{name}' is missing or has another shape"):
        fitted(checkerboard, quick(), seed=7, checkpoint=unfinished)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("iterations", [1, 12])
@pytest.mark.parametrize("rate", [1e6, 1e30, 3e38])
@pytest.mark.parametrize(("model", "loss"), [("dae", "mil"), ("mf", "square"), ("dae", "multinomial")])
def test_a_fit_that_diverges_says_so_or_ends_with_finite_weights(checkerboard, model, loss, rate, iterations, engine):
    settings = quick(model, loss, iterations=iterations, learning_rate=rate, engine=engine)
    try:
        model, history = fitted(checkerboard, settings)
    except FitError:
        return
    assert all(value.isfinite().all() for value in model.parameters())
    assert np.isfinite(history.losses).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_learning_rate_that_single_precision_does_not_have_is_an_error_with_a_sentence(checkerboard, engine):
    with pytest.raises(MilrecError, match="learning_rate"):
        fitted(checkerboard, quick(learning_rate=1e39, engine=engine))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_fit_that_diverges_says_what_to_do(checkerboard, engine):
    with pytest.raises(FitError, match=r"the loss became (nan|inf); lower learning_rate \(now 1e\+30\)"):
        fitted(checkerboard, quick("mf", "square", learning_rate=1e30, engine=engine))


@pytest.mark.parametrize("end", ["well", "interrupted", "failed"])
def test_no_thread_is_left_behind(checkerboard, end):
    def report(progress):
        if end != "well" and progress.iteration == 3:
            raise KeyboardInterrupt if end == "interrupted" else ValueError

    try:
        fitted(checkerboard, quick(), report=report)
    except (KeyboardInterrupt, ValueError):
        assert end != "well"
    assert "milrec-batches" not in {thread.name for thread in threading.enumerate()}


def test_an_error_while_a_batch_is_prepared_is_raised_by_the_fit(checkerboard, monkeypatch):
    def failing(self, users, iteration, random):
        raise MemoryError("no room for a batch")

    monkeypatch.setattr(batches._BatchMaker, "batch", failing)
    with pytest.raises(MemoryError, match="no room for a batch"):
        fitted(checkerboard, quick())


@pytest.mark.parametrize("device", ["tpu", "mps", "meta"])
def test_a_device_that_is_not_known_is_an_error_that_lists_the_known(checkerboard, device):
    with pytest.raises(SettingsError, match=f"'{device}'.*auto, cpu, cuda"):
        fitted(checkerboard, quick(device=device))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_refused_and_auto_does_without(checkerboard):
    with pytest.raises(SettingsError, match="device 'cuda' is not available on this machine; set device=cpu"):
        fitted(checkerboard, quick(device="cuda"))
    auto, _ = fitted(checkerboard, quick(device="auto"))
    assert weight_bytes(auto) == weight_bytes(fitted(checkerboard, quick())[0])


@pytest.mark.parametrize("model", ["dae", "popularity"])
def test_settings_know_how_their_model_is_fitted(checkerboard, model):
    """Only those of a fit by gradient descent lead here: others have no training that this loop could read."""
    settings = quick() if model == "dae" else settings_for(model)
    own = settings.new_model(checkerboard.n_users, checkerboard.n_items, 0)
    history = settings.fit(own, checkerboard, 0, Watch())
    assert (history is None) == (settings.training is None) == (model == "popularity")
    if model == "dae":
        assert weight_bytes(own) == weight_bytes(fitted(checkerboard, settings)[0])
    else:
        assert own.decoder_bias.tolist() == checkerboard.popularity().tolist()
