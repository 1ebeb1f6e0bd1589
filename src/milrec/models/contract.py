"""What a model owes the rest of milrec."""

from __future__ import annotations

from milrec.models.autoencoders import CollaborativeAutoencoder, DenoisingAutoencoder, VariationalAutoencoder
from milrec.models.factorization import MatrixFactorization, WeightedFactorization
from milrec.models.factors import Factors
from milrec.models.item_to_item import ItemToItem
from milrec.models.popularity import Popularity
from milrec.models.settings import (
    AutoencoderSettings,
    CollaborativeSettings,
    EaseSettings,
    FactorizationSettings,
    ModelSettings,
    SlimSettings,
    VariationalSettings,
    WmfSettings,
)

Autoencoder = DenoisingAutoencoder | CollaborativeAutoencoder | VariationalAutoencoder
Baseline = WeightedFactorization | ItemToItem | Popularity  # fitted without
Model = Factors | Baseline


def build_model(settings: ModelSettings, n_users: int, n_items: int) -> Model:
    """A model of the right kind and shape, its weights still zero."""
    if isinstance(settings, AutoencoderSettings):
        return DenoisingAutoencoder(settings, n_items)
    if isinstance(settings, CollaborativeSettings):
        return CollaborativeAutoencoder(settings, n_users, n_items)
    if isinstance(settings, VariationalSettings):
        return VariationalAutoencoder(settings, n_items)
    if isinstance(settings, FactorizationSettings):
        return MatrixFactorization(settings, n_users, n_items)
    if isinstance(settings, WmfSettings):
        return WeightedFactorization(settings, n_users, n_items)
    if isinstance(settings, EaseSettings | SlimSettings):
        return ItemToItem(settings, n_items)
    return Popularity(n_items)
