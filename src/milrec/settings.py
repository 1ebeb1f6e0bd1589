"""Settings are frozen values that come from TOML, JSON or `KEY=VALUE`; an unknown key is an error that lists the known.

A fit has four sections of settings: the model, the loss (in losses.py), the target set and the training. Their field
names are all different, so that a user says `missing_weight=5e5` or `epochs=30` without naming a section.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from milrec.errors import SettingsError

S = TypeVar("S", bound="Settings")


class Settings(BaseModel):
    """A frozen value with checked fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)


def build(settings: type[S], values: Mapping[str, Any], where: str = "") -> S:
    """Settings from plain values; what is wrong becomes one sentence that lists what is known."""
    try:
        return settings.model_validate(dict(values))
    except ValidationError as error:
        raise SettingsError(_sentence(error, settings, where)) from None


def changed(settings: S, values: Mapping[str, Any]) -> S:
    """The same settings with some fields replaced, checked again."""
    return build(type(settings), {**settings.model_dump(), **values})


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts as a mapping; `none` unsets a value. Numbers are recognised by the field they go to."""
    values: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise SettingsError(f"'{text}' is not a setting; write KEY=VALUE, for example epochs=30")
        if key.strip() in values:
            raise SettingsError(f"setting '{key.strip()}' is given twice")
        values[key.strip()] = None if value.strip().lower() == "none" else value.strip()
    return values


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"there is no file '{path}'") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(f"'{path}' is not readable TOML ({error})") from None


def _owner(settings: type[Settings], path: tuple[int | str, ...]) -> type[Settings]:
    """The settings that a path within settings leads to, as far as it can be followed."""
    for part in path:
        field = settings.model_fields.get(str(part))
        if field is not None:
            kinds = [field.annotation, *get_args(field.annotation)]
            settings = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Settings)), settings)
    return settings


def _sentence(error: ValidationError, settings: type[Settings], where: str) -> str:
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")  # a misspelt key before a missing one
    key = ".".join(str(part) for part in first["loc"])
    place = f" in {where}" if where else ""
    if first["type"] == "extra_forbidden":
        known = ", ".join(_owner(settings, first["loc"][:-1]).model_fields)
        return f"unknown setting '{key}'{place}; known settings: {known}"
    if not key or first["type"] == "value_error":
        return first["msg"].removeprefix("Value error, ") + place
    if first["type"] == "missing":
        return f"setting '{key}'{place} is missing"
    return f"setting '{key}'{place} is {first['input']!r}: {first['msg'][0].lower()}{first['msg'][1:]}"
