"""The report: what it says, and how it looks in a real browser."""

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import made_up
from browsing import new_tab
from milrec.errors import FolderError
from milrec.experiments.recipe import read_recipe
from milrec.experiments.run import run
from milrec.report import figures, svg
from milrec.report.page import render
from milrec.report.paper import MIL_PAIRS
from milrec.report.summary import entries_of
from milrec.report.verdict import verdict
from milrec.results import Results

pytestmark = pytest.mark.xdist_group("pages")  # one worker: a browser takes long to start

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
    def progress(self, job, event): ...
    def ended(self, job, outcome): ...


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    (folder / "recipe.toml").write_text(RECIPE)
    return run(read_recipe(folder / "recipe.toml"), folder / "run", Silent())


@pytest.fixture(scope="module")
def full():
    """A made-up run with all that a run may have: eleven models, three seeds, dials, searches, a failure."""
    return made_up.the_papers_run()


@pytest.fixture(scope="module", params=["small", "full"])
def page_file(request, results, full, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(results if request.param == "small" else full), encoding="utf-8")
    return path


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
            self.rows[-1].append(" ".join(self.cell.split()))
            self.cell = None


def table(page: str, name: str) -> list[list[str]]:
    """The texts of a table of the page, its header first."""
    parser = Cells()
    parser.feed(re.search(rf'<table id="{name}".*?</table>', page, re.DOTALL).group(0))
    return parser.rows


def test_the_table_shows_the_measures_of_the_results(results):
    header, *rows = table(render(results), "measures")
    assert [row[0] for row in rows] == ["Popularity", "Cross-entropy", "Multinomial loss", "MIL <b>lin-sig</b>"]
    for row, model in zip(rows, results.models, strict=True):
        shown = row[header.index("NDCG@100")].split()[0]
        assert shown == f"{model.evaluation.mean('ndcg@100'):.3f}"


def test_the_best_of_a_column_is_marked(results):
    best = max(model.evaluation.mean("ndcg@100") for model in results.models)
    assert f"<b>{best:.3f}</b>" in render(results)


def test_recall_of_all_is_shown_where_the_test_part_was_given():
    models = [made_up.model("one"), made_up.model("another")]
    for model in models:
        model["evaluation"]["recall_of_all@20"] = 0.123
    assert "Recall of all@20" not in render(made_up.run(models))
    assert "Recall of all@20" in render(made_up.run(models, protocol="given"))


def test_the_learning_curves_name_their_measure():
    models = [made_up.model("one"), made_up.model("another")]
    assert "validation NDCG@100" in render(made_up.run(models))
    models[0]["settings"]["training"]["measure"] = models[1]["settings"]["training"]["measure"] = "recall@20"
    assert "validation recall@20" in render(made_up.run(models))
    models[1]["settings"]["training"]["measure"] = "ndcg@20"
    assert "validation measure" in render(made_up.run(models))


def test_a_column_in_which_all_are_the_same_has_no_best():
    page = render(made_up.run([made_up.model("one"), made_up.model("another")]))
    assert "best" not in re.findall(r'<td class="good" title="([^"]*)"', page) and ">0.350" in page
    assert "not clearly behind" not in page.partition("</thead>")[2].partition("</table>")[0]


def test_the_page_opens_with_the_verdict_and_the_headline_measures(full):
    page = render(full)
    for sentence in verdict(full):
        assert sentence in html.unescape(re.sub(r"</?span[^>]*>", "", page))
    header, *rows = table(page, "headlines")
    assert [column.split(" How")[0] for column in header[1:]] == [
        "Accuracy NDCG@100",
        "Popular items % of the first 200",
        "First item right Recall@1",
    ]
    (mil,) = [row for row in rows if row[0] == "MIL"]
    assert mil[1:] == ["0.369 ± 0.002", "32.2 % ± 0.0", "0.299 ± 0.002"]


def test_a_model_goes_by_a_plain_name_and_its_settings_name_it_exactly(full):
    page = render(full)
    settings = page[page.index('id="settings"') :]
    assert 'Cross-entropy <span class="soft">CE_Point lin-sig</span>' in settings
    assert "CE_Point" not in page[: page.index("<details")]


