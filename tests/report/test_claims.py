"""The paper's figures, the names of its models, and its claims with made-up runs in which they hold and fail.

The data of these runs are not the paper's, so every claim is checked; the paper's own tables are in test_published.py.
"""

import re
from pathlib import Path
from typing import get_args

import pytest

import made_up
from conftest import real_data
from milrec.data.downloads import NAMES
from milrec.report import paper
from milrec.report.claims import CLAIMS, FAILS, HOLDS, UNDECIDED, claims
from milrec.results import PaperDataSet, PaperTable, Results
from milrec.training.presets import PAPER_MODELS

PACKAGED = Path(paper.__file__).with_name("paper.csv")


def test_the_packaged_figures_are_the_shared_ones():
    """But for quotes around the intervals of table 6, whose names hold a comma."""
    shared = real_data("../paper/results.csv")
    assert PACKAGED.read_text(encoding="utf-8").replace('"', "") == shared.read_text(encoding="utf-8")


def test_every_figure_is_there_once_and_is_a_number():
    rows = [tuple(row.values()) for row in paper._rows()]
    assert len(rows) == 234 and all(len(row) == 5 for row in rows)
    assert len({row[:4] for row in rows}) == len(rows)
    assert all(0 <= float(row[4]) <= 100 for row in rows)


def test_figures_of_a_table():
    table = paper.figures("metrics", "ml-20m")
    assert len(table) == 10 and table["MIL lin-sig"]["recall@1"] == 0.299
    assert paper.figures("held-out users", "ml-20m")["WMF"] == {
        "recall@20": 0.36,
        "recall@50": 0.498,
        "ndcg@100": 0.386,
    }
    assert tuple(reversed(paper.figures("preference distribution", "netflix")["MIL lin-sig"])) == paper.PREFERENCE_BINS
    assert paper.figures("preference distribution", "ml-20m") == {}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("CE point lin-sig", "CE_Point lin-sig"),
        ("ce-point", "CE_Point lin-sig"),
        ("MIL", "MIL lin-sig"),
        ("mil sig-sig", "MIL sig-sig"),
        ("Multi-DAE", "MULTI tanh-lin"),
        ("MULTI", "MULTI tanh-lin"),
        ("MF-MIL", "MF-mil"),
        ("MIL A=1e6 γ=10", None),
        ("EASE", None),
    ],
)
def test_our_names_of_the_papers_models(ours, theirs):
    assert paper.model_of(ours, paper.figures("metrics", "ml-20m")) == theirs


def test_the_multinomial_goes_by_another_name_in_the_table_of_held_out_users():
    table = paper.figures("held-out users", "ml-20m")
    assert paper.model_of("MULTI tanh-lin", table) == "Multi-DAE"
    assert paper.model_of("Multi-VAE", table) == "Multi-VAE^PR"


def test_every_data_set_of_the_paper_is_described_and_is_one_that_milrec_knows_by_name():
    assert set(paper.DATA_SETS) == set(get_args(PaperDataSet)) <= set(NAMES)


def test_every_row_that_milrec_knows_by_name_is_a_model_of_the_paper():
    assert {paper.key(name) for name in PAPER_MODELS} <= paper.known_models()


def reference(users, items, protocol="interactions", table="metrics", dataset="ml-20m"):
    wanted = {"table": table, "dataset": dataset}
    return paper.reference(made_up.run([made_up.model("MIL")], protocol, users, items, paper=wanted))


def test_data_of_the_papers_size_are_the_papers():
    assert reference(136_677, 20_280).differs == ""
    assert "not the paper's data: MovieLens-20M has 136,700 users" in reference(6_040, 3_700).differs
    assert reference(136_677, 1_500).differs


def test_data_that_are_another_set_of_the_paper_are_compared_with_that_set():
    found = reference(463_400, 17_700)
    assert (found.dataset, found.differs) == ("netflix", "")


def test_held_out_users_count_as_users_of_the_data():
    data = made_up.run(
        [made_up.model("MIL")], "users", 116_677, 20_108, paper={"table": "held-out users", "dataset": "ml-20m"}
    )
    split = data.split.model_copy(update={"validation_users_in_part": 10_000, "test_users_in_part": 10_000})
    data = data.model_copy(update={"split": split})
    assert paper.reference(data).differs == ""
    other = data.model_copy(update={"paper": PaperTable(table="metrics", dataset="ml-20m")})
    assert "not split as for this table" in paper.reference(other).differs


