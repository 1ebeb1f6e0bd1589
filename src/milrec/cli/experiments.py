"""The commands that carry out recipes and write reports: demo, experiment, paper, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milrec.cli.options import Cluster
from milrec.errors import SettingsError, cut, unknown

if TYPE_CHECKING:
    from milrec.results import PaperDataSet, PaperTableName

Only = Annotated[list[str] | None, typer.Option(help="Only this model of the recipe; may be repeated.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="A setting of all models that have it, e.g. epochs=30; may be repeated.", metavar="KEY=VALUE"
    ),
]
Jobs = Annotated[int | None, typer.Option(min=1, help="Fits to run at once; by default one per core.")]
EstimateOnly = Annotated[
    bool,
    typer.Option("--estimate", help="Only say how many fits there are and how long they will take."),
]


def demo(out: Annotated[Path, typer.Option(help="Folder for the run and its report.")] = Path("milrec-demo")) -> None:
    """Simulate a catalogue, fit four models and write a report: the whole product in two minutes."""
    from milrec.cli.output import say
    from milrec.cli.run_view import run_in_view
    from milrec.experiments.recipe import demo_recipe

    say(f"Report: {run_in_view(demo_recipe(), out, announced=False).resolve()}")


def experiment(
    recipe: Annotated[Path, typer.Argument(help="Recipe, a TOML file.")],
    out: Annotated[Path, typer.Option(help="Run folder; an interrupted run in it is resumed.")],
    data: Annotated[Path | None, typer.Option(help="Data folder to use instead of the recipe's.")] = None,
    test: Annotated[Path | None, typer.Option(help="Data folder to use as the test part of --data.")] = None,
    only: Only = None,
    tuned: Annotated[
        Path | None,
        typer.Option(help="Finished run, on this or other data, whose tuned values are used instead of a search."),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Seed to use instead of the recipe's; may be repeated.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Trials per model, instead of the recipe's number.")] = None,
    set: Set = None,
    jobs: Jobs = None,
    estimate: EstimateOnly = False,
    cluster: Cluster = None,
) -> None:
    """Run a recipe: search for settings on validation, fit and evaluate every model with every seed.

    Writes results.json and a report. It may be stopped at any time: the same command resumes it. Before it begins it
    says how many fits there are and, judging by a few steps of each model, how long they take.
    """
    if not recipe.is_file():
        raise SettingsError(f"there is no file '{recipe}'")
    from milrec.cli.output import say
    from milrec.experiments.recipe import Instead, read_recipe
    from milrec.settings import parse_assignments

    instead = Instead(test, only, tuned, seed, trials, parse_assignments(set or []))
    wanted = read_recipe(recipe, data, instead)
    from milrec.cli.run_view import estimate_in_view, run_in_view, run_on_cluster

    if estimate and cluster is not None:
        raise SettingsError("--estimate times fits on this machine; leave --cluster out")
    if estimate:
        estimate_in_view(wanted, out, jobs)
        return
    page = run_in_view(wanted, out, jobs) if cluster is None else run_on_cluster(wanted, out, jobs, cluster)
    say(f"Results: {out / 'results.json'}")
    say(f"Report: {page}")


def paper(
    dataset: Annotated[str, typer.Argument(help="ml-20m, netflix or lastfm-360k.")],
    source: Annotated[Path, typer.Option(help="The original archive of the data set, or the folder unpacked from it.")],
    out: Annotated[Path, typer.Option(help="Run folder; an interrupted run in it is resumed.")],
    table: Annotated[
        str, typer.Option(help="metrics: table 2, 3 or 4 of the paper; held-out-users: table 5, for ml-20m.")
    ] = "metrics",
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Search the paper's ranges with this many trials per model; by default, the values that it names.",
        ),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Seed of the fits (0); may be repeated.")] = None,
    only: Only = None,
    last: Annotated[
        bool, typer.Option("--last", help="Keep the weights of the last step, not those that are best on validation.")
    ] = False,
    set: Set = None,
    jobs: Jobs = None,
    estimate: EstimateOnly = False,
) -> None:
    """Fit the paper's models to one of its data sets, by its own protocol, and show their figures beside the paper's.

    Prepares and splits the data as the paper does and fits each model for 120,000 or 180,000 steps, which takes hours
    or days: --estimate says how long. It may be stopped at any time: the same command resumes it.
    """
    from milrec.cli.output import facts_table, note, say
    from milrec.experiments.paper import paper_recipe, prepare_data
    from milrec.experiments.recipe import Instead
    from milrec.report.paper import data_set_of_size, other_data
    from milrec.settings import parse_assignments

    name, wanted_table = _paper_table(dataset, table)
    instead = Instead(models=only, seeds=seed, trials=trials, values=parse_assignments(set or []))
    wanted = paper_recipe(name, wanted_table, out, instead, last)
    if any(entry.search for entry in wanted.models):
        from milrec.experiments.search import optuna_library

        optuna_library()  # before the data, which take their time
    facts = prepare_data(wanted, source, out, say)
    facts_table(f"Data: {out / 'data'}", {key: facts[key] for key in ("source", "users", "items", "adopted")})
    if data_set_of_size(facts["users"], facts["items"]) != name:
        note(other_data(name, facts["users"], facts["items"]))
    from milrec.cli.run_view import estimate_in_view, run_beside_paper

    if estimate:
        estimate_in_view(wanted, out, jobs)
        return
    page = run_beside_paper(wanted, out, jobs)
    say(f"Results: {out / 'results.json'}")
    say(f"Report: {page}")


def _paper_table(dataset: str, table: str) -> tuple[PaperDataSet, PaperTableName]:
    """A data set and a table of the paper by name, if the paper has that table for it."""
    from milrec.report.paper import DATA_SETS, HELD_OUT, METRICS, figures

    name = next((known for known in DATA_SETS if known == dataset), None)
    if name is None:
        raise SettingsError(unknown("data set", dataset, DATA_SETS))
    tables = {"metrics": METRICS, "held-out-users": HELD_OUT}
    if table not in tables:
        raise SettingsError(unknown("table", table, tables))
    if not figures(tables[table], name):
        has = ", ".join(known for known in DATA_SETS if figures(tables[table], known))
        raise SettingsError(f"the paper has no table '{cut(table)}' for {name}, only for {has}")
    return name, tables[table]


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
