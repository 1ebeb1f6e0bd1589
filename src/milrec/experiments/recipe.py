"""Recipes: what a run consists of, read from TOML and checked before anything is done.

A model in a recipe may name values to search (`search`); they are then chosen on validation, never on test.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from milrec.errors import SettingsError, unknown
from milrec.metrics.names import known_measure
from milrec.results import PaperDataSet, PaperTableName, Results
from milrec.settings import Settings, build, read_toml
from milrec.training.presets import settings_for
from milrec.training.settings import FitSettings

Seed = Annotated[int, Field(ge=0, lt=2**32)]
Share = Annotated[float, Field(ge=0, le=1)]


class SimulateEntry(Settings):
    users: int = 2_000
    items: int = 1_200
    seed: Seed = 0


class DataEntry(Settings):
    """A prepared data folder, possibly with another one as its test part, or a catalogue to simulate."""

    path: str | None = None
    test: str | None = None
    simulate: SimulateEntry | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> DataEntry:
        if (self.path is None) == (self.simulate is None):
            raise ValueError("[data] needs either a path or a table [data.simulate], not both")
        if self.test is not None and self.path is None:
            raise ValueError("[data] has a test part without a path to learn from")
        return self


class SplitEntry(Settings):
    protocol: Literal["interactions", "users"] = "interactions"
    seed: Seed = 0
    rounding: Literal["nearest", "down"] = "nearest"  # of the items of held-out users that are to be found
    like_test: bool = False  # validation with the popularity profile of a test part in [data]

    @model_validator(mode="after")
    def _rounds_users(self) -> SplitEntry:
        if self.rounding == "down" and self.protocol != "users":
            raise ValueError("[split] rounding is for protocol 'users'")
        if self.like_test and self.protocol == "users":
            raise ValueError("[split] like_test is for data with a test part, not for protocol 'users'")
        return self


class Range(Settings):
    """Numbers from low to high, spread evenly or by their logarithm."""

    low: float
    high: float
    log: bool = False

    def some(self) -> tuple[float, float]:
        """A number inside the range, and the upper end."""
        return self.low + 0.37 * (self.high - self.low), self.high


class SearchEntry(Settings):
    """How values are searched: a small grid is tried whole, otherwise Optuna chooses."""

    trials: int = Field(16, ge=1, description="how many sets of values are tried for each model, at most")
    round: int = Field(4, ge=1, description="how many are chosen and tried at a time")
    measure: str = Field("ndcg@100", description="validation measure that decides, and that stops fits early")
    seed: Seed = 0

    @field_validator("measure")
    @classmethod
    def _known_measure(cls, name: str) -> str:
        return known_measure(name)


class PaperEntry(Settings):
    """The table of the paper, and the data set in it, that a run is compared with."""

    table: PaperTableName = "metrics"
    dataset: PaperDataSet = "ml-20m"


class ModelEntry(Settings):
    """A model in a recipe. In `search`, settings that belong together share a key: "missing_weight, …"."""

    name: str
    model: str | None = None
    loss: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    search: dict[str, list[Any] | Range] = Field(default_factory=dict)
    tuned: dict[str, Any] = Field(default_factory=dict, description="values that an earlier run found")
    dials: list[float] = Field(default_factory=list, description="old dials with which its lists are judged too")

    @field_validator("search", mode="before")
    @classmethod
    def _ranges(cls, search: Any) -> Any:
        for key, choices in search.items() if isinstance(search, dict) else ():
            if isinstance(choices, dict) and not _is_range(choices):
                raise ValueError(f"the range of '{key}' must be {{ low = …, high = …, log = true }}, with low < high")
            if not isinstance(choices, list | dict):
                raise ValueError(f"'{key}' needs a list or a range to search, not {choices!r}")
        return search

    @field_validator("search")
    @classmethod
    def _choices(cls, search: dict[str, list[Any] | Range]) -> dict[str, list[Any] | Range]:
        named = [name for key in search for name in setting_names(key)]
        if twice := {name for name in named if named.count(name) > 1}:
            raise ValueError(f"'{min(twice)}' is searched by two keys")
        for key, choices in search.items():
            names = setting_names(key)
            if isinstance(choices, Range) and len(names) > 1:
                raise ValueError(f"'{key}' names several settings: list the sets of values to try")
            if isinstance(choices, list) and not choices:
                raise ValueError(f"there is nothing to try for '{key}'")
            if isinstance(choices, list) and len(names) > 1:
                for one in choices:
                    if not isinstance(one, list) or len(one) != len(names):
                        raise ValueError(f"'{key}' needs lists of {len(names)} values, not {one!r}")
        return search

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-") or "model"

    def chosen(self, values: dict[str, Any] | None = None, measure: str | None = None) -> FitSettings:
        """Its settings with some values replaced (those that a search found); `measure` decides when a fit stops."""
        settings = settings_for(self.model, self.loss, {**self.settings, **(values or {})})
        return settings if measure is None or "measure" in self.settings else settings.with_measure(measure)

    def seeds(self, wanted: list[int]) -> list[int]:
        """All of them, or only the first if the model does not depend on the seed."""
        return wanted if self.chosen().seeded else wanted[:1]

    def grid(self) -> list[dict[str, int]] | None:
        """All sets of choices, as places in the lists; None if a range makes them endless."""
        places = [range(len(choices)) for choices in self.search.values() if isinstance(choices, list)]
        if len(places) < len(self.search):
            return None
        return [dict(zip(self.search, one, strict=True)) for one in itertools.product(*places)]

    def own_places(self) -> dict[str, Any] | None:
        """The model's default settings as a choice of the search; None if the search does not include them."""
        settings, places = self.chosen(), dict[str, Any]()
        sections = settings.known_keys()
        for key, choices in self.search.items():
            names = setting_names(key)
            own = [getattr(getattr(settings, sections[name]), name) for name in names]
            value = own if len(names) > 1 else own[0]
            if isinstance(choices, list):
                if value not in choices:
                    return None
                places[key] = choices.index(value)
            else:
                if not isinstance(value, int | float) or not choices.low <= value <= choices.high:
                    return None
                places[key] = float(value)
        return places

    def values(self, places: dict[str, Any]) -> dict[str, Any]:
        """Settings and their values, from what was chosen: places in lists, or numbers in ranges."""
        values: dict[str, Any] = {}
        for key, choices in self.search.items():
            names, chosen = setting_names(key), choices[places[key]] if isinstance(choices, list) else places[key]
            values |= dict(zip(names, chosen, strict=True)) if len(names) > 1 else {names[0]: chosen}
        return values

    def check(self) -> None:
        """Refuse settings that do not exist, including every value of a search."""
        first = {key: 0 if isinstance(choices, list) else choices.low for key, choices in self.search.items()}
        self.chosen(self.values(first))
        for key, choices in self.search.items():
            for place in range(len(choices)) if isinstance(choices, list) else choices.some():
                self.chosen(self.values({**first, key: place}))


