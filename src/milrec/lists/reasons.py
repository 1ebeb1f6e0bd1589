"""Reasons: how much each adopted item of a user contributes to the logit of a listed one.

Where the logit is a sum over adopted items, the parts are exact: v_i·(W_i·W'_j) for an autoencoder with a linear
encoder, the weight from i to j for EASE and SLIM. Elsewhere a part is what the logit loses without the item
(leave-one-out); for matrix factorization, users are folded in from what they adopted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from milrec.kernels.sparse import Rows
from milrec.lists.query import Asked
from milrec.lists.scores import Scorer
from milrec.models.contract import Parts
from milrec.models.inputs import Users


def why_none(scorer: Scorer, asked: Asked) -> str | None:
    """Why reasons cannot be given, if they cannot."""
    most = scorer.model.most_explained
    if most is None or len(asked.adopted) <= most:
        return None
    return f"reasons: this model gives them for at most {most} adopted items, not for {len(asked.adopted)}"


def parts_of_logits(scorer: Scorer, asked: Asked, items: npt.NDArray[np.int64]) -> Parts:
    """What each adopted item adds to the logit of each of these items."""
    if not len(asked.adopted) or not len(items):
        return np.zeros((len(asked.adopted), len(items)))
    numbers = None if asked.number is None else np.array([asked.number])
    user = Users(Rows.stacked([asked.adopted], [asked.weights]), Rows.stacked([asked.rejected]), numbers)
    return scorer.model.parts(user, items, scorer.encode_new)


def strongest(parts: Parts, n: int) -> list[list[tuple[int, float]]]:
    """For each listed item, the adopted items with the n largest parts above 0, by their places, and these parts."""
    order = np.argsort(-parts, axis=0, kind="stable")[:n]  # (n, n_listed)
    largest = np.take_along_axis(parts, order, axis=0)
    pairs = (
        zip(places, values, strict=True) for places, values in zip(order.T.tolist(), largest.T.tolist(), strict=True)
    )
    return [[(place, value) for place, value in one if value > 0] for one in pairs]
