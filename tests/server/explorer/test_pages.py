"""The story, the page of an item, saved views and the CSV file, in a browser."""

import csv
import io
import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

import milrec
from exploring import HOSTILE, LABELS, fragment, listed, open_empty, served, settled, titles_of
from milrec.server.gate.keys import new_key

pytestmark = pytest.mark.xdist_group("pages")  # one worker: a browser takes long to start


def test_the_page_opens_with_a_story_and_its_lists(opened):
    page = opened()
    settled(page)
    told = page.evaluate("fetch('/v1/story').then(answer => answer.json())")
    assert fragment(page)["liked"] == [one["item"] for one in told["adopted"]]
    assert fragment(page)["model"] == told["models"]
    said = page.locator("#story-said")
    for text in [*(one["title"] for one in told["adopted"]), *(LABELS[name] for name in told["models"])]:
        expect(said).to_contain_text(text)
    hits = page.locator(f'[data-model="{told["models"][1]}"] .item .tag').all_text_contents()[:20].count("hit")
    expect(said).to_contain_text(re.compile(rf"fills (only )?{hits}\b"))
    expect(said).to_contain_text("In this example, someone likes")
    expect(page.locator("#story-lead")).to_contain_text("at least a fifth of the tastes we tried differ as much")
    expect(page.locator("#tails")).to_contain_text("Each part gets a third of all adoptions.")


def test_the_story_counts_in_as_many_places_as_the_lists_have(opened):
    page = opened("#n=5")
    settled(page)
    expect(page.locator("#story-said")).to_contain_text("of the 5 places with hits")
    opened("#n=1")
    settled(page)
    expect(page.locator("#story-said")).to_contain_text("An example from this catalogue")


def test_the_thing_to_try_fills_a_part_of_each_list_from_the_long_tail(opened):
    page = opened()
    settled(page)
    before, shares = listed(page, "mil"), page.locator("[data-share=long]").all_text_contents()
    page.get_by_role("button", name="Ask for more of the long tail").click()
    settled(page)
    (rule,) = fragment(page)["rule"]
    asked = int(rule.removeprefix("long >= ").removesuffix("%"))
    assert asked >= 30 and all(int(share.removesuffix(" %")) < asked for share in shares)
    for share in page.locator("[data-share=long]").all_text_contents():
        assert share == f"{asked} %"
    expect(page.locator("#story-said")).to_contain_text(
        f"Now a rule gives the long tail at least {asked} % of each list"
    )
    expect(page.locator("#dial-rule")).to_contain_text(f"Rule: at least {asked} % of each list")
    expect(page.locator('[data-model="mil"] .changed')).to_contain_text("of 20 are new with the rules")
    page.get_by_role("button", name="Back to the models’ own lists").click()
    settled(page)
    assert "rule" not in fragment(page) and listed(page, "mil") == before
    expect(page.locator("#dial-rule")).to_be_empty()


def test_the_rule_can_be_removed_beside_the_slider(opened):
    page = opened("#liked=i001&model=mil&rule=long+%3E%3D+30%25")
    settled(page)
    page.locator("#dial-rule button").click()
    settled(page)
    assert "rule" not in fragment(page)
    expect(page.locator("#dial")).to_be_focused()


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        (0.52, "On average over users, it lists about as many hits as"),
        (0.6, "On average over users, hits fill 50 % of its lists and 60 % of those by"),
    ],
)
def test_a_small_difference_on_average_is_not_told_in_numbers(opened, others, sentence):
    page = opened()

    def answer(route):
        response = route.fetch()
        body = response.json()
        for model in body["models"]:
            model["tail_shares"]["short"] = 0.5 if model["name"] == "mil" else others
        route.fulfill(response=response, json=body)

    page.route("**/v1/models", answer)
    opened()
    settled(page)
    expect(page.locator("#story-lead")).to_contain_text(sentence)


def test_two_items_are_in_sight_on_a_phone(opened):
    page = opened(width=390)
    settled(page)
    dial = page.locator("#dial-card").bounding_box()
    for row in (page.locator(".item .about").nth(place).bounding_box() for place in range(2)):
        assert row["y"] + row["height"] <= dial["y"] < 844
    assert page.evaluate("scrollY") == 0
    expect(page.locator("#story-lead")).to_be_hidden()
    page.get_by_text("Why?").click()
    expect(page.locator("#story-lead")).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 844})
    expect(page.locator("#story-lead")).to_be_visible()
    expect(page.get_by_text("Why?")).to_be_hidden()


