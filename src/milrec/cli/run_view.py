"""A run on the command line: its size before it begins, bars while it lasts, the table at the end, and the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from milrec.cli.output import beside_paper_table, estimate_table, measures_table, note, say, say_verdict
from milrec.cli.progress import RunDisplay
from milrec.errors import FitError
from milrec.experiments.estimate import Estimate
from milrec.experiments.pool import Crew
from milrec.experiments.recipe import Recipe
from milrec.experiments.run import estimate, run
from milrec.report.page import write_report
from milrec.results import Results


def run_in_view(
    recipe: Recipe,
    out: Path,
    at_once: int | None = None,
    announced: bool = True,
    table: Callable[[Results], None] = measures_table,
    crew: Crew | None = None,
) -> Path:
    """Carry out a recipe, show its table and write its report; jobs that failed are named at the end."""
    n_jobs = sum(recipe.n_trials(entry) + len(entry.seeds(recipe.seeds)) for entry in recipe.models)
    with RunDisplay(n_jobs, [entry.name for entry in recipe.models]) as display:

        def announce(size: Estimate) -> None:
            for sentence in size.sentences():
                display.stage(sentence)

        try:
            results = run(recipe, out, display, at_once, announce if announced else None, crew)
        except KeyboardInterrupt:
            display.stage("Interrupted; the same command resumes the run")
            raise
    failures = "; ".join(f"{failure.name}: {failure.error}" for failure in results.failures)
    if not results.models:
        raise FitError(f"every model failed ({failures})")
    table(results)
    say_verdict(results)
    page = write_report(results, out / "report.html")
    if failures:
        say(f"Report: {page}")
        raise FitError(f"the run ended with failures; run the same command to try them again: {failures}")
    return page


def run_on_cluster(recipe: Recipe, out: Path, at_once: int | None, address: str) -> Path:
    """The same, with its jobs on a cluster."""
    from milrec.cluster.jobs import ClusterCrew
    from milrec.cluster.session import joined

    with joined(address) as cluster:
        cluster.check([out.resolve().parent])
        note(str(cluster))
        return run_in_view(recipe, out, crew=ClusterCrew(cluster, at_once))


def run_beside_paper(recipe: Recipe, out: Path, at_once: int | None = None) -> Path:
    """The same with a table that has the paper's figures beside ours."""
    return run_in_view(recipe, out, at_once, table=beside_paper_table)


def estimate_in_view(recipe: Recipe, out: Path, at_once: int | None = None) -> None:
    """Show how large a run is and how long it takes, and fit nothing."""
    with RunDisplay(0) as display:
        size = estimate(recipe, out, display, at_once)
    estimate_table(size)
    for sentence in size.sentences():
        say(sentence)
    say("Nothing has been fitted; the same command without --estimate begins, or resumes, the run.")
