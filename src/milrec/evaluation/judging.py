"""Lists × metrics → Evaluation.

Every user with held-out items gets a list of 200 items, and every measure is read off these lists in one pass, a shard
of users at a time: what is kept of each user is these measures, and shards can be judged anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from milrec.data.interactions import Interactions
from milrec.data.roles import of_rejections
from milrec.data.splits import HeldOut, Part, Split
from milrec.errors import NO_PROBABILITIES, DataError, SettingsError
from milrec.evaluation.evaluation import Evaluation
from milrec.evaluation.pairs import PairCounts
from milrec.evaluation.tally import SHORT_LIST, Sums, Tally, hits_of
from milrec.interrupts import pause_point
from milrec.kernels.ranking import ordered_shares
from milrec.kernels.threads import ahead
from milrec.lists.dislikes import NO_CHANCES, NOT_COMBINED, Dislikes, SparingOrder, checked_dislikes
from milrec.lists.scores import Order, Scorer, dial_shift, lists_for
from milrec.lists.shards import shards
from milrec.lists.tail_order import TailOrder
from milrec.metrics import tail
from milrec.metrics.names import LIST_LENGTH
from milrec.metrics.reliability import ReliabilityBin, calibration_error, reliability
from milrec.models.contract import Model
from milrec.probability.aims import Aim, Price
from milrec.probability.calibration import Calibration, Chances
from milrec.training.artifact import Fitted
from milrec.training.settings import FitSettings


@dataclass(frozen=True)
class Judged:
    """How lists are made for an evaluation: as the model ranks items, with a dial, or sparing users their dislikes."""

    chances: Chances | None = None  # None: the model has no probabilities
    aim: Aim | None = None
    dial: float = 0.0
    dislikes: Dislikes | None = None

    def price(self) -> Price | None:
        """What the lists aim at, for the short list; an error if the model has no probabilities to do so."""
        if self.dislikes is not None and (self.aim is not None or self.dial):
            raise SettingsError(NOT_COMBINED)
        if self.dislikes is not None and self.chances is None:
            raise SettingsError(NO_CHANCES)
        if self.aim is None:
            return None
        prices = None if self.chances is None else self.chances.calibration.prices
        if self.dial:
            raise SettingsError("give either the old dial or a share of the tail, not both")
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
    return Judge(model, settings, train, held_out, judged).evaluation(report)


class Judge:
    """Judges a model a shard of users at a time; the sums of all shards make the evaluation."""

    def __init__(
        self, model: Model, settings: FitSettings, train: Interactions, held_out: HeldOut, judged: Judged
    ) -> None:
        self.users = np.flatnonzero(np.diff(held_out.targets.indptr))
        if len(self.users) == 0:
            raise DataError("no user has held-out items; the data is too small for this split")
        self.price = judged.price()
        self.held_out, self.judged, self.truth = held_out, judged, train.truth
        self.popularity, self.preference = train.popularity(), settings.preference
        self.scorer = Scorer(model, settings, train)

    @property
    def n_users(self) -> int:
        return len(self.users)

    def evaluation(self, report: Callable[[int, int], None] | None) -> Evaluation:
        """All shards, one after another; `report` is called with the number of users done, and of all users."""

        def told(before: int, done: int) -> None:
            if report is not None:
                report(before + done, self.n_users)

        return self.result(self.sums(shard, partial(told, shard.start)) for shard in shards(self.n_users))

    def sums(self, shard: range, report: Callable[[int], None]) -> Sums:
        """What the lists of some of the users add to the sums; `report` is called with the number of users done."""
        users = self.users[shard.start : shard.stop]
        part = replace(
            self.held_out,
            audience=self.held_out.audience.part(users),
            targets=self.held_out.targets[users],
            rejected_targets=self.held_out.rejected_targets[users],
        )
        tally = self._tally()
        look = _Look(tally, part, self._counts())
        truth = self.truth if part.audience.rows is not None else None
        shift = dial_shift(self.judged.dial, tail.log_popularity(self.popularity))
        for lists in ahead(lists_for(self.scorer, part.audience, LIST_LENGTH, look, shift, self._order()), 1):
            tally.add_lists(lists.items, hits_of(lists, part.targets))
            tally.add_rejected(lists, part.rejected_targets)
            if truth is not None:
                tally.add_truth(lists, truth, part.audience)
            report(lists.users.stop)
            pause_point("evaluate")
        tally.add_order(look.order)
        return tally.sums() | ({} if look.counts is None else look.counts.sums())

    def result(self, several: Iterable[Sums]) -> Evaluation:
        """The evaluation, from the sums of all shards in their order."""
        tally, counts = self._tally(), self._counts()
        for sums in several:
            tally.add_sums(sums)
            if counts is not None:
                counts.add_sums(sums)
        found = tally.result(self.n_users, self.held_out.dropped_targets)
        if counts is not None:
            found = _with_reliability(found, counts)
        cost = None if self.judged.dislikes is None else self.judged.dislikes.cost
        return replace(found, dial=float(self.judged.dial), price=self.price, dislike_cost=cost)

    def _tally(self) -> Tally:
        return Tally(self.popularity, self.preference)

    def _counts(self) -> PairCounts | None:
        return None if self.judged.chances is None else PairCounts.of(self.judged.chances)

    def _order(self) -> Order | None:
        if self.judged.chances is None:
            return None
        if self.judged.dislikes is not None:
            return SparingOrder(self.judged.chances, self.judged.dislikes)
        if self.price is None:
            return None
        return TailOrder(tail.tail_classes(self.popularity), self.judged.chances, self.price.bonuses)


def judge_of(fitted: Fitted, split: Split, on: Part, judged: Judged) -> Judge:
    """Of a fitted model on the split it was fitted to. The training part still decides what is popular after a refit,
    so that a model and its refit can be compared.
    """
    if not isinstance(split, Split):
        raise DataError("a model is judged on a split: milrec.split_interactions(data, seed=0)")
    if judged.dislikes is not None:
        checked_dislikes(judged.dislikes).refuse_others(split.train.items["id"])
        _learned_from(judged.dislikes.fitted, split, on)
    own = _learned_from(fitted, split, on)
    train = in_roles_of(fitted, split).train
    return Judge(fitted.model, fitted.settings, train, own.part(on), judged)


def _learned_from(fitted: Fitted, split: Split, on: Part) -> Split:
    """The split as the model has learned from it, which must be this one, without what is judged."""
    own = in_roles_of(fitted, split)
    name = "the model of dislikes" if fitted.predicts_rejections else "the model"
    if fitted.facts.get("refitted"):
        if on == "validation":
            raise DataError(f"{name} is refitted and has learned from validation too; judge it on test")
        own = own.joined()
    if own.train.fingerprint() != fitted.facts["train_fingerprint"]:
        raise DataError(f"{name} was fitted on another split; evaluate it on that one, or fit it on this one")
    return own


def in_roles_of(fitted: Fitted, split: Split) -> Split:
    """The split, with rejections in place of adoptions for a model that predicts these."""
    return of_rejections(split) if fitted.predicts_rejections and not split.of_rejections else split


class _Look:
    """What is read off the logits of all items, whatever is listed."""

    def __init__(self, tally: Tally, part: HeldOut, counts: PairCounts | None) -> None:
        self.tally, self.part, self.counts = tally, part, counts
        self.order = np.full(part.audience.n_users, np.nan)  # how often an adopted item is above a rejected one

    def __call__(self, block: slice, logits: npt.NDArray[np.float32]) -> None:
        targets, rejected = self.part.targets, self.part.rejected_targets
        self.tally.add_preferences(logits)
        own, lower = (pairs.indptr[block.start : block.stop + 1] for pairs in (targets, rejected))
        ordered_shares(logits, own, targets.indices, lower, rejected.indices, self.order[block])
        if self.counts is not None:
            self.counts.add(logits, self.part.audience, targets, block)


def _with_reliability(found: Evaluation, counts: PairCounts) -> Evaluation:
    calibration = counts.chances.calibration
    bins, by_link = _bins(counts, calibration), _bins(counts, calibration.by_one_factor())
    error = {"calibration_error": calibration_error(bins)}
    return replace(found, reliability=bins, link_reliability=by_link, measures={**found.measures, **error})


def _bins(counts: PairCounts, calibration: Calibration | None) -> tuple[ReliabilityBin, ...]:
    if calibration is None:
        return ()
    probabilities = np.exp(calibration.ln_probability(counts.centres))
    return reliability(probabilities, counts.pairs, counts.held_out)
