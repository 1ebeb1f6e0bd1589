"""The command line: one thin function per command. Errors are one sentence and a non-zero code, never a traceback.

Heavy modules are imported inside the commands, so that `--help` and errors appear at once.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from milrec.cli.data import download, prepare, simulate, split
from milrec.cli.errors import in_options
from milrec.cli.experiments import demo, experiment, paper, report
from milrec.cli.fit import evaluate, fit
from milrec.cli.lists import items, recommend, similar
from milrec.cli.serve import serve, serve_demo
from milrec.errors import FolderError, MilrecError, printable, system_sentence

app = typer.Typer(
    name="milrec",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Recommend from implicit feedback without mistaking missing for disliked.\n\n"
    "To see what it does: milrec demo. With your own table: prepare → split → fit → evaluate → recommend.",
)


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
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error that milrec did not expect.")
    ] = False,
) -> None:
    """The options of every command; the last resort in crash.py looks for --debug itself."""


def models() -> None:
    """List the models, the paper's names for them, and the losses."""
    from milrec.cli.output import models_table

    models_table()


def show(path: Annotated[Path, typer.Argument(help="A data, split, model or run folder.")]) -> None:
    """Check a folder and show what is in it."""
    from milrec.cli.output import show_folder
    from milrec.storage import bring_back, folder_kind, open_folder

    bring_back(path)
    if not path.exists():
        raise FolderError(f"there is no folder '{path}'")
    kind = folder_kind(path)
    if kind is None:
        raise FolderError(f"'{path}' is not a milrec folder")
    show_folder(open_folder(path, kind))


_COMMANDS = (demo, download, simulate, prepare, split, fit, evaluate, recommend, similar, items, serve, serve_demo,
             experiment, paper, report, models, show)  # fmt: skip
for command in _COMMANDS:
    app.command()(command)


def main() -> None:
    """Run a command. A mistake ends it with one sentence and code 1 (wrong usage: 2), an interrupt with code 130.

    What nobody expected ends it with code 70 (crash.py).
    """
    if isinstance(sys.stdout, TextIOWrapper):  # and not what a caller put in its place
        sys.stdout.reconfigure(errors="backslashreplace")  # no text is too odd to print
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, so that an error in it is reported like any other
    except MilrecError as error:
        _fail(in_options(str(error)), 1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        _fail(system_sentence(error), 1)
    except MemoryError:
        _fail("there is not enough memory", 1)


def _fail(sentence: str, code: int) -> None:
    sys.stderr.write(f"milrec: {printable(sentence)}\n")
    sys.exit(code)
