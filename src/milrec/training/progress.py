"""What is known about a fit while it runs and afterwards: its history, its progress, and what watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milrec.results import FitHistory


@dataclass
class History:
    """How a fit went, one entry per validation."""

    iterations: list[int] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    measures: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    kept_iteration: int | None = None
    stopped_early: bool = False

    @property
    def best(self) -> float | None:
        return max(self.measures) if self.measures else None

    @property
    def kept(self) -> float | None:
        """The measure of the weights that are kept: the best, or within the slack of it."""
        return None if self.kept_iteration is None else self.measures[self.iterations.index(self.kept_iteration)]

    @property
    def last_step(self) -> int:
        """The step whose weights the model has."""
        return self.kept_iteration or self.iterations[-1]


def checked_history(saved: FitHistory) -> FitHistory:
    """The whole history of a fit, not one that was thinned out for a report: a ValueError if it does not add up."""
    if saved.kept_iteration is not None and (not saved.measures or saved.kept_iteration not in saved.iterations):
        raise ValueError("the weights that were kept are not those of a validation")
    if len(saved.losses) != len(saved.iterations) or len(saved.seconds) != len(saved.iterations):
        raise ValueError("a loss or a time is missing")
    return saved


def history_of(saved: FitHistory) -> History:
    """A history as it was read from a file."""
    return History(
        iterations=list(saved.iterations),
        epochs=list(saved.epochs),
        losses=list(saved.losses),
        measures=list(saved.measures),
        seconds=list(saved.seconds),
        kept_iteration=saved.kept_iteration,
        stopped_early=saved.stopped_early,
    )


@dataclass(frozen=True)
class Progress:
    """What a progress bar shows; models that are not fitted by gradient descent have steps and nothing else."""

    iteration: int
    total: int
    epoch: float | None = None
    loss: float | None = None
    measure: float | None = None
    best: float | None = None
    history: History | None = None


Validate = Callable[[Any], float]  # a model → its validation measure, higher is better
Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Watch:
    """What watches a fit: the validation measure, the checkpoint file and the progress bar, each if wanted."""

    validate: Validate | None = None
    checkpoint: Path | None = None
    report: Report | None = None
    writes: bool = True  # the checkpoint; one of several processes that share a fit does
