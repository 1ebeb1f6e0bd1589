"""Whether enough users can be judged: a measure is a mean over users, and of a few users it says little."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from milrec.errors import cut

ENOUGH = 100  # users: a mean of values between 0 and 1 is then within ±0.1 of the truth, 19 times in 20
_HARDLY_ANY = 10  # users: too few to choose a step by, or to learn probabilities from
_SMALLEST_SHARE = 0.1  # of the users: with fewer, the others may well be different


def uncertainty(n_users: int) -> float:
    """Half the 95 % interval of a mean of values between 0 and 1, at the worst: 1.96 · ½ / √n."""
    return 0.98 / sqrt(n_users)


def too_few(part: str, judged: int, n_users: int) -> str | None:
    """What is wrong with a held-out part in which these users have something to find; None if nothing is."""
    if judged == 0:
        return f"no user has a held-out {part} item, so no model can be measured on the {part} part"
    one, everybody = judged == 1, judged == n_users
    users = "user" if one and everybody else "users"
    of_all = "" if everybody else f" of {n_users:,}"
    found = f"only {judged:,}{of_all} {users} {'has' if one else 'have'} a held-out {part} item"
    if judged < ENOUGH:
        return f"{found}, so measures may be off by ±{uncertainty(judged):.2f}"
    if judged < _SMALLEST_SHARE * n_users:
        return f"{found}, so measures say little about the others"
    return None


def too_few_to_choose_by(judged: int) -> str | None:
    """What these users with something to find in validation mean for a fit; None if there are enough for one."""
    if judged == 0:
        return "no user has a held-out validation item, so a fit cannot stop early and has no probabilities"
    if judged < _HARDLY_ANY:
        users = "user has" if judged == 1 else "users have"
        return f"only {judged} {users} a held-out validation item, so early stopping and probabilities are unreliable"
    return None


def held_out_faults(test: Mapping[str, int], validation: Mapping[str, int] | None) -> list[str]:
    """What is wrong with the held-out parts of a split, by their counts; None: no validation part is wanted."""
    found = [too_few("test", test["users"], test["users_in_part"])]
    if validation is not None:
        found.append(too_few_to_choose_by(validation["users"]))
        if found == [None, None]:
            found.append(too_few("validation", validation["users"], validation["users_in_part"]))
    return [fault for fault in found if fault is not None]


def or_over_interactions(judged: int, n_adopted: npt.NDArray[np.integer[Any]]) -> str:
    """The cure by the other protocol, where it judges more users; `n_adopted`: items of each user."""
    others = round(float((1 - 0.9**n_adopted).sum()))  # of n items, each is held out for test one time in ten
    if others <= judged:
        return ""
    return f", or split over interactions, which judges about {others:,} of {len(n_adopted):,} users"


def too_small(name: str, n_users: int, n_adopted: int) -> str | None:
    """What is wrong with a data set that cannot be split well; None if nothing is. A tenth of the pairs is for test."""
    judged = min(n_users, n_adopted // 10)
    if judged >= ENOUGH:
        return None
    most = f"at most {judged:,} of {n_users:,} users" if judged else "none of its users"
    return (
        f"'{cut(name)}' is small: after a split, {most} can be judged, "
        f"and {ENOUGH} are needed for measures within ±{uncertainty(ENOUGH):.1f}"
    )
