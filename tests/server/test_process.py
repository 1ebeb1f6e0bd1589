"""`milrec serve` as a process: how it starts, which signals it heeds and how it ends."""

import contextlib
import http.client
import json
import shutil
import signal
import socket
from pathlib import Path

import httpx
import pytest

from commands import milrec
from milrec.cli.serve import named_folders
from milrec.errors import SettingsError
from milrec.server.copies import Folders
from milrec.server.listener import _handled
from pausing import LONG, Pause
from serving import contents, flip, running, turn

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long


def test_models_are_named_after_their_folder_or_explicitly(tmp_path):
    (tmp_path / "a=b").mkdir()
    assert named_folders(["x/mil", "ce=runs/ce"]) == {"mil": Path("x/mil"), "ce": Path("runs/ce")}
    assert named_folders([f"{tmp_path}/a=b"]) == {"a=b": tmp_path / "a=b"}
    with pytest.raises(SettingsError, match="two models are called 'm'"):
        named_folders(["x/m", "y/m"])
    for wrong in ("=x", "a/b=x"):
        with pytest.raises(SettingsError, match="cannot be the name of a model"):
            named_folders([wrong])


def test_mistakes_at_the_start_are_one_sentence(folders, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        shutil.copytree(folders["mil"], tmp_path / "bad")
        flip(tmp_path / "bad" / "items.arrow")
        for arguments, sentence in (
            ([], "say what to serve"),
            ([tmp_path / "none"], "there is no model folder"),
            ([tmp_path / "bad"], "has changed since it was saved"),
            ([folders["mil"], "--keys", tmp_path / "none"], "there is no key file"),
            ([folders["mil"], "--port", port], f"port {port} is in use; choose another --port"),
            (
                [folders["mil"], "--host", ".."],
                "cannot listen on '..' (not a host name); choose another --host",
            ),
            ([folders["mil"], folders["mil"]], "two models are called 'mil'"),
        ):
            done = milrec("serve", *arguments)
            assert done.returncode == 1 and sentence in done.stderr, done.stderr
            assert len(done.stderr.strip().splitlines()) == 1 and not done.stdout


def test_a_server_that_is_open_to_everyone_says_so(folders):
    with running(folders["mil"], "--host", "0.0.0.0", wait=False) as server:
        line = server.process.stdout.readline()
        assert (
            "at http://0.0.0.0:" in line
            and "note: anyone who can reach 0.0.0.0 may use this server" in server.first_words()
        )


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/web/../../../../../../etc/passwd",
        "/web/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/web/%2e%2e/%2e%2e/service.py",
        "/web//etc/passwd",
        "/web/..\\..\\service.py",
        "/v1/models/../../etc/passwd",
        "/v1/models/..%2ffirst",
        "/v1/models/%2e%2e/items",
        "/v1/models/live/items/../../../milrec.json",
        "/v1/models/live/items/..%2f..%2fmilrec.json",
        "/v1/models/live/weights.safetensors",
        "/v1/models/%00/items",
        "//etc/passwd",
    ],
)
def test_no_path_leads_to_a_file_outside(live, key_and_file, path):
    """Over a bare connection: no client library tidies the path up."""
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=LONG)
    connection.putrequest("GET", path, skip_accept_encoding=True)
    connection.putheader("X-API-Key", key_and_file[0])
    connection.endheaders()
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    assert 400 <= answer.status < 500 and set(body) == {"error"} and "root:" not in body["error"]


def test_a_stop_waits_for_the_request_under_way(folders):
    with (
        running(folders["mil"], "--timeout", LONG) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=LONG) as link,
        socket.create_connection(("127.0.0.1", server.port), timeout=LONG) as idle,
    ):
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(4096).startswith(b"HTTP/1.1 200")
        body = b'{"adopted": ["i001"], "n": 2}'
        head = "POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Expect: 100-continue\r\nContent-Length: {len(body)}"
        link.sendall(head.encode() + b"\r\n\r\n" + body[:10])
        assert link.recv(4096).startswith(b"HTTP/1.1 100 Continue"), "the request is under way"
        server.process.send_signal(signal.SIGTERM)
        while idle.recv(4096):
            pass  # an idle connection is closed when the stop begins
        assert server.process.poll() is None
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", server.port), timeout=LONG)
        link.sendall(body[10:])
        answer = b""
        while piece := link.recv(4096):
            answer += piece
        assert answer.startswith(b"HTTP/1.1 200") and b'"rank":2' in answer
        code, log = server.ended()
        assert code == 0 and "Traceback" not in log and '"stopped"' in log


