"""A fitted model as a folder: safetensors weights, JSON settings, ids and pairs in Arrow; checked when it is loaded.

The folder holds everything that lists need: the users' training items (what the encoder sees), and what must not be
listed again. Nothing is unpickled; a folder with a changed, missing or foreign file is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, ValidationError, field_validator
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_array
from torch import nn

from milrec.data.interactions import ADOPTERS, Interactions
from milrec.data.pairs import read_pairs, write_pairs
from milrec.data.roles import REJECTIONS
from milrec.errors import FolderError, MilrecError, SettingsError, first_line
from milrec.models.contract import Model
from milrec.models.encoders import encoder_settings
from milrec.models.known import build_model, model_class, settings_type
from milrec.models.settings import ModelSettings
from milrec.probability.calibration import Calibration
from milrec.probability.prices import TailPrices
from milrec.records import Record, first_wrong
from milrec.results import FitHistory
from milrec.storage import Manifest, check_files, new_folder, opened_folder
from milrec.training.progress import History, checked_history, history_of
from milrec.training.settings import FitSettings, fit_settings

_WEIGHTS = "weights.safetensors"
_REMOVED = "removed.arrow"


class _Facts(Record):
    """What the code uses of a model folder's facts; those that 0.1.0 did not write have defaults."""

    settings: dict[str, Any]
    seed: int = Field(ge=0, lt=2**63)
    history: FitHistory | None
    train_fingerprint: str = ""
    fit_seconds: float = Field(0.0, ge=0)
    refitted: bool = False
    calibration: Calibration | None = None

    @field_validator("history")
    @classmethod
    def _was_fitted(cls, history: FitHistory | None) -> FitHistory | None:
        if history is not None and not history.iterations:
            raise ValueError("the history of a fit has at least one entry")
        return None if history is None else checked_history(history)


@dataclass(frozen=True)
class Fitted:
    """A model, with the data and the settings it was fitted with."""

    model: Model
    settings: FitSettings
    train: Interactions
    removed: csr_array  # (n_users, n_items) what known users have already: training and validation items
    seed: int
    history: History | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    calibration: Calibration | None = None  # None without a validation part, and in folders of 0.1

    @property
    def prices(self) -> TailPrices | None:
        """What a place in the tail costs, where that is known."""
        return None if self.calibration is None else self.calibration.prices

    @property
    def predicts_rejections(self) -> bool:
        """Whether it was fitted to rejections, and ranks first what users would reject."""
        return self.facts.get("predicts") == REJECTIONS

    def without_users(self) -> Fitted:
        """The same for new users alone: it holds the items, how many users adopted each, and the weights."""
        refuse_without_users(self.settings.model)
        facts = {**self.facts, **self.train.facts()}
        train = self.train.without_users()
        return replace(self, train=train, removed=train.adopted, facts=facts)

    def save(self, path: str | Path, replace: bool = False) -> None:
        with new_folder(Path(path), "model", replace) as draft:
            save_file(self.model.saved_tensors(), draft.path / _WEIGHTS)
            self.train.write_into(draft)
            if self.train.has_users:
                write_pairs(draft.path / _REMOVED, self.removed)
            draft.facts.update(
                {
                    **self.facts,
                    **self.train.facts(),
                    "seed": self.seed,
                    "settings": self.settings.model_dump(),
                    "history": None if self.history is None else asdict(self.history),
                    "calibration": None if self.calibration is None else self.calibration.as_json(),
                    **self.settings.model.provenance(),
                    "versions": {name: version(name) for name in ("milrec", "torch", "numpy")},
                }
            )

    @classmethod
    def load(cls, path: str | Path, encoders: Sequence[type[nn.Module]] = ()) -> Fitted:
        """Read a model folder, checked; an encoder that is not milrec's must be named here, or installed."""
        if not isinstance(encoders, Sequence) or isinstance(encoders, str):
            raise SettingsError(f"`models` must be a list of classes, not {encoders!r:.60}")
        for encoder in encoders:
            encoder_settings(encoder)
        with opened_folder(Path(path), "model") as manifest:
            return cls._read_from(manifest, encoders)

    @classmethod
    def _read_from(cls, manifest: Manifest, encoders: Sequence[type[nn.Module]]) -> Fitted:
        check_files(manifest, [_WEIGHTS])
        facts, settings = _understood(manifest, encoders)
        if ADOPTERS in manifest.hashes:
            train = Interactions.read_without_users(manifest)
            removed = train.adopted
        else:
            train = Interactions.read_from(manifest)
            check_files(manifest, [_REMOVED])
            removed = read_pairs(manifest.path / _REMOVED, train.adopted.shape)
        model = _built(settings, train, facts.seed, manifest)
        history = None if facts.history is None else history_of(facts.history)
        used = {"train_fingerprint": facts.train_fingerprint, "fit_seconds": facts.fit_seconds}
        known = {**used, **{name: fact for name, fact in manifest.facts.items() if name != "calibration"}}
        return cls(model, settings, train, removed, facts.seed, history, known, facts.calibration)


