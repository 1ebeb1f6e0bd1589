"""A fitted model as a folder: safetensors weights, JSON settings, ids and pairs in Arrow; checked when it is loaded.

The folder holds everything that lists need: the users' training items (what the encoder sees), and what must not be
listed again. Nothing is unpickled; a folder with a changed, missing or foreign file is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_array
from torch import nn

from milrec.data.interactions import Interactions, read_pairs, write_pairs
from milrec.errors import FolderError, MilrecError, SettingsError
from milrec.models.contract import Model
from milrec.models.encoders import encoder_settings
from milrec.models.known import build_model, settings_type
from milrec.storage import Manifest, new_folder, open_folder, require_files
from milrec.training.progress import History
from milrec.training.settings import FitSettings, fit_settings

_WEIGHTS = "weights.safetensors"
_REMOVED = "removed.arrow"


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

    def save(self, path: str | Path, replace: bool = False) -> None:
        with new_folder(Path(path), "model", replace) as draft:
            save_file(self.model.saved_tensors(), draft.path / _WEIGHTS)
            self.train.write_into(draft)
            write_pairs(draft.path / _REMOVED, self.removed)
            draft.facts.update(
                {
                    **self.facts,
                    **self.train.facts(),
                    "seed": self.seed,
                    "settings": self.settings.model_dump(),
                    "history": None if self.history is None else asdict(self.history),
                    **self.settings.model.provenance(),
                    "versions": {name: version(name) for name in ("milrec", "torch", "numpy")},
                }
            )

    @classmethod
    def load(cls, path: str | Path, encoders: Sequence[type[nn.Module]] = ()) -> Fitted:
        """Read a model folder, checked; an encoder that is not milrec's must be named here, or installed."""
        if not isinstance(encoders, Sequence) or isinstance(encoders, str):
            raise SettingsError(f"`models` is a list of classes, not {encoders!r:.60}")
        for encoder in encoders:
            encoder_settings(encoder)
        manifest = open_folder(Path(path), "model")
        require_files(manifest, [_WEIGHTS, _REMOVED])
        facts = manifest.facts
        try:
            settings = _settings(facts, encoders)
            history = None if facts["history"] is None else History(**facts["history"])
            seed = int(facts["seed"])
        except _UnknownModel as error:
            raise FolderError(f"'{path}' {error}") from None
        except (KeyError, TypeError, ValueError, MilrecError) as error:
            raise FolderError(f"'{path}' has settings that this milrec does not understand ({error})") from None
        train = Interactions.read_from(manifest)
        model = build_model(settings.model, train.n_users, train.n_items, seed)
        _read_weights(model, manifest)
        removed = read_pairs(manifest.path / _REMOVED, train.adopted.shape)
        return cls(model, settings, train, removed, seed, history, facts)


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
    except (SafetensorError, OSError, ValueError) as error:
        raise FolderError(f"'{path}' is not a safetensors file ({error})") from None
    expected = {name: tuple(value.shape) for name, value in model.tensors().items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    if found != expected:
        raise FolderError(f"'{path}' has weights {found}; these settings and ids need {expected}")
    types = {name: value.dtype for name, value in model.tensors().items()}
    fitted = {name for name, _ in model.named_parameters()}
    finite = all(bool(torch.isfinite(value).all()) for name, value in weights.items() if name in fitted)
    if not finite or any(value.dtype != types[name] for name, value in weights.items()):
        raise FolderError(f"'{path}' has weights that are not finite 32-bit numbers")
    model.load_state_dict(weights)
    model.eval()
