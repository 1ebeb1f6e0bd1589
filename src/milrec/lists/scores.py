"""Model + adopted items → top items, with what a user has already left out.

Blocks of users go through workers: latents, logits in matrix products of one fixed shape (the last block is filled up
with empty rows), masks, top items; never users × items at once. A product of another shape may round otherwise, and
then a list would depend on how many users were scored with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from milrec.data.splits import Audience
from milrec.errors import SettingsError
from milrec.kernels.ranking import add_bias, hide, hide_columns, top_lists
from milrec.kernels.rows import weighted_rows
from milrec.kernels.sparse import Rows
from milrec.kernels.threads import Task, available, workers, zeros
from milrec.lists.fold_in import fold_in, weighted_fold_in
from milrec.models.autoencoders import CollaborativeAutoencoder
from milrec.models.contract import Model
from milrec.models.factorization import MatrixFactorization, WeightedFactorization
from milrec.models.factors import Factors, encoder_inputs, with_own_rows
from milrec.models.item_to_item import ItemToItem
from milrec.models.popularity import Popularity
from milrec.training.presets import FitSettings

ROWS = 64  # users per matrix product
FOLDED_ROWS = 8  # users folded in together: each costs 150 steps over the catalogue, and empty rows cost the same
_COLUMNS = 1024  # items per matrix product
_BLOCKS_AT_ONCE = 32  # lists are handed on every 2048 users
_LARGEST_DIAL = 1e30  # beyond it logits count for nothing already, and single precision ends

Scores = npt.NDArray[np.float32]
Look = Callable[[slice, Scores], None]


@dataclass(frozen=True)
class Lists:
    """The lists of some users of an audience."""

    users: slice
    items: npt.NDArray[np.int64]  # (n_users, n) best first, -1 where no item is left to list
    scores: Scores  # (n_users, n)


def lists_for(
    model: Model,
    settings: FitSettings,
    audience: Audience,
    n_drawn: int,
    n: int,
    allowed: npt.NDArray[np.bool_] | None = None,
    look: Look | None = None,
    shift: npt.NDArray[np.float32] | None = None,
) -> Iterator[Lists]:
    """The n best items of each user of an audience, a few thousand users at a time.

    `look` is shown the logits of each block of users, before anything is left out; it is called by several threads.
    `shift`, one number per item, is then added to the logits (see `dial_shift`).
    """
    n = min(n, model.n_items)
    per_round = ROWS * _BLOCKS_AT_ONCE
    for first in range(0, audience.n_users, per_round):
        users = slice(first, min(first + per_round, audience.n_users))
        shape = (users.stop - first, n)
        lists = Lists(users, np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32))

        def use(block: slice, scores: Scores, lists: Lists = lists) -> None:
            if look is not None:
                look(block, scores)
            if shift is not None:
                add_bias(scores, shift)
            leave_out(scores, audience, block, allowed)
            part = slice(block.start - lists.users.start, block.stop - lists.users.start)
            _fill(scores, lists.items[part], lists.scores[part])

        score_blocks(model, settings, audience, users, n_drawn, use)
        yield lists


def score_blocks(
    model: Model, settings: FitSettings, audience: Audience, users: slice, n_drawn: int, use: Look
) -> None:
    """Hand the logits of each block of these users to `use`, which may change them; several threads call it."""
    number = (settings.training.threads if settings.training else None) or available()
    starts = range(users.start, users.stop, ROWS)
    memory = [zeros(ROWS, model.n_items) for _ in range(min(number, len(starts)))]

    def task(block: slice) -> Task:
        return lambda worker: use(block, logits_of(model, settings, audience, block, n_drawn, memory[worker]))

    with workers(number) as crew:  # not longer than a round: whoever takes the lists may use torch himself
        crew.run([task(slice(start, min(start + ROWS, users.stop))) for start in starts])


def logits_of(
    model: Model, settings: FitSettings, audience: Audience, block: slice, n_drawn: int, memory: Tensor | None = None
) -> Scores:
    """The logits of at most `ROWS` users: (n_users, n_items)."""
    out = torch.empty(ROWS, model.n_items) if memory is None else memory
    if isinstance(model, Popularity):
        out.zero_()
    elif isinstance(model, ItemToItem):
        _sum_item_rows(model, audience, block, out)
    else:
        latent = latents_of(model, settings, audience, block, n_drawn)  # (ROWS, width)
        weight = model.decoder_weight.detach()
        for start in range(0, len(weight), _COLUMNS):
            part = weight[start : start + _COLUMNS]
            columns = out[:, start : start + len(part)]
            if part.device.type == "cpu":
                torch.mm(latent, part.T, out=columns)
            else:
                columns.copy_(latent @ part.T)
    if not isinstance(model, ItemToItem | WeightedFactorization):
        add_bias(out.numpy(), model.decoder_bias.detach().cpu().numpy())
    return out.numpy()[: block.stop - block.start]


def checked_dial(dial: float) -> float:
    if not isinstance(dial, int | float | np.number) or not math.isfinite(dial):
        raise SettingsError(f"a dial is a finite number, not {dial!r}")
    return min(max(float(dial), -_LARGEST_DIAL), _LARGEST_DIAL)


def dial_shift(dial: float, logs: npt.NDArray[np.float64]) -> npt.NDArray[np.float32] | None:
    """-dial × ln(popularity) for each item: what turns lists towards rare items, or popular ones; None for 0."""
    dial = checked_dial(dial)
    return (-dial * logs).astype(np.float32) if dial else None


def leave_out(scores: Scores, audience: Audience, block: slice, allowed: npt.NDArray[np.bool_] | None = None) -> None:
    """-inf for what a user has, has rejected, or may not be shown."""
    for pairs in (audience.removed, audience.rejected):
        hide(scores, pairs.indptr[block.start : block.stop + 1], pairs.indices)
    if allowed is not None:
        hide_columns(scores, allowed)


def top_items(scores: Scores, n: int) -> npt.NDArray[np.int64]:
    """The n best items of each user, best first, equal scores in item order; -1 where no item is left to list."""
    n = min(n, scores.shape[1])
    items = np.empty((len(scores), n), dtype=np.int64)
    if n:
        top_lists(np.ascontiguousarray(scores, dtype=np.float32), n, items)
    return items


def _fill(scores: Scores, items: npt.NDArray[np.int64], values: Scores) -> None:
    if items.shape[1]:
        top_lists(scores, items.shape[1], items)
        values[:] = np.take_along_axis(scores, np.maximum(items, 0), axis=1)


def _sum_item_rows(model: ItemToItem, audience: Audience, block: slice, out: Tensor) -> None:
    adopted = Rows.of(audience.adopted, np.arange(block.start, block.stop))
    ones = np.ones(len(adopted.items), dtype=np.float32)
    out.zero_()
    weight = model.item_weight.detach().numpy()
    weighted_rows(0, adopted.n_rows, weight, adopted.indptr, adopted.items, ones, out.numpy())


def latents_of(
    model: Factors | WeightedFactorization,
    settings: FitSettings,
    audience: Audience,
    block: slice,
    n_drawn: int,
) -> Tensor:
    """Latents of at most `ROWS` users, filled up to `ROWS`, where the model is: on the CPU or a GPU."""
    device = model.decoder_weight.device
    users = np.arange(block.start, block.stop)
    if isinstance(model, MatrixFactorization | WeightedFactorization):
        if audience.rows is None:
            latent = torch.zeros(ROWS, model.decoder_weight.shape[1], device=device)
            adopted, rejected = (Rows.of(pairs, users) for pairs in (audience.adopted, audience.rejected))
            latent[: len(users)] = folded_latents(model, settings, adopted, rejected, n_drawn)
            return latent
        rows = np.resize(audience.rows[block], ROWS)
        with torch.no_grad():
            return model.encode(torch.from_numpy(rows).to(device))
    inputs = encoder_inputs(Rows.of(audience.adopted, users), model.settings.input_weights)
    if isinstance(model, CollaborativeAutoencoder) and audience.rows is not None:
        inputs = with_own_rows(inputs, len(model.decoder_bias) + audience.rows[block])
    inputs = _filled(inputs, ROWS)
    product = torch.zeros(ROWS, model.encoder_weight.shape[1])
    weight = model.encoder_weight.detach().cpu().numpy()
    weighted_rows(0, ROWS, weight, inputs.indptr, inputs.items, inputs.values, product.numpy())
    with torch.no_grad():
        return model.latent(product.to(device))


def folded_latents(
    model: MatrixFactorization | WeightedFactorization,
    settings: FitSettings,
    adopted: Rows,
    rejected: Rows,
    n_drawn: int,
) -> Tensor:
    """Latents of new users, in blocks of `FOLDED_ROWS`, the last one filled up: none depends on its neighbours."""
    if isinstance(model, WeightedFactorization):
        return weighted_fold_in(model, adopted)
    latents = []
    for start in range(0, adopted.n_rows, FOLDED_ROWS):
        own, refused = (_filled(_cut(rows, start), FOLDED_ROWS) for rows in (adopted, rejected))
        latents.append(fold_in(model, settings, own, refused, n_drawn))
    return torch.cat(latents)[: adopted.n_rows]


def _cut(rows: Rows, start: int) -> Rows:
    """At most `FOLDED_ROWS` rows."""
    indptr = rows.indptr[start : start + FOLDED_ROWS + 1]
    pairs = slice(indptr[0], indptr[-1])
    return Rows(indptr - indptr[0], rows.items[pairs], rows.values[pairs])


def _filled(rows: Rows, n_rows: int) -> Rows:
    """The same with empty rows up to a number."""
    more = np.full(n_rows - rows.n_rows, rows.indptr[-1])
    return Rows(np.concatenate([rows.indptr, more]), rows.items, rows.values)
