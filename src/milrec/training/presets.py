"""Everything a fit needs to be told, and the names under which ready sets of it are kept.

Each row of the paper's model table has a name here (`mil-lin-sig`, `mf-square`, …) with the paper's settings. `dae`,
`cdae`, `vae` and `mf`, with the name of a loss, give milrec's own defaults for that pair. The other models have no
loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from milrec.errors import SettingsError, unknown
from milrec.losses import LOSSES, Loss
from milrec.models.settings import (
    MODELS,
    AutoencoderSettings,
    FactorizationSettings,
    GradientSettings,
    ModelSettings,
    VariationalSettings,
)
from milrec.settings import Settings, build, changed
from milrec.training.settings import TargetSettings, TrainingSettings

_STEPS_PER_EPOCH = 60  # that a batch size aims at where none is set
_WHOLE_CATALOGUE = 50_000  # items that every step can take into its loss

SECTIONS = ("model", "loss", "target_set", "training")
DEFAULT_LOSSES = {"dae": "mil", "cdae": "pointwise", "vae": "multinomial", "mf": "mil"}  # where no loss is said


class FitSettings(Settings):
    """The four sections of a fit; a section that a model has no use for is None."""

    model: ModelSettings = Field(discriminator="model")
    loss: Loss | None = None
    target_set: TargetSettings | None = None
    training: TrainingSettings | None = None

    @model_validator(mode="after")
    def _sections_fit_together(self) -> FitSettings:
        if not isinstance(self.model, GradientSettings):
            if (self.loss, self.target_set, self.training) != (None, None, None):
                raise ValueError(f"model '{self.model.model}' has no loss, no target set and no training settings")
            return self
        if self.loss is None or self.training is None:
            raise ValueError(f"model '{self.model.model}' needs a loss and training settings")
        if isinstance(self.model, VariationalSettings):
            if self.loss.loss != "multinomial":
                raise ValueError(f"model 'vae' is fitted with the multinomial loss alone, not with '{self.loss.loss}'")
            if self.training.start == "svd":
                raise ValueError("start 'svd' is for models with one hidden layer; model 'vae' needs start=glorot")
        if self.model.decoder not in self.loss.decoders:
            needed = " or ".join(self.loss.decoders)
            raise ValueError(f"loss '{self.loss.loss}' needs a {needed} decoder, not '{self.model.decoder}'")
        if (self.target_set is None) != (self.loss.loss == "multinomial"):
            raise ValueError("the multinomial loss takes all items, and every other loss needs a target set")
        confidence = getattr(self.loss, "confidence", None)
        if confidence is not None and self.target_set is not None and self.target_set.target_set != "all":
            raise ValueError("a confidence weighs adopted items against all missing ones: set target_set=all with it")
        return self

    @property
    def seeded(self) -> bool:
        """Whether another seed gives another model."""
        return self.model.model not in ("popularity", "ease", "slim")

    def for_data(self, n_users: int, n_items: int) -> FitSettings:
        """The same, with what the size of the data decides filled in."""
        values: dict[str, Any] = {}
        if self.training is not None and self.training.batch_size is None:
            values["batch_size"] = min(max(n_users // _STEPS_PER_EPOCH, 100), 500)
        if self.target_set is not None and self.target_set.target_set == "auto":
            values["target_set"] = "expectation" if n_items <= _WHOLE_CATALOGUE else "shared"
        return self.with_values(values)

    def known_keys(self) -> dict[str, str]:
        """Setting → the section that has it."""
        fixed = {"model", "loss"}
        sections = [(name, getattr(self, name)) for name in SECTIONS]
        return {
            key: name
            for name, section in sections
            if section is not None
            for key in type(section).model_fields
            if key not in fixed
        }

    def with_values(self, values: Mapping[str, Any]) -> FitSettings:
        """The same settings with some values replaced, each by its own name."""
        known = self.known_keys()
        for key in values:
            if key not in known:
                owner = self.model.model if self.loss is None else f"{self.model.model} with {self.loss.loss}"
                raise SettingsError(
                    f"unknown setting '{key}' for {owner}; known settings: {', '.join(sorted(known)) or 'none'}"
                )
        sections: dict[str, Any] = {name: getattr(self, name) for name in SECTIONS}
        for name, section in sections.items():
            mine = {key: value for key, value in values.items() if known[key] == name}
            if mine:
                sections[name] = changed(section, _one_length(mine) if name == "training" else mine)
        return fit_settings(sections)


def fit_settings(sections: Mapping[str, Any]) -> FitSettings:
    """Settings from plain values (a recipe, a model folder), or the sentence that says what is wrong with them."""
    if not isinstance(sections, Mapping):
        raise SettingsError(f"settings are a table of sections ({', '.join(SECTIONS)}), not {sections!r:.40}")
    plain = {key: value.model_dump() if isinstance(value, Settings) else value for key, value in sections.items()}
    return build(FitSettings, plain)


def settings_for(
    model: str | None = None, loss: str | None = None, values: Mapping[str, Any] | None = None
) -> FitSettings:
    """Settings by name: a paper's row, or a model with a loss, or one without; then single values replaced."""
    model = model or "dae"
    if loss is not None and loss not in LOSSES:
        raise SettingsError(f"unknown loss '{loss}'; known losses: {', '.join(sorted(LOSSES))}")
    if model in PAPER_MODELS:
        chosen = PAPER_MODELS[model]
        if loss is not None and chosen.loss is not None and loss != chosen.loss.loss:
            raise SettingsError(
                f"model '{model}' is a row of the paper with loss '{chosen.loss.loss}'; "
                "for another loss give `model='dae'` or `model='mf'`"
            )
    elif model in DEFAULT_LOSSES:
        chosen = _defaults(model, loss or DEFAULT_LOSSES[model])
    elif model in MODELS:
        if loss is not None:
            raise SettingsError(f"model '{model}' has no loss; leave `loss` out")
        chosen = FitSettings(model=MODELS[model]())
    else:
        raise SettingsError(unknown("model", model, [*PAPER_MODELS, *MODELS]))
    return chosen.with_values(values or {})


