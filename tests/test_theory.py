"""docs/theory.md: each formula against a numerical minimum of the expected loss, and each number on the page.

Minima are found by `scipy.optimize`, from the loss alone: what is checked is never used to compute what it should be.
"""

import itertools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import spearmanr

from experiments import polynomials
from milrec.data.splits import split_interactions
from milrec.losses import MissingInformationLoss, PointwiseCrossEntropy, Targets
from milrec.torch import MissingInformationLoss as LossModule
from milrec.torch import expected_weight
from milrec.training.presets import settings_for

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())
TRIED = json.loads((ROOT / "docs" / "results" / "polynomials" / "ml-1m.json").read_text(encoding="utf-8"))
PAIRS = ((5e1, 2), (1e3, 4), (2e4, 6), (5e5, 10), (1e6, 10), (5e6, 10), (5e9, 15))
SHARES = (1e-4, 0.01, 0.1, 0.5, 0.9)
BEST = (1e6, 10)  # A and γ

shares = st.floats(-12, 6).map(lambda logit: 1 / (1 + math.exp(-logit)))
weights = st.floats(1e-3, 1)
heights = st.floats(0, 10).map(lambda power: 10**power)
exponents = st.floats(1, 20)
adopted_exponents = st.floats(1, 3)


def expected(q: float, share: float, w: float, height: float, gamma: float, adopted: float = 1.0) -> float:
    """R(q) as the page has it."""
    return share * (1 - q) ** adopted + (1 - share) * w * height * abs(q - 0.5) ** (2 * gamma)


def lowest(risk: Callable[[float], float]) -> float:
    """Where a convex function of a preference is lowest."""
    return float(minimize_scalar(risk, bounds=(0, 1), method="bounded", options={"xatol": 1e-11}).x)


def rises_at_one_half(risk: Callable[[float], float]) -> bool:
    """Whether a convex function is lowest below ½, also where it is so steep that its minimum rounds to ½."""
    return risk(0.5 + 1e-6) > risk(0.5 - 1e-6)


def best(share: float, w: float, height: float, gamma: float, adopted: float = 1.0) -> float:
    return lowest(lambda q: expected(q, share, w, height, gamma, adopted))


def logit(q: float) -> float:
    return math.log(q / (1 - q))


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def odds_of(share: float) -> float:
    return share / (1 - share)


def link(share: float, height: float, gamma: float, w: float = 1.0) -> float:
    """The page's q for γ₊ = 1."""
    return 0.5 + min((odds_of(share) / (2 * gamma * w * height)) ** (1 / (2 * gamma - 1)), 0.5)


def slope(q: float, gamma: float, adopted: float = 1.0) -> float:
    """The page's s."""
    return (2 * gamma - 1) * q * (1 - q) / (q - 0.5) + (adopted - 1) * q


