"""Commands on a Ray cluster of two nodes, started on this machine: the same bytes, and one sentence on a bad day.

`make bench-cluster` has the rest: 1, 2 and 5 nodes, killed nodes and killed workers, for every command.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as dataset
import pytest

import milrec
from commands import milrec as command
from commands import succeeds
from milrec.cluster import session
from milrec.cluster.fitting import n_workers
from milrec.cluster.session import Node
from milrec.lists import shards

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.filterwarnings("ignore")]
FIT = ("--set", "slices=3", "--set", "iterations=30", "--set", "n_factors=8", "--set", "batch_size=60")
RECIPE = """title = "two models"
[data]
path = "data"
[[models]]
name = "MIL"
model = "dae"
loss = "mil"
settings = { iterations = 20, n_factors = 8 }
[[models]]
name = "Popular"
model = "popularity"
"""


@pytest.fixture(scope="module")
def storage():
    """A local S3 server, and the variables by which everybody finds it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    _, port = server.get_host_and_port()
    found = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in found.items():
            patch.setenv(name, value)
        yield found
    server.stop()


@pytest.fixture(scope="module")
def cluster(storage, tmp_path_factory):
    """Two nodes with one CPU each."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILREC_CACHE", str(tmp_path_factory.mktemp("cache")))
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        started.add_node(num_cpus=1)
        yield started
        started.shutdown()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Tables, data, a split and a model."""
    place = tmp_path_factory.mktemp("work")
    data = milrec.simulate(milrec.Simulation(n_users=900, n_items=120), seed=0)
    data.save(place / "data")
    events = place / "events"
    events.mkdir()
    rows = list(zip(*(part.tolist() for part in data.adopted.nonzero()), strict=True))
    for number in range(3):
        lines = [f"u{user},i{item},{user % 4 + 1}" for user, item in rows[number::3]]
        (events / f"part-{number}.csv").write_text("\n".join(["user,item,plays", *lines, *lines[:5]]) + "\n")
    succeeds("split", "data", "--out", "split", cwd=place)
    succeeds("fit", "split", "--out", "model", *FIT, cwd=place)
    (place / "recipe.toml").write_text(RECIPE)
    return place


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(shards, "SHARD", 256)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "milrec.json"
    }


DEADLY = """
import os
import signal
from pathlib import Path

from torch import nn

if os.getpid() != {driver}:
    try:
        Path("{mark}").touch(exist_ok=False)
    except FileExistsError:
        pass
    else:
        os.kill(os.getpid(), signal.SIGKILL)


class Plain(nn.Module):
    def __init__(self, n_items, n_factors):
        super().__init__()
        self.layer = nn.Linear(n_items, n_factors)

    def forward(self, inputs):
        return self.layer(inputs)
"""


def test_lists_are_the_same_though_a_worker_is_killed(cluster, place):
    """The first worker that imports the class dies of it, in the middle of its task."""
    mark = place / "killed"
    (place / "deadly.py").write_text(DEADLY.format(driver=os.getpid(), mark=mark))
    asked = ("recommend", "model", "--all", "--rule", "long >= 30%", "--model-class", "deadly:Plain")
    succeeds(*asked, "--out", "alone.parquet", cwd=place)
    assert not mark.exists()
    done = succeeds(*asked, "--out", "shared.parquet", "--cluster", cluster.address, cwd=place)
    assert mark.exists()
    assert "Ray: 2 nodes, 2 CPUs" in done.stderr
    assert (place / "shared.parquet").read_bytes() == (place / "alone.parquet").read_bytes()
    assert not [path.name for path in place.iterdir() if path.name.startswith(".")]


def test_lists_as_a_data_set(cluster, place):
    asked = ("recommend", "model", "--all", "-n", "7", "--known", "data", "--out")
    succeeds(*asked, "alone/", cwd=place)
    succeeds(*asked, "shared/", "--cluster", cluster.address, cwd=place)
    assert files(place / "shared") == files(place / "alone")
    manifest = json.loads((place / "shared" / "_milrec.json").read_text())
    assert [part["file"] for part in manifest["parts"]] == [f"part-0000{number}.parquet" for number in range(4)]
    table = dataset.dataset(place / "shared").to_table()
    assert table.num_rows == manifest["rows"] == 7 * manifest["users"]
    succeeds(*asked, "shared/", cwd=place)  # an older data set is replaced
    (place / "mine").mkdir()
    (place / "mine" / "thesis.tex").write_text("…")
    refused = command(*asked, "mine/", "--cluster", cluster.address, cwd=place)
    assert refused.returncode == 1 and "holds files that are not milrec lists" in refused.stderr
    (place / "shared" / "notes.txt").write_text("mine")
    refused = command(*asked, "shared/", cwd=place)
    assert refused.returncode == 1 and "holds files that are not milrec lists" in refused.stderr
    assert (place / "shared" / "notes.txt").read_text() == "mine"


def test_measures_are_the_same(cluster, place):
    succeeds("evaluate", "model", "split", "--json", "alone.json", "--long-share", "0.3", cwd=place)
    shared = ("--json", "shared.json", "--long-share", "0.3", "--cluster", cluster.address)
    succeeds("evaluate", "model", "split", *shared, cwd=place)
    assert (place / "shared.json").read_bytes() == (place / "alone.json").read_bytes()


