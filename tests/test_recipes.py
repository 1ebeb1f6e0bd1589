"""The recipes that need more than to be run: the nightly job, the proxy, the notebook."""

import contextlib
import io
import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import nbclient
import nbformat
import numpy as np
import pytest

import milrec
from serving import contents, running
from test_docs import ROOT, blocks, run_page

pytestmark = pytest.mark.xdist_group("recipes")  # one first night for all
NIGHTLY = ROOT / "deploy" / "nightly.py"
PROXY = ROOT / "docs" / "how-to" / "proxy.md"


def nightly(folder: Path, table: str, *options: str) -> tuple[str | int | None, str]:
    """How the job ended, and what it printed; in this process, which saves seconds of loading each night."""
    printed, before = io.StringIO(), sys.argv
    sys.argv = ["nightly.py", table, "models/live", *options]
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
            runpy.run_path(str(NIGHTLY), run_name="__main__")
    except SystemExit as end:
        return end.code, printed.getvalue()
    finally:
        sys.argv = before
    return None, printed.getvalue()


@pytest.fixture(scope="module")
def first_night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """plays.csv, as the page makes it, and the model that the first night published."""
    folder = tmp_path_factory.mktemp("nights")
    run_page(ROOT / "docs" / "how-to" / "nightly.md", folder)
    ended, printed = nightly(folder, "plays.csv")
    assert ended is None and printed.startswith("published: ndcg@20 0."), ended
    return folder


@pytest.fixture
def night(first_night: Path, tmp_path: Path) -> Path:
    """The same, to change at will."""
    return Path(shutil.copytree(first_night, tmp_path / "nights"))


def test_the_nightly_job_on_the_page_is_the_one_in_deploy():
    shown = next(code for language, code in blocks(ROOT / "docs" / "how-to" / "nightly.md") if language == "python")
    assert shown == f"# nightly.py\n{NIGHTLY.read_text(encoding='utf-8')}"


def test_a_second_night_is_published_and_reaches_the_server(night):
    model = milrec.load(night / "models" / "live")
    table = night / "plays.csv"
    lines = table.read_text().splitlines()
    (night / "tonight.csv").write_text("\n".join(lines[:-20]) + "\n")  # a little less than last night
    with running(night / "models" / "live") as server:
        before = httpx.get(f"{server.url}/v1/models").json()["models"][0]["fitted"]["fingerprint"]
        ended, _ = nightly(night, "tonight.csv", "--server", server.url)
        after = httpx.get(f"{server.url}/v1/models").json()["models"][0]["fitted"]["fingerprint"]
    assert ended is None
    assert before != after
    assert milrec.load(night / "models" / "live").fitted.facts != model.fitted.facts


@pytest.mark.parametrize(
    "kept", ["", None, "[]", "{}", '{"mean": null, "give": 0, "users": 1}', '{"mean": NaN, "give": 0, "users": 1}']
)
def test_nothing_is_published_while_nothing_is_known_about_the_live_model(night, kept):
    measures, before = night / "models" / "live.json", contents(night / "models" / "live")
    measures.unlink()
    if kept is not None:
        measures.write_text(kept)
    ended, _ = nightly(night, "plays.csv")
    assert str(ended).startswith("not published: 'models/live.json' cannot be read")
    assert contents(night / "models" / "live") == before


def test_the_bar_does_not_sink_night_by_night(night):
    measures = night / "models" / "live.json"
    best = json.loads(measures.read_text())
    measures.write_text(json.dumps({**best, "mean": best["mean"] + 0.001}))
    assert nightly(night, "plays.csv")[0] is None
    assert json.loads(measures.read_text())["mean"] == best["mean"] + 0.001


