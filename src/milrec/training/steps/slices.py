"""Slices of a step: its users in a fixed number of groups, whose gradients are added up in the order of the groups.

The number of slices is a setting, so that the sum is the same whether one process computes all slices or several
processes share them: who computes a slice is what an exchange decides.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from milrec.training.batches import Batch, Sliced
from milrec.training.steps.slopes import Slopes, sum_in_order
from milrec.training.steps.step import Step

SlicedStep = Callable[[Sliced, float], float]  # a step in slices, learning rate → its mean loss
Made = Callable[[Batch], Slopes]
Drawing = Callable[[Batch], AbstractContextManager[None]]  # what a model draws itself belongs to the slice


class Exchange(Protocol):
    """Which slices this process computes, and how it gets the sum of all."""

    def own(self, n_slices: int) -> range:
        """The numbers of the slices that are computed here."""

    def total(self, slices: Sliced, made: Made) -> Slopes:
        """The sum over all slices of a step, in their order; `made` computes those that are here."""


class Alone:
    """All slices are computed here, one after another."""

    def own(self, n_slices: int) -> range:
        return range(n_slices)

    def total(self, slices: Sliced, made: Made) -> Slopes:
        return sum_in_order(made(batch) for batch in slices.slices)


def whole(step: Step, drawing: Drawing) -> SlicedStep:
    """Steps of one slice: nothing has to be added up."""

    def take(slices: Sliced, rate: float) -> float:
        (batch,) = slices.slices
        with drawing(batch):
            return step(batch, rate)

    return take


def in_slices(step: Step, drawing: Drawing, exchange: Exchange) -> SlicedStep:
    """Steps of several slices: their slopes are computed, added up, and then followed."""

    def made(batch: Batch) -> Slopes:
        with drawing(batch):
            return step.slopes(batch).times(batch.share)

    def take(slices: Sliced, rate: float) -> float:
        slopes = exchange.total(slices, made)
        step.move(slopes, rate)
        return slopes.loss

    return take
