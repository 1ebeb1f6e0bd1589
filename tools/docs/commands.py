"""The reference of the command line, made from the commands themselves."""

from typing import Any

import typer.main
from tools.docs.markup import plain, table

from milrec.cli.help.examples import EXAMPLES


def reference() -> str:
    """Markdown: what `milrec --help` and the help of each command say."""
    from milrec.cli.app import app

    whole: Any = typer.main.get_command(app)
    context = whole.context_class(whole, info_name="milrec")
    parts = [as_text(whole.help), _table(whole, context)]
    for name, command in whole.commands.items():
        parts += [f"## milrec {name}", *_command(command, command.context_class(command, context, name))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _command(command: Any, context: Any) -> list[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    examples = "\n".join(EXAMPLES[command.name])
    return [as_text(command.help), f"```text\n{usage}\n```", f"```sh\n{examples}\n```", _table(command, context)]


def _table(command: Any, context: Any) -> str:
    """Arguments first, then options, as the help has them."""
    rows = []
    for one in sorted(command.params, key=lambda one: one.param_type_name != "argument"):
        record = None if one.hidden else one.get_help_record(context)
        if record is not None:
            rows.append([f"`{record[0].replace('|', ' or ')}`", plain(" ".join(record[1].split()))])
    return table(["", ""], rows)


def as_text(help_text: str | None) -> str:
    """Help as Markdown. Commands are code, as are paragraphs after \\b, whose lines stay as they are."""
    parts = []
    for paragraph in (help_text or "").split("\n\n"):
        lines = [line for line in paragraph.replace("\b", "").splitlines() if line.strip()]
        commands = [line.strip().startswith(("milrec ", "$ ")) for line in lines]
        if lines and ("\b" in paragraph or all(commands)):
            parts.append("```text\n" + "\n".join(line.rstrip() for line in lines) + "\n```")
        elif lines:
            parts.append(plain(" ".join(line.strip() for line in lines)))
    return "\n\n".join(parts)
