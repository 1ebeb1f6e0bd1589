"""The autoencoders of two other papers, CDAE and Multi-VAE: their equations written again, and what only they have."""

import hashlib
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_array
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

import milrec
from milrec.data.splits import Audience
from milrec.errors import FolderError
from milrec.kernels.sparse import Rows
from milrec.lists.scores import Scorer, logits_of
from milrec.models.inputs import Users, with_entry
from milrec.models.known import build_model
from milrec.models.settings import CollaborativeSettings, VariationalSettings
from milrec.settings import build
from milrec.training.batches import batches
from milrec.training.presets import settings_for
from milrec.training.steps.readable import batch_loss

VAE = {"n_factors": 3, "n_hidden": 5, "batch_size": 20, "annealing_cap": 0.7, "annealing_steps": 2}
CDAE = {"n_factors": 4, "batch_size": 20}


def variational(**values) -> VariationalSettings:
    return build(VariationalSettings, values)


def started(data, settings, scale=3.0):
    """A model with random weights that are large enough for its activations to bend."""
    model = build_model(settings.model, data.n_users, data.n_items)
    model.initialise(1)
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(scale if value.dim() == 2 else 100)
    return model


def batch_of(data, settings, step=1):
    model = build_model(settings.model, data.n_users, data.n_items)
    (batch,) = next(batches(data, model, settings, 5, range(step, step + 1))).slices
    return batch


def weights_of(model) -> dict[str, np.ndarray]:
    return {name: value.detach().double().numpy() for name, value in model.named_parameters()}


def users_of(data, settings, step=1):
    order = np.random.default_rng([5, 3, 0]).permutation(data.n_users)
    size = settings.training.batch_size
    return order[step * size : (step + 1) * size]


def everybody(data, rows=True):
    return Audience(data.adopted, data.rejected, data.adopted, np.arange(data.n_users) if rows else None)


def scored_logits(model, settings, data, block, known=True) -> np.ndarray:
    """The logits of some users, known ones or new ones with the same items."""
    return logits_of(Scorer(model, settings, data), Users.of(everybody(data, known), block))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_the_loss_of_multi_vae_by_loops(small_catalogue):
    """-Σ log π_i over adopted items + β·½·Σ(σ² + μ² - 1 - log σ²) (equations 1-5 of Liang et al.)."""
    settings = settings_for("vae", values=VAE)
    model, batch = started(small_catalogue, settings), batch_of(small_catalogue, settings)
    w = weights_of(model)
    inputs, adopted = (rows.dense(small_catalogue.n_items) for rows in (batch.inputs, batch.targets.adopted))
    total = 0.0
    for v, own, epsilon in zip(inputs, adopted, batch.noise, strict=True):
        hidden = np.tanh(v @ w["encoder_weight"] + w["encoder_bias"])
        both = hidden @ w["posterior_weight"] + w["posterior_bias"]
        mean, variance = both[:3], np.exp(both[3:])
        z = mean + epsilon * np.sqrt(variance)
        logits = np.tanh(z @ w["hidden_weight"] + w["hidden_bias"]) @ w["decoder_weight"].T + w["decoder_bias"]
        log_softmax = logits - np.log(np.exp(logits).sum())
        divergence = 0.5 * sum(s + m**2 - 1 - np.log(s) for s, m in zip(variance, mean, strict=True))
        total += -log_softmax[own > 0].sum() + 0.35 * divergence
    assert batch.iteration == 1 and model.annealing(1) == pytest.approx(0.35)
    assert batch_loss(model, batch, settings).item() == pytest.approx(total / len(inputs), rel=1e-5)


def test_gradients_of_multi_vae_are_those_of_torchs_own_layers_and_distributions(small_catalogue):
    settings = settings_for("vae", values=VAE)
    model, batch = started(small_catalogue, settings), batch_of(small_catalogue, settings)
    own = torch.autograd.grad(batch_loss(model, batch, settings), list(model.parameters()))
    w = {name: value.detach().double().requires_grad_() for name, value in model.named_parameters()}
    inputs = torch.from_numpy(batch.inputs.dense(small_catalogue.n_items)).double()
    hidden = functional.linear(inputs, w["encoder_weight"].T, w["encoder_bias"]).tanh()
    mean, log_variance = functional.linear(hidden, w["posterior_weight"].T, w["posterior_bias"]).split(3, dim=1)
    posterior = Normal(mean, torch.exp(0.5 * log_variance))
    z = posterior.loc + torch.from_numpy(batch.noise).double() * posterior.scale
    logits = functional.linear(
        functional.linear(z, w["hidden_weight"].T, w["hidden_bias"]).tanh(), w["decoder_weight"], w["decoder_bias"]
    )
    adopted = torch.from_numpy(batch.targets.adopted.dense(small_catalogue.n_items)).double()
    likelihood = functional.cross_entropy(logits, (adopted > 0).double(), reduction="none")
    divergence = kl_divergence(posterior, Normal(0.0, 1.0)).sum(dim=1)
    (likelihood + 0.35 * divergence).mean().backward()
    for (name, value), gradient in zip(w.items(), own, strict=True):
        assert gradient.double() == pytest.approx(value.grad, rel=1e-4, abs=1e-6), name
        assert gradient.abs().max() > 1e-4, name


