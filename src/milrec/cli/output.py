"""What the command line prints: tables and facts on standard output, notes on standard error."""

from __future__ import annotations

import csv
import json
import math
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from milrec.data.roles import REJECTIONS
from milrec.errors import FolderError, printable
from milrec.losses import LOSSES
from milrec.models.settings import MODELS
from milrec.probability.calibration import Calibration
from milrec.records import TAIL_NAMES, damaged
from milrec.results import FitHistory, Results
from milrec.storage import Manifest
from milrec.training.presets import LARGER, PAPER_MODELS, own_settings
from milrec.training.settings import FitSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from milrec.evaluation.evaluation import Evaluation
    from milrec.experiments.estimate import Estimate

_NUMBERS = ("position", "score", "probability", "popularity", "blend", "own")
_RUN_WIDTH = 100  # columns of the table and the words at the end of a run, if the terminal has as many


def say(text: str) -> None:
    """Print a line to standard output."""
    sys.stdout.write(printable(text) + "\n")


def note(text: str) -> None:
    """Print a note to standard error."""
    sys.stderr.write(f"note: {printable(text)}\n")


def facts_table(title: str, facts: Mapping[str, Any]) -> None:
    say(title)
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        say(f"  {name.replace('_', ' '):<{width}}  {_plain(value)}")


def evaluation_table(title: str, found: Evaluation) -> None:
    """All means with their intervals, then the shares of the tail."""
    from milrec.evaluation.tables import figure, interval

    table = Table(title=_shown(title), title_justify="left")
    table.add_column("measure")
    table.add_column("mean", justify="right")
    table.add_column("95 % interval", justify="right")
    for name, value in found.measures.items():
        low, high = found.intervals.get(name, (math.nan, math.nan))
        table.add_row(name, figure(name, value), interval(name, low, high))
    _console().print(table)
    shares = ", ".join(f"{name} {found.top_shares[name]:.1f} %" for name in TAIL_NAMES)
    say(
        f"Users with items to find: {found.n_users:,} "
        f"(pairs dropped, item not in the catalogue: {found.dropped_targets:,})"
    )
    say(f"Top 200 by tail: {shares} (cuts {found.interval_cuts[0]} / {found.interval_cuts[1]})")
    if found.preference_distribution is not None:
        names = ("<.01", "<.25", "<.5", "<.7", "<.9", "≤1")
        pairs = zip(names, found.preference_distribution, strict=True)
        say("Predicted preferences: " + ", ".join(f"{name}: {value:.1f} %" for name, value in pairs))


def measures_table(results: Results) -> None:
    """The models of a run, one per row, by the three headline measures: those in front are green."""
    from milrec.report.summary import entries_of
    from milrec.report.tables import headline_bars
    from milrec.report.verdict import Scene

    scene = Scene(results, entries_of(results))
    table = Table(title=_shown(results.title), title_justify="left")
    table.add_column("model")
    for headline in scene.headlines:
        table.add_column(f"{headline.name}\n{headline.technical}", justify="right", no_wrap=True)
    for entry, bars in headline_bars(scene):
        shown = [f"{bar.text} ({bar.below})" if bar.below else bar.text for bar in bars]
        cells = [f"[bold green]{text}[/]" if bar.in_front else text for text, bar in zip(shown, bars, strict=True)]
        table.add_row(_shown(entry.title), *cells)
    _console(_RUN_WIDTH).print(table)


def say_verdict(results: Results) -> None:
    """What a run found, in words, wrapped to the terminal."""
    from milrec.report.verdict import verdict

    width = min(_RUN_WIDTH, max(40, shutil.get_terminal_size((_RUN_WIDTH, 24)).columns))
    say("")
    for sentence in verdict(results):
        for line in textwrap.wrap(printable(sentence), width, break_long_words=False, break_on_hyphens=False):
            say(line)
    say("")


