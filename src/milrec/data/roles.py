"""Roles exchanged: rejections are to be predicted, from what users rejected and adopted."""

from __future__ import annotations

from dataclasses import replace

from milrec.data.interactions import Interactions
from milrec.data.pairs import added
from milrec.data.splits import Audience, HeldOut, Split
from milrec.errors import DataError

REJECTIONS = "rejections"  # what a model predicts that was fitted to such a split, in its facts


def of_rejections(split: Split) -> Split:
    """The same split, with adopted and rejected pairs exchanged: a fit to it learns who will reject what."""
    if split.protocol == "users":
        raise DataError("a split over users holds out no rejections to predict; split over interactions")
    if not split.train.rejected.nnz:
        raise DataError("the split has no rejected pairs to learn from; prepare the data with `reject_max`")
    validation, test = _held_out(split.validation), _held_out(split.test)
    return replace(split, train=exchanged(split.train), validation=validation, test=test, of_rejections=True)


def exchanged(data: Interactions) -> Interactions:
    """What was rejected takes the place of what was adopted. The truth of a simulation is about adoptions."""
    return replace(data, adopted=data.rejected, rejected=data.adopted, truth=None)


def _held_out(part: HeldOut) -> HeldOut:
    given = part.audience
    has = added(given.removed, given.rejected)  # nothing that a user adopted or rejected is to be predicted
    audience = Audience(given.rejected, given.adopted, has, given.rows)
    return HeldOut(audience, part.rejected_targets, part.targets, dropped_targets=0)