def short(number: float, digits: int) -> str:
    """.754 for 0.754."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{number:.{digits}f}")


def table(name: str) -> list[list[str]]:
    """The cells of the table below a mark on the page."""
    lines = PAGE.partition(f"<!-- {name} -->\n")[2].split("\n\n")[0].splitlines()
    assert len(lines) > 2, f"no table '{name}'"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def says(text: str) -> None:
    assert text in WORDS, f"the page does not say: {text}"


# The best preference


@given(shares, weights, heights, exponents)
def test_the_best_preference_of_the_page_is_the_minimum(share, w, height, gamma):
    assert link(share, height, gamma, w) == pytest.approx(best(share, w, height, gamma), abs=1e-6)


@given(shares, weights, heights, exponents, adopted_exponents)
def test_at_the_minimum_the_general_formula_gives_the_odds(share, w, height, gamma, adopted):
    q = best(share, w, height, gamma, adopted)
    assume(q < 1 - 1e-4)  # nearer to 1 the minimum may be at the end

    def off(q: float) -> float:
        pulled = adopted * (1 - q) ** (adopted - 1)
        return 2 * gamma * w * height * (q - 0.5) ** (2 * gamma - 1) / pulled - odds_of(share)

    assert brentq(off, 0.5, 1 - 1e-9, xtol=1e-13) == pytest.approx(q, abs=1e-6)


@given(shares, weights, heights, exponents, adopted_exponents)
def test_milrec_computes_the_same_resting_preference(share, w, height, gamma, adopted):
    loss = MissingInformationLoss(missing_weight=height, missing_exponent=gamma, adopted_exponent=adopted)
    found = loss.resting_preference(np.array([odds_of(share)]), w)[0]
    assert found == pytest.approx(best(share, w, height, gamma, adopted), abs=1e-6)


@given(shares, weights, heights, exponents, adopted_exponents)
def test_the_minimum_is_above_one_half(share, w, height, gamma, adopted):
    assert not rises_at_one_half(lambda q: expected(q, share, w, height, gamma, adopted))
    below = [expected(point, share, w, height, gamma, adopted) for point in np.linspace(0, 0.5, 30)]
    assert all(first > second for first, second in itertools.pairwise(below))  # it falls until ½
    points = np.linspace(0, 1, 41)
    values = np.array([expected(point, share, w, height, gamma, adopted) for point in points])
    assert (np.diff(values, 2) > -1e-9 * values.max()).all()  # convex


@given(shares, weights)
def test_cross_entropy_has_the_logistic_link(share, w):
    def risk(z: float) -> float:
        return share * np.logaddexp(0, -z) + (1 - share) * w * np.logaddexp(0, z)

    q = sigmoid(minimize_scalar(risk, bounds=(-30, 30), method="bounded", options={"xatol": 1e-11}).x)
    assert w * q / (1 - q) == pytest.approx(odds_of(share), rel=1e-4)
    assert PointwiseCrossEntropy().resting_preference(np.array([odds_of(share)]), w)[0] == pytest.approx(q, rel=1e-4)


# The cap


@given(weights, heights, exponents, st.floats(0.01, 0.99))
def test_the_cap_is_where_preferences_reach_one(w, height, gamma, part):
    cap = 2 * gamma * w * height * 0.5 ** (2 * gamma - 1)
    assert cap == pytest.approx(4 * gamma * w * height / 4**gamma)
    assume(1e-6 < cap < 1e6)
    odds_above, odds_below = cap / part, cap * part
    assert best(odds_above / (1 + odds_above), w, height, gamma) == pytest.approx(1, abs=1e-6)
    below = best(odds_below / (1 + odds_below), w, height, gamma)
    assert below == pytest.approx(0.5 + 0.5 * part ** (1 / (2 * gamma - 1)), abs=1e-6)
    assert below < 1


@given(shares, weights, heights, exponents, st.floats(1.5, 3))
def test_with_a_larger_adopted_exponent_there_is_no_cap(share, w, height, gamma, adopted):
    def falling(q: float) -> float:  # dR/dq, divided by what is sure to be positive
        pulled = adopted * share * (1 - q) ** (adopted - 1)
        return (1 - share) * 2 * gamma * w * height * (q - 0.5) ** (2 * gamma - 1) - pulled

    assert falling(1) > 0


@pytest.mark.parametrize("row", table("link"), ids=lambda row: f"A={row[0]}, γ={row[1]}")
def test_the_table_of_the_link(row):
    height, gamma = float(row[0]), int(row[1])
    cap = 2 * gamma * height * 0.5 ** (2 * gamma - 1)
    preferences = [short(best(share, 1, height, gamma), 3) for share in SHARES]
    assert row[2:] == [f"{cap:.1f}", short(cap / (1 + cap), 3), *preferences]


def test_the_table_of_the_link_has_the_papers_pairs():
    assert [(float(row[0]), int(row[1])) for row in table("link")] == list(PAIRS)


# Target sets


@given(shares, weights, heights, exponents, adopted_exponents, st.floats(0, 1))
def test_weight_and_height_enter_only_as_their_product(share, w, height, gamma, adopted, q):
    first, second = (expected(q, share, *both, gamma, adopted) for both in ((w / 2, height), (w, height / 2)))
    assert first == pytest.approx(second)


def test_half_the_target_factor_is_half_the_height_in_milrecs_own_loss():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 40, dtype=torch.float64, generator=generator)
    known = (torch.rand(5, 40, generator=generator) < 0.2).to(torch.int8)
    totals = []
    for n_drawn, height in ((10, 1e6), (20, 5e5)):
        missing = expected_weight(known, n_drawn) * (known == 0)
        loss = MissingInformationLoss(missing_weight=height, adopted_exponent=2)
        targets = Targets((known > 0).double(), torch.zeros_like(logits), missing.double())
        totals.append(loss(logits, torch.sigmoid(logits), targets))
    torch.testing.assert_close(*totals)


def test_the_numbers_on_target_sets():
    n_items, n_adopted, factor = 3510, 47, 50
    assert TRIED["data"]["items"] == n_items and TRIED["n_drawn"] == factor * n_adopted
    says(f"draws {factor * n_adopted:,} items; a user with {n_adopted} of the {n_items:,} has w = ")
    says(f"has w = {short(factor * n_adopted / (n_items - n_adopted), 2)}, and")
    says(f"from a factor of {math.ceil((n_items - n_adopted) / n_adopted)} on w is 1")
    odds = 2 * BEST[1] * 0.02 * BEST[0] * 0.5**19
    says(f"if 1,000 of 50,000 missing items are drawn, w = .02 and P* = {short(odds / (1 + odds), 2)}.")


# Damping


@given(st.floats(0.51, 0.999), exponents, adopted_exponents)
def test_the_slope_of_the_link(q, gamma, adopted):
    def log_odds(z: float) -> float:
        q = sigmoid(z)
        return (2 * gamma - 1) * math.log(q - 0.5) - (adopted - 1) * math.log(1 - q)  # and a constant

    z, step = logit(q), 1e-5
    assert slope(q, gamma, adopted) == pytest.approx((log_odds(z + step) - log_odds(z - step)) / (2 * step), rel=1e-4)


def off_by(error: float, share: float, w: float) -> tuple[float, float]:
    """Logits at which MIL's and cross-entropy's odds are wrong by a factor."""
    odds = odds_of(share) * (1 + error)
    return logit(link(odds / (1 + odds), *BEST, w)), math.log(odds / w)


def gradients(z_mil: float, z_entropy: float, share: float, w: float) -> tuple[float, float]:
    """Of the expected loss by the logit, by autograd."""
    found = []
    for loss, z in ((LossModule(reduction="none"), z_mil), (None, z_entropy)):
        logits = torch.tensor([z, z], dtype=torch.float64, requires_grad=True)
        weight = torch.tensor([share, (1 - share) * w], dtype=torch.float64)
        if loss is None:
            terms = weight * torch.nn.functional.softplus(logits * torch.tensor([-1.0, 1.0]))
        else:
            terms = loss(logits, torch.tensor([1, 0]), weight)
        terms.sum().backward()
        assert logits.grad is not None
        found.append(float(logits.grad.sum()))
    return found[0], found[1]


@given(st.floats(-9, 2).map(sigmoid), st.floats(0.5, 1))
def test_the_gradient_where_the_odds_are_slightly_off(share, w):
    error = 1e-4
    mil, entropy = gradients(*off_by(error, share, w), share, w)
    q, other = link(share, *BEST, w), odds_of(share) / (odds_of(share) + w)
    assert mil == pytest.approx(error * share * q * (1 - q), rel=2e-3)
    assert entropy == pytest.approx(error * share * (1 - other), rel=2e-3)


def curvatures(share: float, w: float) -> tuple[float, float]:
    """Of both expected losses as functions of ln(odds), at their minima, by second differences."""
    step, found = 1e-3, []
    for place in range(2):
        slopes = []
        for error in (math.expm1(-step), math.expm1(step)):
            logits = off_by(error, share, w)
            by_logit = gradients(*logits, share, w)[place]
            q = sigmoid(logits[0])
            slopes.append(by_logit / (slope(q, BEST[1]) if place == 0 else 1.0))
        found.append((slopes[1] - slopes[0]) / (2 * step))
    return found[0], found[1]


@given(st.floats(-9, 2).map(sigmoid), st.floats(0.5, 1))
def test_the_curvature_by_the_logarithm_of_the_odds(share, w):
    mil, entropy = curvatures(share, w)
    assert mil == pytest.approx(share * (link(share, *BEST, w) - 0.5) / (2 * BEST[1] - 1), rel=1e-3)
    assert entropy == pytest.approx(share * w / (odds_of(share) + w), rel=1e-3)


@pytest.mark.parametrize("row", table("damping"), ids=lambda row: f"P={row[0]}")
def test_the_table_of_damping(row):
    share = float(row[0])
    q = best(share, 1, *BEST)
    steps = [logit(best(odds / (1 + odds), 1, *BEST)) for odds in (odds_of(share) * 0.999, odds_of(share) * 1.001)]
    mil, entropy = gradients(*off_by(1e-4, share, 1), share, 1)
    curvature, other = curvatures(share, 1)
    wanted = [f"{logit(q):.2f}", f"{logit(share):.2f}", f"{math.log(1.001 / 0.999) / (steps[1] - steps[0]):.1f}"]
    assert row[1:] == [*wanted, short(mil / entropy, 2), short(curvature / other, 3)]


def test_the_numbers_on_damping():
    rise = {share: logit(best(share, 1, *BEST)) for share in SHARES}
    first, second = rise[0.1] - rise[1e-4], rise[0.9] - rise[0.1]
    says(f"From P = .0001 to .1 an item rises by {first:.2f} (cross-entropy: {logit(0.1) - logit(1e-4):.2f})")
    says(f"from .1 to .9 by {second:.2f} ({logit(0.9) - logit(0.1):.2f})")
    assert 0.45 < first / second < 0.6  # about half
    assert logit(0.1) - logit(1e-4) > logit(0.9) - logit(0.1)
    ratios = [float(row[4]) for row in table("damping")]
    says(f"MIL's should be {1 / max(ratios):.0f} to {1 / min(ratios):.0f} times as small")
    growth = np.divide(*curvatures(0.9, 1)) / np.divide(*curvatures(1e-4, 1))
    says(f"The ratio grows {growth:.0f}-fold")
    decays = [settings_for("dae", loss).training.weight_decay for loss in ("mil", "pointwise")]
    assert decays == [5e-6, 2e-5]
    says("1e-6 to 1e-5 against 2e-5, and milrec's 5e-6 agree")


def test_damping_by_a_constant_only_changes_the_weight_decay():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(6, 9, dtype=torch.float64, generator=generator)
    adopted = torch.rand(6, 9, generator=generator) < 0.3
    encoder, decoder = (torch.randn(9, 3, dtype=torch.float64, generator=generator) for _ in range(2))

    def total(encoder: torch.Tensor, decoder: torch.Tensor, scale: float, decay: float) -> torch.Tensor:
        logits = scale * (inputs @ encoder @ decoder.T)
        entropy = torch.nn.functional.softplus(torch.where(adopted, -logits, logits)).sum()
        return entropy + decay * (encoder.square().sum() + decoder.square().sum())

    scale, decay = 4.0, 0.3
    scaled = total(math.sqrt(scale) * encoder, math.sqrt(scale) * decoder, 1.0, decay / scale)
    torch.testing.assert_close(total(encoder, decoder, scale, decay), scaled)


def test_where_a_fit_rests_the_scale_of_both_weights_cancels():
    """λ competes with the gradients alone: the same λ balances gradients G for W, W' and for t·W, t·W'."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(6, 9, dtype=torch.float64, generator=generator)
    gradient = torch.randn(6, 9, dtype=torch.float64, generator=generator)  # of the loss by the logits
    encoder, decoder = (torch.randn(9, 3, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2))
    ((inputs @ encoder @ decoder.T) * gradient).sum().backward()
    torch.testing.assert_close(encoder.grad, inputs.T @ gradient @ decoder)  # linear in W', as 2λ·W is in W
    torch.testing.assert_close(decoder.grad, gradient.T @ inputs @ encoder)


