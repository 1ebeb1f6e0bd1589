"""Decoder × loss × gradient in one pass over blocks of items: never users × items, and no gradient by autograd.

A block's logits are computed, overwritten with slopes, and multiplied twice more while they are in the cache. To
autograd all of it is one function of the latents, so any encoder will do; the decoder's gradient is left for the
optimiser. `losses` has the same as formulas, and tests compare the two.

Two ways: over the whole catalogue, or over the items drawn for a batch (`target_set=shared`), where adopted and
rejected pairs are dot products and nothing grows with the catalogue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from milrec.kernels import losses as loss_kernels
from milrec.kernels import rows as row_kernels
from milrec.kernels.jit import ADOPTED, REJECTED
from milrec.kernels.sparse import Rows, Transposed
from milrec.kernels.threads import Pool, Task, over_users, zeros
from milrec.losses import (
    Loss,
    MissingInformationLoss,
    MultinomialLoss,
    PairwiseCrossEntropy,
    PointwiseCrossEntropy,
    SquareLoss,
)
from milrec.models.contract import GradientModel
from milrec.training.steps.adam import RowGradient
from milrec.training.targets import TargetSet

_BLOCK_CELLS = 262_144  # logits of a block: 1 MiB, what a core's cache holds in addition to the weights
_LANES = 8  # sums over blocks that are kept apart: the result is the same for any number of workers

Floats = npt.NDArray[np.float32]
Cells = tuple[Any, Any, Any, Any]  # indptr, columns, roles, weights
Pairs = tuple[Any, Any, Any]  # indptr, adopted logits, keys


@dataclass(frozen=True)
class _Columns:
    """The items whose logits are computed by matrix products, and what is known about them."""

    weight: Tensor  # (n_columns, n_factors); where items are named, memory for theirs
    bias: Floats  # (n_columns,)
    items: npt.NDArray[np.int32]  # (n_columns,) their numbers; empty where columns are items
    missing_weight: Floats  # (n_users,) of a missing item, times the user's share
    shares: Floats  # (n_users,) of each user in the loss of the batch
    counts: Floats  # (n_columns,) how many missing items each column stands for
    cells: Cells  # where something else is known
    pairs: Pairs | None  # for the pair-wise losses

    def blocks(self, n_users: int) -> list[slice]:
        """Columns that are processed together: few enough for the cache, in enough blocks for the workers."""
        n_columns = len(self.bias)
        width = min(max(_BLOCK_CELLS // n_users, 64), max(-(-n_columns // _LANES), 64))
        return [slice(start, min(start + width, n_columns)) for start in range(0, n_columns, width)]


class _Sums:
    """What a pass over the columns adds up."""

    def __init__(self, memory: _Memory, latent: Tensor, columns: _Columns, n_blocks: int) -> None:
        n_users, n_factors = latent.shape
        n_columns = len(columns.bias)
        self.shares = columns.shares
        self.lanes = memory("lanes", _LANES + 2, n_users, n_factors).zero_()  # slopes of the latents; last two: pairs
        self.weight = memory("weight", n_columns, n_factors)  # slopes of the columns' weights
        self.bias = np.empty(n_columns, dtype=np.float32)
        self.partners = np.zeros((_LANES, 0 if columns.pairs is None else len(columns.pairs[1])), dtype=np.float32)
        self.values = np.zeros(n_blocks)


class _Memory:
    """Memory that is allocated once and reused; its content is whatever was there."""

    def __init__(self) -> None:
        self._taken: dict[Any, Tensor] = {}

    def __call__(self, name: Any, *shape: int) -> Tensor:
        size = math.prod(shape)
        if name not in self._taken or self._taken[name].numel() < size:
            self._taken[name] = zeros(size)
        return self._taken[name][:size].view(shape)


class FusedLoss:
    """The mean loss of a batch as a function of its latents; `gradients` then holds the decoder's."""

    def __init__(self, model: GradientModel, loss: Loss, pool: Pool) -> None:
        self.weight, self.bias = model.decoder_weight.detach(), model.decoder_bias.detach().numpy()
        self.kind, self.parameters = compiled_loss(loss, model.settings.decoder)
        self.pool, self.memory = pool, _Memory()
        self.gradients: dict[str, RowGradient] = {}
        self._counts = np.zeros(len(self.bias), dtype=np.int64)
        self._all_items = np.arange(len(self.bias), dtype=np.int32)
        self._ones = np.ones(len(self.bias), dtype=np.float32)
        self._no_pairs = Rows.none(0).transposed(self._all_items, self._counts)

    def __call__(self, latent: Tensor, targets: TargetSet) -> Tensor:
        result: Tensor = _Fused.apply(latent, self, targets)  # type: ignore[no-untyped-call]
        return result

    def value_and_slopes(self, latent: Tensor, targets: TargetSet) -> tuple[float, Tensor]:
        """The mean loss, and its gradient by the latents."""
        value, slopes = (self._whole if targets.items is None else self._sampled)(latent, targets)
        return value + 0.0 * float(slopes.sum() + latent.sum()), slopes  # so that NaN shows

    def _whole(self, latent: Tensor, targets: TargetSet) -> tuple[float, Tensor]:
        """Over all items of the catalogue."""
        shares = targets.shares
        adopted, rejected, other = targets.adopted, targets.rejected, targets.exceptions
        cells = row_kernels.merged_cells(
            *(adopted.indptr, adopted.items, rejected.indptr, rejected.items),
            *(other.indptr, other.items, other.values * shares[other.users]),
        )
        no_names = self._all_items[:0]
        pairs = self._pairs(latent, targets)
        columns = _Columns(self.weight, self.bias, no_names, targets.weight * shares, shares, self._ones, cells, pairs)
        sums = _Sums(self.memory, latent, columns, len(columns.blocks(len(latent))))
        if self.kind == loss_kernels.MULTINOMIAL:
            self._multinomial(latent, columns, sums)
        else:
            self.pool.run(self._lane_tasks(latent, columns, sums))
        slopes = [] if pairs is None else [(adopted, sums.partners.sum(axis=0))]
        self.pool.run([task for rows, own in slopes for task in self._backward_tasks(rows, own, sums)])
        return self._result(latent, sums, slopes, self._all_items)

    def _sampled(self, latent: Tensor, targets: TargetSet) -> tuple[float, Tensor]:
        """Over the drawn items by matrix products, and over the known pairs by dot products."""
        assert targets.items is not None and targets.item_weight is not None
        drawn, shares = targets.items, targets.shares
        known = [rows for rows in (targets.adopted, targets.rejected) if len(rows.items)]
        roles = [ADOPTED if rows is targets.adopted else REJECTED for rows in known]
        weight = self.memory("drawn", len(drawn), latent.shape[1])
        cells = row_kernels.known_among(
            *(targets.adopted.indptr, targets.adopted.items, targets.rejected.indptr, targets.rejected.items),
            *(drawn, self._counts),
        )
        pairs = self._pairs(latent, targets)
        missing = (targets.weight * shares, shares, targets.item_weight)
        columns = _Columns(weight, self.bias[drawn], drawn, *missing, cells, pairs)
        sums = _Sums(self.memory, latent, columns, len(columns.blocks(len(latent))))
        slopes = [(rows, np.zeros(len(rows.items), dtype=np.float32)) for rows in known]
        tasks = self._lane_tasks(latent, columns, sums)
        if pairs is None:
            values = np.zeros((len(known), len(latent)))
            for place, (rows, own) in enumerate(slopes):
                tasks += self._known_tasks(latent, rows, roles[place], own, values[place], sums)
            self.pool.run(tasks)
            sums.values[0] += values.sum()
        else:
            self.pool.run(tasks)
            sums.values[0] += self._slopes_of_pairs(latent, targets, slopes, pairs, sums.partners.sum(axis=0))
            for rows, own in slopes:
                self.pool.run(self._backward_tasks(rows, own, sums))
        return self._result(latent, sums, slopes, drawn)

    def _lane_tasks(self, latent: Tensor, columns: _Columns, sums: _Sums) -> list[Task]:
        """Logits → slopes → slopes of latents and weights, for every eighth block."""
        blocks = columns.blocks(len(latent))

        def lane_task(lane: int) -> Task:
            def task(worker: int) -> None:
                for number in range(lane, len(blocks), _LANES):
                    block = blocks[number]
                    weight = columns.weight[block]
                    if len(columns.items):
                        torch.index_select(self.weight, 0, torch.from_numpy(columns.items[block]), out=weight)
                    logits = self.memory(("block", worker), len(latent), len(weight))
                    torch.mm(latent, weight.T, out=logits)
                    common = (self.kind, self.parameters, logits.numpy(), columns.bias[block], block.start)
                    if columns.pairs is None:
                        sums.values[number] = loss_kernels.block_slopes(
                            *common,
                            columns.missing_weight,
                            columns.counts[block],
                            columns.shares,
                            columns.cells,
                            sums.bias[block],
                        )
                    else:
                        sums.values[number] = loss_kernels.pair_block_slopes(
                            *(
                                *common,
                                columns.items,
                                columns.missing_weight,
                                columns.counts[block],
                                columns.shares,
                                columns.cells,
                            ),
                            *(columns.pairs, sums.bias[block], sums.partners[lane]),
                        )
                    sums.lanes[lane].addmm_(logits, weight)
                    torch.mm(logits.T, latent, out=sums.weight[block])

            return task

        return [lane_task(lane) for lane in range(min(_LANES, len(blocks)))]

    def _multinomial(self, latent: Tensor, columns: _Columns, sums: _Sums) -> None:
        """The same for the multinomial loss: all logits of the batch are kept until their sum is known."""
        n_users, blocks = len(latent), columns.blocks(len(latent))
        logits = [self.memory(("logits", block.start), n_users, block.stop - block.start) for block in blocks]
        largest, exponentials = np.empty((2, len(blocks), n_users), dtype=np.float32)

        def forward(number: int) -> Task:
            def task(worker: int) -> None:
                torch.mm(latent, columns.weight[blocks[number]].T, out=logits[number])
                loss_kernels.softmax_sums(
                    logits[number].numpy(), columns.bias[blocks[number]], largest[number], exponentials[number]
                )

            return task

        self.pool.run([forward(number) for number in range(len(blocks))])
        top = largest.max(axis=0)
        with np.errstate(invalid="ignore"):  # a fit that has diverged is reported elsewhere
            normaliser = top + np.log((exponentials * np.exp(largest - top)).sum(axis=0))  # (n_users,)

        def backward(lane: int) -> Task:
            def task(worker: int) -> None:
                for number in range(lane, len(blocks), _LANES):
                    block, own = blocks[number], logits[number]
                    sums.values[number] = loss_kernels.multinomial_slopes(
                        own.numpy(), block.start, normaliser, columns.shares, columns.cells, sums.bias[block]
                    )
                    sums.lanes[lane].addmm_(own, columns.weight[block])
                    torch.mm(own.T, latent, out=sums.weight[block])

            return task

        self.pool.run([backward(lane) for lane in range(min(_LANES, len(blocks)))])

    def _pairs(self, latent: Tensor, targets: TargetSet) -> Pairs | None:
        if self.kind < loss_kernels.PAIR_LOGITS:
            return None
        return targets.adopted.indptr, self._pair_logits(latent, targets.adopted), targets.pair_keys

    def _pair_logits(self, latent: Tensor, rows: Rows) -> Floats:
        logits = np.empty(len(rows.items), dtype=np.float32)
        parts = (latent.numpy(), self.weight.numpy(), self.bias, rows.indptr, rows.items)
        self.pool.run(over_users(loss_kernels.pair_logits, len(latent), *parts, logits))
        return logits

    def _known_tasks(
        self, latent: Tensor, rows: Rows, role: int, slopes: Floats, values: npt.NDArray[np.float64], sums: _Sums
    ) -> list[Task]:
        """Adopted or rejected pairs: logits by dot products, slopes, and slopes of the latents."""
        parts = (self.kind, role, self.parameters, sums.shares, latent.numpy(), self.weight.numpy(), self.bias)
        lane = sums.lanes[_LANES + (role == REJECTED)]  # adopted and rejected pairs at once, each in its own
        more = (rows.indptr, rows.items, slopes, lane.numpy(), values)
        return over_users(loss_kernels.known_pairs, len(latent), *parts, *more)

    def _slopes_of_pairs(
        self, latent: Tensor, targets: TargetSet, slopes: list[tuple[Rows, Floats]], pairs: Pairs, partners: Floats
    ) -> float:
        """Pair-wise losses: the slopes of the adopted items, and the loss and slopes of the rejected ones."""
        value = 0.0
        for rows, own in slopes:
            if rows is targets.rejected:
                logits = self._pair_logits(latent, rows)
                value = loss_kernels.rejected_pair_slopes(
                    self.kind, self.parameters, targets.shares, pairs, rows.indptr, rows.items, logits, own, partners
                )
        for rows, own in slopes:
            if rows is targets.adopted:
                own[:] = partners
        return value

    def _backward_tasks(self, rows: Rows, slopes: Floats, sums: _Sums) -> list[Task]:
        """Slopes of the latents from slopes of pairs."""
        parts = (self.weight.numpy(), rows.indptr, rows.items, slopes, sums.lanes[_LANES].numpy())
        return over_users(row_kernels.weighted_rows, rows.n_rows, *parts)

    def _result(
        self, latent: Tensor, sums: _Sums, slopes: list[tuple[Rows, Floats]], first_rows: npt.NDArray[np.int32]
    ) -> tuple[float, Tensor]:
        if slopes:
            users = np.concatenate([rows.users for rows, _ in slopes])
            items = np.concatenate([rows.items for rows, _ in slopes])
            coefficients = np.concatenate([own for _, own in slopes])
            by_item = Transposed(*row_kernels.transposed(users, items, coefficients, first_rows, self._counts))
        else:
            by_item = (
                self._no_pairs if first_rows is self._all_items else Rows.none(0).transposed(first_rows, self._counts)
            )
        ones = np.ones((len(latent), 1), dtype=np.float32)
        self.gradients = {
            "decoder_weight": RowGradient(by_item, latent.numpy(), sums.weight.numpy()),
            "decoder_bias": RowGradient(by_item, ones, sums.bias[:, None]),
        }
        return float(sums.values.sum()), sums.lanes.sum(dim=0)


