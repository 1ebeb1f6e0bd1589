"""Where a fit starts: Glorot-uniform weights (the paper's), or the main directions of the data, small.

The matrix of adopted pairs, its rows and columns divided by √adopted and √adopters, is S ≈ U·Σ·V'. An encoder
W = N^-½·V·Σ and a decoder W' = N^½·V (N the adopters of each item) list as a truncated SVD does; scaled down to small
logits they are a direction more than a place, and the fit does the rest in far fewer steps. Biases start at 0, or where
the loss would put them if nothing were known about users but how often each item is adopted.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from milrec.data.interactions import Interactions
from milrec.kernels.losses import pair_logits
from milrec.kernels.rows import weighted_rows
from milrec.kernels.sparse import Rows
from milrec.kernels.threads import Pool, over_users, thread_pool, zeros
from milrec.losses import RestingLoss
from milrec.models.contract import GradientModel
from milrec.models.factors import Factors
from milrec.models.inputs import unit_rows
from milrec.training.settings import GradientFit
from milrec.training.targets import n_missing_drawn, user_importance

_USERS = 20_000  # are enough to find the directions
_MORE_DIRECTIONS = 10
_ROUNDS = 4
_NOT_FLAT = (1e-3, 0.95)  # outside of these preferences a sigmoid is so flat that a bias moves slowly

Floats = npt.NDArray[np.float32]


def start(model: GradientModel, train: Interactions, settings: GradientFit, seed: int) -> None:
    """Give a model its first weights."""
    model.initialise(seed)
    if settings.training.start == "svd" and train.adopted.nnz:
        with thread_pool(settings.training.threads) as pool:
            _start_from_directions(cast(Factors, model), train, settings.training.start_logit, seed, pool)
    if settings.training.start_bias == "rest":
        with torch.no_grad():
            model.decoder_bias.copy_(torch.from_numpy(resting_biases(train, settings)))


def resting_biases(train: Interactions, settings: GradientFit) -> Floats:
    """The logits at which the loss rests for a user we know nothing about: (n_items,)."""
    assert settings.target_set is not None and settings.rests
    popularity: npt.NDArray[Any] = train.popularity()
    if settings.training.user_exponent:
        popularity = user_importance(train.adopted, settings.training.user_exponent) @ train.adopted.astype(bool)
    share = np.maximum(popularity, 0.5) / (train.n_users + 1)  # of users who adopted each item, below 1
    drawn = n_missing_drawn(train.adopted, settings.target_factor) / train.n_items
    weight = 1.0 if settings.target_set.target_set == "all" else min(drawn, 1.0)
    loss = cast(RestingLoss, settings.loss)
    preference = loss.resting_preference(share / (1 - share), weight).clip(*_NOT_FLAT)
    logits: Floats = np.log(preference / (1 - preference)).astype(np.float32)
    return logits


def _start_from_directions(model: Factors, train: Interactions, logit: float, seed: int, pool: Pool) -> None:
    random = np.random.default_rng([seed, 5])
    users = np.sort(random.permutation(train.n_users)[:_USERS])
    inputs = unit_rows(Rows.of(train.adopted, users), "binary")  # rows of length 1: divided by √adopted
    root = np.sqrt(np.maximum(train.popularity(), 1)).astype(np.float32)  # (n_items,)
    n_factors = min(model.settings.n_factors, train.n_items, len(users))
    vectors, strengths = directions(inputs, root, n_factors, random, pool)
    encoder, decoder = vectors * (strengths / root[:, None]), vectors * root[:, None]  # (n_items, n_factors)
    latent = np.zeros((inputs.n_rows, n_factors), dtype=np.float32)
    pool.run(over_users(weighted_rows, inputs.n_rows, encoder, inputs.indptr, inputs.items, inputs.values, latent))
    logits = np.empty(len(inputs.items), dtype=np.float32)
    no_bias = np.zeros(train.n_items, dtype=np.float32)
    pool.run(over_users(pair_logits, inputs.n_rows, latent, decoder, no_bias, inputs.indptr, inputs.items, logits))
    scale = np.sqrt(logit / max(float(logits.mean(dtype=np.float64)), 1e-12))
    balance = np.sqrt(np.linalg.norm(decoder) / max(float(np.linalg.norm(encoder)), 1e-12))
    if not model.reader.n_items:  # the rows of W are users
        everyone = unit_rows(Rows.of(train.adopted, np.arange(train.n_users)), "binary")
        latent = np.zeros((train.n_users, n_factors), dtype=np.float32)
        parts = (encoder, everyone.indptr, everyone.items, everyone.values, latent)
        pool.run(over_users(weighted_rows, train.n_users, *parts))
        encoder = latent
    with torch.no_grad():
        model.encoder_weight[len(encoder) :] = 0  # rows of rejected items and of users come after them
        _put(model.encoder_weight[: len(encoder)], encoder * np.float32(scale * balance))
        _put(model.decoder_weight, decoder * np.float32(scale / balance))


def directions(
    inputs: Rows, root: Floats, n_directions: int, random: np.random.Generator, pool: Pool
) -> tuple[Floats, Floats]:
    """The first right singular vectors (n_items, n) and values (n,) of inputs / root, by subspace iteration."""
    n_items = len(root)
    values = inputs.values / root[inputs.items]
    by_item = csr_array((values, inputs.items, inputs.indptr), shape=(inputs.n_rows, n_items)).T.tocsr()
    item_indptr, item_users = by_item.indptr.astype(np.int64), by_item.indices.astype(np.int32)
    width = min(n_directions + _MORE_DIRECTIONS, n_items)
    basis = _orthonormal(torch.from_numpy(random.standard_normal((n_items, width), dtype=np.float32)))
    seen, image = zeros(inputs.n_rows, width), zeros(n_items, width)
    for _ in range(_ROUNDS):
        seen.zero_(), image.zero_()
        parts = (inputs.indptr, inputs.items, values, seen.numpy())
        pool.run(over_users(weighted_rows, inputs.n_rows, basis.numpy(), *parts))
        parts = (item_indptr, item_users, by_item.data, image.numpy())
        pool.run(over_users(weighted_rows, n_items, seen.numpy(), *parts))
        last, basis = basis, _orthonormal(image)
    squares, rotation = torch.linalg.eigh((last.T @ image).double())  # S'S within the last basis
    order = squares.argsort(descending=True, stable=True)[:n_directions]
    vectors: Floats = (last @ rotation[:, order].float()).numpy()
    strengths: Floats = squares[order].clamp(min=0).sqrt().float().numpy()
    return vectors, strengths


def _orthonormal(matrix: Tensor) -> Tensor:
    basis = zeros(*matrix.shape)
    basis.copy_(torch.linalg.qr(matrix).Q)
    return basis


def _put(weight: Tensor, values: Floats) -> None:
    """Set the first factors; if the data has fewer directions than the model, the others stay as they are."""
    weight[:, : values.shape[1]] = torch.from_numpy(values)
