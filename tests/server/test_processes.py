"""A server of several processes: to its clients, and to whoever runs it, it is one."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

import httpx
import pytest

import milrec
from commands import milrec as command
from milrec.errors import FolderError, UnknownIdError
from milrec.lists.query import Query
from milrec.server.processes.channel import Channel, GoneError
from milrec.server.processes.figures import added, lasting, metrics_page
from pausing import LONG, Pause
from serving import Running, as_json, figures, flip, refused, running, turn

pytestmark = [
    pytest.mark.xdist_group("serve"),  # one worker: what it sets up takes long
    pytest.mark.skipif(os.name != "posix", reason="several processes can share a socket on Linux and macOS only"),
]


@pytest.fixture(scope="module")
def place(folders, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("several")
    shutil.copytree(folders["mil"], place / "first")
    shutil.copytree(folders["other"], place / "second")
    (place / "live").symlink_to("first")
    return place


@pytest.fixture(scope="module")
def several(place, folders):
    with running(place / "live", folders["ease"], "--processes", 2, "--timeout", LONG) as server:
        yield server


@pytest.fixture
def first(several, place):
    """The server, serving the first model."""
    turn(place, "first")
    httpx.post(f"{several.url}/v1/models/live/reload", timeout=LONG).raise_for_status()
    return several


def children(server: Running) -> list[int]:
    """The two processes that serve, by their number; the log that names them may be read later than they serve."""
    found = {event["process"]: event["pid"] for event in server.until("process serving", 2)}
    return [found[number] for number in sorted(found)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    if sys.platform != "linux":
        return True
    with contextlib.suppress(FileNotFoundError):  # it has just ended
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def until(condition) -> None:
    ends = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def asked_of_all(server: Running, body: dict, number: int = 2) -> list[dict]:
    """Answers to one request, over new connections, until so many processes have given some."""
    answers, seen = [], len(server.events("request", route="/v1/recommend"))

    def by_all() -> bool:
        answers.append(httpx.post(f"{server.url}/v1/recommend", json=body, timeout=LONG).json())
        events = server.until("request", seen + len(answers), route="/v1/recommend")[seen:]
        return len({event["process"] for event in events}) >= number

    until(by_all)
    return answers


def expected(model: milrec.Recommender, **query) -> list[dict]:
    (answer,) = model.answer([model.ask(Query(**query))])
    return as_json(answer)


def test_all_processes_answer_and_as_one_would(first, mil):
    query = {"user": "u001", "n": 20, "reasons": 2}
    lists = [answer["items"] for answer in asked_of_all(first, query)]
    assert lists == [expected(mil, **query)] * len(lists)


def test_the_metrics_are_the_sums_whichever_process_answers(first, mil):
    users = mil.user_ids[:6]
    lists = [answer for user in users for answer in asked_of_all(first, {"user": user, "n": 10})]
    pages = [figures(httpx.get(f"{first.url}/metrics", timeout=LONG).text) for _ in range(4)]
    route = 'milrec_requests_total{method="POST",route="/v1/recommend",status="200"}'
    until(lambda: len(first.events("request", route="/v1/recommend", status=200)) == pages[0][route])
    shown = {one["item"] for answer in lists for one in answer["items"]}
    for page in pages:
        assert page[route] == pages[0][route] and page["milrec_processes"] == 2
        assert page['milrec_request_seconds_count{route="/v1/recommend"}'] >= page[route]
        assert page['milrec_live_lists{model="live"}'] == len(lists)
        assert page['milrec_live_coverage{model="live"}'] == pytest.approx(len(shown) / len(mil.item_ids))
        tails = [one["tail"] for answer in lists for one in answer["items"]]
        for tail in ("short", "medium", "long"):
            share = page[f'milrec_live_tail_share{{model="live",tail="{tail}"}}']
            assert share == pytest.approx(tails.count(tail) / len(tails))


def test_a_reload_reaches_all_processes_before_it_is_answered(first, place, folders):
    other = milrec.load(folders["other"])
    turn(place, "second")
    httpx.post(f"{first.url}/v1/models/live/reload", timeout=LONG).raise_for_status()
    lists = [answer["items"] for answer in asked_of_all(first, {"user": "u001"})]
    assert lists == [expected(other, user="u001")] * len(lists)


def test_a_hang_up_signal_reloads_all_models_in_all_processes(first, place, folders):
    other, number = milrec.load(folders["other"]), len(first.events("reloaded"))
    turn(place, "second")
    first.process.send_signal(signal.SIGHUP)
    first.until("reloaded", number + 2)
    lists = [answer["items"] for answer in asked_of_all(first, {"user": "u001"})]
    assert lists == [expected(other, user="u001")] * len(lists)
    found = figures(httpx.get(f"{first.url}/metrics", timeout=LONG).text)
    assert found['milrec_reloads_total{model="ease",outcome="done"}'] == len(first.events("reloaded", model="ease"))


def test_a_folder_that_is_refused_is_refused_by_all(first, place, folders, mil):
    shutil.rmtree(place / "bad", ignore_errors=True)
    shutil.copytree(folders["other"], place / "bad")
    flip(place / "bad" / "weights.safetensors")
    turn(place, "bad")
    answer = httpx.post(f"{first.url}/v1/models/live/reload", timeout=LONG)
    assert answer.status_code == 409 and "has changed since it was saved" in refused(answer)
    lists = [answer["items"] for answer in asked_of_all(first, {"user": "u001"})]
    assert lists == [expected(mil, user="u001")] * len(lists)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_weights_are_the_same_pages_in_all_processes(first):
    asked_of_all(first, {"user": "u001"})
    for pid in children(first):
        text = Path(f"/proc/{pid}/smaps").read_text()
        maps = [part for part in text.split("VmFlags") if "/weights.safetensors" in part]
        assert len(maps) >= 2  # of both models
        for one in maps:
            values = dict(line.split(":", 1) for line in one.splitlines() if ": " in line and "kB" in line)
            assert int(values["Rss"].split()[0]) > 0 and int(values["Private_Dirty"].split()[0]) == 0


def test_a_process_that_is_killed_is_replaced_and_nothing_is_forgotten(first, mil):
    """The replacement serves what the others serve, whatever the folder holds by then."""
    before = figures(httpx.get(f"{first.url}/metrics", timeout=LONG).text)
    number, ended = len(first.events("process serving")), len(first.events("process ended"))
    os.kill(children(first)[0], signal.SIGKILL)
    answer = httpx.post(f"{first.url}/v1/recommend", json={"user": "u001"}, timeout=LONG)
    assert answer.json()["items"] == expected(mil, user="u001")
    assert first.until("process ended", ended + 1)[-1]["how"] == "signal SIGKILL"
    first.until("process serving", number + 1)
    lists = [answer["items"] for answer in asked_of_all(first, {"user": "u001"})]
    assert lists == [expected(mil, user="u001")] * len(lists)
    after = figures(httpx.get(f"{first.url}/metrics", timeout=LONG).text)
    assert after["milrec_processes"] == 2 and after["milrec_processes_replaced_total"] == 1
    counters = [name for name in before if name.startswith(("milrec_requests_total", "milrec_request_seconds_count"))]
    assert counters and all(after[name] >= before[name] for name in counters)


def test_a_process_that_ends_during_a_reload_leaves_the_old_model_to_all(place, mil):
    turn(place, "first")
    with contextlib.closing(Pause("reload")) as pause, running(place / "live", "--processes", 2, pause=pause) as server:
        pause.watch(server.process)
        turn(place, "second")
        with contextlib.ExitStack() as connections:
            link = connections.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=LONG))
            link.sendall(b"POST /v1/models/live/reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            os.kill(pause.arrive(), signal.SIGKILL)
            pause.close()
            server.until("reload refused", 1)
        server.until("process serving", 3)
        lists = [answer["items"] for answer in asked_of_all(server, {"user": "u001"})]
        assert lists == [expected(mil, user="u001")] * len(lists)
        server.process.send_signal(signal.SIGTERM)
        assert server.ended()[0] == 0


def test_a_stop_waits_for_the_request_under_way_and_leaves_nothing_behind(folders, tmp_path):
    shutil.copytree(folders["mil"], tmp_path / "m")
    with (
        running(tmp_path / "m", "--processes", 2, "--timeout", LONG) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=LONG) as link,
    ):
        body = b'{"adopted": ["i001"], "n": 2}'
        head = b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        link.sendall(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:10])
        assert link.recv(4096).startswith(b"HTTP/1.1 100 Continue"), "the request is under way"
        pids = children(server)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: sum(map(is_alive, pids)) == 1)  # the other process has nothing to wait for
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", server.port), timeout=LONG)
        link.sendall(body[10:])
        answer = b""
        while piece := link.recv(4096):
            answer += piece
        assert answer.startswith(b"HTTP/1.1 200") and b'"rank":2' in answer
        code, log = server.ended()
    assert code == 0 and "Traceback" not in log and log.count('"stopped"') == 1
    assert not any(map(is_alive, pids))
    assert [one.name for one in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("point", ["private copy", "import uvicorn.config"])
def test_an_interrupt_while_it_starts_ends_all_of_it(folders, tmp_path, point):
    """The point is in the supervisor, or in a process that it has started."""
    shutil.copytree(folders["mil"], tmp_path / "m")
    with contextlib.closing(Pause(point)) as pause:
        with running(tmp_path / "m", "--processes", 2, pause=pause, wait=False) as server:
            pause.watch(server.process)
            pid = pause.arrive()
            server.process.send_signal(signal.SIGINT)
            pause.close()
            code, log = server.ended()
        assert (code, log) == (130, "milrec: interrupted\n")
        until(lambda: not is_alive(pid))
    assert [one.name for one in tmp_path.iterdir()] == ["m"]


def test_processes_end_with_their_supervisor_and_a_server_ends_with_its_last_process(folders, tmp_path):
    shutil.copytree(folders["mil"], tmp_path / "m")
    with running(tmp_path / "m", "--processes", 2) as server:
        pids = children(server)
        server.process.kill()
        until(lambda: not any(map(is_alive, pids)))
    with running(tmp_path / "m", "--processes", 2) as server:
        (room,) = tmp_path.glob(".milrec-serving*")
        for file in room.glob("*/weights.safetensors"):
            file.unlink()
        for pid in children(server):
            os.kill(pid, signal.SIGKILL)
        code, log = server.ended()
    last = log.strip().splitlines()[-1]
    assert code == 1 and last.startswith("milrec: no server process is left, and none can be started: ")
    assert [one.name for one in tmp_path.iterdir()] == ["m"]


def test_mistakes_at_the_start_are_one_sentence(folders, tmp_path):
    shutil.copytree(folders["mil"], tmp_path / "bad")
    manifest = tmp_path / "bad" / "milrec.json"
    manifest.write_text(manifest.read_text().replace('"dae"', '"dea"'))
    for folder, more, sentence in (
        (tmp_path / "bad", (), "is damaged: it has changed since it was saved"),
        (folders["mil"], ("--model-class", "nowhere:Nothing"), "nowhere"),
    ):
        done = command("serve", folder, "--port", 0, "--processes", 2, *more)
        assert done.returncode == 1 and sentence in done.stderr and len(done.stderr.strip().splitlines()) == 1
    for number in (0, -1, 65, "two", 1.5):
        done = command("serve", folders["mil"], "--processes", number)
        assert done.returncode == 2 and "--processes" in done.stderr and "Traceback" not in done.stderr


def snapshot(requests: int, running: int, shown: str, lists: int) -> dict:
    since = 100.0 + requests
    return {
        "families": [
            {
                "name": "milrec_requests",
                "help": "Requests answered",
                "type": "counter",
                "samples": [
                    ["milrec_requests_total", {"status": "200"}, requests],
                    ["milrec_requests_created", {"status": "200"}, since],
                ],
            },
            {
                "name": "milrec_requests_running",
                "help": "Running",
                "type": "gauge",
                "samples": [["milrec_requests_running", {}, running]],
            },
        ],
        "models": [
            {
                "model": "m",
                "kind": "dae",
                "loss": "mil",
                "fingerprint": "f",
                "lists": lists,
                "tails": {"short": lists, "medium": 0, "long": 3 * lists},
                "shown": shown,
                "n_items": 8,
            }
        ],
    }


def test_figures_of_several_processes_are_added_up_by_hand():
    ended = added([lasting(snapshot(5, 9, "ff", 9)), lasting(snapshot(2, 9, "ff", 9))])
    page = figures(metrics_page([snapshot(10, 1, "c0", 1), snapshot(20, 2, "60", 2)], [ended]).decode())
    assert page['milrec_requests_total{status="200"}'] == 37 and page['milrec_requests_created{status="200"}'] == 102
    assert page["milrec_requests_running"] == 3 and page["milrec_processes"] == 2
    assert page['milrec_live_lists{model="m"}'] == 3
    assert page['milrec_live_tail_share{model="m",tail="long"}'] == 0.75
    assert page['milrec_live_coverage{model="m"}'] == 3 / 8  # items 0, 1 and 1, 2


def test_processes_ask_each_other_and_learn_what_went_wrong():
    async def answer(what: str, values: dict) -> dict:
        if what == "wrong":
            raise UnknownIdError(f"unknown {values['name']}")
        if what == "broken":
            raise ZeroDivisionError("by nought")
        await asyncio.sleep(values["wait"])
        return {"said": values["text"]}

    async def talk() -> None:
        one, other = socket.socketpair()
        here, there = await Channel.over(one, answer), await Channel.over(other, answer)
        slow, quick = here.ask("echo", text="half \ud800", wait=0.05), there.ask("echo", text="x" * 300_000, wait=0)
        assert [said["said"][:6] for said in await asyncio.gather(slow, quick)] == ["half \ud800", "xxxxxx"]
        with pytest.raises(UnknownIdError, match="unknown thing"):
            await here.ask("wrong", name="thing")
        with pytest.raises(FolderError, match="ZeroDivisionError: by nought"):
            await there.ask("broken")
        waiting = asyncio.create_task(here.ask("echo", text="", wait=LONG))
        await asyncio.sleep(0)
        there.close()
        with pytest.raises(GoneError):
            await waiting
        with pytest.raises(GoneError):
            await here.ask("echo", text="", wait=0)
        await here.ended()
        here.close()

    asyncio.run(talk())
