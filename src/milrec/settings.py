"""Settings are frozen values from TOML, JSON or `KEY=VALUE`; an unknown key is an error that lists the known ones.

A fit has four sections of settings: the model, the loss (in losses.py), the target set and the training. Their field
names are all different, so `missing_weight=5e5` or `epochs=30` need not name a section.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from milrec.disk.files import read_text
from milrec.errors import SettingsError, cut, hint

S = TypeVar("S", bound="Settings")
_LARGEST_NUMBER = 3.4e38  # single precision ends just above
_LARGEST_COUNT = 2**53


class Settings(BaseModel):
    """A frozen value with checked fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)


class Section(Settings):
    """A section of the settings of a fit; its numbers must be such that a fit can compute with them."""

    @model_validator(mode="after")
    def _numbers_can_be_used(self) -> Self:
        for key in type(self).model_fields:
            value = getattr(self, key)
            largest = _LARGEST_COUNT if isinstance(value, int) else _LARGEST_NUMBER
            if isinstance(value, int | float) and abs(value) > largest:
                raise ValueError(f"{key} is {shown(value)}, which is too large to compute with")
        return self


def build(settings: type[S], values: Mapping[str, Any], where: str = "") -> S:
    """Settings from plain values; a mistake becomes an error of one sentence."""
    if not isinstance(values, Mapping):
        raise SettingsError(f"{where or 'a section of settings'} must be a table of settings, not {shown(values)}")
    try:
        return settings.model_validate(dict(values))
    except ValidationError as error:
        raise SettingsError(sentence_of(error.errors(include_url=False), settings, where)) from None


def changed(settings: S, values: Mapping[str, Any]) -> S:
    """The same settings with some fields replaced, checked again."""
    return build(type(settings), {**settings.model_dump(), **values})


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts as a mapping; `none` unsets a value. The field decides whether a text is a number."""
    values: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise SettingsError(f"'{cut(text)}' is not a setting; write KEY=VALUE, for example epochs=30")
        if key.strip() in values:
            raise SettingsError(f"setting '{cut(key.strip())}' is given twice")
        values[key.strip()] = None if value.strip().lower() == "none" else value.strip()
    return values


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise SettingsError(f"there is no file '{path}'") from None
    except tomllib.TOMLDecodeError as error:
        what, _, where = str(error).removesuffix(")").rpartition(" (at ")
        raise SettingsError(f"'{path}' is not valid TOML: {what[:1].lower()}{what[1:]} at {where}") from None
    except (ValueError, RecursionError, OSError) as error:
        raise SettingsError(f"'{path}' cannot be read as TOML ({error})") from None


def sentence_of(errors: Sequence[Any], form: type[BaseModel], where: str = "", noun: str = "setting") -> str:
    """What pydantic found wrong with the values for a form, in one sentence; a misspelt name before a missing one."""
    first = min(errors, key=lambda one: one["type"] != "extra_forbidden")
    owner, key = _followed(form, first["loc"])
    place = f" in {where}" if where else ""
    named = f"{noun} '{key}'{place}"
    message: str = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        close = hint(key.rpartition(".")[2], owner.model_fields)
        return f"unknown {named}{close}; known {noun}s: {', '.join(owner.model_fields)}"
    if not key:
        return message + place
    if first["type"] == "missing":
        return f"{named} is missing"
    if first["type"] == "value_error":
        return f"{named}: {message}"
    return f"{named} is {shown(first['input'])}; {_plain(message)}"


_PLAIN = {
    "Input should be ": "it must be ",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "text",
    "a valid list": "a list",
    "a valid boolean": "true or false",
    "a valid dictionary": "an object",
    ", unable to parse string as an integer": "",
    ", unable to parse string as a number": "",
    ", unable to interpret input": "",
}


def _plain(message: str) -> str:
    """What pydantic says of a value, in plain words."""
    for theirs, ours in _PLAIN.items():
        message = message.replace(theirs, ours)
    return message[0].lower() + message[1:]


def shown(value: Any) -> str:
    """A value as an error shows it, not too much of it."""
    try:
        return cut(repr(value[:80] if isinstance(value, str | list) else value))
    except RecursionError:
        return f"a {type(value).__name__} in which hundreds of others are nested"


def _followed(form: type[BaseModel], path: Sequence[int | str]) -> tuple[type[BaseModel], str]:
    """The form that a path of pydantic's leads to, and the path as a user would write it.

    Where a value may have one of several forms, the path names the chosen one by its tag, which the user did not write.
    """
    keys: list[str] = []
    tagged: dict[Any, type[BaseModel]] = {}
    for part in path:
        field = form.model_fields.get(str(part))
        if field is None and part in tagged:
            form = tagged[part]
            continue
        if field is not None:
            forms = _forms_in(field.annotation)
            form = forms[0] if forms else form
            tagged = {tag: one for one in forms for tag in _tags(one)}
        keys.append(str(part))
    return form, ".".join(keys)


def _forms_in(kind: Any) -> list[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [form for part in get_args(kind) for form in _forms_in(part)]


def _tags(form: type[BaseModel]) -> list[Any]:
    """What a form is recognised by: the fields that have only one value."""
    kinds = [field.annotation for field in form.model_fields.values()]
    return [get_args(kind)[0] for kind in kinds if get_origin(kind) is Literal and len(get_args(kind)) == 1]
