"""The figures of the report page."""

from __future__ import annotations

from collections.abc import Sequence

from milrec.records import TailName
from milrec.report import svg
from milrec.report.paper import CE, MIL, MIL_PAIRS, MULTI
from milrec.report.summary import TAILS, Entry, entry_of, smoothed
from milrec.report.svg import Axis, Frame, Series
from milrec.report.tables import PREFERENCE_NAMES, settings_text
from milrec.results import DataFacts, Results, Search

DASHES: dict[TailName, str] = {"short": "", "medium": "8 4", "long": "1.5 4"}  # as in the paper's figure 2
_OWN_DASHES = ("6 4", "2 3", "10 3 2 3")  # pairs of A and γ that are not the paper's
_NEAR = 0.7  # of the best accuracy: what is below would spoil the scale
_CURVES = {tail: f"evolution_{tail}" for tail, _ in TAILS}


def draw(results: Results, entries: Sequence[Entry]) -> dict[str, str]:
    """Every figure for which the run has data, by its name in the page."""
    shown = focus(entries)
    drawn = {
        "shares": shares(entries),
        "evolution": evolution(shown),
        **{_CURVES[tail]: evolution_of(entries, tail, name) for tail, name in TAILS if len(entries) > len(shown)},
        "trade": trade(entries),
        "frontier": frontier(entries),
        "reliability": reliability(entries),
        "popularity": popularity(results.data),
        "preferences": preferences(entries),
        "learning": learning(entries),
        "missing_term": missing_term(used_pairs(entries)) if used_pairs(entries) else "",
    }
    return {name: svg for name, svg in drawn.items() if svg}


def focus(entries: Sequence[Entry]) -> list[Entry]:
    """The models of the paper's figure 2, or if the run has none of them, its first three."""
    found = [entry for model in (MIL, CE, MULTI) if (entry := entry_of(entries, model)) is not None]
    return found or list(entries[:3])


def shares(entries: Sequence[Entry]) -> str:
    rows = [(entry.title, [found[tail] for tail, _ in TAILS]) for entry in entries if (found := entry.shares())]
    segments = [(name, tail) for tail, name in TAILS]
    return svg.stacked_bars(rows, segments, "Shares of the top 200 by tail interval") if rows else ""


def evolution(entries: Sequence[Entry]) -> str:
    """All three intervals of a few models in one figure, like the paper's figure 2."""
    curves = [
        Series(f"{entry.title}, {name}", entry.colour, list(range(1, len(places) + 1)), places, DASHES[tail])
        for entry in entries
        for tail, name in TAILS
        if (places := _percent(entry, tail))
    ]
    return _places(curves, "Share of users with an item of each tail interval at each place", "users")


def evolution_of(entries: Sequence[Entry], tail: TailName, name: str) -> str:
    """One interval, for all models."""
    curves = [
        Series(entry.title, entry.colour, list(range(1, len(places) + 1)), places)
        for entry in entries
        if (places := _percent(entry, tail))
    ]
    title = f"Share of users with a {name} item at each place of the list"
    return _places(curves, title, "users", svg.SMALL)


def _percent(entry: Entry, tail: TailName) -> list[float]:
    return [100 * share for share in smoothed(entry.evolution(tail))]


def _places(curves: Sequence[Series], title: str, label: str, size: tuple[int, int] = (svg.WIDTH, svg.HEIGHT)) -> str:
    if not curves:
        return ""
    x = Axis("place in the list", 1, max(2, *(len(curve.xs) for curve in curves)))
    y = svg.axis(label, [value for curve in curves for value in curve.ys], zero=True, percent=True)
    return svg.lines(curves, Frame(x, y, *size), title)


def trade(entries: Sequence[Entry]) -> str:
    """Accuracy against the long tail: a point for each model, and a line over its dials if it has any."""
    near, _ = near_and_far(entries)
    floor = _NEAR * max(entry.mean("ndcg@100") or 0.0 for entry in entries)
    known = [
        (entry.title, entry.colour, long, accuracy)
        for entry in near
        if (long := entry.mean("long_share@200")) is not None and (accuracy := entry.mean("ndcg@100")) is not None
    ]
    if not known:
        return ""
    curves = [curve for entry in near if (curve := _dialled(entry, floor)).xs]
    longs = [*(point[2] for point in known), *(value for curve in curves for value in curve.xs)]
    accuracies = [*(point[3] for point in known), *(value for curve in curves for value in curve.ys)]
    x, y = svg.axis("long-tail share of the top 200", longs, percent=True), svg.axis("NDCG@100", accuracies)
    title = "Accuracy against long-tail share"
    if names_beside(entries):
        return svg.points(known, Frame(x, y), title)
    return svg.points_and_lines(known, curves, Frame(x, y), title)


