"""Figures as SVG text: lines, stacked bars, grouped bars and labelled points. Pure functions, no dependency.

Colours are CSS variables of the page (`--series-0` …, `--short`, `--medium`, `--long`), so that a figure works on a
light and on a dark page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 480, 300
SMALL = (330, 220)  # one of several figures side by side
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 14, 12, 46
_LONGEST = 28  # letters of a name; a longer one is cut


@dataclass(frozen=True)
class Series:
    """One line: its name, its colour and its points; `dash` for a second family of lines."""

    name: str
    colour: str
    xs: Sequence[float]
    ys: Sequence[float]
    dash: str = ""
    tips: Sequence[str] = ()  # tool tips of the marks; by default their values
    hollow: Sequence[bool] = ()  # marks that are drawn as rings


_LEAST = 1e-9  # where a logarithmic axis ends for what is 0 or less


@dataclass(frozen=True)
class Axis:
    """An axis: its label, its range, and whether it is logarithmic."""

    label: str
    low: float
    high: float
    log: bool = False
    percent: bool = False
    whole: bool = False  # ticks at whole numbers only

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high end."""
        if self.log:
            low, high, own = (math.log(max(number, _LEAST)) for number in (self.low, self.high, value))
            return (own - low) / ((high - low) or 1.0)
        return (value - self.low) / ((self.high - self.low) or 1.0)

    def ticks(self) -> list[float]:
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**power for power in range(first, last + 1)]
        step = nice_step(max((self.high - self.low) / 5, 1.0 if self.whole else 0.0))
        count = math.floor((self.high - self.low) / step + 1e-9) + 1
        first_tick = math.ceil(self.low / step - 1e-9) * step
        return [tick for tick in (first_tick + step * number for number in range(count)) if tick <= self.high + 1e-12]


@dataclass(frozen=True)
class Frame:
    """Two axes and the room for a figure."""

    x: Axis
    y: Axis
    width: float = WIDTH
    height: float = HEIGHT

    def left(self, value: float) -> float:
        return _LEFT + (self.width - _LEFT - _RIGHT) * self.x.place(value)

    def top(self, value: float) -> float:
        return self.bottom - (self.bottom - _TOP) * self.y.place(value)

    @property
    def bottom(self) -> float:
        return self.height - _BOTTOM


def axis(label: str, values: Sequence[float], log: bool = False, zero: bool = False, percent: bool = False) -> Axis:
    """An axis that holds the values with a little room; it starts at 0 if `zero`."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if log:
        return Axis(label, max(low, 1e-9), max(high, low * 1.01, 1e-8), log=True)
    if zero:
        low = min(low, 0.0)
    room = 0.06 * ((high - low) or abs(high) or 1.0)
    return Axis(label, low if zero else low - room, high + room, percent=percent)


def nice_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least as large as the given step."""
    if rough <= 0 or not math.isfinite(rough):
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough - 1e-12)


def lines(series: Sequence[Series], frame: Frame, title: str, marks: bool = False, behind: str = "") -> str:
    """Lines over common axes; `marks` draws the points too, each with a tool tip."""
    parts = [behind]
    for one in series:
        parts.append(line(one, frame))
        if marks:
            parts.append(dots(one, frame))
    return _framed(parts, frame, title)


def line(one: Series, frame: Frame) -> str:
    path = " ".join(f"{frame.left(a):.1f},{frame.top(b):.1f}" for a, b in zip(one.xs, one.ys, strict=True))
    dash = f' stroke-dasharray="{one.dash}"' if one.dash else ""
    return (
        f'<polyline fill="none" stroke="var(--{one.colour})" stroke-width="2" stroke-linejoin="round"{dash} '
        f'points="{path}"><title>{escape(one.name)}</title></polyline>'
    )


def dots(one: Series, frame: Frame) -> str:
    """A mark at every point of a line."""
    parts = []
    for number, (a, b) in enumerate(zip(one.xs, one.ys, strict=True)):
        tip = one.tips[number] if one.tips else f"{frame.x.label} {_short(a)}, {_label(frame.y, b)}"
        fill = "var(--card)" if one.hollow and one.hollow[number] else f"var(--{one.colour})"
        parts.append(
            f'<circle cx="{frame.left(a):.1f}" cy="{frame.top(b):.1f}" r="3" fill="{fill}" '
            f'stroke="var(--{one.colour})" stroke-width="1.4">'
            f"<title>{escape(one.name)}: {escape(tip)}</title></circle>"
        )
    return "".join(parts)


