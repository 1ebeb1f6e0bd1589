"""The paper's figures, the names of its models, and its claims with made-up runs in which they hold and fail."""

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


def by(measure: str, **values) -> list[dict]:
    """Models by short names with values of one measure."""
    names = {"ce": CE, "ce_sig": CE_SIG, "pair": PAIR, "pair_sig": PAIR_SIG, "mil": MIL, "mil_sig": MIL_SIG,
             "multi": MULTI, "mf": "MF-square", "mf_ce": "MF-CE", "mf_mil": "MF-mil"}  # fmt: skip
    return [made_up.model(names[short], **{measure: value}) for short, value in values.items()]


def shares(**values) -> list[dict]:
    return by("shares", **values)


# claim: a run in which it holds, one in which it does not, one in which it cannot be decided
CASES = {
    "MIL is level": (
        by("ndcg_at_100", mil=0.366, ce=0.370), by("ndcg_at_100", mil=0.36, ce=0.37), by("ndcg_at_100", mil=0.36)),
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
        by("preferences", ce=made_up.LIN_CE, mil=made_up.LIN_MIL),
        by("preferences", ce=made_up.LIN_CE, mil=[0.3, 0, 0, 0, 0, 99.7]),
        by("preferences", ce=None, mil=made_up.LIN_MIL)),
    "MIL gives most items": (
        by("preferences", mil=made_up.LIN_MIL), by("preferences", mil=made_up.LIN_PAIR), by("preferences", mil=None)),
    "CE pair gives more": (
        by("preferences", pair=made_up.LIN_PAIR, ce=made_up.LIN_CE),
        by("preferences", pair=made_up.LIN_CE, ce=made_up.LIN_PAIR), by("preferences", ce=made_up.LIN_CE)),
    "MIL lists less of the short": (
        shares(mil=(30, 40, 30), ce=(40, 40, 20)), shares(mil=(40, 40, 20), ce=(30, 40, 30)), shares(mil=(30, 40, 30))),
    "MIL lists more of the long tail than CE": (
        shares(mil=(30, 40, 30), ce=(40, 40, 20)), shares(mil=(40, 40, 20), ce=(30, 40, 30)), shares(ce=(30, 40, 30))),
    "MIL lists more of the long tail than the mult": (
        shares(mil=(30, 40, 30), multi=(40, 40, 20)), shares(mil=(40, 40, 20), multi=(30, 40, 30)),
        shares(mil=(30, 40, 30), ce=(40, 40, 20))),
    "CE point lists more of the short": (
        shares(ce=(40, 40, 20), multi=(30, 40, 30)), shares(ce=(30, 40, 30), multi=(40, 40, 20)),
        shares(multi=(30, 40, 30))),
    "CE point lists mainly": (
        by("curves", ce=STEADY), by("curves", ce=FLAT),
        by("curves", ce={tail: part[:50] for tail, part in UP.items()})),
    "MIL begins with": (
        by("curves", mil=TURNING, ce=STEADY), by("curves", mil=STEADY, ce=TURNING), by("curves", mil=TURNING)),
    "MIL's medium-tail": (by("curves", mil=TURNING), by("curves", mil=UP), by("curves", ce=TURNING)),
    "MIL's long-tail": (
        by("curves", mil=UP, ce=TURNING, multi=STEADY), by("curves", mil=TURNING, ce=UP), by("curves", mil=UP)),
    "Late in MIL's lists": (
        by("curves", mil=UP), by("curves", mil=STEADY),
        by("curves", mil={tail: part[:120] + [0.0] * 80 for tail, part in UP.items()})),
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
    for claim, where, _ in CLAIMS:
        assert any(claim.startswith(start) for start in [*CASES, "On held-out users"]), claim
        assert re.search(r"(table|figure)s? \d", where)


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


def test_the_papers_own_figures_support_its_claims():
    verdicts = {claim.claim: claim.verdict for claim in claims(made_up.the_papers_run())}
    assert list(verdicts.values()).count(HOLDS) == len(CLAIMS) - 1  # all but the one about held-out users
