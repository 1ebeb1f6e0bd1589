"""Evaluation: what lists are worth, as a plain value that becomes JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milrec.evaluation.tables import HEADLINE, Table, figure, interval
from milrec.metrics.names import LIST_LENGTH
from milrec.metrics.reliability import ReliabilityBin
from milrec.probability.aims import Price


@dataclass(frozen=True, repr=False)
class Evaluation:
    """How good a model's lists are, and what is in them; printed, a small table of its headline measures."""

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
    reliability: tuple[ReliabilityBin, ...] = ()  # probabilities against what was held out; empty if there are none
    link_reliability: tuple[ReliabilityBin, ...] = ()  # the same by the loss's link and one factor, if it has a link
    dial: float = 0.0  # that the lists were re-ranked with
    dislike_cost: float | None = None  # in hits, where lists spare users what they are likely to reject
    price: Price | None = None  # of the bonus that the lists were made with

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {figure(name, self.measures[name])}" for name in self.headline[:3])
        return f"<Evaluation of {self.n_users:,} users: {shown}>"

    def __str__(self) -> str:
        return self._shown().text()

    def _repr_html_(self) -> str:
        return self._shown().html()

    @property
    def headline(self) -> list[str]:
        """The measures to look at first, those of them that it has."""
        return [name for name in HEADLINE if name in self.measures]

    def as_table(self) -> pa.Table:
        """All measures: measure, mean, low and high (the 95 % interval), and undefined (users without a value)."""
        names = list(self.measures)
        ends = [self.intervals.get(name, (math.nan, math.nan)) for name in names]
        means, lows, highs = list(self.measures.values()), [low for low, _ in ends], [high for _, high in ends]
        columns = {name: _column(values) for name, values in (("mean", means), ("low", lows), ("high", highs))}
        counts = pa.array([self.undefined.get(name, 0) for name in names], type=pa.int64())
        return pa.table({"measure": pa.array(names, type=pa.string()), **columns, "undefined": counts})

    def to_pandas(self) -> Any:
        """`as_table` as a data frame, by measure."""
        return self.as_table().to_pandas().set_index("measure")

    def _shown(self) -> Table:
        nothing = (math.nan, math.nan)
        rows = [
            (name, figure(name, self.measures[name]), interval(name, *self.intervals.get(name, nothing)))
            for name in self.headline
        ]
        more = len(self.measures) - len(rows)
        note = f"{more} more in as_table()" if more else ""
        return Table(f"Evaluation of {self.n_users:,} users", ("measure", "mean", "95 % interval"), rows, note)

    def with_more(self, measures: dict[str, float], intervals: dict[str, tuple[float, float]]) -> Evaluation:
        """The same with further measures."""
        return replace(self, measures={**self.measures, **measures}, intervals={**self.intervals, **intervals})

    def as_json(self) -> dict[str, Any]:
        """Flat, with plain numbers; undefined is null."""
        return {
            **{name: _number(value) for name, value in self.measures.items()},
            **({"dial": self.dial} if self.dial else {}),
            **({} if self.dislike_cost is None else {"dislike_cost": self.dislike_cost}),
            **({} if self.price is None else {"bonus": self.price.bonus, "expected_hits@20": self.price.hits}),
            "n_users": self.n_users,
            "dropped_targets": self.dropped_targets,
            f"top_{LIST_LENGTH}_share": self.top_shares,
            "interval_cuts": list(self.interval_cuts),
            "preference_distribution": self.preference_distribution,
            "rank_evolution": self.rank_evolution,
            "intervals": {name: [_number(low), _number(high)] for name, (low, high) in self.intervals.items()},
            "undefined": self.undefined,
            **{name: [asdict(one) for one in bins] for name, bins in self._diagrams().items() if bins},
        }

    def _diagrams(self) -> dict[str, tuple[ReliabilityBin, ...]]:
        return {"reliability": self.reliability, "link_reliability": self.link_reliability}


def _column(values: list[float]) -> pa.Array:
    return pa.array([_number(value) for value in values], type=pa.float64())


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
