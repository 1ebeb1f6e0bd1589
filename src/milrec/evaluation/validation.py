"""The measure that a fit is validated by."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from milrec.data.interactions import Interactions
from milrec.data.splits import HeldOut
from milrec.evaluation.tally import hits_of, ranking_values
from milrec.lists.scores import Scorer, lists_for
from milrec.metrics import ranking
from milrec.models.contract import Model
from milrec.training.settings import FitSettings


def validation_measure(
    name: str, settings: FitSettings, train: Interactions, held_out: HeldOut
) -> Callable[[Model], float]:
    """A function that gives the mean of one ranking measure, and computes nothing else."""
    measure, length = name.split("@")
    cutoff = int(length)
    users = np.flatnonzero(np.diff(held_out.targets.indptr))
    most = settings.validation_users
    if most is not None and len(users) > most:
        users = np.sort(np.random.default_rng(0).choice(users, most, replace=False))
    audience, targets = held_out.audience.part(users), held_out.targets[users]
    novelty = ranking.novelties(train.popularity())

    def measured(model: Model) -> float:
        values = []
        for lists in lists_for(Scorer(model, settings, train), audience, cutoff):
            values.append(ranking_values(measure, hits_of(lists, targets), novelty, cutoff))
        return float(np.nanmean(np.concatenate(values)))

    return measured