def test_the_example_comes_back_from_another_taste(opened):
    page = open_empty(opened)
    page.get_by_role("link", name="Show the example").click()
    expect(page.locator("#story-said")).to_contain_text("In this example, someone likes")
    settled(page)
    expect(page.get_by_role("link", name="Show the example")).to_be_hidden()


def test_without_a_story_the_page_invites(opened):
    page = opened()
    page.route("**/v1/story", lambda route: route.abort())
    opened()
    expect(page.locator(".invitation")).to_be_visible()
    expect(page.locator("#invitation")).to_have_text("Who is this list for?")
    expect(page.get_by_role("link", name="Show the example")).to_be_hidden()


def test_names_are_plain_and_settings_are_behind_a_click(opened):
    page = opened("#liked=i001")
    settled(page)
    assert page.locator("#lists h2").all_text_contents() == list(LABELS.values())
    column = page.locator('[data-model="mil"]')
    expect(column.locator(".settings")).to_be_hidden()
    column.get_by_text("Details").click()
    expect(column.locator(".settings")).to_contain_text("missing_weight")
    page.locator("#dial-number").fill("10")
    settled(page)
    expect(column.locator(".settings")).to_be_visible()  # stays open when the list changes


def open_item(page, title):
    expect(page.locator("#item-title")).to_have_text(title)
    expect(page.locator("#item-title")).to_be_focused()
    filled(page)


def filled(page):
    """Wait until all of an item's page is there."""
    settled(page)
    expect(page.locator("#item-view [aria-busy=true]")).to_have_count(0)


def test_a_title_leads_to_the_page_of_its_item_and_back(opened, recommenders):
    page = opened("#liked=i001&model=ce-point&model=mil&long=0.2")
    settled(page)
    row = page.locator('[data-model="mil"] .item').nth(12)
    item, title = row.get_attribute("data-item"), row.locator(".title").text_content()
    row.locator(".title").scroll_into_view_if_needed()
    down = page.evaluate("scrollY")
    row.locator(".title").click()
    open_item(page, title)
    assert fragment(page)["item"] == [item] and fragment(page)["long"] == ["0.2"]
    assert page.title() == f"{title} · milrec explorer"
    expect(page.locator("#item-now")).to_contain_text("Missing-information loss: number 13")
    catalogue, train = recommenders["mil"].catalogue, recommenders["mil"].fitted.train
    place = catalogue.describe(catalogue.item_numbers([item]))[0]
    expect(page.locator(".item-facts")).to_contain_text(f"{place.popularity} of {train.n_users} people adopted it")
    expect(page.locator(".item-facts")).to_contain_text(f"place {place.place} of {train.n_items} by popularity")
    assert f"Place {place.place} of {train.n_items}" in page.locator("#item-curve svg").get_attribute("aria-label")
    page.go_back()
    expect(page.locator("#lists-view")).to_be_visible()
    settled(page)
    assert "item" not in fragment(page) and page.title() == "milrec explorer"
    assert page.evaluate("scrollY") == down
    expect(page.locator("#lists .title").filter(has_text=title).first).to_be_visible()


def test_the_page_of_an_item_shows_what_the_server_knows(opened, recommenders):
    page = opened("#liked=i001&model=ce-point&model=mil&item=i002")
    titles = titles_of(recommenders["mil"])
    open_item(page, titles["i002"])

    def shown(part):
        return page.locator(f"section[aria-labelledby={part}] li").evaluate_all("rows => rows.map(r => r.dataset.item)")

    for name in ("mil", "ce-point"):
        if name == "ce-point":
            page.get_by_role("radio", name="Cross-entropy").check(force=True)
            expect(page.get_by_role("radio", name="Cross-entropy")).to_be_focused()
            filled(page)
            assert fragment(page)["by"] == ["ce-point"]
        assert shown("item-similar-title") == recommenders[name].similar_items("i002", 8)["item"].to_pylist()
        asked = f"fetch('/v1/models/{name}/listed-with?item=i002&n=8').then(answer => answer.json())"
        found = page.evaluate(asked)
        assert shown("item-company-title") == [one["item"] for one in found["items"]]
        if found["listed"]:
            expect(page.locator("#company-said")).to_contain_text(f"in {found['listed']} of")
        expect(page.locator("#similar-said")).to_contain_text("by how many people adopted both")
        expect(page.locator("#similar-said")).to_contain_text("values of different items are not comparable")
    page.locator(".short-list a").first.click()
    expect(page.locator("#item-title")).not_to_have_text(titles["i002"])
    settled(page)
    page.get_by_role("link", name="Back to the lists").click()
    expect(page.locator("#lists-view")).to_be_visible()


