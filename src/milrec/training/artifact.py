"""A fitted model as a folder: safetensors weights, JSON settings, ids and pairs in Arrow; saved whole, loaded checked.

The folder holds all that lists need: the users' training items (what the encoder sees) and what must not be listed
again. Nothing is unpickled; a folder with a changed, missing or foreign file is refused.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_array

from milrec.data.interactions import Interactions, read_pairs, write_pairs
from milrec.errors import FolderError, MilrecError
from milrec.models.contract import Model, build_model
from milrec.storage import Manifest, new_folder, open_folder, require_files
from milrec.training.checkpoints import History
from milrec.training.presets import FitSettings, fit_settings

_WEIGHTS = "weights.safetensors"
_REMOVED = "removed.arrow"


@dataclass(frozen=True)
class Fitted:
    """A model with all it was fitted from and with."""

    model: Model
    settings: FitSettings
    train: Interactions
    removed: csr_array  # (n_users, n_items) what known users have already: training and validation items
    seed: int
    history: History | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def save(self, path: str | Path, replace: bool = False) -> None:
        with new_folder(Path(path), "model", replace) as draft:
            weights = {name: value.detach().contiguous() for name, value in self.model.named_parameters()}
            save_file(weights, draft.path / _WEIGHTS)
            self.train.write_into(draft)
            write_pairs(draft.path / _REMOVED, self.removed)
            draft.facts.update(
                {
                    **self.facts,
                    **self.train.facts(),
                    "seed": self.seed,
                    "settings": self.settings.model_dump(),
                    "history": None if self.history is None else asdict(self.history),
                    "versions": {name: version(name) for name in ("milrec", "torch", "numpy")},
                }
            )

    @classmethod
    def load(cls, path: str | Path) -> Fitted:
        manifest = open_folder(Path(path), "model")
        require_files(manifest, [_WEIGHTS, _REMOVED])
        facts = manifest.facts
        try:
            settings = fit_settings(facts["settings"])
            history = None if facts["history"] is None else History(**facts["history"])
            seed = int(facts["seed"])
        except (KeyError, TypeError, ValueError, MilrecError) as error:
            raise FolderError(f"'{path}' has settings that this milrec does not understand ({error})") from None
        train = Interactions.read_from(manifest)
        model = build_model(settings.model, train.n_users, train.n_items)
        _read_weights(model, manifest)
        removed = read_pairs(manifest.path / _REMOVED, train.adopted.shape)
        return cls(model, settings, train, removed, seed, history, facts)


def _read_weights(model: Model, manifest: Manifest) -> None:
    path = manifest.path / _WEIGHTS
    try:
        weights = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise FolderError(f"'{path}' is not a safetensors file ({error})") from None
    expected = {name: tuple(value.shape) for name, value in model.named_parameters()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    if found != expected:
        raise FolderError(f"'{path}' has weights {found}; these settings and ids need {expected}")
    if not all(value.dtype == torch.float32 and bool(torch.isfinite(value).all()) for value in weights.values()):
        raise FolderError(f"'{path}' has weights that are not finite 32-bit numbers")
    model.load_state_dict(weights)
