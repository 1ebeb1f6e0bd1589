"""The target set and the training of a fit: their settings, and what the data's shape decides if these leave it open.

The rules were measured beforehand (docs/log.md). Nothing is timed, so the same data always gives the same fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from milrec.metrics.names import known_measure
from milrec.settings import Section

if TYPE_CHECKING:
    from milrec.data.interactions import Interactions

_STEPS_PER_EPOCH = 60  # that the batch size aims for
_SMALLEST_BATCH, _LARGEST_BATCH = 100, 500
_CELLS = 8_000_000  # users × items of a step, at most, from biases at rest
_WHOLE_CATALOGUE = 50_000  # up to this many items, every step can use them all
_FEW_ADOPTERS = 40  # for each item, on average
_FEW_PAIRS = 0.005  # of all users × items: below both, the data is sparse


class TargetSettings(Section):
    """Which missing items of a user enter the loss (section 3.3 of the paper)."""

    target_set: Literal["per_user", "shared", "expectation", "all", "auto"] = Field(
        "per_user",
        description="missing items drawn for each user, drawn once per batch by popularity, weighted by their chance "
        "of being drawn, or all with weight 1; auto: expectation up to 50,000 items, shared beyond",
    )
    target_factor: float = Field(50, gt=0, le=1e9, description="missing items drawn per user = factor × median adopted")
    rejected_as: Literal["rejected", "missing"] = Field(
        "rejected",
        description="how the loss treats rejected entries: as rejected, or as missing like any other, which is the "
        "default with MIL; they are never listed",
    )


class TrainingSettings(Section):
    """How a model is fitted."""

    batch_size: int | None = Field(
        100,
        ge=1,
        description="users per step; unset: a 60th of the users, but from 100 to 500 (fewer on sparse data)",
    )
    slices: int = Field(
        1,
        ge=1,
        le=1024,
        description="parts of a step whose gradients are computed on their own and added up in order, "
        "so that processes can share them",
    )
    epochs: int | None = Field(None, ge=1, description="passes over the users; unset: until validation stops improving")
    iterations: int | None = Field(None, ge=1, description="steps, instead of epochs")
    until: int | None = Field(
        None, ge=1, description="the step to stop at, without changing the schedule; set by a refit"
    )
    start: Literal["glorot", "svd"] = Field(
        "glorot", description="first weights: random, or the main directions of the data scaled down"
    )
    start_logit: float = Field(0.05, gt=0, description="mean logit that the first weights of svd add to adopted items")
    start_bias: Literal["zero", "rest"] | None = Field(
        "zero",
        description="first biases of items: 0, or where the loss rests for a user we know nothing about; "
        "unset: there if the data is sparse",
    )
    learning_rate: float | None = Field(
        1e-3,
        gt=0,
        description="of Adam; the peak if a schedule varies it; unset: the model's own or, from biases at "
        "rest, 5e-3 for 100 users and in proportion to √batch_size up to 500",
    )
    schedule: Literal["constant", "linear", "cosine", "one_cycle", "inverse_sqrt"] = Field(
        "constant", description="learning rate over the run; inverse_sqrt needs no set length"
    )
    warmup: int | None = Field(
        200,
        ge=1,
        description="steps until inverse_sqrt reaches its peak; it falls from there; "
        "unset: 200, from biases at rest 100",
    )
    averaging: float = Field(
        0, ge=0, lt=1, description="judge and keep the mean of the weights over about this share of the steps so far"
    )
    weight_decay: float = Field(1e-6, ge=0, description="λ")
    weight_decay_form: Literal["plain", "scaled", "popularity"] = Field(
        "plain",
        description="λ(‖W‖²+‖W'‖²), λ/D·(‖W‖²/rows + ‖W'‖²/rows), or λ times each item's share of all adopted pairs",
    )
    user_exponent: float = Field(
        0, ge=-2, le=2, description="β: a user's loss counts with n^-β, n their adopted items; above 0, short ones more"
    )
    measure: str = Field("ndcg@100", description="validation measure that chooses the weights to keep")
    validation_users: int = Field(
        10_000, ge=1, description="if validation has more users than this, a sample of this size is judged"
    )
    validate_every: int | Literal["auto"] | None = Field(
        None,
        description="steps; unset: an epoch, but at least 50 steps; auto: 50, from biases at rest 25 if an epoch has "
        "fewer than 50 (not with shared draws)",
    )
    slack: float = Field(
        0,
        ge=0,
        description="keep the latest weights within this much of the best measure: later ones list more of the tail; "
        "1: the last weights (with patience=0, those at the very end)",
    )
    patience: int = Field(
        8,
        ge=0,
        description="validations without improvement before stopping; averaged weights also stop if patience-1 of them "
        "are no better than as many before, or clearly fall; 0: never stop early",
    )
    checkpoint_seconds: float = Field(30, ge=0, description="at most this much work is lost when a fit is killed")
    engine: Literal["fast", "readable"] | None = Field(
        None, description="compiled kernels, or dense rows and autograd; unset: fast on the CPU, readable on a GPU"
    )
    device: str = Field("cpu", description="cpu, cuda, or auto for a GPU if there is one")
    threads: int | None = Field(None, ge=1, description="CPU threads; unset: as many as the machine has")
    skip_singles: bool | None = Field(
        False,
        description="leave users with fewer than two items out of the steps: they do not show which items go together; "
        "unset: if they have less than half of the adopted pairs and 100 others are left",
    )

    @model_serializer(mode="wrap")
    def _without_what_is_new(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As before these settings existed, where they change nothing: what was written then is of the same fit."""
        values: dict[str, Any] = plain(self)
        for name, nothing in (("slices", 1), ("user_exponent", 0)):
            if values.get(name) == nothing:
                del values[name]
        return values

    @field_validator("measure")
    @classmethod
    def _known_measure(cls, name: str) -> str:
        return known_measure(name)

    @field_validator("validate_every", mode="before")
    @classmethod
    def _steps_or_auto(cls, value: Any) -> Any:
        """One sentence for both kinds of value."""
        digits = isinstance(value, str) and len(value) < 19 and value.isascii() and value.isdigit()
        number = int(value) if digits else value
        if value in (None, "auto") or (type(number) is int and number >= 1):
            return number
        raise ValueError("it must be 'auto' or a whole number of 1 or more")

    @model_validator(mode="after")
    def _one_length(self) -> TrainingSettings:
        if self.epochs is not None and self.iterations is not None:
            raise ValueError("epochs and iterations both say how long to fit: set only one of them")
        return self