def test_the_measured_shares_of_the_tail():
    told = []
    for name in ("metrics-ml-1m", "metrics-lastfm-2k"):
        found = kept_means(name, "long_share@200")
        told.append(round(100 * (found["MIL lin-sig"] / found["CE_Point lin-sig"] - 1)))
    says(f"{told[0]} % more of the long tail than cross-entropy on MovieLens-1M and {-told[1]} % less on Last.fm-2K")


# Which pairs are nearly the same


def kept_means(name: str, measure: str) -> dict[str, float]:
    """The mean of a measure over the seeds of each model of a kept result."""
    models = json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))["models"]
    names = dict.fromkeys(one["name"] for one in models)
    return {own: float(np.mean([one["evaluation"][measure] for one in models if one["name"] == own])) for own in names}


def distances() -> dict[tuple[int, int], tuple[float, float, float]]:
    """For each two of the paper's pairs: largest difference in q, and the range of the ratio of their slopes."""
    points = np.geomspace(1e-4, 0.5, 400)
    curves = [np.array([link(share, *pair) for share in points]) for pair in PAIRS]
    slopes = [np.array([slope(q, gamma) for q in curve]) for curve, (_, gamma) in zip(curves, PAIRS, strict=True)]
    found = {}
    for first, second in itertools.combinations(range(len(PAIRS)), 2):
        ratio = slopes[first] / slopes[second]
        found[first, second] = (
            float(abs(curves[first] - curves[second]).max()),
            float(ratio.min()),
            float(ratio.max()),
        )
    return found