def names_beside(entries: Sequence[Entry]) -> bool:
    """Whether `trade` has room for the names next to its points; otherwise it needs a legend."""
    return len(entries) <= 6 and not any(entry.dialled() for entry in entries)


def near_and_far(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Models that can share a scale of accuracy, and those so far below the best that they would spoil it."""
    accuracy = {entry.name: entry.mean("ndcg@100") or 0.0 for entry in entries}
    floor = _NEAR * max(accuracy.values()) if len(entries) > 4 else 0.0
    near = [entry for entry in entries if accuracy[entry.name] >= floor]
    return near, [entry for entry in entries if accuracy[entry.name] < floor]


def _dialled(entry: Entry, floor: float) -> Series:
    points = [point for point in entry.dialled() if point.accuracy >= floor]
    tips = [
        f"dial {point.dial:g}, NDCG@100 {point.accuracy:.4f}, long tail {point.long_share:.1f} %" for point in points
    ]
    longs, accuracies = [point.long_share for point in points], [point.accuracy for point in points]
    return Series(entry.title, entry.colour, longs, accuracies, tips=tips)


def frontier(entries: Sequence[Entry]) -> str:
    """Accuracy over the long-tail share of the first 20 places, with the same dial for every model."""
    curves = [_aimed(entry) for entry in entries if entry.aimed()]
    if not curves:
        return ""
    x = svg.axis("long-tail share of the first 20", [value for curve in curves for value in curve.xs], percent=True)
    y = svg.axis("NDCG@20", [value for curve in curves for value in curve.ys])
    return svg.points_and_lines([], curves, Frame(x, y), "Accuracy at each long-tail share")


def _aimed(entry: Entry) -> Series:
    points = sorted(entry.aimed(), key=lambda point: point.long_share)
    tips = [
        f"{entry.title}, {'as it is' if point.wanted is None else f'λ = {point.bonus:.3g}'}: "
        f"{point.long_share:.1f} % long tail, NDCG@20 {point.accuracy:.4f}"
        for point in points
    ]
    longs, accuracies = [point.long_share for point in points], [point.accuracy for point in points]
    return Series(
        entry.title, entry.colour, longs, accuracies, tips=tips, hollow=[one.wanted is None for one in points]
    )


def reliability(entries: Sequence[Entry]) -> str:
    """Predicted probabilities against the shares that were held out, both logarithmic; dashed: by the link alone."""
    kept = [_reliable(entry, False) for entry in entries if entry.reliability()]
    by_link = [_reliable(entry, True) for entry in entries if entry.reliability(by_link=True)]
    values = [value for curve in (*kept, *by_link) for value in (*curve.xs, *curve.ys) if value > 0]
    if not values:
        return ""
    ends = [min(values), max(values)]
    x, y = svg.axis("predicted probability", ends, log=True), svg.axis("share held out", ends, log=True)
    right = svg.line(Series("predicted = held out", "soft", ends, ends, "3 3"), Frame(x, y))
    dashed = "".join(svg.line(curve, Frame(x, y)) for curve in by_link)
    return svg.lines(kept, Frame(x, y), "Reliability of the probabilities", marks=True, behind=right + dashed)


def _reliable(entry: Entry, by_link: bool) -> Series:
    bins = [one for one in entry.reliability(by_link) if one.predicted > 0 and one.observed > 0]
    name = f"{entry.title}, by its link and one factor" if by_link else entry.title
    tips = [
        f"{name}: predicted {one.predicted:.3g}, held out {one.observed:.3g} ({one.held_out:,} pairs)" for one in bins
    ]
    predicted, observed = [one.predicted for one in bins], [one.observed for one in bins]
    return Series(name, entry.colour, predicted, observed, "6 4" if by_link else "", tips=tips)


def preferences(entries: Sequence[Entry]) -> str:
    known = [(entry.title, entry.colour, found) for entry in entries if (found := entry.preferences()) is not None]
    y, title = Axis("items per user", 0, 100, percent=True), "Distribution of predicted preferences"
    return svg.grouped_bars(PREFERENCE_NAMES, known, y, title, "predicted preference") if known else ""


def learning(entries: Sequence[Entry]) -> str:
    """Validation while fitting, for the first seed of each model."""
    curves = [
        Series(entry.title, entry.colour, history.epochs, history.measures)
        for entry in entries
        if (history := entry.curve()) is not None
    ]
    if not curves:
        return ""
    x = svg.axis("epochs", [value for curve in curves for value in curve.xs], zero=True)
    measures = {entry.runs[0].settings.measure for entry in entries if entry.runs[0].history is not None}
    known = measures.pop() if len(measures) == 1 else None
    name = "measure" if known is None else known.replace("ndcg", "NDCG")
    y = svg.axis(f"validation {name}", [value for curve in curves for value in curve.ys])
    return svg.lines(curves, Frame(x, y), "Validation measure over epochs", marks=True)


def popularity(data: DataFacts) -> str:
    (short, medium), n_items = data.interval_cuts, data.items
    ranks, adopters = [rank for rank, _ in data.popularity_curve], [count for _, count in data.popularity_curve]
    x = Axis("items, most popular first", 1, max(n_items, 2), log=True)
    frame = Frame(x, svg.axis("adopters", adopters, log=True))
    zones = "".join(
        svg.zone(frame, start, end, tail, tail)
        for (tail, _), start, end in zip(TAILS, (1, short, medium), (short, medium, n_items), strict=True)
    )
    line = Series("adopters", "ink", ranks, adopters)
    return svg.lines([line], frame, "Popularity curve of the training data", behind=zones)


def used_pairs(entries: Sequence[Entry]) -> list[tuple[float, float]]:
    """A and γ of the MIL models of a run."""
    pairs = [pair for entry in entries if (pair := entry.runs[0].settings.missing_term) is not None]
    return list(dict.fromkeys(pairs))


def missing_term_lines(used: Sequence[tuple[float, float]]) -> list[tuple[str, str, str]]:
    """Name, colour and dash of the lines of `missing_term`: the paper's pairs, then others of the run."""
    here = "" if set(MIL_PAIRS) <= set(used) else " (in this run)"  # if all are, there is nothing to tell apart
    lines = [
        (_pair_text(pair) + (here if pair in used else ""), f"ramp-{number}", "")
        for number, pair in enumerate(MIL_PAIRS)
    ]
    others = [pair for pair in used if pair not in MIL_PAIRS]
    return lines + [
        (_pair_text(pair) + here, "ink", _OWN_DASHES[number % len(_OWN_DASHES)]) for number, pair in enumerate(others)
    ]


def missing_term(used: Sequence[tuple[float, float]]) -> str:
    """A·(q-½)^(2γ) over the predicted preference q, for the paper's pairs (its figure 1) and the run's own."""
    grid = [step / 200 for step in range(201)]
    pairs = [*MIL_PAIRS, *(pair for pair in used if pair not in MIL_PAIRS)]
    curves = [
        Series(name, colour, grid, [weight * abs(q - 0.5) ** (2 * exponent) for q in grid], dash)
        for (name, colour, dash), (weight, exponent) in zip(missing_term_lines(used), pairs, strict=True)
    ]
    y = svg.axis("loss of a missing item", [value for curve in curves for value in curve.ys], zero=True)
    return svg.lines(curves, Frame(Axis("predicted preference", 0, 1), y), "The missing term of MIL")


def _pair_text(pair: tuple[float, float]) -> str:
    weight, exponent = pair
    digits, _, power = f"{weight:e}".partition("e")
    height = f"{float(digits):g}e{int(power)}" if weight >= 1e4 else f"{weight:g}"
    return f"A = {height}, γ = {exponent:g}"


def trials(search: Search, colour: str) -> str:
    """The trials of a search by number: given-up ones hollow, the chosen one ringed."""
    known = [(trial, trial.value) for trial in search.trials if trial.value is not None]
    if not known:
        return ""
    numbers, values = [trial.number + 1 for trial, _ in known], [value for _, value in known]
    tips = [f"{settings_text(trial.values)}; {value:.4f}, {trial.state}" for trial, value in known]
    marks = Series("trial", colour, numbers, values, tips=tips, hollow=[trial.state != "done" for trial, _ in known])
    chosen = search.best()
    x = Axis("trial", 0, len(search.trials) + 1, whole=True)
    y = svg.axis(f"validation {search.measure.replace('ndcg', 'NDCG')}", values)
    ring = None if chosen is None or chosen.value is None else (chosen.number + 1, chosen.value)
    return svg.scatter([marks], Frame(x, y, *svg.SMALL), f"Trials of {search.name}", ring)
