"""Lists × metrics → Evaluation.

Every user with held-out items gets a list of 200 items, and every measure is read off these lists in one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from milrec.data.interactions import Interactions
from milrec.data.splits import HeldOut
from milrec.errors import NO_PROBABILITIES, DataError, SettingsError
from milrec.evaluation.evaluation import Evaluation
from milrec.evaluation.pairs import PairCounts
from milrec.evaluation.tally import SHORT_LIST, Tally, hits_of
from milrec.interrupts import pause_point
from milrec.kernels.ranking import ordered_shares
from milrec.kernels.threads import ahead
from milrec.lists.scores import Scorer, dial_shift, lists_for
from milrec.lists.tail_order import TailOrder
from milrec.metrics import tail
from milrec.metrics.names import LIST_LENGTH
from milrec.metrics.reliability import ReliabilityBin, calibration_error, reliability
from milrec.models.contract import Model
from milrec.probability.aims import Aim, Price
from milrec.probability.calibration import Calibration, Chances
from milrec.training.settings import FitSettings


@dataclass(frozen=True)
class Judged:
    """How lists are made for an evaluation: as the model ranks items, or with a dial."""

    chances: Chances | None = None  # None: the model has no probabilities
    aim: Aim | None = None
    dial: float = 0.0

    def price(self) -> Price | None:
        """What the lists aim at, for the short list; an error if the model has no probabilities to do so."""
        if self.aim is None:
            return None
        prices = None if self.chances is None else self.chances.calibration.prices
        if self.dial:
            raise SettingsError("use the old dial or a share of the tail, not both")
        if prices is None:
            raise SettingsError(NO_PROBABILITIES)
        return self.aim.price(prices, SHORT_LIST)


def evaluate(
    model: Model,
    settings: FitSettings,
    train: Interactions,
    held_out: HeldOut,
    report: Callable[[int, int], None] | None = None,
    judged: Judged = Judged(),  # noqa: B008
) -> Evaluation:
    """Judge a model on a held-out part; `report` is called with the number of users done, and of all users.

    The preference distribution and the reliability of the probabilities are the model's own, whatever the lists are.
    """
    users = np.flatnonzero(np.diff(held_out.targets.indptr))
    if len(users) == 0:
        raise DataError("no user has held-out items; the data is too small for this split")
    price = judged.price()
    part = replace(
        held_out,
        audience=held_out.audience.part(users),
        targets=held_out.targets[users],
        rejected_targets=held_out.rejected_targets[users],
    )
    popularity = train.popularity()
    tally, scorer = Tally(popularity, settings.preference), Scorer(model, settings, train)
    truth = train.truth if part.audience.rows is not None else None
    look = _Look(tally, part, judged.chances)
    shift = dial_shift(judged.dial, tail.log_popularity(popularity))
    order = None if price is None or judged.chances is None else _order(popularity, judged.chances, price)
    for lists in ahead(lists_for(scorer, part.audience, LIST_LENGTH, look, shift, order), 1):
        tally.add_lists(lists.items, hits_of(lists, part.targets))
        tally.add_rejected(lists, part.rejected_targets)
        if truth is not None:
            tally.add_truth(lists, truth, part.audience)
        if report is not None:
            report(lists.users.stop, len(users))
        pause_point("evaluate")
    tally.add_order(look.order)
    found = tally.result(len(users), held_out.dropped_targets)
    return replace(look.with_reliability(found), dial=float(judged.dial), price=price)


def _order(popularity: npt.NDArray[np.int64], chances: Chances, price: Price) -> TailOrder:
    return TailOrder(tail.tail_classes(popularity), chances, price.bonuses)


class _Look:
    """What is read off the logits of all items, whatever is listed."""

    def __init__(self, tally: Tally, part: HeldOut, chances: Chances | None) -> None:
        self.tally, self.part = tally, part
        self.order = np.full(part.audience.n_users, np.nan)  # how often an adopted item is above a rejected one
        self.counts: PairCounts | None = None
        if chances is not None:
            self.counts = PairCounts.of(chances)

    def __call__(self, block: slice, logits: npt.NDArray[np.float32]) -> None:
        targets, rejected = self.part.targets, self.part.rejected_targets
        self.tally.add_preferences(logits)
        own, lower = (pairs.indptr[block.start : block.stop + 1] for pairs in (targets, rejected))
        ordered_shares(logits, own, targets.indices, lower, rejected.indices, self.order[block])
        if self.counts is not None:
            self.counts.add(logits, self.part.audience, targets, block)

    def with_reliability(self, found: Evaluation) -> Evaluation:
        if self.counts is None:
            return found
        calibration = self.counts.chances.calibration
        bins, by_link = self._bins(calibration), self._bins(calibration.by_one_factor())
        error = {"calibration_error": calibration_error(bins)}
        return replace(found, reliability=bins, link_reliability=by_link, measures={**found.measures, **error})

    def _bins(self, calibration: Calibration | None) -> tuple[ReliabilityBin, ...]:
        if calibration is None or self.counts is None:
            return ()
        probabilities = np.exp(calibration.ln_probability(self.counts.centres))
        return reliability(probabilities, self.counts.pairs, self.counts.held_out)
