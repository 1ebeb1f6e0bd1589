"""The log and the metrics."""

import numpy as np
import pytest

from milrec.lists.query import Query
from milrec.server.app import create_app
from milrec.server.copies import Folders
from milrec.server.model import Window
from milrec.server.registry import Registry
from milrec.server.service import Server
from serving import Client, figures

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long


def test_the_metrics_are_those_counted_by_hand(folders, mil):
    registry = Registry(Folders({"mil": folders["mil"], "ease": folders["ease"]}), together=1)
    server = Server(registry)
    client = Client(create_app(server))
    lists = [client.post("/v1/recommend", json={"user": user, "n": 10}).json() for user in ("u001", "u002", "u003")]
    client.post("/v1/recommend", json={"user": "nobody"})
    client.get("/v1/models/mil/items/i001")
    client.get("/v1/models/mil/items/nothing")
    found = figures(client.get("/metrics").text)
    shown = [one for answer in lists for one in answer["items"]]
    for tail in ("short", "medium", "long"):
        share = sum(one["tail"] == tail for one in shown) / 30
        assert found[f'milrec_live_tail_share{{model="mil",tail="{tail}"}}'] == pytest.approx(share)
    assert found['milrec_live_coverage{model="mil"}'] == len({one["item"] for one in shown}) / len(mil.item_ids)
    assert found['milrec_live_lists{model="mil"}'] == 3 and found['milrec_live_lists{model="ease"}'] == 0
    route = 'route="/v1/recommend"'
    assert found[f'milrec_requests_total{{method="POST",{route},status="200"}}'] == 3
    assert found[f'milrec_requests_total{{method="POST",{route},status="422"}}'] == 1
    assert found[f"milrec_request_seconds_count{{{route}}}"] == 4
    item = 'milrec_requests_total{method="GET",route="/v1/models/{name}/items/{item:path}",status='
    assert found[f'{item}"200"}}'] == 1 and found[f'{item}"404"}}'] == 1
    assert found["milrec_requests_running"] == 1  # the one that asks
    assert not any("i001" in name or "u001" in name for name in found)
    registry.stop()


def test_live_metrics_forget_old_lists(mil):
    window = Window(mil.catalogue, size=2)
    first, second, third = mil.answer([mil.ask(Query(user=user, n=4)) for user in mil.user_ids[:3]])
    for answer in (first, second, third):
        window.add(np.array([one.number for one in answer.items]))
    shown = [*second.items, *third.items]
    lists, tails, items = window.facts()
    assert lists == 2 and set(np.flatnonzero(items)) == {one.number for one in shown}
    assert tails == {tail: sum(one.tail == tail for one in shown) for tail in ("short", "medium", "long")}


def test_the_log_has_a_line_for_a_request_and_keeps_its_content_private(live, asking):
    asking.get("/v1/models/live/users/u001", headers={"x-request-id": "number-9"})
    asking.post("/v1/recommend", json={"adopted": ["i007"]}, headers={"x-request-id": "bad id"})
    (line,) = live.until("request", 1, id="number-9")
    live.until("request", 1, route="/v1/recommend", status=200)
    assert set(line) == {"time", "level", "event", "id", "method", "route", "status", "ms", "client", "key"}
    assert line["route"] == "/v1/models/{name}/users/{user:path}" and line["status"] == 200 and line["key"] == "shop"
    assert not any("u001" in text or "i007" in text or "bad id" in text for text in live.log)