def test_an_interrupt_stops_a_server_cleanly(folders):
    with running(folders["mil"]) as server:
        server.process.send_signal(signal.SIGINT)
        code, log = server.ended()
    assert code == 0 and "Traceback" not in log and "interrupted" not in log and '"stopped"' in log


def test_a_system_without_hang_up_signals_serves_too(folders):
    """As on Windows: there is no SIGHUP to reload by, and all else is the same."""
    begin = ("-c", "import signal; del signal.SIGHUP; from milrec.entry import main; main()")
    with running(folders["mil"], begin=begin) as server:
        assert httpx.get(f"{server.url}/healthz", timeout=LONG).json() == {"status": "alive"}
        server.process.send_signal(signal.SIGTERM)
        code, log = server.ended()
    assert code == 0 and "Traceback" not in log and '"stopped"' in log


def test_signal_handlers_are_given_back():
    before, seen = signal.getsignal(signal.SIGTERM), []
    with _handled({signal.SIGTERM: lambda *_: seen.append("ours")}):
        signal.raise_signal(signal.SIGTERM)
    assert seen == ["ours"] and signal.getsignal(signal.SIGTERM) is before


def test_a_stop_during_a_reload_ends_the_process(folders):
    """The stop comes when the folder has been read and the new model is not tried yet."""
    with contextlib.closing(Pause("reload")) as pause:
        models = [f"m{number}={folders['mil']}" for number in range(2)]
        with running(*models, pause=pause) as server:
            pause.watch(server.process)
            server.process.send_signal(signal.SIGHUP)
            pause.arrive()
            server.process.send_signal(signal.SIGTERM)
            pause.close()  # of the other model too
            code, log = server.ended()
            assert code == 0 and '"stopped"' in log


@pytest.mark.parametrize("processes", [1, 2])
def test_a_stop_during_the_start_ends_the_process_and_leaves_nothing_behind(folders, tmp_path, processes):
    shutil.copytree(folders["mil"], tmp_path / "m")
    with (
        contextlib.closing(Pause("private copy")) as pause,
        running(tmp_path / "m", "--processes", processes, pause=pause, wait=False) as server,
    ):
        pause.watch(server.process)
        pause.arrive()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(LONG) == 0
    assert [one.name for one in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("point", ["import milrec.server.app", "private copy", "import uvicorn.config", "reload"])
def test_a_killed_server_leaves_the_model_folders_as_they_were(folders, tmp_path, point):
    """Killed before it has read a folder, when it has read it, and when it reads another; the next server tidies up."""
    place = tmp_path
    for name, folder in (("first", "mil"), ("second", "other")):
        shutil.copytree(folders[folder], place / name)
    (place / "live").symlink_to("first")
    before = [contents(place / "first"), contents(place / "second")]
    reload = b"POST /v1/models/live/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    with (
        contextlib.closing(Pause(point)) as pause,
        running(place / "live", pause=pause, wait=point == "reload") as server,
        contextlib.ExitStack() as connections,
    ):
        pause.watch(server.process)
        if point == "reload":
            turn(place, "second")
            link = socket.create_connection(("127.0.0.1", server.port), timeout=LONG)
            connections.enter_context(link).sendall(reload)
        pause.arrive()
        server.kill()
    assert [contents(place / "first"), contents(place / "second")] == before
    Folders({"next": place / "first"}).take("next").release()
    assert sorted(one.name for one in place.iterdir()) == ["first", "live", "second"]
