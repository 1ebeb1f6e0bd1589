"""The Dockerfile, the systemd unit and the page about them: what they name exists, and their commands are commands."""

import http.server
import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from milrec.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = ROOT / "Dockerfile"
UNIT = ROOT / "deploy" / "milrec.service"
PAGE = ROOT / "docs" / "how-to" / "deploy.md"


def instructions() -> list[tuple[str, str]]:
    """(instruction, the rest) of the Dockerfile, with continued lines joined."""
    lines = [line for line in DOCKERFILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for word, rest in instructions():
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest))
    return found


def last(word: str) -> str:
    return [rest for one, rest in stages()[-1] if one == word][-1]


def unit() -> dict[str, list[str]]:
    """The values of each directive, in all sections together."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def served(arguments: list[str]) -> dict[str, object]:
    """The options of a `milrec` command line, parsed as `milrec` parses them; an unknown one raises."""
    assert arguments[:2] == ["milrec", "serve"]
    group: Any = typer.main.get_command(app)
    command = group.commands["serve"]
    return command.make_context("milrec serve", arguments[2:]).params


def health_code(port: int) -> str:
    _, _, command = last("HEALTHCHECK").partition("CMD ")
    python, flag, code = json.loads(command)
    assert (python, flag) == ("python", "-c")
    assert "8000" in code
    return code.replace("8000", str(port))


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_the_health_check_of_the_image_follows_the_status(status, healthy):
    asked: list[str] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        done = subprocess.run([sys.executable, "-c", health_code(server.server_port)], check=False)
        thread.join()
    assert asked == ["/healthz"]
    assert (done.returncode == 0) is healthy


def test_the_health_check_of_the_image_fails_if_nobody_answers():
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        port = server.server_port
    done = subprocess.run([sys.executable, "-c", health_code(port)], capture_output=True, check=False)
    assert done.returncode != 0


def test_the_image_runs_without_privileges_and_writes_to_its_scratch_folder_alone():
    user, _, group = last("USER").partition(":")
    assert int(user) > 0 and int(group) > 0  # numbers: Kubernetes cannot see that a name is not root
    assert last("VOLUME") == "/scratch"
    assert f"install -d -o {user} -g {group} /scratch" in last("RUN")
    assert {"HOME=/scratch", "NUMBA_CACHE_DIR=/scratch/numba"} <= set(last("ENV").split())


def test_the_image_leaves_build_arguments_and_pip_behind():
    build, final = stages()
    assert {word for word, _ in final} & {"ARG"} == set()
    assert "pip uninstall --yes pip" in " ".join(rest for _, rest in build)
    assert [rest for word, rest in final if word == "COPY"] == ["--from=build /opt/milrec /opt/milrec"]


def test_the_image_is_based_on_a_python_that_the_package_supports():
    (base,) = [rest.removeprefix("BASE=") for word, rest in instructions() if (word, rest[:5]) == ("ARG", "BASE=")]
    version = re.fullmatch(r"python:(3\.\d+)-slim", base)
    assert version is not None
    assert f"Python :: {version[1]}" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(stage[0][1].split()[0] == "${BASE}" for stage in stages())


def test_everything_that_is_copied_into_the_image_is_there_and_not_ignored():
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert "*" in lines
    copied = [rest.split()[:-1] for word, rest in stages()[0] if word == "COPY"]
    sources = {source for one in copied for source in one}
    assert sources == kept
    assert all((ROOT / source).exists() for source in sources)


def test_what_the_package_is_built_from_is_copied_into_the_image():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    copied = " ".join(rest for word, rest in stages()[0] if word == "COPY")
    assert {"README.md", "LICENSE"} <= set(copied.split())
    assert 'readme = "README.md"' in text and 'license-files = ["LICENSE"]' in text and 'where = ["src"]' in text


@pytest.mark.parametrize("path", [DOCKERFILE, ROOT / ".dockerignore", UNIT], ids=lambda path: path.name)
def test_no_address_of_a_registry_is_in_a_file(path):
    assert "://" not in path.read_text(encoding="utf-8")


def test_the_command_of_the_image_is_a_command_of_milrec():
    options = served([*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))])
    assert options["models"] == ["/models/current"]
    assert options["host"] == "0.0.0.0" and str(options["scratch"]) == "/scratch"
    assert last("EXPOSE") == str(options["port"])


def test_the_command_of_the_unit_is_a_command_of_milrec():
    (command,) = unit()["ExecStart"]
    program, *arguments = shlex.split(command)
    options = served([Path(program).name, *arguments])
    assert options["host"] == "127.0.0.1"
    assert unit()["IPAddressAllow"] == ["localhost"]
    assert str(options["keys"]) == "/etc/milrec/keys.txt" and "/etc/milrec/keys.txt" in PAGE.read_text(encoding="utf-8")
    assert str(options["scratch"]) == "${CACHE_DIRECTORY}" and unit()["CacheDirectory"] == ["milrec"]


def test_the_unit_takes_privileges_away_reloads_by_signal_and_waits_for_answers():
    found = unit()
    for name in ("DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateTmp", "RestrictSUIDSGID"):
        assert found[name] == ["yes"], name
    assert found["ProtectSystem"] == ["strict"] and found["CapabilityBoundingSet"] == [""]
    assert found["ExecReload"] == ["/bin/sh -c 'kill -HUP ${MAINPID}'"] and found["KillMode"] == ["mixed"]
    assert found["Restart"] == ["on-failure"]
    timeout = served(["milrec", "serve", "model"])["timeout"]
    assert int(found["TimeoutStopSec"][0]) > timeout
    assert "MemoryDenyWriteExecute" not in found  # numba could not compile


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    text = UNIT.read_text(encoding="utf-8").replace("/opt/milrec/bin/milrec", sys.executable)
    (tmp_path / "milrec.service").write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / "milrec.service"],
        capture_output=True,
        text=True,
        check=False,
    )
    own = [line for line in done.stderr.splitlines() if "milrec.service" in line]
    assert own == []


def test_the_command_of_the_kubernetes_file_is_a_command_of_milrec():
    documents = yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8"))
    (container,) = next(documents)["spec"]["template"]["spec"]["containers"]
    assert served(container["command"])["models"] == ["/models/current"]


def test_the_milrec_commands_of_the_page_are_commands():
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"milrec serve [^`>&\n]+", text)
    assert len(found) >= 3
    for command in found:
        assert served(shlex.split(command))


def test_the_files_that_the_page_links_to_are_there():
    for target in re.findall(r"\]\(([^)#]+)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / target).exists(), target
