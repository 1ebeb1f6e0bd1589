"""Fold-in: the latent of a user that a matrix factorization has not met."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.sparse import csr_array

from milrec.kernels.descent import descend, new_descent
from milrec.kernels.sparse import Rows
from milrec.lists.fold_in import FoldIn
from milrec.losses import LOSSES, Targets
from milrec.models.factorization import MatrixFactorization
from milrec.models.inputs import Users
from milrec.training.presets import settings_for
from milrec.training.targets import Draws

N_USERS, N_ITEMS, N_FACTORS, N_DRAWN = 40, 12, 3, 5


def untrained(settings, seed=0) -> MatrixFactorization:
    """A model whose decoder is a random one of some size; nothing in fold-in asks how it was come by."""
    model = MatrixFactorization(settings.model, N_USERS, N_ITEMS)
    model.initialise(seed)
    with torch.no_grad():
        model.decoder_weight.mul_(3)
        model.encoder_bias.add_(0.2)
        model.decoder_bias.sub_(0.1)
    return model


def pairs(dense) -> Rows:
    return Rows.of(csr_array(np.array(dense, dtype=np.float32)), np.arange(len(dense)))


def some_users(n_users=3, seed=0) -> tuple[Rows, Rows]:
    """Adopted and rejected items of users, no item both."""
    kinds = np.random.default_rng(seed).choice(3, (n_users, N_ITEMS), p=[0.6, 0.3, 0.1])
    return pairs(kinds == 1), pairs(kinds == 2)


def folded(model, settings, adopted, rejected) -> torch.Tensor:
    draws = Draws.by_popularity(np.ones(N_ITEMS), N_DRAWN)
    return FoldIn(model, settings, draws).latents(Users(adopted, rejected, None))


def ridge(model, adopted, rejected, strength) -> np.ndarray:
    """The row w that minimises Σ weight·(p - q)² + strength·‖w‖², by its normal equations."""
    decoder, bias = (value.detach().double().numpy() for value in (model.decoder_weight, model.decoder_bias))
    shift = model.encoder_bias.detach().double().numpy()
    rows = []
    for own, refused in zip(adopted.dense(N_ITEMS) > 0, rejected.dense(N_ITEMS) > 0, strict=True):
        missing = ~(own | refused)
        weight = np.where(missing, min(N_DRAWN, missing.sum()) / max(missing.sum(), 1), 1.0)
        wanted = own - bias - decoder @ shift  # what w alone has to give
        left = decoder.T @ (weight[:, None] * decoder) + strength * np.eye(N_FACTORS)
        rows.append(np.linalg.solve(left, decoder.T @ (weight * wanted)) + shift)
    return np.array(rows)


@pytest.mark.parametrize(("form", "weight_decay"), [("scaled", 0.6), ("plain", 0.01)])
def test_with_square_loss_the_latent_is_that_of_the_normal_equations(form, weight_decay):
    values = {"n_factors": N_FACTORS, "weight_decay": weight_decay, "weight_decay_form": form}
    settings = settings_for("mf", "square", values)
    model = untrained(settings)
    adopted, rejected = some_users()
    strength = weight_decay / N_FACTORS if form == "scaled" else weight_decay * N_USERS
    latent = folded(model, settings, adopted, rejected)
    assert latent.numpy() == pytest.approx(ridge(model, adopted, rejected, strength), abs=1e-3)


@pytest.mark.parametrize("target_set", ["per_user", "shared", "auto"])
def test_however_missing_items_were_drawn_fold_in_takes_their_expectation(target_set):
    settings = settings_for("mf", "mil", {"n_factors": N_FACTORS, "target_set": target_set})
    expectation = settings_for("mf", "mil", {"n_factors": N_FACTORS, "target_set": "expectation"})
    model = untrained(settings)
    adopted, rejected = some_users()
    first, second = (folded(model, one, adopted, rejected) for one in (settings, expectation))
    assert torch.equal(first, second)


def test_the_same_items_give_the_same_latent_every_time():
    settings = settings_for("mf", "mil", {"n_factors": N_FACTORS})
    model = untrained(settings)
    adopted, rejected = some_users()
    first, second = (folded(model, settings, adopted, rejected) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_user_is_folded_in_alone_as_among_others(loss):
    settings = settings_for("mf", loss, {"n_factors": N_FACTORS})
    model = untrained(settings)
    adopted, rejected = some_users()
    together = folded(model, settings, adopted, rejected).numpy()
    for user in range(3):
        own = (pairs(rows.dense(N_ITEMS)[[user]]) for rows in (adopted, rejected))
        alone = folded(model, settings, *own)
        assert alone.numpy()[0] == pytest.approx(together[user], abs=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("encoder", ["linear", "sigmoid", "tanh", "relu"])
def test_a_user_without_items_has_a_finite_latent(loss, encoder):
    settings = settings_for("mf", loss, {"n_factors": N_FACTORS, "encoder": encoder})
    nothing = Rows.none(2)
    latent = folded(untrained(settings), settings, nothing, nothing)
    assert latent.shape == (2, N_FACTORS) and latent.isfinite().all()


@pytest.mark.parametrize("loss", LOSSES)
def test_folding_in_leaves_the_model_as_it_is_and_asks_no_gradient_of_it(loss):
    settings = settings_for("mf", loss, {"n_factors": N_FACTORS})
    model = untrained(settings)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    latent = folded(model, settings, *some_users())
    assert not latent.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())
    assert all(value.grad is None for value in model.parameters())


@pytest.mark.parametrize("loss", ["mil", "pointwise", "pairwise", "square"])
def test_adopted_items_are_preferred_to_rejected_ones(loss):
    settings = settings_for("mf", loss, {"n_factors": N_FACTORS, "weight_decay": 0.01})
    model = untrained(settings)
    adopted, rejected = pairs([[1, 1] + [0] * 10]), pairs([[0] * 10 + [1, 1]])
    latent = folded(model, settings, adopted, rejected)
    with torch.no_grad():
        preference = model.preference(model.decode(latent))[0]
        before = model.preference(model.decode(model.encoder_bias[None, :]))[0]
    assert preference[:2].mean() - preference[10:].mean() > before[:2].mean() - before[10:].mean() + 0.05


@pytest.mark.parametrize("switched_off", [torch.no_grad, torch.inference_mode])
def test_a_caller_who_has_switched_gradients_off_gets_the_same_latent(switched_off):
    settings = settings_for("mf", "mil", {"n_factors": N_FACTORS})
    model = untrained(settings)
    adopted, rejected = some_users()
    expected = folded(model, settings, adopted, rejected)
    with switched_off():
        latent = folded(model, settings, adopted, rejected)
    assert torch.equal(latent, expected)


def objective(model, settings, own: np.ndarray, refused: np.ndarray):
    """The loss of one user's row by the formulas, with its slopes, in double precision."""
    missing = ~(own | refused)
    weight = missing * min(N_DRAWN, missing.sum()) / max(missing.sum(), 1)
    targets = Targets(*(torch.from_numpy(part[None, :].astype(np.float64)) for part in (own, refused, weight)))
    strength = settings.training.weight_decay / N_FACTORS
    decoder, bias, shift = (
        value.detach().double() for value in (model.decoder_weight, model.decoder_bias, model.encoder_bias)
    )

    def value_and_slopes(row: np.ndarray) -> tuple[float, np.ndarray]:
        own_row = torch.from_numpy(row).requires_grad_()
        logits = (decoder @ (own_row + shift) + bias)[None, :]
        value = settings.loss(logits, model.preference(logits), targets).sum() + strength * own_row.square().sum()
        value.backward()
        return value.item(), own_row.grad.numpy()

    return value_and_slopes