def scatter(series: Sequence[Series], frame: Frame, title: str, ring: tuple[float, float] | None = None) -> str:
    """Marks without lines; a ring around one of them."""
    parts = [dots(one, frame) for one in series]
    if ring is not None:
        parts.append(
            f'<circle cx="{frame.left(ring[0]):.1f}" cy="{frame.top(ring[1]):.1f}" r="7" fill="none" '
            f'stroke="var(--ink)" stroke-width="1.6"><title>chosen</title></circle>'
        )
    return _framed(parts, frame, title)


def points(labelled: Sequence[tuple[str, str, float, float]], frame: Frame, title: str) -> str:
    """Points (name, colour, x, y), each with its name next to it, clear of the other names and points."""
    places = [(frame.left(a), frame.top(b)) for _, _, a, b in labelled]
    taken = [(left - 7, top - 7, left + 7, top + 7) for left, top in places]
    parts: list[str] = []
    for (name, colour, a, b), (left, top) in zip(labelled, places, strict=True):
        shown = _fitted(name)
        box = _free_box(left, top, 7.8 * len(shown), taken, frame)
        taken.append(box)
        if box[0] > left:
            anchor, x = "start", box[0]
        elif box[2] < left:
            anchor, x = "end", box[2]
        else:
            anchor, x = "middle", (box[0] + box[2]) / 2
        parts.append(
            f"{_point(name, colour, a, b, frame)}"
            f'<text x="{x:.1f}" y="{box[3] - 3:.1f}" text-anchor="{anchor}" '
            f'style="fill:var(--{colour})">{escape(shown)}</text>'
        )
    return _framed(parts, frame, title)


def points_and_lines(
    unlabelled: Sequence[tuple[str, str, float, float]], curves: Sequence[Series], frame: Frame, title: str
) -> str:
    """Points (name, colour, x, y) over marked lines; the page has the legend."""
    parts = [line(curve, frame) + dots(curve, frame) for curve in curves]
    return _framed([*parts, *(_point(*one, frame) for one in unlabelled)], frame, title)


def _point(name: str, colour: str, a: float, b: float, frame: Frame) -> str:
    return (
        f'<circle cx="{frame.left(a):.1f}" cy="{frame.top(b):.1f}" r="6" fill="var(--{colour})">'
        f"<title>{escape(name)}: {_label(frame.x, a)}, {_label(frame.y, b)}</title></circle>"
    )


Box = tuple[float, float, float, float]  # left, top, right, bottom


def _free_box(left: float, top: float, width: float, taken: Sequence[Box], frame: Frame) -> Box:
    """Where a name of this width fits near a point: the first free place, from near to far."""
    for distance in range(0, 90, 6):
        for sideways, down in ((1, 0), (-1, 0), (0, -1), (0, 1), (1, 1), (-1, 1), (1, -1), (-1, -1)):
            middle = left + sideways * (width / 2 + 10 + (distance if not down else 0))
            height = top + down * (16 + distance)
            box = (middle - width / 2, height - 7, middle + width / 2, height + 7)
            inside = box[0] >= _LEFT and box[2] <= frame.width - 2 and box[1] >= 2 and box[3] <= frame.bottom
            if inside and not any(_overlap(box, other) for other in taken):
                return box
    return (left - width / 2, top - 23, left + width / 2, top - 9)


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def stacked_bars(rows: Sequence[tuple[str, Sequence[float]]], segments: Sequence[tuple[str, str]], title: str) -> str:
    """One bar of 100 % per row, cut into named, coloured segments with their percentages inside."""
    row_height, label_width = (34 if len(rows) <= 6 else 27), _label_width([label for label, _ in rows])
    height = row_height * len(rows) + 8
    parts = []
    for number, (label, values) in enumerate(rows):
        top, left = number * row_height + 6, float(label_width)
        parts.append(
            f'<text x="{label_width - 8}" y="{top + row_height / 2}" text-anchor="end" class="name">'
            f"{escape(_fitted(label))}</text>"
        )
        for value, (name, colour) in zip(values, segments, strict=True):
            width = (WIDTH - label_width - 4) * value / 100
            parts.append(
                f'<rect x="{left:.1f}" y="{top}" width="{max(width - 1.5, 0):.1f}" height="{row_height - 10}" rx="3" '
                f'fill="var(--{colour})"><title>{escape(label)}: {value:.1f} % {escape(name)}</title></rect>'
            )
            if width > 30:
                parts.append(
                    f'<text x="{left + width / 2:.1f}" y="{top + row_height / 2 - 0.5}" text-anchor="middle" '
                    f'class="inside">{value:.0f}</text>'
                )
            left += width
    return _svg("".join(parts), title, WIDTH, height)