def test_which_curves_and_which_slopes_are_closest():
    found = distances()
    closest = min(found, key=lambda both: found[both][0])
    assert [PAIRS[place] for place in closest] == [(5e5, 10), (1e6, 10)]
    says(f"at most {short(found[closest][0], 3)} apart")
    by_slope = sorted(found, key=lambda both: max(-math.log(found[both][1]), math.log(found[both][2])))
    assert [[PAIRS[place] for place in both] for both in by_slope[:2]] == [
        [(5e6, 10), (5e9, 15)],
        [(2e4, 6), (5e6, 10)],
    ]
    (_, low, high), (_, next_low, next_high) = (found[both] for both in by_slope[:2])
    says(f"The pairs (5e6, 10) and (5e9, 15) have slopes in a ratio of {short(low, 2)} to {high:.2f}")
    says(f"(2e4, 6) and (5e6, 10) of {short(next_low, 2)} to {next_high:.2f}; all others differ by more")


def test_what_the_kept_results_say_about_pairs():
    accuracy, long_tail, correlations, caps, falls, chances = [], [], [], [], [], []
    fall = [slope(link(1e-4, *pair), pair[1]) / slope(link(0.5, *pair), pair[1]) for pair in PAIRS]
    for name in ("ml-1m", "lastfm-2k"):
        ndcg = list(kept_means(f"mil-parameters-{name}", "ndcg@100").values())
        share = list(kept_means(f"mil-parameters-{name}", "long_share@200").values())
        assert len(ndcg) == len(PAIRS)  # in the paper's order
        accuracy += [short(ndcg[5], 4), short(ndcg[6], 4)]
        long_tail += [f"{share[5]:.1f}", f"{share[6]:.1f}"]
        apart = {both: max(-math.log(low), math.log(high)) for both, (_, low, high) in distances().items()}
        measured = [abs(ndcg[first] - ndcg[second]) for first, second in apart]
        correlations.append(short(spearmanr(list(apart.values()), measured)[0], 2))
        cap = [4 * gamma * height / 4**gamma for height, gamma in PAIRS]
        caps.append(short(spearmanr(cap, share)[0], 2))
        falls.append(short(spearmanr(fall, share)[0], 2))
        chances += [spearmanr(cap, share)[1], spearmanr(fall, share)[1]]
    says("NDCG@100 {} and {} on MovieLens-1M, {} and {} on Last.fm-2K".format(*accuracy))
    says("long tail {} and {} %, {} and {} %".format(*long_tail))
    says(f"Over all {len(apart)} couples of pairs")
    says(f"rank correlation {correlations[0]} between the largest |ln| of that ratio")
    says(f"and the difference in NDCG@100, on Last.fm-2K {correlations[1]})")
    says("rank correlation {} on MovieLens-1M, {} on Last.fm-2K".format(*caps))
    assert falls[0] == falls[1]
    says(f"how much s falls from P = .0001 to .5 ({falls[0]} on both). With seven pairs, only {caps[0]} is unlikely")
    assert chances[0] < 0.01 and min(chances[1:]) > 0.05