class Recipe(Settings):
    """What a run consists of."""

    title: str
    description: str = ""
    seeds: list[Seed] = Field(default_factory=lambda: [0], min_length=1)
    data: DataEntry | None = None
    split: SplitEntry = SplitEntry()
    search: SearchEntry = SearchEntry()
    refit: bool = Field(False, description="judge models fitted again on training and validation together")
    long_shares: list[Share] = Field(
        default_factory=list, description="long-tail shares of the first 20 with which lists are judged too"
    )
    paper: PaperEntry | None = None
    models: list[ModelEntry] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct_names(self) -> Recipe:
        slugs: dict[str, str] = {}
        for entry in self.models:
            if entry.slug in slugs:
                both = f"'{slugs[entry.slug]}' and '{entry.name}'"
                raise ValueError(f"models {both} have the same name (only letters a-z and digits count)")
            slugs[entry.slug] = entry.name
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError("a seed is given twice")
        if self.data is not None and self.data.test is not None and self.split.protocol == "users":
            raise ValueError("a recipe may have a test part in [data] or hold out users in [split], not both")
        if self.data is not None and self.data.test is None and self.split.like_test:
            raise ValueError("[split] like_test needs a test part in [data]")
        if self.refit and self.split.protocol == "users":
            raise ValueError("refit needs a validation part with the same users; split over interactions")
        return self

    def n_trials(self, entry: ModelEntry) -> int:
        grid = entry.grid()
        return 0 if not entry.search else self.search.trials if grid is None else min(len(grid), self.search.trials)


@dataclass(frozen=True)
class Instead:
    """What replaces parts of a recipe."""

    test: str | Path | None = None  # a data folder that is the test part of the data
    models: list[str] | None = None  # only these models
    tuned: str | Path | None = None  # a finished run whose tuned values are used instead of a search
    seeds: list[int] | None = None
    trials: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)  # settings of all models that have them


