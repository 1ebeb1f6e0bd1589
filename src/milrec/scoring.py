"""Model + adopted items → top items, with what a user has already left out.

Users are scored in matrix products of one fixed shape (the last one filled up with empty rows): a product of another
shape may round otherwise, and then a list would depend on how many users were scored with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from milrec.folding import fold_in
from milrec.models import DenoisingAutoencoder, MatrixFactorization, Model, encoder_inputs
from milrec.presets import FitSettings
from milrec.splitting import Audience

ROWS = 64  # users per matrix product

Scores = npt.NDArray[np.float32]


def logit_blocks(
    model: Model, settings: FitSettings, audience: Audience, n_drawn: int
) -> Iterator[tuple[slice, Scores]]:
    """The logits of an audience, `ROWS` users at a time: never users × items at once."""
    for start in range(0, audience.n_users, ROWS):
        block = slice(start, min(start + ROWS, audience.n_users))
        latent = _latents(model, settings, audience.part(block), n_drawn)  # (ROWS, n_factors)
        with torch.no_grad():
            logits = model.decode(latent)  # (ROWS, n_items)
        yield block, logits[: block.stop - block.start].cpu().numpy()


def masked(logits: Scores, audience: Audience, allowed: npt.NDArray[np.bool_] | None = None) -> Scores:
    """Scores: the logits, with -inf for what a user has, has rejected, or may not be shown."""
    scores = np.array(logits, dtype=np.float32)
    for pairs in (audience.removed, audience.rejected):
        users = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
        scores[users, pairs.indices] = -np.inf
    if allowed is not None:
        scores[:, ~allowed] = -np.inf
    return scores


def top_items(scores: Scores, n: int) -> npt.NDArray[np.int64]:
    """The n best items of each user, best first, equal scores in item order; -1 where no item is left to list."""
    n = min(n, scores.shape[1])
    if n == 0:
        return np.zeros((len(scores), 0), dtype=np.int64)
    best, items = torch.topk(torch.from_numpy(scores), n, dim=1, sorted=False)
    chosen = np.sort(_ties_in_item_order(scores, best.numpy(), items.numpy()), axis=1)  # (n_users, n)
    values = np.take_along_axis(scores, chosen, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    chosen, values = np.take_along_axis(chosen, order, axis=1), np.take_along_axis(values, order, axis=1)
    return np.where(np.isneginf(values), -1, chosen)


def _ties_in_item_order(scores: Scores, best: Scores, items: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where the last place is tied with items outside the list, give it to the first of them by number."""
    last = best.min(axis=1, keepdims=True)  # (n_users, 1)
    n_tied, n_listed = (scores == last).sum(axis=1), (best == last).sum(axis=1)
    for user in np.flatnonzero((n_tied > n_listed) & ~np.isneginf(last[:, 0])):
        sure = items[user][best[user] > last[user]]
        tied = np.flatnonzero(scores[user] == last[user])[: len(items[user]) - len(sure)]
        items[user] = np.concatenate([sure, tied])
    return items


def _latents(model: Model, settings: FitSettings, audience: Audience, n_drawn: int) -> Tensor:
    """Latents of at most `ROWS` users, filled up to `ROWS`, where the model is: on the CPU or a GPU."""
    device = model.decoder_bias.device
    if isinstance(model, MatrixFactorization):
        if audience.rows is not None:
            with torch.no_grad():
                return model.encode(torch.from_numpy(np.resize(audience.rows, ROWS)).to(device))
        return fold_in(model, settings, _filled(audience.adopted), _filled(audience.rejected), n_drawn)
    adopted = _filled(audience.adopted)
    if isinstance(model, DenoisingAutoencoder):
        adopted = encoder_inputs(adopted, model.settings.input_weights)
    with torch.no_grad():
        return model.encode(torch.from_numpy(adopted.toarray()).to(device))


def _filled(pairs: csr_array) -> csr_array:
    """The same pairs with empty rows up to `ROWS`."""
    indptr = np.concatenate([pairs.indptr, np.full(ROWS - pairs.shape[0], pairs.indptr[-1])])
    return csr_array((pairs.data, pairs.indices, indptr), shape=(ROWS, pairs.shape[1]))