def test_a_run_without_a_table_of_the_paper_has_no_reference():
    assert paper.reference(made_up.run([made_up.model("MIL")])) is None


CE, CE_SIG, PAIR, PAIR_SIG = "CE point lin-sig", "CE point sig-sig", "CE_Pair lin-sig", "CE_Pair sig-sig"
MIL, MIL_SIG, MULTI = "MIL lin-sig", "MIL sig-sig", "MULTI tanh-lin"
FLAT = {"short": [0.1] * 200, "medium": [0.5] * 200, "long": [0.4] * 200}
STEADY = {"short": [0.9] * 200, "medium": [0.1] * 200, "long": [0.0] * 200}
UP = {
    "short": [0.8 - place / 300 for place in range(200)],
    "medium": [0.2] * 200,
    "long": [place / 300 for place in range(200)],
}
TURNING = {
    "short": [0.9] * 20 + [0.2] * 180,
    "medium": [0.1] * 20 + [0.5] * 180,
    "long": [0.0] * 20 + [0.3] * 180,
}


def at_100(long: float) -> dict[str, list[float]]:
    """Curves with such a share of the long tail at all places."""
    return {"short": [0.0] * 200, "medium": [1 - long] * 200, "long": [long] * 200}


def by(measure: str, **values) -> list[dict]:
    """Models by short names with values of one measure."""
    names = {"ce": CE, "ce_sig": CE_SIG, "pair": PAIR, "pair_sig": PAIR_SIG, "mil": MIL, "mil_sig": MIL_SIG,
             "multi": MULTI, "mf": "MF-square", "mf_ce": "MF-CE", "mf_mil": "MF-mil"}  # fmt: skip
    return [made_up.model(names[short], **{measure: value}) for short, value in values.items()]


def shares(**values) -> list[dict]:
    return by("shares", **values)


def tuned(**decays) -> list[dict]:
    """Models for which a search chose the weight decay."""
    models = by("recall_at_1", **dict.fromkeys(decays, 0.25))
    for model, decay in zip(models, decays.values(), strict=True):
        model["tuned"] = {} if decay is None else {"weight_decay": decay}
    return models


def mil(ndcg: float, weight: float = 1e6, exponent: float = 10, adopted: float = 1) -> dict:
    """A MIL model with parameters of its loss in its name."""
    model = made_up.model(f"MIL {weight:g} {exponent:g} {adopted:g}", loss="mil", ndcg_at_100=ndcg)
    model["settings"]["loss"] |= {
        "missing_weight": weight,
        "missing_exponent": exponent,
        "adopted_exponent": adopted,
    }
    return model


def zero_and_high(below: float, high: float) -> list[float]:
    """A distribution of preferences with so many percent below .01 and at .5 or more."""
    return [below, 100 - below - high, 0, high, 0, 0]


