"""Composing a taste, or choosing a user: the page shows the lists of the library."""

import re

import pytest
from playwright.sync_api import expect

import milrec
from exploring import LABELS, NAMES, add, fragment, listed, open_empty, served, settled, titles_of

pytestmark = pytest.mark.xdist_group("pages")  # one worker: a browser takes long to start


TAILS = {"short": "hit", "medium": "middle", "long": "long tail"}


def test_a_taste_composed_by_keyboard_gives_the_lists_of_the_library(opened, recommenders):
    page = open_empty(opened, "#model=ce-point&model=multinomial&model=mil")
    liked, disliked = add(page, "liked", "the g"), add(page, "disliked", "the w")
    chips = page.locator("#liked-chips li, #disliked-chips li").all_inner_texts()
    titles = titles_of(recommenders["mil"])
    assert [chip.split("\n")[0] for chip in chips] == [titles[liked], titles[disliked]]
    for name, recommender in recommenders.items():
        wanted = recommender.recommend_new([liked], [disliked])["item"].to_pylist()
        assert listed(page, name) == wanted and len(wanted) == 20
    first = page.locator('[data-model="mil"] .item').first
    row = recommenders["mil"].recommend_new([liked], [disliked]).slice(0, 1).to_pylist()[0]
    for text in (row["title"], TAILS[row["interval"]], f"{row['popularity']} adopter"):
        expect(first).to_contain_text(text)
    expect(page.locator(".reason").first).to_have_text(f"because of {titles[liked]}")


def test_what_is_chosen_can_be_removed_and_focus_stays_near(opened):
    page = opened("#liked=i001&liked=i002&disliked=i003")
    settled(page)
    page.get_by_role("button", name="Remove").first.click()
    settled(page)
    assert fragment(page)["liked"] == ["i002"]
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("Remove")
    page.get_by_role("button", name="Start with an empty taste").click()
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


def check_what_the_dial_did(page, recommender, name, **dial):
    """The column of a model says how its list differs from the one with the dial off."""
    turned, straight = (recommender.recommend_new(["i001", "i002"], **wish) for wish in (dial, {}))
    assert listed(page, name) == turned["item"].to_pylist()
    column = page.locator(f'[data-model="{name}"]')
    fresh = set(turned["item"].to_pylist()) - set(straight["item"].to_pylist())
    expect(column.locator(".changed")).to_have_text(f"{len(fresh)} of 20 are new with the slider")
    expect(column.locator(".moved.new")).to_have_count(len(fresh))
    for tail in ("short", "medium", "long"):
        share = turned["interval"].to_pylist().count(tail) / 20
        expect(column.locator(f"[data-share={tail}]")).to_have_text(f"{round(100 * share)} %")
    hits, without = (said_hits(sum(one["probability"].to_pylist())) for one in (turned, straight))
    before = "" if hits == without == "fewer than 1" else f", {without} with the slider off"
    expect(column.locator(".hits")).to_have_text(f"{hits} of 20 expected to be adopted{before}")


def said_hits(number):
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}" if number >= 1 else "fewer than 1"


def significant(number):
    """With two significant digits."""
    return "< 0.001" if number < 0.001 else f"{number:#.2g}".removesuffix(".")


def test_the_dial_asks_all_models_for_the_same_share(opened, recommenders):
    page = opened("#liked=i001&liked=i002")
    settled(page)
    dial, number = page.locator("#dial"), page.locator("#dial-number")
    assert dial.get_attribute("aria-valuetext") == "off, each model makes its own list"
    assert number.input_value() == "" and number.get_attribute("placeholder") == "off"
    expect(page.get_by_role("switch")).not_to_be_checked()
    dial.focus()
    page.keyboard.press("End")
    for _ in range(60):
        page.keyboard.press("ArrowLeft")
    settled(page)
    assert fragment(page)["long"] == ["0.4"] and number.input_value() == "40"
    assert dial.get_attribute("aria-valuetext") == "40 % of the list from the long tail"
    for name, recommender in recommenders.items():
        check_what_the_dial_did(page, recommender, name, long_share=0.4)
    expect(page.locator("#said")).to_contain_text("from the long tail")
    expect(page.locator("#said")).to_contain_text("expected to be adopted")
    expect(page.get_by_role("switch")).to_be_checked()
    page.get_by_role("switch").press("Enter")
    settled(page)
    assert "long" not in fragment(page) and number.input_value() == ""
    expect(page.get_by_role("switch")).to_be_focused()
    assert listed(page, "mil") == recommenders["mil"].recommend_new(["i001", "i002"])["item"].to_pylist()
    expect(page.locator('[data-model="mil"] .changed')).to_have_count(0)
    page.get_by_role("switch").press("Space")  # as it was
    settled(page)
    assert fragment(page)["long"] == ["0.4"] and number.input_value() == "40"


