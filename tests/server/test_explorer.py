"""The explorer page: a real server, a real browser, and lists that equal the library's."""

import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest
from playwright.sync_api import expect

import milrec
from browsing import new_tab
from milrec.cli.serve import demo_models
from milrec.data.simulation import Simulation, simulate
from milrec.errors import SettingsError
from milrec.server.keys import new_key
from milrec.storage import MANIFEST
from pausing import LONG

pytestmark = pytest.mark.xdist_group("pages")  # one worker: a browser takes long to start

HOSTILE = '<img src="x" onerror="document.title = 1"><b>Bold</b> & "quoted"'
NAMES = ["ce-point", "multinomial", "mil"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The demo's three models, small, of a catalogue whose most popular title is hostile."""
    data = simulate(Simulation(n_users=200, n_items=260, mean_shown=60), seed=1)
    titles = data.items["title"].to_pylist()
    titles[int(data.popularity().argmax())] = HOSTILE
    place = data.items.column_names.index("title")
    data = replace(data, items=data.items.set_column(place, "title", pa.array(titles, type=pa.large_string())))
    out = tmp_path_factory.mktemp("explorer") / "demo"
    milrec.split_interactions(data, seed=0).save(out / "split")
    return demo_models(out, epochs=6, n_factors=16)


@pytest.fixture(scope="module")
def recommenders(folders):
    return {folder.name: milrec.Recommender.load(folder) for folder in folders}


@contextmanager
def serving(*arguments):
    """The address of a server of our own, once it answers; it ends in good order."""
    command = [sys.executable, "-m", "milrec", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"http://127\.0\.0\.1:\d+", said.replace("\n", "")):
                break
        assert found, said
        try:
            yield found.group(0)
        finally:  # a test that fails ends its server too
            process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 0


@pytest.fixture(scope="module")
def address(folders):
    before = [(folder / MANIFEST).stat().st_mtime_ns for folder in folders]
    with serving("serve-demo", "--out", str(folders[0].parent)) as address:
        yield address
    assert [(folder / MANIFEST).stat().st_mtime_ns for folder in folders] == before  # found, not fitted again


@pytest.fixture(scope="module")
def tab(browser):
    """One tab for all tests: a new one costs more than a test."""
    with new_tab(browser, reduced_motion="reduce") as page:
        yield page


@pytest.fixture
def opened(tab, address):
    """Open an address of the page; at the end no script may have failed, and nobody else been asked."""
    bases, asked, wrong = {address}, [], []
    listeners = {
        "pageerror": lambda error: wrong.append(str(error)),
        "request": lambda request: asked.append(request.url),
        "console": lambda said: wrong.append(said.text) if said.type == "error" else None,
    }
    for event, listener in listeners.items():
        tab.on(event, listener)

    def open_page(path="", base=address, width=1280):
        bases.add(base)
        tab.set_viewport_size({"width": width, "height": 844})
        tab.goto("about:blank")  # without it, another fragment alone would not load the page anew
        tab.goto(f"{base}/{path}")
        return tab

    yield open_page
    tab.unroute_all(behavior="ignoreErrors")
    tab.goto("about:blank")
    tab.emulate_media(reduced_motion="reduce", color_scheme="light")
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    assert not [said for said in wrong if "Failed to load" not in said]
    assert not [url for url in asked if not url.startswith((*bases, "about:"))]


def settled(page):
    """Wait until the lists stand still."""
    expect(page.locator("#lists > *").first).to_be_visible()
    expect(page.locator("#lists")).to_have_attribute("aria-busy", "false")


def listed(page, model):
    return page.locator(f'#lists [data-model="{model}"] .item').evaluate_all(
        "rows => rows.map(row => row.dataset.item)"
    )


def fragment(page):
    return parse_qs(urlsplit(page.url).fragment)


def add(page, box, text):
    """Search and take the first that is found, with the keyboard alone; its id."""
    page.locator(f"#{box}").focus()
    page.keyboard.type(text)
    expect(page.locator(f"#{box}-options li").first).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator(f"#{box}-chips li").last).to_be_visible()
    settled(page)
    return fragment(page)[box][-1]


def titles_of(recommender):
    items = recommender.fitted.train.items
    return dict(zip(items["id"].to_pylist(), items["title"].to_pylist(), strict=True))


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
        expect(column.locator(".changed")).to_have_text(f"{len(fresh)} of 20 changed by the dial")
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


