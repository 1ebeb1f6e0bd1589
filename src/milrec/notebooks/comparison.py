"""Models side by side: their measures on the same split, and how far each differs from the first, user by user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from milrec.data.splits import Part, Split
from milrec.errors import DataError, SettingsError
from milrec.evaluation.evaluation import Evaluation
from milrec.evaluation.tables import HEADLINE, Table, figure, interval
from milrec.metrics.comparison import Difference, compare_with_first
from milrec.recommender import Recommender


@dataclass(frozen=True, repr=False)
class Comparison:
    """Evaluations of several models, and each model's differences from the first one; printed, two small tables.

    A difference is that of the means over users, with its 95 % interval (bootstrap over users). p comes from a paired
    t-test and is corrected (Holm) for all differences that there are here: models × measures.
    """

    on: Part
    evaluations: Mapping[str, Evaluation]  # by model
    differences: Mapping[str, Sequence[Difference]] = field(repr=False)  # by measure: each model minus the first

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.evaluations)} on {self.on}>"

    def __str__(self) -> str:
        return "\n\n".join(one.text() for one in self._tables())

    def _repr_html_(self) -> str:
        return "<br>".join(one.html() for one in self._tables())

    def as_table(self) -> pa.Table:
        """A row for each model and measure: mean, low and high, and for all but the first model the difference."""
        made = {(one.first, name): one for name, found in self.differences.items() for one in found}
        rows = []
        for model, evaluation in self.evaluations.items():
            for row in evaluation.as_table().drop_columns("undefined").to_pylist():
                rows.append({"model": model, **row, **_difference_columns(made.get((model, row["measure"])))})
        return pa.Table.from_pylist(rows, schema=_SCHEMA)

    def to_pandas(self) -> Any:
        """`as_table` as a data frame, by model and measure."""
        return self.as_table().to_pandas().set_index(["model", "measure"])

    def _tables(self) -> list[Table]:
        first, *_ = self.evaluations.values()
        shown = first.headline
        rows = [
            (model, *(figure(name, found.measures[name]) for name in shown))
            for model, found in self.evaluations.items()
        ]
        title = f"{len(rows)} models on {self.on}, {first.n_users:,} users"
        return [Table(title, ("model", *shown), rows), self._table_of_differences()]

    def _table_of_differences(self) -> Table:
        base = next(iter(self.evaluations))
        rows = [
            (one.first, name, _signed(name, one.difference), _in_points(interval(name, one.low, one.high)), _p(one.p))
            for name in self.differences
            for one in self.differences[name]
        ]
        many = f"the {len(rows)} differences of this table" if len(rows) > 1 else "one difference"
        note = f"User by user; p from paired t-tests, corrected for {many} (Holm)."
        return Table(f"Differences from {base}", ("model", "measure", "difference", "95 % interval", "p"), rows, note)


_SCHEMA = pa.schema(
    [("model", pa.string()), ("measure", pa.string())]
    + [(name, pa.float64()) for name in ("mean", "low", "high")]
    + [(name, pa.float64()) for name in ("difference", "difference_low", "difference_high", "p")]
)


def compare(models: Sequence[Recommender] | Mapping[str, Recommender], split: Split, on: Part = "test") -> Comparison:
    """Judge models on the split that they were all fitted on, and compare each with the first, user by user."""
    named = _named(models)
    judges = {}
    for name, model in named.items():
        try:
            judges[name] = model.judge(split, on)
        except DataError as error:
            raise DataError(f"model '{name}' cannot be compared here: {error}") from None
    found = {name: judge.evaluation(None) for name, judge in judges.items()}
    return compared(found, on)


def compared(evaluations: Mapping[str, Evaluation], on: Part = "test") -> Comparison:
    """The same from evaluations of the same users."""
    if len({one.n_users for one in evaluations.values()}) > 1:
        raise DataError("the models were judged on different users, so they cannot be compared user by user")
    shared = [name for name in HEADLINE if all(name in one.per_user for one in evaluations.values())]
    per_user = {name: {model: one.per_user[name] for model, one in evaluations.items()} for name in shared}
    return Comparison(on, evaluations, compare_with_first(per_user))


def _named(models: Any) -> dict[str, Recommender]:
    """The models by name; without names, by their settings."""
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    elif isinstance(models, Sequence):
        named = {}
        for model in models:
            name = str(model.fitted.settings) if isinstance(model, Recommender) else ""
            alike = sum(one == name or one.startswith(f"{name} (") for one in named)
            named[f"{name} ({alike + 1})" if alike else name] = model
    else:
        raise SettingsError("give models as a list, or by name: {'mil': one, 'ease': other}")
    if not all(isinstance(model, Recommender) for model in named.values()):
        raise SettingsError("only fitted models can be compared: milrec.fit(split, …) or milrec.load(folder)")
    if len(named) < 2:
        raise SettingsError(f"a comparison needs two models or more, not {len(named)}")
    return named


def _difference_columns(made: Difference | None) -> dict[str, float]:
    if made is None:
        return {}
    return {"difference": made.difference, "difference_low": made.low, "difference_high": made.high, "p": made.p}


def _signed(measure: str, value: float) -> str:
    """A difference; that of two shares is in percentage points."""
    return _in_points(f"+{figure(measure, value)}" if value > 0 else figure(measure, value))


def _in_points(text: str) -> str:
    return text.replace(" %", " points")


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
