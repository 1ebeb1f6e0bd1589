"""The link of a loss: where it rests, a logit tells the odds of adoption (docs/theory.md).

MIL:            odds = 2γ·w·A·(q-½)^(2γ-1) / (γ₊·(1-q)^(γ₊-1)), and 0 below q = ½
cross-entropy:  odds = w·q / (C·(1-q))

q = σ(logit), and w is the weight with which a missing item enters the loss; ln w is left to the caller, since it
differs from user to user.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from milrec.losses import Loss, MissingInformationLoss, PointwiseCrossEntropy

Doubles = npt.NDArray[np.float64]
Link = Callable[[Doubles], Doubles]  # logits → ln odds at w = 1


def link_of(loss: Loss | None, decoder: str | None) -> Link | None:
    """The link of a loss whose preferences are σ of the logits; None if it has none that is known."""
    if decoder != "sigmoid":
        return None
    if isinstance(loss, MissingInformationLoss) and loss.missing_weight > 0:
        return lambda logits: _missing_information(loss, logits)
    if isinstance(loss, PointwiseCrossEntropy):
        return lambda logits: logits - math.log(loss.confidence or 1.0)
    return None


def _missing_information(loss: MissingInformationLoss, logits: Doubles) -> Doubles:
    logits = np.minimum(logits, 1e30)  # 0 × ∞ would be no number
    above = np.maximum(np.tanh(logits / 2) / 2, 0.0)  # q - ½
    with np.errstate(divide="ignore"):
        wall = (2 * loss.missing_exponent - 1) * np.log(above)
    height = math.log(2 * loss.missing_exponent) + math.log(loss.missing_weight) - math.log(loss.adopted_exponent)
    odds: Doubles = height + wall + (loss.adopted_exponent - 1) * np.logaddexp(0.0, logits)
    return odds