@pytest.mark.parametrize(("button", "kind"), [("More like this", "liked"), ("Not for me", "disliked")])
def test_an_opinion_on_an_item_goes_into_the_taste(opened, recommenders, button, kind):
    page = opened("#liked=i001&model=mil&item=i002")
    title = titles_of(recommenders["mil"])["i002"]
    open_item(page, title)
    page.get_by_role("button", name=button).click()
    expect(page.locator(f"#{kind}-chips")).to_contain_text(title)
    settled(page)
    liked, disliked = (["i001", "i002"], []) if kind == "liked" else (["i001"], ["i002"])
    assert fragment(page)[kind][-1] == "i002" and "item" not in fragment(page)
    assert listed(page, "mil") == recommenders["mil"].recommend_new(liked, disliked)["item"].to_pylist()
    page.go_back()
    open_item(page, title)


@pytest.mark.parametrize(("kind", "button"), [("liked", "likes"), ("disliked", "dislikes")])
def test_an_item_of_the_taste_is_not_offered_again_but_can_be_removed(opened, recommenders, kind, button):
    page = opened(f"#liked=i001&{kind}=i002&model=mil&item=i002")
    open_item(page, titles_of(recommenders["mil"])["i002"])
    expect(page.locator("#item-now")).to_have_text(f"It is among your {button}, so no list has it.")
    expect(page.locator(".item-do button")).to_have_count(2)
    page.get_by_role("button", name=f"Remove from your {button}").click()
    filled(page)
    assert fragment(page)["liked"] == ["i001"] and "disliked" not in fragment(page)
    expect(page.get_by_role("button", name="More like this")).to_be_visible()
    expect(page.locator("#item-now")).to_contain_text("In the lists you came from")


@pytest.mark.parametrize("models", ["model=mil", "model=mil&model=ce-point"])
def test_the_cards_of_an_item_stand_apart(opened, models):
    page = opened(f"#liked=i001&{models}&item=i002")
    settled(page)
    boxes = [page.locator(part).bounding_box() for part in (".item-head", ".sides")]
    assert boxes[1]["y"] - boxes[0]["y"] - boxes[0]["height"] >= 10


def test_an_unknown_item_is_said_and_a_hostile_title_is_text(opened, recommenders):
    page = opened("#liked=i001&model=mil&item=nothing")
    expect(page.locator("#item-view .box")).to_contain_text("Unknown item 'nothing'")
    (hostile,) = [item for item, title in titles_of(recommenders["mil"]).items() if title == HOSTILE]
    opened(f"#liked=i001&model=mil&item={hostile}")
    open_item(page, HOSTILE)
    assert page.locator("#item-view img, #item-title b").count() == 0


def saved_file(page):
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download CSV").click()
    file = waiting.value
    return file.suggested_filename, file.path().read_text(encoding="utf-8-sig")


