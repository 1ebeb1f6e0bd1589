"""The commands that carry out recipes and write reports: demo, experiment, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from milrec.errors import SettingsError


def demo(out: Annotated[Path, typer.Option(help="Folder for the run and its report.")] = Path("milrec-demo")) -> None:
    """Simulate a catalogue, fit four models and write a report: the whole product in two minutes."""
    from milrec.cli.output import say
    from milrec.cli.run_view import run_in_view
    from milrec.experiments.recipe import demo_recipe

    say(f"Report: {run_in_view(demo_recipe(), out).resolve()}")


def experiment(
    recipe: Annotated[Path, typer.Argument(help="Recipe, a TOML file.")],
    out: Annotated[Path, typer.Option(help="Run folder; an interrupted run in it is resumed.")],
    data: Annotated[Path | None, typer.Option(help="Data folder to use instead of the recipe's.")] = None,
    test: Annotated[Path | None, typer.Option(help="Data folder to use as the test part of --data.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this model of the recipe; may be repeated.")] = None,
    tuned: Annotated[
        Path | None,
        typer.Option(help="Finished run, on this or other data, whose tuned values are used instead of a search."),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Seed to use instead of the recipe's; may be repeated.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Trials per model, instead of the recipe's number.")] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A setting of all models that have it, e.g. epochs=30; may be repeated.", metavar="KEY=VALUE"
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Fits to run at once; by default one per core.")] = None,
) -> None:
    """Carry out a recipe: search for settings on validation, fit and evaluate every model with every seed.

    Writes results.json and a report. It may be stopped at any time: the same command resumes it.
    """
    if not recipe.is_file():
        raise SettingsError(f"there is no file '{recipe}'")
    from milrec.cli.output import say
    from milrec.cli.run_view import run_in_view
    from milrec.experiments.recipe import Instead, read_recipe
    from milrec.settings import parse_assignments

    instead = Instead(test, only, tuned, seed, trials, parse_assignments(set or []))
    wanted = read_recipe(recipe, data, instead)
    page = run_in_view(wanted, out, jobs)
    say(f"Results: {out / 'results.json'}")
    say(f"Report: {page}")


def report(
    run: Annotated[Path, typer.Argument(help="Run folder from experiment or demo, or a results.json file.")],
    out: Annotated[Path | None, typer.Option(help="HTML file to write; by default RUN/report.html.")] = None,
) -> None:
    """Write the report of a run: one HTML file that opens offline."""
    from milrec.cli.output import say
    from milrec.report.page import write_report
    from milrec.results import Results, results_file

    page = out or results_file(run).with_name("report.html")
    say(f"Report: {write_report(Results.read(run), page)}")
