"""The state of a fit: all that changes while it goes on, in one safetensors file that is written whole or not at all.

Nothing random is part of it: the draws of step t come from a generator seeded with (seed, t).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from milrec.errors import FitError
from milrec.folders import new_file
from milrec.interactions import Interactions
from milrec.models import Factors
from milrec.presets import FitSettings


@dataclass
class History:
    """How a fit went, one entry per validation."""

    iterations: list[int] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    measures: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    best_iteration: int | None = None
    stopped_early: bool = False

    @property
    def best(self) -> float | None:
        return max(self.measures) if self.measures else None

    def validations_since_best(self) -> int:
        return len(self.measures) - 1 - self.measures.index(max(self.measures)) if self.measures else 0


class FitState:
    """Everything that changes during a fit; one safetensors file holds all of it."""

    def __init__(self, model: Factors, optimiser: torch.optim.Adam, fingerprint: str) -> None:
        self.model, self.optimiser, self.fingerprint = model, optimiser, fingerprint
        self.iteration = 0
        self.history = History()
        self.loss_sum, self.loss_count = 0.0, 0
        self.best: dict[str, Tensor] = {}
        self.whole = True  # False while a step or a validation is under way

    def keep_best(self) -> None:
        self.history.best_iteration = self.iteration
        self.best = {name: value.detach().clone() for name, value in self.model.named_parameters()}

    def restore_best(self) -> None:
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                if name in self.best:
                    value.copy_(self.best[name])

    def write(self, path: Path) -> None:
        tensors: dict[str, Tensor] = {}
        for name, value in self.model.named_parameters():
            tensors[f"weight.{name}"] = value.detach().cpu()
            for moment in ("exp_avg", "exp_avg_sq"):
                tensors[f"{moment}.{name}"] = self.optimiser.state[value][moment].cpu()
        tensors |= {f"best.{name}": value.cpu() for name, value in self.best.items()}
        state = {
            "fingerprint": self.fingerprint,
            "iteration": self.iteration,
            "loss_sum": self.loss_sum.hex(),
            "loss_count": self.loss_count,
            "history": asdict(self.history),
        }
        with new_file(path) as draft:
            save_file(tensors, draft, metadata={"milrec": json.dumps(state)})

    def read(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                state = json.loads((file.metadata() or {})["milrec"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise FitError(f"checkpoint '{path}' cannot be read ({error}); start over without --resume") from None
        if state.get("fingerprint") != self.fingerprint:
            raise FitError(
                f"checkpoint '{path}' belongs to a fit with other data, settings or seed; resume with the same ones, "
                "or start over with --force"
            )
        self.iteration, self.history = state["iteration"], History(**state["history"])
        self.loss_sum, self.loss_count = float.fromhex(state["loss_sum"]), state["loss_count"]
        self._take(tensors, path)

    def _take(self, tensors: dict[str, Tensor], path: Path) -> None:
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                parts = [tensors.get(f"{kind}.{name}") for kind in ("weight", "exp_avg", "exp_avg_sq")]
                if any(part is None or part.shape != value.shape for part in parts):
                    raise FitError(
                        f"checkpoint '{path}' does not fit the model: '{name}' is missing or of another shape"
                    )
                weight, first, second = (part.to(value.device) for part in parts if part is not None)
                value.copy_(weight)
                moments = {"exp_avg": first, "exp_avg_sq": second}
                self.optimiser.state[value] = {"step": torch.tensor(float(self.iteration)), **moments}
                if f"best.{name}" in tensors:
                    self.best[name] = tensors[f"best.{name}"].to(value.device)


def fingerprint(train: Interactions, settings: FitSettings, seed: int) -> str:
    """What two fits must share to be the same fit: data, settings (but for how often to write) and seed."""
    plain = settings.model_dump()
    plain["training"].pop("checkpoint_seconds")
    pairs = [int(np.bitwise_xor.reduce(_mixed(matrix))) for matrix in (train.adopted, train.rejected)]
    return json.dumps([plain, seed, train.n_users, train.n_items, pairs], sort_keys=True)


def _mixed(pairs: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """A number for each pair that depends on its place and on what it holds; xor-ed, they tell two matrices apart."""
    place = np.arange(1, pairs.nnz + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        mixed = (place ^ pairs.indices.astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
    result: np.ndarray[Any, np.dtype[np.uint64]] = mixed ^ pairs.data.view(np.uint32).astype(np.uint64)
    return result if len(result) else np.zeros(1, dtype=np.uint64)
