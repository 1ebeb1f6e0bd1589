"""Runs of results.json, grouped: one entry per model, its figures means over the seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milrec.report.paper import key

TAILS = (("short", "short tail"), ("medium", "medium tail"), ("long", "long tail"))

# Colours of the page by `paper.key`: a model has the same one in every report, the paper's in the paper's figure.
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
class Entry:
    """One model of a run, fitted with one or several seeds."""

    name: str
    colour: str
    runs: Sequence[Mapping[str, Any]]  # one per seed

    def values(self, measure: str) -> list[float]:
        """Of every seed that has one."""
        return [value for run in self.runs if (value := run["evaluation"].get(measure)) is not None]

    def mean(self, measure: str) -> float | None:
        values = self.values(measure)
        return statistics.fmean(values) if values else None

    def deviation(self, measure: str) -> float | None:
        """Standard deviation over the seeds; None of a single one."""
        values = self.values(measure)
        return statistics.stdev(values) if len(values) > 1 else None

    def interval(self, measure: str) -> Sequence[float] | None:
        """The bootstrap interval over users, of a model with one seed."""
        found = self.runs[0]["evaluation"].get("intervals", {}).get(measure) if len(self.runs) == 1 else None
        return found if found and None not in found else None

    def shares(self) -> dict[str, float] | None:
        """Percent of the top 200 in each interval of the tail."""
        found = self._parts("top_200_share")
        return {tail: statistics.fmean(one[tail] for one in found) for tail, _ in TAILS} if found else None

    def evolution(self, tail: str) -> list[float]:
        """Share of users with an item of the interval at each place."""
        return _means([one[tail] for one in self._parts("rank_evolution")])

    def preferences(self) -> list[float] | None:
        """Percent of predicted preferences in each interval of table 6; None for a model that predicts none."""
        return _means(self._parts("preference_distribution")) or None

    def dialled(self) -> list[dict[str, float]]:
        """Accuracy and long-tail share at each popularity dial; empty where none was asked for."""
        measures = ("ndcg@100", "long_share@200")
        by_dial: dict[float, list[Mapping[str, Any]]] = {}
        for run in self.runs:
            for point in run.get("dialled") or ():
                if all(point.get(measure) is not None for measure in measures):
                    by_dial.setdefault(point["dial"], []).append(point)
        return [
            {"dial": dial, **{measure: statistics.fmean(point[measure] for point in points) for measure in measures}}
            for dial, points in sorted(by_dial.items())
        ]

    def tuned(self) -> Mapping[str, Any]:
        """Settings that a search chose."""
        return self.runs[0].get("tuned") or {}

    def _parts(self, name: str) -> list[Any]:
        return [found for run in self.runs if (found := run["evaluation"].get(name))]


def entries_of(results: Mapping[str, Any]) -> list[Entry]:
    """The models of a run in their order."""
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for run in results["models"]:
        runs.setdefault(run["name"], []).append(run)
    entries: list[Entry] = []
    others = 0
    for name, mine in runs.items():
        colour = _COLOURS.get(key(name))
        if colour is None or any(entry.colour == colour for entry in entries):
            colour, others = f"series-{others % _N_OTHER_COLOURS}", others + 1
        entries.append(Entry(name, colour, mine))
    return entries


def entry_of(entries: Sequence[Entry], model: str) -> Entry | None:
    """The first entry that is a model of the paper."""
    return next((entry for entry in entries if key(entry.name) == key(model)), None)


def smoothed(values: Sequence[float], width: int = 2) -> list[float]:
    """A running mean over a few places: the shape, without the jitter of single places."""
    windows = [values[max(0, place - width) : place + width + 1] for place in range(len(values))]
    return [statistics.fmean(window) for window in windows]


def _means(rows: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.fmean(column) for column in zip(*rows, strict=True)]
