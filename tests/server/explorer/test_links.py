"""Links to the page, its rules, and what is wrong with either."""

import pytest
from playwright.sync_api import expect

import milrec
from exploring import NAMES, add, fragment, listed, served, settled
from milrec.errors import SettingsError
from milrec.server.gate.keys import new_key

pytestmark = pytest.mark.xdist_group("pages")  # one worker: a browser takes long to start


def test_a_shared_link_brings_everything_back(opened):
    page = opened("#model=mil&model=ce-point&liked=i004")
    settled(page)
    add(page, "disliked", "the s")
    page.locator("#dial-number").fill("25")
    page.locator("#n").fill("7")
    page.get_by_text("Rules for the lists").click()
    page.locator("#rule-amount").fill("40")
    page.get_by_role("button", name="Add rule").click()
    settled(page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#copied")).to_have_text("Copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url and fragment(page)["long"] == ["0.25"] and "dial" not in fragment(page)

    def shown():
        texts = page.locator("#lists, #liked-chips, #disliked-chips, #rules").all_inner_texts()
        return texts, page.locator("#dial-number, #n").evaluate_all("boxes => boxes.map(box => box.value)")

    before = shown()
    opened(link[link.index("#") :])
    settled(page)
    assert shown() == before
    assert len(listed(page, "mil")) == 7
    expect(page.locator("#rules")).to_contain_text("at least 40 % of the list from the long tail")


def test_every_state_survives_the_address(opened):
    page = opened()
    state = {
        "models": ["a&b", "c d"], "who": "taste", "user": None, "liked": ["1", "x=y#ü%"], "disliked": ["<b>"],
        "long": 0.07, "dial": 0, "n": 50, "item": None, "by": None,
        "rules": [
            {"tail": "long", "sign": ">=", "amount": 12.5, "unit": "%", "first": None},
            {"tail": "short", "sign": "<=", "amount": 2, "unit": "", "first": 10},
        ],
    }  # fmt: skip
    there_and_back = "async state => { const { readState, writeState } = await import('/web/state.js');"
    there_and_back += "return readState('#' + writeState(state)); }"
    assert page.evaluate(there_and_back, state) == {"state": state, "notes": []}
    known = {**state, "who": "user", "user": "u 1&2", "liked": [], "disliked": []}
    assert page.evaluate(there_and_back, known) == {"state": known, "notes": []}
    one = {**state, "item": "x&y", "by": "c d"}
    assert page.evaluate(there_and_back, one) == {"state": one, "notes": []}
    old = {**state, "long": None, "dial": -0.05}
    assert page.evaluate(there_and_back, old) == {"state": old, "notes": []}


def test_another_address_in_the_same_tab_is_followed(opened):
    page = opened("#liked=i001&disliked=i001")
    settled(page)
    assert fragment(page) == {"model": NAMES, "liked": ["i001"]}  # liked or disliked, never both
    page.locator("#n").fill("0")
    expect(page.locator("#n-said")).to_have_text("A list here has 1 to 100 items.")
    assert len(listed(page, "mil")) == 20  # the list stays
    page.evaluate("location.hash = '#liked=i002&n=3&model=mil'")
    expect(page.locator("#lists .item")).to_have_count(3)
    expect(page.locator("#n")).to_have_value("3")
    expect(page.locator("#n")).to_have_attribute("aria-invalid", "false")
    expect(page.locator("#n-said")).to_be_empty()


def test_rules_that_cannot_be_kept_are_said(opened):
    page = opened("#model=mil&liked=i001&rule=long+%3E%3D+80%25&rule=short+%3E%3D+80%25")
    settled(page)
    expect(page.locator('[data-model="mil"] [data-share=long]')).to_have_text("80 %")
    expect(page.locator(".unmet")).to_contain_text("Some rules could not be met")
    expect(page.locator(".unmet li")).to_contain_text("at least 80 % of the list from the hits")
    page.get_by_role("button", name="Remove the rule: at least 80 % of the list from the hits").click()
    settled(page)
    expect(page.locator(".unmet")).to_have_count(0)
    page.locator("#rule-amount").fill("30")
    page.get_by_role("button", name="Add rule").click()
    page.get_by_role("button", name="Add rule").click()
    expect(page.locator("#rule-said")).to_have_text("This rule is there already.")
    page.locator("#rule-amount").fill("130")
    page.get_by_role("button", name="Add rule").click()
    expect(page.locator("#rule-said")).to_have_text("A rule needs a whole number, or 0 to 100 %.")
    page.locator("#rule-amount").fill("15")
    page.locator("#rule-unit").select_option("items")
    page.locator("#rule-first").select_option("of the first 10")
    page.get_by_role("button", name="Add rule").click()
    expect(page.locator("#rule-said")).to_have_text("The first 10 cannot hold 15 items.")
    expect(page.locator("#rules li")).to_have_count(2)


RULES = """async texts => {
  const { parseRule, whyNot } = await import('/web/state.js');
  return texts.map(text => parseRule(text)).map(rule => rule !== null && !whyNot(rule, []));
}"""


def test_the_page_takes_the_rules_that_the_library_takes(opened):
    good = ["long >= 30%", "short <= 2 in 10", "medium<=0.000001%", "long >= 10 in 10", "long <= 15 in 10"]
    good += ["long >= 100 %", "short >= 1000000000"]
    bad = ["long >= 15 in 10", "long >= 101%", "long >= 0.0000001%", "long >= 1.5", "long >= 2 in 0", "wide >= 2"]
    bad += ["short >= 1000000001", "short <= 2 in 1000000001"]
    for text in good:
        milrec.Rule.parse(text)
    for text in bad:
        with pytest.raises(SettingsError):
            milrec.Rule.parse(text)
    page = opened()
    assert page.evaluate(RULES, good + bad) == [True] * len(good) + [False] * len(bad)
    many = "&".join(f"rule=long+>=+{share}%25" for share in range(21))
    opened(f"#model=mil&liked=i001&{many}")
    settled(page)
    expect(page.locator("#notes")).to_have_text(
        "The link has a rule 'long >= 20%' that is left out. A list can have 20 rules at most."
    )
    assert len(listed(page, "mil")) == 20


@pytest.mark.parametrize(
    ("given", "sentence", "lists"),
    [
        ("user=nobody", "Unknown user 'nobody'; for somebody new, choose ‘A taste’ and add what they like", 0),
        ("liked=nothing", "Unknown item 'nothing'", 0),
        (
            "liked=i001&model=mil&model=other",
            "This server has no model 'other'; it has: ce-point, multinomial, mil.",
            1,
        ),
        ("liked=i001&model=other", "This server has no model 'other'", 3),
        ("liked=i001&dial=fast", "The link sets the old dial to 'fast', which is not a number; it is off.", 3),
        ("liked=i001&dial=0.5", "This link uses the old popularity dial, which is deprecated", 3),
        ("liked=i001&dial=0.5&long=0.2", "has a long-tail share and the old dial; the long-tail share is used.", 3),
        ("liked=i001&long=30", "a long-tail share of '30', which is not a number from 0 to 1; the slider is off.", 3),
        ("liked=i001&long=", "a long-tail share of '', which is not a number from 0 to 1; the slider is off.", 3),
        ("liked=i001&n=9999", "The link asks for '9999' items; a list here has 1 to 100, so 20 are shown.", 3),
        ("liked=i001&rule=more", "The link has a rule 'more' that cannot be read", 3),
    ],
)
def test_wrong_input_is_answered_with_a_sentence(opened, given, sentence, lists):
    page = opened(f"#{given}")
    settled(page)
    expect(page.locator(".box").filter(has_text=sentence)).to_have_count(1)
    assert page.locator("#notes[role=alert] .box, .box[role=alert]").count() == 1
    expect(page.locator("#lists .list")).to_have_count(lists)
    expect(page.locator("#app")).to_be_visible()


def test_an_unknown_user_can_be_typed_and_is_answered_with_a_sentence(opened):
    page = opened("#whom=user")
    page.locator("#user").fill("nobody")
    page.locator("#user").press("Enter")
    expect(page.locator("#lists .box")).to_contain_text("Unknown user 'nobody'")


def test_a_key_is_asked_for_and_a_lost_server_is_said(opened, folders, tmp_path):
    key, line = new_key("page")
    (tmp_path / "keys.txt").write_text(line)
    with served("serve", str(folders[2]), "--keys", str(tmp_path / "keys.txt")) as base:
        page = opened("#liked=i001", base)
        expect(page.get_by_role("heading", name="This server needs a key")).to_be_visible()
        expect(page.locator("#app")).to_be_hidden()
        assert page.evaluate("document.activeElement.id") == "key"
        page.keyboard.type("milrec_…")
        page.keyboard.press("Enter")
        expect(page.locator("#notes .bad")).to_contain_text("'…' is none of them")
        page.evaluate("location.hash = '#liked=i002'")  # another link, before there is a key
        page.locator("#key").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#notes .bad")).to_contain_text("key")
        expect(page.locator("#notes .bad")).not_to_contain_text("…")
        page.locator("#key").fill(key)
        page.keyboard.press("Enter")
        settled(page)
        assert len(listed(page, "mil")) == 20
        assert page.locator("#notes .bad").count() == 0
        assert page.evaluate("localStorage.length") == 0 and key not in page.url
        page.reload()
        settled(page)  # the key lasts as long as the tab
    page.locator("#dial-number").fill("50")
    expect(page.locator("#notes .bad")).to_contain_text("The server does not answer; is it still running?")
    expect(page.locator("#notes .bad")).to_contain_text("The lists below are from before that.")
    assert len(listed(page, "mil")) == 20  # what was there stays, in grey
    assert page.locator("#lists").evaluate("lists => getComputedStyle(lists).opacity") == "0.5"
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    page.evaluate("sessionStorage.clear()")