def beside_paper_table(results: Results) -> None:
    """Each figure of a run next to the paper's; differences only where the data are the paper's."""
    from milrec.report import paper
    from milrec.report.beside import beside_paper
    from milrec.report.summary import entries_of

    reference = paper.reference(results)
    assert reference is not None  # the recipe names a table of the paper
    table = Table(title=_shown(results.title), title_justify="left")
    table.add_column("model", no_wrap=True)
    table.add_column("measure", no_wrap=True)
    for name in ("ours", "paper", "difference"):
        table.add_column(name, justify="right")
    for part in beside_paper(entries_of(results), reference, results.data.interval_cuts):
        for row in part.rows:
            for (measure, _), cell in zip(part.columns, row.cells, strict=True):
                cells = (row.name, measure, cell.text, cell.theirs, cell.difference or "–")
                table.add_row(*map(_shown, cells))
        table.add_section()
    _console().print(table)


def estimate_table(estimate: Estimate) -> None:
    """What is left of a run, model by model."""
    from milrec.experiments.estimate import duration
    from milrec.experiments.probes import Timing

    table = Table(title="Left to do", title_justify="left")
    table.add_column("model", no_wrap=True)
    for name in ("trials", "fits", "steps of a fit", "a step", "a fit", "in all"):
        table.add_column(name, justify="right")
    for part in estimate.parts:
        steps, step = "–", "–"
        if isinstance(part.timing, Timing) and part.timing.step_seconds is not None:
            steps, step = f"{part.timing.steps:,}", f"{1000 * part.timing.step_seconds:.1f} ms"
        times = (duration(part.final_seconds), duration(part.seconds)) if part.seconds else ("–", "–")
        table.add_row(_shown(part.name), str(part.left.trials), str(part.left.fits), steps, step, *times)
    _console().print(table)


def table_of_lists(lists: pa.Table) -> None:
    """Lists as a table on a terminal, as tab-separated text in a pipe."""
    names = lists.column_names
    if not sys.stdout.isatty():
        writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
        writer.writerow(names)
        writer.writerows([printable(_cell(row[name], name)) for name in names] for row in lists.to_pylist())
        return
    table = Table()
    for name in names:
        table.add_column(name, justify="right" if name in _NUMBERS else "left")
    for row in lists.to_pylist():
        table.add_row(*(_shown(_cell(row[name], name)) for name in names))
    _console().print(table)


def models_table() -> None:
    """Every name that `--model` and `--loss` take."""
    table = Table(title="Models: milrec fit SPLIT --out MODEL --model NAME", title_justify="left")
    for name in ("name", "model", "encoder-decoder", "loss", "λ", "target factor", "steps"):
        table.add_column(name)
    for name, settings in PAPER_MODELS.items():
        table.add_row(name, settings.model.title, *_model_cells(settings))
    table.add_section()
    for name, kind in MODELS.items():
        table.add_row(name, kind.title, *_own_cells(own_settings(name)))
        for larger in (own for own, (model, _) in LARGER.items() if model == name):
            table.add_row(larger, f"{kind.title}, larger", *_own_cells(own_settings(larger)))
    _console().print(table)
    say("The first rows are the paper's settings, stopped early on validation; --set patience=0 runs them to the end.")
    say("Losses:")
    for name, loss in LOSSES.items():
        say(f"  {name:<12} {(loss.__doc__ or '').strip().splitlines()[0]}")


def show_folder(manifest: Manifest) -> None:
    """The facts of a folder that has been checked, except for long ones."""
    history = _history_of(manifest)
    settings = manifest.facts.get("settings") or {}
    if not isinstance(settings, dict) or not all(isinstance(one, dict | None) for one in settings.values()):
        raise FolderError(f"'{manifest.path}' is damaged: its settings are not tables")
    facts = {
        name: value
        for name, value in manifest.facts.items()
        if name not in ("settings", "history", "recipe", "calibration")
    }
    if facts.get("predicts") == REJECTIONS and {"adopted", "rejected"} <= set(facts):  # it learned them exchanged
        facts |= {"adopted": facts["rejected"], "rejected": facts["adopted"]}
        facts.pop("density", None)
    facts_table(f"{manifest.path}: a milrec {manifest.kind} folder, checked", {"kind": manifest.kind, **facts})
    if history is not None and history.iterations:
        kept = f", the weights of step {history.kept_iteration} kept" if history.measures else ""
        best = f"; best {_plain(max(history.measures))}" if history.measures else ""
        say(f"  fitted to step {history.iterations[-1]}{kept}{best}")
    if isinstance(calibration := manifest.facts.get("calibration"), dict):
        say(f"  probabilities: {_calibration_text(calibration, manifest)}")
    for section, values in settings.items():
        if values:
            say(f"  {section}: " + ", ".join(f"{key}={_plain(value)}" for key, value in values.items()))
    for name in sorted(manifest.hashes):
        say(f"  {name}  {(manifest.path / name).stat().st_size:,} bytes")
    if manifest.kind == "run":
        _show_jobs(manifest.path)