def test_a_shared_link_brings_everything_back(opened):
    page = opened("#model=mil&model=ce-point&liked=i004")
    settled(page)
    add(page, "disliked", "the s")
    page.locator("#dial-number").fill("-0.25")
    page.locator("#n").fill("7")
    page.get_by_text("Rules that the list must keep").click()
    page.locator("#rule-amount").fill("40")
    page.get_by_role("button", name="Add rule").click()
    settled(page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#copied")).to_have_text("Copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url

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
        "models": ["a&b", "c d"], "whom": "taste", "user": None, "liked": ["1", "x=y#ü%"], "disliked": ["<b>"],
        "dial": -0.05, "n": 50,
        "rules": [
            {"tail": "long", "sign": ">=", "amount": 12.5, "unit": "%", "first": None},
            {"tail": "short", "sign": "<=", "amount": 2, "unit": "", "first": 10},
        ],
    }  # fmt: skip
    there_and_back = "async state => { const { readState, writeState } = await import('/web/state.js');"
    there_and_back += "return readState('#' + writeState(state)); }"
    assert page.evaluate(there_and_back, state) == {"state": state, "notes": []}
    known = {**state, "whom": "user", "user": "u 1&2", "liked": [], "disliked": []}
    assert page.evaluate(there_and_back, known) == {"state": known, "notes": []}


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
    expect(page.locator(".unmet")).to_contain_text("Not every rule could be kept")
    expect(page.locator(".unmet li")).to_contain_text("at least 80 % of the list from the short tail")
    page.get_by_role("button", name="Remove the rule: at least 80 % of the list from the short tail").click()
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
        ("user=nobody", "Unknown user 'nobody'", 0),
        ("liked=nothing", "Unknown item 'nothing'", 0),
        (
            "liked=i001&model=mil&model=other",
            "This server has no model 'other'; it has: ce-point, multinomial, mil.",
            1,
        ),
        ("liked=i001&model=other", "This server has no model 'other'", 3),
        ("liked=i001&dial=fast", "The link sets the dial to 'fast', which is no number; it is at 0.", 3),
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
    with serving("serve", str(folders[2]), "--keys", str(tmp_path / "keys.txt")) as base:
        page = opened("#liked=i001", base)
        expect(page.get_by_role("heading", name="This server asks for a key")).to_be_visible()
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
    page.locator("#dial-number").fill("0.5")
    expect(page.locator("#notes .bad")).to_contain_text("The server does not answer; is it still running?")
    expect(page.locator("#notes .bad")).to_contain_text("The lists below are from before.")
    assert len(listed(page, "mil")) == 20  # what was there stays, in grey
    assert page.locator("#lists").evaluate("lists => getComputedStyle(lists).opacity") == "0.5"
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    page.evaluate("sessionStorage.clear()")


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
    """Asks with a dial of 0.1 and keeps the answer back."""
    held = []

    def hold(route):
        first = route.request.post_data_json["requests"][0]["dial"] == 0.1
        held.append(route) if first else route.continue_()

    page.route("**/v1/recommend/batch", hold)
    with page.expect_request("**/v1/recommend/batch"):
        page.locator("#dial-number").fill("0.1")
    return held


def test_answers_that_come_late_are_dropped(opened, recommenders):
    page = opened("#liked=i001&model=mil")
    settled(page)
    held = hold_the_first_dial(page)
    page.locator("#dial-number").fill("0.9")
    settled(page)
    held[0].continue_()
    settled(page)
    assert listed(page, "mil") == recommenders["mil"].recommend_new(["i001"], dial=0.9)["item"].to_pylist()


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
    page.locator("#dial-number").fill("0.9")
    held[0].continue_()
    held[0].request.response()  # waits for the answer, or for the page to have dropped it
    page.evaluate("fetch('/healthz').then(answer => answer.text())")  # what came before this has been looked at
    expect(page.locator("#lists")).to_have_attribute("aria-busy", "true")
    page.clock.resume()
    settled(page)
    assert listed(page, "mil") == recommenders["mil"].recommend_new(["i001"], dial=0.9)["item"].to_pylist()


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
    assert fragment(page)["dial"] == ["0.01"]


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


def test_an_empty_page_invites(opened):
    page = opened()
    page.locator(".invitation button").first.click()
    settled(page)
    expect(page.locator("#lists .list")).to_have_count(3)
    page.get_by_role("button", name="Clear the taste").click()
    page.locator(".invitation ul").last.get_by_role("button").first.click()
    settled(page)
    assert "user" in fragment(page)


NAMELESS = """() => {
  const parts = 'input, select, button, [role=listbox], [role=group], section, main, fieldset';
  const said = id => document.getElementById(id)?.textContent.trim();
  const named = one => one.getAttribute('aria-label') || one.labels?.length
    || (one.matches('button, fieldset') && one.textContent.trim())
    || (one.getAttribute('aria-labelledby') ?? '').split(' ').some(said);
  return [...document.querySelectorAll(parts)].filter(one => one.checkVisibility() && !named(one))
    .map(one => one.outerHTML.slice(0, 90));
}"""
DANGLING = """() => {
  const missing = name => [...document.querySelectorAll(`[${name}]`)]
    .filter(one => !document.getElementById(one.getAttribute(name))).map(one => one.outerHTML);
  return ['aria-labelledby', 'aria-describedby', 'aria-controls', 'aria-activedescendant', 'for'].flatMap(missing);
}"""
TWICE = """() => {
  const ids = [...document.querySelectorAll('[id]')].map(one => one.id);
  return ids.filter((id, at) => ids.indexOf(id) !== at);
}"""