def test_users_with_few_and_with_many_items_have_a_table():
    models = [made_up.model("MIL", loss="mil"), made_up.model("EASE")]
    compared = [
        {"first": "MIL", "second": "EASE", "difference": 0.02, "low": 0.01, "high": 0.03, "p": 0.0, "users": 40}
    ]
    group = {"least": 1, "most": 9, "users": 40, "measure": "ndcg@100", "comparisons": compared}
    few = {**group, "name": "few", "means": {"MIL": 0.32, "EASE": 0.3}}
    page = render(made_up.run(models, groups=[few]))
    assert table(page, "groups") == [["model", "few items"], ["MIL", "0.320"], ["EASE", "0.300"]]
    assert "40 of 2,000 users, with 1 to 9 items" in page
    assert 'id="groups"' not in render(made_up.run(models))


def test_names_are_escaped(results):
    page = render(results)
    assert "<b>lin-sig</b>" not in page and "&lt;b&gt;lin-sig&lt;/b&gt;" in page
    assert "A &lt;small&gt; run &amp; its report" in page


def test_the_page_is_one_file_that_asks_for_nothing(results):
    page = render(results)
    assert not re.search(r'(src|href)\s*=\s*"(?!#)', page) and "<script" not in page
    assert "@import" not in page and "url(" not in page


def test_rendering_is_a_pure_function_of_the_results(results):
    assert render(results) == render(Results.of(json.loads(json.dumps(results.as_json())), "the same"))


def test_a_run_without_a_finished_model_has_no_report():
    with pytest.raises(FolderError, match="no finished model"):
        render(made_up.run([]))


def test_several_seeds_are_shown_as_a_mean_with_their_standard_deviation():
    seeds = [made_up.model("MIL", seed, "mil", ndcg_at_100=value) for seed, value in enumerate((0.31, 0.33, 0.35))]
    page = render(made_up.run([made_up.model("Popularity", ndcg_at_100=0.2), *seeds]))
    header, popularity, mil = table(page, "measures")
    place = header.index("NDCG@100")
    assert mil[place] == "0.330 ± 0.020"
    assert popularity[place] == "0.200 0.196–0.204"  # one seed: the interval over users
    header, _, made = table(page, "making")
    assert made[header.index("seeds")] == "0, 1, 2"
    assert made[header.index("fit, s")] == "12.3–14.3"


def test_figures_of_several_seeds_are_means():
    seeds = [made_up.model("MIL", seed, "mil", shares=share) for seed, share in enumerate([(30, 40, 30), (40, 40, 20)])]
    (entry,) = entries_of(made_up.run(seeds))
    assert entry.shares() == {"short": 35, "medium": 40, "long": 25}
    firsts = [seed["evaluation"]["rank_evolution"]["short"][0] for seed in seeds]
    assert entry.evolution("short")[0] == pytest.approx(sum(firsts) / 2)
    assert entry.preferences() is None


def test_our_figures_stand_beside_the_papers_with_a_mark_where_they_agree():
    models = [
        made_up.model("CE point lin-sig", recall_at_1=0.2871, ndcg_at_100=0.3601, shares=(41.6, 40.1, 18.3)),
        made_up.model("Our own"),
    ]
    page = render(made_up.run(models, users=136_700, items=20_200, paper={"table": "metrics", "dataset": "ml-20m"}))
    header, *rows = table(page, "paper-1")
    assert [row[0] for row in rows] == ["CE point lin-sig"]
    assert rows[0][header.index("Recall@1")] == "0.287 paper 0.284, +0.003 ✓"
    assert rows[0][header.index("NDCG@100")] == "0.360 paper 0.366, -0.006"
    assert "Not in this run: MF-square" in page
    _, shares = table(page, "paper-2")
    assert shares[1:] == ["41.6 paper 41.1, +0.5 ✓", "40.1 paper 40.1, +0.0 ✓", "18.3 paper 18.8, -0.5 ✓"]
    _, cuts = table(page, "paper-3")
    assert cuts == ["items", "177 paper 177, +0 ✓", "790 paper 784, +6 ✓"]


