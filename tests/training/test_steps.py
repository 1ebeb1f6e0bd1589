"""The readable and the fast step side by side: the same batches lead to the same weights, and whole fits agree."""

from dataclasses import asdict

import numpy as np
import pytest
import torch

from milrec.data.splits import split_interactions
from milrec.errors import FitError, SettingsError
from milrec.evaluation.validation import validation_measure
from milrec.kernels.threads import thread_pool
from milrec.models.known import build_model
from milrec.training import loop
from milrec.training.batches import batches
from milrec.training.loop import fit
from milrec.training.presets import settings_for
from milrec.training.progress import Watch
from milrec.training.steps import adam
from milrec.training.steps.adam import Adam
from milrec.training.steps.fast import FastStep
from milrec.training.steps.readable import ReadableStep
from milrec.training.steps.step import Step

RATE, N_STEPS = 1e-2, 5
QUICK = {"n_factors": 6, "batch_size": 40, "learning_rate": RATE, "schedule": "constant", "iterations": N_STEPS}
TARGET_SETS = ("per_user", "shared", "expectation", "all")
TERM = {"rejected_as": "rejected"}  # by default MIL takes rejections for missing
ODD = {**TERM, "missing_weight": 50, "missing_exponent": 2.5, "adopted_exponent": 2.3, "rejected_exponent": 1.7}
LOSSES: list[tuple[str, dict]] = [
    ("square", {"decoder": "linear"}),
    ("square", {"decoder": "sigmoid"}),
    ("pointwise", {}),
    ("pairwise", {}),
    ("pairwise", {"decoder": "linear"}),
    ("mil", TERM),
    ("mil", ODD),
]
CASES = [
    *((loss, {**values, "target_set": name, "target_factor": 2}) for loss, values in LOSSES for name in TARGET_SETS),
    ("square", {"target_set": "all", "confidence": 5}),
    ("pointwise", {"target_set": "all", "confidence": 5}),
    ("multinomial", {}),
    ("mil", {"target_set": "expectation", "start_bias": "rest"}),  # touches only the rows that are read
    ("mil", {**ODD, "rejected_weight": 0.3, "target_set": "expectation"}),
]
MODELS = pytest.mark.parametrize("model", ["dae", "cdae", "mf"])
VAE = {"n_hidden": 7, "annealing_cap": 0.5, "annealing_steps": 3}


@pytest.fixture(autouse=True)
def rounding_stays_small(monkeypatch):
    """Where the parts of a gradient cancel, rounding is all that is left of it, and Adam would make a whole step of
    that. With an ε far above rounding it does not.
    """
    monkeypatch.setattr(adam, "EPSILON", 1e-5)


def name_of(value):
    return "-".join(str(own) for own in value.values()) or "plain" if isinstance(value, dict) else value


def settings_of(model, loss, values):
    return settings_for(model, loss, {**QUICK, **values})


def stepped(engine, data, settings, n_steps=N_STEPS, number=1, scale=1.0):
    """(model, optimiser, losses) after some steps from weights that are the same for both engines."""
    model = build_model(settings.model, data.n_users, data.n_items)
    model.initialise(3)
    model.meet(data.popularity())
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(scale)
    optimiser = Adam(dict(model.named_parameters()))
    with thread_pool(number) as pool:
        step: Step = ReadableStep(model, settings, optimiser)
        if engine == "fast":
            step = FastStep(model, settings, optimiser, pool)
        losses = [step(one.slices[0], RATE) for one in batches(data, model, settings, 3, range(n_steps))]
    assert optimiser.step == n_steps
    return model, optimiser, losses


def assert_same_steps(data, settings, scale=1.0):
    readable, its_optimiser, its_losses = stepped("readable", data, settings, scale=scale)
    fast, optimiser, losses = stepped("fast", data, settings, scale=scale)
    assert losses == pytest.approx(its_losses, rel=2e-5)
    start, _, _ = stepped("fast", data, settings, n_steps=0, scale=scale)
    for (name, own), other, begin in zip(
        fast.named_parameters(), readable.parameters(), start.parameters(), strict=True
    ):
        apart, moved = (own - other).abs().detach(), (other - begin).abs().max().item()
        assert moved > RATE / 2, name
        mean, its_mean = optimiser.mean[name], its_optimiser.mean[name]
        assert apart.max().item() < 2e-2 * RATE, name
        assert apart.quantile(0.99).item() < 2e-4 * moved, name
        assert (mean - its_mean).abs().max() <= 1e-3 * its_mean.abs().max(), name
        assert torch.equal(optimiser.last[name], its_optimiser.last[name]), name


