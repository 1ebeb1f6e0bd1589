"""Lists × metrics → Evaluation, a plain value that becomes JSON.

Every user with held-out items gets a list of 200 items, and every measure is read off these lists in one pass.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from milrec.data.interactions import Interactions, Truth
from milrec.data.splits import Audience, HeldOut
from milrec.errors import DataError
from milrec.interrupts import pause_point
from milrec.kernels.ranking import count_resampled, counts_below, found_in_lists, ordered_shares
from milrec.kernels.threads import ahead
from milrec.lists.scores import Lists, Scorer, dial_shift, leave_out, lists_for
from milrec.metrics import ranking, tail
from milrec.metrics.names import LIST_LENGTH
from milrec.models.contract import ROWS, Model
from milrec.training.settings import FitSettings

CUTOFFS = {"recall": (1, 5, 10, 20, 50, 100), "ndcg": (10, 20, 100), "novelty_ndcg": (20, 100)}
SHORT_LIST = 20


@dataclass(frozen=True)
class Evaluation:
    """How good a model's lists are, and what is in them."""

    measures: dict[str, float]  # mean over users; NaN where undefined
    intervals: dict[str, tuple[float, float]]  # 95 % bootstrap interval of each mean
    undefined: dict[str, int]  # users without a value
    n_users: int
    dropped_targets: int
    interval_cuts: tuple[int, int]
    top_shares: dict[str, float]  # percent of the top-200 in the short, medium and long tail
    rank_evolution: dict[str, list[float]]  # share of users with an item of the interval at each place
    preference_distribution: list[float] | None  # percent per threshold interval; None for a model without preferences
    per_user: dict[str, npt.NDArray[np.float64]] = field(repr=False)
    dial: float = 0.0  # that the lists were re-ranked with

    def as_json(self) -> dict[str, Any]:
        """Flat, with plain numbers; undefined is null."""
        return {
            **{name: _number(value) for name, value in self.measures.items()},
            **({"dial": self.dial} if self.dial else {}),
            "n_users": self.n_users,
            "dropped_targets": self.dropped_targets,
            f"top_{LIST_LENGTH}_share": self.top_shares,
            "interval_cuts": list(self.interval_cuts),
            "preference_distribution": self.preference_distribution,
            "rank_evolution": self.rank_evolution,
            "intervals": {name: [_number(low), _number(high)] for name, (low, high) in self.intervals.items()},
            "undefined": self.undefined,
        }


def evaluate(
    model: Model,
    settings: FitSettings,
    train: Interactions,
    held_out: HeldOut,
    report: Callable[[int, int], None] | None = None,
    dial: float = 0.0,
) -> Evaluation:
    """Judge a model on a held-out part; `report` is called with the number of users done, and of all users.

    The lists are re-ranked by `dial`; the preference distribution is the model's own.
    """
    users = np.flatnonzero(np.diff(held_out.targets.indptr))
    if len(users) == 0:
        raise DataError("no user has held-out items; the data is too small for this split")
    audience = held_out.audience.part(users)
    targets, rejected_targets = held_out.targets[users], held_out.rejected_targets[users]
    popularity = train.popularity()
    tally = _Tally(popularity, settings.preference)
    truth = train.truth if audience.rows is not None else None
    order = np.full(len(users), np.nan)

    def look(block: slice, logits: npt.NDArray[np.float32]) -> None:
        tally.add_preferences(logits)
        own, lower = (pairs.indptr[block.start : block.stop + 1] for pairs in (targets, rejected_targets))
        ordered_shares(logits, own, targets.indices, lower, rejected_targets.indices, order[block])

    shift = dial_shift(dial, tail.log_popularity(popularity))
    for lists in ahead(lists_for(Scorer(model, settings, train), audience, LIST_LENGTH, look, shift), 1):
        tally.add_lists(lists.items, _hits(lists, targets))
        tally.add_rejected(lists, rejected_targets)
        if truth is not None:
            tally.add_truth(lists, truth, audience)
        if report is not None:
            report(lists.users.stop, len(users))
        pause_point("evaluate")
    tally.add_order(order)
    return replace(tally.result(len(users), held_out.dropped_targets), dial=float(dial))


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
            values.append(_ranking(measure, _hits(lists, targets), novelty, cutoff))
        return float(np.nanmean(np.concatenate(values)))

    return measured