def test_other_data_than_the_papers_are_shown_without_differences_and_marks():
    models = [made_up.model("MIL lin-sig", loss="mil", preferences=made_up.LIN_MIL)]
    page = render(made_up.run(models, paper={"table": "metrics", "dataset": "netflix"}))
    assert "These are not the paper&#39;s data" in page and "for reference only" in page
    tables = [table(page, f"paper-{number}") for number in (1, 2, 3, 4)]
    assert tables[0][1][1] == "0.250 paper 0.304"
    assert tables[2][1][1] == "0.0 paper 0.0"  # the distribution of preferences
    assert "✓" not in str(tables)


def test_a_run_that_names_no_table_of_the_paper_has_none(results):
    assert 'id="paper"' not in render(results) and 'id="claims"' not in render(results)


def test_the_papers_claims_are_a_list_with_verdicts(full):
    page = render(full)
    assert "15 hold, 1 does not hold, 3 undecided</span>" in page
    claims = page[page.index('id="claims"') :]
    assert claims.index('class="verdict holds"') < claims.index("<summary>3 undecided in this run")
    assert claims.index('class="verdict undecided"') < claims.index("<summary>20 not claimed for MovieLens-20M")
    assert claims.count(">not claimed</span>") == 20


def test_failures_are_shown_in_a_box(full, results):
    assert "SLIM, seed 1</b>: the fit ran out of memory" in render(full)
    assert 'id="failures"' not in render(results)


def test_a_search_shows_its_trials_and_says_what_it_chose(full):
    page = render(full)
    search = full.searches[0]
    values = [trial for trial in search.trials if trial.value is not None]
    drawn = figures.trials(search, "mil")
    assert drawn.count("<circle") == len(values) + 1  # and the ring
    assert drawn.count('fill="var(--card)"') == sum(trial.state == "given up" for trial in values)
    assert "12 trials (2 given up, 2 failed)" in page
    header, *rows = table(page, "making")
    chosen = {row[0]: row[header.index("chosen on validation")] for row in rows}
    assert chosen["Popularity"] == "–" and chosen["Cross-entropy"].startswith("weight_decay = ")


def test_a_search_without_a_value_is_words_alone():
    trials = [{"number": 0, "values": {"x": 1}, "state": "broken", "value": None, "error": "killed"}]
    search = {"name": "MIL", "measure": "ndcg@100", "trials": trials, "tuned": {}}
    page = render(made_up.run([made_up.model("MIL", loss="mil")], searches=[search]))
    assert "1 trial (1 broken)" in page


def test_dials_are_lines_with_their_values_as_tool_tips(full):
    drawn = figures.trade(entries_of(full))
    dialled = {model.name for model in full.models if model.dialled}
    assert drawn.count("<polyline") == len(dialled) == 4
    assert "MIL: dial 0.2, NDCG@100 0.3490, long tail 35.9 %" in drawn
    assert "Factorization, square loss: long-tail share" in drawn  # a model without dials is a point
    assert "Far below, and not drawn: Popularity" in render(full)


def test_the_figure_of_rank_evolution_is_drawn_as_in_the_paper(full):
    drawn = figures.evolution(figures.focus(entries_of(full)))
    assert drawn.count("<polyline") == 9
    for colour in ("mil", "ce", "multi"):
        assert drawn.count(f'stroke="var(--{colour})"') == 3
    assert drawn.count('stroke-dasharray="8 4"') == drawn.count('stroke-dasharray="1.5 4"') == 3


def test_the_missing_term_is_drawn_where_there_is_a_mil_model(full, results):
    assert figures.used_pairs(entries_of(full)) == [(1e6, 10.0)]
    assert "The missing term of MIL" in render(full)
    assert "The missing term of MIL" not in render(made_up.run([made_up.model("CE point")]))
    own = figures.missing_term_lines([(2e6, 10)])
    assert len(own) == 6 and own[-1] == ("A = 2e6, γ = 10 (in this run)", "ink", "6 4")
    assert figures.missing_term([(2e6, 10)]).count("<polyline") == 6