def grouped_bars(
    groups: Sequence[str], series: Sequence[tuple[str, str, Sequence[float]]], y: Axis, title: str, x_label: str
) -> str:
    """For every group, one bar per series (name, colour, values)."""
    frame = Frame(Axis(x_label, 0, len(groups)), y)
    slot = (WIDTH - _LEFT - _RIGHT) / max(len(groups), 1)
    bar = slot * 0.8 / max(len(series), 1)
    parts = []
    for place, (name, colour, values) in enumerate(series):
        for number, value in enumerate(values):
            left = _LEFT + slot * (number + 0.1) + bar * place
            top = frame.top(value)
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(bar - (1.5 if bar > 6 else 0.5), 1):.1f}" '
                f'height="{max(frame.bottom - top, 0):.1f}" rx="1" fill="var(--{colour})">'
                f"<title>{escape(name)}, {escape(groups[number])}: {value:.2f} %</title></rect>"
            )
    names = [
        f'<text x="{_LEFT + slot * (number + 0.5):.1f}" y="{frame.bottom + 17}" text-anchor="middle">'
        f"{escape(group)}</text>"
        for number, group in enumerate(groups)
    ]
    return _framed([*parts, *names], frame, title, x_ticks=False)


def zone(frame: Frame, start: float, end: float, colour: str, name: str) -> str:
    """A tinted band behind a figure, with its name at the foot."""
    left, right = frame.left(max(start, frame.x.low)), frame.left(min(end, frame.x.high))
    return (
        f'<rect x="{left:.1f}" y="{_TOP}" width="{max(right - left, 0):.1f}" height="{frame.bottom - _TOP}" '
        f'fill="var(--{colour})" opacity="0.16"><title>{escape(name)}</title></rect>'
        f'<text x="{(left + right) / 2:.1f}" y="{frame.bottom - 8}" text-anchor="middle">{escape(name)}</text>'
    )


def _framed(parts: Sequence[str], frame: Frame, title: str, x_ticks: bool = True) -> str:
    x, y, bottom, right = frame.x, frame.y, frame.bottom, frame.width - _RIGHT
    drawn = [f'<line class="axis" x1="{_LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}"/>']
    for tick in y.ticks():
        top = frame.top(tick)
        drawn.append(f'<line class="grid" x1="{_LEFT}" y1="{top:.1f}" x2="{right}" y2="{top:.1f}"/>')
        drawn.append(f'<text x="{_LEFT - 7}" y="{top + 4:.1f}" text-anchor="end">{_tick(y, tick)}</text>')
    for tick in x.ticks() if x_ticks else []:
        drawn.append(f'<text x="{frame.left(tick):.1f}" y="{bottom + 17}" text-anchor="middle">{_tick(x, tick)}</text>')
    drawn.append(
        f'<text x="{(_LEFT + right) / 2}" y="{frame.height - 8}" text-anchor="middle" class="label">'
        f"{escape(x.label)}</text>"
        f'<text transform="rotate(-90)" x="{-(_TOP + bottom) / 2}" y="15" text-anchor="middle" class="label">'
        f"{escape(y.label)}</text>"
    )
    return _svg("".join([*drawn, *parts]), title, frame.width, frame.height)


def _svg(content: str, title: str, width: float, height: float) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{content}</svg>'
    )


def _tick(one: Axis, value: float) -> str:
    return f"{value:g} %" if one.percent else _short(value)


def _label(one: Axis, value: float) -> str:
    return f"{one.label} {value:.1f} %" if one.percent else f"{one.label} {value:.4g}"


def _short(value: float) -> str:
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    if abs(value) >= 1_000:
        return f"{value / 1_000:g}k"
    return f"{value:.4g}"


def _fitted(label: str) -> str:
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"


def _label_width(labels: Sequence[str]) -> float:
    """Room for the longest of these names."""
    return max(142, 14 + 7.6 * max(len(_fitted(label)) for label in labels))
