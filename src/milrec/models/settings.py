"""The settings of every model. No torch here, so that `--help` and mistakes are answered at once."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from milrec.settings import Settings

Activation = Literal["linear", "sigmoid", "tanh", "relu"]
Corruption = Annotated[float, Field(ge=0, lt=1, description="probability that the encoder does not see an item")]
InputWeights = Annotated[
    Literal["binary", "counts", "log"],
    Field(description="what the encoder sees of an adopted item: 1, its weight, or log(1 + weight)"),
]


class AutoencoderSettings(Settings):
    """Denoising autoencoder: h = s(W·v + b), q = s'(W'·h + b') (equations 12 and 13)."""

    model: Literal["dae"] = "dae"
    n_factors: int = Field(200, ge=1, description="D, the size of the hidden layer")
    encoder: Activation = Field("linear", description="activation s of the hidden layer")
    decoder: Literal["sigmoid", "linear"] = Field("sigmoid", description="activation s' of the output")
    corruption: Corruption = 0.5
    input_weights: InputWeights = "binary"


class CollaborativeSettings(Settings):
    """Collaborative denoising autoencoder: the same with a vector per user, h = s(W·v + V_u + b) (Wu et al. 2016)."""

    model: Literal["cdae"] = "cdae"
    n_factors: int = Field(200, ge=1, description="D, the size of the hidden layer")
    encoder: Activation = Field("sigmoid", description="activation s of the hidden layer")
    decoder: Literal["sigmoid", "linear"] = Field("sigmoid", description="activation s' of the output")
    corruption: Corruption = 0.5
    input_weights: InputWeights = "binary"


class VariationalSettings(Settings):
    """Variational autoencoder, Multi-VAE: items → tanh → mean and variance of z → tanh → items (Liang et al. 2018)."""

    model: Literal["vae"] = "vae"
    n_factors: int = Field(200, ge=1, description="size of z, what is drawn between encoder and decoder")
    n_hidden: int = Field(600, ge=1, description="size of the hidden layers before and after z")
    corruption: Corruption = 0.5
    input_weights: InputWeights = "binary"
    annealing_cap: float = Field(0.2, ge=0, description="weight β of the KL divergence once it is annealed")
    annealing_steps: int = Field(500, ge=1, description="steps in which that weight rises from 0 to its cap")
    encoder: ClassVar[str] = "tanh"
    decoder: ClassVar[str] = "linear"


class FactorizationSettings(Settings):
    """Matrix factorization: the same with the one-hot user id as input."""

    model: Literal["mf"] = "mf"
    n_factors: int = Field(200, ge=1, description="D, the number of factors")
    encoder: Activation = Field("linear", description="activation s of the user factors")
    decoder: Literal["sigmoid", "linear"] = Field("sigmoid", description="activation s' of the output")


class PopularitySettings(Settings):
    """Everybody gets the most adopted items that they do not have yet."""

    model: Literal["popularity"] = "popularity"


class EaseSettings(Settings):
    """EASE: each item's column from all other items by ridge regression, in closed form (Steck 2019)."""

    model: Literal["ease"] = "ease"
    regularization: float = Field(500, gt=0, description="λ of the ridge regression")


class SlimSettings(Settings):
    """SLIM: each item's column from other items, sparse and not negative (Ning and Karypis 2011)."""

    model: Literal["slim"] = "slim"
    l1: float = Field(1.0, ge=0, description="weight of ‖w‖₁: more makes fewer weights")
    l2: float = Field(100.0, gt=0, description="weight of ½‖w‖²: more makes smaller weights")


class WmfSettings(Settings):
    """Weighted matrix factorization by alternating least squares (Hu, Koren and Volinsky 2008)."""

    model: Literal["wmf"] = "wmf"
    n_factors: int = Field(200, ge=1, description="the number of factors")
    iterations: int = Field(15, ge=1, description="times that users and then items are solved")
    regularization: float = Field(30.0, gt=0, description="λ of both factors")
    confidence: float = Field(4.0, gt=0, description="weight of an adopted pair; a missing one weighs 1")


GradientSettings = AutoencoderSettings | CollaborativeSettings | VariationalSettings | FactorizationSettings
ModelSettings = (
    AutoencoderSettings
    | CollaborativeSettings
    | VariationalSettings
    | FactorizationSettings
    | EaseSettings
    | SlimSettings
    | WmfSettings
    | PopularitySettings
)
MODELS: dict[str, type[ModelSettings]] = {
    "dae": AutoencoderSettings,
    "cdae": CollaborativeSettings,
    "vae": VariationalSettings,
    "mf": FactorizationSettings,
    "ease": EaseSettings,
    "slim": SlimSettings,
    "wmf": WmfSettings,
    "popularity": PopularitySettings,
}