def test_where_all_pairs_of_the_paper_are_in_the_run_none_is_marked():
    lines = figures.missing_term_lines([*MIL_PAIRS, (5e5, 10), (12.5, 3)])
    assert [name for name, _, _ in lines[1:3]] == ["A = 1000, γ = 4", "A = 2e4, γ = 6"]
    assert lines[5:] == [("A = 5e5, γ = 10", "ink", "6 4"), ("A = 12.5, γ = 3", "ink", "2 3")]


def test_claims_are_not_listed_if_none_can_be_decided(full):
    assert 'id="claims"' in render(full)
    alone = tuple(model for model in full.models if model.name == "Popularity")
    assert 'id="claims"' not in render(full.model_copy(update={"models": alone, "comparisons": {}}))


def test_comparisons_are_shown_from_the_side_of_mil(full):
    header, *rows = table(render(full), "compared")
    shown = {row[0]: row[header.index("Recall@1")] for row in rows}
    assert "MIL" not in shown
    assert shown["Cross-entropy"] == "+0.0150 better +0.0120 to +0.0180, p < 0.001"
    assert "may be chance" in shown["MIL, sigmoid"]


def test_tail_shares_are_compared_user_by_user(results):
    means = {model.name: model.evaluation.mean("long_share@200") for model in results.models}
    for made in results.comparisons["long_share@200"]:
        assert made.difference == pytest.approx(means[made.first] - means[made.second], abs=1e-4)
    assert len(results.comparisons["long_share@200"]) == len(results.comparisons["short_share@200"]) == 6
    assert "long_share@20" in results.comparisons  # empty where no model has it
    header, *_ = table(render(results), "compared")
    assert {"Short tail, %", "Long tail, %"} <= set(header)


def test_a_compared_share_is_more_or_less_and_less_of_the_short_tail_is_good():
    models = [made_up.model("MIL", shares=(30.0, 40.0, 30.0)), made_up.model("CE", shares=(41.1, 40.0, 18.9))]
    compared = {name: made_up.compared(models, name) for name in ("short_share@200", "long_share@200")}
    page = render(made_up.run(models, comparisons=compared))
    assert table(page, "compared")[1][1:] == [
        "-11.1 less -11.1 to -11.1, p < 0.001",
        "+11.1 more +11.1 to +11.1, p < 0.001",
    ]
    assert page.count('<td class="good" title="significant') == 2


def test_results_of_older_runs_are_still_shown(results):
    older = results.as_json()
    for name in ("paper", "searches", "comparisons", "failures"):
        older.pop(name, None)
    for model in older["models"]:
        for name in ("tuned", "validation", "dialled"):
            model.pop(name, None)
        if model["history"]:
            model["history"].pop("kept_iteration", None)
    page = render(Results.of(older, "an older run"))
    for section in ("paper", "searches", "comparisons", "failures"):
        assert f'id="{section}"' not in page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_opens_offline_without_errors_at_any_width(browser, page_file, width, scheme):
    how = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "offline": True}
    problems, requests = [], []
    with new_tab(browser, **how) as page:
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(page_file.as_uri())
        assert problems == []
        assert requests == [page_file.as_uri()]
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


