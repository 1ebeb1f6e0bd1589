"""The fused loss against autograd over the formulas in `losses`: values, and gradients of latents and decoder."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from milrec.kernels.sparse import Rows
from milrec.kernels.threads import Pool, thread_pool
from milrec.losses import (
    Loss,
    MissingInformationLoss,
    MultinomialLoss,
    PairwiseCrossEntropy,
    PointwiseCrossEntropy,
    SquareLoss,
)
from milrec.models.known import build_model
from milrec.models.settings import AutoencoderSettings
from milrec.training.sections import TargetSettings
from milrec.training.steps.fused import FusedLoss
from milrec.training.targets import Draws, dense_targets, draw_targets

N_USERS, N_ITEMS, N_FACTORS = 7, 300, 5
TARGET_SETS = ("per_user", "shared", "expectation", "all")
ODD_EXPONENTS = {"missing_weight": 50, "missing_exponent": 2.5, "adopted_exponent": 2.3, "rejected_exponent": 1.7}
WEIGHED = {**ODD_EXPONENTS, "rejected_weight": 0.3}
LOSSES: dict[str, tuple[Loss, str]] = {
    "square linear": (SquareLoss(), "linear"),
    "square sigmoid": (SquareLoss(), "sigmoid"),
    "square confident linear": (SquareLoss(confidence=5), "linear"),
    "square confident sigmoid": (SquareLoss(confidence=5), "sigmoid"),
    "pointwise": (PointwiseCrossEntropy(), "sigmoid"),
    "pointwise confident": (PointwiseCrossEntropy(confidence=5), "sigmoid"),
    "pointwise far from the ends": (PointwiseCrossEntropy(epsilon=0.2), "sigmoid"),
    "pairwise sigmoid": (PairwiseCrossEntropy(), "sigmoid"),
    "pairwise linear": (PairwiseCrossEntropy(), "linear"),
    "preferences sigmoid": (PairwiseCrossEntropy(difference="preferences"), "sigmoid"),
    "preferences linear": (PairwiseCrossEntropy(difference="preferences"), "linear"),
    "multinomial": (MultinomialLoss(), "linear"),
    "mil": (MissingInformationLoss(), "sigmoid"),
    "mil with odd exponents": (MissingInformationLoss(**ODD_EXPONENTS), "sigmoid"),
    "mil with light rejections": (MissingInformationLoss(**WEIGHED), "sigmoid"),
    "mil without exponents": (MissingInformationLoss(missing_weight=3, missing_exponent=1), "sigmoid"),
}
CASES = [
    (name, target_set)
    for name in LOSSES
    for target_set in (TARGET_SETS if name != "multinomial" else ("multinomial",))  # which names no missing item
]


class Result(NamedTuple):
    value: float
    latent: np.ndarray  # gradient by the latents
    weight: np.ndarray  # gradient by the decoder's weight
    bias: np.ndarray  # gradient by the decoder's bias

    def bytes(self):
        return np.float32(self.value).tobytes() + b"".join(part.tobytes() for part in self[1:])


def rows_of(mask) -> Rows:
    indptr = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
    items = np.nonzero(mask)[1].astype(np.int32)
    return Rows(indptr, items, np.ones(len(items), dtype=np.float32))


def known(n_users=N_USERS, rejections=True, adoptions=True, seed=0):
    """A tenth of the items adopted and a tenth rejected; user 3 adopted nothing, and nothing is known of user 5."""
    random = np.random.default_rng(seed).random((n_users, N_ITEMS))
    adopted, rejected = (random < 0.1) & adoptions, (random > 0.9) & rejections
    adopted[[user for user in (3, 5) if user < n_users]] = False
    rejected[[user for user in (5,) if user < n_users]] = False
    return rows_of(adopted), rows_of(rejected)


def targets_of(target_set, n_drawn=20, seed=5, **options):
    settings = None if target_set == "multinomial" else TargetSettings(target_set=target_set)
    adopted, rejected = known(**options)
    draws = Draws.by_popularity(np.arange(N_ITEMS), n_drawn)  # items stand for different numbers of others
    return draw_targets(adopted, rejected, settings, draws, np.random.default_rng(seed))


def model_of(decoder, scale=20.0):
    model = build_model(AutoencoderSettings(n_factors=N_FACTORS, decoder=decoder), N_USERS, N_ITEMS)
    model.initialise(0)
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(scale)
    return model


def latents(n_users=N_USERS, seed=1):
    return torch.randn(n_users, N_FACTORS, generator=torch.Generator().manual_seed(seed))


def by_formula(model, loss, targets, latent) -> Result:
    latent = latent.clone().requires_grad_()
    logits = model.decode(latent)
    losses = loss(logits, model.preference(logits), dense_targets(targets, N_ITEMS, loss.needs_pairs))
    value = (torch.from_numpy(targets.importance) * losses).mean()
    parts = (latent, model.decoder_weight, model.decoder_bias)
    gradients = torch.autograd.grad(value, parts, allow_unused=True, materialize_grads=True)
    return Result(value.item(), *(gradient.numpy() for gradient in gradients))


def spelled_out(gradient, n_rows) -> np.ndarray:
    """A gradient by rows as one array, added up pair by pair."""
    sparse = gradient.sparse
    out = np.zeros((n_rows, gradient.left.shape[1]), dtype=np.float32)
    out[sparse.rows[: len(gradient.dense)]] = gradient.dense
    for row, low, high in zip(sparse.rows, sparse.indptr, sparse.indptr[1:], strict=False):
        for pair in range(low, high):
            out[row] += sparse.coefficients[pair] * gradient.left[sparse.users[pair]]
    return out


def by_fusion(fused: FusedLoss, targets, latent) -> Result:
    latent = latent.clone().requires_grad_()
    value = fused(latent, targets)
    value.backward()
    weight = spelled_out(fused.gradients["decoder_weight"], N_ITEMS)
    bias = spelled_out(fused.gradients["decoder_bias"], N_ITEMS)[:, 0]
    return Result(value.item(), latent.grad.numpy().copy(), weight, bias)


def fused_once(model, loss, targets, latent, number=1) -> Result:
    with thread_pool(number) as pool:
        return by_fusion(FusedLoss(model, loss, pool), targets, latent)


def difference(one: Result, other: Result) -> float:
    """The largest difference, of the largest number of its kind."""

    def relative(a, b):
        a, b = np.atleast_1d(a), np.atleast_1d(b)
        return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))

    return max(relative(a, b) for a, b in zip(one, other, strict=True))


def allowed(name) -> float:
    return 1e-3 if name.startswith("preferences") else 1e-5  # -log of a difference is singular at 0


@pytest.mark.parametrize("n_drawn", [20, 290])
@pytest.mark.parametrize("rejections", [True, False], ids=["rejections", "no rejections"])
@pytest.mark.parametrize(("name", "target_set"), CASES)
def test_the_fused_loss_is_the_formula(name, target_set, rejections, n_drawn):
    loss, decoder = LOSSES[name]
    model, latent = model_of(decoder), latents()
    targets = targets_of(target_set, n_drawn, rejections=rejections)
    expected = by_formula(model, loss, targets, latent)
    assert expected.value != 0
    assert difference(fused_once(model, loss, targets, latent), expected) < allowed(name)


@pytest.mark.parametrize("rejections", [True, False], ids=["rejections", "no rejections"])
@pytest.mark.parametrize(("name", "target_set"), CASES)
def test_the_fused_loss_is_the_formula_if_no_user_adopted_anything(name, target_set, rejections):
    loss, decoder = LOSSES[name]
    model, latent = model_of(decoder), latents()
    targets = targets_of(target_set, rejections=rejections, adoptions=False)
    expected, found = by_formula(model, loss, targets, latent), fused_once(model, loss, targets, latent)
    assert difference(found, expected) < allowed(name)
    if loss.needs_pairs or name == "multinomial":
        assert found.value == 0 and not any(part.any() for part in found[1:])


@pytest.mark.parametrize(("name", "target_set"), CASES)
@pytest.mark.parametrize("n_users", [1, 60])
def test_the_fused_loss_is_the_formula_for_one_user_and_for_many(name, target_set, n_users):
    loss, decoder = LOSSES[name]
    model, latent = model_of(decoder), latents(n_users)
    targets = targets_of(target_set, n_drawn=1 if n_users == 1 else 1000, n_users=n_users)
    expected = by_formula(model, loss, targets, latent)
    assert difference(fused_once(model, loss, targets, latent), expected) < allowed(name)


@pytest.mark.parametrize("rejections", [True, False], ids=["rejections", "no rejections"])
@pytest.mark.parametrize(("name", "target_set"), CASES)
def test_the_fused_loss_is_the_formula_where_some_users_count_more(name, target_set, rejections):
    loss, decoder = LOSSES[name]
    model, latent = model_of(decoder), latents()
    importance = np.random.default_rng(2).uniform(0.2, 3, N_USERS).astype(np.float32)
    targets = replace(targets_of(target_set, rejections=rejections), importance=importance)
    expected = by_formula(model, loss, targets, latent)
    assert difference(fused_once(model, loss, targets, latent), expected) < allowed(name)
    assert difference(expected, by_formula(model, loss, targets_of(target_set, rejections=rejections), latent)) > 0.1


@pytest.mark.parametrize(("name", "target_set"), CASES)
def test_any_number_of_workers_gives_the_same_bytes(name, target_set):
    loss, decoder = LOSSES[name]
    model, latent = model_of(decoder), latents(60)
    targets = targets_of(target_set, n_drawn=120, n_users=60)
    alone = fused_once(model, loss, targets, latent)
    for number in (1, 2, 3):
        assert fused_once(model, loss, targets, latent, number).bytes() == alone.bytes()


class Backwards(Pool):
    """A worker who does the last task first."""

    def run(self, tasks):
        super().run(list(reversed(tasks)))


@pytest.mark.parametrize(("name", "target_set"), CASES)
def test_the_order_in_which_tasks_are_done_does_not_change_a_byte(name, target_set):
    """Two tasks of one run that wrote to the same place would race where there are several workers."""
    loss, decoder = LOSSES[name]
    model, latent = model_of(decoder), latents(60)
    targets = targets_of(target_set, n_drawn=120, n_users=60)
    forwards = by_fusion(FusedLoss(model, loss, Pool(1)), targets, latent)
    backwards = by_fusion(FusedLoss(model, loss, Backwards(1)), targets, latent)
    assert backwards.bytes() == forwards.bytes()


@pytest.mark.parametrize(("name", "target_set"), CASES)
def test_memory_that_was_used_before_changes_nothing(name, target_set):
    loss, decoder = LOSSES[name]
    model = model_of(decoder)
    with thread_pool(2) as pool:
        used = FusedLoss(model, loss, pool)
        for place, n_users in enumerate((7, 30, 2, 7)):
            latent = latents(n_users, seed=place)
            targets = targets_of(target_set, (20, 250, 3)[place % 3], n_users=n_users, seed=place)
            fresh = by_fusion(FusedLoss(model, loss, pool), targets, latent)
            assert by_fusion(used, targets, latent).bytes() == fresh.bytes()


@pytest.mark.parametrize(("name", "target_set"), CASES)
def test_the_latents_are_left_as_they_were_and_may_lie_in_any_order(name, target_set):
    loss, decoder = LOSSES[name]
    model, latent = model_of(decoder), latents()
    targets, before = targets_of(target_set), latent.clone()
    weights = [value.detach().clone() for value in model.parameters()]
    found = fused_once(model, loss, targets, latent)
    turned = fused_once(model, loss, targets, latent.T.contiguous().T)
    assert torch.equal(latent, before)
    assert all(torch.equal(value, was) for value, was in zip(model.parameters(), weights, strict=True))
    assert turned.bytes() == found.bytes()


@pytest.mark.parametrize(("name", "target_set"), CASES)
def test_any_encoder_gets_its_gradient_by_autograd(name, target_set):
    loss, decoder = LOSSES[name]
    model, targets = model_of(decoder), targets_of(target_set)
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(N_ITEMS, 8), nn.Tanh(), nn.Linear(8, N_FACTORS))
    inputs = torch.from_numpy(targets.adopted.dense(N_ITEMS))
    logits = model.decode(encoder(inputs))
    value = loss(logits, model.preference(logits), dense_targets(targets, N_ITEMS, loss.needs_pairs)).mean()
    expected = torch.autograd.grad(3 * value, list(encoder.parameters()))
    with thread_pool(2) as pool:
        fused = FusedLoss(model, loss, pool)
        found = torch.autograd.grad(3 * fused(encoder(inputs), targets), list(encoder.parameters()))
    for own, other in zip(found, expected, strict=True):
        assert (own - other).abs().max() <= 4 * allowed(name) * other.abs().max()


@pytest.mark.parametrize(("name", "target_set"), CASES)
def test_extreme_logits_stay_finite_and_have_the_loss_of_the_formula(name, target_set):
    loss, decoder = LOSSES[name]
    model, targets, latent = model_of(decoder), targets_of(target_set), latents()
    signs = np.random.default_rng(2).choice([-200.0, 200.0], N_ITEMS)
    with torch.no_grad():
        model.decoder_bias.copy_(torch.from_numpy(signs))
    expected, found = by_formula(model, loss, targets, latent), fused_once(model, loss, targets, latent)
    assert all(np.isfinite(part).all() for part in found)
    assert found.value == pytest.approx(expected.value, rel=1e-4)
    for own, other in zip(found[1:], expected[1:], strict=True):
        assert np.abs(own - other).max() <= 1e-4 * np.abs(other).max() + 1e-6


@pytest.mark.parametrize(
    ("name", "target_set"),
    CASES,
)
def test_latents_that_are_no_numbers_do_not_go_unnoticed(name, target_set):
    loss, decoder = LOSSES[name]
    model, targets = model_of(decoder), targets_of(target_set)
    latent = latents()
    latent[0] = np.nan
    assert np.isnan(by_formula(model, loss, targets, latent).value)
    assert not np.isfinite(fused_once(model, loss, targets, latent).value)
