"""results.json: everything a run found, as one typed, versioned value that a run writes and a report reads.

Results of older runs lack what came later (searches, dials, comparisons, the paper's table, threads); such parts have
defaults here, and are left out again when the value is written. What a newer milrec adds is kept as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from milrec.errors import FolderError
from milrec.measured import AimPoint, DialPoint, Evaluated
from milrec.records import TAIL_NAMES, Count, Number, Rank, Record, damaged
from milrec.storage import folder_kind, read_json, write_json

FORMAT: Literal["milrec-results"] = "milrec-results"
VERSION = 1
FILE = "results.json"  # its name in a run folder
SIGNIFICANCE = 0.05  # a difference with a smaller p is not put down to chance

TrialState = Literal["done", "given up", "failed", "broken"]
PaperTableName = Literal["metrics", "held-out users"]
PaperDataSet = Literal["ml-20m", "netflix", "lastfm-360k"]


class FitHistory(Record):
    """How a fit went, one entry per validation."""

    iterations: tuple[Count, ...] = ()
    epochs: tuple[Number, ...] = ()
    losses: tuple[float, ...] = ()
    measures: tuple[Number, ...] = ()
    seconds: tuple[Number, ...] = ()
    kept_iteration: Count | None = None
    stopped_early: bool = False

    @model_validator(mode="after")
    def _one_entry_each(self) -> FitHistory:
        columns = (self.epochs, self.losses, self.measures, self.seconds)
        if any(len(column) not in (0, len(self.iterations)) for column in columns):
            raise ValueError("a history must have the same number of entries in each column")
        return self


class FittedSettings(Record):
    """The settings of a fit, section by section; the fields of a section are up to the model and the loss."""

    model: dict[str, Any]
    loss: dict[str, Any] | None = None
    target_set: dict[str, Any] | None = None
    training: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _mil_has_its_parameters(self) -> FittedSettings:
        pair = [(self.loss or {}).get(name) for name in ("missing_weight", "missing_exponent")]
        if (self.loss or {}).get("loss") == "mil" and not all(isinstance(value, int | float) for value in pair):
            raise ValueError("a loss 'mil' has numbers for missing_weight and missing_exponent")
        if not isinstance(self.measure, str | None):
            raise ValueError("a measure must be called by its name")
        return self

    @property
    def measure(self) -> str | None:
        """The validation measure by which the weights to keep were chosen."""
        return (self.training or {}).get("measure")

    @property
    def missing_term(self) -> tuple[float, float] | None:
        """MIL's A and γ; None with another loss."""
        loss = self.loss or {}
        return (loss["missing_weight"], loss["missing_exponent"]) if loss.get("loss") == "mil" else None


class ModelRun(Record):
    """One model fitted with one seed, and what it is worth."""

    name: str
    seed: Count
    tuned: dict[str, Any] = Field(default_factory=dict)  # the settings that a search chose
    validation: Number | None = None
    settings: FittedSettings
    evaluation: Evaluated
    dialled: tuple[DialPoint, ...] = ()
    aimed: tuple[AimPoint, ...] = ()
    history: FitHistory | None = None  # None for a model that is not fitted by gradient descent
    fit_seconds: Number
    threads: Count | None = None
    peak_memory_mib: Count | None = None  # None on a system that does not say


class Trial(Record):
    """One set of values that a search tried."""

    number: Count
    values: dict[str, Any]
    state: TrialState
    value: Number | None = None  # the validation measure
    error: str | None = None


def best_trial(trials: Iterable[Trial]) -> Trial | None:
    """The first of those with the highest validation measure; a trial that was given up is never the best."""
    done = [(trial.value, trial) for trial in trials if trial.state == "done" and trial.value is not None]
    return max(done, key=lambda one: one[0], default=(0.0, None))[1]


class Search(Record):
    """The search for a model's settings on the validation part."""

    name: str
    measure: str
    trials: tuple[Trial, ...]
    tuned: dict[str, Any]

    def best(self) -> Trial | None:
        """The trial that was chosen."""
        return best_trial(self.trials)


class Comparison(Record):
    """Two models over the same users: the mean of first minus second, its 95 % interval, and p."""

    first: str
    second: str
    difference: Number
    low: Number
    high: Number
    p: Number
    users: Count

    @property
    def may_be_chance(self) -> bool:
        return self.p >= SIGNIFICANCE

    def reversed(self) -> Comparison:
        """Second minus first."""
        turned = {"first": self.second, "second": self.first}
        figures = {"difference": -self.difference, "low": -self.high, "high": -self.low}
        return self.model_copy(update={**turned, **figures})


class UserGroup(Record):
    """The users with the fewest or with the most items, and the models by one measure over these users alone."""

    name: Literal["few", "many"]
    least: Count  # items of theirs that a model may know when it is judged
    most: Count
    users: Count
    measure: str
    means: dict[str, Number]  # by model
    seed_means: dict[str, tuple[Number, ...]] = Field(default_factory=dict)  # the same for each seed
    comparisons: tuple[Comparison, ...]

    def comparison(self, first: str, second: str) -> Comparison | None:
        """First minus second, whichever way round it was made."""
        return compared(self.comparisons, first, second)