# claim: a run in which it holds, one in which it does not, one in which it cannot be decided
CASES = {
    "MIL is level": (
        by("ndcg_at_100", mil=0.366, ce=0.371), by("ndcg_at_100", mil=0.36, ce=0.367), by("ndcg_at_100", mil=0.36)),
    "MIL has the best Recall@1": (
        by("recall_at_1", mil=0.28, mil_sig=0.3, ce=0.29), by("recall_at_1", mil=0.28, ce=0.29),
        by("recall_at_1", ce=0.28)),
    "The multinomial is weak": (
        by("recall_at_1", multi=0.24, ce=0.28, mil=0.3), by("recall_at_1", multi=0.29, ce=0.28, mil=0.3),
        by("recall_at_1", ce=0.28, mil=0.3)),
    "The multinomial recovers": (
        [made_up.model(CE, recall_at_1=0.3, ndcg_at_100=0.36), made_up.model(MULTI, recall_at_1=0.2, ndcg_at_100=0.35)],
        [made_up.model(CE, recall_at_1=0.3, ndcg_at_100=0.36), made_up.model(MULTI, recall_at_1=0.3, ndcg_at_100=0.3)],
        [made_up.model(CE)]),
    "Point-wise cross-entropy is above": (
        [made_up.model(CE_SIG, recall_at_1=0.3, ndcg_at_100=0.36), made_up.model(PAIR_SIG)],
        [made_up.model(CE, recall_at_1=0.3, ndcg_at_100=0.3), made_up.model(PAIR)],
        [made_up.model(CE), made_up.model(PAIR_SIG)]),
    "Linear or sigmoid": (
        by("ndcg_at_100", ce=0.366, ce_sig=0.371), by("ndcg_at_100", mil=0.366, mil_sig=0.35),
        by("ndcg_at_100", ce=0.366, mil_sig=0.371)),
    "MF-CE and MF-mil are above": (
        by("ndcg_at_100", mf=0.3, mf_ce=0.34, mf_mil=0.33), by("ndcg_at_100", mf=0.335, mf_ce=0.34, mf_mil=0.33),
        by("ndcg_at_100", mf_ce=0.34, mf_mil=0.33)),
    "MF-CE is above": (
        by("ndcg_at_100", mf_ce=0.34, mf_mil=0.33), by("ndcg_at_100", mf_ce=0.32, mf_mil=0.33),
        by("ndcg_at_100", mf_ce=0.34)),
    "Matrix factorization is below": (
        by("ndcg_at_100", ce=0.36, mil=0.36, mf_ce=0.34, mf_mil=0.33),
        by("ndcg_at_100", ce=0.36, mil=0.32, mf_ce=0.34, mf_mil=0.33), by("ndcg_at_100", ce=0.36, mil=0.36)),
    "CE point pushes most": (
        by("preferences", ce=zero_and_high(60, 10)), by("preferences", ce=zero_and_high(40, 10)),
        by("preferences", ce=None)),
    "CE point pushes at least 85 %": (
        by("preferences", ce=made_up.LIN_CE), by("preferences", ce=zero_and_high(84, 1)), by("preferences", mil=None)),
    "MIL leaves fewer": (
        by("preferences", ce=made_up.LIN_CE, mil=made_up.LIN_PAIR),
        by("preferences", ce=made_up.LIN_PAIR, mil=made_up.LIN_CE), by("preferences", ce=None, mil=made_up.LIN_MIL)),
    "MIL leaves no": (
        by("preferences", mil=made_up.LIN_MIL), by("preferences", mil=zero_and_high(0.3, 99.7)),
        by("preferences", mil=None)),
    "MIL gives most": (
        by("preferences", mil=zero_and_high(0, 60)), by("preferences", mil=made_up.LIN_PAIR),
        by("preferences", mil=None)),
    "MIL gives at least 94 %": (
        by("preferences", mil=zero_and_high(0, 94)), by("preferences", mil=zero_and_high(0, 93)),
        by("preferences", mil=None)),
    "CE pair gives more": (
        by("preferences", pair=[90, 6, 1, 1, 1, 1], ce=[90, 7, 1, 1, 0.5, 0.5]),
        by("preferences", pair=made_up.LIN_CE, ce=made_up.LIN_PAIR), by("preferences", ce=made_up.LIN_CE)),
    "CE pair gives about 5 times": (
        by("preferences", pair=made_up.LIN_PAIR, ce=made_up.LIN_CE),
        by("preferences", pair=[90, 6, 1, 1, 1, 1], ce=[90, 7, 1, 1, 0.5, 0.5]),
        by("preferences", pair=made_up.LIN_PAIR, ce=[90, 10, 0, 0, 0, 0])),
    "With CE point, fewer": (  # of 1,500 items
        by("preferences", ce=[90, 3.4, 0, 0, 0, 6.6]), by("preferences", ce=[90, 3.3, 0, 0, 0, 6.7]),
        by("preferences", pair=made_up.LIN_PAIR)),
    "MIL lists less of the short tail than CE": (
        shares(mil=(39, 40, 21), ce=(40, 40, 20)), shares(mil=(40, 40, 20), ce=(30, 40, 30)), shares(mil=(30, 40, 30))),
    "MIL lists at least 15 % less": (
        shares(mil=(34, 40, 26), ce=(40, 40, 20)), shares(mil=(35, 40, 25), ce=(40, 40, 20)),
        shares(mil=(30, 40, 30))),
    "MIL lists less of the short tail than the": (
        shares(mil=(39, 40, 21), multi=(40, 40, 20)), shares(mil=(40, 40, 20), multi=(30, 40, 30)),
        shares(multi=(30, 40, 30))),
    "CE point lists more of the short": (
        shares(ce=(40, 40, 20), multi=(30, 40, 30)), shares(ce=(30, 40, 30), multi=(40, 40, 20)),
        shares(multi=(30, 40, 30))),
    "MIL lists more of the long tail than CE": (
        shares(mil=(30, 40, 30), ce=(40, 40, 20)), shares(mil=(40, 40, 20), ce=(30, 40, 30)), shares(ce=(30, 40, 30))),
    "MIL lists about 50 % more": (
        shares(mil=(31, 40, 29), ce=(40, 40, 20)), shares(mil=(32, 40, 28), ce=(40, 40, 20)),
        shares(mil=(50, 40, 10), ce=(60, 40, 0))),
    "MIL lists more of the long tail than the": (
        shares(mil=(30, 40, 30), multi=(40, 40, 20)), shares(mil=(40, 40, 20), multi=(30, 40, 30)),
        shares(mil=(30, 40, 30), ce=(40, 40, 20))),
    "CE point lists mainly": (
        by("curves", ce=STEADY), by("curves", ce=FLAT),
        by("curves", ce={tail: part[:50] for tail, part in UP.items()})),
    "MIL begins with": (
        by("curves", mil=TURNING, ce=STEADY), by("curves", mil=STEADY, ce=TURNING), by("curves", mil=TURNING)),
    "MIL's medium-tail": (by("curves", mil=TURNING), by("curves", mil=UP), by("curves", ce=TURNING)),
    "After place 100": (
        by("curves", mil=TURNING), by("curves", mil={**UP, "medium": UP["long"], "long": UP["medium"]}),
        by("curves", mil=UP)),
    "MIL's long-tail": (by("curves", mil=UP), by("curves", mil=STEADY), by("curves", ce=UP)),
    "At place 100, MIL lists a long-tail item for more users than CE": (
        by("curves", mil=UP, ce=TURNING), by("curves", mil=TURNING, ce=UP), by("curves", mil=UP)),
    "At place 100, MIL lists a long-tail item for about 8.6 %": (
        by("curves", mil=at_100(0.378), ce=TURNING), by("curves", mil=at_100(0.377), ce=TURNING),
        by("curves", ce=UP)),
    "At place 100, MIL lists a long-tail item for more users than the": (
        by("curves", mil=UP, multi=TURNING), by("curves", mil=TURNING, multi=UP), by("curves", mil=UP, ce=UP)),
    "At place 100, MIL lists a long-tail item for about 5.4 %": (
        by("curves", mil=at_100(0.349), multi=TURNING), by("curves", mil=at_100(0.348), multi=TURNING),
        by("curves", multi=UP)),
    "Late in MIL's lists": (
        by("curves", mil=UP), by("curves", mil=STEADY),
        by("curves", mil={tail: part[:120] + [0.0] * 80 for tail, part in UP.items()})),
    "MIL autoencoders": (
        tuned(mil=5e-6, ce=2e-5, multi=1e-5, mil_sig=8e-6), tuned(mil=2e-5, ce=2e-5, mil_sig=1e-6, ce_sig=2e-5),
        tuned(mil=None, ce=2e-5)),
    "MIL's best A and γ": (
        [mil(0.35), mil(0.34, 5e5), mil(0.33, 1e3, 4)], [mil(0.35), mil(0.34, 5e5), mil(0.36, 1e3, 4)],
        [mil(0.35), mil(0.34, 1e3, 4, adopted=2)]),
    "MIL's best γ₊": (
        [mil(0.35), mil(0.34, adopted=2)], [mil(0.34, 1e3, 4), mil(0.35, 1e3, 4, adopted=2)],
        [mil(0.35), mil(0.34, 1e3, 4, adopted=2)]),
}  # fmt: skip


