"""`milrec fit --help` lists what can be set: each setting with its default and what it is. No torch here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from rich.markup import escape
from typer.core import TyperCommand

_HEADING = (
    "[bold]Settings: --set KEY=VALUE[/]\n"
    "With their defaults. KEY=none unsets a setting. The paper's models have their own: see milrec models."
)


class FitCommand(TyperCommand):
    """A command whose help ends with a list of settings, which is put together when somebody asks for it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        before = self.epilog
        self.epilog = f"{before}\n\n{_HEADING}\n" + "\n".join(settings_lines())
        try:
            super().format_help(ctx, formatter)
        finally:
            self.epilog = before


def settings_lines() -> Iterator[str]:
    """Every setting of a fit, by what it belongs to."""
    from milrec.losses import LOSSES
    from milrec.models.settings import MODELS
    from milrec.training.presets import settings_for

    own = settings_for("dae")
    yield from _section("How a model with a loss is fitted", own.training)
    yield from _section("Which missing items enter its loss", own.target_set)
    for name, loss in LOSSES.items():
        yield from _section(f"--loss {name}", loss())
    for name, kind in MODELS.items():
        yield from _section(f"--model {name}", kind.model_validate({"model": name}))


def _section(title: str, settings: BaseModel | None) -> Iterator[str]:
    """A heading, and a line for each setting; nothing if there is none to set."""
    fields = {} if settings is None else type(settings).model_fields
    shown = [(name, field) for name, field in fields.items() if name not in ("model", "loss")]
    if shown:
        yield f"\n[bold]{escape(title)}[/]"
    for name, field in shown:
        value = getattr(settings, name)
        default = "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        yield f"[cyan]{name}[/]={escape(default)}  {escape(field.description or '')}"
