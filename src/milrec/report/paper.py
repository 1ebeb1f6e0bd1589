"""The paper's own figures, and which of its models and data sets ours correspond to (arXiv 1805.00121). No torch.

`paper.csv` holds tables 2 to 6 and 8; what the paper says about its data (tables 1 and 7) is in this module.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from milrec.results import PaperDataSet, PaperTableName, Results

UNCERTAINTY = 0.003  # of a measure, with another seed, according to the captions of tables 2 to 4
SHARE_ROOM = 1.0  # percentage points; the paper gives no uncertainty of its shares
CUT_ROOM = 0.02  # of an interval cut: another split moves it by less

METRICS: PaperTableName = "metrics"
HELD_OUT: PaperTableName = "held-out users"
SHARES, PREFERENCES = "top-200 share", "preference distribution"
PREFERENCE_BINS = ("[0.0,0.01)", "[0.01,0.25)", "[0.25,0.5)", "[0.5,0.7)", "[0.7,0.9)", "[0.9,1.0]")
CE, CE_SIG, PAIR, PAIR_SIG = "CE_Point lin-sig", "CE_Point sig-sig", "CE_Pair lin-sig", "CE_Pair sig-sig"
MIL, MIL_SIG, MULTI = "MIL lin-sig", "MIL sig-sig", "MULTI tanh-lin"
MF_SQUARE, MF_CE, MF_MIL = "MF-square", "MF-CE", "MF-mil"
MIL_PAIRS = ((5e1, 2), (1e3, 4), (2e4, 6), (1e6, 10), (5e9, 15))  # A and γ of figure 1


@dataclass(frozen=True)
class DataSet:
    """A data set of the paper: its size (table 1), its interval cuts (table 7) and its table of metrics."""

    title: str
    users: int
    items: int
    cuts: tuple[int, int]
    metrics_table: int


DATA_SETS: dict[PaperDataSet, DataSet] = {
    "ml-20m": DataSet("MovieLens-20M", 136_700, 20_300, (177, 784), 2),
    "netflix": DataSet("Netflix", 463_400, 17_700, (251, 965), 3),
    "lastfm-360k": DataSet("Last.fm-360K", 350_200, 24_600, (351, 2240), 4),
}

# What the paper reports on: its data sets, split over pairs, and one of them with held-out users (table 5).
Experiment = Literal["ml-20m", "netflix", "lastfm-360k", "ml-20m, held-out users"]
EXPERIMENTS: dict[Experiment, str] = {
    "ml-20m": "MovieLens-20M",
    "netflix": "Netflix",
    "lastfm-360k": "Last.fm-360K",
    "ml-20m, held-out users": "held-out users",
}

# Other names of the paper's models, as `key` writes them; table 5 calls MULTI tanh-lin Multi-DAE.
_ALIASES = {
    "cepoint": "cepointlinsig",
    "cepair": "cepairlinsig",
    "mil": "millinsig",
    "multi": "multitanhlin",
    "multidae": "multitanhlin",
    "multinomial": "multitanhlin",
    "multivae": "multivaepr",
    "multvae": "multivaepr",
    "wrmf": "mfsquare",
}


def key(name: str) -> str:
    """A model's name, simplified so that ours and the paper's can be compared."""
    plain = re.sub(r"[\W_]+", "", name.lower())
    return _ALIASES.get(plain, plain)


@cache
def _rows() -> list[dict[str, str]]:
    text = files("milrec.report").joinpath("paper.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def figures(table: str, dataset: PaperDataSet) -> dict[str, dict[str, float]]:
    """A table of the paper for a data set: model → metric → value; empty if the paper has none."""
    found: dict[str, dict[str, float]] = {}
    for row in _rows():
        if (row["table"], row["dataset"]) == (table, dataset):
            found.setdefault(row["model"], {})[row["metric"]] = float(row["value"])
    return found


@cache
def known_models() -> frozenset[str]:
    """The `key` of every model in the paper."""
    return frozenset(key(row["model"]) for row in _rows())


def model_of(name: str, table: Mapping[str, object]) -> str | None:
    """The model in a table of the paper that goes by the name of ours."""
    return next((model for model in table if key(model) == key(name)), None)


def data_set_of(results: Results) -> PaperDataSet | None:
    """The data set of the paper that is as large as a run's data: users within 2 %, items within 5 %.

    Held-out users count; items that nobody adopted in the training part are not in the catalogue.
    """
    split, users, items = results.split, results.data.users, results.data.items
    if split.protocol == "users":
        users += split.validation_users_in_part + split.test_users_in_part
    return data_set_of_size(users, items)


def data_set_of_size(users: int, items: int) -> PaperDataSet | None:
    for name, known in DATA_SETS.items():
        if abs(users - known.users) <= 0.02 * known.users and abs(items - known.items) <= 0.05 * known.items:
            return name
    return None


def experiment_of(results: Results) -> Experiment | None:
    """Which of the paper's experiments a run repeats; None if its data are not the paper's."""
    found = data_set_of(results)
    return "ml-20m, held-out users" if found == "ml-20m" and results.split.protocol == "users" else found


def other_data(dataset: PaperDataSet, users: int, items: int) -> str:
    """The sentence about data that are not the paper's."""
    known = DATA_SETS[dataset]
    return (
        f"These are not the paper's data: {known.title} has {known.users:,} users and {known.items:,} items, "
        f"this run {users:,} and {items:,}."
    )


def table_name(table: str, dataset: PaperDataSet) -> str:
    """What the paper calls it."""
    numbers = {HELD_OUT: 5, PREFERENCES: 6, "cuts": 7, SHARES: 8}
    return f"table {DATA_SETS[dataset].metrics_table if table == METRICS else numbers[table]}"


@dataclass(frozen=True)
class Reference:
    """The table of the paper that a run is compared with, and why the figures may not be comparable."""

    table: PaperTableName
    dataset: PaperDataSet
    differs: str  # empty if data and split are the paper's

    @property
    def data(self) -> DataSet:
        return DATA_SETS[self.dataset]


def reference(results: Results) -> Reference | None:
    """None if the recipe names no table of the paper; data that are another of the paper's sets count as that set."""
    if results.paper is None:
        return None
    table, named = results.paper.table, results.paper.dataset
    found = data_set_of(results)
    dataset = found if found and figures(table, found) else named
    if found != dataset:
        differs = other_data(dataset, results.data.users, results.data.items)
    elif (results.split.protocol == "users") != (table == HELD_OUT):
        differs = "The data are the paper's, but they are not split as for this table."
    else:
        differs = ""
    return Reference(table, dataset, differs)