def verdict_of(start: str, results: Results) -> tuple[str, str]:
    (found,) = [claim for claim in claims(results) if claim.claim.startswith(start)]
    return found.verdict, found.evidence


@pytest.mark.parametrize("start", CASES)
def test_a_claim_holds_fails_or_cannot_be_decided(start):
    holds, fails, undecided = (made_up.run(models) for models in CASES[start])
    assert verdict_of(start, holds)[0] == HOLDS
    assert verdict_of(start, fails)[0] == FAILS
    assert verdict_of(start, undecided)[0] == UNDECIDED
    assert re.search(r"\d", verdict_of(start, holds)[1])  # the figures are in the evidence


def test_the_claim_about_held_out_users_needs_them():
    better = [made_up.model(name, recall_at_1=0.4, ndcg_at_20=0.34) for name in (CE, MIL)]
    models = [*better, made_up.model("Multi-DAE", recall_at_1=0.38, ndcg_at_20=0.33)]
    start = "On held-out users"
    assert verdict_of(start, made_up.run(models, "users"))[0] == HOLDS
    assert verdict_of(start, made_up.run(models))[0] == UNDECIDED
    best = made_up.model("Multi-DAE", recall_at_1=0.41, ndcg_at_20=0.33)
    assert verdict_of(start, made_up.run([*better, best], "users"))[0] == FAILS


