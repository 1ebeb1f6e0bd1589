"""results.json as one typed value: what is written, what is read back, and what is refused."""

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import made_up
from milrec.errors import FolderError
from milrec.report.page import render
from milrec.results import Comparison, Results, Trial, best_trial

KEPT = sorted((Path(__file__).resolve().parents[1] / "docs" / "results").glob("*.json"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_results_are_written_as_they_were_read(path, tmp_path):
    results, text = Results.read(path), path.read_text(encoding="utf-8")
    assert json.dumps(results.as_json(), ensure_ascii=False) + "\n" == text
    results.write(tmp_path / "results.json")
    assert Results.read(tmp_path) == results


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_reports_are_what_the_kept_results_give(path):
    assert render(Results.read(path)) == path.with_suffix(".html").read_text(encoding="utf-8")


def the_first_results() -> dict:
    """As the first runs wrote them: no search, no validation, no comparison, no failure, no paper."""
    value = made_up.run_as_json([made_up.model("MIL", loss="mil")])
    for name in ("tuned", "validation"):
        value["models"][0].pop(name)
    value["models"][0]["history"].pop("kept_iteration")
    value["machine"] = {"cores": 2, "threads": 2, "platform": "linux"}
    return value


def test_the_first_results_still_open_and_gain_nothing_when_written():
    value = the_first_results()
    results = Results.of(value, "an old run")
    assert results.as_json() == value
    assert results.searches == () and results.comparisons == {} and results.models[0].threads is None
    assert "MIL" in render(results)


def test_what_a_newer_milrec_adds_is_kept():
    value = made_up.run_as_json([made_up.model("MIL")], weather="fine")
    value["models"][0]["energy_joules"] = 12.5
    assert Results.of(value, "a new run").as_json() == value


def test_measures_are_beside_the_other_fields_in_the_file_and_apart_in_the_value():
    model = made_up.model("MIL", ndcg_at_100=0.31)
    model["evaluation"]["auc_rejected"] = None
    evaluation = made_up.run([model]).models[0].evaluation
    assert evaluation.mean("ndcg@100") == 0.31 and evaluation.n_users == 1000
    assert evaluation.mean("auc_rejected") is None and evaluation.mean("mrr") is None
    assert "n_users" not in evaluation.measures
    assert next(iter(evaluation.as_json())) == "recall@1"


def changed(*place, to) -> dict:
    value = made_up.run_as_json([made_up.model("MIL", loss="mil")])
    part = value
    for key in place[:-1]:
        part = part[key]
    if to is None:
        del part[place[-1]]
    else:
        part[place[-1]] = to
    return value


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"some": "json"}, r"^'r' does not hold the results of a milrec run; name a run folder or its results\.json$"),
        ([1, 2], r"^'r' does not hold the results of a milrec run; name a run folder or its results\.json$"),
        (None, r"^'r' does not hold the results of a milrec run; name a run folder or its results\.json$"),
        (changed("format", to="milrec"), "does not hold the results"),
        (changed("version", to=2), "^'r' has format version 2, and this milrec reads up to 1; upgrade milrec$"),
        (changed("version", to="1"), "^'r' is damaged at 'version': "),
        (changed("models", to="none"), "^'r' is damaged at 'models': "),
        (changed("models", 0, "evaluation", to=None), r"^'r' is damaged at 'models\.0\.evaluation': field required$"),
        (changed("models", 0, "evaluation", "ndcg@100", to="0.3"), r"damaged at 'models\.0\.evaluation\.ndcg@100'"),
        (changed("models", 0, "fit_seconds", to=float("nan")), r"damaged at 'models\.0\.fit_seconds'"),
        (changed("models", 0, "settings", "loss", to={"loss": "mil"}), "missing_weight and missing_exponent"),
        (changed("data", "popularity_curve", to=[[1, 2, 3]]), r"damaged at 'data\.popularity_curve\.0'"),
        (changed("split", "protocol", to="time"), r"damaged at 'split\.protocol'"),
    ],
)
def test_what_is_foreign_or_damaged_is_refused_with_one_sentence(value, sentence):
    with pytest.raises(FolderError, match=sentence) as refusal:
        Results.of(value, "'r'")
    assert "\n" not in str(refusal.value)


def test_a_place_without_results_is_refused(tmp_path):
    with pytest.raises(FolderError, match="there is no run"):
        Results.read(tmp_path / "nowhere")
    with pytest.raises(FolderError, match=r"has no results\.json; let the run finish first"):
        Results.read(tmp_path)
    (tmp_path / "results.json").write_text("{broken")
    with pytest.raises(FolderError, match="not readable JSON"):
        Results.read(tmp_path)


def test_a_comparison_is_found_from_either_side():
    made = {"first": "a", "second": "b", "difference": 0.2, "low": 0.1, "high": 0.4, "p": 0.01, "users": 9}
    models = [made_up.model("a"), made_up.model("b")]
    results = made_up.run(models, comparisons={"ndcg@100": [made]})
    assert results.comparison("ndcg@100", "a", "b") == Comparison(**made)
    turned = results.comparison("ndcg@100", "b", "a")
    assert (turned.first, turned.difference, turned.low, turned.high, turned.p) == ("b", -0.2, -0.4, -0.1, 0.01)
    assert results.comparison("recall@1", "a", "b") is None and results.comparison("ndcg@100", "a", "c") is None
    assert not turned.may_be_chance


def test_the_best_trial_is_the_first_of_the_best_that_are_done():
    trials = [
        Trial(number=number, values={}, state=state, value=value)
        for number, (state, value) in enumerate(
            [("failed", None), ("done", 0.2), ("given up", 0.9), ("done", 0.3), ("done", 0.3), ("done", None)]
        )
    ]
    assert best_trial(trials).number == 3 and best_trial(trials[:1]) is None


