"""milrec: a recommender for implicit feedback that does not mistake missing for disliked."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milrec.asking import Query
    from milrec.datasets import read
    from milrec.errors import MilrecError
    from milrec.evaluation import Evaluation
    from milrec.interactions import Interactions
    from milrec.losses import MissingInformationLoss
    from milrec.presets import settings_for
    from milrec.recommender import Recommender, fit, refit
    from milrec.rules import Rule
    from milrec.simulation import Simulation, simulate
    from milrec.splitting import Split, split_given, split_interactions, split_users

__all__ = [
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
    "fit",
    "load",
    "read",
    "refit",
    "settings_for",
    "simulate",
    "split_given",
    "split_interactions",
    "split_users",
]

__version__: str

_HOME = {
    "Evaluation": "evaluation",
    "Interactions": "interactions",
    "MilrecError": "errors",
    "MissingInformationLoss": "losses",
    "Query": "asking",
    "Recommender": "recommender",
    "Rule": "rules",
    "Simulation": "simulation",
    "Split": "splitting",
    "fit": "recommender",
    "read": "datasets",
    "refit": "recommender",
    "settings_for": "presets",
    "simulate": "simulation",
    "split_given": "splitting",
    "split_interactions": "splitting",
    "split_users": "splitting",
}


def load(path: str) -> "Recommender":
    """Open a model folder; it is checked whole before anything in it is used."""
    from milrec.recommender import Recommender

    return Recommender.load(path)


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Names are fetched when they are used, so that `import milrec` does not wait for torch."""
    if name == "__version__":
        from importlib.metadata import version

        return version("milrec")
    if name in _HOME:
        return getattr(import_module(f"milrec.{_HOME[name]}"), name)
    raise AttributeError(f"module 'milrec' has no attribute '{name}'")