# Learning curves


def missing_gradient(z: float) -> float:
    logits = torch.tensor([z], dtype=torch.float64, requires_grad=True)
    LossModule(reduction="sum")(logits, torch.tensor([0])).backward()
    assert logits.grad is not None
    return float(logits.grad)


def test_the_table_of_learning_curves():
    own = best(1e-4, 1, *BEST)
    wanted = []
    for entropy, mil in ((0.5, 0.5), (0.65, 0.65), (1e-4, own), (0.9, 0.9)):
        by_formula = 2 * BEST[1] * BEST[0] * (mil - 0.5) ** (2 * BEST[1] - 1) * mil * (1 - mil)
        assert missing_gradient(logit(mil)) == pytest.approx(by_formula, rel=1e-6, abs=1e-12)
        wanted.append([f"{entropy:.1e}", f"{by_formula:.1e}" if by_formula else "0"])
    assert [row[1:] for row in table("learning")] == wanted


def test_the_numbers_on_learning_curves():
    share = 1e-4
    entropy_pull, pull = share * (1 - 0.5), share * 0.5 * (1 - 0.5)
    says(f"pulls up by {entropy_pull:.1e} at the start (MIL: {pull:.1e})")
    says(f"about {round((1 - share) * 0.5 / entropy_pull, -2):,.0f} times as hard")


