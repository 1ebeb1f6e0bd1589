"""The rooms of docs/architecture.md: who may import whom, which packages belong where, how large things may grow."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "milrec"
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = [  # high to low; rooms in one layer are strangers to one another
    {"__main__"},
    {"entry"},
    {"cli"},
    {"cluster"},
    {"notebooks"},
    {"server", "experiments", "report"},
    {"fits"},
    {"recommender"},
    {"exports"},
    {"evaluation"},
    {"lists"},
    {"training"},
    {"models"},
    {"probability"},
    {"losses"},
    {"kernels", "data"},
    {"metrics", "results"},
    {"measured"},
    {"records"},
    {"settings"},
    {"storage"},
    {"disk"},
    {"torch"},
    {"errors", "interrupts"},
    {"suggestions"},
]
HOMES = {  # a package → the rooms that may import it
    "numba": {"kernels"},
    "typer": {"cli"},
    "rich": {"cli"},
    "fastapi": {"server"},
    "starlette": {"server"},
    "uvicorn": {"server"},
    "prometheus_client": {"server"},
    "optuna": {"experiments"},
    "ray": {"cluster"},
    "implicit": {"training"},
    "onnx": {"exports"},
    "jinja2": {"report", "server"},
    "torch": {
        "torch",
        "kernels",
        "models",
        "losses",
        "training",
        "lists",
        "evaluation",
        "exports",
        "recommender",
        "fits",
        "cluster",
    },
}
SERVER_MAY_USE = {"recommender", "lists.query", "lists.rules", "lists.catalogue", "settings", "storage", "errors",
                  "interrupts", "data.interactions", "metrics.tail"}  # fmt: skip


def room_of(path: Path) -> str:
    """The room or the module on top that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """Dotted names of all that a file imports, anywhere in it, except for the sake of types alone."""
    found: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def own_imports(path: Path) -> set[str]:
    """The same, of milrec alone and without its name."""
    return {name.removeprefix("milrec.") for name in imports_of(path) if name.startswith("milrec.")}


def layer_of(room: str) -> int:
    return next(place for place, rooms in enumerate(LAYERS) if room in rooms)


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_every_room_has_a_layer():
    rooms = {room_of(path) for path in FILES} - {"__init__"}
    assert rooms == set().union(*LAYERS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path):
    room = room_of(path)
    if room == "__init__":
        return
    for name in own_imports(path):
        other = name.split(".")[0]
        if other == room or name == "__version__":
            continue
        assert layer_of(other) > layer_of(room), f"{path.relative_to(PACKAGE)} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_packages_are_imported_only_in_their_rooms(path):
    for name in imports_of(path):
        package = name.split(".")[0]
        if package in HOMES and room_of(path) != "__init__":
            assert room_of(path) in HOMES[package], f"{path.relative_to(PACKAGE)} imports {package}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "server").rglob("*.py")), ids=lambda path: path.name)
def test_the_server_goes_through_the_recommender(path):
    for name in own_imports(path):
        allowed = name.startswith("server.") or any(name == one or name.startswith(f"{one}.") for one in SERVER_MAY_USE)
        assert allowed, f"server/{path.name} imports {name}"


def test_a_room_begins_with_what_it_is_for():
    for path in PACKAGE.glob("*/**/__init__.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree) and len(tree.body) == 1, path


def test_a_room_has_about_a_dozen_files():
    for room in {path.parent for path in FILES}:
        assert len(list(room.glob("*.py"))) <= 15, room


def test_every_file_is_on_the_map_with_a_line():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    missing = [
        str(path.relative_to(PACKAGE))
        for path in FILES
        if path.name != "__init__.py"
        and not re.search(rf"\[`{re.escape(path.stem)}`\]\(\S+/{path.relative_to(PACKAGE)}\)", text)
    ]
    assert not missing
    for link in re.findall(r"\]\(\.\./(src/milrec/[^)#]+)\)", text):
        assert (ROOT / link).exists(), link


def test_only_models_ask_what_a_model_is():
    kinds = (
        "Autoencoder|Factorization|ItemToItem|Popularity|Factors|LatentModel|GradientModel|EncoderModel|Settings|Fit"
    )
    for path in FILES:
        if room_of(path) != "models":
            asked = re.findall(rf"isinstance\([^)]*\b\w*(?:{kinds})\b[^)]*\)", path.read_text(encoding="utf-8"))
            assert not asked, f"{path.relative_to(PACKAGE)}: {asked}"


def test_importing_the_package_the_command_line_and_the_report_leaves_torch_alone():
    code = (
        "import sys, milrec, milrec.cli.app, milrec.report.page, milrec.results, milrec.training.presets; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nothing_is_unpickled_anywhere():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"torch\.load|import pickle|allow_pickle|joblib|(?<![\w.])eval\(|exec\(", text), path


def test_a_module_stays_readable_in_one_sitting():
    for path in FILES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 350, path