def test_zero_looks_like_zero_and_off_looks_like_off(opened, recommenders):
    page = opened("#liked=i001&model=mil")
    settled(page)
    dial, card = page.locator("#dial"), page.locator("#dial-card")
    expect(card).to_have_class(re.compile("off"))
    expect(page.locator("#dial-said")).to_contain_text("Off: each model makes its own list.")
    expect(page.locator("#dial-marks .own")).to_have_count(1)
    page.locator("#dial-number").fill("0")
    settled(page)
    expect(card).not_to_have_class(re.compile("off"))
    expect(dial).to_have_value("0")
    assert fragment(page)["long"] == ["0"] and dial.evaluate("dial => dial.style.getPropertyValue('--fill')") == "0%"
    assert dial.get_attribute("aria-valuetext") == "0 % of the list from the long tail"
    assert listed(page, "mil") == recommenders["mil"].recommend_new(["i001"], long_share=0.0)["item"].to_pylist()
    page.get_by_role("switch").click()
    settled(page)
    expect(card).to_have_class(re.compile("off"))
    assert "long" not in fragment(page)


def test_a_dial_that_is_off_rests_where_the_first_model_is_by_itself(opened, recommenders):
    natural = recommenders["multinomial"].fitted.prices.natural("long", 20)[0]
    page = opened("#liked=i001&model=multinomial&model=mil")
    settled(page)
    expect(page.locator("#dial")).to_have_value(str(round(100 * natural)))


def test_a_share_can_be_typed(opened, recommenders):
    page = opened("#liked=i001&model=mil")
    settled(page)
    number = page.locator("#dial-number")
    number.fill("62.5")
    settled(page)
    turned = recommenders["mil"].recommend_new(["i001"], long_share=0.625)["item"].to_pylist()
    assert listed(page, "mil") == turned and fragment(page)["long"] == ["0.625"]
    number.fill("120")
    expect(page.locator("#dial-wrong")).to_have_text("A share is 0 to 100 %.")
    expect(number).to_have_attribute("aria-invalid", "true")
    page.locator("#n").focus()
    expect(number).to_have_value("62.5")  # the field says again what is in force
    expect(page.locator("#dial-wrong")).to_be_empty()
    assert listed(page, "mil") == turned
    number.fill("")
    settled(page)
    assert "long" not in fragment(page)
    assert listed(page, "mil") == recommenders["mil"].recommend_new(["i001"])["item"].to_pylist()


def test_each_item_has_its_probability(opened, recommenders):
    page = opened("#liked=i001&model=ce-point")
    settled(page)
    chances = recommenders["ce-point"].recommend_new(["i001"])["probability"].to_pylist()
    shown = [f"chance {significant(100 * one)} %" for one in chances]
    assert page.locator(".chance").all_text_contents() == shown
    title = page.locator(".chance").first.get_attribute("title")
    assert (
        title == "chance that this person adopts it, if they go on to adopt as much as was held out to test the model"
    )
    expect(page.locator("#chance-said")).to_contain_text("is the sum of these chances.")
    expect(page.locator(".hits")).to_have_text(f"{said_hits(sum(chances))} of 20 expected to be adopted")


CHANCES = """async values => {
  const { chance, hits } = await import('/web/dom.js');
  return values.map(value => [chance(value), hits(value)]);
}"""


def test_probabilities_are_shown_with_two_digits(opened):
    page = opened()
    said = {
        0.9991: ["> 99 %", "fewer than 1"],
        0.32: ["32 %", "fewer than 1"],
        0.0996: ["10 %", "fewer than 1"],
        0.03: ["3.0 %", "fewer than 1"],
        0.00321: ["0.32 %", "fewer than 1"],
        0.000012: ["0.0012 %", "fewer than 1"],
        0: ["< 0.001 %", "fewer than 1"],
    }
    assert page.evaluate(CHANCES, list(said)) == list(said.values())


