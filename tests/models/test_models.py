"""Models: how they start, what they compute on two factors and three items, and what is added to their loss."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from milrec.kernels.sparse import Rows
from milrec.models.autoencoders import DenoisingAutoencoder
from milrec.models.contract import ROWS
from milrec.models.factorization import MatrixFactorization
from milrec.models.inputs import Users, corrupted, unit_rows, with_entry
from milrec.models.known import build_model
from milrec.models.popularity import Popularity
from milrec.models.settings import AutoencoderSettings, FactorizationSettings, PopularitySettings
from milrec.training.presets import settings_for
from milrec.training.steps.adam import Decay
from milrec.training.steps.step import decay_slopes

ACTIVATIONS = {
    "linear": lambda x: x,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
    "relu": lambda x: max(x, 0.0),
}
ENCODER = [[1.0, -2.0], [0.5, 0.0], [-1.0, 3.0]]
DECODER = [[2.0, 1.0], [-1.0, 0.5], [0.0, -1.0]]
ENCODER_BIAS, DECODER_BIAS = [0.1, -0.2], [0.3, 0.0, -0.5]


def with_weights(model, encoder=ENCODER):
    values = {
        "encoder_weight": encoder,
        "encoder_bias": ENCODER_BIAS,
        "decoder_weight": DECODER,
        "decoder_bias": DECODER_BIAS,
    }
    model.load_state_dict({name: torch.tensor(value) for name, value in values.items()})
    return model


def rows(dense) -> Rows:
    """Sparse rows of a plain matrix."""
    matrix = csr_array(np.asarray(dense, dtype=np.float32))
    return Rows.of(matrix, np.arange(matrix.shape[0]))


def one_hot(users) -> Rows:
    """What a matrix factorization reads: the numbers of users."""
    return with_entry(Rows.none(len(users)), np.array(users))


def encoded(model, inputs: Rows):
    return model.latent(model.enter(inputs))


@pytest.mark.parametrize("encoder", ACTIVATIONS)
@pytest.mark.parametrize("decoder", ["linear", "sigmoid"])
def test_an_autoencoder_by_hand(encoder, decoder):
    model = with_weights(DenoisingAutoencoder(AutoencoderSettings(n_factors=2, encoder=encoder, decoder=decoder), 3))
    s, s_out = ACTIVATIONS[encoder], ACTIVATIONS[decoder]
    latent = encoded(model, rows([[0.6, 0.0, 0.8], [0.0, 0.0, 0.0]]))
    first = [s(0.6 * 1.0 + 0.8 * -1.0 + 0.1), s(0.6 * -2.0 + 0.8 * 3.0 - 0.2)]
    nothing = [s(0.1), s(-0.2)]
    assert latent.tolist() == [pytest.approx(first), pytest.approx(nothing)]
    logits = model.decode(latent)
    for row, (one, two) in zip(logits.tolist(), (first, nothing), strict=True):
        assert row == pytest.approx([2 * one + two + 0.3, -one + 0.5 * two, -two - 0.5])
    assert model.preference(logits).tolist() == [pytest.approx([s_out(x) for x in row]) for row in logits.tolist()]


@pytest.mark.parametrize("encoder", ACTIVATIONS)
def test_a_matrix_factorization_by_hand(encoder):
    settings = FactorizationSettings(n_factors=2, encoder=encoder)
    model = with_weights(MatrixFactorization(settings, 2, 3), encoder=ENCODER[:2])
    s = ACTIVATIONS[encoder]
    latent = encoded(model, one_hot([1, 0, 1]))
    one, two = [s(0.6), s(-0.2)], [s(1.1), s(-2.2)]
    assert latent.tolist() == [pytest.approx(one), pytest.approx(two), pytest.approx(one)]
    expected = [2 * one[0] + one[1] + 0.3, -one[0] + 0.5 * one[1], -one[1] - 0.5]
    logits = model.decode(latent)
    assert logits[0].tolist() == pytest.approx(expected)
    assert model.preference(logits)[0].tolist() == pytest.approx([1 / (1 + math.exp(-x)) for x in expected])


def test_an_autoencoder_that_sees_one_hot_users_is_a_matrix_factorization():
    autoencoder = with_weights(DenoisingAutoencoder(AutoencoderSettings(n_factors=2), 3))
    factorization = with_weights(MatrixFactorization(FactorizationSettings(n_factors=2), 3, 3))
    assert torch.equal(encoded(autoencoder, rows(np.eye(3))), encoded(factorization, one_hot([0, 1, 2])))


def test_popularity_gives_everybody_the_same_logits():
    model = Popularity(3)
    with torch.no_grad():
        model.decoder_bias.copy_(torch.tensor([5.0, 1.0, 2.0]))
    logits = torch.full((ROWS, 3), np.nan)
    model.write_logits(Users(rows(np.ones((2, 3))), Rows.none(2), None), logits)
    assert logits[:2].tolist() == [[5, 1, 2], [5, 1, 2]]


def test_models_are_built_in_the_right_kind_and_shape_and_start_at_zero():
    autoencoder = build_model(AutoencoderSettings(n_factors=2), 5, 7)
    factorization = build_model(FactorizationSettings(n_factors=2), 5, 7)
    popularity = build_model(PopularitySettings(), 5, 7)
    shapes = [{name: tuple(value.shape) for name, value in model.named_parameters()} for model in
              (autoencoder, factorization, popularity)]  # fmt: skip
    rest = {"encoder_bias": (2,), "decoder_weight": (7, 2), "decoder_bias": (7,)}
    assert shapes == [{"encoder_weight": (7, 2), **rest}, {"encoder_weight": (5, 2), **rest}, {"decoder_bias": (7,)}]
    assert not any(value.any() for model in (autoencoder, factorization) for value in model.parameters())


@pytest.mark.parametrize("kind", ["dae", "mf"])
def test_weights_start_uniform_within_glorots_limits(kind):
    settings = {"dae": AutoencoderSettings, "mf": FactorizationSettings}[kind](n_factors=30)
    model = build_model(settings, 500, 400)
    model.initialise(0)
    for weight in (model.encoder_weight, model.decoder_weight):
        assert isinstance(weight, torch.Tensor)
        limit = math.sqrt(6 / (weight.shape[0] + weight.shape[1]))
        assert weight.abs().max().item() <= limit
        assert weight.abs().max().item() > 0.99 * limit
        assert weight.mean().item() == pytest.approx(0, abs=0.03 * limit)
        assert weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.02)


def test_biases_start_from_a_truncated_normal_with_a_spread_of_a_thousandth():
    model = build_model(AutoencoderSettings(n_factors=2000), 5, 8000)
    model.initialise(0)
    for bias in (model.encoder_bias, model.decoder_bias):
        assert bias.abs().max().item() <= 2e-3  # two standard deviations, as TensorFlow truncates
        assert bias.mean().item() == pytest.approx(0, abs=1e-4)
        assert bias.std().item() == pytest.approx(0.88e-3, rel=0.05)  # of a normal cut at two deviations


def test_the_same_seed_starts_with_the_same_weights_and_another_does_not():
    models = [build_model(AutoencoderSettings(n_factors=3), 5, 7) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        model.initialise(seed)
    weights = [torch.cat([value.flatten() for value in model.parameters()]) for model in models]
    assert torch.equal(weights[0], weights[1])
    assert not torch.isclose(weights[0], weights[2]).all()


def test_starting_weights_do_not_touch_the_global_generator():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    build_model(AutoencoderSettings(n_factors=3), 5, 7).initialise(1)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("weights", "row"),
    [
        ("binary", [1 / math.sqrt(2), 0, 1 / math.sqrt(2)]),
        ("counts", [0.6, 0, 0.8]),
        ("log", [math.log(4) / math.hypot(math.log(4), math.log(5)), 0,
                 math.log(5) / math.hypot(math.log(4), math.log(5))]),
    ],
)  # fmt: skip
def test_the_encoder_sees_rows_of_length_1(weights, row):
    inputs = unit_rows(rows([[3, 0, 4], [0, 0, 0], [0, 9, 0]]), weights)
    assert inputs.values.dtype == np.float32
    assert inputs.dense(3).tolist() == [pytest.approx(row), [0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("weights", ["binary", "counts", "log"])
def test_the_encoder_sees_no_nan_whatever_the_counts_are(weights):
    random = np.random.default_rng(0)
    counts = (random.random((50, 20)) < 0.2) * np.exp(random.normal(0, 12, (50, 20)))
    counts[7] = 0
    inputs = unit_rows(rows(counts), weights).dense(20)
    length = np.sqrt((inputs.astype(np.float64) ** 2).sum(axis=1))
    assert length == pytest.approx(counts.any(axis=1).astype(float), abs=1e-6)


def test_the_encoder_sees_nothing_of_users_who_have_nothing():
    inputs = unit_rows(Rows.none(3), "binary")
    assert inputs.n_rows == 3 and len(inputs.items) == len(inputs.values) == 0


def test_what_the_encoder_sees_leaves_the_interactions_as_they_are():
    adopted = rows([[3, 0, 4]])
    for weights in ("binary", "counts", "log"):
        unit_rows(adopted, weights)
    assert adopted.dense(3).tolist() == [[3, 0, 4]]


@pytest.mark.parametrize("corruption", [0.1, 0.5, 0.8])
def test_corruption_hides_entries_and_keeps_the_mean(corruption):
    inputs = rows(np.full((400, 500), 0.25))
    seen = corrupted(inputs, corruption, np.random.default_rng(0))
    assert seen.values.dtype == np.float32
    dense = seen.dense(500)
    assert (dense == 0).mean() == pytest.approx(corruption, abs=0.005)
    assert seen.values == pytest.approx(0.25 / (1 - corruption))
    assert dense.mean() == pytest.approx(0.25, rel=0.02)


def test_corruption_shows_no_user_what_another_has():
    dense = np.random.default_rng(0).random((60, 40)) * (np.random.default_rng(1).random((60, 40)) < 0.3)
    dense[[0, 17, 59]] = 0
    seen = corrupted(rows(dense), 0.5, np.random.default_rng(2)).dense(40)
    assert seen == pytest.approx(np.where(seen > 0, 2 * dense, 0), rel=1e-6)
    assert 0 < (seen > 0).sum() < (dense > 0).sum()


def test_corruption_hides_entries_independently_and_differently_each_time():
    inputs = rows(np.ones((200, 200)))
    random = np.random.default_rng(0)
    first, second = (corrupted(inputs, 0.5, random).dense(200) > 0 for _ in range(2))
    assert (first & second).mean() == pytest.approx(0.25, abs=0.01)
    assert (first[:, 0] & first[:, 1]).mean() == pytest.approx(0.25, abs=0.08)


def test_without_corruption_the_encoder_sees_everything():
    inputs = rows(np.ones((3, 4)))
    assert np.array_equal(corrupted(inputs, 0, np.random.default_rng(0)).dense(4), np.ones((3, 4)))


def slopes_of(model, kind, form, strength) -> dict[str, Decay]:
    values = {"n_factors": 2, "weight_decay": strength, "weight_decay_form": form}
    return decay_slopes(model, settings_for(kind, "mil", values))


def test_plain_weight_decay_by_hand():
    """The slope of 0.1·(‖W‖² + ‖W'‖²) is 0.2 times the weight."""
    model = with_weights(DenoisingAutoencoder(AutoencoderSettings(n_factors=2), 3))
    slopes = slopes_of(model, "dae", "plain", 0.1)
    assert slopes == pytest.approx({"encoder_weight": 0.2, "decoder_weight": 0.2})


def test_scaled_weight_decay_by_hand():
    """The slope of 0.1/2·(‖W‖²/2 + ‖W'‖²/3): two factors, two users, three items."""
    model = with_weights(MatrixFactorization(FactorizationSettings(n_factors=2), 2, 3), encoder=ENCODER[:2])
    slopes = slopes_of(model, "mf", "scaled", 0.1)
    assert slopes == pytest.approx({"encoder_weight": 0.1 / 2, "decoder_weight": 0.1 / 3})


@pytest.mark.parametrize("form", ["plain", "scaled"])
def test_weight_decay_is_the_slope_of_the_squared_length_of_the_weights(form):
    model = with_weights(DenoisingAutoencoder(AutoencoderSettings(n_factors=2), 3))
    slopes = slopes_of(model, "dae", form, 0.7)
    scale = 1 if form == "plain" else 1 / (2 * 3)
    (0.7 * scale * (model.encoder_weight.square().sum() + model.decoder_weight.square().sum())).backward()
    for name in ("encoder_weight", "decoder_weight"):
        weight = getattr(model, name)
        assert torch.allclose(weight.grad, slopes[name] * weight)


@pytest.mark.parametrize("form", ["plain", "scaled"])
def test_weight_decay_leaves_biases_alone(form):
    model = with_weights(DenoisingAutoencoder(AutoencoderSettings(n_factors=2), 3))
    assert set(slopes_of(model, "dae", form, 1.0)) == {"encoder_weight", "decoder_weight"}