# Rejected items


def expected_with_rejections(
    q: float, shares: tuple[float, float], w: float, height: float, gamma: float, exponents: tuple[float, float]
) -> float:
    adopted, rejected = shares
    missing = (1 - adopted - rejected) * w * height * abs(q - 0.5) ** (2 * gamma)
    return adopted * (1 - q) ** exponents[0] + rejected * q ** exponents[1] + missing


pairs_of_shares = st.tuples(st.floats(1e-5, 0.49), st.floats(1e-5, 0.49))


def with_rejections(shares: tuple[float, float], w: float, height: float, gamma: float) -> float:
    """The page's q."""
    adopted, rejected = shares
    balance = abs(adopted - rejected) / ((1 - adopted - rejected) * 2 * gamma * w * height)
    distance = min(balance ** (1 / (2 * gamma - 1)), 0.5)
    return 0.5 + (distance if adopted > rejected else -distance)


@given(pairs_of_shares, weights, heights, exponents)
def test_the_best_preference_with_rejections(both, w, height, gamma):
    assume(abs(both[0] - both[1]) > 1e-3 * max(both))  # otherwise the minimum is flat
    found = lowest(lambda q: expected_with_rejections(q, both, w, height, gamma, (1, 1)))
    assert found == pytest.approx(with_rejections(both, w, height, gamma), abs=1e-4)


@given(pairs_of_shares, weights, heights, exponents, st.tuples(adopted_exponents, adopted_exponents))
def test_when_the_best_preference_is_below_one_half(both, w, height, gamma, powers):
    sides = [share * power * 2**-power for share, power in zip(both, powers, strict=True)]
    assume(abs(sides[0] - sides[1]) > 1e-3 * max(sides))
    rises = rises_at_one_half(lambda q: expected_with_rejections(q, both, w, height, gamma, powers))
    assert rises == (sides[1] > sides[0])


def test_exponents_of_one_and_two_are_in_balance_at_equal_shares():
    assert 1 * 2**-1 == 2 * 2**-2


def test_the_numbers_on_rejections():
    divided = lowest(lambda q: expected_with_rejections(q, (0.1, 0.09), 1, *BEST, (1, 1)))
    plain, rare = best(0.02, 1, *BEST), best(1e-4, 1, *BEST)
    says(f"an item with P = .1 and P_r = .09 has q = {short(divided, 3)}, below one with P = .02")
    says(f"and no rejections ({short(plain, 3)}); at P = P_r it is ½, below an item with P = .0001 ({short(rare, 3)})")
    assert divided < plain


# Other missing terms


centres = st.floats(0, 0.9)


@given(shares, weights, st.floats(0.01, 100), st.floats(1.5, 30), centres, st.booleans())
def test_another_centre_side_or_exponent(share, w, over_weight, exponent, centre, one_sided):
    height = over_weight / (exponent * (1 - centre) ** (exponent - 1))  # odds* = w · over_weight

    def risk(q: float) -> float:
        distance = max(0, q - centre) if one_sided else abs(q - centre)
        return share * (1 - q) + (1 - share) * w * height * distance**exponent

    reached = min(odds_of(share) / (w * over_weight), 1)
    assert lowest(risk) == pytest.approx(centre + (1 - centre) * reached ** (1 / (exponent - 1)), abs=1e-5)


@given(shares, weights, st.floats(0.01, 100), st.floats(5, 60))
def test_the_exponential_term_is_linear_in_the_logarithm_of_the_odds(share, w, over_weight, rate):
    wanted = 1 + math.log(odds_of(share) / (w * over_weight)) / rate
    found = lowest(lambda q: share * (1 - q) + (1 - share) * w * over_weight / rate * math.exp(rate * (q - 1)))
    assert found == pytest.approx(min(max(wanted, 0), 1), abs=1e-5)


def test_steep_polynomials_with_a_far_centre_become_exponential():
    rate, q = 20.0, np.linspace(0, 1, 11)
    for exponent, near in ((1e3, 0.2), (1e5, 2e-3)):
        centre = 1 - exponent / rate
        polynomial = ((q - centre) / (1 - centre)) ** exponent
        np.testing.assert_allclose(polynomial, np.exp(rate * (q - 1)), rtol=near)


