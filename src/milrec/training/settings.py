"""The settings of a fit: the model and, if it is fitted by gradient descent, the loss, the target set and the training.

Field names of all sections are different, so that `missing_weight=5e5` or `epochs=30` need no section. In a file, a
section that a model does not use is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import SerializeAsAny, model_validator

from milrec.errors import SettingsError, cut, hint, unknown
from milrec.losses import LOSSES, Loss
from milrec.models.known import build_model, settings_type
from milrec.models.settings import MODELS, ClosedFormSettings, GradientModelSettings, ModelSettings
from milrec.settings import Settings, build, changed
from milrec.training.sections import Shape, TargetSettings, TrainingSettings

if TYPE_CHECKING:
    from torch import nn

    from milrec.data.interactions import Interactions
    from milrec.models.contract import Model
    from milrec.training.progress import History, Watch

SECTIONS = ("model", "loss", "target_set", "training")


class _Sections(Settings):
    """What the settings of every fit can do."""

    model: SerializeAsAny[ModelSettings]

    @property
    def seeded(self) -> bool:
        """Whether a different seed gives a different model."""
        return self.model.seeded

    def known_keys(self) -> dict[str, str]:
        """Setting → the section that has it."""
        sections = [(name, getattr(self, name)) for name in SECTIONS]
        return {
            key: name
            for name, section in sections
            if section is not None
            for key in type(section).model_fields
            if key not in ("model", "loss")
        }

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """The same settings with some values replaced, each by its own name."""
        known = self.known_keys()
        for key in values:
            if key not in known:
                names = ", ".join(sorted(known)) or "none"
                what = f"unknown setting '{cut(key)}' for {self}{hint(key, known)}"
                raise SettingsError(f"{what}; known settings: {names}")
        sections: dict[str, Any] = {name: getattr(self, name) for name in SECTIONS}
        for name, section in sections.items():
            mine = {key: value for key, value in values.items() if known[key] == name}
            if mine:
                sections[name] = changed(section, _one_length(mine) if name == "training" else mine)
        return build(type(self), sections)


class GradientFit(_Sections):
    """A fit by gradient descent: a model with a loss, its target set and the training."""

    model: SerializeAsAny[GradientModelSettings]
    loss: Loss
    target_set: TargetSettings | None = None  # None: the loss uses all items (multinomial)
    training: TrainingSettings

    def with_values(self, values: Mapping[str, Any]) -> Self:
        made = super().with_values(values)
        idle = sorted(key for key in values if key in ("rejected_exponent", "rejected_weight"))
        if idle and made.target_set is not None and made.target_set.rejected_as == "missing":
            raise SettingsError(f"{idle[0]} does nothing with rejected_as=missing; set rejected_as=rejected too")
        return made

    @model_validator(mode="after")
    def _sections_fit_together(self) -> GradientFit:
        name, loss = self.model.model, self.loss.loss
        others = [section for section in (self.loss, self.target_set, self.training) if section is not None]
        twice = set(type(self.model).model_fields) & {key for one in others for key in type(one).model_fields}
        if twice:
            raise ValueError(f"model '{name}' has a setting '{min(twice)}', which is a setting of every fit; rename it")
        if self.model.losses is not None and loss not in self.model.losses:
            only = " or ".join(self.model.losses)
            raise ValueError(f"model '{name}' can only be fitted with the {only} loss, not with '{loss}'")
        if self.training.start not in self.model.starts:
            needed = " or ".join(self.model.starts)
            raise ValueError(
                f"start '{self.training.start}' is for models with one hidden layer; "
                f"model '{name}' needs start={needed}"
            )
        if self.model.decoder not in self.loss.decoders:
            needed = " or ".join(self.loss.decoders)
            raise ValueError(f"loss '{loss}' needs a {needed} decoder, not '{self.model.decoder}'")
        if (self.target_set is None) != (loss == "multinomial"):
            raise ValueError("the multinomial loss uses all items, and every other loss needs a target set")
        if self.training.start_bias == "rest" and not self.rests:
            known = ", ".join(name for name, one in LOSSES.items() if one.rests)
            raise ValueError(
                f"start_bias 'rest' needs a sigmoid decoder and one of the losses {known}, "
                f"not '{loss}' with a {self.model.decoder} decoder; set start_bias=zero"
            )
        if self.training.skip_singles and not self.model.reads_items_only:
            raise ValueError(f"model '{name}' learns something about every user; set skip_singles=false")
        if not self.model.reads_items_only and self.training.weight_decay_form == "popularity":
            raise ValueError(
                f"model '{name}' has weights of users; weight_decay_form 'popularity' is for weights of items"
            )
        if not self.model.reads_items_only and self.training.user_exponent:
            raise ValueError(f"model '{name}' learns something about every user; set user_exponent=0")
        confidence = getattr(self.loss, "confidence", None)
        if confidence is not None and self.target_set is not None and self.target_set.target_set != "all":
            raise ValueError("a confidence weights adopted items against all missing ones: set target_set=all with it")
        return self

    def __str__(self) -> str:
        return f"{self.model.model} with {self.loss.loss}"

    @property
    def loss_name(self) -> str:
        return self.loss.loss

    @property
    def batch_size(self) -> int:
        """Users per step; settings from `for_data` always have it."""
        if self.training.batch_size is None:
            raise SettingsError("batch_size is not set; for_data chooses one for the data")
        return self.training.batch_size

    @property
    def peak_rate(self) -> float:
        """The largest learning rate; settings from `for_data` always have it."""
        if self.training.learning_rate is None:
            raise SettingsError("learning_rate is not set; for_data chooses one for the data")
        return self.training.learning_rate

    @property
    def validate_every(self) -> int | None:
        """Steps between validations, None for an epoch; settings from `for_data` always say it."""
        if self.training.validate_every == "auto":
            raise SettingsError("validate_every is auto; for_data chooses a number for the data")
        return self.training.validate_every

    @property
    def rising_steps(self) -> int:
        """Steps in which the learning rate of `inverse_sqrt` rises; settings from `for_data` always say it."""
        if self.training.warmup is None:
            raise SettingsError("warmup is not set; for_data chooses one for the data")
        return self.training.warmup if self.training.schedule == "inverse_sqrt" else 0

    @property
    def measure(self) -> str:
        return self.training.measure

    @property
    def threads(self) -> int | None:
        return self.training.threads

    @property
    def validation_users(self) -> int | None:
        return self.training.validation_users

    @property
    def preference(self) -> str | None:
        """What turns logits into preferences (section 4.2); None for the multinomial, which gives shares of a whole."""
        return None if self.loss.loss == "multinomial" else self.model.decoder

    @property
    def target_factor(self) -> float:
        return 1.0 if self.target_set is None else self.target_set.target_factor

    @property
    def rests(self) -> bool:
        """Whether the loss has a preference at which it rests for a user we know nothing about."""
        return self.loss.rests and self.model.decoder == "sigmoid"

    @property
    def touches_few_rows(self) -> bool:
        """Whether a step updates only those rows of W that its users read: the others catch up when they are read.

        On sparse data these are a small part of the catalogue.
        """
        return self.samples or self.training.start_bias == "rest"

    @property
    def samples(self) -> bool:
        """Whether a step touches only some rows of the decoder."""
        return self.target_set is not None and self.target_set.target_set == "shared"

    def fit(self, model: Any, train: Interactions, seed: int, watch: Watch) -> History | None:
        """Fit a model that was built from these settings."""
        from milrec.training.loop import fit

        return fit(model, train, self, seed, watch)

    def new_model(self, n_users: int, n_items: int, seed: int) -> Model:
        """A model to be fitted with these settings."""
        return build_model(self.model, n_users, n_items, seed)

    def for_data(self, shape: Shape) -> GradientFit:
        """The same, with what the shape of the data decides filled in."""
        values: dict[str, Any] = {}
        target_set: str | None = None if self.target_set is None else self.target_set.target_set
        if target_set == "auto":
            values["target_set"] = target_set = shape.target_set()
        start_bias: str = self.training.start_bias or (shape.start_bias() if self.rests else "zero")
        if self.training.start_bias is None:
            values["start_bias"] = start_bias
        batch_size = self.training.batch_size or shape.batch_size(start_bias)
        if self.training.batch_size is None:
            values["batch_size"] = batch_size
        if self.training.learning_rate is None:
            values["learning_rate"] = self.model.default_rate or shape.learning_rate(start_bias, batch_size)
        if self.training.warmup is None:
            values["warmup"] = shape.warmup(start_bias)
        skips = self.training.skip_singles
        if skips is None:
            values["skip_singles"] = skips = self.model.reads_items_only and shape.skip_singles()
        if self.training.validate_every == "auto":
            n_users = shape.n_users - (shape.n_singles if skips else 0)
            quick = start_bias == "rest" and target_set != "shared"
            values["validate_every"] = shape.validate_every(quick, n_users / batch_size)
        return self.with_values(values)

    def with_measure(self, measure: str) -> GradientFit:
        return self.with_values({"measure": measure})

    def ending_at(self, step: int | None) -> GradientFit:
        return self.with_values({"until": step})


class ClosedFormFit(_Sections):
    """A fit without a loss: the model's settings are all there is."""

    model: SerializeAsAny[ClosedFormSettings]
    loss: None = None
    target_set: None = None
    training: None = None

    def __str__(self) -> str:
        return self.model.model

    @property
    def loss_name(self) -> None:
        return None

    @property
    def measure(self) -> None:
        return None

    @property
    def threads(self) -> None:
        return None

    @property
    def validation_users(self) -> None:
        return None

    @property
    def preference(self) -> str | None:
        return self.model.preference

    @property
    def target_factor(self) -> float:
        return 1.0

    def fit(self, model: Any, train: Interactions, seed: int, watch: Watch) -> History | None:
        from milrec.training.closed_form import fit

        fit(model, train, seed, watch)
        return None

    def new_model(self, n_users: int, n_items: int, seed: int) -> Model:
        """A model to be fitted; refused before anything is allocated if it is too large for the memory."""
        from milrec.training.closed_form import check_memory

        check_memory(self.model, n_users, n_items)
        return build_model(self.model, n_users, n_items, seed)

    def for_data(self, shape: Shape) -> ClosedFormFit:
        return self

    def with_measure(self, measure: str) -> ClosedFormFit:
        return self

    def ending_at(self, step: int | None) -> ClosedFormFit:
        return self


