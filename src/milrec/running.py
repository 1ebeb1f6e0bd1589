"""A run as the command line shows it: bars, the table at the end, and the report."""

from __future__ import annotations

from pathlib import Path

from milrec.bars import RunDisplay
from milrec.errors import FitError
from milrec.experiment import run
from milrec.recipes import Recipe
from milrec.report import write_report
from milrec.show import measures_table


def run_in_view(recipe: Recipe, out: Path, at_once: int | None = None) -> Path:
    """Carry a recipe out, show its table and write its report; jobs that failed are named at the end."""
    n_jobs = sum(recipe.n_trials(entry) + len(entry.seeds(recipe.seeds)) for entry in recipe.models)
    with RunDisplay(n_jobs) as display:
        try:
            results = run(recipe, out, display, at_once)
        except KeyboardInterrupt:
            display.stage("Interrupted; the same command goes on where it was")
            raise
    failures = "; ".join(f"{failure['name']}: {failure['error']}" for failure in results["failures"])
    if not results["models"]:
        raise FitError(f"every model failed ({failures})")
    measures_table(results)
    page = write_report(results, out / "report.html")
    if failures:
        raise FitError(f"the run ended with failures, and the same command tries again: {failures}")
    return page