class _Tally:
    """Sums over blocks of users."""

    def __init__(self, popularity: npt.NDArray[np.int64], decoder: str | None) -> None:
        self.popularity, self.decoder = popularity, decoder  # no decoder: the model has no preferences
        self.novelty = ranking.novelties(popularity)
        self.tail_intervals = tail.tail_intervals(popularity)
        self.per_user: dict[str, list[npt.NDArray[np.float64]]] = {}
        self.exposure = {n: np.zeros(len(popularity), dtype=np.int64) for n in (SHORT_LIST, LIST_LENGTH)}
        self.by_rank = np.zeros((3, min(LIST_LENGTH, len(popularity))), dtype=np.int64)
        self.preferences = np.zeros(len(tail.PREFERENCE_THRESHOLDS) - 1, dtype=np.int64)
        self._lock = threading.Lock()

    def add_lists(self, lists: npt.NDArray[np.int64], hits: ranking.Hits) -> None:
        for measure, cutoffs in CUTOFFS.items():
            for cutoff in cutoffs:
                self._note(f"{measure}@{cutoff}", _ranking(measure, hits, self.novelty, cutoff))
        self._note("novelty_ndcg_maximum@100", ranking.novelty_ndcg(hits, self.novelty, 100, ideal="maximum"))
        self._note("recall_of_all@20", ranking.recall_of_all(hits, 20))
        for n in self.exposure:
            self.exposure[n] += tail.exposure(lists[:, :n], len(self.popularity))
            self._note(f"mean_popularity@{n}", tail.list_popularity(lists[:, :n], self.popularity))
        shares = 100 * tail.list_shares(lists, self.tail_intervals)  # (n_users, 3)
        for interval in tail.TailInterval:
            self._note(f"{interval.name.lower()}_share@{LIST_LENGTH}", shares[:, interval])
        self.by_rank += tail.interval_counts(lists, self.tail_intervals)

    def add_rejected(self, lists: Lists, rejected: csr_array) -> None:
        """Share of the short list that the user rejected in held-out data, for users with such rejections."""
        hits = _hits(replace(lists, items=lists.items[:, :SHORT_LIST]), rejected)
        length = np.maximum((hits.top_items >= 0).sum(axis=1), 1)
        share = np.where(hits.n_targets > 0, hits.found.sum(axis=1) / length, np.nan)
        self._note(f"rejected_share@{SHORT_LIST}", share)

    def add_order(self, shares: npt.NDArray[np.float64]) -> None:
        """How often an adopted item is above a rejected one, for users with both in their held-out data."""
        self._note("auc_rejected", shares)

    def add_preferences(self, logits: npt.NDArray[np.float32]) -> None:
        if self.decoder is None:
            return
        counts = _preference_counts(logits, linear=self.decoder == "linear")
        with self._lock:  # several threads look at blocks
            self.preferences += counts

    def add_truth(self, lists: Lists, truth: Truth, audience: Audience) -> None:
        """How well lists match the true preferences of a simulation, for items that could be listed."""
        assert audience.rows is not None
        for start in range(lists.users.start, lists.users.stop, ROWS):
            block = slice(start, min(start + ROWS, lists.users.stop))
            true = truth.preference(audience.rows[block])  # (n_users, n_items)
            hidden = np.zeros(true.shape, dtype=np.float32)
            leave_out(hidden, audience, block)
            true[np.isneginf(hidden)] = 0.0
            items = lists.items[start - lists.users.start : block.stop - lists.users.start]
            listed = np.where(items >= 0, np.take_along_axis(true, np.maximum(items, 0), axis=1), 0.0)
            n = items.shape[1]
            ideal = -np.sort(np.partition(-true, n - 1, axis=1)[:, :n], axis=1)
            for cutoff in (20, 100):
                self._note(f"true_ndcg@{cutoff}", ranking.graded_ndcg(listed, ideal, cutoff))
            length = np.maximum((items[:, :SHORT_LIST] >= 0).sum(axis=1), 1)
            self._note(f"true_preference@{SHORT_LIST}", listed[:, :SHORT_LIST].sum(axis=1) / length)

    def result(self, n_users: int, dropped_targets: int) -> Evaluation:
        per_user = {name: np.concatenate(values) for name, values in self.per_user.items()}
        per_user = {name: values for name, values in per_user.items() if not np.isnan(values).all()}
        table = np.stack(list(per_user.values()), axis=1)  # (n_users, n_measures)
        low, high = ranking.bootstrap_interval(table, np.random.default_rng(0), resample=count_resampled)
        measures = dict(zip(per_user, np.nanmean(table, axis=0).tolist(), strict=True))
        for n, exposure in self.exposure.items():
            measures[f"coverage@{n}"] = float((exposure > 0).mean())
            measures[f"exposure_gini@{n}"] = tail.gini(exposure)
        names = [interval.name.lower() for interval in tail.TailInterval]
        cells = n_users * len(self.popularity)
        distribution = None if self.decoder is None else (100 * self.preferences / cells).tolist()
        places = np.maximum(self.by_rank.sum(axis=0), 1)
        return Evaluation(
            measures=measures,
            intervals=dict(zip(per_user, zip(low.tolist(), high.tolist(), strict=True), strict=True)),
            undefined={
                name: int(np.isnan(values).sum()) for name, values in per_user.items() if np.isnan(values).any()
            },
            n_users=n_users,
            dropped_targets=dropped_targets,
            interval_cuts=tail.interval_cuts(self.popularity),
            top_shares={
                name: float(100 * total / max(self.by_rank.sum(), 1))
                for name, total in zip(names, self.by_rank.sum(axis=1), strict=True)
            },
            rank_evolution=dict(zip(names, (self.by_rank / places).tolist(), strict=True)),
            preference_distribution=distribution,
            per_user=per_user,
        )

    def _note(self, name: str, values: npt.NDArray[np.float64]) -> None:
        self.per_user.setdefault(name, []).append(values)


