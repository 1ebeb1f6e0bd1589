"""Fits: from a split to a Recommender, and again on training and validation together."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from milrec.data.interactions import checked_seed
from milrec.data.roles import REJECTIONS, of_rejections
from milrec.data.splits import Split
from milrec.errors import DataError, SettingsError, SmallDataWarning
from milrec.evaluation.calibration import calibrate
from milrec.evaluation.judging import in_roles_of
from milrec.evaluation.validation import validation_measure
from milrec.recommender import Recommender
from milrec.training.artifact import Fitted
from milrec.training.presets import dislike_settings, settings_for
from milrec.training.progress import Report, Watch
from milrec.training.sections import Shape
from milrec.training.settings import FitSettings


def fit(
    split: Split,
    model: str | type[nn.Module] | FitSettings | None = None,
    loss: str | None = None,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    report: Report | None = None,
    **values: Any,
) -> Recommender:
    """Fit a model by name (or by settings) to a split; further settings by name, e.g. `epochs=30`.

    Without a name: the denoising autoencoder with the missing information loss, stopping early on validation.
    """
    if not isinstance(split, Split):
        raise DataError("a fit needs a split: milrec.split_interactions(data, seed=0)")
    if model is None or isinstance(model, str | type):
        settings = settings_for(model, loss, values)
    elif isinstance(model, nn.Module):
        name = type(model).__name__
        raise SettingsError(f"give the class of your encoder, not an instance: milrec.fit(split, {name})")
    elif loss is not None:
        raise SettingsError("settings already name a loss; leave `loss` out")
    else:
        settings = model.with_values(values)
    if not split.validation.targets.nnz:
        stops = "" if settings.measure is None else "the fit cannot stop early and "
        warnings.warn(
            f"no user has a held-out validation item, so {stops}the model has no probabilities; hold out more data",
            SmallDataWarning,
            stacklevel=2,
        )
    return _fitted(split, settings, seed, checkpoint, report)


def fit_dislikes(
    split: Split,
    model: str | type[nn.Module] | FitSettings | None = None,
    loss: str | None = None,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    report: Report | None = None,
    **values: Any,
) -> Recommender:
    """A model of what users reject, for `recommend(…, dislikes=other.at_cost(0.5))`: fitted to the same split, with
    adopted and rejected pairs exchanged. Without a name, or as `dae`: an autoencoder that reads both, by default with
    cross-entropy.
    """
    if not isinstance(split, Split):
        raise DataError("a fit needs a split: milrec.split_interactions(data, seed=0)")
    exchanged = split if split.of_rejections else of_rejections(split)
    if model is None or model == "dae":
        return fit(exchanged, dislike_settings(loss, values), None, seed, checkpoint, report)
    return fit(exchanged, model, loss, seed, checkpoint, report, **values)


def _fitted(
    split: Split, settings: FitSettings, seed: int, checkpoint: str | Path | None, report: Report | None
) -> Recommender:
    train, seed = split.train, checked_seed(seed)
    settings = settings.for_data(Shape.of(train))
    fitted = settings.new_model(train.n_users, train.n_items, seed)
    started = time.monotonic()
    validate = None
    if settings.measure is not None and split.validation.targets.nnz:
        validate = validation_measure(settings.measure, settings, train, split.validation)
    history = settings.fit(
        fitted, train, seed, Watch(validate, None if checkpoint is None else Path(checkpoint), report)
    )
    facts = {
        "train_fingerprint": train.fingerprint(),
        "protocol": split.protocol,
        "split_seed": split.seed,
        "fit_seconds": round(time.monotonic() - started, 2),
        **({"predicts": REJECTIONS} if split.of_rejections else {}),
    }
    removed = train.adopted if split.protocol == "users" else split.test.audience.removed
    calibration = calibrate(fitted, settings, split)
    return Recommender(Fitted(fitted, settings, train, removed, seed, history, facts, calibration))


def refit(
    split: Split, recommender: Recommender, checkpoint: str | Path | None = None, report: Report | None = None
) -> Recommender:
    """The same model fitted from scratch on training and validation together: same settings, same seed, and as many
    steps as validation chose. No validation part is left, so it can only be judged on test, and its probabilities and
    the prices of the tail are those of the fit before it.
    """
    fitted = recommender.fitted
    split = in_roles_of(fitted, split)
    if fitted.facts.get("refitted"):
        raise DataError("the model is already refitted: it has learned from validation too")
    if split.train.fingerprint() != fitted.facts["train_fingerprint"]:
        raise DataError("the model was fitted on another split; refit it on that one")
    settings = refit_settings(recommender)
    again = _fitted(split.joined(), settings, fitted.seed, checkpoint, report).fitted
    facts = {**again.facts, "refitted": True}
    return Recommender(replace(again, facts=facts, calibration=fitted.calibration))


def refit_settings(recommender: Recommender) -> FitSettings:
    """Those of a model, ending with the step that validation chose."""
    settings, history = recommender.fitted.settings, recommender.fitted.history
    return settings if history is None else settings.ending_at(history.last_step)
