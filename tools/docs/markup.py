"""Small pieces of Markdown."""

from collections.abc import Sequence


def plain(text: str) -> str:
    """Text in which nothing is markup."""
    for mark in "|<*_[":
        text = text.replace(mark, f"\\{mark}")
    return text


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, or nothing if it has no rows."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else ""
