"""Models to serve, and servers of them; made once, for all tests of the server."""

import shutil
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

import milrec
from milrec.recommender import Recommender
from milrec.server.app import create_app
from milrec.server.copies import Folders
from milrec.server.gate.keys import new_key
from milrec.server.limits import Limits
from milrec.server.registry import Registry
from milrec.server.service import Server
from pausing import LONG
from serving import Client, running, turn


@pytest.fixture(scope="session")
def split(small_catalogue):
    return milrec.split_interactions(small_catalogue, seed=0)


@pytest.fixture(scope="session")
def folders(split, tmp_path_factory) -> dict[str, Path]:
    """Three model folders: the missing information loss, the same with another seed, and EASE."""
    folder = tmp_path_factory.mktemp("models")
    for name, seed in (("mil", 0), ("other", 1)):
        milrec.fit(split, "dae", "mil", seed=seed, n_factors=8, epochs=3).save(folder / name)
    milrec.fit(split, "ease").save(folder / "ease")
    return {name: folder / name for name in ("mil", "other", "ease")}


@pytest.fixture(scope="session")
def uncertain(folders) -> Path:
    """A model without probabilities, as 0.1 saved it."""
    out = folders["mil"].parent / "uncertain"
    Recommender(replace(milrec.load(folders["mil"]).fitted, calibration=None)).save(out)
    return out


@pytest.fixture(scope="session")
def mil(folders):
    return milrec.load(folders["mil"])


@pytest.fixture(scope="session")
def registry(folders):
    registry = Registry(Folders({"mil": folders["mil"], "ease": folders["ease"]}), together=64)
    yield registry
    registry.stop()


@pytest.fixture(scope="session")
def client(registry) -> Client:
    limits = Limits(max_body=20_000, max_list=60, max_ids=30, max_batch=3, max_total=600, max_reasons=5)
    return Client(create_app(Server(registry, limits)))


@pytest.fixture(scope="session")
def place(folders, tmp_path_factory) -> Path:
    """A folder with a link to a model, to be turned to another."""
    place = tmp_path_factory.mktemp("place")
    shutil.copytree(folders["mil"], place / "first")
    shutil.copytree(folders["other"], place / "second")
    (place / "live").symlink_to("first")
    return place


@pytest.fixture(scope="session")
def key_and_file(tmp_path_factory) -> tuple[str, Path]:
    key, line = new_key("shop")
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(line + "\n")
    return key, file


@pytest.fixture(scope="session")
def live(place, folders, key_and_file):
    limits = ("--max-body", 4000, "--max-list", 50, "--max-batch", 2, "--timeout", LONG)
    with running(f"live={place / 'live'}", folders["ease"], "--keys", key_and_file[1], *limits) as server:
        yield server


@pytest.fixture
def asking(live, key_and_file, place):
    turn(place, "first")
    with httpx.Client(
        base_url=live.url, headers={"authorization": f"Bearer {key_and_file[0]}"}, timeout=LONG
    ) as client:
        client.post("/v1/models/live/reload").raise_for_status()
        yield client
