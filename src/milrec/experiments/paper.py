"""The paper's tables from its own data: the recipe, and the data that are prepared from an original archive.

The models have the paper's settings and its protocol (`training.presets.PAPER_MODELS`). `paper.toml` next to this file
has those of tables 2 to 4, `paper-held-out-users.toml` those of table 5, both with the ranges that can be searched.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from milrec.data.reading.archives import LASTFM_FILE, detected
from milrec.data.reading.read import prepare_source
from milrec.data.reading.sources import refuse_special
from milrec.errors import DataError, FolderError, SettingsError
from milrec.experiments.folder import opened, refuse_other_folder
from milrec.experiments.recipe import Instead, Recipe, recipe_from
from milrec.results import PaperDataSet, PaperTableName
from milrec.settings import read_toml
from milrec.storage import bring_back, open_folder
from milrec.training.presets import PAPER_MODELS

FORMATS: dict[PaperDataSet, str] = {"ml-20m": "movielens", "netflix": "netflix", "lastfm-360k": "lastfm"}
TO_THE_END = {"patience": 0}  # never stop early
LAST_WEIGHTS = {**TO_THE_END, "slack": 1}  # and keep the weights of the last step
_RECIPES: dict[PaperTableName, str] = {"metrics": "paper.toml", "held-out users": "paper-held-out-users.toml"}
_FILES = (LASTFM_FILE, "ratings.csv", "ratings.dat", "u.data", "combined_data_1.txt", "training_set.tar")
_READ = re.compile(r"usersha1-|ratings\.|movies\.|movie_titles|u\.(data|item|genre)|combined_data_|training_set|mv_")
_MARK = "source_sha256"


def paper_recipe(
    dataset: PaperDataSet, table: PaperTableName, out: Path, instead: Instead, last: bool = False
) -> Recipe:
    """The recipe of a table of the paper for a data set, with its data in the run folder `out`.

    Without a number of trials nothing is searched: the models have the values that the paper names. With `last`, the
    weights of the last step are kept, not those that are best on validation, for all models that have the paper's
    protocol. Models go by their name in the paper's tables or by that of their settings: 'MIL lin-sig', 'mil-lin-sig'.
    """
    values = read_toml(Path(str(files("milrec.experiments").joinpath(_RECIPES[table]))))
    models: list[dict[str, Any]] = values["models"]
    for model in models:
        if instead.trials is None:
            model.pop("search", None)
        if model["model"] in PAPER_MODELS:
            model["settings"] = LAST_WEIGHTS if last else TO_THE_END
    values["title"] = f"{values['title']}: {dataset}"
    values["description"] = f"{values['description']} {_choices(instead.trials, last)}"
    values["paper"] = {"table": table, "dataset": dataset}
    values["data"] = {"path": str((out / "data").absolute())}
    if last and (both := sorted(set(LAST_WEIGHTS) & set(instead.values))):
        raise SettingsError(f"`last` sets {' and '.join(LAST_WEIGHTS)}; leave out {both[0]}, or `last`")
    names = {model["model"]: model["name"] for model in models}
    only = None if instead.models is None else [names.get(name, name) for name in instead.models]
    return recipe_from(values, "the paper's recipe", replace(instead, models=only))


def _choices(trials: int | None, last: bool) -> str:
    """What was chosen on validation, in words."""
    kept = "Kept are the weights of the last step." if last else "Kept are the weights that are best on validation."
    if trials is None:
        return f"Settings are those that the paper names; nothing was searched. {kept}"
    return f"Settings were searched in the paper's ranges, with at most {trials} trials for each model. {kept}"


def prepare_data(recipe: Recipe, source: Path, out: Path, stage: Callable[[str], None]) -> dict[str, Any]:
    """Prepare the data of a run, with the paper's filters, from an original archive or the folder unpacked from it.

    What has been prepared from the same source is kept. Returns the facts of the data folder.
    """
    assert recipe.paper is not None
    if not source.exists():
        raise DataError(f"there is no file or folder '{source}'")
    refuse_special(source)
    refuse_other_folder(out)
    place, data = source.parent if source.name in _FILES else source, out / "data"
    bring_back(data)
    if data.exists():
        kept = open_folder(data, "data").facts
        if kept.get(_MARK) != _mark(place):
            raise FolderError(
                f"'{data}' was not prepared from '{source}' (but from '{kept.get('source')}'); "
                "choose another place for the run"
            )
        return kept
    _refuse_other_files(recipe.paper.dataset, place, source)
    stage(f"Reading {source} with the paper's filters")
    read_as, rows, filters, prepared = prepare_source(place, FORMATS[recipe.paper.dataset])
    if rows.note:
        stage(rows.note)
    chosen = {name: limit for name, limit in vars(filters).items() if limit is not None}
    facts = {"source": source.name, _MARK: _mark(place), "format": read_as, "filters": chosen}
    with opened(recipe, out):
        prepared.interactions.save(data, facts)
    return open_folder(data, "data").facts


def _refuse_other_files(dataset: PaperDataSet, place: Path, source: Path) -> None:
    found = detected(place)
    if found != FORMATS[dataset]:
        what = f"its files are in the format of {found}" if found else "none of its files is known"
        raise DataError(
            f"'{source}' is not {dataset}: {what}; give the original archive, or the folder unpacked from it"
        )


def _mark(place: Path) -> str:
    """By which a source is recognised: the content of an archive, the names and sizes of the files to be read."""
    if place.is_file():
        with place.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    files = [file for file in sorted(place.rglob("*")) if file.is_file() and _READ.match(file.name)]
    sizes = [(str(file.relative_to(place)), file.stat().st_size) for file in files]
    return hashlib.sha256(json.dumps(sizes).encode()).hexdigest()