@pytest.mark.parametrize("encoder", ["sigmoid", "linear", "tanh"])
def test_the_loss_of_cdae_by_loops(small_catalogue, encoder):
    """h = s(W·v + V_u + b), q = σ(W'·h + b') and the logistic loss (equations 7-11 of Wu et al.)."""
    settings = settings_for("cdae", "pointwise", {**CDAE, "encoder": encoder, "target_set": "all"})
    model, batch = started(small_catalogue, settings), batch_of(small_catalogue, settings)
    s = {"sigmoid": sigmoid, "linear": lambda x: x, "tanh": np.tanh}[encoder]
    w, n_items = weights_of(model), small_catalogue.n_items
    of_items, of_users = w["encoder_weight"][:n_items], w["encoder_weight"][n_items:]
    inputs = batch.inputs.dense(n_items + small_catalogue.n_users)[:, :n_items]
    known = small_catalogue.adopted.toarray() > 0
    total = 0.0
    for user, v in zip(users_of(small_catalogue, settings), inputs, strict=True):
        q = sigmoid(w["decoder_weight"] @ s(v @ of_items + of_users[user] + w["encoder_bias"]) + w["decoder_bias"])
        total += -np.log(q[known[user]]).sum() - np.log(1 - q[~known[user]]).sum()
    assert batch_loss(model, batch, settings).item() == pytest.approx(total / len(inputs), rel=1e-5)


def test_gradients_of_cdae_are_those_of_torchs_own_layers(small_catalogue):
    settings = settings_for("cdae", "pointwise", {**CDAE, "target_set": "all"})
    model, batch = started(small_catalogue, settings), batch_of(small_catalogue, settings)
    own = torch.autograd.grad(batch_loss(model, batch, settings), list(model.parameters()))
    n_items, users = small_catalogue.n_items, torch.from_numpy(users_of(small_catalogue, settings))
    w = {name: value.detach().double().requires_grad_() for name, value in model.named_parameters()}
    inputs = torch.from_numpy(batch.inputs.dense(n_items + small_catalogue.n_users)[:, :n_items]).double()
    of_users = functional.embedding(users, w["encoder_weight"][n_items:])
    hidden = (inputs @ w["encoder_weight"][:n_items] + of_users + w["encoder_bias"]).sigmoid()
    logits = functional.linear(hidden, w["decoder_weight"], w["decoder_bias"])
    known = torch.from_numpy((small_catalogue.adopted.toarray()[users] > 0).astype(np.float64))
    functional.binary_cross_entropy_with_logits(logits, known, reduction="none").sum(dim=1).mean().backward()
    for (name, value), gradient in zip(w.items(), own, strict=True):
        assert gradient.double() == pytest.approx(value.grad, rel=1e-4, abs=1e-6), name
        assert gradient.abs().max() > 1e-4, name


def test_the_weight_of_the_divergence_rises_straight_to_its_cap():
    model = build_model(variational(n_factors=1, n_hidden=1, annealing_cap=0.2, annealing_steps=4), 2, 2)
    assert [model.annealing(step) for step in range(7)] == pytest.approx([0, 0.05, 0.1, 0.15, 0.2, 0.2, 0.2])
    liang = build_model(settings_for("multi-vae-pr").model, 2, 2)
    assert [liang.annealing(step) for step in (0, 1, 20_000, 40_000, 10**6)] == pytest.approx([0, 5e-6, 0.1, 0.2, 0.2])


def test_every_batch_brings_the_number_and_the_noise_of_its_step(small_catalogue):
    settings = settings_for("vae", values={**VAE, "n_factors": 200, "annealing_steps": 10})
    model = build_model(settings.model, small_catalogue.n_users, small_catalogue.n_items)
    drawn = [each.slices[0] for each in batches(small_catalogue, model, settings, 5, range(12))]
    assert [batch.iteration for batch in drawn] == list(range(12))
    assert [model.annealing(batch.iteration) for batch in drawn] == pytest.approx(
        [*(0.07 * step for step in range(10)), 0.7, 0.7]
    )
    noise = np.stack([np.asarray(batch.noise) for batch in drawn])
    assert noise.shape == (12, 20, 200) and noise.dtype == np.float32
    assert noise.mean() == pytest.approx(0, abs=0.02) and noise.std() == pytest.approx(1, abs=0.02)
    assert len(np.unique(noise)) > 0.99 * noise.size
    assert batch_of(small_catalogue, settings, 7).noise.tobytes() == drawn[7].noise.tobytes()