def _one_length(values: dict[str, Any]) -> dict[str, Any]:
    """Saying one of epochs and iterations unsays the other."""
    if values.get("epochs") is not None and "iterations" not in values:
        return {**values, "iterations": None}
    if values.get("iterations") is not None and "epochs" not in values:
        return {**values, "epochs": None}
    return values


def _defaults(model: str, loss: str) -> FitSettings:
    activations = {
        "decoder": "linear" if loss == "multinomial" or (model, loss) == ("mf", "square") else "sigmoid",
        "encoder": "tanh" if loss == "multinomial" else "sigmoid" if model == "cdae" else "linear",
    }
    weight_decay = {"mil": 5e-6, "multinomial": 2e-5, "pointwise": 2e-5, "pairwise": 2e-5, "square": 2e-5}[loss]
    if model == "mf":
        weight_decay = 10.0 if loss == "square" else 100.0
    return fit_settings(
        {
            "model": {"model": model} if model == "vae" else {"model": model, **activations},
            "loss": {"loss": loss},
            "target_set": None if loss == "multinomial" else {"target_set": "auto", "target_factor": 50},
            "training": {
                "batch_size": None,
                "start": "glorot" if model == "vae" else "svd",
                "learning_rate": 3e-3 if model == "vae" else 5e-3,
                "schedule": "inverse_sqrt",
                "averaging": 0.15,
                "validate_every": 50,
                "patience": 6,
                "slack": 0.002,
                "weight_decay": weight_decay,
                "weight_decay_form": "scaled" if model == "mf" else "plain",
            },
        }
    )


def _paper_autoencoder(loss: str, encoder: str, weight_decay: float, factor: float | None) -> FitSettings:
    return fit_settings(
        {
            "model": AutoencoderSettings(
                encoder=encoder,
                decoder="linear" if loss == "multinomial" else "sigmoid",
            ),
            "loss": {"loss": loss},
            "target_set": None if factor is None else TargetSettings(target_factor=factor),
            "training": TrainingSettings(iterations=120_000, weight_decay=weight_decay),
        }
    )


def _paper_factorization(loss: str, weight_decay: float) -> FitSettings:
    return fit_settings(
        {
            "model": FactorizationSettings(decoder="linear" if loss == "square" else "sigmoid"),
            "loss": {"loss": loss},
            "target_set": TargetSettings(target_factor=100),
            "training": TrainingSettings(iterations=180_000, weight_decay=weight_decay, weight_decay_form="scaled"),
        }
    )


def _paper_variational() -> FitSettings:
    """As in the code that Liang et al. published: β rises by 1/200,000 a step, up to 0.2."""
    return fit_settings(
        {
            "model": VariationalSettings(annealing_cap=0.2, annealing_steps=40_000),
            "loss": {"loss": "multinomial"},
            "training": TrainingSettings(batch_size=500, epochs=200, weight_decay=0),
        }
    )


PAPER_MODELS: dict[str, FitSettings] = {
    "mf-square": _paper_factorization("square", 10),
    "mf-ce": _paper_factorization("pointwise", 100),
    "mf-mil": _paper_factorization("mil", 100),
    "ce-point-lin-sig": _paper_autoencoder("pointwise", "linear", 2e-5, 50),
    "ce-point-sig-sig": _paper_autoencoder("pointwise", "sigmoid", 2e-5, 50),
    "ce-pair-lin-sig": _paper_autoencoder("pairwise", "linear", 2e-5, 100),
    "ce-pair-sig-sig": _paper_autoencoder("pairwise", "sigmoid", 2e-5, 100),
    "multi-tanh-lin": _paper_autoencoder("multinomial", "tanh", 2e-5, None),
    "multi-vae-pr": _paper_variational(),
    "mil-lin-sig": _paper_autoencoder("mil", "linear", 5e-6, 50),
    "mil-sig-sig": _paper_autoencoder("mil", "sigmoid", 5e-6, 50),
}
