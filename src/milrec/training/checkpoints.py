"""The state of a fit: everything that changes while it runs, in one safetensors file, written whole or not at all.

It holds no state of a random generator: the draws of step t come from a generator seeded with (seed, t).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from pydantic import Field, ValidationError, field_validator
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from milrec.data.interactions import Interactions
from milrec.errors import FitError, first_line
from milrec.models.contract import GradientModel
from milrec.records import Record, first_wrong
from milrec.results import FitHistory
from milrec.storage import new_file
from milrec.training.progress import History, checked_history, history_of
from milrec.training.settings import GradientFit
from milrec.training.steps.adam import Adam


class _Saved(Record):
    """The state of a fit apart from its tensors, as a checkpoint holds it."""

    fingerprint: str
    iteration: int = Field(ge=0)
    loss_sum: str  # in hexadecimal, to the last bit
    loss_count: int = Field(ge=0)
    history: FitHistory

    @property
    def sum_of_losses(self) -> float:
        return float.fromhex(self.loss_sum)

    @field_validator("history")
    @classmethod
    def _adds_up(cls, history: FitHistory) -> FitHistory:
        if history.model_extra:
            raise ValueError(f"'{min(history.model_extra):.40}' is not a part of a history")
        return checked_history(history)

    @field_validator("loss_sum")
    @classmethod
    def _is_a_number(cls, text: str) -> str:
        if not math.isfinite(float.fromhex(text)):
            raise ValueError("a sum of losses is finite")
        return text


class FitState:
    """Everything that changes during a fit; one safetensors file holds all of it."""

    def __init__(self, model: GradientModel, optimiser: Adam, fingerprint: str) -> None:
        self.model, self.optimiser, self.fingerprint = model, optimiser, fingerprint
        self.iteration = 0
        self.history = History()
        self.loss_sum, self.loss_count = 0.0, 0
        self.best: dict[str, Tensor] = {}
        self.average: dict[str, Tensor] = {}  # running mean of the weights, where one is kept
        self.whole = True  # False while a step or a validation is under way

    def keep_best(self) -> None:
        """Keep the weights, and buffers, as they are now."""
        self.history.kept_iteration = self.iteration
        for name, value in self.model.tensors().items():
            if name in self.best:
                self.best[name].copy_(value)
            else:
                self.best[name] = value.clone()

    def add_to_average(self, share: float) -> None:
        """Move the running mean of the weights towards the weights."""
        if not self.average:
            self.average = {name: value.detach().clone() for name, value in self.model.named_parameters()}
        for name, value in self.model.named_parameters():
            self.average[name].lerp_(value.detach(), share)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model with the mean of its weights, inside a `with` block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, value in self.model.named_parameters():
            if name in self.average:
                value.data, self.average[name] = self.average[name], value.data

    def restore_best(self) -> None:
        kept = self.best or self.average
        with torch.no_grad():
            for name, value in self.model.tensors().items():
                if name in kept:
                    value.copy_(kept[name])

    def write(self, path: Path) -> None:
        tensors = {f"weight.{name}": value for name, value in self.model.saved_tensors().items()}
        for kind, parts in self.optimiser.parts().items():
            tensors |= {f"{kind}.{name}": value.cpu() for name, value in parts.items()}
        tensors |= {f"best.{name}": value.cpu() for name, value in self.best.items()}
        tensors |= {f"average.{name}": value.cpu() for name, value in self.average.items()}
        state = {
            "fingerprint": self.fingerprint,
            "iteration": self.iteration,
            "loss_sum": self.loss_sum.hex(),
            "loss_count": self.loss_count,
            "history": asdict(self.history),
        }
        text = json.dumps(state)
        with new_file(path) as draft:
            save_file(tensors, draft, metadata={"milrec": text, "sha256": _digest(text, tensors)})

    def read(self, path: Path) -> None:
        try:
            saved, tensors = _read_whole(path)
        except ValidationError as error:
            raise FitError(f"checkpoint '{path}' is damaged at {first_wrong(error)}; delete it to start over") from None
        except Exception as error:  # SafetensorError is a plain Exception, and damaged headers raise others too
            raise FitError(
                f"checkpoint '{path}' cannot be read ({first_line(error)}); delete it to start over"
            ) from None
        if saved.fingerprint != self.fingerprint:
            raise FitError(
                f"checkpoint '{path}' belongs to a fit with other data, settings or seed; resume with the same ones, "
                "or delete it to start over"
            )
        self.iteration, self.history = saved.iteration, history_of(saved.history)
        self.loss_sum, self.loss_count = saved.sum_of_losses, saved.loss_count
        self._take(tensors, path)

    def _take(self, tensors: dict[str, Tensor], path: Path) -> None:
        self.optimiser.step = self.iteration
        own = {f"weight.{name}": value for name, value in self.model.tensors().items()}
        for kind, parts in self.optimiser.parts().items():
            own |= {f"{kind}.{name}": value for name, value in parts.items()}
        with torch.no_grad():
            for name, value in own.items():
                saved = tensors.get(name)
                if saved is None or saved.shape != value.shape or saved.dtype != value.dtype:
                    raise FitError(
                        f"checkpoint '{path}' does not match the model: '{name}' is missing or has another shape"
                    )
                value.copy_(saved)
        for name, value in self.model.tensors().items():
            for kind, kept in (("best", self.best), ("average", self.average)):
                saved = tensors.get(f"{kind}.{name}")
                if saved is None:
                    continue
                if saved.shape != value.shape or saved.dtype != value.dtype:
                    raise FitError(f"checkpoint '{path}' does not match the model: '{kind}.{name}' has another shape")
                kept[name] = saved.to(value.device)


def fingerprint(train: Interactions, settings: GradientFit, seed: int) -> str:
    """What two fits must share to be the same fit: data, settings (except how often to write) and seed."""
    plain = settings.model_dump()
    plain["training"].pop("checkpoint_seconds")
    return json.dumps([plain, seed, train.fingerprint()], sort_keys=True)


def _read_whole(path: Path) -> tuple[_Saved, dict[str, Tensor]]:
    """What a checkpoint holds, compared with its hash."""
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    if set(metadata) == {"milrec"}:
        raise ValueError("it was written by milrec 0.1.0")
    saved = _Saved.model_validate_json(metadata["milrec"], strict=True)
    if metadata.get("sha256") != _digest(metadata["milrec"], tensors):
        raise ValueError("it has changed since it was written: its hash differs")
    return saved, tensors


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    """One hash for all of a checkpoint: the state, and each tensor's name, type, shape and content."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"\0{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()
