"""What comes late, changes or fails while the page is open."""

import re

import pytest
from playwright.sync_api import expect

from browsing import new_tab
from exploring import HOSTILE, add, fragment, listed, settled, titles_of

pytestmark = pytest.mark.xdist_group("pages")  # one worker: a browser takes long to start


def test_titles_are_text_whatever_they_hold(opened):
    page = opened()
    add(page, "liked", "bold")
    expect(page.locator("#liked-chips")).to_contain_text(HOSTILE)
    page.locator("#liked-chips button").click()
    add(page, "liked", "the a")
    expect(page.locator("#lists")).to_contain_text(HOSTILE)
    assert page.locator("#lists img, #lists .title b, #liked-chips img").count() == 0
    assert page.title() == "milrec explorer"


def hold_the_first_dial(page):
    """Asks for a share of 10 % and keeps the answer back."""
    held = []

    def hold(route):
        first = route.request.post_data_json["requests"][0].get("long_share") == 0.1
        held.append(route) if first else route.continue_()

    page.route("**/v1/recommend/batch", hold)
    with page.expect_request("**/v1/recommend/batch"):
        page.locator("#dial-number").fill("10")
    return held


def test_answers_that_come_late_are_dropped(opened, recommenders):
    page = opened("#liked=i001&model=mil")
    settled(page)
    held = hold_the_first_dial(page)
    page.locator("#dial-number").fill("90")
    settled(page)
    held[0].continue_()
    settled(page)
    assert listed(page, "mil") == recommenders["mil"].recommend_new(["i001"], long_share=0.9)["item"].to_pylist()


def test_answers_that_come_while_more_is_typed_are_dropped(browser, address, recommenders):
    """The page asks only when nothing has been typed for a moment; here that moment is held as well."""
    with new_tab(browser, reduced_motion="reduce") as page:
        check_that_late_answers_are_dropped(page, address, recommenders)


def check_that_late_answers_are_dropped(page, address, recommenders):
    page.clock.install()
    page.goto(f"{address}/#liked=i001&model=mil")
    settled(page)
    held = hold_the_first_dial(page)
    page.clock.pause_at(page.evaluate("Date.now() + 1000"))
    page.locator("#dial-number").fill("90")
    held[0].continue_()
    held[0].request.response()  # waits for the answer, or for the page to have dropped it
    page.evaluate("fetch('/healthz').then(answer => answer.text())")  # what came before this has been looked at
    expect(page.locator("#lists")).to_have_attribute("aria-busy", "true")
    page.clock.resume()
    settled(page)
    assert listed(page, "mil") == recommenders["mil"].recommend_new(["i001"], long_share=0.9)["item"].to_pylist()


def changed_facts(page, path, change):
    """From now on the server's answer at a path has other facts."""

    def answer(route):
        response = route.fetch()
        body = response.json()
        change(body)
        route.fulfill(response=response, json=body)

    page.route(path, answer)


def test_each_catalogue_has_its_own_titles_and_curve(opened):
    page = opened()
    changed_facts(page, "**/v1/models", lambda body: body["models"][2]["fitted"].update(train_fingerprint="other"))
    changed_facts(page, "**/v1/models/mil/items/i001", lambda body: body.update(title="Another title"))
    changed_facts(page, "**/v1/models/mil/popularity?*", lambda body: body["cuts"].update(short=100))
    opened("#liked=i001")
    settled(page)
    title, curve = page.locator("#liked-chips").text_content(), page.locator("#curve .band-name").all_text_contents()
    page.evaluate("location.hash = '#liked=i001&model=mil'")
    expect(page.locator("#liked-chips")).to_contain_text("Another title")
    settled(page)
    assert page.locator("#curve .band-name").all_text_contents() != curve
    page.evaluate("location.hash = '#liked=i001&model=ce-point'")
    expect(page.locator("#liked-chips")).to_have_text(title)
    settled(page)
    assert page.locator("#curve .band-name").all_text_contents() == curve


def test_a_title_that_could_not_be_had_is_asked_for_again(opened, recommenders):
    page = opened()
    page.route("**/items/i001", lambda route: route.abort(), times=1)
    opened("#liked=i001&model=mil")
    settled(page)
    expect(page.locator("#liked-chips")).to_contain_text("i001")
    page.locator("#dial").press("ArrowRight")
    expect(page.locator("#liked-chips")).to_contain_text(titles_of(recommenders["mil"])["i001"])


def test_a_model_that_was_loaded_anew_is_noticed(opened):
    page = opened("#liked=i001&model=mil")
    settled(page)
    new = {"fingerprint": "new", "train_fingerprint": "new"}
    changed_facts(page, "**/v1/models", lambda body: body["models"][2].update(n_items=999, fitted=new))
    with page.expect_request("**/v1/models/mil/popularity?*"):
        page.locator("#dial").press("ArrowRight")
    expect(page.locator("#catalogue")).to_contain_text("999 items")
    settled(page)
    assert float(fragment(page)["long"][0]) > 0


def test_a_curve_that_comes_late_does_not_replace_that_of_the_model_shown(opened):
    page = opened()
    changed_facts(page, "**/v1/models", lambda body: body["models"][2]["fitted"].update(train_fingerprint="other"))
    held = []
    page.route("**/v1/models/mil/popularity?*", lambda route: held.append(route))
    with page.expect_request("**/v1/models/mil/popularity?*"):
        opened("#liked=i001&model=mil")
    page.evaluate("location.hash = '#liked=i001&model=ce-point'")
    settled(page)
    wide = page.locator("#curve svg").get_attribute("width")
    late = {"n_items": 9, "ranks": [1, 9], "popularity": [9, 1], "cuts": {"short": 2, "medium": 5}}
    held[0].fulfill(json=late)
    page.set_viewport_size({"width": 1100, "height": 844})  # draws the curve again
    expect(page.locator("#curve svg")).not_to_have_attribute("width", wide)
    assert len(page.locator("#curve .line").get_attribute("points").split()) > 2


def test_the_curve_marks_what_is_listed_and_tells_its_title(opened, recommenders):
    page = opened("#liked=i001&model=mil&model=ce-point&n=10")
    settled(page)
    marks = page.locator("#curve .mark")
    expect(marks).to_have_count(20)
    assert page.locator("#curve .mark[tabindex='0']").count() == 1
    page.locator("#curve .mark[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    item = page.evaluate("document.activeElement.dataset.item")
    title = titles_of(recommenders["mil"])[item]
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith(f"{title}: mil ")
    expect(page.locator(".tip b")).to_have_text(title)
    expect(page.locator(f'#lists [data-item="{item}"]').first).to_have_class(re.compile("lit"))
    marks.last.hover()
    expect(page.locator(".tip")).to_contain_text("by popularity")
