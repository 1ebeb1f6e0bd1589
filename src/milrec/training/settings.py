"""How a model is fitted: which missing items enter the loss, and how the optimiser steps."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from milrec.metrics.names import known_measure
from milrec.settings import Settings


class TargetSettings(Settings):
    """Which missing items of a user enter the loss (section 3.3 of the paper)."""

    target_set: Literal["per_user", "shared", "expectation", "all", "auto"] = Field(
        "per_user",
        description="missing items drawn for each user, drawn once per batch, weighted by their chance to be drawn, "
        "or all with weight 1; auto: expectation up to 50,000 items, shared beyond",
    )
    target_factor: float = Field(50, gt=0, description="missing items drawn per user = factor × median adopted")
    rejected_as: Literal["rejected", "missing"] = Field(
        "rejected", description="what the loss takes rejected entries for: what they are, or missing like any other"
    )


class TrainingSettings(Settings):
    """How a model is fitted."""

    batch_size: int | None = Field(
        100, ge=1, description="users per step; unset: a 60th of the users, but from 100 to 500"
    )
    epochs: int | None = Field(None, ge=1, description="passes over the users; unset: until validation stops improving")
    iterations: int | None = Field(None, ge=1, description="steps, instead of epochs")
    until: int | None = Field(
        None, ge=1, description="the step to end with, where a schedule is laid out for more; set by a refit"
    )
    start: Literal["glorot", "svd"] = Field(
        "glorot", description="first weights: random, or the main directions of the data scaled down"
    )
    start_logit: float = Field(0.05, gt=0, description="mean logit of adopted items under the first weights of svd")
    learning_rate: float = Field(1e-3, gt=0, description="of Adam; the peak where a schedule varies it")
    schedule: Literal["constant", "linear", "cosine", "one_cycle", "inverse_sqrt"] = Field(
        "constant", description="learning rate over the run; inverse_sqrt needs no set length"
    )
    warmup: int = Field(200, ge=1, description="steps in which inverse_sqrt reaches the peak, from where it falls")
    averaging: float = Field(
        0, ge=0, lt=1, description="judge and keep the mean of the weights over about this share of the steps so far"
    )
    weight_decay: float = Field(1e-6, ge=0, description="λ")
    weight_decay_form: Literal["plain", "scaled"] = Field(
        "plain", description="λ(‖W‖²+‖W'‖²), or λ/D·(‖W‖²/rows + ‖W'‖²/rows)"
    )
    measure: str = Field("ndcg@100", description="validation measure that chooses the weights to keep")
    validation_users: int = Field(
        10_000, ge=1, description="where validation has more users than this, a sample of so many is judged"
    )
    validate_every: int | None = Field(None, ge=1, description="steps; unset: an epoch, but at least 50 steps")
    slack: float = Field(
        0,
        ge=0,
        description="keep the latest weights within so much of the best measure: later ones list more of the tail",
    )
    patience: int = Field(8, ge=0, description="validations without improvement before stopping; 0: never stop early")
    checkpoint_seconds: float = Field(30, ge=0, description="at most this much work is lost when a fit is killed")
    engine: Literal["fast", "readable"] | None = Field(
        None, description="compiled kernels, or dense rows and autograd; unset: fast on the CPU, readable on a GPU"
    )
    device: str = Field("cpu", description="cpu, cuda, or auto for a GPU where there is one")
    threads: int | None = Field(None, ge=1, description="CPU threads; unset: as many as the machine has")

    @field_validator("measure")
    @classmethod
    def _known_measure(cls, name: str) -> str:
        return known_measure(name)

    @model_validator(mode="after")
    def _one_length(self) -> TrainingSettings:
        if self.epochs is not None and self.iterations is not None:
            raise ValueError("epochs and iterations are two ways to say how long: set one of them")
        return self