class _Fused(torch.autograd.Function):
    """The fused loss as autograd sees it: a function of the latents alone."""

    @staticmethod
    def forward(ctx: Any, latent: Tensor, fused: FusedLoss, targets: TargetSet) -> Tensor:
        value, slopes = fused.value_and_slopes(latent.detach().contiguous(), targets)
        ctx.save_for_backward(slopes)
        return torch.tensor(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0] * ctx.saved_tensors[0], None, None


def compiled_loss(loss: Loss, decoder: str) -> tuple[int, Floats]:
    """The number of a loss in `kernels.losses`, and its parameters."""
    values: tuple[float, ...] = ()
    if isinstance(loss, SquareLoss):
        kind = loss_kernels.SQUARE_LINEAR if decoder == "linear" else loss_kernels.SQUARE_SIGMOID
        values = (1.0, 1.0) if loss.confidence is None else ((loss.confidence + 1) / 2, 0.5)
    elif isinstance(loss, PointwiseCrossEntropy):
        kind, values = loss_kernels.POINTWISE, (loss.confidence or 1.0, loss.epsilon)
    elif isinstance(loss, PairwiseCrossEntropy):
        kind = loss_kernels.PAIR_SIGMOID if decoder == "sigmoid" else loss_kernels.PAIR_LINEAR
        kind, values = (loss_kernels.PAIR_LOGITS if loss.difference == "logits" else kind), (loss.pair_epsilon,)
    elif isinstance(loss, MultinomialLoss):
        kind = loss_kernels.MULTINOMIAL
    else:
        assert isinstance(loss, MissingInformationLoss)
        kind = loss_kernels.MIL
        exponents = (loss.missing_exponent, loss.adopted_exponent, loss.rejected_exponent)
        values = (loss.missing_weight, *exponents, loss.rejected_weight)
    return kind, np.array([*values, *[0.0] * (5 - len(values))], dtype=np.float32)