def test_every_claim_has_a_case_and_says_where_the_paper_makes_it():
    for one in CLAIMS:
        assert any(one.claim.startswith(start) for start in [*CASES, "On held-out users"]), one.claim
        assert re.search(r"(table|figure)s? \d|section 3\.[34]", one.where) and one.made_for


def test_an_order_that_may_be_chance_cannot_be_decided():
    models = by("recall_at_1", mil=0.302, ce=0.300)
    chance = made_up.run(models, comparisons={"recall@1": made_up.compared(models, "recall@1")})
    verdict, evidence = verdict_of("MIL has the best", chance)
    assert verdict == UNDECIDED and "p = 0.400" in evidence and "may be chance" in evidence


def test_a_paired_comparison_is_read_from_either_side():
    models = by("recall_at_1", ce=0.28, mil=0.30)  # the comparison says: CE less MIL
    run = made_up.run(models, comparisons={"recall@1": made_up.compared(models, "recall@1")})
    verdict, evidence = verdict_of("MIL has the best", run)
    assert verdict == HOLDS and "+0.020, 95 % interval +0.017 to +0.023, p < 0.001" in evidence


def with_shares(comparison: dict, **values) -> Results:
    """Two models with shares of the top 200, and a comparison of their first minus the second in either tail."""
    models = shares(**values)
    names = {"first": models[0]["name"], "second": models[1]["name"], "users": 1000}
    return made_up.run(
        models, comparisons={f"{tail}_share@200": [{**names, **comparison[tail]}] for tail in ("short", "long")}
    )


CHANCE = {"difference": -1.0, "low": -2.5, "high": 0.5, "p": 0.2}
SHARE_CLAIMS = {
    "MIL lists less of the short tail than CE": ("mil", "ce"),
    "MIL lists more of the long tail than CE": ("ce", "mil"),
    "MIL lists less of the short tail than the": ("mil", "multi"),
    "MIL lists more of the long tail than the": ("multi", "mil"),
    "CE point lists more of the short": ("multi", "ce"),
}


@pytest.mark.parametrize("start", SHARE_CLAIMS)
def test_an_order_of_shares_that_may_be_chance_cannot_be_decided(start):
    less, more = SHARE_CLAIMS[start]
    values = {less: (39, 41, 20), more: (40, 39, 21)}
    verdict, evidence = verdict_of(start, with_shares({"short": CHANCE, "long": CHANCE}, **values))
    assert verdict == UNDECIDED
    assert "95 % interval" in evidence and "percentage points, p = 0.200). This may be chance." in evidence
    sure = {**CHANCE, "p": 0.0001}
    assert verdict_of(start, with_shares({"short": sure, "long": sure}, **values))[0] == HOLDS
    turned = {**sure, "difference": 1.0}
    assert verdict_of(start, with_shares({"short": turned, "long": turned}, **values))[0] == FAILS


