"""An evaluation as text, as HTML and as a table."""

import math
import re

import pytest

import milrec
from milrec.evaluation.evaluation import Evaluation
from milrec.evaluation.tables import Table


@pytest.fixture(scope="module")
def evaluation():
    return Evaluation(
        measures={"recall@20": 0.25, "ndcg@20": math.nan, "coverage@20": 0.5, "long_share@20": 12.5, "recall@1": 0.1},
        intervals={"recall@20": (0.2, 0.3), "ndcg@20": (math.nan, math.nan), "long_share@20": (10.0, 15.0)},
        undefined={"ndcg@20": 3},
        n_users=1234,
        dropped_targets=0,
        interval_cuts=(1, 2),
        top_shares={"short": 50.0, "medium": 25.0, "long": 25.0},
        rank_evolution={},
        preference_distribution=None,
        per_user={},
    )


def test_it_prints_as_an_aligned_table(evaluation):
    assert str(evaluation) == (
        "Evaluation of 1,234 users\n"
        "measure          mean    95 % interval\n"
        "recall@20      0.2500  0.2000 – 0.3000\n"
        "ndcg@20             –                –\n"
        "coverage@20    0.5000                –\n"
        "long_share@20  12.5 %  10.0 % – 15.0 %\n"
        "1 more in as_table()"
    )


def test_its_repr_is_one_line(evaluation):
    assert repr(evaluation) == "<Evaluation of 1,234 users: recall@20 0.2500, ndcg@20 –, coverage@20 0.5000>"


def test_as_html_it_has_the_same_cells_and_no_colours_of_its_own(evaluation):
    html = evaluation._repr_html_()
    cells = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", html)
    assert cells[:6] == ["measure", "mean", "95 % interval", "recall@20", "0.2500", "0.2000 – 0.3000"]
    assert "color: inherit; background: none" in html and not re.search(r"#[0-9a-f]{3}", html)


def test_names_cannot_be_markup():
    html = Table("<b>", ("<i>", "x"), [("<script>", "&")], "<u>").html()
    assert not re.search(r"<(b|i|script|u)>", html) and "&lt;script&gt;" in html and "&amp;" in html


def test_all_measures_are_in_the_table_and_in_the_data_frame(evaluation):
    table, frame = evaluation.as_table(), evaluation.to_pandas()
    assert table.to_pylist()[1] == {"measure": "ndcg@20", "mean": None, "low": None, "high": None, "undefined": 3}
    assert list(frame.index) == list(evaluation.measures) and frame.loc["recall@20", "high"] == 0.3


def test_the_headline_measures_are_among_those_of_a_real_evaluation(checkerboard):
    split = milrec.split_interactions(checkerboard, seed=0)
    found = milrec.fit(split, model="popularity").evaluate(split)
    assert found.headline == ["recall@20", "ndcg@20", "ndcg@100", "novelty_ndcg@100", "coverage@20", "long_share@20"]
