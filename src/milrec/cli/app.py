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
from milrec.cli.errors import in_options, warnings_shown
from milrec.cli.experiments import demo, experiment, paper, report
from milrec.cli.fit import evaluate, fit
from milrec.cli.help.examples import epilog
from milrec.cli.help.prose import prose
from milrec.cli.help.settings import FitCommand
from milrec.cli.help.usage import usage_sentence
from milrec.cli.lists import export, items, recommend, similar
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


_COMMANDS = (demo, download, simulate, prepare, split, fit, evaluate, recommend, similar, items, export, serve,
             serve_demo, experiment, paper, report, models, show)  # fmt: skip
for command in _COMMANDS:
    name = command.__name__.replace("_", "-")
    app.command(name, help=prose(command), epilog=epilog(name), cls=FitCommand if command is fit else None)(command)


def main() -> None:
    """Run a command. A mistake ends it with one sentence and code 1 (wrong usage: 2), an interrupt with code 130.

    What nobody expected ends it with code 70 (crash.py).
    """
    if isinstance(sys.stdout, TextIOWrapper):  # and not what a caller put in its place
        sys.stdout.reconfigure(errors="backslashreplace")  # no text is too odd to print
    try:
        try:
            with warnings_shown():
                code = _run()
        finally:
            sys.stdout.flush()  # here, so that an error in it is reported like any other
        sys.exit(code)
    except MilrecError as error:
        _fail(in_options(str(error)), 1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        _fail(system_sentence(error), 1)
    except MemoryError:
        _fail("there is not enough memory", 1)


def _run() -> int:
    """Run the command that the arguments name; its code."""
    try:
        return int(app(standalone_mode=False) or 0)
    except Exception as error:
        message = getattr(error, "format_message", None)  # of typer, whose classes have moved between versions
        if message is None:
            raise
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(f"{message()}\n")
        else:
            params = [] if context is None else context.command.params
            options = [name for param in params for name in param.opts if name.startswith("-")]
            said = usage_sentence(message(), "milrec" if context is None else context.command_path, options)
            sys.stderr.write(f"milrec: {printable(said)}\n")
        return 2


def _fail(sentence: str, code: int) -> None:
    sys.stderr.write(f"milrec: {printable(sentence)}\n")
    sys.exit(code)