def test_what_is_shown_can_be_saved_as_a_table(opened, recommenders):
    page = opened("#liked=i001&model=mil&n=7")
    settled(page)
    name, text = saved_file(page)
    rows = list(csv.DictReader(io.StringIO(text)))
    wanted = recommenders["mil"].recommend_new(["i001"], n=7).to_pylist()
    assert name == "milrec-lists.csv" and [row["item"] for row in rows] == [one["item"] for one in wanted]
    assert [row["title"] for row in rows] == [one["title"] for one in wanted]
    columns = recommenders["mil"].recommend_new(["i001"], n=7).column_names
    assert [name for name in rows[0] if name in columns] == columns
    assert {row["model"] for row in rows} == {"Missing-information loss"}
    for name in ("position", "popularity", "interval"):
        assert [row[name] for row in rows] == [str(one[name]) for one in wanted]
    assert float(rows[0]["score"]) == pytest.approx(wanted[0]["score"], rel=1e-5)
    opened("#liked=i001&model=mil&item=i002")
    open_item(page, titles_of(recommenders["mil"])["i002"])
    name, text = saved_file(page)
    similar = [row["item"] for row in csv.DictReader(io.StringIO(text)) if row["table"] == "similar"]
    assert name == "milrec-item.csv" and similar == recommenders["mil"].similar_items("i002", 8)["item"].to_pylist()


CELLS = "async rows => (await import('/web/csv.js')).csvOf(['a', 'b'], rows)"


def test_no_cell_is_a_formula_and_every_text_comes_back(opened):
    page = opened()
    texts = ['=HYPERLINK("http://x")', "+1", "-1", "@x", "\tx", 'say "no", then\nyes', "plain", "ü"]
    text = page.evaluate(CELLS, [[one, -1.5] for one in texts])
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == ["a", "b"]
    assert [row[0] for row in rows[1:]] == [f"'{one}" for one in texts[:5]] + texts[5:]
    assert {row[1] for row in rows[1:]} == {"-1.5"}  # numbers stay numbers


def test_views_are_saved_under_names_in_this_browser_alone(opened):
    page = opened("#liked=i001&model=mil&n=5")
    settled(page)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.locator("#views-title").click()
    page.locator("#view-name").fill('my <b>view</b> "1"')
    page.keyboard.press("Enter")
    expect(page.locator("#views-title")).to_have_text("Saved views (1)")
    assert asked == []
    opened("#liked=i002&model=mil")
    settled(page)
    page.locator("#views-title").click()
    page.get_by_role("link", name='my <b>view</b> "1"').click()
    expect(page.locator("#lists .item")).to_have_count(5)
    assert fragment(page) == {"model": ["mil"], "liked": ["i001"], "n": ["5"]}
    expect(page.locator("#views-part")).not_to_have_attribute("open", "")
    page.locator("#views-title").click()
    page.get_by_role("button", name="Remove the view").click()
    expect(page.locator("#views-title")).to_have_text("Saved views")
    expect(page.locator("#view-name")).to_be_focused()
    assert page.evaluate("localStorage.length") == 0
    page.keyboard.press("Escape")
    expect(page.locator("#views-title")).to_be_focused()
    page.evaluate("localStorage.setItem('milrec-views', '{')")
    opened("#liked=i001&model=mil")
    settled(page)
    expect(page.locator("#views-title")).to_have_text("Saved views")  # what is damaged is left alone
    page.evaluate("localStorage.clear()")


def test_one_model_without_users_titles_or_probabilities_behind_a_key_has_its_pages(opened, folders, tmp_path):
    """Everything that may be missing at once."""
    key, line = new_key("page")
    (tmp_path / "keys.txt").write_text(line)
    made = milrec.load(folders[2]).without_users()
    train = replace(made.fitted.train, items=made.fitted.train.items.select(["id"]))
    milrec.Recommender(replace(made.fitted, calibration=None, train=train)).save(tmp_path / "bare")
    with served("serve", str(tmp_path / "bare"), "--keys", str(tmp_path / "keys.txt")) as base:
        page = opened("", base)
        expect(page.get_by_role("heading", name="This server needs a key")).to_be_visible()
        expect(page.locator("#tools")).to_be_hidden()
        page.locator("#key").fill(key)
        page.keyboard.press("Enter")
        settled(page)
        expect(page.locator("#story-said")).to_contain_text("An example from this catalogue")
        expect(page.locator("#models")).to_be_hidden()
        first = page.locator(".item .title").first
        title = first.text_content()
        first.click()
        open_item(page, title)
        expect(page.locator("#item-similar-title")).to_be_visible()
        expect(page.locator("#similar-said")).to_contain_text("The model decides alone")
        expect(page.locator("fieldset.by")).to_have_count(0)
        page.go_back()
        expect(page.locator("#lists-view")).to_be_visible()
        page.evaluate("sessionStorage.clear()")
