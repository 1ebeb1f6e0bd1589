"""The schema of the API, and the page that is made from it."""

import contextlib

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from milrec.server import app as app_module
from milrec.server.app import create_app
from milrec.server.copies import Folders
from milrec.server.limits import Limits
from milrec.server.registry import Registry
from milrec.server.service import Server
from pausing import LONG
from serving import Client

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long


CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def test_whatever_the_schema_allows_or_forbids_is_answered_as_the_schema_says(folders, monkeypatch):
    monkeypatch.setattr(app_module, "_READY_SECONDS", LONG)
    registry = Registry(Folders({"mil": folders["mil"]}), 64)  # of its own: schemathesis ends the app that it is given
    limits = Limits(max_body=100_000, max_list=60, timeout=LONG)
    api = schemathesis.openapi.from_asgi("/openapi.json", create_app(Server(registry, limits)))
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    tried = 0
    for operation in api.get_all_operations():
        for mode in modes:

            @given(case=operation.ok().as_strategy(generation_mode=mode))
            @settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
            def holds(case):
                nonlocal tried
                tried += 1
                case.call_and_validate(checks=CHECKS)

            with contextlib.suppress(Unsatisfiable):  # a route that takes nothing cannot be asked wrongly
                holds()
    assert tried > 100


def test_the_schema_says_what_a_request_may_hold(client):
    fields = client.get("/openapi.json").json()["components"]["schemas"]["RecommendBody"]["properties"]
    assert fields["dial"]["deprecated"] is True and "long_share" in fields["dial"]["description"]
    for name in ("long_share", "medium_share", "short_share"):
        number, null = fields[name]["anyOf"]
        assert (number["type"], number["minimum"], number["maximum"], null["type"]) == ("number", 0, 1, "null")
    ids, weights, null = fields["adopted"]["anyOf"]
    assert ids["type"] == "array" and weights["type"] == "object" and null["type"] == "null"
    assert weights["additionalProperties"]["minimum"] == 1e-30
    assert not [name for name, field in fields.items() if field.get("deprecated") and name != "dial"]


def test_the_reference_page_describes_every_route_and_fetches_nothing(client):
    page, found = client.get("/docs").text, client.get("/openapi.json").json()
    for path in found["paths"]:
        assert path in page.replace("&#39;", "'")
    for name in ("RecommendBody", "Rule", "BatchBody", "RecommendAnswer"):
        assert f'id="form-{name}"' in page
    assert page.count("<script") == 1 and '<script type="module" src="/docs.js"></script>' in page
    assert "style=" not in page and "https://" not in page and "onclick" not in page
    assert client.get("/docs.css").headers["content-type"].startswith("text/css")
    assert client.get("/docs.js").headers["content-type"].startswith("text/javascript")
    assert "https://" not in client.get("/docs.js").text
    assert "<noscript>Put the address of this page in place of http://HOST:PORT. </noscript>" in page


def test_what_does_not_change_is_made_once(registry, monkeypatch):
    made = []

    def page(schema):
        made.append(schema)
        return "page"

    monkeypatch.setattr(app_module, "reference_page", page)
    client = Client(create_app(Server(registry)))
    assert client.get("/docs").text == client.get("/docs").text == "page" and len(made) == 1
    recommender = registry.model("mil").recommender
    assert recommender._nearness is recommender._nearness
    assert recommender.catalogue.falling is recommender.catalogue.falling
