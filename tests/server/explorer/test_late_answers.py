"""What comes late, changes or fails while the page is open."""

import re

import pytest
from playwright.sync_api import expect

from browsing import new_tab
from exploring import HOSTILE, add, fragment, listed, open_empty, settled, titles_of

pytestmark = pytest.mark.xdist_group("pages")  # one worker: a browser takes long to start


def test_titles_are_text_whatever_they_hold(opened):
    page = open_empty(opened)
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
    page.set_viewport_size({"width": 900, "height": 844})  # draws the curve again
    expect(page.locator("#curve svg")).not_to_have_attribute("width", wide)
    assert len(page.locator("#curve .line").get_attribute("points").split()) > 2


def held_answers(page, path):
    """Answers that are kept back from now on; each goes on its way when the test says so."""
    held = []
    page.route(path, lambda route: held.append(route))
    return held


def test_a_story_that_takes_long_does_not_keep_the_page_waiting(opened):
    page = opened()
    settled(page)
    told = page.locator("#story-said").text_content()
    held = held_answers(page, "**/v1/story")
    page.route("**/web/story.js", lambda route: route.continue_())  # as impatient as it is
    with page.expect_request("**/v1/story"):
        opened()
    expect(page.locator("#catalogue")).to_contain_text("items ·")  # drawn at once
    expect(page.locator("#models")).to_be_visible()
    expect(page.locator(".invitation")).to_be_visible()
    settled(page)
    expect(page.get_by_role("link", name="Show the example")).to_be_hidden()
    (route,) = held  # asked for once
    route.continue_()
    page.get_by_role("link", name="Show the example").click()
    expect(page.locator("#story-said")).to_have_text(told)
    settled(page)


def test_what_a_visitor_does_before_the_story_comes_stays(opened, recommenders):
    page = opened()
    settled(page)  # its own story has come
    held = held_answers(page, "**/v1/story")
    with page.expect_request("**/v1/story"):
        opened("#model=mil")
    page.locator("#liked").fill("the a")
    page.locator("#liked-options li").first.click()
    settled(page)
    (liked,) = fragment(page)["liked"]
    with page.expect_response("**/v1/story"):
        held[-1].continue_()
    expect(page.get_by_role("link", name="Show the example")).to_be_visible()
    assert fragment(page)["liked"] == [liked]
    assert listed(page, "mil") == recommenders["mil"].recommend_new([liked])["item"].to_pylist()


def test_the_page_of_an_item_is_there_before_the_items_beside_it(opened, recommenders):
    page = opened()
    settled(page)
    company, similar = (held_answers(page, path) for path in ("**/listed-with?item=i002&*", "**/items/i002/similar?*"))
    with page.expect_request("**/items/i002/similar?*"):
        opened("#liked=i001&model=mil&item=i002")
    expect(page.locator("#item-title")).to_have_text(titles_of(recommenders["mil"])["i002"])
    expect(page.locator("#item-now")).to_contain_text("Missing-information loss")
    settled(page)
    expect(page.locator("#item-view [aria-busy=true]")).to_have_count(2)
    expect(page.locator("#csv")).to_be_disabled()
    similar[0].continue_()
    expect(page.locator("#similar-said")).to_be_visible()
    expect(page.locator("#item-view [aria-busy=true]")).to_have_count(1)
    expect(page.locator("#csv")).to_be_disabled()
    company[0].fulfill(status=503, json={"error": "the server is busy"})
    expect(page.locator("section[aria-labelledby=item-company-title]")).to_contain_text("The server is busy")
    expect(page.locator("#csv")).to_be_enabled()


def test_items_that_come_when_the_page_shows_another_are_dropped(opened, recommenders):
    page = opened()
    held = held_answers(page, "**/listed-with?item=i002&*")
    with page.expect_request("**/listed-with?item=i002&*"):
        opened("#liked=i001&model=mil&item=i002")
    page.evaluate("location.hash = '#liked=i001&model=mil&item=i003'")
    expect(page.locator("#item-title")).to_have_text(titles_of(recommenders["mil"])["i003"])
    expect(page.locator("#item-view [aria-busy=true]")).to_have_count(0)
    settled(page)
    before = page.locator("#item-view").inner_text()
    held[0].fulfill(json={"items": [], "listed": 0, "n_lists": 1})
    page.evaluate("fetch('/healthz').then(answer => answer.text())")  # what came before this has been looked at
    assert page.locator("#item-view").inner_text() == before


def test_what_is_said_about_a_list_is_no_rule(opened):
    page = opened()
    why = "no adopted items to go by, so the list goes by popularity"
    rule = "at least 30 % of the list from the long tail: 2 of 6, no more long-tail items may be listed"
    changed_facts(page, "**/v1/recommend/batch", lambda body: body["answers"][0].update(unmet=[why]))
    opened("#disliked=i001&model=mil")
    expect(page.locator(".unmet")).to_contain_text("About this list:")
    expect(page.locator(".unmet li")).to_have_text(why)
    changed_facts(page, "**/v1/recommend/batch", lambda body: body["answers"][0].update(unmet=[rule, why]))
    page.locator("#dial").press("ArrowRight")
    expect(page.locator(".unmet")).to_have_count(2)
    expect(page.locator(".unmet").first).to_contain_text("Some rules could not be met:")
    expect(page.locator(".unmet").first.locator("li")).to_have_count(1)


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
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith(f"{title}: number ")
    expect(page.locator(".tip b")).to_have_text(title)
    expect(page.locator(f'#lists [data-item="{item}"]').first).to_have_class(re.compile("lit"))
    marks.last.hover()
    expect(page.locator(".tip")).to_contain_text("by popularity")