def test_an_old_link_shows_what_the_old_dial_lists(opened, recommenders):
    page = opened("#liked=i001&liked=i002&dial=0.3")
    settled(page)
    expect(page.locator("#notes .box")).to_contain_text("deprecated")
    expect(page.locator("#notes .box")).to_contain_text("Use the long-tail share instead")
    expect(page.locator("#dial-said")).to_contain_text("This link sets the old popularity dial to 0.3.")
    for name, recommender in recommenders.items():
        check_what_the_dial_did(page, recommender, name, dial=0.3)
    page.locator("#n").fill("20")
    settled(page)
    assert fragment(page)["dial"] == ["0.3"]  # as long as nobody touches the new one
    page.locator("#dial-number").fill("30")
    settled(page)
    assert fragment(page)["long"] == ["0.3"] and "dial" not in fragment(page)
    expect(page.locator("#notes .box")).to_have_count(0)
    check_what_the_dial_did(page, recommenders["mil"], "mil", long_share=0.3)


def test_a_model_without_probabilities_says_so_and_lists_without_the_dial(opened, folders, uncertain):
    with served("serve", str(folders[2]), str(uncertain)) as base:
        page = opened("#liked=i001&long=0.9", base)
        settled(page)
        straight = milrec.load(uncertain).recommend_new(["i001"])["item"].to_pylist()
        assert listed(page, "uncertain") == straight != listed(page, "mil")
        column = page.locator('[data-model="uncertain"]')
        expect(column.locator(".box")).to_have_text(
            "This model has no probabilities, which the slider needs, so it makes its own list."
        )
        expect(column.locator(".chance, .changed")).to_have_count(0)
        expect(page.locator('[data-model="mil"] .chance')).to_have_count(20)
        page.get_by_role("checkbox", name="(mil)").press("Space")
        settled(page)
        expect(page.locator("#chance-said")).to_be_hidden()
        expect(page.locator("#dial")).to_be_disabled()
        expect(page.locator("#dial-said")).to_contain_text("The chosen models have no probabilities")
        page.get_by_role("switch").click()
        settled(page)
        expect(column.locator(".box")).to_have_count(0)
        expect(column.locator(".hits")).to_have_text("This model has no probabilities")


def test_the_lists_to_compare_with_are_asked_for_without_reasons(opened):
    page = opened("#liked=i001&model=mil&model=ce-point")
    settled(page)
    with page.expect_request("**/v1/recommend/batch") as asked:
        page.locator("#dial-number").fill("20")
    requests = asked.value.post_data_json["requests"]
    shares = [(one.get("long_share"), one["reasons"]) for one in requests]
    assert shares == [(0.2, 2), (0.2, 2), (None, 0), (None, 0)]
    assert not any("dial" in one for one in requests)


def test_models_stand_side_by_side_and_say_what_they_share(opened, recommenders):
    page = opened("#liked=i001")
    settled(page)
    boxes = [page.locator(f'[data-model="{name}"]').bounding_box() for name in NAMES]
    assert len({box["y"] for box in boxes}) == 1 and boxes[0]["x"] < boxes[1]["x"] < boxes[2]["x"]
    page.get_by_role("checkbox", name=LABELS["multinomial"]).press("Space")
    settled(page)
    assert fragment(page)["model"] == ["ce-point", "mil"]
    assert page.evaluate("document.activeElement.value") == "multinomial"
    lists = [set(recommenders[name].recommend_new(["i001"])["item"].to_pylist()) for name in ("ce-point", "mil")]
    both = len(lists[0] & lists[1])
    expect(page.locator('[data-model="mil"] .overlap')).to_have_text(f"{both} of 20 also in Cross-entropy")
    expect(page.locator('[data-model="mil"] .also')).to_have_count(both)
    page.get_by_role("checkbox", name="Cross-entropy", exact=True).press("Space")
    settled(page)
    expect(page.get_by_role("checkbox", name=LABELS["mil"])).to_be_disabled()  # one is always there


def test_a_known_user_is_searched_and_has_a_past(opened, recommenders):
    user = recommenders["mil"].user_ids[3]
    page = opened("#model=mil")
    settled(page)
    page.get_by_role("radio", name="A known user").check(force=True)
    expect(page.locator("#user")).to_be_visible()
    settled(page)
    page.locator("#user").fill(user)
    expect(page.locator("#user-options li").first).to_be_visible()
    page.keyboard.press("Enter")
    settled(page)
    assert fragment(page)["user"] == [user]
    assert listed(page, "mil") == recommenders["mil"].recommend([user])["item"].to_pylist()
    adopted = recommenders["mil"].fitted.train.adopted[[3]].nnz
    page.get_by_text(f"Adopted {adopted} items").click()
    expect(page.locator(".had").first.locator("li")).to_have_count(adopted)