def test_the_noise_is_drawn_after_all_that_other_models_draw(small_catalogue):
    variational, collaborative, denoising = (
        batch_of(small_catalogue, settings_for(model, "multinomial", {"batch_size": 20}))
        for model in ("vae", "cdae", "dae")
    )
    assert denoising.noise is None and collaborative.noise is None
    for part in ("indptr", "items", "values"):
        assert np.array_equal(getattr(variational.inputs, part), getattr(denoising.inputs, part))
    items = small_catalogue.n_items
    assert np.array_equal(
        collaborative.inputs.dense(items + small_catalogue.n_users)[:, :items], denoising.inputs.dense(items)
    )


def test_lists_of_a_variational_autoencoder_take_the_mean_and_draw_nothing(small_catalogue):
    settings = settings_for("vae", values=VAE)
    model = started(small_catalogue, settings)
    block = slice(3, 40)
    found = scored_logits(model, settings, small_catalogue, block)
    w = weights_of(model)
    seen = (small_catalogue.adopted.toarray()[block] > 0).astype(float)
    seen /= np.sqrt(seen.sum(axis=1, keepdims=True))
    mean = (
        np.tanh(seen @ w["encoder_weight"] + w["encoder_bias"]) @ w["posterior_weight"][:, :3] + w["posterior_bias"][:3]
    )
    expected = np.tanh(mean @ w["hidden_weight"] + w["hidden_bias"]) @ w["decoder_weight"].T + w["decoder_bias"]
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    with torch.no_grad():
        model.posterior_weight[:, 3:] = 9.0  # the variance is of no account
    assert scored_logits(model, settings, small_catalogue, block).tobytes() == found.tobytes()


def test_a_user_of_a_variational_autoencoder_without_noise_and_divergence_is_the_listed_one(small_catalogue):
    settings = settings_for("vae", values=VAE)
    model = started(small_catalogue, settings)
    product = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    latent, penalty = model.fitting_latent(product, torch.zeros(4, 3), 0)
    assert torch.equal(latent, model.latent(product)) and penalty.item() == 0


def test_the_divergence_of_a_standard_normal_is_nothing():
    settings = variational(n_factors=3, n_hidden=5, annealing_cap=1, annealing_steps=2)
    model = build_model(settings, 2, 4)  # all weights zero: mean 0, variance 1
    _, penalty = model.fitting_latent(torch.ones(2, 5), torch.ones(2, 3), 2)
    assert penalty.item() == 0
    with torch.no_grad():
        model.posterior_bias.copy_(torch.tensor([2.0, 0, 0, 0, 1, 0]))
    _, penalty = model.fitting_latent(torch.ones(2, 5), torch.ones(2, 3), 1)
    assert penalty.item() == pytest.approx(0.5 * (0.5 * 4 + 0.5 * (np.e - 1 - 1)))


def test_a_user_sees_the_own_row_whatever_corruption_hides(small_catalogue):
    settings = settings_for("cdae", values={**CDAE, "corruption": 0.95, "target_set": "all"})
    n_items = small_catalogue.n_items
    for step in range(10):
        batch = batch_of(small_catalogue, settings, step)
        dense = batch.inputs.dense(n_items + small_catalogue.n_users)[:, n_items:]
        users = users_of(small_catalogue, settings, step)
        assert np.array_equal(dense, np.eye(small_catalogue.n_users, dtype=np.float32)[users])


def test_own_rows_stand_at_the_end_of_each_user_also_of_those_who_have_nothing():
    matrix = csr_array(np.array([[0.5, 0, 0.25], [0, 0, 0], [0, 0, 0], [0, 1, 0]], dtype=np.float32))
    rows = with_entry(Rows.of(matrix, np.arange(4)), np.array([3, 6, 5, 4]))
    assert rows.items.tolist() == [0, 2, 3, 6, 5, 1, 4] and rows.items.dtype == np.int32
    assert rows.values.tolist() == [0.5, 0.25, 1, 1, 1, 1, 1] and rows.values.dtype == np.float32
    assert rows.indptr.tolist() == [0, 3, 4, 5, 7]
    assert with_entry(Rows.none(1), np.array([8])).items.tolist() == [8]