class Failure(Record):
    """A part of a run that failed, and why."""

    name: str
    error: str


class DataFacts(Record):
    """The training part: its size, its popularity curve, and how many items hold one and two thirds of it."""

    users: Count
    items: Rank
    adopted: Count
    rejected: Count = 0
    density: Number | None = None
    interval_cuts: tuple[Rank, Rank]
    popularity_curve: tuple[tuple[Rank, Count], ...]  # ranks and adopters
    split_hash: str = ""


class SplitFacts(Record):
    """How the data were split, and how large the parts are."""

    protocol: Literal["interactions", "users", "given"]
    seed: Count
    users: Count = 0
    items: Count = 0
    adopted: Count = 0
    rejected: Count = 0
    density: Number | None = None
    validation_users_in_part: Count = 0
    validation_users: Count = 0
    validation_targets: Count = 0
    validation_dropped_targets: Count = 0
    test_users_in_part: Count = 0
    test_users: Count
    test_targets: Count
    test_dropped_targets: Count
    validation_like_test: bool = False


class PaperTable(Record):
    """The table of the paper, and the data set in it, that a run is compared with."""

    table: PaperTableName
    dataset: PaperDataSet


class Versions(Record):
    milrec: str
    torch: str
    numpy: str = ""
    scipy: str = ""
    numba: str = ""


class Machine(Record):
    cores: Count | None = None
    threads: Count | None = None  # only in the first results
    platform: str = ""


class Results(Record):
    """Everything a run found."""

    format: Literal["milrec-results"] = FORMAT
    version: int = Field(VERSION, ge=1, le=VERSION)
    title: str
    description: str = ""
    data: DataFacts
    split: SplitFacts
    paper: PaperTable | None = None
    models: tuple[ModelRun, ...]
    searches: tuple[Search, ...] = ()
    comparisons: dict[str, tuple[Comparison, ...]] = Field(default_factory=dict)  # by measure
    groups: tuple[UserGroup, ...] = ()  # none if there are too few users, or all have about as many items
    failures: tuple[Failure, ...] = ()
    versions: Versions
    machine: Machine
    finished: str

    @model_validator(mode="after")
    def _curves_of_one_length(self) -> Results:
        lengths: dict[str, set[int]] = {}
        for run in self.models:
            evolution = run.evaluation.rank_evolution
            own = set() if evolution is None else {len(evolution.of(tail)) for tail in TAIL_NAMES}
            if len(lengths.setdefault(run.name, set()) | own) > 1:
                raise ValueError(f"the curves of model '{run.name:.80}' differ in length")
            lengths[run.name] |= own
        return self

    @classmethod
    def read(cls, path: str | Path) -> Results:
        """Results from a file, or from the run folder that holds them."""
        path = Path(path)
        if not path.exists():
            raise FolderError(f"there is no run '{path}'")
        file = results_file(path)
        if not file.exists():
            kind = folder_kind(path)
            cure = "let the run finish first" if kind in (None, "run") else f"it is a {kind} folder, not a run"
            raise FolderError(f"'{path}' has no {FILE}; {cure}")
        return cls.of(read_json(file), f"'{file}'")

    @classmethod
    def of(cls, value: Any, where: str) -> Results:
        """Results from plain JSON; anything else is refused with a sentence that says what `where` is instead."""
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise FolderError(f"{where} does not hold the results of a milrec run; name a run folder or its {FILE}")
        version = value.get("version")
        if isinstance(version, int) and version > VERSION:
            raise FolderError(
                f"{where} has format version {version}, and this milrec reads up to {VERSION}; upgrade milrec"
            )
        try:
            return cls.model_validate_json(json.dumps(value), strict=True)  # as JSON, in which lists become tuples
        except ValidationError as error:
            raise damaged(error, where) from None

    def write(self, path: Path) -> None:
        write_json(path, self.as_json())

    def as_json(self) -> dict[str, Any]:
        return {"format": self.format, "version": self.version, **super().as_json()}

    def tuned(self) -> dict[str, dict[str, Any]]:
        """The settings that searches chose, by model."""
        return {run.name: run.tuned for run in self.models if run.tuned}

    def comparison(self, measure: str, first: str, second: str) -> Comparison | None:
        """The comparison of two models by a measure: first minus second, whichever way round it was made."""
        return compared(self.comparisons.get(measure, ()), first, second)


def compared(comparisons: Iterable[Comparison], first: str, second: str) -> Comparison | None:
    """The comparison of two models: first minus second, whichever way round it was made."""
    for made in comparisons:
        if (made.first, made.second) == (first, second):
            return made
        if (made.first, made.second) == (second, first):
            return made.reversed()
    return None


def results_file(path: Path) -> Path:
    """The file of results in a run folder, or the file itself."""
    return path / FILE if path.is_dir() else path
