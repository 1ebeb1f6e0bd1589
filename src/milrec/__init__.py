"""milrec: a recommender for implicit feedback that does not mistake missing for disliked."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import nn

    from milrec.data.interactions import Interactions
    from milrec.data.reading.read import read
    from milrec.data.simulation import Simulation, simulate
    from milrec.data.splits import Split, split_given, split_interactions, split_users
    from milrec.errors import MilrecError
    from milrec.evaluation.evaluation import Evaluation
    from milrec.fits import fit, fit_dislikes, refit
    from milrec.lists.export import read_lists
    from milrec.lists.query import Query
    from milrec.lists.rules import Rule
    from milrec.losses import MissingInformationLoss
    from milrec.models.checks import check_encoder
    from milrec.notebooks.comparison import Comparison, compare
    from milrec.recommender import Recommender
    from milrec.training.presets import settings_for

__all__ = [
    "Comparison",
    "Evaluation",
    "Interactions",
    "MilrecError",
    "MissingInformationLoss",
    "Query",
    "Recommender",
    "Rule",
    "Simulation",
    "Split",
    "__version__",
    "check_encoder",
    "compare",
    "fit",
    "fit_dislikes",
    "load",
    "read",
    "read_lists",
    "refit",
    "settings_for",
    "simulate",
    "split_given",
    "split_interactions",
    "split_users",
]

__version__: str

_HOME = {
    "Comparison": "notebooks.comparison",
    "Evaluation": "evaluation.evaluation",
    "Interactions": "data.interactions",
    "MilrecError": "errors",
    "MissingInformationLoss": "losses",
    "Query": "lists.query",
    "Recommender": "recommender",
    "Rule": "lists.rules",
    "Simulation": "data.simulation",
    "Split": "data.splits",
    "check_encoder": "models.checks",
    "compare": "notebooks.comparison",
    "fit": "fits",
    "fit_dislikes": "fits",
    "read": "data.reading.read",
    "read_lists": "lists.export",
    "refit": "fits",
    "settings_for": "training.presets",
    "simulate": "data.simulation",
    "split_given": "data.splits",
    "split_interactions": "data.splits",
    "split_users": "data.splits",
}


def load(path: "str | Path", models: "Sequence[type[nn.Module]]" = ()) -> "Recommender":
    """Open a model folder; it is checked whole before anything in it is used.

    A folder that holds somebody's own encoder is opened only with its class in `models`, or installed.
    """
    from milrec.recommender import Recommender

    return Recommender.load(path, models)


def __dir__() -> list[str]:
    return sorted([*__all__, "figures"])


def __getattr__(name: str) -> Any:
    """Names are fetched when they are used, so that `import milrec` does not wait for torch."""
    if name == "__version__":
        from importlib.metadata import version

        return version("milrec")
    if name in _HOME:
        return getattr(import_module(f"milrec.{_HOME[name]}"), name)
    if name == "figures":
        return import_module("milrec.notebooks.figures")
    if name == "torch":  # not in __all__: after `from milrec import *`, `torch` is still PyTorch
        return import_module("milrec.torch")
    raise AttributeError(f"module 'milrec' has no attribute '{name}'")
