"""make package: build sdist and wheel into dist/, check what is in them, and try the wheel in an empty environment.

Both are built from a copy of the files that git tracks, so that nothing else can slip into them. Each check that fails
ends the program with one sentence.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "unbiased-coat.json"  # any kept results will do
PACKAGE = "src/milrec/"


def main() -> None:
    started = time.monotonic()
    tracked = tracked_files()
    with tempfile.TemporaryDirectory(prefix="milrec-package-") as name:
        place = Path(name)
        sdist, wheel = build(tracked, place / "source", ROOT / "dist")
        check_sdist(sdist, tracked)
        check_wheel(wheel, tracked)
        collect_tests(sdist, place / "unpacked")
        try_wheel(wheel, place)
    say(f"{sdist.name} and {wheel.name} are good ({time.monotonic() - started:.0f} s); they are in dist/")


def tracked_files() -> list[str]:
    """The files of the repository, by their path in it; one that is deleted but not yet committed is left out."""
    listed = run("git", "-C", str(ROOT), "ls-files", "-z")
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def build(tracked: list[str], source: Path, dist: Path) -> tuple[Path, Path]:
    """sdist and wheel of the tracked files alone; the wheel is built from the sdist."""
    say("building sdist and wheel")
    for name in tracked:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    shutil.rmtree(dist, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", str(dist), str(source), PIP_CONSTRAINT=str(ROOT / "constraints.txt"))
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    return sdist, wheel


def check_sdist(sdist: Path, tracked: list[str]) -> None:
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    require_all(set(tracked), held, sdist)


def check_wheel(wheel: Path, tracked: list[str]) -> None:
    """All of the package, its recipes, templates and page included, and nothing beside it."""
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    require_all({name.removeprefix("src/") for name in tracked if name.startswith(PACKAGE)}, held, wheel)
    foreign = {name for name in held if not re.match(r"milrec(-[^/]+\.dist-info)?/", name)}
    if foreign:
        fail(f"'{wheel.name}' holds '{min(foreign)}', which is no part of the package")


def require_all(wanted: set[str], held: set[str], archive: Path) -> None:
    if not wanted <= held:
        fail(f"'{archive.name}' lacks '{min(wanted - held)}'; name it in MANIFEST.in or in package-data")


def collect_tests(sdist: Path, place: Path) -> None:
    """The tests of the sdist find all that they import."""
    say("collecting the tests of the sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(place, filter="data")
    (source,) = place.iterdir()
    run(sys.executable, "-m", "pytest", "--collect-only", "-q", folder=source, PYTHONPATH=str(source / "src"))


def try_wheel(wheel: Path, place: Path) -> None:
    """What a first user does, in an environment that holds nothing but the wheel and what it asks for."""
    say("installing the wheel in an empty environment")
    environment, work = place / "environment", place / "work"
    work.mkdir()
    venv.create(environment, with_pip=True)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    install(scripts, "torch")  # first: nothing else may then choose a larger build of it
    install(scripts, str(wheel))
    milrec = shutil.which("milrec", path=str(scripts))
    if milrec is None:
        fail("the wheel installs no command 'milrec'")
    try_commands(milrec, wheel, work)
    try_packaged_recipe(milrec, scripts, work)
    install(scripts, f"{wheel}[serve]")
    try_server(milrec, work)


def install(scripts: Path, *wanted: str) -> None:
    run(str(scripts / "python"), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), *wanted)


def try_commands(milrec: str, wheel: Path, work: Path) -> None:
    say("trying the commands")
    version = run(milrec, "--version", folder=work).split()[-1]
    if version != wheel.name.split("-")[1]:
        fail(f"'milrec --version' says {version}, and the wheel is '{wheel.name}'")
    run(milrec, "simulate", "--users", "300", "--items", "120", "--out", "data", folder=work)
    run(milrec, "split", "data", "--out", "split", folder=work)
    run(milrec, "fit", "split", "--out", "model", "--set", "epochs=2", "--set", "n_factors=8", folder=work)
    run(milrec, "recommend", "model", "--all", "--out", "lists.csv", folder=work)
    run(milrec, "report", str(RESULTS), "--out", "report.html", folder=work)
    for name in ("lists.csv", "report.html"):
        if not (work / name).stat().st_size:
            fail(f"'{name}' is empty")


def try_packaged_recipe(milrec: str, scripts: Path, work: Path) -> None:
    code = "from importlib import resources; print(*resources.files('milrec').rglob('*.toml'), sep='\\n')"
    recipes = {Path(line).name: line for line in run(str(scripts / "python"), "-c", code, folder=work).splitlines()}
    if not recipes.keys() >= {"demo.toml", "paper.toml", "paper-held-out-users.toml"}:
        fail(f"the wheel lacks a recipe; it has {', '.join(recipes) or 'none'}")
    run(milrec, "experiment", recipes["demo.toml"], "--only", "Popularity", "--out", "run", folder=work)


def try_server(milrec: str, work: Path) -> None:
    """The page, the reference and the models, from a server on a free port."""
    say("trying the server")
    log, told = work / "server.log", clean_environment()
    command = [milrec, "serve", "model", "--port", "0"]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, cwd=work, env=told, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        try:
            address = re.search(r"http://([\d.:]+)", server.stdout.readline() if server.stdout else "")
            if address is None:
                fail(f"'milrec serve' did not start: {log.read_text()}")
            for path in ("/", "/docs", "/docs.css", "/v1/models", *page_files(address[1])):
                ask(address[1], path)
        finally:
            server.terminate()


def page_files(address: str) -> list[str]:
    """The addresses of the scripts and styles that the page names."""
    found = re.findall(r'(?:src|href)="(web/[^"]+)"', ask(address, "/"))
    if not found:
        fail("the page of the server names no script or style")
    return [f"/{name}" for name in found]


def ask(address: str, path: str) -> str:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status != 200 or not text:
        fail(f"the server answers '{path}' with {answer.status}: {text[:200]}")
    return text


def run(*command: str, folder: Path | None = None, **environment: str) -> str:
    """The standard output of a command that ends well."""
    told = {**clean_environment(), **environment}
    done = subprocess.run(command, cwd=folder, env=told, capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f"'{' '.join(command)}' ended with code {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def clean_environment() -> dict[str, str]:
    """The environment without what would show another milrec to the commands that are tried."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def fail(sentence: str) -> NoReturn:
    sys.exit(f"package: {sentence}")


if __name__ == "__main__":
    main()