@MODELS
@pytest.mark.parametrize(("loss", "values"), CASES, ids=name_of)
def test_the_fast_step_is_the_readable_one(small_catalogue, model, loss, values):
    assert_same_steps(small_catalogue, settings_of(model, loss, values))


@MODELS
@pytest.mark.parametrize(("loss", "values"), CASES, ids=name_of)
def test_the_fast_step_is_the_readable_one_where_nothing_was_rejected(checkerboard, model, loss, values):
    assert_same_steps(checkerboard, settings_of(model, loss, {**values, "batch_size": 13}))


@MODELS
@pytest.mark.parametrize("encoder", ["linear", "sigmoid", "tanh", "relu"])
@pytest.mark.parametrize("target_set", ["shared", "expectation"])
def test_the_fast_step_is_the_readable_one_whatever_the_encoder(small_catalogue, model, encoder, target_set):
    values = {"encoder": encoder, "target_set": target_set, "target_factor": 2}
    assert_same_steps(small_catalogue, settings_of(model, "pointwise", values), scale=3)


@pytest.mark.parametrize("values", [{}, {"weight_decay_form": "popularity", "weight_decay": 0.3}], ids=name_of)
@pytest.mark.parametrize("target_set", ["shared", "expectation"])
def test_the_fast_step_is_the_readable_one_where_rejections_are_read(small_catalogue, target_set, values):
    values = {"reads_rejected": True, "target_set": target_set, "target_factor": 2, **values}
    assert_same_steps(small_catalogue, settings_of("dae", "mil", values))


@pytest.mark.parametrize("model", ["dae", "cdae"])
@pytest.mark.parametrize(
    "values",
    [{"corruption": 0}, {"corruption": 0.9}, {"input_weights": "counts"}, {"input_weights": "log"}],
    ids=name_of,
)
def test_the_fast_step_is_the_readable_one_whatever_the_encoder_sees(small_catalogue, model, values):
    assert_same_steps(small_catalogue, settings_of(model, "square", {"target_set": "all", **values}))


@pytest.mark.parametrize("data", ["small_catalogue", "checkerboard"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"corruption": 0},
        {"corruption": 0.9, "input_weights": "log"},
        {"annealing_cap": 0},
        {"annealing_cap": 5, "annealing_steps": 1},
        {"n_factors": 1, "n_hidden": 30},
        {"weight_decay": 2.0},
        {"weight_decay": 2.0, "weight_decay_form": "scaled"},
        {"weight_decay": 2.0, "weight_decay_form": "popularity", "user_exponent": 0.5},
    ],
    ids=name_of,
)
def test_the_fast_step_of_a_variational_autoencoder_is_the_readable_one(request, data, values):
    settings = settings_of("vae", "multinomial", {**VAE, "batch_size": 13, **values})
    assert_same_steps(request.getfixturevalue(data), settings, scale=2)


@MODELS
@pytest.mark.parametrize("target_set", ["shared", "all"])
@pytest.mark.parametrize("form", ["plain", "scaled"])
def test_the_fast_step_is_the_readable_one_with_much_weight_decay(small_catalogue, model, target_set, form):
    values = {"target_set": target_set, "target_factor": 1, "weight_decay": 2.0, "weight_decay_form": form}
    assert_same_steps(small_catalogue, settings_of(model, "square", values))


@pytest.mark.parametrize("target_set", TARGET_SETS)
@pytest.mark.parametrize("loss", ["square", "pointwise", "pairwise", "mil"])
def test_the_fast_step_is_the_readable_one_where_popular_items_decay_more_and_short_users_count_more(
    small_catalogue, loss, target_set
):
    values = {"weight_decay": 2.0, "weight_decay_form": "popularity", "user_exponent": 0.5}
    assert_same_steps(
        small_catalogue, settings_of("dae", loss, {"target_set": target_set, "target_factor": 2, **values})
    )


@MODELS
@pytest.mark.parametrize("engine", ["fast", "readable"])
@pytest.mark.parametrize("loss", ["square", "pointwise", "pairwise", "mil"])
def test_a_sampled_step_leaves_the_bytes_of_other_rows_alone(small_catalogue, model, engine, loss):
    values = {"target_set": "shared", "target_factor": 0.5, "batch_size": 3, "weight_decay": 1.0}
    settings = settings_of(model, loss, values)
    assert settings.samples
    before, _, _ = stepped(engine, small_catalogue, settings, n_steps=0)
    after, optimiser, _ = stepped(engine, small_catalogue, settings, n_steps=1)
    (batch,) = next(batches(small_catalogue, after, settings, 3, range(1))).slices
    targets = batch.targets
    decoder = np.unique(np.concatenate([targets.items, targets.adopted.items, targets.rejected.items]))
    touched = {"encoder_weight": np.unique(batch.inputs.items), "decoder_weight": decoder, "decoder_bias": decoder}
    for name, rows in touched.items():
        was, own = (dict(one.named_parameters())[name].detach().numpy() for one in (before, after))
        others = np.setdiff1d(np.arange(len(was)), rows)
        assert len(others)
        assert own[others].tobytes() == was[others].tobytes()
        assert np.flatnonzero(optimiser.last[name].numpy()).tolist() == rows.tolist()
        for part in (optimiser.mean, optimiser.square):
            assert not part[name][others].any()


