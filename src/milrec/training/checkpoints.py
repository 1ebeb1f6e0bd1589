"""The state of a fit: everything that changes while it runs, in one safetensors file, written whole or not at all.

It holds no state of a random generator: the draws of step t come from a generator seeded with (seed, t).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from milrec.data.interactions import Interactions
from milrec.errors import FitError
from milrec.models.contract import GradientModel
from milrec.storage import new_file
from milrec.training.adam import Adam
from milrec.training.progress import History
from milrec.training.settings import GradientFit


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
        self.best = {name: value.clone() for name, value in self.model.tensors().items()}

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
            "sha256": _digest(tensors),
        }
        with new_file(path) as draft:
            save_file(tensors, draft, metadata={"milrec": json.dumps(state)})

    def read(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                state = json.loads((file.metadata() or {})["milrec"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            if state["sha256"] != _digest(tensors):
                raise ValueError("its hash differs")
            whose, self.iteration = state["fingerprint"], int(state["iteration"])
            self.history = History(**state["history"])
            self.loss_sum, self.loss_count = float.fromhex(state["loss_sum"]), int(state["loss_count"])
        except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
            raise FitError(f"checkpoint '{path}' cannot be read ({error}); delete it to start over") from None
        if whose != self.fingerprint:
            raise FitError(
                f"checkpoint '{path}' belongs to a fit with other data, settings or seed; resume with the same ones, "
                "or delete it to start over"
            )
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
                if f"{kind}.{name}" in tensors:
                    kept[name] = tensors[f"{kind}.{name}"].to(value.device)


def fingerprint(train: Interactions, settings: GradientFit, seed: int) -> str:
    """What two fits must share to be the same fit: data, settings (except how often to write) and seed."""
    plain = settings.model_dump()
    plain["training"].pop("checkpoint_seconds")
    return json.dumps([plain, seed, train.fingerprint()], sort_keys=True)


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()
