"""The report's figures from Python."""

import re
import xml.dom.minidom as dom
from pathlib import Path

import pytest

import milrec
from milrec.errors import MilrecError, SettingsError

KEPT = Path(__file__).resolve().parents[2] / "docs" / "results" / "frontier-citeulike-a.json"


@pytest.fixture(scope="module")
def comparison(small_catalogue):
    split = milrec.split_interactions(small_catalogue, seed=0)
    models = {"<most> popular": milrec.fit(split, model="popularity"), "ease": milrec.fit(split, model="ease")}
    return milrec.compare(models, split)


def texts(figure) -> list[str]:
    return [node.firstChild.data for node in dom.parseString(figure.svg).getElementsByTagName("text")]


@pytest.mark.parametrize("name", ["shares", "evolution", "trade", "reliability"])
def test_a_comparison_can_be_drawn_with_its_names(comparison, name):
    figure = getattr(milrec.figures, name)(comparison)
    assert figure._repr_svg_() == figure.svg and repr(figure).startswith("<Figure: ")
    assert {"<most> popular", "ease"} <= set(texts(figure))


def test_the_legend_has_the_names_that_the_figure_has(comparison):
    found = {"CE_Point lin-sig": comparison.evaluations["ease"], "EASE": comparison.evaluations["ease"]}
    figure = milrec.figures.evolution(found)
    assert "Cross-entropy" in texts(figure) and "CE_Point" not in figure.svg


def test_every_colour_that_a_figure_uses_is_defined_in_it(comparison):
    for figure in (
        milrec.figures.shares(comparison),
        milrec.figures.evolution(comparison),
        milrec.figures.frontier(KEPT),
    ):
        used = set(re.findall(r"var\((--[\w-]+)\)", figure.svg))
        assert used and used <= set(re.findall(r"(--[\w-]+): #", figure.svg))


def test_the_shares_are_those_of_the_evaluation(comparison):
    found = comparison.evaluations["ease"]
    shown = texts(milrec.figures.shares(found))
    assert shown == ["model", *(f"{share:.0f}" for share in found.top_shares.values() if share > 8),
                     "short tail", "medium tail", "long tail"]  # fmt: skip


def test_popularity_is_drawn_of_a_model_and_of_results(checkerboard):
    model = milrec.fit(milrec.split_interactions(checkerboard, seed=0), model="popularity")
    for source in (model, KEPT):
        assert "items, most popular first" in texts(milrec.figures.popularity(source))


def test_a_figure_is_saved_as_svg_only(comparison, tmp_path):
    figure = milrec.figures.shares(comparison)
    figure.save(tmp_path / "shares.svg")
    assert (tmp_path / "shares.svg").read_text() == figure.svg
    with pytest.raises(SettingsError, match=r"does not end in \.svg"):
        figure.save(tmp_path / "shares.png")


@pytest.mark.parametrize("wrong", [7, None, {}, {"mil": 3}, "nowhere"])
def test_what_cannot_be_drawn_is_refused(wrong):
    for draw in (milrec.figures.shares, milrec.figures.popularity, milrec.figures.frontier):
        with pytest.raises(MilrecError, match=r"^(this figure is made from|there is no run)"):
            draw(wrong)