def _ranking(
    measure: str, hits: ranking.Hits, novelty: npt.NDArray[np.float64], cutoff: int
) -> npt.NDArray[np.float64]:
    if measure == "recall":
        return ranking.recall(hits, cutoff)
    if measure == "ndcg":
        return ranking.ndcg(hits, cutoff)
    return ranking.novelty_ndcg(hits, novelty, cutoff)


def _hits(lists: Lists, targets: csr_array) -> ranking.Hits:
    indptr = targets.indptr[lists.users.start : lists.users.stop + 1].astype(np.int64)
    items = targets.indices[indptr[0] : indptr[-1]].astype(np.int64)
    indptr -= indptr[0]
    return ranking.Hits(lists.items, found_in_lists(lists.items, indptr, items, targets.shape[1]), indptr, items)


def _preference_counts(logits: npt.NDArray[np.float32], linear: bool) -> npt.NDArray[np.int64]:
    """How many preferences lie in each interval of table 6, over all users.

    They are read off the logits, as σ is monotone; with a linear decoder, logits are preferences.
    """
    inner = np.array(tail.PREFERENCE_THRESHOLDS[1:-1])
    bounds = inner if linear else np.log(inner / (1 - inner))
    below = counts_below(logits, bounds.astype(np.float32))  # (5,)
    return np.diff(np.concatenate([[0], below, [logits.size]]))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
