"""The missing information loss (MIL) for any PyTorch model, and the draw of the missing items it is summed over.

`MissingInformationLoss` here is an `nn.Module` with logits in and a value out, like torch's own losses. It needs torch
and nothing else: neither milrec's settings nor its models. `milrec.MissingInformationLoss` has the
same name, but is the settings value with which `milrec.fit` fits milrec's models (see milrec.losses).
"""

from __future__ import annotations

import math
import statistics

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from milrec.errors import unknown

REDUCTIONS = ("none", "sum", "mean", "batchmean")


class MissingInformationLoss(nn.Module):
    """MIL (equations 7 and 8 of the paper) of logits, whose sigmoid q is the predicted preference.

    Adopted: (1-q)^γ₊;  missing: A·(q-½)^(2γ);  rejected: ρ·q^γ₋. A is `missing_weight`, γ `missing_exponent`,
    γ₊ `adopted_exponent`, γ₋ `rejected_exponent`, ρ `rejected_weight`; the defaults are the paper's best settings.

    `reduction` is "none" (a value per element), "sum", "mean" (over elements, those of weight 0 included) or
    "batchmean" (the sum divided by the number of rows, which is the paper's: the mean over users of the sums over
    their target sets).

    For half and bfloat16 logits it computes in float32, and returns float32, with or without autocast; the gradient has
    the type of the logits. Both are finite for all finite logits, unless the true number is too large for the type: an
    element's gradient is at most 0.39 times the larger of 1 and A·(½)^(2γ), the height of the walls, times weight and
    loss scale. The height is 0.95 by default; half precision, which ends at 65,504, needs it below 160,000.

    This is the module for your own training loop. `milrec.MissingInformationLoss` is the settings value of the same
    formula, for `milrec.fit`.
    """

    def __init__(
        self,
        *,
        missing_weight: float = 1e6,
        missing_exponent: float = 10.0,
        adopted_exponent: float = 1.0,
        rejected_exponent: float = 1.0,
        rejected_weight: float = 1.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.missing_weight = _at_least(0, "missing_weight", missing_weight)
        self.missing_exponent = _at_least(1, "missing_exponent", missing_exponent)
        self.adopted_exponent = _at_least(1, "adopted_exponent", adopted_exponent)
        self.rejected_exponent = _at_least(1, "rejected_exponent", rejected_exponent)
        self.rejected_weight = _at_least(0, "rejected_weight", rejected_weight)
        if reduction not in REDUCTIONS:
            raise ValueError(unknown("reduction", reduction, REDUCTIONS))
        self.reduction = reduction

    def forward(self, logits: Tensor, known: Tensor, weight: Tensor | float | None = None) -> Tensor:
        """The loss of `logits`, given what is `known` about each: 1 adopted, 0 missing, -1 rejected.

        `weight`, a number or a tensor broadcast to the logits, multiplies each element's loss: 0 leaves an element out.
        """
        weight = _as_tensor(weight, logits)
        _check(logits, known, weight)
        if self.reduction == "batchmean" and logits.dim() == 0:
            raise ValueError("reduction 'batchmean' needs rows, but logits have no dimension")
        terms = self._terms(logits.to(torch.promote_types(logits.dtype, torch.float32)), known)
        if weight is not None:
            terms = terms * weight.to(terms.dtype)
        if self.reduction == "none":
            return terms
        if self.reduction == "mean":
            return terms.mean()
        return terms.sum() if self.reduction == "sum" else terms.sum() / len(terms)

    def _terms(self, logits: Tensor, known: Tensor) -> Tensor:
        """The loss of each element, written so that no slope is lost where a preference rounds to 0 or 1."""
        adopted = (self.adopted_exponent * logsigmoid(-logits)).exp()
        rejected = self.rejected_weight * (self.rejected_exponent * logsigmoid(logits)).exp()
        distance = 1 - 2 * torch.sigmoid(-logits.abs())  # 2·|q-½|; tanh's slope is 0 in float32 beyond a logit of 18
        height = self.missing_weight * 0.25**self.missing_exponent  # of the walls; A alone would overflow half
        missing = height * distance.pow(2 * self.missing_exponent)
        return torch.where(known > 0, adopted, torch.where(known < 0, rejected, missing))

    def extra_repr(self) -> str:
        return (
            f"missing_weight={self.missing_weight:g}, missing_exponent={self.missing_exponent:g}, "
            f"adopted_exponent={self.adopted_exponent:g}, rejected_exponent={self.rejected_exponent:g}, "
            f"rejected_weight={self.rejected_weight:g}, "
            f"reduction='{self.reduction}'"
        )


def n_missing_drawn(n_adopted: Tensor, target_factor: float) -> int:
    """How many missing items to draw for each user: target_factor × median of `n_adopted`, at least 1.

    `n_adopted` holds the number of adopted items of every user of the training data (section 3.3 of the paper).
    """
    return max(1, round(target_factor * float(statistics.median(n_adopted.tolist()))))


def sample_missing(known: Tensor, n_drawn: int, generator: torch.Generator | None = None) -> Tensor:
    """Weights for the loss: 1 for known items and for `n_drawn` missing items of each row, 0 for other missing items.

    The missing items of a row are drawn without replacement, all sets equally likely; all of them where a row has no
    more than `n_drawn`. The last dimension of `known` is the items. A `generator` must be on the device of `known`.
    """
    _check_n_drawn(n_drawn)
    keys = torch.empty(known.shape, dtype=torch.int64, device=known.device).random_(generator=generator)
    keys.masked_fill_(known != 0, -1)  # below any key of a missing item; a known item has weight 1, chosen or not
    drawn = keys.topk(min(n_drawn, known.shape[-1]), dim=-1, sorted=False).indices  # (n_rows, n_drawn)
    return (known != 0).float().scatter(-1, drawn, 1.0)


def expected_weight(known: Tensor, n_drawn: int) -> Tensor:
    """The mean of `sample_missing` over all draws: a missing item's weight is its chance of being drawn."""
    _check_n_drawn(n_drawn)
    missing = known == 0
    n_missing = missing.sum(dim=-1, keepdim=True)  # (n_rows, 1)
    chance = n_missing.clamp(max=n_drawn) / n_missing.clamp(min=1)
    return torch.where(missing, chance, torch.ones_like(chance))


def _at_least(lowest: int, name: str, value: float) -> float:
    if not (math.isfinite(value) and value >= lowest):
        raise ValueError(f"{name} must be a finite number of at least {lowest}, not {value}")
    return float(value)


def _check_n_drawn(n_drawn: int) -> None:
    if isinstance(n_drawn, bool) or not isinstance(n_drawn, int) or n_drawn < 1:
        raise ValueError(f"n_drawn must be a whole number of at least 1, not {n_drawn}")


def _as_tensor(weight: Tensor | float | None, logits: Tensor) -> Tensor | None:
    if weight is None or isinstance(weight, Tensor):
        return weight
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise ValueError(f"weight must be a tensor, a number or None, not {type(weight).__name__}")
    return torch.tensor(float(weight), device=logits.device)


def _check(logits: Tensor, known: Tensor, weight: Tensor | None) -> None:
    if not logits.is_floating_point():
        raise ValueError(f"logits must be floating point, not {logits.dtype}")
    if known.shape != logits.shape:
        raise ValueError(f"known has shape {tuple(known.shape)}, but logits have shape {tuple(logits.shape)}")
    if not torch.equal(known, known.sign()):
        found = known[known != known.sign()][0].item()
        raise ValueError(f"known must be 1 (adopted), 0 (missing) or -1 (rejected), but it holds {found}")
    if weight is not None and not _broadcasts(weight, logits):
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}, which does not broadcast to that of the logits, "
            f"{tuple(logits.shape)}"
        )


def _broadcasts(weight: Tensor, logits: Tensor) -> bool:
    sizes = zip(reversed(weight.shape), reversed(logits.shape), strict=False)
    return weight.dim() <= logits.dim() and all(own in (1, size) for own, size in sizes)
