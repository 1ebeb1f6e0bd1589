"""The task as it is written in each library, read from its file without importing it."""

import ast
from pathlib import Path

_BESIDES = ("list_of_allowed", "list_without", "list_for_newcomer", "save")  # tried out besides the task
_OF_BESIDES = {"import pickle"}


def source_of(library: str) -> str:
    return (Path(__file__).parent / f"{library}.py").read_text(encoding="utf-8")


def models_of(library: str) -> list[str]:
    """The keys of MODELS."""
    for node in ast.parse(source_of(library)).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODELS":
            assert isinstance(node.value, ast.Dict)
            return [ast.literal_eval(key) for key in node.value.keys if key is not None]
    raise ValueError(f"{library}.py has no MODELS")


def task_source(library: str) -> str:
    """Imports, models, `fit` and `lists`: the whole task, without what is tried out besides."""
    source = source_of(library)
    lines = source.splitlines()
    tree = ast.parse(source)
    gone: set[int] = set()
    for node in tree.body:
        if _is_besides(node):
            gone |= set(range(node.lineno - 1, (node.end_lineno or node.lineno)))
    kept = [line for place, line in enumerate(lines) if place not in gone]
    text = "\n".join(kept).strip() + "\n"
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text


def task_lines(library: str) -> int:
    """Lines of code of the task; blank lines, comments and the docstring do not count."""
    lines = [line.strip() for line in task_source(library).splitlines()]
    return sum(bool(line) and not line.startswith(("#", '"""')) for line in lines)


def _is_besides(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name in _BESIDES
    return ast.unparse(node) in _OF_BESIDES
