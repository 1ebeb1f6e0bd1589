"""Small tables of measures: as aligned text for a terminal, and as HTML for a notebook, light or dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

HEADLINE = ("recall@20", "ndcg@20", "ndcg@100", "novelty_ndcg@100", "coverage@20", "long_share@20")
_LINE = "1px solid rgba(128, 128, 128, 0.45)"  # seen on a light and on a dark page; colours are the page's own
_CELL = f"padding: 2px 12px 2px 0; border-bottom: {_LINE}; text-align: "


@dataclass(frozen=True)
class Table:
    """A title, a row of names, rows of texts of which the first is a name, and a note below."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def text(self) -> str:
        """Names to the left, figures to the right."""
        widths = [max(len(row[place]) for row in (self.columns, *self.rows)) for place in range(len(self.columns))]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
            )
            for row in (self.columns, *self.rows)
        ]
        return "\n".join([self.title, *(line.rstrip() for line in lines), *([self.note] if self.note else [])])

    def html(self) -> str:
        head = "".join(_html_cell(name, place, "col") for place, name in enumerate(self.columns))
        rows = "".join(
            f"<tr>{''.join(_html_cell(cell, place) for place, cell in enumerate(row))}</tr>" for row in self.rows
        )
        note = f"<div><small>{escape(self.note)}</small></div>" if self.note else ""
        caption = f'<caption style="text-align: left">{escape(self.title)}</caption>'
        style = "border-collapse: collapse; color: inherit; background: none"
        return f'<table style="{style}">{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{note}'


def _html_cell(text: str, place: int, scope: str = "") -> str:
    style = f'style="{_CELL}{"left" if place == 0 else "right"}"'
    if scope or place == 0:
        return f'<th scope="{scope or "row"}" {style}>{escape(text)}</th>'
    return f"<td {style}>{escape(text)}</td>"


def figure(measure: str, value: float) -> str:
    """A mean as a person reads it: shares of lists in percent."""
    if math.isnan(value):
        return "–"
    if measure.startswith("rejected_share@"):
        return f"{100 * value:.2f} %"  # kept as a fraction, and small
    if "_share@" in measure:
        return f"{value:.1f} %"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:,.1f}"


def interval(measure: str, low: float, high: float) -> str:
    return "–" if math.isnan(low) or math.isnan(high) else f"{figure(measure, low)} – {figure(measure, high)}"