@dataclass(frozen=True)
class Shape:
    """How large data is."""

    n_users: int
    n_items: int
    n_pairs: int  # adopted ones
    n_rejected: int = 0
    n_singles: int = 0  # users with fewer than two items, adopted or rejected
    n_single_pairs: int = 0  # adopted ones of theirs

    @classmethod
    def of(cls, train: Interactions) -> Shape:
        single = train.items_per_user() < 2
        n_pairs = int(np.diff(train.adopted.indptr)[single].sum())
        return cls(
            train.n_users, train.n_items, train.adopted.nnz, train.rejected.nnz, int(np.count_nonzero(single)), n_pairs
        )

    @property
    def sparse(self) -> bool:
        """Whether items have few adopters, and users few items."""
        return self.n_pairs < min(_FEW_ADOPTERS, _FEW_PAIRS * self.n_users) * self.n_items

    def batch_size(self, start_bias: str) -> int:
        """A 60th of the users, from 100 to 500. A fit from biases at rest takes fewer of them from a wide catalogue: it
        needs about as many steps, and each costs less.
        """
        users = min(max(self.n_users // _STEPS_PER_EPOCH, _SMALLEST_BATCH), _LARGEST_BATCH)
        affordable = max(_CELLS // max(self.n_items, 1), _SMALLEST_BATCH)
        return min(users, affordable) if start_bias == "rest" else users

    def learning_rate(self, start_bias: str, batch_size: int) -> float:
        """From biases at rest, larger batches reach the same accuracy in fewer steps if these are larger too."""
        n_users = min(batch_size, self.n_users, _LARGEST_BATCH)
        return 5e-3 * (math.sqrt(n_users / 100) if start_bias == "rest" else 1.0)

    def validate_every(self, quick: bool, steps_per_epoch: float) -> int:
        """On little data a fit from biases at rest can be at its best, and far past it, within 50 steps. With shared
        draws it is slower, and its measures are too noisy to be compared so often.
        """
        return 25 if quick and steps_per_epoch < 50 else 50

    def warmup(self, start_bias: str) -> int:
        """A fit from biases at rest is never far off: the learning rate can rise sooner, and falls sooner."""
        return 100 if start_bias == "rest" else 200

    def target_set(self) -> str:
        return "expectation" if self.n_items <= _WHOLE_CATALOGUE else "shared"

    def start_bias(self) -> str:
        """On sparse data a fit from biases of 0 spends most of its steps on moving them to where the loss puts them.

        Where that is in the presence of rejected items, `resting_preference` does not say.
        """
        return "rest" if self.sparse and not self.n_rejected else "zero"

    def skip_singles(self) -> bool:
        """An autoencoder learns from users with a single item how popular items are, but not which go together. It
        learns faster and better without them, unless too little is left.
        """
        enough = self.n_users - self.n_singles >= _SMALLEST_BATCH and 2 * self.n_single_pairs < self.n_pairs
        return self.n_singles > 0 and enough
