"""Where a fit starts: the main directions of the data, found as a dense SVD finds them."""

import numpy as np
import pytest
import torch

import milrec
from milrec.kernels.sparse import Rows
from milrec.kernels.threads import thread_pool
from milrec.losses import MissingInformationLoss, Targets
from milrec.models.factorization import MatrixFactorization
from milrec.models.inputs import unit_rows
from milrec.models.known import build_model
from milrec.training.initial import directions, resting_biases, start
from milrec.training.presets import settings_for
from milrec.training.sections import Shape


def started(data, model="dae", threads=1, **values):
    settings = settings_for(model, "mil", {"n_factors": 6, "threads": threads, **values})
    built = build_model(settings.model, data.n_users, data.n_items)
    start(built, data, settings.for_data(Shape.of(data)), 3)
    return built


def logits_of_adopted(model, data):
    if isinstance(model, MatrixFactorization):
        latent = model.latent(model.encoder_weight)
    else:
        inputs = unit_rows(Rows.of(data.adopted, np.arange(data.n_users)), "binary").dense(data.n_items)
        latent = model.latent(torch.from_numpy(inputs) @ model.encoder_weight)
    return model.decode(latent).detach().numpy()[data.adopted.toarray() > 0]


def test_directions_are_those_of_a_dense_svd(small_catalogue):
    inputs = unit_rows(Rows.of(small_catalogue.adopted, np.arange(small_catalogue.n_users)), "binary")
    root = np.sqrt(small_catalogue.popularity()).astype(np.float32)
    with thread_pool(1) as pool:
        vectors, strengths = directions(inputs, root, 3, np.random.default_rng(0), pool)
    _, dense_strengths, dense_vectors = np.linalg.svd(inputs.dense(small_catalogue.n_items) / root)
    assert strengths[0] == pytest.approx(dense_strengths[0], rel=1e-3)
    assert abs(vectors[:, 0] @ dense_vectors[0]) == pytest.approx(1, abs=1e-3)
    assert strengths == pytest.approx(dense_strengths[:3], rel=0.05)
    assert vectors.T @ vectors == pytest.approx(np.eye(3), abs=1e-4)


def test_items_of_a_collaborative_autoencoder_start_as_those_of_a_denoising_one_and_users_at_zero(small_catalogue):
    collaborative, denoising = (started(small_catalogue, model) for model in ("cdae", "dae"))
    n_items = small_catalogue.n_items
    assert torch.equal(collaborative.encoder_weight[:n_items], denoising.encoder_weight)
    assert torch.equal(collaborative.decoder_weight, denoising.decoder_weight)
    assert not collaborative.encoder_weight[n_items:].any()


@pytest.mark.parametrize("model", ["dae", "mf"])
@pytest.mark.parametrize("logit", [0.05, 0.4])
def test_adopted_items_start_with_the_mean_logit_that_is_asked_for(small_catalogue, model, logit):
    assert logits_of_adopted(
        started(small_catalogue, model, start_logit=logit), small_catalogue
    ).mean() == pytest.approx(logit, abs=0.005)


def test_the_start_is_the_same_for_any_number_of_threads_and_another_for_another_seed(small_catalogue):
    one, two = (started(small_catalogue, threads=threads).decoder_weight for threads in (1, 2))
    assert torch.equal(one, two)


def test_glorot_is_the_papers_start(small_catalogue):
    model, other = (started(small_catalogue, start="glorot") for _ in range(2))
    other.initialise(3)
    assert torch.equal(model.encoder_weight, other.encoder_weight)


def test_where_data_has_fewer_directions_than_the_model_the_others_stay_random():
    data = milrec.read({"user": [0, 0, 1, 1], "item": [0, 1, 1, 2]})
    model, random = (started(data, start=name) for name in ("svd", "glorot"))
    assert not torch.equal(model.decoder_weight[:, :2], random.decoder_weight[:, :2])
    assert torch.equal(model.decoder_weight[:, 3:], random.decoder_weight[:, 3:])
    assert model.decoder_weight.isfinite().all()


@pytest.mark.parametrize("loss", ["mil", "pointwise", "square"])
@pytest.mark.parametrize("target_set", ["expectation", "all"])
def test_biases_at_rest_are_where_the_loss_has_no_slope_for_a_user_of_whom_nothing_is_known(loss, target_set):
    """Users like all others: the mean slope by the bias, adopters against the others, is nought."""
    adopters = [9, 5, 3, 1, 1, 4, 2, 5]
    users = [user for count in adopters for user in range(count)]
    items = [item for item, count in enumerate(adopters) for _ in range(count)]
    data = milrec.read({"user": users, "item": items})
    settings = settings_for("dae", loss, {"target_set": target_set, "target_factor": 5}).for_data(Shape.of(data))
    median = np.median(np.diff(data.adopted.indptr))
    weight = 1.0 if target_set == "all" else min(1.0, 5 * median / 8)
    logits = torch.from_numpy(resting_biases(data, settings)).double().requires_grad_()
    share = torch.tensor(adopters, dtype=torch.float64) / (data.n_users + 1)
    nothing = torch.zeros(1, 8, dtype=torch.float64)
    targets = Targets(share[None], nothing, weight * (1 - share)[None])
    assert settings.loss is not None
    settings.loss(logits[None], logits.sigmoid()[None], targets).sum().backward()
    inside = logits.detach().numpy() < 2.9  # the first would be where a sigmoid is flat
    assert inside.sum() >= 7 and logits.grad.numpy()[inside] == pytest.approx(np.zeros(inside.sum()), abs=2e-6)


