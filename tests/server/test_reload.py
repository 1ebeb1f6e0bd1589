"""Model folders: read at the start and again while the old model serves; a bad one is refused."""

import asyncio
import gc
import pickle
import re
import shutil
import signal
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import milrec
from milrec.errors import FolderError
from milrec.lists.query import Query
from milrec.server.app import create_app
from milrec.server.copies import Folders
from milrec.server.limits import Limits
from milrec.server.registry import Registry, settle_memory
from milrec.server.service import Server
from milrec.storage import open_folder
from pausing import LONG
from serving import Client, answers_of, as_json, figures, flip, refused, turn, until_ready

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long


def bad_folder(kind: str, folder: Path) -> str:
    """Damage a model folder; what the refusal says of it."""
    if kind == "flipped weight":
        flip(folder / "weights.safetensors")
        return "has changed since it was saved"
    if kind == "flipped manifest":
        text = (folder / "milrec.json").read_text()
        (folder / "milrec.json").write_text(text.replace('"seed": 0', '"seed": 4'))
        return "is damaged"
    if kind == "pickle beside":
        (folder / "model.pkl").write_bytes(pickle.dumps({"harm": 1}))
        return "holds 'model.pkl', which milrec did not write"
    if kind == "pickle inside":
        (folder / "weights.safetensors").write_bytes(pickle.dumps({"harm": 1}))
        return "has changed since it was saved"
    if kind == "missing file":
        (folder / "removed.arrow").unlink()
        return "is missing"
    shutil.rmtree(folder)
    return "there is no model folder"


BAD_FOLDERS = ("flipped weight", "flipped manifest", "pickle beside", "pickle inside", "missing file", "gone")


@pytest.mark.parametrize("kind", BAD_FOLDERS)
def test_a_damaged_folder_is_not_served(folders, tmp_path, kind):
    shutil.copytree(folders["mil"], tmp_path / "m")
    sentence = bad_folder(kind, tmp_path / "m")
    with pytest.raises(FolderError, match=re.escape(sentence)):
        Folders({"m": tmp_path / "m"}).take("m")


@pytest.mark.parametrize("error", [FileNotFoundError("gone"), KeyError("files"), ValueError("half a file")])
def test_a_folder_that_is_removed_while_it_is_read_is_refused(folders, monkeypatch, error):
    def fails(place):
        raise error

    registry = Registry(Folders({"mil": folders["mil"]}), together=4)
    monkeypatch.setattr(milrec.Recommender, "load", fails)
    answer = Client(create_app(Server(registry))).post("/v1/models/mil/reload")
    assert answer.status_code == 409 and "if it is being replaced, try again" in refused(answer)
    registry.stop()


def test_a_model_that_cannot_make_a_list_is_refused(folders, monkeypatch):
    registry = Registry(Folders({"mil": folders["mil"]}), together=4)
    monkeypatch.setattr(milrec.Recommender, "listed", lambda self, asked: 1 / 0)
    with pytest.raises(FolderError, match="cannot make a list"):
        registry.reload("mil")
    registry.stop()


def test_a_reload_outlasts_the_time_limit_and_its_client(folders, monkeypatch, caplog):
    caplog.set_level("INFO", "milrec.server.app")
    registry = Registry(Folders({"mil": folders["mil"]}), together=4)
    server, whole, go_on = Server(registry, Limits(timeout=0.01)), registry.reload, threading.Event()

    def slow(name, wait):
        assert go_on.wait(LONG)
        return whole(name, wait)

    async def given_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(server.reload("mil"), 0.01)
        go_on.set()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})  # the reload continues

    monkeypatch.setattr(registry, "reload", slow)
    asyncio.run(given_up())
    go_on.clear()
    threading.Timer(0.1, go_on.set).start()  # later than the time limit, however much later
    assert Client(create_app(server)).post("/v1/models/mil/reload").status_code == 200
    done = ("milrec_reloads_total", {"model": "mil", "outcome": "done"})
    assert server.metrics.registry.get_sample_value(*done) == 2
    assert [record.message for record in caplog.records].count("reloaded") == 2
    registry.stop()


class WatchedLock:
    """A lock that says when somebody waits for it."""

    def __init__(self) -> None:
        self._lock, self.awaited = threading.Lock(), threading.Event()

    def acquire(self, blocking: bool = True) -> bool:
        if blocking:
            self.awaited.set()
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()


