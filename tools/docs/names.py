"""The reference of the library: what `import milrec` offers, by what one does with it."""

from typing import Any

GROUPS = {
    "Data": ("read", "Interactions", "simulate", "Simulation"),
    "Splits": ("split_interactions", "split_users", "split_given", "Split"),
    "Fits": ("fit", "refit", "settings_for", "check_encoder", "MissingInformationLoss"),
    "Models and lists": ("load", "Recommender", "Query", "Rule"),
    "Measures": ("Evaluation", "compare", "Comparison"),
    "Errors": ("MilrecError",),
}


def reference() -> str:
    """Markdown for mkdocstrings; a name that no group has is under More."""
    import milrec

    public = [name for name in milrec.__all__ if not name.startswith("__")]
    grouped = [name for names in GROUPS.values() for name in names]
    groups = {**GROUPS, "More": tuple(name for name in public if name not in grouped)}
    parts = []
    for title, wanted in groups.items():
        if names := [name for name in wanted if name in public]:
            parts += [f"## {title}", *(f"::: {home(getattr(milrec, name))}.{name}" for name in names)]
        if title == "Errors":
            parts.append(_errors(milrec.MilrecError))
    return "\n\n".join(parts) + "\n"


def home(value: Any) -> str:
    """The module in which something is defined."""
    return str(value.__module__)


def _errors(parent: type[Exception]) -> str:
    """A line for each kind of error."""
    lines = [f"- `{one.__module__}.{one.__name__}`: {one.__doc__}" for one in parent.__subclasses__()]
    return "Its kinds, each of which can be caught by itself:\n\n" + "\n".join(lines)