def read_recipe(path: str | Path, data: str | Path | None = None, instead: Instead = Instead()) -> Recipe:  # noqa: B008
    """A recipe from a TOML file, with the settings of every model checked.

    `data`, a prepared data folder, replaces the recipe's own; a relative path in the recipe starts at the recipe's
    folder.
    """
    path = Path(path)
    recipe = recipe_from(read_toml(path), f"'{path}'", instead)
    if data is not None:
        return _with_data(recipe, Path(data), None if instead.test is None else Path(instead.test))
    if instead.test is not None:
        raise SettingsError("`test` needs `data`; give both")
    if recipe.data is None:
        raise SettingsError(f"'{path}' does not name its data; give a prepared data folder with `data`")
    if recipe.data.path is not None:
        given = None if recipe.data.test is None else path.parent / recipe.data.test
        return _with_data(recipe, path.parent / recipe.data.path, given)
    return recipe


def recipe_from(values: dict[str, Any], where: str, instead: Instead) -> Recipe:
    """A recipe from the values of a TOML file, with the settings of every model checked."""
    recipe = build(Recipe, _overridden(values, instead), where)
    if instead.models:
        recipe = recipe.model_copy(update={"models": _wanted(recipe.models, instead.models)})
    if instead.tuned is not None:
        recipe = recipe.model_copy(update={"models": _tuned(recipe.models, Path(instead.tuned))})
    if instead.values:
        recipe = recipe.model_copy(update={"models": _with_values(recipe.models, instead.values)})
    for entry in recipe.models:
        try:
            entry.check()
        except SettingsError as error:
            raise SettingsError(f"model '{entry.name}' in {where}: {error}") from None
    return recipe


def _overridden(values: dict[str, Any], instead: Instead) -> dict[str, Any]:
    """The values of a TOML file with seeds and trials replaced."""
    if instead.seeds:
        values = {**values, "seeds": instead.seeds}
    if instead.trials is not None:
        search = values.get("search", {})
        values = {**values, "search": {**search, "trials": instead.trials} if isinstance(search, dict) else search}
    return values


def _with_data(recipe: Recipe, data: Path, test: Path | None) -> Recipe:
    entry = DataEntry(path=str(data.absolute()), test=None if test is None else str(test.absolute()))
    return build(Recipe, {**recipe.model_dump(), "data": entry.model_dump()})


def demo_recipe() -> Recipe:
    return read_recipe(str(files("milrec.experiments").joinpath("demo.toml")))


def setting_names(key: str) -> list[str]:
    """The settings that a key of `search` names."""
    return [name.strip() for name in key.split(",")]


def _is_range(choices: dict[str, Any]) -> bool:
    low, high, log = choices.get("low"), choices.get("high"), choices.get("log", False)
    if not isinstance(low, int | float) or not isinstance(high, int | float) or not low < high:
        return False
    return set(choices) <= {"low", "high", "log"} and (not log or low > 0)


def _wanted(entries: list[ModelEntry], names: list[str]) -> list[ModelEntry]:
    known = {entry.name: entry for entry in entries}
    for name in names:
        if name not in known:
            raise SettingsError(f"the recipe has no model '{name}'; its models are {', '.join(known)}")
    return [entry for entry in entries if entry.name in names]


def _tuned(entries: list[ModelEntry], run: Path) -> list[ModelEntry]:
    """Entries that take the values that a finished run chose for models of the same name."""
    found = Results.read(run).tuned()
    for entry in entries:
        if entry.search and entry.name not in found:
            known = ", ".join(found) or "none"
            raise SettingsError(f"the run '{run}' did not tune a model '{entry.name}'; it tuned: {known}")
    return [
        entry.model_copy(update={"tuned": found[entry.name], "search": {}}) if entry.name in found else entry
        for entry in entries
    ]


def _with_values(entries: list[ModelEntry], values: Mapping[str, Any]) -> list[ModelEntry]:
    """Entries with settings replaced, each as far as its model has them; what no model has is refused."""
    known = [entry.chosen().known_keys() for entry in entries]
    for name in values:
        if not any(name in keys for keys in known):
            raise SettingsError(unknown("setting", name, sorted({key for keys in known for key in keys})))
        if any(name in setting_names(key) for entry in entries for key in entry.search):
            raise SettingsError(f"'{name}' is searched by the recipe, so it cannot be set as well")
    return [
        entry.model_copy(
            update={
                "settings": {**entry.settings, **{name: values[name] for name in values if name in keys}},
                "tuned": {name: value for name, value in entry.tuned.items() if name not in values},
            }
        )
        for entry, keys in zip(entries, known, strict=True)
    ]
