"""The settings of every model, and what they say about it. No torch here, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from milrec.settings import Section

LARGEST_WIDTH = 1_000_000  # of a layer
MOST_NEIGHBOURS = 20_000  # each worker of a fit holds a matrix of neighbours × neighbours
Activation = Literal["linear", "sigmoid", "tanh", "relu"]
OutputActivation = Annotated[Literal["sigmoid", "linear"], Field(description="activation s' of the output")]
Corruption = Annotated[float, Field(ge=0, lt=1, description="probability that the encoder does not see an item")]
InputWeight = Literal["binary", "counts", "log"]
INPUT_WEIGHTS: tuple[str, ...] = get_args(InputWeight)
InputWeights = Annotated[
    InputWeight,
    Field(description="what the encoder sees of an adopted item: 1, its weight, or log(1 + weight)"),
]
_PLAIN_DECAY = {"mil": 5e-6, "multinomial": 2e-5, "pointwise": 2e-5, "pairwise": 2e-5, "square": 2e-5}


class ModelSettings(Section):
    """What the settings of every model have."""

    model: str
    title: ClassVar[str]  # what kind of model it is, in a few words
    how: ClassVar[str]  # how long it is fitted, in a few words
    needs_loss: ClassVar[bool]  # whether it is fitted by gradient descent, under a loss
    seeded: ClassVar[bool] = True  # whether a different seed gives a different model
    class_path: ClassVar[str]  # the class that is built from these settings, as module:Class

    def provenance(self) -> dict[str, str]:
        """What a model folder records about where the model's class comes from; nothing for milrec's own."""
        return {}


class GradientModelSettings(ModelSettings):
    """Settings of a model that is fitted by gradient descent, under a loss."""

    how: ClassVar[str] = "until validation falls"
    needs_loss: ClassVar[bool] = True
    default_loss: ClassVar[str] = "mil"
    losses: ClassVar[tuple[str, ...] | None] = None  # those it can be fitted with; None: any
    starts: ClassVar[tuple[str, ...]] = ("svd", "glorot")  # how a fit may start, the default first
    default_start_bias: ClassVar[str | None] = "zero"  # None: the data's shape decides
    reads_items_only: ClassVar[bool] = False  # nothing of its own is learnt about a user
    default_rate: ClassVar[float | None] = 5e-3  # None: the data's shape decides
    decay_form: ClassVar[str] = "plain"
    default_decay: ClassVar[Mapping[str, float]] = _PLAIN_DECAY  # by loss

    if TYPE_CHECKING:  # fields that each model has, in its own order
        n_factors: int
        decoder: Any  # activation of the output

    @classmethod
    def defaults(cls, loss: str) -> dict[str, Any]:
        """Settings that depend on the loss unless they are chosen."""
        return {"decoder": "linear" if loss == "multinomial" else "sigmoid"}


class ClosedFormSettings(ModelSettings):
    """Settings of a model that is fitted without a loss, and without gradient descent."""

    needs_loss: ClassVar[bool] = False
    preference: ClassVar[str | None] = None  # what turns its logits into preferences; None: it predicts none


class AutoencoderSettings(GradientModelSettings):
    """Denoising autoencoder: h = s(W·v + b), q = s'(W'·h + b') (equations 12 and 13)."""

    title: ClassVar[str] = "autoencoder"
    class_path: ClassVar[str] = "milrec.models.autoencoders:DenoisingAutoencoder"
    default_start_bias: ClassVar[str | None] = None
    default_rate: ClassVar[float | None] = None
    reads_items_only: ClassVar[bool] = True
    model: Literal["dae"] = "dae"
    n_factors: int = Field(200, ge=1, le=LARGEST_WIDTH, description="D, the size of the hidden layer")
    encoder: Activation = Field("linear", description="activation s of the hidden layer")
    decoder: OutputActivation = "sigmoid"
    corruption: Corruption = 0.5
    input_weights: InputWeights = "binary"
    input_exponent: float = Field(
        0, ge=-2, le=2, description="α: an adopted item enters with its popularity^-α; above 0, rare items say more"
    )

    reads_rejected: bool = Field(
        False, description="whether the encoder sees what a user rejected, too, by weights of their own"
    )

    @model_serializer(mode="wrap")
    def _without_what_is_new(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As before these settings existed, where they change nothing: folders, runs and checkpoints of then are of
        the same fit.
        """
        values: dict[str, Any] = plain(self)
        for name, nothing in (("input_exponent", 0), ("reads_rejected", False)):
            if values.get(name) == nothing:
                del values[name]
        return values

    @classmethod
    def defaults(cls, loss: str) -> dict[str, Any]:
        return {**super().defaults(loss), "encoder": "tanh" if loss == "multinomial" else "linear"}


class CollaborativeSettings(GradientModelSettings):
    """Collaborative denoising autoencoder: the same with a vector per user, h = s(W·v + V_u + b) (Wu et al. 2016)."""

    title: ClassVar[str] = "autoencoder, users"
    class_path: ClassVar[str] = "milrec.models.autoencoders:CollaborativeAutoencoder"
    default_loss: ClassVar[str] = "pointwise"
    model: Literal["cdae"] = "cdae"
    n_factors: int = Field(200, ge=1, le=LARGEST_WIDTH, description="D, the size of the hidden layer")
    encoder: Activation = Field("sigmoid", description="activation s of the hidden layer")
    decoder: OutputActivation = "sigmoid"
    corruption: Corruption = 0.5
    input_weights: InputWeights = "binary"

    @classmethod
    def defaults(cls, loss: str) -> dict[str, Any]:
        return {**super().defaults(loss), "encoder": "tanh" if loss == "multinomial" else "sigmoid"}


class VariationalSettings(GradientModelSettings):
    """Variational autoencoder, Multi-VAE: items → tanh → mean and variance of z → tanh → items (Liang et al. 2018)."""

    title: ClassVar[str] = "variational"
    class_path: ClassVar[str] = "milrec.models.autoencoders:VariationalAutoencoder"
    default_loss: ClassVar[str] = "multinomial"
    losses: ClassVar[tuple[str, ...] | None] = ("multinomial",)
    starts: ClassVar[tuple[str, ...]] = ("glorot",)
    default_rate: ClassVar[float | None] = 3e-3
    reads_items_only: ClassVar[bool] = True
    encoder: ClassVar[str] = "tanh"
    decoder: ClassVar[str] = "linear"  # type: ignore[misc]  # a field of all others
    model: Literal["vae"] = "vae"
    n_factors: int = Field(
        200, ge=1, le=LARGEST_WIDTH, description="size of z, what is drawn between encoder and decoder"
    )
    n_hidden: int = Field(600, ge=1, le=LARGEST_WIDTH, description="size of the hidden layers before and after z")
    corruption: Corruption = 0.5
    input_weights: InputWeights = "binary"
    annealing_cap: float = Field(0.2, ge=0, description="weight β of the KL divergence once it is annealed")
    annealing_steps: int = Field(500, ge=1, description="steps in which that weight rises from 0 to its cap")

    @classmethod
    def defaults(cls, loss: str) -> dict[str, Any]:
        return {}


class FactorizationSettings(GradientModelSettings):
    """Matrix factorization: the same with the one-hot user id as input."""

    title: ClassVar[str] = "factorization"
    class_path: ClassVar[str] = "milrec.models.factorization:MatrixFactorization"
    decay_form: ClassVar[str] = "scaled"
    default_decay: ClassVar[Mapping[str, float]] = {**dict.fromkeys(_PLAIN_DECAY, 100.0), "square": 10.0}
    model: Literal["mf"] = "mf"
    n_factors: int = Field(200, ge=1, le=LARGEST_WIDTH, description="D, the number of factors")
    encoder: Activation = Field("linear", description="activation s of the user factors")
    decoder: OutputActivation = "sigmoid"

    @classmethod
    def defaults(cls, loss: str) -> dict[str, Any]:
        return {
            "decoder": "linear" if loss in ("multinomial", "square") else "sigmoid",
            "encoder": "tanh" if loss == "multinomial" else "linear",
        }


class EaseSettings(ClosedFormSettings):
    """EASE: each item's column from all other items by ridge regression, in closed form (Steck 2019)."""

    title: ClassVar[str] = "item to item, ridge"
    how: ClassVar[str] = "closed form"
    seeded: ClassVar[bool] = False
    class_path: ClassVar[str] = "milrec.models.item_to_item:ItemToItem"
    model: Literal["ease"] = "ease"
    regularization: float = Field(500, gt=0, description="λ of the ridge regression")


class SparseEaseSettings(ClosedFormSettings):
    """EASE over neighbourhoods: each item's column from the items most like it, by a ridge regression over these."""

    title: ClassVar[str] = "item to item, ridge over neighbours"
    how: ClassVar[str] = "closed form"
    seeded: ClassVar[bool] = False
    class_path: ClassVar[str] = "milrec.models.item_to_item:SparseItemToItem"
    model: Literal["ease-sparse"] = "ease-sparse"
    regularization: float = Field(100, gt=0, description="λ of the ridge regressions")
    neighbours: int = Field(200, ge=1, le=MOST_NEIGHBOURS, description="items from which each item is predicted")


class SlimSettings(ClosedFormSettings):
    """SLIM: each item's column from other items, sparse and not negative (Ning and Karypis 2011)."""

    title: ClassVar[str] = "item to item, sparse"
    how: ClassVar[str] = "until weights settle"
    seeded: ClassVar[bool] = False
    class_path: ClassVar[str] = "milrec.models.item_to_item:ItemToItem"
    model: Literal["slim"] = "slim"
    l1: float = Field(1.0, ge=0, description="weight of ‖w‖₁: more makes fewer weights")
    l2: float = Field(100.0, gt=0, description="weight of ½‖w‖²: more makes smaller weights")


class WmfSettings(ClosedFormSettings):
    """Weighted matrix factorization by alternating least squares (Hu, Koren and Volinsky 2008)."""

    title: ClassVar[str] = "weighted factorization"
    how: ClassVar[str] = "15 iterations of ALS"
    preference: ClassVar[str | None] = "linear"
    class_path: ClassVar[str] = "milrec.models.factorization:WeightedFactorization"
    model: Literal["wmf"] = "wmf"
    n_factors: int = Field(200, ge=1, le=LARGEST_WIDTH, description="the number of factors")
    iterations: int = Field(15, ge=1, description="how many times users and then items are solved")
    regularization: float = Field(30.0, gt=0, description="λ of both factors")
    confidence: float = Field(4.0, gt=0, description="weight of an adopted pair; a missing one weighs 1")


class PopularitySettings(ClosedFormSettings):
    """Everybody gets the most adopted items that they do not have yet."""

    title: ClassVar[str] = "most adopted"
    how: ClassVar[str] = "–"
    seeded: ClassVar[bool] = False
    class_path: ClassVar[str] = "milrec.models.popularity:Popularity"
    model: Literal["popularity"] = "popularity"


_KINDS: tuple[type[ModelSettings], ...] = (
    AutoencoderSettings,
    CollaborativeSettings,
    VariationalSettings,
    FactorizationSettings,
    EaseSettings,
    SparseEaseSettings,
    SlimSettings,
    WmfSettings,
    PopularitySettings,
)
MODELS: dict[str, type[ModelSettings]] = {kind.model_fields["model"].default: kind for kind in _KINDS}
