"""Groups of users: those with the fewest items and those with the most, and how models compare there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from milrec.data.splits import HeldOut
from milrec.metrics.comparison import compare
from milrec.results import Comparison, UserGroup

MEASURE = "ndcg@100"  # by which models are compared in a group
_LEAST_USERS = 30  # with fewer in a group, a comparison says next to nothing

Values = npt.NDArray[np.float64]


def user_groups(part: HeldOut, per_user: Mapping[str, Values]) -> tuple[UserGroup, ...]:
    """Few and many items: a third of the users each, or more, since all with as many items are in the same group.

    `per_user`: the measure for each seed and each user with held-out items, in order, under each model.
    """
    judged = np.flatnonzero(np.diff(part.targets.indptr))
    n_items = np.diff(part.audience.adopted.indptr)[judged]
    if len(per_user) < 2 or len(n_items) < 3 * _LEAST_USERS:
        return ()
    few, many = np.quantile(n_items, [1 / 3, 2 / 3])
    if few >= many:
        return ()
    return (_group("few", n_items, n_items <= few, per_user), _group("many", n_items, n_items >= many, per_user))


def _group(
    name: Literal["few", "many"],
    n_items: npt.NDArray[np.int32],
    inside: npt.NDArray[np.bool_],
    per_user: Mapping[str, Values],
) -> UserGroup:
    by_seed = {model: columns[:, inside] for model, columns in per_user.items()}  # (n_seeds, n_users)
    values = {model: columns.mean(axis=0, dtype=np.float64) for model, columns in by_seed.items()}
    return UserGroup(
        name=name,
        least=int(n_items[inside].min()),
        most=int(n_items[inside].max()),
        users=int(inside.sum()),
        measure=MEASURE,
        means={model: float(column.mean()) for model, column in values.items()},
        seed_means={
            model: tuple(columns.mean(axis=1, dtype=np.float64).tolist()) for model, columns in by_seed.items()
        },
        comparisons=tuple(Comparison(**vars(one)) for one in compare(values)),
    )