# Any results: every field that may be absent is sometimes absent.

NUMBERS = st.floats(-1e15, 1e15)
COUNTS = st.integers(0, 10**12)
RANKS = st.integers(1, 10**12)
NAMES = st.text(max_size=8)
SETTINGS = st.dictionaries(NAMES, st.none() | st.booleans() | st.integers(-9, 9) | NUMBERS | NAMES, max_size=3)
MEASURES = st.dictionaries(st.sampled_from(["recall@1", "ndcg@100", "auc_rejected"]), st.none() | NUMBERS)


def some(strategy) -> st.SearchStrategy:
    return st.lists(strategy, max_size=2)


def record(required: dict, **optional) -> st.SearchStrategy:
    return st.fixed_dictionaries(required, optional=optional)


def merged(one: st.SearchStrategy, other: st.SearchStrategy) -> st.SearchStrategy:
    return st.builds(lambda first, second: {**first, **second}, one, other)


def by_tail(strategy) -> st.SearchStrategy:
    return record(dict.fromkeys(("short", "medium", "long"), strategy))


EVALUATIONS = merged(
    MEASURES,
    record(
        {},
        n_users=COUNTS,
        dropped_targets=COUNTS,
        top_200_share=by_tail(NUMBERS),
        interval_cuts=st.tuples(COUNTS, COUNTS).map(list),
        preference_distribution=st.none() | st.lists(NUMBERS, min_size=6, max_size=6),
        rank_evolution=by_tail(st.lists(NUMBERS, min_size=2, max_size=2)),
        intervals=st.dictionaries(NAMES, st.lists(st.none() | NUMBERS, min_size=2, max_size=2), max_size=2),
        undefined=st.dictionaries(NAMES, COUNTS, max_size=2),
    ),
)
HISTORIES = record(
    {"iterations": st.lists(COUNTS, min_size=2, max_size=2)},
    **dict.fromkeys(("epochs", "losses", "measures", "seconds"), st.lists(NUMBERS, min_size=2, max_size=2)),
    kept_iteration=st.none() | COUNTS,
    stopped_early=st.booleans(),
)
MODELS = record(
    {
        "name": NAMES,
        "seed": COUNTS,
        "settings": record({"model": SETTINGS}, loss=st.none() | SETTINGS, training=st.none() | SETTINGS),
        "evaluation": EVALUATIONS,
        "fit_seconds": NUMBERS,
    },
    tuned=SETTINGS,
    validation=st.none() | NUMBERS,
    dialled=some(merged(MEASURES, record({"dial": NUMBERS}, n_users=COUNTS, dropped_targets=COUNTS))),
    history=st.none() | HISTORIES,
    threads=COUNTS,
    peak_memory_mib=st.none() | COUNTS,
)
TRIALS = record(
    {"number": COUNTS, "values": SETTINGS, "state": st.sampled_from(["done", "given up", "failed", "broken"])},
    value=st.none() | NUMBERS,
    error=st.none() | NAMES,
)
COMPARISONS = record(
    {"first": NAMES, "second": NAMES, "users": COUNTS, **dict.fromkeys(("difference", "low", "high", "p"), NUMBERS)}
)
RESULTS = record(
    {
        "format": st.just("milrec-results"),
        "version": st.just(1),
        "title": NAMES,
        "data": record(
            {
                **dict.fromkeys(("users", "adopted"), COUNTS),
                "items": RANKS,
                "interval_cuts": st.tuples(RANKS, RANKS).map(list),
                "popularity_curve": some(st.tuples(RANKS, COUNTS).map(list)),
            },
            rejected=COUNTS,
            density=st.none() | NUMBERS,
            split_hash=NAMES,
        ),
        "split": record(
            {
                "protocol": st.sampled_from(["interactions", "users", "given"]),
                **dict.fromkeys(("seed", "test_users", "test_targets", "test_dropped_targets"), COUNTS),
            },
            validation_users_in_part=COUNTS,
            test_unknown_users=COUNTS,
        ),
        "models": some(MODELS),
        "versions": record({"milrec": NAMES, "torch": NAMES}, numpy=NAMES),
        "machine": record({}, cores=st.none() | COUNTS, threads=COUNTS, platform=NAMES),
        "finished": NAMES,
    },
    description=NAMES,
    paper=st.none() | record({"table": st.just("metrics"), "dataset": st.sampled_from(["ml-20m", "netflix"])}),
    searches=some(record({"name": NAMES, "measure": NAMES, "trials": some(TRIALS), "tuned": SETTINGS})),
    comparisons=st.dictionaries(NAMES, some(COMPARISONS), max_size=2),
    failures=some(record({"name": NAMES, "error": NAMES})),
)


@settings(deadline=None)
@given(RESULTS)
def test_results_that_are_read_and_written_again_are_the_same(value):
    results = Results.of(value, "a run")
    written = json.loads(json.dumps(results.as_json(), allow_nan=False))
    assert written == value
    assert Results.of(written, "a run") == results


JUNK: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just([]) | st.just({})
)
WHOLE = made_up.the_papers_run(seeds=1).as_json()


@settings(deadline=None)
@given(st.data())
def test_results_with_anything_in_the_wrong_place_are_read_or_refused_but_never_crash(data):
    value = copy.deepcopy(WHOLE)
    part = value
    for _ in range(data.draw(st.integers(0, 5))):
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        inside = [key for key in keys if isinstance(part[key], dict | list) and part[key]]
        if not inside:
            break
        part = part[data.draw(st.sampled_from(inside))]
    keys = list(part) if isinstance(part, dict) else list(range(len(part)))
    part[data.draw(st.sampled_from(keys))] = data.draw(JUNK)
    with suppress(FolderError):
        Results.of(value, "a run").as_json()