@pytest.mark.parametrize("given", ["", "#liked=i001&disliked=i002&dial=0.2&rule=long+%3E%3D+50%25", "#user=nobody"])
def test_everything_has_a_name_and_a_role(opened, given):
    page = opened(given)
    settled(page)
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(DANGLING) == []
    assert page.evaluate(TWICE) == []
    assert page.locator("h1").count() == 1 and page.locator("main").count() == 1
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("[role=status]").count() >= 2 and page.locator("#notes[role=alert]").count() == 1


def test_the_tab_key_goes_down_the_page_in_order(opened):
    page = opened("#liked=i001&model=mil")
    settled(page)
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        name = page.evaluate("document.activeElement.id || document.activeElement.tagName.toLowerCase()")
        if name == "body":
            break
        seen.append(name)
    wanted = ["skip", "copy", "liked", "disliked", "clear", "n", "rules-title", "dial-number", "dial"]
    assert [name for name in seen if name in wanted] == wanted
    assert seen[-1] == "a" and "g" in seen  # the curve is one stop, the footer's link the last
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "lists"


WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
FADED = """names => {
  const linear = value => value <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4;
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(value => linear(value / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = one => {
    const colour = getComputedStyle(one).backgroundColor;
    return colour !== 'rgba(0, 0, 0, 0)' || !one.parentElement ? colour : behind(one.parentElement);
  };
  return names.flatMap(name => [...document.querySelectorAll(name)].slice(0, 12)).flatMap(one => {
    const [high, low] = [light(getComputedStyle(one).color), light(behind(one))].sort((x, y) => y - x);
    const contrast = (high + .05) / (low + .05);
    return contrast < 4.5 ? [`${one.className} ${one.textContent.slice(0, 20)} ${contrast.toFixed(2)}`] : [];
  });
}"""
TEXTS = [
    "p",
    ".title",
    ".tail",
    ".adopters",
    ".reason",
    ".moved",
    ".also",
    ".chip",
    "label",
    "h2",
    "button",
    ".soft",
    "b",
]


@pytest.mark.parametrize("given", ["", "#liked=i001&disliked=i002&dial=0.2&rule=short+%3E%3D+90%25", "#user=nobody"])
def test_it_fits_every_screen_and_can_be_read_by_day_and_night(opened, given):
    page = opened(given)
    settled(page)
    for width in (1280, 1010, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate(WIDTHS) == [width, width]
    for scheme, colour in [("dark", "rgb(20, 22, 26)"), ("light", "rgb(251, 250, 248)")]:
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == colour
        assert page.evaluate(FADED, TEXTS) == []


def test_the_dial_and_the_list_looked_at_stay_in_sight_on_a_phone(opened):
    page = opened("#liked=i001", width=390)
    settled(page)
    page.locator('[data-model="mil"] h2').scroll_into_view_if_needed()
    aside = page.locator("#lists").evaluate("lists => lists.scrollLeft")
    page.locator("#dial").press("ArrowRight")
    settled(page)
    assert page.locator("#lists").evaluate("lists => lists.scrollLeft") == aside > 300
    assert page.locator("#lists").get_attribute("tabindex") == "0"  # it scrolls sideways, by keyboard too
    page.locator("#lists .item").nth(10).scroll_into_view_if_needed()
    expect(page.locator("#dial")).to_be_in_viewport()


def test_items_slide_to_their_places_unless_less_motion_is_wished(opened):
    page = opened("#liked=i001")
    settled(page)
    page.evaluate("Element.prototype.animate = function () { window.moved = true; }; 0")
    for wish, dial, moving in [("reduce", "-0.1", False), ("no-preference", "-0.2", True)]:
        page.emulate_media(reduced_motion=wish)
        page.locator("#dial-number").fill(dial)
        settled(page)
        assert page.evaluate("window.moved === true") is moving


def test_the_demo_simulates_a_catalogue_and_fits_three_models_to_it(tmp_path):
    small = Simulation(n_users=80, n_items=60, mean_shown=40)
    folders = demo_models(tmp_path / "demo", small, epochs=1, n_factors=4)
    assert [folder.name for folder in folders] == NAMES
    fitted = [milrec.Recommender.load(folder).fitted.settings for folder in folders]
    assert [settings.loss.loss for settings in fitted] == ["pointwise", "multinomial", "mil"]
