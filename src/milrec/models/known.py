"""Which models there are, by name: milrec's own, those that the caller brings, and those that are installed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from milrec.models.settings import MODELS, ModelSettings

if TYPE_CHECKING:
    from torch import nn

    from milrec.models.contract import Model

GROUP = "milrec.models"  # entry points of this group are encoders of other packages


def settings_type(name: str, encoders: Sequence[type[nn.Module]] = ()) -> type[ModelSettings] | None:
    """The settings of a model by its name; None if there is none. Only models that are not milrec's load torch."""
    if name in MODELS:
        return MODELS[name]
    if not encoders and not entry_points(group=GROUP, name=name):
        return None
    from milrec.models.encoders import encoder_named

    return encoder_named(name, encoders)


def model_class(settings: ModelSettings) -> type[Model]:
    """The class that is built from these settings."""
    module, _, name = settings.class_path.partition(":")
    kind: type[Model] = getattr(import_module(module), name)
    return kind


def build_model(settings: ModelSettings, n_users: int, n_items: int, seed: int = 0) -> Model:
    """A model of the right kind and shape; what its constructor draws comes from the seed."""
    import torch

    kind = model_class(settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind.build(settings, n_users, n_items)
