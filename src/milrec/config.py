"""Settings are frozen values that come from TOML, JSON or `KEY=VALUE`; an unknown key is an error that lists the known.

A fit has four sections of settings: the model, the loss (in losses.py), the target set and the training. Their field
names are all different, so that a user says `missing_weight=5e5` or `epochs=30` without naming a section.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from milrec.errors import SettingsError

Activation = Literal["linear", "sigmoid", "tanh", "relu"]
Corruption = Annotated[float, Field(ge=0, lt=1, description="probability that the encoder does not see an item")]
InputWeights = Annotated[
    Literal["binary", "counts", "log"],
    Field(description="what the encoder sees of an adopted item: 1, its weight, or log(1 + weight)"),
]
MEASURES = ("recall", "ndcg", "novelty_ndcg")  # ranking measures that may choose the weights to keep
LIST_LENGTH = 200  # items in the lists that are judged: the paper's top-200
S = TypeVar("S", bound="Settings")


def known_measure(name: str) -> str:
    """The name of a ranking measure, or the sentence that lists them."""
    measure, _, cutoff = name.partition("@")
    if measure not in MEASURES or not cutoff.isdecimal() or not 1 <= int(cutoff) <= LIST_LENGTH:
        known = ", ".join(f"{measure}@N" for measure in MEASURES)
        raise ValueError(f"unknown measure '{name}'; known measures: {known}, with N from 1 to {LIST_LENGTH}")
    return name


class Settings(BaseModel):
    """A frozen value with checked fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


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


class TargetSettings(Settings):
    """Which missing items of a user enter the loss (section 3.3 of the paper)."""

    target_set: Literal["per_user", "shared", "expectation", "all", "auto"] = Field(
        "per_user",
        description="missing items drawn for each user, drawn once per batch, weighted by their chance to be drawn, "
        "or all with weight 1; auto: expectation up to 50,000 items, shared beyond",
    )
    target_factor: float = Field(50, gt=0, description="missing items drawn per user = factor × median adopted")
    rejected_as: Literal["rejected", "missing"] = Field(
        "rejected", description="what the loss takes rejected entries for: what they are, or missing like any other"
    )


class TrainingSettings(Settings):
    """How a model is fitted."""

    batch_size: int | None = Field(
        100, ge=1, description="users per step; unset: a 60th of the users, but from 100 to 500"
    )
    epochs: int | None = Field(None, ge=1, description="passes over the users; unset: until validation stops improving")
    iterations: int | None = Field(None, ge=1, description="steps, instead of epochs")
    until: int | None = Field(
        None, ge=1, description="the step to end with, where a schedule is laid out for more; set by a refit"
    )
    start: Literal["glorot", "svd"] = Field(
        "glorot", description="first weights: random, or the main directions of the data scaled down"
    )
    start_logit: float = Field(0.05, gt=0, description="mean logit of adopted items under the first weights of svd")
    learning_rate: float = Field(1e-3, gt=0, description="of Adam; the peak where a schedule varies it")
    schedule: Literal["constant", "linear", "cosine", "one_cycle", "inverse_sqrt"] = Field(
        "constant", description="learning rate over the run; inverse_sqrt needs no set length"
    )
    warmup: int = Field(200, ge=1, description="steps in which inverse_sqrt reaches the peak, from where it falls")
    averaging: float = Field(
        0, ge=0, lt=1, description="judge and keep the mean of the weights over about this share of the steps so far"
    )
    weight_decay: float = Field(1e-6, ge=0, description="λ")
    weight_decay_form: Literal["plain", "scaled"] = Field(
        "plain", description="λ(‖W‖²+‖W'‖²), or λ/D·(‖W‖²/rows + ‖W'‖²/rows)"
    )
    measure: str = Field("ndcg@100", description="validation measure that chooses the weights to keep")
    validation_users: int = Field(
        10_000, ge=1, description="where validation has more users than this, a sample of so many is judged"
    )
    validate_every: int | None = Field(None, ge=1, description="steps; unset: an epoch, but at least 50 steps")
    slack: float = Field(
        0,
        ge=0,
        description="keep the latest weights within so much of the best measure: later ones list more of the tail",
    )
    patience: int = Field(8, ge=0, description="validations without improvement before stopping; 0: never stop early")
    checkpoint_seconds: float = Field(30, ge=0, description="at most this much work is lost when a fit is killed")
    engine: Literal["fast", "readable"] | None = Field(
        None, description="compiled kernels, or dense rows and autograd; unset: fast on the CPU, readable on a GPU"
    )
    device: str = Field("cpu", description="cpu, cuda, or auto for a GPU where there is one")
    threads: int | None = Field(None, ge=1, description="CPU threads; unset: as many as the machine has")

    @field_validator("measure")
    @classmethod
    def _known_measure(cls, name: str) -> str:
        return known_measure(name)

    @model_validator(mode="after")
    def _one_length(self) -> TrainingSettings:
        if self.epochs is not None and self.iterations is not None:
            raise ValueError("epochs and iterations are two ways to say how long: set one of them")
        return self


def build(settings: type[S], values: Mapping[str, Any], where: str = "") -> S:
    """Settings from plain values; what is wrong becomes one sentence that lists what is known."""
    try:
        return settings.model_validate(dict(values))
    except ValidationError as error:
        raise SettingsError(_sentence(error, settings, where)) from None


def changed(settings: S, values: Mapping[str, Any]) -> S:
    """The same settings with some fields replaced, checked again."""
    return build(type(settings), {**settings.model_dump(), **values})


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts as a mapping; `none` unsets a value. Numbers are recognised by the field they go to."""
    values: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise SettingsError(f"'{text}' is not a setting; write KEY=VALUE, for example --set epochs=30")
        if key.strip() in values:
            raise SettingsError(f"setting '{key.strip()}' is given twice")
        values[key.strip()] = None if value.strip().lower() == "none" else value.strip()
    return values


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"there is no file '{path}'") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(f"'{path}' is not readable TOML ({error})") from None


def _owner(settings: type[Settings], path: tuple[int | str, ...]) -> type[Settings]:
    """The settings that a path within settings leads to, as far as it can be followed."""
    for part in path:
        field = settings.model_fields.get(str(part))
        if field is not None:
            kinds = [field.annotation, *get_args(field.annotation)]
            settings = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Settings)), settings)
    return settings


def _sentence(error: ValidationError, settings: type[Settings], where: str) -> str:
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")  # a misspelt key before a missing one
    key = ".".join(str(part) for part in first["loc"])
    place = f" in {where}" if where else ""
    if first["type"] == "extra_forbidden":
        known = ", ".join(_owner(settings, first["loc"][:-1]).model_fields)
        return f"unknown setting '{key}'{place}; known settings: {known}"
    if not key or first["type"] == "value_error":
        return first["msg"].removeprefix("Value error, ") + place
    if first["type"] == "missing":
        return f"setting '{key}'{place} is missing"
    return f"setting '{key}'{place} is {first['input']!r}: {first['msg'][0].lower()}{first['msg'][1:]}"
