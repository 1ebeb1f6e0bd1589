"""The command line: one thin function per command. Errors are one sentence and a non-zero code, never a traceback.

Heavy modules are imported inside the commands, so that `--help` and errors appear at once.
"""

from __future__ import annotations

import errno
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from milrec.cli.data import Force, download, prepare, simulate, split
from milrec.cli.errors import in_options
from milrec.cli.lists import Dial, items, recommend, similar
from milrec.cli.serve import serve, serve_demo
from milrec.errors import FolderError, MilrecError, SettingsError
from milrec.losses import LOSSES
from milrec.models.settings import MODELS

app = typer.Typer(
    name="milrec",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Recommend from implicit feedback without mistaking missing for disliked.\n\n"
    "To see what it does: milrec demo. With your own table: prepare → split → fit → evaluate → recommend.",
)


class PartName(StrEnum):
    validation = "validation"
    test = "test"


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"milrec {version('milrec')}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Folder for the run and its report.")] = Path("milrec-demo")) -> None:
    """Simulate a catalogue, fit four models and write a report: the whole product in two minutes."""
    from milrec.cli.experiments import run_in_view
    from milrec.cli.output import say
    from milrec.experiments.recipe import demo_recipe

    say(f"Report: {run_in_view(demo_recipe(), out).resolve()}")


for data_command in (download, simulate, prepare, split):
    app.command()(data_command)


@app.command()
def fit(
    split: Annotated[Path, typer.Argument(help="Split folder.")],
    out: Annotated[Path, typer.Option(help="Model folder to write.")],
    model: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(MODELS)}, or a row of the paper: see milrec models."),
    ] = None,
    loss: Annotated[str | None, typer.Option(help=", ".join(sorted(LOSSES)))] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting by name, e.g. epochs=30; may be repeated. A wrong name lists the right ones.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same weights.", min=0)] = 0,
    refit: Annotated[
        bool,
        typer.Option("--refit", help="Then fit again on training + validation, for as many steps as validation chose."),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted fit.")] = False,
    force: Force = False,
) -> None:
    """Fit a model; by default a denoising autoencoder with the missing information loss and early stopping."""
    from milrec.cli.fit import FolderFit
    from milrec.settings import parse_assignments
    from milrec.training.presets import settings_for

    FolderFit(split, out, settings_for(model, loss, parse_assignments(set or [])), seed, refit).run(resume, force)


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="Model folder.")],
    split: Annotated[Path, typer.Argument(help="The split folder that the model was fitted to.")],
    on: Annotated[PartName, typer.Option(help="The part to evaluate on.")] = PartName.test,
    json: Annotated[Path | None, typer.Option(help="Write all measures to this file.")] = None,
    dial: Dial = 0.0,
) -> None:
    """Measure a model's lists: accuracy, novelty, and how they spread over the popularity tail."""
    from milrec.storage import check_place, open_folder, write_json

    if json is not None:
        check_place(json)
    open_folder(model, "model")
    open_folder(split, "split")
    from milrec.cli.output import evaluation_table
    from milrec.cli.progress import progress_bar
    from milrec.data.splits import Split
    from milrec.recommender import Recommender

    recommender, divided = Recommender.load(model), Split.load(split)
    with progress_bar("Evaluating", "users") as report:
        found = recommender.evaluate(divided, on.value, report, dial)
    if json is not None:
        write_json(json, found.as_json())
    evaluation_table(f"{model} on {on.value}" + (f", dial {dial:g}" if dial else ""), found)


for list_command in (recommend, similar, items, serve, serve_demo):
    app.command()(list_command)


@app.command()
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
    jobs: Annotated[int | None, typer.Option(min=1, help="Fits to run at once; by default one per core.")] = None,
) -> None:
    """Carry out a recipe: search for settings on validation, fit and evaluate every model with every seed.

    Writes results.json and a report. It may be stopped at any time: the same command resumes it.
    """
    if not recipe.is_file():
        raise SettingsError(f"there is no file '{recipe}'")
    from milrec.cli.experiments import run_in_view
    from milrec.cli.output import say
    from milrec.experiments.recipe import Instead, read_recipe

    wanted = read_recipe(recipe, data, Instead(test, only, tuned, seed, trials))
    page = run_in_view(wanted, out, jobs)
    say(f"Results: {out / 'results.json'}\nReport: {page}")


@app.command()
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


@app.command()
def models() -> None:
    """List the models, the paper's names for them, and the losses."""
    from milrec.cli.output import models_table

    models_table()


@app.command()
def show(path: Annotated[Path, typer.Argument(help="A data, split, model or run folder.")]) -> None:
    """Check a folder and show what is in it."""
    from milrec.cli.output import show_folder
    from milrec.storage import folder_kind, open_folder

    if not path.exists():
        raise FolderError(f"there is no folder '{path}'")
    kind = folder_kind(path)
    if kind is None:
        raise FolderError(f"'{path}' is not a milrec folder")
    show_folder(open_folder(path, kind))


def main() -> None:
    """Run a command. A mistake ends it with one sentence and code 1 (wrong usage: 2), an interrupt with code 130."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where an error of it is told like any other
    except MilrecError as error:
        _fail(in_options(str(error)), 1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _fail("the disk is full; nothing was half-written", 1)
        _fail(f"{error.strerror or error}: '{error.filename}'" if error.filename else str(error), 1)
    except MemoryError:
        _fail("there is not enough memory", 1)


def _fail(sentence: str, code: int) -> None:
    sys.stderr.write(f"milrec: {sentence}\n")
    sys.exit(code)