def test_a_reload_that_waits_reads_the_folder_after_the_one_before(folders):
    registry = Registry(Folders({"mil": folders["mil"]}), together=4)
    loading = WatchedLock()
    registry._loading = loading  # type: ignore[assignment]
    loading.acquire(blocking=False)
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(FolderError, match="another reload is running"):
            registry.reload("mil")
        waiting = pool.submit(registry.reload, "mil", wait=True)
        assert loading.awaited.wait(LONG) and not waiting.done()
        loading.release()
        assert waiting.result() is registry.model("mil")
    registry.stop()


def test_the_collector_leaves_a_loaded_model_alone_and_frees_the_old_one(folders):
    """Otherwise every request would wait, several times a second, until it has looked at all of a model's objects."""
    registry = Registry(Folders({"mil": folders["mil"]}), together=4)
    registry.after_reload = settle_memory
    settle_memory()
    old = weakref.ref(registry.model("mil").recommender)
    registry.reload("mil")
    assert gc.get_freeze_count() > 0 and old() is None
    registry.stop()
    gc.unfreeze()


def test_what_users_have_elsewhere_is_not_listed(folders, small_catalogue, tmp_path, mil):
    small_catalogue.save(tmp_path / "data")
    registry = Registry(Folders({"mil": folders["mil"]}, tmp_path / "data"), together=4)
    (answer,) = answers_of(registry, Query(user="u001", n=1000))
    row = small_catalogue.users["id"].to_pylist().index("u001")
    ids = small_catalogue.items["id"].to_pylist()
    have = {ids[number] for number in (small_catalogue.adopted + small_catalogue.rejected)[[row], :].nonzero()[1]}
    assert {one["item"] for one in answer["items"]} == set(mil.item_ids) - have
    registry.stop()


def test_no_path_can_be_given_to_a_reload(asking, folders):
    for values in ({"json": {"path": str(folders["other"])}}, {"params": {"path": str(folders["other"])}}):
        before = asking.get("/v1/models/live").json()["fitted"]["fingerprint"]
        assert asking.post("/v1/models/live/reload", **values).json()["fitted"]["fingerprint"] == before


@pytest.mark.parametrize("kind", BAD_FOLDERS)
def test_a_bad_folder_is_refused_and_the_old_model_keeps_serving(asking, folders, place, kind):
    before = asking.post("/v1/recommend", json={"user": "u001"}).json()
    shutil.rmtree(place / "bad", ignore_errors=True)
    shutil.copytree(folders["mil"], place / "bad")
    turn(place, "bad")
    sentence = bad_folder(kind, place / "bad")
    answer = asking.post("/v1/models/live/reload")
    assert answer.status_code == 409 and sentence in refused(answer)
    assert asking.post("/v1/recommend", json={"user": "u001"}).json() == before
    until_ready(asking)


def test_a_reload_under_load_drops_no_request_and_mixes_no_models(asking, live, key_and_file, place, mil, folders):
    query = {"user": "u001", "n": 20}
    other = milrec.load(folders["other"])
    expected = [as_json(one.answer([one.ask(Query(**query))])[0]) for one in (mil, other)]
    assert expected[0] != expected[1]
    stop, found, answered = threading.Event(), [], threading.Semaphore(0)

    def hammer() -> None:
        with httpx.Client(base_url=live.url, headers={"x-api-key": key_and_file[0]}, timeout=LONG) as client:
            while not stop.is_set():
                answer = client.post("/v1/recommend", json=query)
                found.append((answer.status_code, answer.json()["items"]))
                answered.release()

    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(hammer) for _ in range(4)]
        for target in ("second", "first", "second"):
            for _ in range(4):
                assert answered.acquire(timeout=LONG)
            turn(place, target)
            assert asking.post("/v1/models/live/reload").status_code == 200
        stop.set()
        for task in tasks:
            task.result()
    assert {status for status, _ in found} == {200}
    assert all(items in expected for _, items in found)
    assert asking.post("/v1/recommend", json=query).json()["items"] == expected[1]


def test_a_hang_up_signal_reloads_all_models(asking, live, place, folders):
    turn(place, "second")
    number = len(live.events("reloaded"))
    live.process.send_signal(signal.SIGHUP)
    live.until("reloaded", number + 2)
    fingerprint = asking.get("/v1/models/live").json()["fitted"]["fingerprint"]
    assert fingerprint == open_folder(folders["other"], "model").fingerprint()
    found = figures(asking.get("/metrics").text)
    assert found['milrec_reloads_total{model="ease",outcome="done"}'] >= 1
