"""Composing a taste, or choosing a user: the page shows the lists of the library."""

import pytest
from playwright.sync_api import expect

from exploring import NAMES, add, fragment, listed, settled, titles_of

pytestmark = pytest.mark.xdist_group("pages")  # one worker: a browser takes long to start


def test_a_taste_composed_by_keyboard_gives_the_lists_of_the_library(opened, recommenders):
    page = opened()
    settled(page)
    liked, disliked = add(page, "liked", "the g"), add(page, "disliked", "the w")
    chips = page.locator("#liked-chips li, #disliked-chips li").all_inner_texts()
    titles = titles_of(recommenders["mil"])
    assert [chip.split("\n")[0] for chip in chips] == [titles[liked], titles[disliked]]
    for name, recommender in recommenders.items():
        wanted = recommender.recommend_new([liked], [disliked])["item"].to_pylist()
        assert listed(page, name) == wanted and len(wanted) == 20
    first = page.locator('[data-model="mil"] .item').first
    row = recommenders["mil"].recommend_new([liked], [disliked]).slice(0, 1).to_pylist()[0]
    for text in (row["title"], f"{row['tail']} tail", f"{row['popularity']} adopter"):
        expect(first).to_contain_text(text)
    expect(page.locator(".reason").first).to_have_text(f"because of {titles[liked]}")


def test_what_is_chosen_can_be_removed_and_focus_stays_near(opened):
    page = opened("#liked=i001&liked=i002&disliked=i003")
    settled(page)
    page.get_by_role("button", name="Remove").first.click()
    settled(page)
    assert fragment(page)["liked"] == ["i002"]
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("Remove")
    page.get_by_role("button", name="Clear the taste").click()
    expect(page.locator(".invitation")).to_be_visible()
    assert page.evaluate("document.activeElement.id") == "liked"


def test_the_combobox_is_worked_by_keys(opened):
    page = opened()
    settled(page)  # the field cannot take the focus while the models are being fetched
    box = page.locator("#liked")
    box.focus()
    assert box.get_attribute("aria-expanded") == "false"
    page.keyboard.type("the")
    options = page.locator("#liked-options [role=option]")
    expect(options).to_have_count(8)
    assert box.get_attribute("aria-expanded") == "true"
    active = page.locator(f"#{box.get_attribute('aria-activedescendant')}")
    expect(active).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(options.last).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(options).to_have_count(0)
    assert box.input_value() == "the"
    page.keyboard.press("Escape")
    assert box.input_value() == ""
    page.keyboard.type("no such title")
    expect(page.get_by_text("Nothing found for 'no such title'.")).to_be_visible()


def test_the_dial_reranks_and_says_what_it_did(opened, recommenders):
    page = opened("#liked=i001&liked=i002")
    settled(page)
    page.locator("#dial").focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    settled(page)
    assert fragment(page)["dial"] == ["0.3"] and page.locator("#dial-number").input_value() == "0.3"
    for name, recommender in recommenders.items():
        turned = recommender.recommend_new(["i001", "i002"], dial=0.3)
        straight = recommender.recommend_new(["i001", "i002"])["item"].to_pylist()
        assert listed(page, name) == turned["item"].to_pylist()
        column = page.locator(f'[data-model="{name}"]')
        fresh = [item for item in turned["item"].to_pylist() if item not in straight]
        expect(column.locator(".changed")).to_have_text(f"{len(fresh)} of 20 are here because of the dial")
        expect(column.locator(".moved.new")).to_have_count(len(fresh))
        for tail in ("short", "medium", "long"):
            share = turned["tail"].to_pylist().count(tail) / 20
            expect(column.locator(f"[data-share={tail}]")).to_have_text(f"{round(100 * share)} %")
    expect(page.locator("#said")).to_contain_text("from the long tail")


def test_a_number_beyond_the_slider_is_taken(opened, recommenders):
    page = opened("#liked=i001&model=mil")
    page.locator("#dial-number").fill("7.5")
    settled(page)
    turned = recommenders["mil"].recommend_new(["i001"], dial=7.5)["item"].to_pylist()
    assert listed(page, "mil") == turned
    page.locator("#dial-number").fill("")
    page.locator("#n").focus()
    expect(page.locator("#dial-number")).to_have_value("7.5")  # a blank field says again what is in force
    assert listed(page, "mil") == turned


def test_the_lists_to_compare_with_are_asked_for_without_reasons(opened):
    page = opened("#liked=i001&model=mil&model=ce-point")
    settled(page)
    with page.expect_request("**/v1/recommend/batch") as asked:
        page.locator("#dial-number").fill("0.2")
    requests = asked.value.post_data_json["requests"]
    assert [(one["dial"], one["reasons"]) for one in requests] == [(0.2, 2), (0.2, 2), (0, 0), (0, 0)]


def test_models_stand_side_by_side_and_say_what_they_share(opened, recommenders):
    page = opened("#liked=i001")
    settled(page)
    boxes = [page.locator(f'[data-model="{name}"]').bounding_box() for name in NAMES]
    assert len({box["y"] for box in boxes}) == 1 and boxes[0]["x"] < boxes[1]["x"] < boxes[2]["x"]
    page.get_by_role("checkbox", name="multinomial").press("Space")
    settled(page)
    assert fragment(page)["model"] == ["ce-point", "mil"]
    assert page.evaluate("document.activeElement.value") == "multinomial"
    lists = [set(recommenders[name].recommend_new(["i001"])["item"].to_pylist()) for name in ("ce-point", "mil")]
    both = len(lists[0] & lists[1])
    expect(page.locator('[data-model="mil"] .overlap')).to_have_text(f"{both} of 20 also in ce-point")
    expect(page.locator('[data-model="mil"] .also')).to_have_count(both)
    page.get_by_role("checkbox", name="ce-point").press("Space")
    settled(page)
    expect(page.get_by_role("checkbox", name="mil")).to_be_disabled()  # one is always there


def test_a_known_user_is_searched_and_has_a_past(opened, recommenders):
    user = recommenders["mil"].user_ids[3]
    page = opened()
    page.get_by_role("radio", name="A known user").check(force=True)
    page.locator("#user").fill(user)
    expect(page.locator("#user-options li").first).to_be_visible()
    page.keyboard.press("Enter")
    settled(page)
    assert fragment(page)["user"] == [user]
    assert listed(page, "mil") == recommenders["mil"].recommend([user])["item"].to_pylist()
    adopted = recommenders["mil"].fitted.train.adopted[[3]].nnz
    page.get_by_text(f"Adopted {adopted} items").click()
    expect(page.locator(".had").first.locator("li")).to_have_count(adopted)
