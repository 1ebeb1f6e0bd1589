"""Options that several commands have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milrec.errors import SettingsError
from milrec.storage import reserved

if TYPE_CHECKING:
    from milrec.lists.dislikes import Dislikes
    from milrec.probability.aims import Aims

_COST = 0.5  # hits that a dislike costs

Force = Annotated[bool, typer.Option("--force", help="Replace an existing folder of the same kind.")]
_TAIL = "The list's tail (one of these)"
LongShare = Annotated[
    float | None,
    typer.Option(
        help="Share of the list from the long tail, e.g. 0.3: on average over users, for the fewest adoptions lost.",
        rich_help_panel=_TAIL,
    ),
]
MediumShare = Annotated[float | None, typer.Option(help="The same for the medium tail.", rich_help_panel=_TAIL)]
ShortShare = Annotated[float | None, typer.Option(help="The same for the short tail, the hits.", rich_help_panel=_TAIL)]
MeanPopularity = Annotated[
    float | None,
    typer.Option(help="The most adopters that listed items may have, on average.", rich_help_panel=_TAIL),
]
LongBonus = Annotated[
    float | None,
    typer.Option(
        help="λ itself: items are ranked by probability, plus λ for those of the long tail.", rich_help_panel=_TAIL
    ),
]
_SPARED = "Dislikes (needs data with rejections)"
DislikesOf = Annotated[
    Path | None,
    typer.Option(
        "--dislikes",
        metavar="FOLDER",
        help="A model of what users reject, from `milrec fit SPLIT --predict rejections` with the same SPLIT: what "
        "they are likely to dislike moves down.",
        rich_help_panel=_SPARED,
    ),
]
DislikeCost = Annotated[
    float | None,
    typer.Option(
        "--dislike-cost",
        help="How many hits a dislike costs, 0.5 if not given: items are ranked by probability - COST × chance of a "
        "rejection. Goes with neither rules nor a share of the tail.",
        rich_help_panel=_SPARED,
    ),
]
Dial = Annotated[
    float,
    typer.Option(
        help="Old dial, to be removed: rank by score - DIAL × ln(popularity). Use --long-share.", rich_help_panel=_TAIL
    ),
]
ModelClass = Annotated[
    list[str] | None,
    typer.Option(
        "--model-class",
        metavar="MODULE:CLASS",
        help="Your own encoder, e.g. my_encoders:Gated, from the current folder or an installed package.",
    ),
]

UnusedModelClass = Annotated[list[str] | None, typer.Option("--model-class", hidden=True)]  # no model is built

Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="local|auto|HOST:PORT",
        help="Run on a Ray cluster: start one on this machine (local), join the one it is part of (auto), or join "
        "the one at an address. The result is the same. Needs the extra: pip install 'milrec\\[cluster]'.",
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


def dislikes_of(
    folder: Path | None, cost: float | None, cluster: str | None, classes: list[str] | None
) -> Dislikes | None:
    """What a list is to spare users; mistakes are refused before anything else is read."""
    if folder is None:
        if cost is not None:
            raise SettingsError("--dislike-cost needs --dislikes FOLDER")
        return None
    if cluster is not None:
        raise SettingsError("--dislikes works on one machine; leave --cluster out")
    from milrec.recommender import Recommender

    model = Recommender.load(folder, named_classes(classes))
    if not model.fitted.predicts_rejections:
        raise SettingsError(
            f"the model in '{folder}' predicts what users adopt; --dislikes takes one of what they reject, from "
            "milrec fit SPLIT --predict rejections"
        )
    return model.at_cost(_COST if cost is None else cost)


def note_old_dial(dial: float) -> None:
    if dial and isfinite(dial):
        from milrec.cli.output import note

        note("--dial is deprecated: its scale differs from model to model; use --long-share; milrec 0.4.0 removes it")


def aims_of(
    long_share: float | None,
    medium_share: float | None,
    short_share: float | None,
    mean_popularity: float | None,
    long_bonus: float | None,
) -> Aims:
    """What a list should be like on average; mistakes are refused at once."""
    from milrec.probability.aims import Aims, aim_of

    aims = Aims(
        long_share=long_share,
        medium_share=medium_share,
        short_share=short_share,
        mean_popularity=mean_popularity,
        long_bonus=long_bonus,
    )
    aim_of(aims)
    return aims