def _calibration_text(saved: dict[str, Any], manifest: Manifest) -> str:
    try:
        found = Calibration.model_validate_json(json.dumps(saved), strict=True)
    except ValidationError as error:
        raise damaged(error, f"'{manifest.path}'") from None
    return f"{found.kind}, on {found.held_out:,} validation pairs"


def _history_of(manifest: Manifest) -> FitHistory | None:
    saved = manifest.facts.get("history")
    try:
        return None if saved is None else FitHistory.model_validate_json(json.dumps(saved), strict=True)
    except ValidationError as error:
        raise damaged(error, f"'{manifest.path}'") from None


def _show_jobs(run: Path) -> None:
    """What a run has finished, what failed, and what it is doing."""
    from milrec.experiments.protocol import Broken, Done, Failed, is_running, jobs_of

    jobs = jobs_of(run)
    fits = [(job.title, outcome) for job, outcome in jobs if job.judged]
    trials = Counter(outcome.state for job, outcome in jobs if not job.judged and outcome is not None)
    say(f"  finished: {'; '.join(title for title, one in fits if isinstance(one, Done)) or 'nothing yet'}")
    if trials:
        say("  trials of searches: " + ", ".join(f"{count} {state}" for state, count in trials.items()))
    for job, outcome in jobs:
        if isinstance(outcome, Failed | Broken):
            say(f"  failed: {job.title}: {outcome.error}")
    if begun := [job.title for job, outcome in jobs if outcome is None]:
        say(f"  {'under way' if is_running(run) else 'interrupted'}: {'; '.join(begun)}")


def _model_cells(settings: FitSettings) -> tuple[str, str, str, str, str]:
    """Encoder and decoder, loss, λ, target factor and length of a fit."""
    model, loss, training, target_set = settings.model, settings.loss, settings.training, settings.target_set
    if loss is None or training is None:
        return "–", "–", "–", "–", model.how
    pair = f"{getattr(model, 'encoder', '')}-{getattr(model, 'decoder', '')}"
    factor = "all items"
    if target_set is not None:
        drawn = {"auto": "expected", "per_user": "drawn per user"}.get(target_set.target_set, target_set.target_set)
        factor = f"{target_set.target_factor:g}, {drawn}"
    length = model.how if training.epochs is None else f"{training.epochs} epochs"
    length = length if training.iterations is None else f"{training.iterations:,}"
    return pair, loss.loss, f"{training.weight_decay:g}", factor, length


def _own_cells(fits: Sequence[FitSettings]) -> list[str]:
    """One row for a model under all its losses: what they share, or that it depends on the loss."""
    columns = [list(dict.fromkeys(cells)) for cells in zip(*map(_model_cells, fits), strict=True)]
    pairs, losses, decays, factors, lengths = columns
    factors = [factor for factor in factors if factor != "all items"] or factors  # some losses have no target set
    losses = losses if len(losses) == 1 else ["any, --loss"]
    return [one[0] if len(one) == 1 else "by loss" for one in (pairs, losses, decays, factors, lengths)]


def _shown(text: str) -> str:
    """A text in a table: rich must not take its brackets for colours, nor the terminal its bytes for commands."""
    return escape(printable(text))


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(one)}" for key, one in value.items())
    if isinstance(value, bool) or value is None:
        return {None: "–", True: "yes", False: "no"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(value: Any, column: str) -> str:
    if value is None:
        return ""
    digits = ".3g" if column == "probability" else ".4f"  # which may be very small
    return format(value, digits) if isinstance(value, float) else str(value)


def _console(most: int = 150) -> Console:
    """Wide enough for a table even if the width of the terminal is not known."""
    if not sys.stdout.isatty():
        return Console(width=most)
    return Console(width=min(most, shutil.get_terminal_size().columns) if most < 150 else None)