OUTSIDE = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('circle, rect, polyline, text')].filter(part => {
        const box = part.getBoundingClientRect();
        return box.left < frame.left - 1 || box.right > frame.right + 1
            || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
    }).map(part => part.outerHTML);
})"""


def test_every_figure_is_drawn_inside_its_frame(browser, page_file):
    with new_tab(browser, viewport={"width": 1280, "height": 900}) as page:
        page.goto(page_file.as_uri())
        open_all(page)
        assert page.locator("figure svg").count() >= 8
        assert page.evaluate(OUTSIDE) == []


def open_all(page):
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true })")


TOO_WIDE = """() => [...document.querySelectorAll('.scroll, .headlines, pre')]
    .filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.getAttribute('aria-label') || box.id)"""


def test_no_column_is_cut_off_on_a_desktop(browser, page_file):
    with new_tab(browser, viewport={"width": 1280, "height": 900}) as page:
        page.goto(page_file.as_uri())
        open_all(page)
        assert page.evaluate(TOO_WIDE) == []
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_on_a_phone_headlines_are_stacked_and_other_tables_scroll_in_their_own_box_with_a_hint(browser, full, tmp_path):
    (tmp_path / "report.html").write_text(render(full), encoding="utf-8")
    with new_tab(browser, viewport={"width": 390, "height": 900}) as page:
        page.goto((tmp_path / "report.html").as_uri())
        open_all(page)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        wide = page.evaluate(TOO_WIDE)
        assert "How accurate the lists are" in wide and "headlines" not in wide
        hint = page.locator("#all-measures .hint").first
        assert hint.is_visible() and hint.inner_text() == "Scroll the table sideways to see all columns →"
        assert page.locator("#headlines td").first.bounding_box()["width"] > 300


def test_the_verdict_is_the_first_thing_under_the_title(browser, page_file):
    with new_tab(browser, viewport={"width": 1280, "height": 900}) as page:
        page.goto(page_file.as_uri())
        assert page.evaluate("document.querySelector('h1').nextElementSibling.id") == "verdict"
        assert "popular items" in page.locator("#verdict").inner_text()
        assert page.evaluate("document.querySelector('#headlines').getBoundingClientRect().top < 900")


def test_everything_else_is_folded_and_a_deep_link_opens_its_fold(browser, page_file):
    with new_tab(browser, viewport={"width": 1280, "height": 900}) as page:
        page.goto(page_file.as_uri())
        assert page.locator("details").count() >= 7 and page.locator("details[open]").count() == 0
        for name in ("comparisons", "model-1"):
            page.goto(f"{page_file.as_uri()}#{name}")
            page.wait_for_function("name => document.getElementById(name).closest('details').open", arg=name)
            assert page.locator(f"#{name}").is_visible()
        page.goto(page_file.as_uri())
        page.locator("#headlines a").last.click()
        page.wait_for_function("document.getElementById('settings').closest('details').open")


def test_print_shows_what_is_folded(browser, page_file):
    with new_tab(browser, viewport={"width": 1000, "height": 900}) as page:
        page.goto(page_file.as_uri())
        page.emulate_media(media="print")
        for name in ("measures", "compared", "making"):
            assert page.locator(f"#{name}").bounding_box()["height"] > 50


def test_dark_and_light_pages_differ_in_colour(browser, page_file):
    colours = []
    for scheme in ("light", "dark"):
        with new_tab(browser, color_scheme=scheme) as page:
            page.goto(page_file.as_uri())
            colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours[0] != colours[1]


def test_ticks_are_round_numbers_within_the_axis():
    assert svg.axis("x", [0.0, 1.0], zero=True).ticks() == pytest.approx([0, 0.5, 1.0])
    assert svg.Axis("x", 1, 1000, log=True).ticks() == [1, 10, 100, 1000]
    assert svg.nice_step(0.3) == 0.5
    assert svg.Axis("trial", 0, 3, whole=True).ticks() == [0, 1, 2, 3]


def test_an_axis_of_equal_values_still_has_a_place_for_them():
    axis = svg.axis("x", [2.0, 2.0])
    assert axis.low < 2.0 < axis.high


def test_names_beside_points_do_not_cover_one_another(browser):
    crowded = [(f"model {number}", "series-1", 20 + number / 50, 0.35 + number / 2000) for number in range(6)]
    x = svg.axis("share", [0.0, *(point[2] for point in crowded)], percent=True)
    y = svg.axis("NDCG", [0.18, *(point[3] for point in crowded)])
    style = "<style>svg text { font: 12px system-ui, sans-serif }</style>"  # as the page has it
    drawn = svg.points(crowded, svg.Frame(x, y), "crowded")
    with new_tab(browser, viewport={"width": 480, "height": 300}) as page:
        page.set_content(f"{style}<body style='margin:0'>{drawn}</body>")
        boxes = page.evaluate(
            "[...document.querySelectorAll('text')].filter(t => t.textContent.startsWith('model'))"
            ".map(t => { const b = t.getBBox(); return [b.x, b.y + 3, b.x + b.width, b.y + b.height - 3] })"
        )
    assert len(boxes) == 6
    for place, one in enumerate(boxes):
        assert not any(svg._overlap(tuple(one), tuple(other)) for other in boxes[place + 1 :])