@given(st.floats(-7, 4).map(sigmoid), weights)
def test_any_rising_function_can_be_the_link(share, w):
    """Here cross-entropy's, q/(1-q), whose integral is -ln(1-q)-q; and the curvature by ln(odds) that follows."""
    q = lowest(lambda q: share * (1 - q) - (1 - share) * w * (math.log1p(-min(q, 1 - 1e-15)) + q))
    assert q == pytest.approx(odds_of(share) / (odds_of(share) + w), abs=1e-6)

    def by_log_odds(change: float) -> float:  # dR/dq · dq/d ln(odds)
        odds = odds_of(share) * math.exp(change)
        q = odds / (odds + w)
        return (-share + (1 - share) * w * q / (1 - q)) * q * (1 - q)

    exact = odds_of(share) / (odds_of(share) + w)
    curvature = (by_log_odds(1e-4) - by_log_odds(-1e-4)) / 2e-4
    assert curvature == pytest.approx(share * exact * (1 - exact), rel=1e-5)


# The same, tried out


@pytest.mark.parametrize("name", polynomials.LOSSES)
def test_the_tried_losses_rest_where_the_page_says(name):
    loss, w = polynomials.LOSSES[name], 0.7
    for share in SHARES:
        odds = odds_of(share)
        over_cap = min(odds / (w * polynomials.CAP), 1)
        if isinstance(loss, polynomials.Polynomial):
            assert loss.exponent * loss.weight * (1 - loss.centre) ** (loss.exponent - 1) == pytest.approx(
                2 * BEST[1] * BEST[0] * 0.5 ** (2 * BEST[1] - 1)  # the cap of MIL
            )
            wanted = loss.centre + (1 - loss.centre) * over_cap ** (1 / (loss.exponent - 1))
        elif isinstance(loss, polynomials.Exponential):
            wanted = 1 + math.log(over_cap) / loss.rate
        else:
            wanted = odds / (odds + w)

        def risk(z: float, share: float = share) -> float:
            adopted, missing = loss(torch.tensor(z, dtype=torch.float64))
            return float(share * adopted + (1 - share) * w * missing)

        found = minimize_scalar(risk, bounds=(-12, 12), method="bounded", options={"xatol": 1e-10}).x
        assert sigmoid(found) == pytest.approx(wanted, abs=1e-4)


def test_the_first_of_the_tried_losses_is_milrecs_own():
    logits = torch.linspace(-6, 6, 25, dtype=torch.float64)
    adopted, missing = polynomials.LOSSES[polynomials.MIL](logits)
    own = LossModule(reduction="none")
    torch.testing.assert_close(adopted, own(logits, torch.ones(25)))
    torch.testing.assert_close(missing, own(logits, torch.zeros(25)))


def test_a_study_resumes_and_its_table_has_a_row_for_each_loss(checkerboard, tmp_path, monkeypatch):
    tried = ("cross-entropy", polynomials.MIL)
    for name, value in (
        ("LOSSES", {name: polynomials.LOSSES[name] for name in tried}),
        ("SETTINGS", ((5e-3, 1e-5), (5e-2, 1e-5))),
        ("SEEDS", (1, 2)),
        ("N_FACTORS", 2),
        ("LAST", 60),
    ):
        monkeypatch.setattr(polynomials, name, value)
    split_interactions(checkerboard, seed=0).save(tmp_path / "split")
    arguments = ["polynomials.py", str(tmp_path / "split"), "--out", str(tmp_path / "found.json")]
    monkeypatch.setattr("sys.argv", arguments)
    polynomials.main()
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert len(found["fits"]) == len(tried) * (2 + 2)
    assert [row.split(" | ")[0] for row in polynomials.table(found).splitlines()[2:]] == [f"| {name}" for name in tried]
    del found["fits"][-1]
    (tmp_path / "found.json").write_text(json.dumps(found), encoding="utf-8")
    polynomials.main()
    again = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["fits"]
    assert again[:-1] == found["fits"]  # with the seconds that each took: only the last was fitted again
    assert len(again) == len(found["fits"]) + 1


def judged(name: str) -> list[dict]:
    """The fits of a loss that were judged on the test part."""
    return [one for one in TRIED["fits"] if one["loss"] == name and one["seed"] in polynomials.SEEDS]