FitSettings = GradientFit | ClosedFormFit


def fit_settings(sections: Mapping[str, Any], encoders: Sequence[type[nn.Module]] = ()) -> FitSettings:
    """Settings from plain values (a recipe, a model folder), or an error that says what is wrong with them.

    `encoders` are models other than milrec's that the caller has named.
    """
    if not isinstance(sections, Mapping):
        raise SettingsError(f"settings must be a table of sections ({', '.join(SECTIONS)}), not {sections!r:.40}")
    values = sections.get("model")
    name = values.get("model") if isinstance(values, Mapping) else None
    if name is None:
        raise SettingsError("setting 'model' is missing")
    kind = settings_type(name, encoders) if isinstance(name, str) else None
    if kind is None:
        raise SettingsError(unknown("model", name, MODELS))
    plain = {**sections, "model": _section(kind, values, "model")}
    if kind.needs_loss:
        loss = sections.get("loss")
        if isinstance(loss, Mapping) and isinstance(loss.get("loss"), str) and loss["loss"] in LOSSES:
            plain["loss"] = _section(LOSSES[loss["loss"]], loss, "loss")
        for section, form in (("target_set", TargetSettings), ("training", TrainingSettings)):
            if isinstance(sections.get(section), Mapping):
                plain[section] = _section(form, sections[section], section)
        lacking = [section for section in ("loss", "training") if plain.get(section) is None]
        if lacking:
            raise SettingsError(f"model '{name}' needs a loss and training settings")
        return build(GradientFit, plain)
    if any(sections.get(section) is not None for section in SECTIONS[1:]):
        raise SettingsError(f"model '{name}' has no loss, no target set and no training settings")
    return build(ClosedFormFit, plain)


def _section(form: type[Settings], values: Any, section: str) -> Settings:
    known = sorted(set(form.model_fields) - {"model", "loss"})
    for key in values:
        if key not in form.model_fields:
            raise SettingsError(f"unknown setting '{cut(key)}' of '{section}'; known settings: {', '.join(known)}")
    return build(form, values, f"'{section}'")


def _one_length(values: dict[str, Any]) -> dict[str, Any]:
    """Setting one of epochs and iterations unsets the other."""
    if values.get("epochs") is not None and "iterations" not in values:
        return {**values, "iterations": None}
    if values.get("iterations") is not None and "epochs" not in values:
        return {**values, "epochs": None}
    return values