@pytest.mark.parametrize("loss", LOSSES)
def test_a_latent_is_as_good_as_the_best_that_another_optimiser_finds(loss):
    values = {"n_factors": N_FACTORS, "encoder": "linear", "weight_decay": 0.05}
    settings = settings_for("mf", loss, values if loss == "multinomial" else {**values, "rejected_as": "rejected"})
    model = untrained(settings)
    adopted, rejected = some_users(12, seed=4)
    latents = folded(model, settings, adopted, rejected).double().numpy()
    shift = model.encoder_bias.detach().double().numpy()
    for user, latent in enumerate(latents):
        value = objective(model, settings, *(rows.dense(N_ITEMS)[user] > 0 for rows in (adopted, rejected)))
        best = minimize(value, np.zeros(N_FACTORS), jac=True, options={"gtol": 1e-8}).fun
        assert value(latent - shift)[0] <= best + 1e-3 * abs(best) + 1e-6


def test_a_descent_finds_the_minimum_of_each_of_many_functions():
    random = np.random.default_rng(0)
    roots = random.standard_normal((30, 6, 6))
    squares = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(6)
    centres = random.standard_normal((30, 6)) * 5
    descent = new_descent(np.zeros((30, 6)))

    def heights(points):
        return np.einsum("ni,nij,nj->n", points - centres, squares, points - centres)

    for _ in range(60):
        if descend(descent, heights(descent.tried), 2 * np.einsum("nij,nj->ni", squares, descent.tried - centres)):
            break
    assert descent.done.all()
    assert (heights(descent.points) <= 5e-3 * heights(np.zeros((30, 6)))).all()


def test_a_descent_that_starts_at_the_minimum_stays_there():
    descent = new_descent(np.ones((2, 3)))
    assert descend(descent, np.zeros(2), np.zeros((2, 3)))
    assert (descent.points == 1).all()