def mean(name: str, measure: str) -> float:
    return float(np.mean([one[measure] for one in judged(name)]))


def less_mil(measure: str) -> dict[str, dict]:
    return {one["loss"]: one for one in TRIED[f"less MIL, {measure}"]}


def test_the_table_of_what_was_tried_is_what_was_kept():
    assert f"<!-- tried -->\n{polynomials.table(TRIED)}\n\n" in PAGE
    says(f"with odds* = {polynomials.CAP:.1f}·w")


def test_settings_were_chosen_on_validation_and_only_other_seeds_were_judged():
    for name in polynomials.LOSSES:
        searched = [one for one in TRIED["fits"] if one["loss"] == name and one["seed"] == polynomials.SEARCH_SEED]
        assert [(one["rate"], one["decay"]) for one in searched] == list(polynomials.SETTINGS)
        assert not any("ndcg@100" in one for one in searched)
        chosen = max(searched, key=lambda one: one["validation"])
        assert [one["seed"] for one in judged(name)] == list(polynomials.SEEDS) == [1, 2, 3]
        assert all((one["rate"], one["decay"]) == (chosen["rate"], chosen["decay"]) for one in judged(name))


def test_what_the_page_says_about_sides_and_centres():
    for two, one in zip(judged(polynomials.MIL), judged("c = ½, n = 20, one-sided"), strict=True):
        assert {**two, "loss": "", "seconds": 0} == {**one, "loss": "", "seconds": 0}
        assert two["below_centre"] == 0
    accuracy = less_mil("ndcg@100")
    assert len(accuracy) == 8
    assert all(accuracy[f"c = {centre}, n = 20"]["p"] == 1 for centre in (".3", ".4"))
    assert min(accuracy[name]["p"] for name in ("exponential, rate 20", "c = ½, n = 5, one-sided")) > 0.05


def test_what_the_page_says_about_the_other_losses():
    accuracy, tails = less_mil("ndcg@100"), less_mil("long_share")
    low = ("c = ½, n = 5, one-sided", "c = ½, n = 4")
    says("Low exponents cost {} to {} of NDCG@100".format(*(short(-accuracy[name]["difference"], 3) for name in low)))
    says("and list {:.0f} to {:.0f} points more of the long tail".format(*(tails[name]["difference"] for name in low)))
    assert max(one["difference"] for one in accuracy.values()) <= 0
    assert min(one["p"] for one in less_mil("recall@1").values()) > 0.05
    other = "1-q and -ln(1-q)-q"
    assert accuracy[other]["difference"] < -0.01
    assert mean(other, "long_share") == pytest.approx(mean(polynomials.MIL, "long_share") / 2, rel=0.02)
    slow = [one["step"] for name in (other, "cross-entropy") for one in judged(name)]
    assert min(slow) > polynomials.LAST - polynomials.PATIENCE * polynomials.VALIDATE_EVERY  # patience ended none
    says(f"the limit of {polynomials.LAST:,} steps")


def test_the_long_tail_follows_the_fall_of_the_slope():
    w, different = 2350 / 3463, [name for name in polynomials.LOSSES if name != "c = ½, n = 20, one-sided"]

    def rest(name: str, odds: float) -> float:  # the logit at which the loss is lowest
        def risk(z: float) -> float:
            adopted, missing = polynomials.LOSSES[name](torch.tensor(z, dtype=torch.float64))
            return float(odds * adopted + w * missing)

        return float(minimize_scalar(risk, bounds=(-12, 12), method="bounded", options={"xatol": 1e-10}).x)

    def fall(name: str) -> float:
        rare, likely = ([rest(name, odds_of(share) * change) for change in (0.9, 1.1)] for share in (1e-4, 0.5))
        return (likely[1] - likely[0]) / (rare[1] - rare[0])

    falls = {name: round(fall(name), 2) for name in different}
    assert falls["cross-entropy"] == 1  # no fall
    says(f"to n = 4 ({falls['c = ½, n = 4']:.0f}-fold)")
    found = spearmanr(list(falls.values()), [mean(name, "long_share") for name in different])[0]
    says(f"rank correlation {short(found, 2)} over the eight different losses")
    spreads = [np.std([one["long_share"] for one in judged(name)], ddof=1) for name in polynomials.LOSSES]
    says(f"differ by up to {max(spreads):.1f} points (standard deviation)")
