"""A run on the command line: bars while it lasts, the table at the end, and the report."""

from __future__ import annotations

from pathlib import Path

from milrec.cli.output import measures_table
from milrec.cli.progress import RunDisplay
from milrec.errors import FitError
from milrec.experiments.recipe import Recipe
from milrec.experiments.run import run
from milrec.report.page import write_report


def run_in_view(recipe: Recipe, out: Path, at_once: int | None = None) -> Path:
    """Carry out a recipe, show its table and write its report; jobs that failed are named at the end."""
    n_jobs = sum(recipe.n_trials(entry) + len(entry.seeds(recipe.seeds)) for entry in recipe.models)
    with RunDisplay(n_jobs) as display:
        try:
            results = run(recipe, out, display, at_once)
        except KeyboardInterrupt:
            display.stage("Interrupted; the same command resumes the run")
            raise
    failures = "; ".join(f"{failure.name}: {failure.error}" for failure in results.failures)
    if not results.models:
        raise FitError(f"every model failed ({failures})")
    measures_table(results)
    page = write_report(results, out / "report.html")
    if failures:
        raise FitError(f"the run ended with failures, which the same command tries again: {failures}")
    return page