def test_biases_rest_at_the_share_of_adopters_weighted_by_how_much_they_count():
    """Five users with one item and one with two: the latter counts half as much, and so does item b."""
    data = milrec.read({"user": [1, 2, 3, 4, 5, 6, 6], "item": ["a"] * 5 + ["a", "b"]})
    plain, weighted = (settings_for("dae", "square", {"user_exponent": own}).for_data(Shape.of(data)) for own in (0, 1))
    both = [resting_biases(data, settings) for settings in (plain, weighted)]
    odds = [np.exp(own[1].astype(np.float64)) for own in both]  # square loss: P/(1-P) over the weight of a missing item
    importance = 0.5 / (5.5 / 6)
    assert odds[1] / odds[0] == pytest.approx(importance * 6 / (7 - importance))


@pytest.mark.parametrize(("wall", "steepness"), [(1e6, 10), (5.0, 1), (1.0, 1), (50.0, 2)])
@pytest.mark.parametrize("pull", [1, 2, 3])
def test_with_other_exponents_biases_rest_too(wall, steepness, pull):
    loss = MissingInformationLoss(missing_weight=wall, missing_exponent=steepness, adopted_exponent=pull)
    odds = np.array([1e-4, 1e-2, 0.5])
    q = loss.resting_preference(odds, 0.5)
    pulled, pushed = odds * pull * (1 - q) ** (pull - 1), steepness * wall * (q - 0.5) ** (2 * steepness - 1)
    assert (np.isclose(pulled, pushed, rtol=1e-6) | (q > 1 - 1e-12)).all()


def test_without_a_wall_everything_rests_at_the_top():
    assert MissingInformationLoss(missing_weight=0).resting_preference(np.array([0.1]), 0.5) == pytest.approx(1)


def test_biases_stay_where_a_sigmoid_has_a_slope(small_catalogue):
    for values in ({"missing_weight": 0}, {"missing_weight": 1e-9}, {"target_factor": 1e-9}):
        settings = settings_for("dae", "mil", {"start_bias": "rest", **values}).for_data(Shape.of(small_catalogue))
        biases = resting_biases(small_catalogue, settings)
        assert np.isfinite(biases).all() and biases.max() <= 3


def test_items_without_an_adopter_rest_below_all_others():
    data = milrec.read({"user": [0, 0, 1, 2], "item": ["a", "b", "a", "c"]})
    alone = data.subset(np.array([True, True, False]), np.array([True, True, True]))
    settings = settings_for("dae", "mil", {"start_bias": "rest"}).for_data(Shape.of(alone))
    biases = resting_biases(alone, settings)
    assert biases[2] < biases[1] < biases[0] and np.isfinite(biases).all()


@pytest.mark.parametrize(
    ("users", "items"), [([0, 0], [0, 1]), ([0, 1, 2], [0, 0, 0]), ([0, 1, 2, 2], [0, 0, 0, 1]), ([0], [0])]
)
@pytest.mark.parametrize("loss", ["mil", "pointwise", "square"])
def test_biases_at_rest_are_finite_for_one_user_one_item_and_an_item_that_everybody_has(users, items, loss):
    data = milrec.read({"user": users, "item": items})
    settings = settings_for("dae", loss, {"start_bias": "rest"}).for_data(Shape.of(data))
    assert np.isfinite(resting_biases(data, settings)).all()


@pytest.mark.parametrize("model", ["dae", "cdae", "mf"])
@pytest.mark.parametrize("target_set", ["expectation", "shared", "per_user", "all"])
def test_a_fit_from_biases_at_rest_has_the_same_bytes_with_any_number_of_threads(small_catalogue, model, target_set):
    split = milrec.split_interactions(small_catalogue, seed=0)
    length = {"iterations": 12, "validate_every": 6, "n_factors": 4, "start_bias": "rest", "target_factor": 2}
    fits = [milrec.fit(split, model, "mil", target_set=target_set, threads=number, **length) for number in (1, 3)]
    first, second = (fit.fitted.model.tensors() for fit in fits)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert first["decoder_bias"].mean() > 0.5
