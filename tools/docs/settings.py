"""The reference of settings, made from their definitions: names, defaults, ranges and what they do."""

from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from tools.docs.markup import plain, table

_LEFT_OUT = ("model", "loss")  # these say which settings they are


def reference() -> str:
    """Markdown: a table for each model, each loss, target sets and training."""
    from milrec.losses import LOSSES
    from milrec.models.settings import MODELS
    from milrec.training.sections import TargetSettings, TrainingSettings

    parts = ["## Models"]
    parts += [part for name, section in MODELS.items() for part in _section(name, section)]
    parts.append("## Losses")
    parts += [part for name, section in LOSSES.items() for part in _section(name, section)]
    parts += ["## Target sets", _about(TargetSettings), _table(TargetSettings)]
    parts += ["## Training", _about(TrainingSettings), _table(TrainingSettings)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(name: str, section: type[Any]) -> list[str]:
    return [f"### {name}", _about(section), _table(section)]


def _about(section: type[Any]) -> str:
    return plain(" ".join((section.__doc__ or "").split("\n\n")[0].split()))


def _table(section: type[Any]) -> str:
    rows = [
        [f"`{name}`", f"`{_default(field)}`", _allowed(field), plain(field.description or "")]
        for name, field in section.model_fields.items()
        if name not in _LEFT_OUT
    ]
    return table(["setting", "default", "allowed", ""], rows) or "It has no settings."


def _default(field: FieldInfo) -> str:
    return "unset" if field.default is None else str(field.default)


def _allowed(field: FieldInfo) -> str:
    words = []
    for kind in _kinds(field.annotation):
        if get_origin(kind) is Literal:
            words += [f"`{value}`" for value in get_args(kind)]
        elif kind is not type(None):
            words.append({float: "number", int: "whole number", str: "text"}.get(kind, plain(str(kind))))
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "\\<"}
    bounds = [
        f"{sign} {getattr(limit, name):,}"
        for limit in field.metadata
        for name, sign in signs.items()
        if getattr(limit, name, None) is not None
    ]
    return ", ".join([*words, *bounds])


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a type: of int | None, int and None."""
    return get_args(annotation) if get_args(annotation) and get_origin(annotation) is not Literal else (annotation,)
