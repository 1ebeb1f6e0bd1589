"""milrec.compare: models side by side, user by user."""

import numpy as np
import pytest

import milrec
from milrec.errors import DataError, SettingsError
from milrec.metrics.comparison import compare_with_first, holm


@pytest.fixture(scope="module")
def split(small_catalogue):
    return milrec.split_interactions(small_catalogue, seed=0)


@pytest.fixture(scope="module")
def models(split):
    return {"most <popular>": milrec.fit(split, model="popularity"), "ease": milrec.fit(split, model="ease")}


def test_a_comparison_has_the_evaluations_and_the_differences_of_their_users(split, models):
    found = milrec.compare(models, split)
    first, second = (model.evaluate(split) for model in models.values())
    assert found.evaluations["ease"].as_json() == second.as_json()
    (difference,) = found.differences["ndcg@20"]
    assert (difference.first, difference.second) == ("ease", "most <popular>")
    expected = (second.per_user["ndcg@20"] - first.per_user["ndcg@20"]).mean()
    assert difference.difference == pytest.approx(expected) and difference.low < expected < difference.high
    assert "coverage@20" not in found.differences  # it is a figure of all lists together, not of a user


def test_it_prints_as_two_tables_and_as_html_without_letting_names_be_markup(split, models):
    found = milrec.compare(models, split)
    text, html = str(found), found._repr_html_()
    assert text.startswith(f"2 models on test, {found.evaluations['ease'].n_users} users\nmodel ")
    assert "Differences from most <popular>\n" in text and "corrected for the 5 differences of this table" in text
    assert "most &lt;popular&gt;" in html and "<popular>" not in html
    assert repr(found) == "<Comparison of most <popular>, ease on test>"


def test_as_a_table_the_first_model_has_no_differences(split, models):
    table = milrec.compare(models, split).as_table()
    rows = {(row["model"], row["measure"]): row for row in table.to_pylist()}
    assert rows["most <popular>", "ndcg@20"]["difference"] is None
    own = rows["ease", "ndcg@20"]
    assert own["difference"] == pytest.approx(own["mean"] - rows["most <popular>", "ndcg@20"]["mean"])


def test_models_without_names_go_by_their_settings(split, models):
    ease = models["ease"]
    assert list(milrec.compare([ease, ease, ease], split).evaluations) == ["ease", "ease (2)", "ease (3)"]


def test_a_model_of_another_split_is_refused_by_name(small_catalogue, models):
    other = milrec.split_interactions(small_catalogue, seed=1)
    with pytest.raises(
        DataError, match="model 'most <popular>' cannot be compared here: the model was fitted on anoth"
    ):
        milrec.compare(models, other)


@pytest.mark.parametrize("wrong", [7, "mil", [], ["mil", "ease"], {"a": None, "b": None}])
def test_anything_but_two_fitted_models_is_refused(split, wrong):
    with pytest.raises(SettingsError, match=r"^(give models as|only fitted models|a comparison needs two)"):
        milrec.compare(wrong, split)


def test_all_differences_are_corrected_together():
    random = np.random.default_rng(0)
    values = {name: {model: random.random(30) for model in "abc"} for name in ("recall", "ndcg")}
    found = [one for several in compare_with_first(values).values() for one in several]
    alone = [
        compare_with_first({name: {"a": models["a"], other: models[other]}})[name][0].p
        for name, models in values.items()
        for other in "bc"
    ]
    assert [one.p for one in found] == pytest.approx(holm(alone))
    assert [(one.first, one.second) for one in found] == [("b", "a"), ("c", "a")] * 2
