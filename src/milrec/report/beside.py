"""Our figures next to the paper's, as tables of the report page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from milrec.report import paper
from milrec.report.summary import TAILS, Entry
from milrec.report.tables import NAMES, PREFERENCE_NAMES, Cell, Row, Table

Figures = Mapping[str, tuple[float | None, float | None]]  # metric → mean and standard deviation over seeds


@dataclass(frozen=True)
class _Source:
    """A table of the paper: what we call its metrics, and how to get our figures for them."""

    table: str
    title: str
    names: Mapping[str, str]
    ours: Callable[[Entry], Figures]
    digits: int
    room: float  # up to this difference, figures agree


def _our_measures(entry: Entry) -> Figures:
    return {measure: (entry.mean(measure), entry.deviation(measure)) for measure in NAMES}


def _our_shares(entry: Entry) -> Figures:
    return {tail: (share, entry.deviation(f"{tail}_share@200")) for tail, share in (entry.shares() or {}).items()}


def _our_preferences(entry: Entry) -> Figures:
    return dict(zip(paper.PREFERENCE_BINS, ((share, None) for share in entry.preferences() or ()), strict=False))


_SHARE_NAMES: dict[str, str] = {tail: f"{name}, %" for tail, name in TAILS}
_BIN_NAMES = {bin_: f"{name}, %" for bin_, name in zip(paper.PREFERENCE_BINS, PREFERENCE_NAMES, strict=True)}
_SOURCES = (
    _Source(paper.METRICS, "Relevance and novelty", NAMES, _our_measures, 3, paper.UNCERTAINTY),
    _Source(paper.HELD_OUT, "Held-out users", NAMES, _our_measures, 3, paper.UNCERTAINTY),
    _Source(paper.SHARES, "Shares of the top 200", _SHARE_NAMES, _our_shares, 1, paper.SHARE_ROOM),
    _Source(paper.PREFERENCES, "Predicted preferences", _BIN_NAMES, _our_preferences, 1, paper.SHARE_ROOM),
)


def beside_paper(entries: Sequence[Entry], reference: paper.Reference, cuts: Sequence[int]) -> list[Table]:
    """Our figures with the paper's below them: measures, top-200 shares, preferences and interval cuts."""
    wanted = (reference.table, paper.SHARES, paper.PREFERENCES)
    found = [_beside(entries, reference, source) for source in _SOURCES if source.table in wanted]
    return [*(table for table in found if table is not None), _cuts(reference, cuts)]


def _beside(entries: Sequence[Entry], reference: paper.Reference, source: _Source) -> Table | None:
    theirs = paper.figures(source.table, reference.dataset)
    metrics = [metric for metric in source.names if any(metric in values for values in theirs.values())]
    rows = []
    for entry in entries:
        if (model := paper.model_of(entry.name, theirs)) is not None:
            ours = source.ours(entry)
            cells = [
                _against(ours.get(metric, (None, None)), theirs[model].get(metric), source, not reference.differs)
                for metric in metrics
            ]
            rows.append(Row(entry.name, entry.colour, cells))
    if not rows:
        return None
    here = {paper.key(row.name) for row in rows}
    absent = [model for model in theirs if paper.key(model) not in here]
    return Table(
        f"{source.title} ({paper.table_name(source.table, reference.dataset)}, {reference.data.title})",
        f"Not in this run: {', '.join(absent)}." if absent else "",
        [(source.names[metric], "") for metric in metrics],
        rows,
        f"within {source.room:g}{'' if source.digits == 3 else ' percentage points'} of the paper",
    )


def _against(
    figure: tuple[float | None, float | None], theirs: float | None, source: _Source, comparable: bool
) -> Cell:
    """Ours, and below it the paper's with the difference; a mark if they agree as printed."""
    (ours, deviation), digits = figure, source.digits
    text = "–" if ours is None else f"{ours:.{digits}f}"
    if ours is not None and deviation is not None:
        text += f" ± {deviation:.{digits}f}"
    if theirs is None:
        return _beside_cell(text, "–")
    if ours is None or not comparable:
        return _beside_cell(text, f"{theirs:.{digits}f}")
    difference = round(ours - theirs, digits) + 0.0  # no -0
    agrees = abs(difference) <= source.room + 1e-9
    return _beside_cell(text, f"{theirs:.{digits}f}", f"{difference:+.{digits}f}", agrees)


def _beside_cell(ours: str, theirs: str, difference: str = "", agrees: bool = False) -> Cell:
    marked = f"{difference}{' ✓' if agrees else ''}"
    below = f"paper {theirs}, {marked}" if difference else f"paper {theirs}"
    return Cell(ours, below, "good" if agrees else "", theirs=theirs, difference=marked)


def _cuts(reference: paper.Reference, cuts: Sequence[int]) -> Table:
    cells = []
    for ours, theirs in zip(cuts, reference.data.cuts, strict=True):
        agrees = not reference.differs and abs(ours - theirs) <= paper.CUT_ROOM * theirs
        cells.append(_beside_cell(str(ours), str(theirs), "" if reference.differs else f"{ours - theirs:+d}", agrees))
    title = f"Interval cuts ({paper.table_name('cuts', reference.dataset)}, {reference.data.title})"
    columns = [("short → medium", "items with the first third"), ("medium → long", "items with two thirds")]
    return Table(title, "", columns, [Row("items", "", cells)], f"within {100 * paper.CUT_ROOM:g} % of the paper")