def test_a_night_of_noise_is_refused_and_the_live_model_stays(night):
    head, *lines = (night / "plays.csv").read_text().splitlines()
    users, items = zip(*(line.split(",") for line in lines), strict=True)
    mixed = np.random.default_rng(0).permutation(items)  # as if two columns had been sorted on their own
    rows = sorted({f"{user},{item}" for user, item in zip(users, mixed, strict=True)})
    (night / "noise.csv").write_text("\n".join([head, *rows]) + "\n")
    model, kept = contents(night / "models" / "live"), (night / "models" / "live.json").read_text()
    ended, _ = nightly(night, "noise.csv")
    assert re.fullmatch(r"not published: ndcg@20 is 0\.\d+, and 0\.\d+ for the live model", str(ended))
    assert contents(night / "models" / "live") == model
    assert (night / "models" / "live.json").read_text() == kept


def test_a_table_that_breaks_off_is_refused_before_anything_is_fitted(night):
    lines = (night / "plays.csv").read_text().splitlines()
    (night / "half.csv").write_text("\n".join(lines[: len(lines) // 2]) + "\n")
    ended, _ = nightly(night, "half.csv")
    assert re.fullmatch(r"not published: the table has \d+ users, the live model has \d+", str(ended))


def test_a_table_that_is_not_there_is_refused_with_one_sentence(night):
    ended, _ = nightly(night, "nowhere.csv")
    assert str(ended).startswith("not published: ") and "\n" not in str(ended)


def test_a_server_that_does_not_take_the_model_is_reported(night):
    ended, _ = nightly(night, "plays.csv", "--server", "http://127.0.0.1:9")  # nobody listens there
    assert str(ended).startswith("the new model is in 'models/live', but the server did not take it: ")


def test_the_server_of_the_proxy_page_knows_its_host_and_its_clients(night, monkeypatch):
    made = subprocess.run(
        [sys.executable, "-m", "milrec", "serve", "--new-key", "shop"], capture_output=True, text=True, check=True
    )
    (key,) = re.findall(r"milrec_\S+", made.stderr + made.stdout)
    (line,) = re.findall(r"shop sha256:\w+", made.stdout)
    (night / "keys.txt").write_text(f"{line}\n")
    (command,) = [c for language, c in blocks(PROXY) if language == "sh" and c.startswith("milrec serve model ")]
    options = command.split()[3:]
    options[options.index("keys.txt")] = str(night / "keys.txt")
    with running(night / "models" / "live", *options) as server:
        address, known = f"{server.url}/v1/models", {"host": "lists.example"}
        allowed = {**known, "authorization": f"Bearer {key}"}
        assert httpx.get(address, headers=allowed).status_code == 200
        assert httpx.get(address, headers=known).status_code == 401
        assert httpx.get(address, headers={**allowed, "host": "milrec"}).status_code == 421
        monkeypatch.setenv("MILREC_KEY", key)
        ended, _ = nightly(night, "plays.csv", "--server", server.url)
    assert ended is None  # it asks the server itself, past the proxy, with the key


def test_the_configuration_of_nginx_is_whole(tmp_path):
    (text,) = [code for language, code in blocks(PROXY) if language == "nginx"]
    assert text.count("{") == text.count("}") == 5
    for line in text.splitlines():
        assert not line.strip() or line.strip().endswith((";", "{", "}")), line
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed, so its own check of the file was left out")
    plain = re.sub(r"^\s*ssl_.*$", "", text, flags=re.MULTILINE).replace("listen 443 ssl", "listen 127.0.0.1:8443")
    (tmp_path / "nginx.conf").write_text(f"pid nginx.pid;\nevents {{}}\nhttp {{\naccess_log off;\n{plain}\n}}\n")
    checked = ["nginx", "-t", "-e", "stderr", "-p", str(tmp_path), "-c", "nginx.conf"]
    done = subprocess.run(checked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_notebook_runs_from_top_to_bottom_and_is_kept_without_outputs(tmp_path):
    book = nbformat.read(ROOT / "docs" / "notebooks" / "start.ipynb", as_version=4)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in book.cells)
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = json.dumps([cell.get("outputs", []) for cell in book.cells])
    assert "MIL less cross-entropy" in printed and "long_share@20" in printed
    assert (tmp_path / "model" / "milrec.json").exists()
