"""Limits: what a request may ask for, how many are answered at a time and for how long."""

import asyncio
import inspect
import re
import threading
from pathlib import Path

import httpx
import pytest

from milrec.cli.serve import limit_options, serve
from milrec.errors import SettingsError
from milrec.server import app as app_module
from milrec.server.app import create_app
from milrec.server.limits import Limits
from milrec.server.registry import Registry
from milrec.server.service import Server
from milrec.settings import build
from pausing import LONG
from serving import TASTE, Client, post, refused

DOCS = Path(__file__).resolve().parents[2] / "docs" / "serving.md"

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long


def test_the_limits_of_the_command_are_those_of_the_server():
    defaults = {name: one.default for name, one in inspect.signature(serve).parameters.items()}
    for name, value in Limits():
        assert defaults[name] == value
    with pytest.raises(SettingsError):
        build(Limits, {"timeout": 0})


def test_the_documented_limits_are_those_of_the_server():
    table = re.search(r"## Limits\n\n(?:\|.*\n){2}((?:\|.*\n)+)", DOCS.read_text(encoding="utf-8"))
    assert table is not None
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table[1].splitlines()]
    fields = Limits.model_fields.items()
    assert rows == [[f"`--{name.replace('_', '-')}`", f"{one.default:,}", one.description] for name, one in fields]


def test_a_limit_of_the_command_line_reaches_the_server():
    reached = []
    command = limit_options(lambda *, limits: reached.append(limits))
    command(max_list=7, timeout=0.5)
    assert reached == [Limits(max_list=7, timeout=0.5)]
    with pytest.raises(SettingsError, match="setting 'max_batch' is 0"):
        command(max_batch=0)


def test_a_batch_counts_as_its_lists(registry):
    client = Client(create_app(Server(registry, Limits(max_running=3))))
    for number, words in ((3, None), (4, "a batch has at most 3 requests, not 4")):
        answer = client.post("/v1/recommend/batch", json={"requests": [TASTE] * number})
        assert answer.status_code == (422 if words else 200) and (words is None or words in refused(answer))
    server = Server(registry, Limits(max_running=3))
    with server.capacity.take(1):
        answer = Client(create_app(server)).post("/v1/recommend/batch", json={"requests": [TASTE] * 3})
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1" and "is busy" in answer.json()["error"]
    assert server.capacity.used == 0


def test_a_body_is_not_read_beyond_its_limit(client):
    answer = post(client, "/v1/recommend", {"adopted": ["x" * 30_000]})
    assert answer.status_code == 413 and "larger than 20,000 bytes" in refused(answer)

    async def pieces():
        for _ in range(100):
            yield b" " * 1_000

    answer = client.post("/v1/recommend", content=pieces(), headers={"content-type": "application/json"})
    assert answer.status_code == 413 and "larger than 20,000 bytes" in refused(answer)


async def asked_whether_ready(registry: Registry) -> httpx.Response:
    transport = httpx.ASGITransport(create_app(Server(registry)))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get("/readyz")


def test_a_server_that_is_busy_for_long_is_not_ready(registry, monkeypatch):
    release = threading.Event()
    registry.batcher.call(release.wait)
    try:
        answer = asyncio.run(asked_whether_ready(registry))
    finally:
        release.set()
    assert answer.status_code == 503 and "is busy" in answer.json()["error"]
    monkeypatch.setattr(app_module, "_READY_SECONDS", LONG)
    assert asyncio.run(asked_whether_ready(registry)).json() == {"status": "ready"}


async def answers_while_blocked(registry: Registry, limits: Limits, number: int, refused: int) -> list[httpx.Response]:
    """So many requests at once, while the scoring thread does something else until so many of them are refused."""
    release = threading.Event()
    registry.batcher.call(release.wait)
    transport = httpx.ASGITransport(create_app(Server(registry, limits)))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        requests = [asyncio.create_task(client.post("/v1/recommend", json=TASTE)) for _ in range(number)]
        waiting = set(requests)
        try:
            while number - len(waiting) < refused:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            release.set()
        return await asyncio.gather(*requests)


def test_a_request_that_takes_too_long_is_given_up(registry):
    (answer,) = asyncio.run(answers_while_blocked(registry, Limits(timeout=0.05), 1, refused=1))
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
    assert answer.json() == {"error": "there was no answer within 0.05 seconds; ask for less, or try again"}


def test_requests_beyond_the_limit_are_asked_to_try_again(registry):
    answers = asyncio.run(answers_while_blocked(registry, Limits(max_running=3, timeout=LONG), 5, refused=2))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 503, 503]
    assert all(answer.json() == {"error": "the server is busy; try again in a second"} for answer in answers[3:])


def test_limits_hold_over_a_real_connection(asking):
    answer = asking.post("/v1/recommend", json={"adopted": ["x" * 5000]})
    assert answer.status_code == 413 and "4,000 bytes" in refused(answer)
    answer = asking.post("/v1/recommend", content=iter([b" " * 3000] * 3), headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert "at most 50" in refused(asking.post("/v1/recommend", json={"adopted": [], "n": 51}))
    assert "at most 2 requests" in refused(asking.post("/v1/recommend/batch", json={"requests": [{"adopted": []}] * 3}))