def test_prepared_data_and_its_errors_are_the_same(cluster, place):
    succeeds("prepare", "events", "--value", "plays", "--out", "alone-data", cwd=place)
    succeeds("prepare", "events", "--value", "plays", "--out", "shared-data", "--cluster", cluster.address, cwd=place)
    assert (place / "shared-data" / "milrec.json").read_bytes() == (place / "alone-data" / "milrec.json").read_bytes()
    assert files(place / "shared-data") == files(place / "alone-data")
    wrong = place / "wrong"
    wrong.mkdir()
    (wrong / "a.csv").write_text("user,item,plays\na,b,1\n")
    (wrong / "b.csv").write_text("user,item,plays\na,c,1\na,d,-2\n")
    asked = ("prepare", "wrong", "--value", "plays", "--out", "nothing")
    alone, shared = command(*asked, cwd=place), command(*asked, "--cluster", cluster.address, cwd=place)
    assert shared.returncode == alone.returncode == 1
    assert shared.stderr.splitlines()[-1] == alone.stderr.splitlines()[-1]
    assert not (place / "nothing").exists()


def test_a_fit_is_the_same(cluster, place):
    done = succeeds("fit", "split", "--out", "shared-model", *FIT, "--cluster", cluster.address, cwd=place)
    assert "Kept the weights" in done.stdout
    assert files(place / "shared-model") == files(place / "model")
    assert not [path.name for path in place.iterdir() if path.name.endswith(".partial")]
    refused = command("fit", "split", "--out", "x", "--model", "ease", "--cluster", cluster.address, cwd=place)
    assert refused.returncode == 1 and "leave --cluster out" in refused.stderr


def test_an_experiment_is_the_same(cluster, place):
    succeeds("experiment", "recipe.toml", "--out", "alone-run", cwd=place)
    succeeds("experiment", "recipe.toml", "--out", "shared-run", "--cluster", cluster.address, cwd=place)
    for job in (place / "alone-run" / "jobs").iterdir():
        other = place / "shared-run" / "jobs" / job.name
        assert files(other / "model") == files(job / "model")
        assert (other / "per_user.parquet").read_bytes() == (job / "per_user.parquet").read_bytes()


def test_object_storage(cluster, place, storage):
    from pyarrow import fs

    bucket, _ = fs.FileSystem.from_uri("s3://models?allow_bucket_creation=true")
    bucket.create_dir("models")
    fs.copy_files(str(place / "model"), "models/mine", destination_filesystem=bucket)
    succeeds("recommend", "model", "--all", "--out", "alone-lists/", cwd=place)
    asked = ("recommend", "s3://models/mine", "--all", "--out", "s3://models/lists/")
    succeeds(*asked, "--cluster", cluster.address, cwd=place)
    (place / "fetched").mkdir()
    fs.copy_files("models/lists", str(place / "fetched"), source_filesystem=bucket)
    assert files(place / "fetched") == files(place / "alone-lists")
    again = command(*asked, "--cluster", cluster.address, cwd=place)
    assert again.returncode == 1 and "'s3://models/lists/' is not empty; choose another place" in again.stderr
    without = command("recommend", "s3://models/nothing", "--all", "--out", "x.csv", "--cluster", "local", cwd=place)
    assert without.returncode == 1 and "there is no milrec folder at 's3://models/nothing'" in without.stderr
    alone = command(*asked, cwd=place)
    assert alone.returncode == 1 and "object storage needs --cluster" in alone.stderr


# Bad days


def said(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_no_ray(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    done = command("recommend", "model", "--all", "--out", "x.csv", "--cluster", "local", cwd=place)
    assert said(done) == "milrec: --cluster needs Ray: pip install 'milrec[cluster]'"


def test_a_wrong_address(place):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    asked = ("recommend", "model", "--all", "--out", "x.csv", "--cluster")
    assert f"no Ray cluster answers at '{address}'" in said(command(*asked, address, cwd=place))
    assert "must be local, auto, HOST:PORT or ray://HOST:PORT, not 'nowhere'" in said(
        command(*asked, "nowhere", cwd=place)
    )
    few = command("recommend", "model", "--user", "1", "--cluster", "local", cwd=place)
    assert "--cluster needs --all" in said(few)


def test_another_version_on_a_node(cluster, place, monkeypatch):
    monkeypatch.setattr(session, "version", lambda name: "9.9.9")
    done = command("evaluate", "model", "split", "--cluster", cluster.address, cwd=place)
    assert "and this is 9.9.9; install the same version everywhere" in said(done)


def test_a_folder_that_is_not_shared(cluster, place, monkeypatch):
    monkeypatch.setattr(session, "_mark", lambda folder: str(folder / "only-here"))
    done = command("recommend", "model", "--all", "--out", "x.csv", "--cluster", cluster.address, cwd=place)
    assert "does not see" in said(done) and "use a folder that all nodes share" in said(done)
    assert not (place / "x.csv").exists()


def test_a_full_disk_on_a_worker(cluster, place, tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk of its own cannot be mounted here (that takes Linux and its root account)")
    try:
        asked = ("recommend", place / "model", "--all", "--out", f"{tmp_path}/lists/", "--cluster", cluster.address)
        assert "the disk is full" in said(command(*asked))
        assert not list(tmp_path.iterdir())
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


@pytest.mark.parametrize(
    ("cpus", "n_slices", "expected"),
    [([4, 4], 2, (2, 4)), ([4, 4], 1, (1, 4)), ([1, 1, 1], 8, (3, 1)), ([8, 2], 3, (3, 2)), ([2], 4, (2, 1))],
)
def test_cpus_are_divided_among_the_workers_of_a_fit(cpus, n_slices, expected):
    nodes = [Node(str(number), "here", n_cpus) for number, n_cpus in enumerate(cpus)]
    assert n_workers(nodes, n_slices) == expected