def test_known_users_of_cdae_have_a_vector_and_new_ones_have_none(small_catalogue):
    settings = settings_for("cdae", values=CDAE)
    model, block = started(small_catalogue, settings), slice(5, 30)
    n_items = small_catalogue.n_items
    known = scored_logits(model, settings, small_catalogue, block)
    new = scored_logits(model, settings, small_catalogue, block, known=False)
    w = weights_of(model)
    seen = (small_catalogue.adopted.toarray()[block] > 0).astype(float)
    product = seen / np.sqrt(seen.sum(axis=1, keepdims=True)) @ w["encoder_weight"][:n_items] + w["encoder_bias"]
    for found, own in ((known, w["encoder_weight"][n_items:][block]), (new, 0)):
        expected = sigmoid(product + own) @ w["decoder_weight"].T + w["decoder_bias"]
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert not np.allclose(known, new, atol=1e-2)


def test_a_fit_moves_the_vectors_of_users(small_catalogue):
    split = milrec.split_interactions(small_catalogue, seed=0)
    model = milrec.fit(split, "cdae", n_factors=4, epochs=2).fitted.model
    weight = model.encoder_weight
    assert isinstance(weight, torch.Tensor)
    assert weight[small_catalogue.n_items :].detach().abs().max(dim=1).values.min() > 0


@pytest.mark.parametrize(("model", "values"), [("cdae", {}), ("vae", {"n_hidden": 5})])
def test_users_the_model_has_not_met_are_judged(small_catalogue, model, values):
    split = milrec.split_users(small_catalogue, seed=0)
    recommender = milrec.fit(split, model, n_factors=4, epochs=2, **values)
    first, second = (recommender.evaluate(split) for _ in range(2))
    assert first.measures == second.measures and np.isfinite(list(first.measures.values())).all()


def test_a_variational_autoencoder_lists_the_same_every_time(small_catalogue):
    split = milrec.split_interactions(small_catalogue, seed=0)
    recommender = milrec.fit(split, "vae", n_factors=4, n_hidden=5, epochs=2)
    users = recommender.user_ids
    assert recommender.recommend(users).equals(recommender.recommend(users))
    alone = recommender.recommend([users[7]])["score"].to_pylist()
    assert recommender.recommend(users)["score"].to_pylist()[7 * 20 : 8 * 20] == alone


@pytest.mark.parametrize(
    ("settings", "shapes"),
    [
        (CollaborativeSettings(n_factors=2), {"encoder_weight": (12, 2), "encoder_bias": (2,)}),
        (
            variational(n_factors=2, n_hidden=3),
            {
                "encoder_weight": (7, 3),
                "encoder_bias": (3,),
                "posterior_weight": (3, 4),
                "posterior_bias": (4,),
                "hidden_weight": (2, 3),
                "hidden_bias": (3,),
            },
        ),
    ],
    ids=["cdae", "vae"],
)
def test_models_are_built_in_the_right_shape_and_start_at_zero(settings, shapes):
    model = build_model(settings, 5, 7)
    width = shapes["encoder_bias"][0]
    expected = {**shapes, "decoder_weight": (7, width), "decoder_bias": (7,)}
    assert {name: tuple(value.shape) for name, value in model.named_parameters()} == expected
    assert not any(value.any() for value in model.parameters())
    model.initialise(0)
    for value in model.parameters():
        limit = 2e-3 if value.dim() == 1 else np.sqrt(6 / sum(value.shape))
        assert value.any() and value.abs().max().item() <= limit


@pytest.mark.parametrize(
    ("model", "name"), [("vae", "posterior_weight"), ("vae", "hidden_bias"), ("cdae", "encoder_weight")]
)
@pytest.mark.parametrize("damage", ["absent", "of another shape"])
def test_a_folder_whose_weights_are_of_another_shape_is_refused(small_catalogue, tmp_path, model, name, damage):
    split = milrec.split_interactions(small_catalogue, seed=0)
    values = {"n_hidden": 5} if model == "vae" else {}
    milrec.fit(split, model, n_factors=4, epochs=1, **values).save(tmp_path / "model")
    path = tmp_path / "model" / "weights.safetensors"
    weights = load_file(path)
    own = weights.pop(name)
    save_file(weights if damage == "absent" else {**weights, name: own[:-1].clone()}, path)
    vouch(tmp_path / "model", path.name)
    with pytest.raises(FolderError, match="these settings and ids need"):
        milrec.load(tmp_path / "model")


def vouch(folder, name):
    """Make the manifest agree with a changed file."""
    manifest = json.loads((folder / "milrec.json").read_text())
    content = (folder / name).read_bytes()
    manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    del manifest["sha256"]
    (folder / "milrec.json").write_text(json.dumps(manifest))
