"""Queries and answers: one contract for every kind of model."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import milrec
from milrec.data.splits import Audience
from milrec.errors import DataError, SettingsError, UnknownIdError
from milrec.kernels.sparse import Rows
from milrec.lists.fold_in import FoldIn
from milrec.lists.query import Answer, Query
from milrec.lists.reasons import parts_of_logits
from milrec.lists.rules import Rule
from milrec.lists.scores import Scorer, dial_shift, lists_for
from milrec.metrics.tail import log_popularity
from milrec.models.factorization import WeightedFactorization
from milrec.models.inputs import unit_rows

MODELS: dict[str, dict] = {
    "dae": {"loss": "mil"},
    "dae-sigmoid": {"loss": "pointwise", "encoder": "sigmoid"},
    "dae-counts": {"loss": "mil", "input_weights": "log"},
    "cdae": {"loss": "mil"},
    "cdae-linear": {"loss": "mil", "encoder": "linear"},
    "vae": {"n_hidden": 8},
    "mf": {"loss": "pointwise"},
    "wmf": {},
    "ease": {},
    "ease-sparse": {"model": "ease-sparse", "neighbours": 10},
    "slim": {},
    "popularity": {},
}
LINEAR = ["dae", "dae-counts", "cdae-linear", "ease", "ease-sparse", "slim"]
LEFT_OUT = ["dae-sigmoid", "cdae", "vae", "mf", "wmf"]


@pytest.fixture(scope="module")
def split(small_catalogue):
    weights = small_catalogue.adopted.copy()
    weights.data = np.random.default_rng(0).integers(1, 9, len(weights.data)).astype(np.float32)
    return milrec.split_interactions(replace(small_catalogue, adopted=weights), seed=0)


@pytest.fixture(scope="module")
def fitted(split):
    known = {}

    def fit(name):
        if name not in known:
            values = dict(MODELS[name])
            if name not in ("ease", "ease-sparse", "slim", "popularity"):
                values |= {"n_factors": 8} if name == "wmf" else {"n_factors": 8, "epochs": 6, "learning_rate": 1e-2}
            model = values.pop("model", name.partition("-")[0])
            known[name] = milrec.fit(split, model, values.pop("loss", None), **values)
        return known[name]

    return fit


@pytest.fixture(params=MODELS)
def recommender(request, fitted):
    return fitted(request.param)


def one(recommender, **values) -> Answer:
    (answer,) = recommender.answer([recommender.ask(Query(**values))])
    return answer


def various(recommender) -> list[Query]:
    users, items = recommender.user_ids, recommender.item_ids
    return [
        Query(user=users[0]),
        Query(user=users[1], n=7, dial=0.5, reasons=2),
        Query(adopted=items[:4]),
        Query(adopted=items[10:13], rejected=items[20:25], n=200, dial=-0.3),
        Query(adopted=[], n=3),
        Query(user=users[2], n=6, allow=items[::3], rules=["long >= 50%"]),
        Query(user=users[2], n=6, exclude=items[::3], rules=["short <= 1 in 3", "medium >= 2"], reasons=3),
        Query(user=users[0], n=4, allow=items[:40], exclude=items[:20]),
        Query(user=users[3], allow=[]),
    ]


def test_an_answer_says_what_is_listed(recommender):
    train = recommender.fitted.train
    answer = one(recommender, user=recommender.user_ids[5], n=10)
    assert [listed.rank for listed in answer.items] == list(range(1, 11)) and answer.unmet == ()
    for listed in answer.items:
        number = recommender.item_ids.index(listed.item)
        assert listed.title == train.items["title"][number].as_py()
        assert listed.popularity == train.popularity()[number] and listed.reasons == ()
    tails = [listed.tail for listed in answer.items]
    assert answer.shares == {name: tails.count(name) / 10 for name in ("short", "medium", "long")}
    assert answer.mean_popularity == np.mean([listed.popularity for listed in answer.items])


def test_an_empty_list_has_no_mean(recommender):
    answer = one(recommender, user=recommender.user_ids[0], allow=[])
    assert answer.items == () and answer.mean_popularity is None
    assert answer.shares == {"short": 0, "medium": 0, "long": 0}


def test_an_answer_does_not_depend_on_its_neighbours(recommender):
    asked = [recommender.ask(query) for query in various(recommender)]
    alone = [recommender.answer([one])[0] for one in asked]
    assert recommender.answer(asked) == alone
    assert recommender.answer(asked[::-1]) == alone[::-1]
    assert recommender.answer([]) == []
    if recommender.fitted.settings.model.model != "mf":  # folding many users in takes long
        assert recommender.answer(asked * 20) == alone * 20


def test_answers_and_tables_are_the_same_lists(recommender):
    for query in various(recommender):
        how = {name: value for name, value in vars(query).items() if name not in ("user", "adopted", "rejected")}
        if query.user is None:
            table = recommender.recommend_new(query.adopted, query.rejected, **how)
        else:
            table = recommender.recommend([query.user], **how).drop_columns("user")
        answer = one(recommender, **vars(query))
        rows = [listed[:6] for listed in answer.items]
        assert rows == [tuple(row.values())[:6] for row in table.to_pylist()]
        silent = query.user is None and not query.adopted and recommender.fitted.model.needs_adopted
        assert ("unmet" in table.column_names) == bool(query.rules or query.reasons or silent)
        assert ("reasons" in table.column_names) == bool(query.reasons)
        for name, expected in (("unmet", ["; ".join(answer.unmet)] * len(rows)), ("reasons", spoken(answer))):
            if name in table.column_names:
                assert table[name].to_pylist() == expected


def spoken(answer) -> list[str]:
    return ["; ".join(f"{why.title} ({why.weight:.3g})" for why in listed.reasons) for listed in answer.items]


def test_lists_are_those_of_the_scores_alone(recommender):
    """Against the lists that an evaluation judges, which know nothing of queries."""
    fitted, train = recommender.fitted, recommender.fitted.train
    rows = np.arange(0, train.n_users, 7)
    audience = Audience(train.adopted, train.rejected, fitted.removed, np.arange(train.n_users)).part(rows)
    scorer = Scorer(fitted.model, fitted.settings, train)
    (lists,) = lists_for(scorer, audience, 15, shift=dial_shift(0.7, log_popularity(train.popularity())))
    asked = [recommender.ask(Query(user=recommender.user_ids[row], n=15, dial=0.7)) for row in rows]
    for place, answer in enumerate(recommender.answer(asked)):
        assert [listed.item for listed in answer.items] == [recommender.item_ids[item] for item in lists.items[place]]
        assert answer == recommender.answer([asked[place]])[0]


def test_a_list_under_rules_keeps_them_and_begins_as_usual(recommender):
    user = recommender.user_ids[4]
    usual = one(recommender, user=user, n=20)
    ruled = one(recommender, user=user, n=20, rules=[Rule(tail="long", at_least="40%"), "short <= 1 in 5"])
    tails = [listed.tail for listed in ruled.items]
    assert ruled.unmet == () and tails.count("long") >= 8 and tails[:5].count("short") <= 1
    assert one(recommender, user=user, n=20, rules=["long >= 0"]) == usual
    for tail in ("short", "medium", "long"):  # within a part of the tail, the order is that of the scores
        scores = [listed.score for listed in ruled.items if listed.tail == tail]
        assert scores == sorted(scores, reverse=True)


def test_a_rule_that_cannot_be_met_is_said(recommender):
    catalogue = recommender.catalogue
    short = [recommender.item_ids[item] for item in catalogue.members[0]]
    answer = one(recommender, adopted=[], n=3, allow=short, rules=["long >= 1"])
    assert answer.unmet[:1] == (
        "at least 1 of the list from the long tail: 0 of 1, no more long-tail items may be listed",
    )
    assert len(answer.items) == 3


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("known", [True, False])
def test_the_parts_of_a_linear_model_and_what_is_everybodys_sum_to_the_logit(fitted, split, name, known):
    recommender = fitted(name)
    query = Query(user=recommender.user_ids[8], n=120) if known else Query(adopted=recommender.item_ids[3:9], n=120)
    asked = recommender.ask(query)
    (answer,) = recommender.answer([asked])
    items = np.array([recommender.item_ids.index(listed.item) for listed in answer.items])
    parts = parts_of_logits(recommender._scorer, asked, items)
    assert parts.shape == (len(asked.adopted), len(items))
    model, everybody = recommender.fitted.model, 0
    if name not in ("ease", "ease-sparse", "slim"):
        weight = model.decoder_weight.detach().numpy()[items]
        hidden = model.encoder_bias.detach().numpy()
        if name == "cdae-linear" and known:
            hidden = hidden + model.encoder_weight.detach().numpy()[model.n_items + asked.row]
        everybody = weight @ hidden + model.decoder_bias.detach().numpy()[items]
    logits = [listed.score for listed in answer.items]
    assert parts.sum(axis=0) + everybody == pytest.approx(logits, abs=1e-5)


@pytest.mark.parametrize("name", LEFT_OUT)
@pytest.mark.parametrize("known", [True, False])
def test_elsewhere_a_reason_is_the_difference_of_two_scorings(fitted, name, known):
    recommender = fitted(name)
    user = next(user for user in recommender.user_ids if 3 < recommender.user_items(user).num_rows < 9)
    asked = recommender.ask(Query(user=user) if known else Query(adopted=recommender.item_ids[4:9]))
    items = np.arange(0, 120, 11)
    parts = parts_of_logits(recommender._scorer, asked, items)
    if name in ("mf", "wmf"):
        asked = replace(asked, row=None)  # a user is folded in from his items

    def logits(adopted, weights):
        every = replace(asked.wanted, n=120)
        less = replace(asked, adopted=adopted, weights=weights, removed=adopted[:0], rejected=adopted[:0], wanted=every)
        if name == "mf":
            less = replace(less, rejected=asked.rejected)
        (answer,) = recommender.answer([less])
        scores = {listed.item: listed.score for listed in answer.items}
        return np.array([scores.get(recommender.item_ids[item], np.nan) for item in items])

    whole = logits(asked.adopted, asked.weights)
    for place in range(len(asked.adopted)):
        rest = np.delete(asked.adopted, place), np.delete(asked.weights, place)
        difference = whole - logits(*rest)
        seen = np.isfinite(difference)
        assert seen.sum() > 5
        assert parts[place][seen] == pytest.approx(difference[seen], abs=2e-5)


def test_reasons_are_adopted_items_with_the_largest_parts_above_0(recommender):
    asked = recommender.ask(Query(adopted=recommender.item_ids[2:8], n=9, reasons=3))
    (answer,) = recommender.answer([asked])
    items = np.array([recommender.item_ids.index(listed.item) for listed in answer.items])
    parts = parts_of_logits(recommender._scorer, asked, items)
    for column, listed in zip(parts.T, answer.items, strict=True):
        order = [place for place in np.argsort(-column, kind="stable")[:3] if column[place] > 0]
        expected = [recommender.item_ids[asked.adopted[place]] for place in order]
        assert [reason.item for reason in listed.reasons] == expected
        assert [reason.weight for reason in listed.reasons] == column[order].tolist()
        assert all(reason.title for reason in listed.reasons)
    expected = [listed.reasons for listed in answer.items]
    assert any(expected) == (recommender.fitted.settings.model.model != "popularity")


def test_a_model_that_folds_in_gives_no_reasons_for_very_many_items_and_says_so(fitted, monkeypatch):
    recommender = fitted("wmf")
    monkeypatch.setattr(WeightedFactorization, "most_explained", 4)
    assert any(listed.reasons for listed in one(recommender, adopted=recommender.item_ids[:4], reasons=1).items)
    answer = one(recommender, adopted=recommender.item_ids[:5], n=3, reasons=1)
    assert len(answer.items) == 3 and not any(listed.reasons for listed in answer.items)
    assert answer.unmet == ("reasons: this model gives them for at most 4 adopted items, not for 5",)
    table = recommender.recommend_new(recommender.item_ids[:5], n=3, reasons=1)
    assert table["unmet"].to_pylist() == list(answer.unmet) * 3
    assert one(fitted("ease"), adopted=recommender.item_ids[:5], n=3, reasons=1).unmet == ()


@pytest.mark.parametrize(("n_adopted", "expected"), [(10, [11]), (70, [64, 7])])
def test_reasons_fold_a_user_in_once_with_everything_and_once_without_each_item(
    fitted, monkeypatch, n_adopted, expected
):
    recommender, sizes = fitted("mf"), []
    whole = FoldIn.latents

    def counted(self, users):
        sizes.append(users.n_users)
        return whole(self, users)

    monkeypatch.setattr(FoldIn, "latents", counted)
    one(recommender, adopted=recommender.item_ids[:n_adopted], reasons=1)
    assert sizes == [1, *expected]  # for the list, and then for its reasons


def test_the_reason_on_a_checkerboard_is_an_item_of_its_colour(checkerboard):
    whole = milrec.split_interactions(checkerboard, seed=0, held_out=0.0)
    for values in ({}, {"encoder": "tanh"}):
        recommender = milrec.fit(whole, "dae", "mil", n_factors=4, epochs=100, learning_rate=1e-2, **values)
        answer = one(recommender, adopted=[2, 4, 7], n=1, allow=[6, 9], reasons=1)
        assert answer.items[0].item == 6 and answer.items[0].reasons[0].item in (2, 4)


def test_without_adopted_items_there_is_a_list_and_no_reason(recommender):
    answer = one(recommender, adopted=[], n=5, reasons=3)
    assert len(answer.items) == 5 and all(listed.reasons == () for listed in answer.items)


def test_one_adopted_item_speaks_for_all_or_against(recommender):
    answer = one(recommender, adopted=recommender.item_ids[:1], n=30, reasons=5)
    assert {reason.item for listed in answer.items for reason in listed.reasons} <= {recommender.item_ids[0]}


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({}, SettingsError, "say who the list is for: a known user, or adopted items"),
        ({"rejected": ["item 1"]}, SettingsError, "say who the list is for"),
        ({"user": "known", "adopted": ["nothing"]}, UnknownIdError, "unknown item 'nothing'"),
        ({"user": "known", "rejected": ["nothing"]}, UnknownIdError, "unknown item 'nothing'"),
        ({"user": "nobody"}, UnknownIdError, "unknown user 'nobody'; for a new user, give adopted"),
        ({"adopted": ["nothing"]}, UnknownIdError, "unknown item 'nothing'"),
        ({"adopted": [], "n": 0}, SettingsError, "a whole number of 1 or more, not 0"),
        ({"adopted": [], "n": 2.5}, SettingsError, "a whole number of 1 or more, not 2.5"),
        ({"adopted": [], "dial": float("nan")}, SettingsError, "the dial must be a finite number"),
        ({"adopted": [], "dial": "much"}, SettingsError, "the dial must be a finite number"),
        (
            {"adopted": [], "reasons": -1},
            SettingsError,
            "reasons must be a whole number of 0 or more, not -1",
        ),
        ({"adopted": [], "rules": ["long"]}, SettingsError, "'long' is not a rule"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_sentence(fitted, values, error, words):
    recommender = fitted("popularity")
    if values.get("user") == "known":
        values = {**values, "user": recommender.user_ids[0]}
    with pytest.raises(error, match=words):
        recommender.ask(Query(**values))


def test_an_item_cannot_be_adopted_and_rejected(fitted):
    recommender = fitted("popularity")
    both = recommender.item_ids[4]
    with pytest.raises(DataError, match=f"item '{both}' is both adopted and rejected"):
        recommender.ask(Query(adopted=[both], rejected=[both]))


def test_what_a_user_adopted_and_rejected_can_be_asked_for(fitted, split):
    recommender = fitted("popularity")
    row = int(np.argmax(np.diff(split.train.rejected.indptr)))
    table = recommender.user_items(recommender.user_ids[row])
    assert table.column_names == ["entry", "item", "title", "popularity", "interval"]
    for entry, pairs in (("adopted", split.train.adopted), ("rejected", split.train.rejected)):
        ids = [row["item"] for row in table.to_pylist() if row["entry"] == entry]
        assert ids == [recommender.item_ids[item] for item in pairs[[row]].indices]
    with pytest.raises(UnknownIdError, match="unknown user 'nobody'"):
        recommender.user_items("nobody")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40, deadline=None
)
@given(data=st.data())
def test_any_mixture_of_queries_is_answered_as_each_alone(fitted, data):
    recommender = fitted(data.draw(st.sampled_from(["dae", "cdae", "ease"])))
    users, items = st.sampled_from(recommender.user_ids), st.sampled_from(recommender.item_ids)
    some = st.lists(items, max_size=5, unique=True)
    how = {
        "n": st.integers(1, 30),
        "dial": st.sampled_from([0.0, 0.4, -1.0]),
        "exclude": st.none() | some,
        "allow": st.none() | st.lists(items, max_size=30),
        "rules": st.lists(st.sampled_from(["long >= 30%", "short <= 2 in 10", "medium >= 3"]), max_size=2),
        "reasons": st.integers(0, 3),
    }
    query = st.builds(Query, user=users, **how) | st.builds(Query, adopted=some, **how)
    asked = [recommender.ask(one) for one in data.draw(st.lists(query, max_size=8))]
    assert recommender.answer(asked) == [recommender.answer([one])[0] for one in asked]


def test_the_inputs_of_reasons_are_those_of_scoring(fitted):
    """A user's weights enter by their logarithm where the model says so."""
    recommender = fitted("dae-counts")
    asked = recommender.ask(Query(user=recommender.user_ids[8]))
    assert len(set(asked.weights.tolist())) > 1
    rows = Rows(np.array([0, len(asked.adopted)]), asked.adopted, asked.weights)
    inputs = unit_rows(rows, "log").values
    model = recommender.fitted.model
    product = model.encoder_weight.detach().numpy()[asked.adopted] @ model.decoder_weight.detach().numpy()[7]
    parts = parts_of_logits(recommender._scorer, asked, np.array([7]))
    assert parts[:, 0] == pytest.approx(inputs * product, abs=1e-6)
