"""The report: what it says, and how it looks in a real browser."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from milrec import figures
from milrec.errors import FolderError
from milrec.experiment import read_recipe, run
from milrec.report import render

RECIPE = """
title = "A <small> run & its report"
seeds = [0]
[data.simulate]
users = 200
items = 260
[[models]]
name = "Popularity"
model = "popularity"
[[models]]
name = "CE point"
loss = "pointwise"
settings = { epochs = 4, n_factors = 16 }
[[models]]
name = "MULTI"
loss = "multinomial"
settings = { epochs = 4, n_factors = 16 }
[[models]]
name = "MIL <b>lin-sig</b>"
loss = "mil"
settings = { epochs = 4, n_factors = 16 }
"""


class Silent:
    def stage(self, text): ...
    def fitting(self, name, progress): ...
    def evaluating(self, name, done, total): ...
    def finished(self, name, evaluation): ...


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    (folder / "recipe.toml").write_text(RECIPE)
    return run(read_recipe(folder / "recipe.toml"), folder / "run", Silent())


@pytest.fixture(scope="module")
def page_file(results, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(results), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser():
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        yield chromium
        chromium.close()


class Cells(HTMLParser):
    """The table of measures as rows of texts."""

    def __init__(self):
        super().__init__()
        self.rows, self.cell = [], None

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.cell = ""

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data.strip() + " "

    def handle_endtag(self, tag):
        if tag in ("td", "th") and self.cell is not None:
            self.rows[-1].append(self.cell.strip())
            self.cell = None


def test_the_table_shows_the_measures_of_the_results(results):
    table = re.search(r'<table id="measures">.*?</table>', render(results), re.DOTALL).group(0)
    parser = Cells()
    parser.feed(table)
    header, *rows = parser.rows
    assert [row[0] for row in rows] == [model["name"] for model in results["models"]]
    for row, model in zip(rows, results["models"], strict=True):
        shown = row[header.index("NDCG@100")].split()[0]
        assert shown == f"{model['evaluation']['ndcg@100']:.3f}"


def test_the_best_of_a_column_is_marked(results):
    best = max(model["evaluation"]["ndcg@100"] for model in results["models"])
    assert f"<b>{best:.3f}</b>" in render(results)


def test_names_are_escaped(results):
    page = render(results)
    assert "<b>lin-sig</b>" not in page and "&lt;b&gt;lin-sig&lt;/b&gt;" in page
    assert "A &lt;small&gt; run &amp; its report" in page


def test_the_page_is_one_file_that_asks_for_nothing(results):
    page = render(results)
    assert not re.search(r'(src|href)\s*=\s*"', page)
    assert "@import" not in page and "url(" not in page


def test_rendering_is_a_pure_function_of_the_results(results):
    assert render(results) == render(json.loads(json.dumps(results)))


def test_what_is_no_result_is_refused():
    with pytest.raises(FolderError, match="not the results of a milrec run"):
        render({"some": "json"})
    with pytest.raises(FolderError, match="no finished model"):
        render({"format": "milrec-results", "models": []})


def test_several_seeds_are_shown_as_a_mean(results):
    doubled = json.loads(json.dumps(results))
    again = json.loads(json.dumps(doubled["models"][3]))
    again["seed"], again["evaluation"]["ndcg@100"] = 1, again["evaluation"]["ndcg@100"] + 0.1
    doubled["models"].append(again)
    assert f"{results['models'][3]['evaluation']['ndcg@100'] + 0.05:.3f}" in render(doubled)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_opens_offline_without_errors_at_any_width(browser, page_file, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page = context.new_page()
    problems, requests = [], []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_file.as_uri())
    assert problems == []
    assert requests == [page_file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    context.close()


def test_every_figure_is_drawn_inside_its_frame(browser, page_file):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(page_file.as_uri())
    assert page.locator("svg").count() == 8
    outside = page.evaluate(
        """() => [...document.querySelectorAll('svg')].flatMap(svg => {
            const frame = svg.getBoundingClientRect();
            return [...svg.querySelectorAll('circle, rect, polyline, text')].filter(part => {
                const box = part.getBoundingClientRect();
                return box.left < frame.left - 1 || box.right > frame.right + 1
                    || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
            }).map(part => part.outerHTML);
        })"""
    )
    assert outside == []
    page.close()


def test_dark_and_light_pages_differ_in_colour(browser, page_file):
    colours = []
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(page_file.as_uri())
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.close()
    assert colours[0] != colours[1]


def test_ticks_are_round_numbers_within_the_axis():
    assert figures.axis("x", [0.0, 1.0], zero=True).ticks() == pytest.approx([0, 0.5, 1.0])
    assert figures.Axis("x", 1, 1000, log=True).ticks() == [1, 10, 100, 1000]
    assert figures.nice_step(0.3) == 0.5


def test_an_axis_of_equal_values_still_has_a_place_for_them():
    axis = figures.axis("x", [2.0, 2.0])
    assert axis.low < 2.0 < axis.high


def test_names_beside_points_do_not_cover_one_another(browser):
    crowded = [(f"model {number}", "series-1", 20 + number / 50, 0.35 + number / 2000) for number in range(6)]
    x = figures.axis("share", [0.0, *(point[2] for point in crowded)], percent=True)
    y = figures.axis("NDCG", [0.18, *(point[3] for point in crowded)])
    page = browser.new_page(viewport={"width": 480, "height": 300})
    style = "<style>svg text { font: 12px system-ui, sans-serif }</style>"  # as the page has it
    page.set_content(f"{style}<body style='margin:0'>{figures.points(crowded, x, y, 'crowded')}</body>")
    boxes = page.evaluate(
        "[...document.querySelectorAll('text')].filter(t => t.textContent.startsWith('model'))"
        ".map(t => { const b = t.getBBox(); return [b.x, b.y + 3, b.x + b.width, b.y + b.height - 3] })"
    )
    assert len(boxes) == 6
    for place, one in enumerate(boxes):
        assert not any(figures._overlap(tuple(one), tuple(other)) for other in boxes[place + 1 :])
    page.close()
