"""The runs in results.json, grouped: one entry per model, its figures means over the seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milrec.measured import Reliability
from milrec.records import TailName
from milrec.report.names import PlainName, plain_names
from milrec.report.paper import key
from milrec.results import FitHistory, ModelRun, Results

TAILS: tuple[tuple[TailName, str], ...] = (("short", "short tail"), ("medium", "medium tail"), ("long", "long tail"))

# Colours by `paper.key`: a model has the same colour in every report, the paper's models those of the paper's figure.
_COLOURS = {
    "millinsig": "mil",
    "cepointlinsig": "ce",
    "multitanhlin": "multi",
    "milsigsig": "mil-light",
    "cepointsigsig": "ce-light",
    "multivaepr": "multi-light",
    "popularity": "popularity",
}
_N_OTHER_COLOURS = 12


@dataclass(frozen=True)
class DialMean:
    """Accuracy and long-tail share of a model's lists at a popularity dial, means over the seeds."""

    dial: float
    accuracy: float  # NDCG@100
    long_share: float  # percent of the top 200


@dataclass(frozen=True)
class AimMean:
    """Lists that aim at a long-tail share: what they reach and how accurate they are, means over the seeds."""

    wanted: float | None  # None: lists as the model makes them
    bonus: float  # λ
    long_share: float  # percent of the first 20
    accuracy: float  # NDCG@20


@dataclass(frozen=True)
class Entry:
    """One model of a run, fitted with one or several seeds."""

    name: str
    colour: str
    runs: Sequence[ModelRun]  # one per seed
    plain: PlainName

    @property
    def title(self) -> str:
        """The name that people read; `name` is the recipe's."""
        return self.plain.title

    def values(self, measure: str) -> list[float]:
        """One for each seed that has the measure."""
        return [value for run in self.runs if (value := run.evaluation.mean(measure)) is not None]

    def mean(self, measure: str) -> float | None:
        values = self.values(measure)
        return statistics.fmean(values) if values else None

    def deviation(self, measure: str) -> float | None:
        """Standard deviation over the seeds; None with a single seed."""
        values = self.values(measure)
        return statistics.stdev(values) if len(values) > 1 else None

    def interval(self, measure: str) -> tuple[float, float] | None:
        """The bootstrap interval over users, for a model with one seed."""
        found = self.runs[0].evaluation.intervals.get(measure) if len(self.runs) == 1 else None
        if found is None or found[0] is None or found[1] is None:
            return None
        return found[0], found[1]

    def shares(self) -> dict[TailName, float] | None:
        """Percent of the top 200 in each interval of the tail."""
        found = [share for run in self.runs if (share := run.evaluation.top_200_share) is not None]
        return {tail: statistics.fmean(one.of(tail) for one in found) for tail, _ in TAILS} if found else None

    def evolution(self, tail: TailName) -> list[float]:
        """Share of users with an item of the interval at each place."""
        return _means([one.of(tail) for run in self.runs if (one := run.evaluation.rank_evolution) is not None])

    def preferences(self) -> list[float] | None:
        """Percent of predicted preferences in each interval of table 6; None for a model that predicts none."""
        return _means([one for run in self.runs if (one := run.evaluation.preference_distribution)]) or None

    def dialled(self) -> list[DialMean]:
        """Accuracy and long-tail share at each popularity dial; empty if the recipe has none."""
        by_dial: dict[float, list[tuple[float, float]]] = {}
        for run in self.runs:
            for point in run.dialled:
                accuracy, long_share = point.mean("ndcg@100"), point.mean("long_share@200")
                if accuracy is not None and long_share is not None:
                    by_dial.setdefault(point.dial, []).append((accuracy, long_share))
        return [DialMean(dial, *_means(points)) for dial, points in sorted(by_dial.items())]

    def aimed(self) -> list[AimMean]:
        """Lists as they are, then at each long-tail share that they were judged with; empty if there are none."""
        measures = ("long_share@20", "ndcg@20")
        by_share: dict[float, list[tuple[float, float, float]]] = {}
        for run in self.runs:
            for point in run.aimed:
                long_share, accuracy = (point.mean(name) for name in measures)
                if long_share is not None and accuracy is not None:
                    by_share.setdefault(point.long_share, []).append((point.bonus, long_share, accuracy))
        long_share, accuracy = (self.mean(name) for name in measures)
        if not by_share or long_share is None or accuracy is None:
            return []
        points = [AimMean(share, *_means(points)) for share, points in sorted(by_share.items())]
        return [AimMean(None, 0.0, long_share, accuracy), *points]

    def reliability(self, by_link: bool = False) -> tuple[Reliability, ...]:
        """The probabilities of the first seed against what was held out; `by_link`: by the link and one factor."""
        found = self.runs[0].evaluation
        return found.link_reliability if by_link else found.reliability

    def tuned(self) -> Mapping[str, Any]:
        """The settings that a search chose."""
        return self.runs[0].tuned

    def curve(self) -> FitHistory | None:
        """How the fit with the first seed went, if it was validated on the way."""
        history = self.runs[0].history
        return history if history is not None and history.measures and history.epochs else None


def entries_of(results: Results) -> list[Entry]:
    """The models of a run in their order."""
    return entries_of_runs(results.models)


def entries_of_runs(several: Sequence[ModelRun]) -> list[Entry]:
    """The same for a few models, whatever run they are of."""
    runs: dict[str, list[ModelRun]] = {}
    for run in several:
        runs.setdefault(run.name, []).append(run)
    entries: list[Entry] = []
    plain = plain_names(list(runs))
    others = 0
    for name, mine in runs.items():
        colour = _COLOURS.get(key(name))
        if colour is None or any(entry.colour == colour for entry in entries):
            colour, others = f"series-{others % _N_OTHER_COLOURS}", others + 1
        entries.append(Entry(name, colour, mine, plain[name]))
    return entries


def entry_of(entries: Sequence[Entry], model: str) -> Entry | None:
    """The first entry that stands for a model of the paper."""
    return next((entry for entry in entries if key(entry.name) == key(model)), None)


def smoothed(values: Sequence[float], width: int = 2) -> list[float]:
    """A running mean over a few places: the shape without the jitter."""
    windows = [values[max(0, place - width) : place + width + 1] for place in range(len(values))]
    return [statistics.fmean(window) for window in windows]


def _means(rows: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.fmean(column) for column in zip(*rows, strict=True)]