@pytest.mark.parametrize(
    ("low", "high", "p", "verdict"),
    [
        (-7.0, -6.1, 0.001, HOLDS),
        (-7.5, -5.5, 0.001, UNDECIDED),  # 15 % of 40 is 6
        (-6.5, -5.3, 0.001, FAILS),
        (-5.5, -4.5, 0.001, FAILS),
        (-7.0, -6.1, 0.2, UNDECIDED),  # with Holm's correction
        (-0.5, 0.5, 0.9, FAILS),  # whichever way, it is not 15 %
    ],
)
def test_a_size_is_judged_by_the_whole_interval(low, high, p, verdict):
    found = {"difference": (low + high) / 2, "low": low, "high": high, "p": p}
    run = with_shares({"short": found, "long": found}, mil=(34, 40, 26), ce=(40, 40, 20))
    assert verdict_of("MIL lists at least 15 %", run)[0] == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.004, 0.002, HOLDS),
        (-0.007, -0.001, UNDECIDED),
        (0.001, 0.008, UNDECIDED),
        (-0.009, -0.004, FAILS),
        (0.0061, 0.009, FAILS),
    ],
)
def test_models_are_level_if_their_whole_interval_is_within_the_papers_errors(low, high, verdict):
    models = by("ndcg_at_100", mil=0.366 + (low + high) / 2, ce=0.366)
    made = {"first": MIL, "second": CE, "difference": (low + high) / 2, "low": low, "high": high, "p": 0.01, "users": 9}
    run = made_up.run(models, comparisons={"ndcg@100": [made]})
    assert verdict_of("MIL is level", run)[0] == verdict


def test_pairs_of_a_and_gamma_whose_order_may_be_chance_cannot_be_decided():
    models = [mil(0.351), mil(0.350, 5e5)]
    chance = made_up.run(models, comparisons={"ndcg@100": made_up.compared(models, "ndcg@100")})
    verdict, evidence = verdict_of("MIL's best A and γ", chance)
    assert verdict == UNDECIDED and "may be chance" in evidence


def searched(*trials: tuple, name: str = MIL) -> Results:
    """A run with a search over A, γ and γ₊: each trial with its validation measure."""
    made = [
        {
            "number": number,
            "values": {"missing_weight": weight, "missing_exponent": exponent, "adopted_exponent": adopted},
            "state": "done" if value else "given up",
            "value": value or 0.9,
        }
        for number, (weight, exponent, adopted, value) in enumerate(trials)
    ]
    search = {"name": name, "measure": "ndcg@100", "trials": made, "tuned": {}}
    return made_up.run([made_up.model(name, loss="mil")], searches=[search])


@pytest.mark.parametrize(
    ("trials", "pair", "adopted"),
    [
        ([(1e6, 10, 1, 0.36), (5e5, 10, 2, 0.35), (1e3, 4, 2, None)], HOLDS, HOLDS),
        ([(1e6, 10, 1, 0.34), (5e5, 10, 1, 0.35), (1e6, 10, 2, 0.355)], HOLDS, FAILS),
        ([(1e6, 10, 1, 0.34), (5e5, 10, 1, 0.35)], FAILS, UNDECIDED),
        ([(1e6, 10, 1, 0.352), (5e5, 10, 2, 0.35)], UNDECIDED, UNDECIDED),  # less than another seed would change
        ([(1e6, 10, 1, 0.36), (5e5, 10, 1, None)], UNDECIDED, UNDECIDED),
        ([("large", None, True, 0.36), (1e6, 10, 1, 0.35)], UNDECIDED, UNDECIDED),
    ],
)
def test_the_trials_of_a_search_say_which_parameters_of_mil_are_best(trials, pair, adopted):
    run = searched(*trials)
    assert verdict_of("MIL's best A and γ", run)[0] == pair
    assert verdict_of("MIL's best γ₊", run)[0] == adopted
    assert verdict_of("MIL's best A and γ", searched(*trials, name="Another"))[0] == UNDECIDED


def test_the_evidence_of_a_search_names_both_values():
    verdict, evidence = verdict_of("MIL's best A and γ", searched((1e6, 10, 1, 0.36), (5e9, 15, 1, 0.35)))
    assert verdict == HOLDS
    assert evidence == "Validation NDCG@100 of MIL lin-sig: 0.3600 with A = 1e6, γ = 10, 0.3500 with A = 5e9, γ = 15."


def test_a_weight_decay_that_no_search_chose_says_nothing():
    models = tuned(mil=None, ce=None)
    for model, decay in zip(models, (5e-6, 2e-5), strict=True):
        model["settings"]["training"]["weight_decay"] = decay
    verdict, evidence = verdict_of("MIL autoencoders", made_up.run(models))
    assert verdict == UNDECIDED and evidence.startswith("No search chose the weight decay of both MIL and")
    assert verdict_of("MIL autoencoders", made_up.run(tuned(mil="small", ce=10**400)))[0] == UNDECIDED
