"""The reading order of docs/architecture.md is the order of imports."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "milrec"


def reading_order() -> list[str]:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listing = text.split("```")[1]
    return [line.split()[0] for line in listing.strip().splitlines()]


def imported_modules(path: Path) -> set[str]:
    """Modules of the package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "milrec":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("milrec."):
            found.add(node.module.split(".")[1])
    return found


def test_every_module_is_in_the_reading_order():
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert set(reading_order()) == modules


def test_a_module_imports_only_from_modules_above_it():
    order = reading_order()
    for place, name in enumerate(order):
        below = imported_modules(PACKAGE / f"{name}.py") - set(order[:place])
        assert not below, f"{name} imports {below}, which stand below it"


def test_metrics_and_tail_need_numpy_only():
    for name in ("metrics", "tail"):
        tree = ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))
        roots = {
            (node.module or "").split(".")[0] if isinstance(node, ast.ImportFrom) else node.names[0].name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
        }
        assert roots <= {"__future__", "collections", "dataclasses", "enum", "typing", "numpy"}


def test_importing_the_package_the_command_line_and_the_report_leaves_torch_alone():
    code = "import sys, milrec, milrec.cli.app, milrec.report.page, milrec.cli.output; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nothing_is_unpickled_anywhere():
    for path in PACKAGE.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"torch\.load|import pickle|allow_pickle|joblib|eval\(|exec\(", text), path.name


def test_a_module_stays_readable_in_one_sitting():
    for path in PACKAGE.glob("*.py"):
        limit = 480 if path.stem == "cli" else 350  # the command line is one short function per command
        assert len(path.read_text(encoding="utf-8").splitlines()) <= limit, path.name
