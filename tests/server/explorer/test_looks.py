"""How the page looks and reads: on every screen, by keyboard, by day and by night."""

import pytest
from playwright.sync_api import expect

import milrec
from exploring import NAMES, fragment, open_empty, settled
from milrec.cli.serve import demo_models
from milrec.data.simulation import Simulation

pytestmark = pytest.mark.xdist_group("pages")  # one worker: a browser takes long to start


def test_an_empty_page_invites(opened):
    page = open_empty(opened, "#model=ce-point&model=multinomial&model=mil")
    page.locator(".invitation button").first.click()
    settled(page)
    expect(page.locator("#lists .list")).to_have_count(3)
    page.get_by_role("button", name="Start with an empty taste").click()
    page.locator(".invitation ul").last.get_by_role("button").first.click()
    settled(page)
    assert "user" in fragment(page)


ITEM = "#liked=i001&model=ce-point&model=mil&item=i002"


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
    .filter(one => one.getAttribute(name).split(' ').some(id => !document.getElementById(id)))
    .map(one => one.outerHTML);
  return ['aria-labelledby', 'aria-describedby', 'aria-controls', 'aria-activedescendant', 'for'].flatMap(missing);
}"""


TWICE = """() => {
  const ids = [...document.querySelectorAll('[id]')].map(one => one.id);
  return ids.filter((id, at) => ids.indexOf(id) !== at);
}"""


@pytest.mark.parametrize(
    "given",
    ["", "#liked=i001&disliked=i002&long=0.2&rule=long+%3E%3D+50%25", "#liked=i001&dial=0.2", "#user=nobody", ITEM],
)
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
    for _ in range(80):
        page.keyboard.press("Tab")
        name = page.evaluate("document.activeElement.id || document.activeElement.tagName.toLowerCase()")
        if name == "body":
            break
        seen.append(name)
    wanted = ["skip", "home", "views-title", "csv", "copy", "story-try", "liked", "disliked", "clear"]
    wanted += ["dial-number", "dial-switch", "dial", "n", "rules-title"]
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
    if (!one.textContent.trim()) return [];
    return contrast < 4.5 ? [`${one.className} ${one.textContent.slice(0, 20)} ${contrast.toFixed(2)}`] : [];
  });
}"""


TEXTS = [
    "p",
    ".title",
    ".tag",
    ".value",
    "li",
    "summary",
    "legend",
    "dd",
    ".adopters",
    ".reason",
    ".moved",
    ".chance",
    ".also",
    ".chip",
    "label",
    "h2",
    "button",
    ".soft",
    "b",
]


@pytest.mark.parametrize(
    "given",
    ["", "#liked=i001&disliked=i002&long=0.2&rule=short+%3E%3D+90%25", "#liked=i001&dial=0.2", "#user=nobody", ITEM],
)
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
    for wish, dial, moving in [("reduce", "60", False), ("no-preference", "90", True)]:
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
