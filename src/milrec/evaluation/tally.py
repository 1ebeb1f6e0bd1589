"""Sums over blocks of users, from which an evaluation is made."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from milrec.data.interactions import Truth
from milrec.data.splits import Audience
from milrec.evaluation.evaluation import Evaluation
from milrec.kernels.ranking import count_resampled, counts_below, found_in_lists
from milrec.lists.scores import Lists, leave_out
from milrec.metrics import ranking, tail
from milrec.metrics.names import LIST_LENGTH
from milrec.models.contract import ROWS

CUTOFFS = {"recall": (1, 5, 10, 20, 50, 100), "ndcg": (10, 20, 100), "novelty_ndcg": (20, 100)}
FIRST_PLACES, SHORT_LIST = 5, 20
_USER = "user "  # what begins the name of a measure of single users, in sums
Sums = dict[str, npt.NDArray[Any]]  # whole numbers that are added up, and values of single users


class Tally:
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
                self._note(f"{measure}@{cutoff}", ranking_values(measure, hits, self.novelty, cutoff))
        self._note("novelty_ndcg_maximum@100", ranking.novelty_ndcg(hits, self.novelty, 100, ideal="maximum"))
        self._note("recall_of_all@20", ranking.recall_of_all(hits, 20))
        for n in self.exposure:
            self.exposure[n] += tail.exposure(lists[:, :n], len(self.popularity))
            self._note(f"mean_popularity@{n}", tail.list_popularity(lists[:, :n], self.popularity))
            shares = 100 * tail.list_shares(lists[:, :n], self.tail_intervals)  # (n_users, 3)
            for interval in tail.TailInterval:
                self._note(f"{interval.name.lower()}_share@{n}", shares[:, interval])
        single = tail.list_shares(lists[:, :SHORT_LIST], (self.popularity == 1).astype(np.int8))
        self._note(f"single_adopter_share@{SHORT_LIST}", 100 * single[:, 1])
        self.by_rank += tail.interval_counts(lists, self.tail_intervals)

    def add_rejected(self, lists: Lists, rejected: csr_array) -> None:
        """Share of the first places that the user rejected in held-out data, for users with such rejections."""
        for n in (FIRST_PLACES, SHORT_LIST):
            hits = hits_of(replace(lists, items=lists.items[:, :n]), rejected)
            length = np.maximum((hits.top_items >= 0).sum(axis=1), 1)
            share = np.where(hits.n_targets > 0, hits.found.sum(axis=1) / length, np.nan)
            self._note(f"rejected_share@{n}", share)

    def add_order(self, shares: npt.NDArray[np.float64]) -> None:
        """How often an adopted item is above a rejected one, for users with both in their held-out data."""
        self._note("auc_rejected", shares)

    def add_preferences(self, logits: npt.NDArray[np.float32]) -> None:
        if self.decoder is None:
            return
        counts = preference_counts(logits, linear=self.decoder == "linear")
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

    def sums(self) -> Sums:
        """Everything so far, as arrays by name."""
        per_user = {f"{_USER}{name}": np.concatenate(values) for name, values in self.per_user.items()}
        return per_user | {name: part.copy() for name, part in self._counted().items()}

    def add_sums(self, sums: Sums) -> None:
        """What another tally found, for users who come after these."""
        for name, values in sums.items():
            if name.startswith(_USER):
                self._note(name.removeprefix(_USER), values)
        for name, part in self._counted().items():
            part += sums[name]

    def _counted(self) -> dict[str, npt.NDArray[np.int64]]:
        exposure = {f"exposure@{n}": counts for n, counts in self.exposure.items()}
        return exposure | {"by_rank": self.by_rank, "preferences": self.preferences}

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


def ranking_values(
    measure: str, hits: ranking.Hits, novelty: npt.NDArray[np.float64], cutoff: int
) -> npt.NDArray[np.float64]:
    if measure == "recall":
        return ranking.recall(hits, cutoff)
    if measure == "ndcg":
        return ranking.ndcg(hits, cutoff)
    return ranking.novelty_ndcg(hits, novelty, cutoff)


def hits_of(lists: Lists, targets: csr_array) -> ranking.Hits:
    indptr = targets.indptr[lists.users.start : lists.users.stop + 1].astype(np.int64)
    items = targets.indices[indptr[0] : indptr[-1]].astype(np.int64)
    indptr -= indptr[0]
    return ranking.Hits(lists.items, found_in_lists(lists.items, indptr, items, targets.shape[1]), indptr, items)


def preference_counts(logits: npt.NDArray[np.float32], linear: bool) -> npt.NDArray[np.int64]:
    """How many preferences lie in each interval of table 6, over all users.

    They are read off the logits, as σ is monotone; with a linear decoder, logits are preferences.
    """
    inner = np.array(tail.PREFERENCE_THRESHOLDS[1:-1])
    bounds = inner if linear else np.log(inner / (1 - inner))
    below = counts_below(logits, bounds.astype(np.float32))  # (5,)
    return np.diff(np.concatenate([[0], below, [logits.size]]))
