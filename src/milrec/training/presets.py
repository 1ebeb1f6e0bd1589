"""Settings of a fit by name.

Each row of the paper's model table has a name here (`mil-lin-sig`, `mf-square`, …) with the paper's settings. The name
of a model, with the name of a loss, gives milrec's own defaults for that pair; some models have no loss. `dae-large`
is a larger autoencoder, which takes longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from milrec.errors import SettingsError, unknown
from milrec.losses import LOSSES
from milrec.models.known import settings_type
from milrec.models.settings import (
    MODELS,
    AutoencoderSettings,
    FactorizationSettings,
    GradientModelSettings,
    ModelSettings,
    VariationalSettings,
)
from milrec.settings import build
from milrec.training.sections import TargetSettings, TrainingSettings
from milrec.training.settings import FitSettings, GradientFit, fit_settings

if TYPE_CHECKING:
    from torch import nn


LARGER: dict[str, tuple[str, dict[str, Any]]] = {  # name → the model, and what replaces its defaults (docs/log.md)
    "dae-large": (
        "dae",
        {
            "n_factors": 400,
            "weight_decay_form": "popularity",
            "weight_decay": 0.35,
            "user_exponent": 0.25,
            "learning_rate": 3e-3,
        },
    )
}


def settings_for(
    model: str | type[nn.Module] | None = None,
    loss: str | None = None,
    values: Mapping[str, Any] | None = None,
    encoders: Sequence[type[nn.Module]] = (),
) -> FitSettings:
    """Settings by name: a row of the paper, or a model with a loss, or one without; then single values replaced.

    Instead of a name you can give your own encoder's class; classes in `encoders` can be given by name too.
    """
    if loss is not None and loss not in LOSSES:
        raise SettingsError(unknown("loss", loss, LOSSES))
    name = model or "dae"
    if not isinstance(name, str):
        from milrec.models.encoders import encoder_settings

        return _defaults(encoder_settings(name), loss, values or {}).with_values(values or {})
    if name in LARGER:
        plain, larger = LARGER[name]
        return settings_for(plain, loss, {**larger, **(values or {})})
    if name in PAPER_MODELS:
        chosen: FitSettings = _paper_row(name, loss)
    else:
        kind = settings_type(name, encoders)
        if kind is None:
            raise SettingsError(unknown("model", name, [*PAPER_MODELS, *MODELS, *LARGER]))
        chosen = _defaults(kind, loss, values or {})
    return chosen.with_values(values or {})


def dislike_settings(loss: str | None, values: Mapping[str, Any]) -> FitSettings:
    """Those of an autoencoder that predicts what users reject."""
    return settings_for("dae", loss or "pointwise", {"reads_rejected": True, **values})


def own_settings(model: str) -> list[FitSettings]:
    """milrec's own settings for a model, under each loss that it can be fitted with."""
    settings = settings_for(model)
    if settings.loss is None:
        return [settings]
    return [settings_for(model, loss) for loss in settings.model.losses or LOSSES]


def _paper_row(name: str, loss: str | None) -> GradientFit:
    chosen = PAPER_MODELS[name]
    if loss not in (None, chosen.loss.loss):
        raise SettingsError(
            f"model '{name}' is one of the paper's models, with loss '{chosen.loss.loss}'; "
            "for another loss give `model='dae'` or `model='mf'`"
        )
    return chosen


def _defaults(kind: type[ModelSettings], loss: str | None, values: Mapping[str, Any]) -> FitSettings:
    """milrec's own settings for a model and a loss; what has no default is taken from the values."""
    name = kind.model_fields["model"].default
    if not kind.needs_loss:
        if loss is not None:
            raise SettingsError(f"model '{name}' has no loss; leave `loss` out")
        return fit_settings({"model": {"model": name}})
    gradient = cast(type[GradientModelSettings], kind)
    loss = loss or gradient.default_loss
    required = {key: values[key] for key, one in gradient.model_fields.items() if one.is_required() and key in values}
    training = {
        "batch_size": None,
        "start": gradient.starts[0],
        "start_bias": gradient.default_start_bias,
        "skip_singles": None if gradient.reads_items_only else False,
        "learning_rate": gradient.default_rate,
        "schedule": "inverse_sqrt",
        "warmup": None,
        "averaging": 0.15,
        "validate_every": "auto",
        "patience": 3,
        "validation_users": 2_500,
        "slack": 0.002,
        "weight_decay": gradient.default_decay[loss],
        "weight_decay_form": gradient.decay_form,
    }
    sections = {
        "model": build(gradient, {**gradient.defaults(loss), **required}),
        "loss": LOSSES[loss](),
        "target_set": None if loss == "multinomial" else _targets(loss),
        "training": build(TrainingSettings, training),
    }
    return build(GradientFit, sections)


def _targets(loss: str) -> TargetSettings:
    """On real data MIL's term for rejections costs more hits than dislikes it spares (docs/results/rejections.md)."""
    return TargetSettings(target_set="auto", target_factor=50, rejected_as="missing" if loss == "mil" else "rejected")


def _paper_autoencoder(loss: str, encoder: Any, weight_decay: float, factor: float | None) -> GradientFit:
    return GradientFit(
        model=AutoencoderSettings(encoder=encoder, decoder="linear" if loss == "multinomial" else "sigmoid"),
        loss=LOSSES[loss](),
        target_set=None if factor is None else TargetSettings(target_factor=factor),
        training=TrainingSettings(iterations=120_000, weight_decay=weight_decay),
    )


def _paper_factorization(loss: str, weight_decay: float) -> GradientFit:
    return GradientFit(
        model=FactorizationSettings(decoder="linear" if loss == "square" else "sigmoid"),
        loss=LOSSES[loss](),
        target_set=TargetSettings(target_factor=100),
        training=TrainingSettings(iterations=180_000, weight_decay=weight_decay, weight_decay_form="scaled"),
    )


def _paper_variational() -> GradientFit:
    """As in the code that Liang et al. published: β rises by 1/200,000 a step, up to 0.2."""
    return GradientFit(
        model=VariationalSettings.model_validate({"annealing_cap": 0.2, "annealing_steps": 40_000}),
        loss=LOSSES["multinomial"](),
        training=TrainingSettings(batch_size=500, epochs=200, weight_decay=0),
    )


PAPER_MODELS: dict[str, GradientFit] = {
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
