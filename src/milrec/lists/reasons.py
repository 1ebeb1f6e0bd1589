"""Reasons: how much each adopted item of a user speaks for a listed one, as a part of its logit.

Where the logit is a sum over adopted items, the parts are exact: v_i·(W_i·W'_j) for an autoencoder with a linear
encoder, the weight from i to j for EASE and SLIM. Elsewhere a part is what the logit loses without the item
(leave-one-out); for matrix factorization, users are folded in from what they adopted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from milrec.kernels.sparse import Rows
from milrec.lists.query import Asked
from milrec.lists.scores import FOLDED_ROWS, folded_latents
from milrec.models.autoencoders import CollaborativeAutoencoder, DenoisingAutoencoder
from milrec.models.contract import Autoencoder
from milrec.models.factorization import MatrixFactorization, WeightedFactorization
from milrec.models.factors import encoder_inputs
from milrec.models.item_to_item import ItemToItem
from milrec.models.popularity import Popularity
from milrec.training.artifact import Fitted

Parts = npt.NDArray[np.float64]  # (n_adopted, n_listed)
Latents = npt.NDArray[np.float32]  # (1 + n_adopted, width)
Folded = MatrixFactorization | WeightedFactorization
MOST_FOLDED = 200  # adopted items: for more, folding in without each of them would take minutes


def why_none(fitted: Fitted, asked: Asked) -> str | None:
    """Why no reasons can be given, where that is so."""
    if not isinstance(fitted.model, Folded) or len(asked.adopted) <= MOST_FOLDED:
        return None
    return f"reasons: this model gives them for at most {MOST_FOLDED} adopted items, not {len(asked.adopted)}"


def parts_of_logits(fitted: Fitted, asked: Asked, items: npt.NDArray[np.int64], n_drawn: int) -> Parts:
    """What each adopted item adds to the logit of each of these items."""
    model = fitted.model
    if isinstance(model, Popularity) or not len(asked.adopted) or not len(items):
        return np.zeros((len(asked.adopted), len(items)))
    if isinstance(model, ItemToItem):
        weights: Parts = model.item_weight.detach().numpy()[np.ix_(asked.adopted, items)].astype(np.float64)
        return weights
    if isinstance(model, DenoisingAutoencoder | CollaborativeAutoencoder) and model.settings.encoder == "linear":
        return _linear_parts(model, asked, items)
    if isinstance(model, Folded):
        latents = _folded_without_each(fitted, model, asked, n_drawn)
    else:
        latents = _latents_without_each(model, asked)
    parts: Parts = (latents[0] - latents[1:]).astype(np.float64) @ _taken(model.decoder_weight, items).T
    return parts


def strongest(parts: Parts, n: int) -> list[list[tuple[int, float]]]:
    """For each listed item the places of the adopted items with the n largest parts above 0, and these parts."""
    order = np.argsort(-parts, axis=0, kind="stable")[:n]  # (n, n_listed)
    largest = np.take_along_axis(parts, order, axis=0)
    pairs = (
        zip(places, values, strict=True) for places, values in zip(order.T.tolist(), largest.T.tolist(), strict=True)
    )
    return [[(place, value) for place, value in one if value > 0] for one in pairs]


def _linear_parts(
    model: DenoisingAutoencoder | CollaborativeAutoencoder, asked: Asked, items: npt.NDArray[np.int64]
) -> Parts:
    inputs = encoder_inputs(_adopted(asked), model.settings.input_weights)
    own = _taken(model.encoder_weight, inputs.items) * inputs.values[:, None]  # (n_adopted, n_factors)
    parts: Parts = own @ _taken(model.decoder_weight, items).T
    return parts


def _latents_without_each(model: Autoencoder, asked: Asked) -> Latents:
    """Latents with all adopted items, and then without each of them: W·v less the item's part, of length 1 again."""
    inputs = encoder_inputs(_adopted(asked), model.settings.input_weights)
    values = inputs.values.astype(np.float64)[:, None]  # (n_adopted, 1), of length 1
    own = _taken(model.encoder_weight, inputs.items) * values  # (n_adopted, width)
    rest = np.sqrt(np.maximum(1 - values**2, np.finfo(np.float64).tiny))
    without = (own.sum(axis=0) - own) / rest if len(own) > 1 else np.zeros_like(own)
    product = np.vstack([own.sum(axis=0), without])  # (1 + n_adopted, width)
    if isinstance(model, CollaborativeAutoencoder) and asked.row is not None:
        product += _taken(model.encoder_weight, np.array([model.n_items + asked.row]))
    with torch.no_grad():
        device = model.encoder_weight.device
        return model.latent(torch.from_numpy(product.astype(np.float32)).to(device)).cpu().numpy()


def _folded_without_each(fitted: Fitted, model: Folded, asked: Asked, n_drawn: int) -> Latents:
    """The same for a user who is folded in, a few rows at a time."""
    n, latents = len(asked.adopted), []
    for start in range(-1, n, FOLDED_ROWS):  # -1: without none of them
        left_out = np.arange(start, min(start + FOLDED_ROWS, n))
        kept = left_out[:, None] != np.arange(n)  # (n_rows, n)
        places = np.nonzero(kept)[1]
        adopted = Rows(_starts(kept.sum(axis=1)), asked.adopted[places], asked.weights[places])
        refused = np.tile(asked.rejected, len(kept))
        rejected = Rows(
            _starts(np.full(len(kept), len(asked.rejected))), refused, np.ones(len(refused), dtype=np.float32)
        )
        latents.append(folded_latents(model, fitted.settings, adopted, rejected, n_drawn))
    return torch.cat(latents).cpu().numpy()


def _starts(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts)])


def _adopted(asked: Asked) -> Rows:
    return Rows(np.array([0, len(asked.adopted)]), asked.adopted, asked.weights)


def _taken(weight: torch.Tensor, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float64]:
    """Some rows of a weight, in double precision."""
    taken = weight.detach()[torch.from_numpy(rows.astype(np.int64)).to(weight.device)]
    return taken.double().cpu().numpy()
