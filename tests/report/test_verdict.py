"""The verdict in words: never more than the figures say."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import made_up
from milrec.report.contrast import Contrast, apart, spread
from milrec.report.headlines import Headline, headlines
from milrec.report.names import plain_names
from milrec.report.summary import entries_of
from milrec.report.verdict import verdict
from milrec.report.wording import accuracy_alone, by_the_truth, listed, reversed_by, traded
from milrec.results import Results

ACCURACY = Headline("accuracy", "ndcg@100", "Accuracy", "NDCG@100", "")
REACH = Headline("reach", "short_share@200", "Popular items", "% of the first 200", "", "low", 1, 1.0)
TRUTH = Headline("truth", "true_ndcg@20", "True relevance", "true NDCG@20", "")
SHARES = {"CE_Point lin-sig": (40.0, 40.0, 20.0), "MIL lin-sig": (32.8, 40.0, 27.2)}


def comparison(first: str, second: str, difference: float, room: float, p: float) -> dict:
    low, high = difference - room, difference + room
    return {"first": first, "second": second, "difference": difference, "low": low, "high": high, "p": p, "users": 900}


def mil_and_ce(accuracy: tuple[float, float], room: float, p: float, seeds: int = 1, **more) -> Results:
    """MIL lists 18 % fewer popular items than cross-entropy; their accuracy, the room of its interval, and p."""
    models = []
    for name, loss, value in (("MIL lin-sig", "mil", accuracy[0]), ("CE_Point lin-sig", "pointwise", accuracy[1])):
        models += [made_up.model(name, seed, loss, ndcg_at_100=value, shares=SHARES[name]) for seed in range(seeds)]
    compared = {
        "ndcg@100": [comparison("MIL lin-sig", "CE_Point lin-sig", accuracy[0] - accuracy[1], room, p)],
        "short_share@200": [comparison("CE_Point lin-sig", "MIL lin-sig", 7.2, 0.5, 1e-9)],
    }
    return made_up.run(models, comparisons=compared, **more)


def test_fewer_popular_items_at_equal_accuracy():
    said = verdict(mil_and_ce((0.365, 0.364), 0.002, 0.3, seeds=3))
    assert said == [
        "MIL lists 18 % fewer popular items than cross-entropy (32.8 % of its list places against 40.0 %) "
        "at equal accuracy (NDCG@100 0.365 and 0.364, equal to within 0.006).",
        "Figures are means over three seeds.",
    ]


@pytest.mark.parametrize(
    ("accuracy", "room", "p", "words"),
    [
        ((0.380, 0.364), 0.004, 1e-6, ", and is more accurate (NDCG@100 0.380 and 0.364, p < 0.001)."),
        ((0.374, 0.364), 0.004, 0.002, ", and is slightly more accurate (NDCG@100 0.374 and 0.364, p = 0.004)."),
        ((0.291, 0.364), 0.004, 1e-6, ", but is much less accurate (NDCG@100 0.291 and 0.364, p < 0.001)."),
        ((0.370, 0.364), 0.009, 0.2, "; which of them is more accurate is not clear (NDCG@100 0.370 and 0.364; the "
         "difference may be chance, p = 0.400)."),
    ],
)  # fmt: skip
def test_what_the_other_accuracies_are_called(accuracy, room, p, words):
    first, footing = verdict(mil_and_ce(accuracy, room, p))
    assert first.endswith(words)
    assert footing == "Each model was fitted once: another seed can move these figures."


def test_p_is_corrected_for_the_measures_that_the_verdict_looks_at():
    """p = .03 after Holm would be clear by itself; accuracy and popular items are two families."""
    assert "not clear" in verdict(mil_and_ce((0.380, 0.364), 0.01, 0.03))[0]
    assert "more accurate" in verdict(mil_and_ce((0.380, 0.364), 0.01, 0.02))[0]


def test_an_order_that_depends_on_the_seed_is_not_clear():
    values = {"MIL lin-sig": (0.36, 0.39), "CE_Point lin-sig": (0.35, 0.37)}
    models = [
        made_up.model(name, seed, "mil" if "MIL" in name else "pointwise", ndcg_at_100=value)
        for name, pair in values.items()
        for seed, value in enumerate(pair)
    ]
    compared = {"ndcg@100": [comparison("MIL lin-sig", "CE_Point lin-sig", 0.015, 0.005, 1e-6)]}
    said = verdict(made_up.run(models, comparisons=compared))[0]
    assert "not clear (NDCG@100 0.375 and 0.360; the order depends on the seed)" in said


def test_models_are_not_level_if_another_seed_could_set_them_apart():
    """Their means over users are equal, surely; but the two seeds of MIL are .04 apart."""
    for values, words in (
        ((0.34, 0.38), "is not clear (NDCG@100 0.360 and 0.360; how far they are apart depends on the seed)"),
        ((0.359, 0.361), "are equally accurate (NDCG@100 0.360 and 0.360, equal to within 0.006)"),
    ):
        models = [made_up.model("MIL", seed, "mil", ndcg_at_100=value) for seed, value in enumerate(values)]
        models += [made_up.model("CE", seed, ndcg_at_100=0.36) for seed in range(2)]
        for model in models:
            model["evaluation"]["short_share@200"] = None
        compared = {"ndcg@100": [comparison("MIL", "CE", 0.0, 0.002, 0.9)]}
        assert words in verdict(made_up.run(models, comparisons=compared))[0]


def test_small_scores_have_enough_digits():
    level = Contrast(ACCURACY, 0.0101, 0.01, 0.0, 0.0002, 0.3)
    assert level.figures == "NDCG@100 0.0101 and 0.0100, equal to within 0.0004"
    assert Contrast(ACCURACY, 0.0, 0.0, 0.0, 0.0, 1.0).figures == "NDCG@100 0.000 and 0.000"
    assert Contrast(ACCURACY, 1e-200, 1e-200, 0.0, 0.0, 1.0).figures.endswith("equal to within 0.000001")


def truth_run(truth: tuple[float, float]) -> Results:
    run = mil_and_ce((0.291, 0.313), 0.004, 1e-6).as_json()
    for model, value in zip(run["models"], truth, strict=True):
        model["evaluation"]["true_ndcg@20"] = value
    run["comparisons"]["true_ndcg@20"] = [
        comparison("MIL lin-sig", "CE_Point lin-sig", truth[0] - truth[1], 0.004, 1e-6)
    ]
    return Results.of(run, "a simulated run")


def test_where_the_truth_says_the_opposite_the_verdict_says_so_and_why():
    traded_, truth, why, _ = verdict(truth_run((0.808, 0.775)))
    assert "but is less accurate on held-out pairs (NDCG@100 0.291 and 0.313, p < 0.001)." in traded_
    assert truth == (
        "By what users truly like, which is known for simulated data, it is the other way round: the lists of MIL are "
        "better than those of cross-entropy (true NDCG@20 0.808 and 0.775, p < 0.001)."
    )
    assert why.startswith("Held-out pairs hold only what users were shown")


def test_where_the_truth_says_the_same_nothing_is_explained_away():
    said = " ".join(verdict(truth_run((0.775, 0.808))))
    assert "the order is the same: the lists of cross-entropy are better than those of MIL (true NDCG@20 0.808" in said
    assert "Held-out pairs hold only" not in said


def test_users_with_few_items_for_whom_the_order_is_another():
    models = [made_up.model("MIL lin-sig", loss="mil", ndcg_at_100=0.37), made_up.model("EASE", ndcg_at_100=0.36)]
    models[1]["settings"] = {"model": {"model": "ease"}}
    few = {
        "name": "few",
        "least": 1,
        "most": 12,
        "users": 300,
        "measure": "ndcg@100",
        "means": {"MIL lin-sig": 0.30, "EASE": 0.32},
        "comparisons": [comparison("MIL lin-sig", "EASE", -0.02, 0.008, 1e-5)],
    }
    many = {**few, "name": "many", "least": 40, "most": 900, "means": {"MIL lin-sig": 0.4, "EASE": 0.38}}
    many["comparisons"] = [comparison("MIL lin-sig", "EASE", 0.02, 0.008, 1e-5)]
    compared = {"ndcg@100": [comparison("MIL lin-sig", "EASE", 0.01, 0.003, 1e-5)]}
    said = verdict(made_up.run(models, comparisons=compared, groups=[few, many]))
    groups = [sentence for sentence in said if sentence.startswith("For users")]
    assert groups == [
        "For users with few items (at most 12), EASE is more accurate than MIL (NDCG@100 0.320 and 0.300, p < 0.001)."
    ]


@pytest.mark.parametrize(
    ("seed_means", "said"),
    [
        ({"MIL": [0.29, 0.31], "EASE": [0.32]}, True),
        ({"MIL": [0.27, 0.33], "EASE": [0.32]}, False),
        ({}, False),
    ],
)
def test_a_group_of_users_follows_the_rule_for_seeds_too(seed_means, said):
    models = [made_up.model("MIL", seed, "mil", ndcg_at_100=0.37) for seed in range(2)]
    models.append(made_up.model("EASE", ndcg_at_100=0.36))
    few = {
        "name": "few",
        "least": 1,
        "most": 12,
        "users": 300,
        "measure": "ndcg@100",
        "means": {"MIL": 0.30, "EASE": 0.32},
        "seed_means": seed_means,
        "comparisons": [comparison("MIL", "EASE", -0.02, 0.008, 1e-5)],
    }
    compared = {"ndcg@100": [comparison("MIL", "EASE", 0.01, 0.003, 1e-5)]}
    sentences = verdict(made_up.run(models, comparisons=compared, groups=[few]))
    assert any(one.startswith("For users with few items") for one in sentences) == said


def test_the_leaders_of_several_models_share_a_sentence():
    models = [
        made_up.model("EASE", ndcg_at_100=0.4, recall_at_1=0.3, shares=(20.0, 40.0, 40.0)),
        made_up.model("SLIM", ndcg_at_100=0.3, recall_at_1=0.2, shares=(30.0, 40.0, 30.0)),
        made_up.model("WMF", ndcg_at_100=0.2, recall_at_1=0.1, shares=(40.0, 40.0, 20.0)),
    ]
    assert (
        "Of the three models, EASE is the most accurate (NDCG@100 0.400), lists the fewest popular items (20.0 % of "
        "the list places) and puts a right item first most often (Recall@1 0.300)."
    ) in verdict(made_up.run(models))  # which has no comparisons: the intervals do not overlap


def test_one_model_has_nothing_to_be_compared_with():
    assert verdict(made_up.run([made_up.model("MIL", loss="mil")]))[0] == (
        "Only MIL was fitted, so there is nothing to compare it with: NDCG@100 0.350 (95 % interval 0.343 to 0.357)."
    )


def test_what_failed_is_named():
    run = mil_and_ce((0.365, 0.364), 0.002, 0.3, failures=[{"name": "SLIM, seed 1", "error": "no memory"}])
    assert verdict(run)[-1] == "Failed, and not in these figures: “SLIM, seed 1”."


def test_a_run_without_finished_models_or_without_measures_has_no_order():
    assert verdict(made_up.run([])) == []
    run = made_up.run_as_json([made_up.model("MIL", loss="mil"), made_up.model("CE")])
    for model in run["models"]:
        model["evaluation"] = {"n_users": 10, "ndcg@100": None}
    assert verdict(Results.of(run, "a run"))[0].startswith("This run cannot tell its models apart")


def test_a_small_catalogue_is_judged_by_shorter_lists():
    models = [made_up.model("MIL", short_share_at_20=30.0), made_up.model("CE", short_share_at_20=40.0)]
    for items, measure in ((1500, "short_share@200"), (999, "short_share@20"), (150, "short_share@20")):
        run = made_up.run(models, items=items)
        assert headlines(run, entries_of(run))[1].measure == measure
    without = made_up.run([made_up.model("MIL")], items=150)  # lists of 200 hold the whole catalogue
    assert [one.role for one in headlines(without, entries_of(without))] == ["accuracy", "first"]


def test_names_of_milrecs_own_recipes_are_put_into_words_and_others_are_kept():
    names = plain_names(["CE_Point lin-sig", "MULTI tanh-lin", "EASE", "my model, v2"])
    assert [one.title for one in names.values()] == ["Cross-entropy", "Multinomial loss", "EASE", "my model, v2"]
    assert [one.spoken for one in names.values()] == ["cross-entropy", "the multinomial loss", "EASE", "“my model, v2”"]
    assert [one.title for one in plain_names(["MIL", "MIL lin-sig"]).values()] == ["MIL", "MIL lin-sig"]


def test_a_list_of_names():
    assert listed(["a"]) == "a" and listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcdef")) == "a, b and four others"


FIGURE = st.floats(0, 1, allow_subnormal=False)
CHANCE = st.one_of(st.none(), st.floats(0, 1))


@st.composite
def contrasts(draw, headline=ACCURACY):
    """Any two figures, and any interval around their difference."""
    scale = 100.0 if headline is REACH else 1.0
    first, second = scale * draw(FIGURE), scale * draw(FIGURE)
    low, high = (scale * draw(st.floats(0, 0.2)) for _ in range(2))
    low, high = first - second - low, first - second + high
    gap = scale * draw(st.sampled_from([0.0, 0.005, 0.1]))
    return Contrast(headline, first, second, low, high, draw(CHANCE), draw(st.booleans()), gap)


@given(contrasts())
def test_an_order_is_claimed_only_if_interval_p_and_seeds_agree(contrast):
    if contrast.outcome in ("above", "below"):
        assert contrast.low > 0 or contrast.high < 0
        assert (contrast.low > 0) == (contrast.outcome == "above") == (contrast.first > contrast.second)
        assert contrast.p is None or contrast.p < 0.05
        assert contrast.seeds_apart


@given(contrasts())
def test_level_means_that_the_whole_interval_and_all_seeds_are_in_the_band(contrast):
    if contrast.outcome == "level":
        assert max(abs(contrast.low), abs(contrast.high)) <= contrast.band <= 0.006
        assert contrast.band <= 0.03 * max(contrast.first, contrast.second)
        assert contrast.seed_spread <= contrast.band


@given(contrasts())
def test_the_other_way_round_the_outcome_is_the_opposite(contrast):
    opposite = {"above": "below", "below": "above"}
    assert contrast.reversed().outcome == opposite.get(contrast.outcome, contrast.outcome)


@given(contrasts(), contrasts(REACH))
def test_no_sentence_says_more_or_less_if_the_interval_includes_zero(accuracy, reach):
    said = traded("A", "B", reach, accuracy, "")
    claims_accuracy = re.search(r"is (slightly |much )?(more|less) accurate(?! is not clear)", said)
    if accuracy.low <= 0 <= accuracy.high:
        assert not claims_accuracy or "which of" in said.lower()
        assert not re.search(r"(A|and|but) is (slightly |much )?(more|less) accurate", said)
    if reach.low <= 0 <= reach.high:
        assert not re.search(r"A lists", said)
    assert ("equal accuracy" in said or "equally accurate" in said) == (accuracy.outcome == "level")
    assert said[0].isupper() and said.endswith(".")


@given(contrasts(TRUTH), st.one_of(st.none(), contrasts()))
def test_the_truth_reverses_an_order_only_if_both_are_clear(truth, accuracy):
    said = by_the_truth("A", "B", truth, accuracy)
    assert ("other way round" in said) == reversed_by(truth, accuracy)
    if truth.low <= 0 <= truth.high:
        assert "better than" not in said
    if "better than" in said:
        assert ("the lists of A are better" in said) == (truth.first > truth.second)


@given(st.one_of(st.none(), contrasts()))
def test_accuracy_alone_names_the_better_one(accuracy):
    said = accuracy_alone("A", "B", accuracy, "")
    if accuracy is None:
        assert said == ""
    elif "A is" in said:
        assert ("more accurate" in said) == (accuracy.first > accuracy.second)


@given(st.lists(FIGURE, min_size=1, max_size=4), st.lists(FIGURE, min_size=1, max_size=4))
def test_seeds_are_apart_if_every_one_is_on_its_own_side(first, second):
    signs = {(one > other) - (one < other) for one in first for other in second}
    assert apart(first, second) == (signs in ({1}, {-1}))
    pairs = [(one, other) for own in (first, second) for one in own for other in own]
    assert spread(first, second) == max(abs(one - other) for one, other in pairs)


MEASURE = st.one_of(st.none(), st.floats(0, 1))


@st.composite
def runs(draw):
    """Any models with any figures, some of them missing, with and without comparisons."""
    names = draw(
        st.lists(st.sampled_from(["MIL", "CE_Point lin-sig", "EASE", "mine (2)", "b, c"]), max_size=5, unique=True)
    )
    models = []
    for name in names:
        loss = draw(st.sampled_from(["mil", "pointwise", "multinomial"]))
        for seed in range(draw(st.integers(1, 2))):
            model = made_up.model(name, seed, loss)
            model["evaluation"] |= {"ndcg@100": draw(MEASURE), "recall@1": draw(MEASURE), "true_ndcg@20": draw(MEASURE)}
            model["evaluation"]["rank_evolution"] = None  # long, and not looked at
            if draw(st.booleans()):
                model["evaluation"]["intervals"] = {}
            models.append(model)
    compared = [
        comparison(one, other, draw(st.floats(-1, 1)), draw(st.floats(0, 1)), draw(st.floats(0, 1)))
        for place, one in enumerate(names)
        for other in names[place + 1 :]
    ]
    kept = draw(st.sampled_from([{}, {"ndcg@100": compared}, {"ndcg@100": compared, "true_ndcg@20": compared}]))
    return made_up.run_as_json(models, comparisons=kept)


@given(runs())
def test_any_run_has_a_verdict_of_whole_sentences_that_follows_from_its_figures_alone(run):
    said = verdict(Results.of(run, "any run"))
    assert said == verdict(Results.of(json.loads(json.dumps(run)), "the same"))
    assert bool(said) == bool(run["models"])
    assert all(sentence.endswith(".") and "nan" not in sentence and "None" not in sentence for sentence in said)