@MODELS
@pytest.mark.parametrize("target_set", ["per_user", "expectation", "all"])
def test_a_step_that_is_not_sampled_touches_every_row(small_catalogue, model, target_set):
    settings = settings_of(model, "square", {"target_set": target_set, "target_factor": 1})
    _, optimiser, _ = stepped("fast", small_catalogue, settings, n_steps=2)
    assert not settings.samples
    assert all((last == 2).all() for last in optimiser.last.values())


def fitted(data, settings, seed=7, **options):
    model = build_model(settings.model, data.n_users, data.n_items)
    return model, fit(model, data, settings, seed, Watch(**options))


def weight_bytes(model) -> bytes:
    return b"".join(value.detach().numpy().tobytes() for value in model.parameters())


def without_seconds(history):
    return {key: value for key, value in asdict(history).items() if key != "seconds"}


FITS = [
    ("dae", "mil", {"target_set": "per_user", "target_factor": 2}),
    ("dae", "mil", {"target_set": "shared", "target_factor": 2}),
    ("dae", "pairwise", {"target_set": "shared", "target_factor": 2}),
    ("dae", "pairwise", {"target_set": "all"}),
    ("dae", "multinomial", {}),
    ("cdae", "pointwise", {"target_set": "expectation"}),
    ("cdae", "mil", {"target_set": "shared", "target_factor": 2}),
    ("vae", "multinomial", VAE),
    ("mf", "square", {"target_set": "expectation"}),
]


@pytest.mark.parametrize(("model", "loss", "values"), FITS, ids=name_of)
def test_a_fast_fit_gives_the_same_bytes_run_to_run_and_for_any_number_of_threads(small_catalogue, model, loss, values):
    settings = settings_of(model, loss, {**values, "engine": "fast", "iterations": 20, "validate_every": 10})
    runs = [
        fitted(small_catalogue, settings.with_values({"threads": threads}), validate=lambda model: 0.0)
        for threads in (1, 2, 2, 3)
    ]
    assert len({weight_bytes(model) for model, _ in runs}) == 1
    assert all(without_seconds(history) == without_seconds(runs[0][1]) for _, history in runs)


@pytest.mark.parametrize("values", [{"target_set": "shared", "target_factor": 0.5}, {"target_set": "all"}], ids=name_of)
@pytest.mark.parametrize("loss", ["square", "mil"])
def test_a_fast_fit_without_rejections_gives_the_same_bytes_for_any_number_of_threads(checkerboard, loss, values):
    settings = settings_of("dae", loss, {**values, "engine": "fast", "iterations": 20, "batch_size": 30})
    runs = [fitted(checkerboard, settings.with_values({"threads": threads}))[0] for threads in (1, 2, 2, 3)]
    assert len({weight_bytes(model) for model in runs}) == 1


@pytest.mark.parametrize(
    ("model", "loss", "values"),
    [
        ("dae", "mil", {"target_set": "expectation"}),
        ("dae", "pointwise", {"target_set": "shared", "target_factor": 3}),
        ("dae", "multinomial", {}),
        ("cdae", "pointwise", {"target_set": "expectation"}),
        ("vae", "multinomial", VAE),
        ("mf", "square", {"target_set": "per_user", "target_factor": 3}),
    ],
    ids=name_of,
)
def test_fast_and_readable_fits_come_to_nearly_the_same_measures(small_catalogue, model, loss, values):
    split = split_interactions(small_catalogue, seed=0)
    length = {"iterations": 60, "validate_every": 20, "patience": 0}
    histories = []
    for engine in ("fast", "readable"):
        settings = settings_of(model, loss, {**values, **length, "engine": engine, "threads": 1})
        validate = validation_measure("ndcg@20", settings, split.train, split.validation)
        histories.append(fitted(split.train, settings, validate=validate)[1])
    fast, readable = histories
    assert fast.losses == pytest.approx(readable.losses, rel=2e-3)
    assert fast.measures == pytest.approx(readable.measures, abs=0.01)
    assert fast.measures[0] > 0


def test_the_cpu_is_fitted_by_the_fast_engine_by_default(checkerboard):
    values = {"target_set": "all"}
    unset, fast, readable = (
        weight_bytes(fitted(checkerboard, settings_of("dae", "mil", {**values, **more}))[0])
        for more in ({}, {"engine": "fast"}, {"engine": "readable"})
    )
    assert unset == fast != readable


