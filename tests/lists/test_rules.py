"""Rules: what they say, and the best list that keeps them, against all lists tried out."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milrec.errors import SettingsError
from milrec.lists.rules import Rule, list_under, rule_of

SHORT, MEDIUM, LONG = range(3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("long >= 30%", "at least 30 % of the list from the long tail"),
        ("short <= 2 in 10", "at most 2 of the first 10 from the short tail"),
        ("  medium>=12.5 %  in 8", "at least 12.5 % of the first 8 from the medium tail"),
        ("long ≤ 0", "at most 0 of the list from the long tail"),
    ],
)
def test_a_rule_is_read_from_its_short_form_and_said_as_a_sentence(text, sentence):
    assert str(Rule.parse(text)) == sentence


def test_a_rule_has_one_value_in_all_its_forms():
    assert rule_of({"tail": "long", "at_least": "30 %"}) == Rule.parse("long >= 30%") == rule_of("long ≥ 30%")
    assert rule_of({"tail": "short", "at_most": 2, "first": 10}) == Rule(tail="short", at_most=2, first=10)
    rule = Rule.parse("short <= 2 in 10")
    assert rule_of(rule) is rule and rule_of(rule.model_dump()) == rule


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "is not a rule; write it as 'long >= 30%'"),
        ("long", "is not a rule"),
        ("tall >= 3", "is not a rule"),
        ("long > 3", "is not a rule"),
        ("long >= 2.5", "is not a rule"),
        ("long >= 1.2.3%", "neither a count"),
        ("long >= 101%", "'101%' is neither a count, such as 2, nor a share, such as '30%'"),
        ("long >= 3 in 0", "first"),
        ("long >= 5 in 3", "the first 3 cannot hold 5 items"),
        (7, "7 is not a rule"),
        ({}, "tail"),
        ({"tail": "long"}, "either at_least or at_most"),
        ({"tail": "long", "at_least": 1, "at_most": 2}, "either at_least or at_most"),
        ({"tail": "long", "at_least": -1}, "-1 is neither a count"),
        ({"tail": "long", "at_least": True}, "True is neither a count"),
        ({"tail": "long", "at_least": 0.5}, "0.5 is neither a count"),
        ({"tail": "long", "at_least": [3]}, "neither a count"),
        ({"tail": "tall", "at_least": 1}, "'short', 'medium' or 'long'"),
        ({"tail": "long", "atleast": 1}, "unknown setting 'atleast' in a rule (did you mean 'at_least'"),
    ],
)
def test_what_is_no_rule_is_refused_with_a_sentence(value, words):
    with pytest.raises(SettingsError, match=words.replace("(", r"\(")) as caught:
        rule_of(value)
    assert "\n" not in str(caught.value)


def test_at_least_rounds_up_and_at_most_rounds_down_without_rounding_errors():
    assert [Rule.parse("long >= 30%").bound(n).low for n in (20, 10, 7, 1, 0)] == [6, 3, 3, 1, 0]
    assert [Rule.parse("long <= 30%").bound(n).high for n in (20, 10, 7, 1, 0)] == [6, 3, 2, 0, 0]
    assert Rule.parse("long >= 7%").bound(100).low == 7  # 0.07 × 100 is more than 7 in floating point
    assert Rule.parse("long <= 57%").bound(100).high == 57  # and 0.57 × 100 less than 57
    assert Rule.parse("short <= 50% in 10").bound(6).high == 3


def candidates(*scores):
    """Items 0, 1, 2, … with the given scores for each part of the tail, best first."""
    numbers = itertools.count()
    return [[next(numbers) for _ in part] for part in scores], [sorted(part, reverse=True) for part in scores]


def listed(rules, n, *scores):
    items, scored = candidates(*scores)
    return list_under([Rule.parse(rule) for rule in rules], n, items, scored)


def test_a_rule_brings_the_best_of_a_part_in_at_the_last_places_it_can():
    assert listed([], 4, [9, 8, 7, 6], [], [3, 2, 1]) == ([0, 1, 2, 3], ())
    assert listed(["long >= 50%"], 4, [9, 8, 7, 6], [], [3, 2, 1]) == ([0, 1, 4, 5], ())
    assert listed(["long >= 1 in 2"], 4, [9, 8, 7, 6], [], [3, 2, 1]) == ([0, 4, 1, 2], ())
    assert listed(["short <= 1 in 3"], 4, [9, 8, 7, 6], [], [3, 2, 1]) == ([0, 4, 5, 1], ())


def test_equal_scores_are_listed_in_item_order():
    assert list_under([Rule.parse("long >= 1")], 3, [[1, 4], [0], [2]], [[1, 1], [1], [1]]) == ([0, 1, 2], ())


def test_what_cannot_be_met_is_met_as_far_as_possible_and_said():
    assert listed(["long >= 30%"], 20, range(30), [], [3, 2]) == (
        [*range(18), 30, 31],
        ("at least 30 % of the list from the long tail: 2 of 6, no more long-tail items may be listed",),
    )
    assert listed(["short <= 2 in 10"], 10, range(30), [5], [3, 2])[1] == (
        "at most 2 of the first 10 from the short tail: 7 instead of 2, too few other items may be listed",
    )
    assert listed(["long >= 8"], 5, [9], [], range(5)) == (
        [1, 2, 3, 4, 5],
        ("at least 8 of the list from the long tail: 5 of 8, the list is only 5 long",),
    )
    assert listed(["short >= 80%", "long >= 50%"], 10, range(20), [], range(20))[1] == (
        "at least 50 % of the list from the long tail: 2 of 5, the rules before it leave no room",
    )
    assert listed(["long >= 2"], 5, [], [], []) == (
        [],
        ("at least 2 of the list from the long tail: 0 of 2, the list is only 0 long",),
    )


AMOUNTS = st.one_of(st.integers(0, 5), st.sampled_from(["0%", "20%", "33.3%", "50%", "75%", "100%"]))


@st.composite
def rules(draw):
    first = draw(st.none() | st.integers(1, 8))
    bound = draw(st.sampled_from(["at_least", "at_most"]))
    amount = draw(AMOUNTS)
    if first is not None and bound == "at_least" and isinstance(amount, int):
        amount = min(amount, first)
    return Rule(tail=draw(st.sampled_from(["short", "medium", "long"])), first=first, **{bound: amount})


def off_by(rule, tails) -> int:
    """How many items a list of tails is away from a rule."""
    window = tails if rule.first is None else tails[: rule.first]
    found = sum(tail == ("short", "medium", "long").index(rule.tail) for tail in window)
    amount = rule.at_most if rule.at_least is None else rule.at_least
    if isinstance(amount, str):
        tenths = round(float(amount[:-1]) * 10) * len(window)
        amount = math.ceil(tenths / 1000) if rule.at_most is None else tenths // 1000
    return max(0, amount - found) if rule.at_most is None else max(0, found - amount)


@settings(deadline=None)
@given(
    wanted=st.lists(rules(), max_size=4),
    n=st.integers(1, 6),
    scores=st.lists(st.lists(st.integers(0, 6), max_size=6), min_size=3, max_size=3),
)
def test_the_list_is_the_best_of_all_lists_that_keep_the_rules(wanted, n, scores):
    """Of all lists: those nearest to the first rule, of these the nearest to the second, …; then place by place."""
    items, scored = candidates(*scores)
    length = min(n, sum(map(len, items)))

    def key(tails):
        heads, places = [0, 0, 0], []
        for tail in tails:
            places.append((-scored[tail][heads[tail]], items[tail][heads[tail]]))
            heads[tail] += 1
        return [off_by(rule, tails) for rule in wanted], places

    every = [
        tails
        for tails in itertools.product(range(3), repeat=length)
        if all(tails.count(tail) <= len(items[tail]) for tail in range(3))
    ]
    off, places = min(key(tails) for tails in every)
    found, unmet = list_under(wanted, n, [part[:n] for part in items], [part[:n] for part in scored])
    assert found == [item for _, item in places]
    assert [rule for rule, by in zip(wanted, off, strict=True) if by] == [
        rule for rule in wanted for sentence in unmet if sentence.startswith(f"{rule}: ")
    ] or len(set(map(str, wanted))) < len(wanted)
    assert len(unmet) == sum(by > 0 for by in off)
