"""Options that several commands have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from milrec.storage import reserved

Force = Annotated[bool, typer.Option("--force", help="Replace an existing folder of the same kind.")]
Dial = Annotated[
    float,
    typer.Option(help="Rank by score - DIAL × ln(popularity): above 0 favours rare items, below 0 popular ones."),
]
ModelClass = Annotated[
    list[str] | None,
    typer.Option(
        "--model-class",
        metavar="MODULE:CLASS",
        help="Your own encoder, e.g. my_encoders:Gated, from the current folder or an installed package.",
    ),
]


def reserving(kind: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that writes a folder `out`: its place is checked, and kept from others, before the command begins."""

    def of(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def reserved_command(*arguments: Any, out: Path, force: bool = False, **values: Any) -> None:
            with reserved(out, kind, force):
                command(*arguments, out=out, force=force, **values)

        return reserved_command

    return of


def named_classes(paths: list[str] | None) -> list[type[Any]]:
    """The encoders that somebody named; their modules may lie in the current folder."""
    if not paths:
        return []
    from milrec.models.encoders import import_encoder

    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)  # last: nothing in it takes the place of an installed module
    return [import_encoder(path) for path in paths]