def refuse_without_users(settings: ModelSettings) -> None:
    """Refuse a model that has weights for each user: it cannot be kept without them."""
    if model_class(settings).knows_users:
        raise SettingsError(
            f"a model '{settings.model}' has weights for each user, so there is no `without_users` for it; "
            "fit an autoencoder (dae, vae), ease, ease-sparse, slim or popularity"
        )


def _understood(manifest: Manifest, encoders: Sequence[type[nn.Module]]) -> tuple[_Facts, FitSettings]:
    where = f"'{manifest.path}' has settings that this milrec does not understand"
    try:
        facts = _Facts.model_validate_json(json.dumps(manifest.facts), strict=True)
        settings = _settings(manifest.facts, encoders)
        if facts.calibration is not None:
            facts.calibration.refuse_other_loss(settings)
        return facts, settings
    except _UnknownModel as error:
        raise FolderError(f"'{manifest.path}' {error}") from None
    except ValidationError as error:
        raise FolderError(f"{where} ({first_wrong(error)})") from None
    except (KeyError, TypeError, ValueError, MilrecError) as error:
        raise FolderError(f"{where} ({error})") from None


def _built(settings: FitSettings, train: Interactions, seed: int, manifest: Manifest) -> Model:
    try:
        model = build_model(settings.model, train.n_users, train.n_items, seed)
    except MemoryError:
        raise FolderError(f"'{manifest.path}' needs more memory for its model than there is") from None
    _read_weights(model, manifest)
    model.meet(train.popularity())
    return model


class _UnknownModel(Exception):
    """The folder holds a model that is not milrec's, and that the caller did not name."""


def _settings(facts: dict[str, Any], encoders: Sequence[type[nn.Module]]) -> FitSettings:
    name = facts["settings"]["model"]["model"]
    if isinstance(name, str) and settings_type(name, encoders) is None:
        home = facts.get("model_class")
        hint = f" ({home})" if isinstance(home, str) else ""
        raise _UnknownModel(f"holds a model '{name}'{hint} that is not one of milrec's; name its class with `models`")
    return fit_settings(facts["settings"], encoders)


def _read_weights(model: Model, manifest: Manifest) -> None:
    path = manifest.path / _WEIGHTS
    try:
        weights = load_file(path)
    except Exception as error:  # SafetensorError is a plain Exception, and damaged headers raise others too
        raise FolderError(f"'{path}' is not a safetensors file ({first_line(error)})") from None
    model.make_room(weights)
    expected = {name: (tuple(value.shape), value.dtype) for name, value in model.tensors().items()}
    found = {name: (tuple(value.shape), value.dtype) for name, value in weights.items()}
    if found != expected:
        other = sorted(set(found.items()) ^ set(expected.items()), key=str)[0][0]
        raise FolderError(
            f"'{path}' does not hold the weights of this model: '{other:.60}' is {_shown(found.get(other))}; "
            f"these settings and ids need {_shown(expected.get(other))}"
        )
    fitted = {name for name, _ in model.named_parameters()}
    if not all(bool(torch.isfinite(value).all()) for name, value in weights.items() if name in fitted):
        raise FolderError(f"'{path}' has weights that are not finite")
    model.load_state_dict(weights, assign=True)  # mapped, not copied: processes that load one folder share its pages
    if flaw := model.flaw():
        raise FolderError(f"'{path}' holds impossible weights: {flaw}")
    model.eval()


def _shown(kind: tuple[tuple[int, ...], torch.dtype] | None) -> str:
    return "missing" if kind is None else f"{kind[0]} of {kind[1]}"
