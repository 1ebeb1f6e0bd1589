"""LightGCN and RecVAE of the study against formulas written out, and their judge against milrec's."""

import numpy as np
import pytest
import torch
from experiments.judged import MEASURES, judged
from experiments.rivals import lightgcn, recvae
from experiments.rivals.sparse import SparseRows
from scipy import sparse
from torch.distributions import Categorical, MixtureSameFamily, Normal

import milrec


@pytest.fixture(scope="module")
def split():
    data = milrec.simulate(milrec.Simulation(n_users=80, n_items=60), seed=0)
    return milrec.split_interactions(data, seed=0)


def test_a_sparse_product_has_the_gradient_of_a_dense_one():
    rows = sparse.random(7, 5, density=0.5, format="csr", dtype=np.float32, random_state=0)
    dense = torch.randn(5, 3, requires_grad=True)
    product = SparseRows(rows) @ dense
    product.square().sum().backward()
    known = torch.from_numpy(rows.toarray())
    torch.testing.assert_close(product, known @ dense)
    torch.testing.assert_close(dense.grad, 2 * known.T @ (known @ dense.detach()))


def test_layers_are_powers_of_the_normalised_graph(split):
    known = torch.from_numpy((split.train.adopted.toarray() > 0).astype(np.float32))
    n_users, n_items = known.shape
    graph = torch.zeros(n_users + n_items, n_users + n_items)
    graph[:n_users, n_users:], graph[n_users:, :n_users] = known, known.T
    root = graph.sum(dim=1).clamp(min=1).rsqrt()
    graph = root[:, None] * graph * root
    start = torch.randn(n_users + n_items, 4)
    wanted = (start + graph @ start + graph @ graph @ start) / 3
    users, items = lightgcn.Graph(split).mean(start[:n_users], start[n_users:], 2)
    torch.testing.assert_close(torch.cat([users, items]), wanted)


def test_draws_are_missing_items(split):
    draws = lightgcn.Draws(split)
    users = np.repeat(np.arange(80), 50)
    assert not split.train.adopted[users, draws.missing(users, np.random.default_rng(0))].any()


def test_the_prior_is_a_mixture_of_three():
    latent, mean, log_variance = torch.randn(3, 6, recvae.N_LATENT)
    means = torch.stack([torch.zeros_like(mean), mean, torch.zeros_like(mean)], dim=-1)
    wide = torch.full_like(mean, np.exp(recvae.WIDE / 2))
    deviations = torch.stack([torch.ones_like(mean), (log_variance / 2).exp(), wide], dim=-1)
    mixture = MixtureSameFamily(Categorical(torch.tensor(recvae.SHARES)), Normal(means, deviations))
    torch.testing.assert_close(recvae.RecVAE._log_prior(latent, mean, log_variance), mixture.log_prob(latent))


def test_hidden_items_leave_rows_as_long_on_average():
    known = sparse.csr_matrix(np.ones((2000, 4), np.float32))
    seen = recvae.partly_hidden(known, 0.5, np.random.default_rng(0))
    assert set(np.unique(seen.data)) == {0, 1}  # a row of four has ½ for each item; what is seen counts twice
    assert seen.data.mean() == pytest.approx(0.5, abs=0.03)
    assert recvae.of_length_1(known).data == pytest.approx(0.5)


def test_lists_are_judged_as_milrec_judges_them(split):
    model = milrec.fit(split, "ease")
    known = (split.train.adopted.toarray() > 0).astype(np.float32)
    weights = model.fitted.model.tensors()["item_weight"].numpy()
    found = judged(lambda users: torch.from_numpy(known[users] @ weights), split, split.test)
    own = model.evaluate(split)
    for name in MEASURES:
        assert np.nanmean(found[name]) == pytest.approx(own.measures[name], abs=1e-6), name


@pytest.mark.parametrize("rival", [(lightgcn, lightgcn.Setting(8, 2, 1e-4, 128)), (recvae, recvae.Setting(0.005, 20))])
def test_each_learns_two_tastes_and_the_same_again(checkerboard, rival, monkeypatch):
    module, setting = rival
    monkeypatch.setattr(module, "EPOCHS", 6)
    monkeypatch.setattr(module, "VALIDATE_EVERY", 3)
    split = milrec.split_interactions(checkerboard, seed=0)
    first, second = (module.fit(split, setting, 0) for _ in range(2))
    assert (first.best, first.epoch) == (second.best, second.epoch)
    top = first.scores(np.arange(60)).masked_fill(torch.from_numpy(split.train.adopted.toarray() > 0), -torch.inf)
    assert (top.argmax(dim=1) % 2 == torch.arange(60) % 2).float().mean() > 0.9
