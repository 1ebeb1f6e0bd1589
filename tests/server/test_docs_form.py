"""The page at /docs in a browser: where it is, and what its forms send."""

import json
import re
import shlex
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import expect

from browsing import new_tab
from milrec.server.gate.keys import read_keys
from milrec.server.limits import Limits
from pausing import LONG
from serving import listening

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long


@pytest.fixture
def here(registry):
    with listening(registry, Limits(timeout=LONG)) as found:
        yield found


@contextmanager
def docs_of(browser, port, host="127.0.0.1", **how):
    """The page in a tab, as soon as its script has put in what is served here."""
    with new_tab(browser, **how) as page:
        wrong = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"http://{host}:{port}/docs")
        yield page
        assert wrong == []


def form_of(page, path, method="POST"):
    return page.locator(f'form[data-path="{path}"][data-method="{method}"]')


def filled(page, path="/v1/recommend"):
    expect(form_of(page, path).get_by_label("Body")).to_have_value(re.compile('"model": "mil"'))


def test_every_route_can_be_sent_as_the_form_has_it_and_is_answered(browser, here):
    with docs_of(browser, here.port) as page:
        filled(page)
        for form in page.locator("form.request").all():
            form.get_by_role("button", name="Send").click()
            expect(form.locator("output")).to_have_text(re.compile(r"^200 OK in \d+ ms$"))
            expect(form.locator(".answer")).not_to_be_empty()


def test_the_page_shows_the_host_and_port_that_it_came_from(browser, here):
    for host in ("127.0.0.1", "localhost"):
        with docs_of(browser, here.port, host) as page:
            filled(page)
            address = f"http://{host}:{here.port}"
            expect(page.locator("#address")).to_have_text(address)
            commands = page.locator("pre.curl").all_text_contents()
            assert commands and all(address in command and "HOST" not in command for command in commands)


def test_a_command_on_the_page_does_what_its_form_does(browser, here):
    with docs_of(browser, here.port) as page:
        filled(page)
        form = form_of(page, "/v1/recommend")
        form.get_by_label("Body").fill("""{"adopted": ["i001", "it's"],\n "strict": false}""")
        form.get_by_role("button", name="Send").click()
        answer = form.locator(".answer")
        expect(answer).to_contain_text("it's")
        command = shlex.split(form.locator("xpath=..").locator("pre.curl").text_content())
        assert command[:2] == ["curl", f"http://127.0.0.1:{here.port}/v1/recommend"]
        asked = json.loads(command[-1])
        assert asked == {"adopted": ["i001", "it's"], "strict": False}
        found = httpx.post(command[1], json=asked, timeout=LONG).json()
        assert json.loads(answer.text_content()) == found and found["skipped"] == ["it's"]


def test_ids_and_names_of_any_kind_reach_the_server_as_they_are(browser, here):
    with docs_of(browser, here.port) as page:
        filled(page)
        form = form_of(page, "/v1/models/{name}/items/{item}", "GET")
        form.get_by_label("item").fill("a/b?c#d&é <b>$&")
        form.get_by_role("button", name="Send").click()
        expect(form.locator("output")).to_have_text(re.compile("^404 "))
        expect(form.locator(".answer")).to_contain_text("unknown item 'a/b?c#d&é <b>$&'")
        assert form.locator(".answer b").count() == 0


def test_a_wrong_request_shows_its_status_and_sentence(browser, here):
    with docs_of(browser, here.port) as page:
        filled(page)
        form = form_of(page, "/v1/recommend")
        form.get_by_label("Body").fill('{"user": "nobody"}')
        form.get_by_label("Body").press("Tab")
        page.keyboard.press("Enter")  # on the button
        expect(form.locator("output")).to_have_text(re.compile("^422 "))
        expect(form.locator(".answer")).to_contain_text("unknown user 'nobody'")
        form.get_by_label("Body").fill("{")
        form.get_by_role("button").click()
        expect(form.locator(".answer")).to_contain_text("the body is not readable JSON")


def test_with_keys_the_page_says_so_and_takes_one(browser, registry, key_and_file):
    key, file = key_and_file
    with listening(registry, Limits(timeout=LONG), read_keys(file)) as here, docs_of(browser, here.port) as page:
        expect(page.get_by_role("status").first).to_have_text("This server needs a key.")
        form = form_of(page, "/v1/models", "GET")
        form.get_by_role("button").click()
        expect(form.locator("output")).to_have_text(re.compile("^401 "))
        page.get_by_label("Key for the requests").fill("wrong")
        page.get_by_label("Key for the requests").press("Enter")
        expect(page.get_by_role("status").first).to_have_text("The server does not know this key.")
        page.get_by_label("Key for the requests").fill(key)
        page.get_by_role("button", name="Use this key").click()
        filled(page)
        form.get_by_role("button").click()
        expect(form.locator("output")).to_have_text(re.compile("^200 "))
        assert key not in page.locator("main").text_content() and page.evaluate(
            f"sessionStorage['milrec-key'] === '{key}'"
        )
        assert "Authorization: Bearer KEY" in page.locator("pre.curl").first.text_content()


def test_without_a_script_the_commands_remain(browser, here):
    with docs_of(browser, here.port, java_script_enabled=False) as page:
        expect(page.locator("pre.curl").first).to_contain_text("curl http://HOST:PORT/v1/recommend")
        assert not page.locator("form.request").first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_sticks_out(browser, here, scheme):
    with docs_of(browser, here.port, viewport={"width": 390, "height": 844}, color_scheme=scheme) as page:
        filled(page)
        form_of(page, "/v1/recommend").get_by_role("button").click()
        expect(form_of(page, "/v1/recommend").locator(".answer")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