def test_the_fast_engine_is_refused_on_a_gpu_with_a_sentence():
    settings = settings_of("dae", "mil", {"engine": "fast", "device": "cuda"})
    before = torch.get_num_threads()
    with (
        pytest.raises(SettingsError, match="engine 'fast' is compiled for the CPU; leave engine out to fit on a GPU"),
        loop._stepping(None, settings, torch.device("cuda")),
    ):
        pass
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("engine", ["fast", "readable"])
def test_torch_has_as_many_threads_after_a_fit_as_before(checkerboard, engine):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        fitted(checkerboard, settings_of("dae", "mil", {"engine": engine, "threads": 1, "target_set": "all"}))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def interrupt_at(step):
    def report(progress):
        if progress.iteration == step:
            raise KeyboardInterrupt

    return report


@pytest.mark.parametrize("step", [3, 13])
@pytest.mark.parametrize("engine", ["fast", "readable"])
@pytest.mark.parametrize(
    ("model", "loss", "values"),
    [
        ("dae", "mil", {"target_set": "shared", "target_factor": 0.3}),
        ("mf", "pairwise", {"target_set": "shared", "target_factor": 0.3}),
        ("dae", "multinomial", {}),
        ("cdae", "pointwise", {"target_set": "shared", "target_factor": 0.3}),
        ("vae", "multinomial", {**VAE, "annealing_steps": 17}),
    ],
    ids=name_of,
)
def test_a_resumed_fit_with_averaging_ends_with_exactly_the_same_weights(
    checkerboard, tmp_path, model, loss, values, engine, step
):
    length = {"iterations": 24, "validate_every": 6, "patience": 0, "batch_size": 13}
    more = {"averaging": 0.15, "weight_decay": 0.1, "schedule": "inverse_sqrt", "engine": engine, "threads": 1}
    settings = settings_of(model, loss, {**values, **length, **more})

    def validate(model):
        """A measure that depends on the weights, and falls and rises."""
        return float(model.decoder_weight.detach().double().mul(1000).sin().sum())

    unbroken, history = fitted(checkerboard, settings, validate=validate)
    path = tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        fitted(checkerboard, settings, validate=validate, checkpoint=path, report=interrupt_at(step))
    resumed, again = fitted(checkerboard, settings, validate=validate, checkpoint=path)
    assert weight_bytes(resumed) == weight_bytes(unbroken)
    assert without_seconds(again) == without_seconds(history)


@pytest.mark.parametrize("target_set", ["shared", "all"])
def test_a_resumed_fit_without_validation_ends_with_the_same_mean_of_its_weights(checkerboard, tmp_path, target_set):
    values = {"target_set": target_set, "target_factor": 0.3, "averaging": 0.5, "iterations": 24, "threads": 1}
    settings = settings_of("dae", "mil", values)
    unbroken, _ = fitted(checkerboard, settings)
    for step in (4, 12, 20):
        with pytest.raises(KeyboardInterrupt):
            fitted(checkerboard, settings, checkpoint=tmp_path / "checkpoint", report=interrupt_at(step))
    resumed, _ = fitted(checkerboard, settings, checkpoint=tmp_path / "checkpoint")
    assert weight_bytes(resumed) == weight_bytes(unbroken)
    last, _ = fitted(checkerboard, settings.with_values({"averaging": 0}))
    assert weight_bytes(last) != weight_bytes(unbroken)


@pytest.mark.parametrize(
    ("model", "loss", "values"),
    [
        ("dae", "mil", {}),
        ("dae", "square", {}),
        ("dae", "pairwise", {}),
        ("dae", "pointwise", {}),
        ("mf", "pointwise", {}),
        ("dae", "pairwise", {"difference": "preferences"}),
        ("dae", "multinomial", {}),
        ("cdae", "pointwise", {}),
        ("vae", "multinomial", VAE),
    ],
    ids=name_of,
)
def test_a_fast_fit_whose_weights_are_no_numbers_says_so(small_catalogue, model, loss, values):
    settings = settings_of(model, loss, {**values, "learning_rate": 1e30, "iterations": 12, "engine": "fast"})
    with pytest.raises(FitError, match="lower learning_rate"):
        fitted(small_catalogue, settings)


@pytest.mark.parametrize("engine", ["fast", "readable"])
def test_the_largest_learning_rate_that_there_is_diverges_with_a_sentence(checkerboard, engine):
    settings = settings_of("dae", "mil", {"learning_rate": 3e38, "engine": engine, "iterations": 12})
    with pytest.raises(FitError, match=r"lower (learning_rate|it)"):
        fitted(checkerboard, settings)
