"""A model's logits as a formula of a few plain steps, so that other tools can compute them.

    entering = read(adopted) · item_weight + unit(rejected) · rejected_weight + user_rows[user]
                                                                 each part only where the model has it
    logits   = the further steps, one after another

This is the same computation as `Model.write_logits`, without its care for the order of summation.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Shift:
    """Add a bias to every row."""

    bias: Tensor  # (width,)


@dataclass(frozen=True)
class Activation:
    """Apply a function to every number: linear, sigmoid, tanh or relu."""

    name: str


@dataclass(frozen=True)
class MatrixProduct:
    """Multiply every row by a matrix."""

    weight: Tensor  # (width, new width)


Step = Shift | Activation | MatrixProduct


@dataclass(frozen=True)
class Formula:
    """What is read of users, and what becomes of it."""

    steps: tuple[Step, ...]  # from what enters to the logits
    item_weight: Tensor | None = None  # (n_items, width) for what a user adopted
    rejected_weight: Tensor | None = None  # (n_items, width) for what a user rejected
    user_rows: Tensor | None = None  # (n_users, width) for who a user is
    item_scale: Tensor | None = None  # (n_items,) what adopted weights are multiplied by first
    weights: str = "binary"  # how adopted weights are read: binary, counts or log
    unit_length: bool = False  # whether what was adopted is divided by its length

    def tensors(self) -> list[Tensor]:
        """All numbers of the formula."""
        entering = (self.item_weight, self.rejected_weight, self.user_rows, self.item_scale)
        own = [one for one in entering if one is not None]
        own += [step.bias for step in self.steps if isinstance(step, Shift)]
        return own + [step.weight for step in self.steps if isinstance(step, MatrixProduct)]
