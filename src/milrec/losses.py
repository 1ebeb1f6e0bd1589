"""The five objective functions of the paper, as formulas over one batch of users.

A loss is a frozen value; called with a batch's outputs and targets it returns one number per user: the sum over the
user's target set. Everything is written with tensor methods, so that this module (and with it the list of losses)
loads without torch.

`p` is the known preference (1 adopted, 0 missing, -1 rejected), `q` the predicted preference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from milrec.settings import Section

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor, device

    Doubles = npt.NDArray[np.float64]

_HALVINGS = 60  # in which a resting preference is found


@dataclass(frozen=True)
class Targets:
    """What is known about a batch of users, and which missing items enter the loss, with which weight."""

    adopted: Tensor  # (n_users, n_items) 1 where adopted
    rejected: Tensor  # (n_users, n_items) 1 where rejected
    missing: Tensor  # (n_users, n_items) weight of the missing term; 0 where adopted, rejected or not drawn
    partner: Tensor | None = None  # (n_users, n_items) the adopted item that is paired with each item

    def to(self, device: device) -> Targets:
        """The same on another device."""
        partner = None if self.partner is None else self.partner.to(device)
        return Targets(self.adopted.to(device), self.rejected.to(device), self.missing.to(device), partner)


class SquareLoss(Section):
    """(C(p)+1)/2 · (p-q)², C(p) = a·p (equation 1); C = 1 without a confidence, as when missing items are sampled.

    A rejected item is a certain zero: it enters with weight 1, drawn or not.
    """

    loss: Literal["square"] = "square"
    confidence: float | None = Field(None, gt=1, description="a, the confidence in adopted items over all items")
    rests: ClassVar[bool] = True  # whether it has a resting_preference
    needs_pairs: ClassVar[bool] = False
    decoders: ClassVar[tuple[str, ...]] = ("linear", "sigmoid")

    def __call__(self, logits: Tensor, preference: Tensor, targets: Targets) -> Tensor:
        adopted_weight, missing_weight = (1.0, 1.0) if self.confidence is None else ((self.confidence + 1) / 2, 0.5)
        adopted = targets.adopted * (1 - preference).square()
        zero = (missing_weight * targets.missing + targets.rejected) * preference.square()
        return (adopted_weight * adopted + zero).sum(dim=1)

    def resting_preference(self, odds: Doubles, weight: float) -> Doubles:
        """For a user we know nothing about: P·C₁·(1-q) = (1-P)·C₀·w·q, with the odds of adoption P/(1-P)."""
        ratio = 1.0 if self.confidence is None else self.confidence + 1
        return ratio * odds / (ratio * odds + weight)


class PointwiseCrossEntropy(Section):
    """-C(p)·log q - (1-p)·log(1-q) (equation 2), q kept within [ε, 1-ε].

    A rejected item is a certain zero: it enters with weight 1, drawn or not.
    """

    loss: Literal["pointwise"] = "pointwise"
    confidence: float | None = Field(None, gt=1, description="a, the confidence in adopted items over all items")
    epsilon: float = Field(1e-5, gt=0, lt=0.5, description="ε: how near to 0 and 1 a preference may come")
    rests: ClassVar[bool] = True  # whether it has a resting_preference
    needs_pairs: ClassVar[bool] = False
    decoders: ClassVar[tuple[str, ...]] = ("sigmoid",)

    def __call__(self, logits: Tensor, preference: Tensor, targets: Targets) -> Tensor:
        kept = preference.clamp(self.epsilon, 1 - self.epsilon)
        adopted = -(self.confidence or 1.0) * targets.adopted * kept.log()
        zero = -(targets.missing + targets.rejected) * (1 - kept).log()
        return (adopted + zero).sum(dim=1)

    def resting_preference(self, odds: Doubles, weight: float) -> Doubles:
        """For a user we know nothing about: P·C·(1-q) = (1-P)·w·q, with the odds of adoption P/(1-P)."""
        ratio = self.confidence or 1.0
        return ratio * odds / (ratio * odds + weight)


class PairwiseCrossEntropy(Section):
    """-log of the predicted preference of the pair (i adopted, j missing) (equation 5).

    `logits`: σ(logit_i - logit_j), as in BPR (D5). `preferences`: q_i - q_j kept within [ε, 1-ε], as the paper has it:
    it is flat, with no gradient, wherever the pair is in the wrong order. Each missing (or rejected) item j of the
    target set is paired with an adopted item i: the drawn `partner`, or the mean over all of them.
    """

    loss: Literal["pairwise"] = "pairwise"
    difference: Literal["logits", "preferences"] = Field("logits", description="what the difference is taken of")
    pair_epsilon: float = Field(1e-5, gt=0, lt=0.5, description="ε for the difference of preferences")
    rests: ClassVar[bool] = False  # whether it has a resting_preference
    needs_pairs: ClassVar[bool] = True
    decoders: ClassVar[tuple[str, ...]] = ("sigmoid", "linear")

    def __call__(self, logits: Tensor, preference: Tensor, targets: Targets) -> Tensor:
        values = logits if self.difference == "logits" else preference
        weight = targets.missing + targets.rejected
        if targets.partner is not None:
            weight = weight * (targets.adopted.sum(dim=1, keepdim=True) > 0)  # without an adopted item, no pair
            return (weight * self.pair(values.gather(1, targets.partner) - values)).sum(dim=1)
        total = values.new_zeros(len(values))
        own = targets.adopted.bool()
        for user in own.any(dim=1).nonzero()[:, 0].tolist():  # one user at a time: adopted × items, never more
            pairs = self.pair(values[user, own[user]].unsqueeze(1) - values[user])  # (n_adopted, n_items)
            total[user] = (weight[user] * pairs).sum() / own[user].sum()
        return total

    def pair(self, difference: Tensor) -> Tensor:
        if self.difference == "logits":
            return (-difference).logaddexp(difference.new_zeros(()))  # -log σ(difference), stable for any size
        return -difference.clamp(self.pair_epsilon, 1 - self.pair_epsilon).log()


class MultinomialLoss(Section):
    """-Σ p_i · log softmax(logits)_i (equation 6): all items take part, never sampled; rejected items say nothing."""

    loss: Literal["multinomial"] = "multinomial"
    rests: ClassVar[bool] = False  # whether it has a resting_preference
    needs_pairs: ClassVar[bool] = False
    decoders: ClassVar[tuple[str, ...]] = ("linear",)

    def __call__(self, logits: Tensor, preference: Tensor, targets: Targets) -> Tensor:
        return -(targets.adopted * logits.log_softmax(dim=1)).sum(dim=1)


class MissingInformationLoss(Section):
    """The missing information loss (MIL), the paper's own (equations 7 and 8).

    p = 1: (1-q)^γ₊ pulls adopted items to 1;  p = 0: A·(q-½)^(2γ) keeps missing items away from 1 and from 0;
    p = -1: ρ·q^γ₋ pushes rejected items to 0 (D1 and D2 of docs/paper.md; the paper has ρ = 1).

    This is the settings value, for `milrec.fit` and recipes. For your own training loop, use the `nn.Module`
    `milrec.torch.MissingInformationLoss`: the same formula with the same names.
    """

    loss: Literal["mil"] = "mil"
    missing_weight: float = Field(1e6, ge=0, description="A, the height of the walls around missing items")
    missing_exponent: float = Field(10, ge=1, description="γ, the steepness of the walls")
    adopted_exponent: float = Field(1, ge=1, description="γ₊")
    rejected_exponent: float = Field(1, ge=1, description="γ₋")
    rejected_weight: float = Field(1, ge=0, description="ρ, how much a rejection counts beside an adoption")
    rests: ClassVar[bool] = True  # whether it has a resting_preference
    needs_pairs: ClassVar[bool] = False
    decoders: ClassVar[tuple[str, ...]] = ("sigmoid",)

    @model_serializer(mode="wrap")
    def _without_weight_1(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As before rejections had a weight, if it is 1: folders, runs and checkpoints of then are of the same fit."""
        values: dict[str, Any] = plain(self)
        if values.get("rejected_weight") == 1:
            del values["rejected_weight"]
        return values

    def __call__(self, logits: Tensor, preference: Tensor, targets: Targets) -> Tensor:
        adopted = targets.adopted * (1 - preference).pow(self.adopted_exponent)
        missing = targets.missing * self.missing_term(preference)
        rejected = targets.rejected * (self.rejected_weight * preference.pow(self.rejected_exponent))
        return (adopted + missing + rejected).sum(dim=1)

    def missing_term(self, preference: Tensor) -> Tensor:
        """A·(q-½)^(2γ), drawn in the paper's figure 1; the square first, so that any γ has a real value."""
        return self.missing_weight * (preference - 0.5).square().pow(self.missing_exponent)

    def resting_preference(self, odds: Doubles, weight: float) -> Doubles:
        """For a user we know nothing about, with the odds of adoption o = P/(1-P) and the weight w of the missing
        term: o·γ₊·(1-q)^(γ₊-1) = 2γ·w·A·d^(2γ-1), d = q-½. The first falls in d, the second rises: halve until found.
        """
        power, wall = self.adopted_exponent - 1, 2 * self.missing_exponent * weight * self.missing_weight
        low, high = 0 * odds, 0 * odds + 0.5
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            pulled = odds * self.adopted_exponent * (0.5 - middle) ** power
            above = pulled > wall * middle ** (2 * self.missing_exponent - 1)
            low, high = above * middle + ~above * low, above * high + ~above * middle
        return 0.5 + low


Loss = Annotated[
    SquareLoss | PointwiseCrossEntropy | PairwiseCrossEntropy | MultinomialLoss | MissingInformationLoss,
    Field(discriminator="loss"),
]

RestingLoss = SquareLoss | PointwiseCrossEntropy | MissingInformationLoss

LOSSES: dict[
    str,
    type[SquareLoss | PointwiseCrossEntropy | PairwiseCrossEntropy | MultinomialLoss | MissingInformationLoss],
] = {
    "square": SquareLoss,
    "pointwise": PointwiseCrossEntropy,
    "pairwise": PairwiseCrossEntropy,
    "multinomial": MultinomialLoss,
    "mil": MissingInformationLoss,
}
