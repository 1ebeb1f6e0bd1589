"""MIL as an nn.Module: equal to milrec's own, finite in every precision; and the draw of missing items beside it."""

import copy
import math
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import chisquare

import milrec
from milrec.losses import MissingInformationLoss as MissingInformationSettings
from milrec.losses import Targets
from milrec.torch import MissingInformationLoss, expected_weight, n_missing_drawn, sample_missing
from milrec.training.targets import n_missing_drawn as n_missing_drawn_by_fit

CASES = {
    "the paper's best": {},
    "soft walls": {"missing_weight": 50, "missing_exponent": 2},
    "no walls": {"missing_weight": 0},
    "exponents of 1": {"missing_weight": 3, "missing_exponent": 1},
    "fractional exponents": {"missing_exponent": 2.5, "adopted_exponent": 1.5, "rejected_exponent": 2.2},
    "light rejections": {"rejected_weight": 0.3, "rejected_exponent": 2},
}
HALF_MAX = torch.finfo(torch.float16).max
LOW_PRECISION = (torch.float16, torch.bfloat16)


def random_batch(seed: int = 0, n_rows: int = 7, n_items: int = 11) -> tuple[torch.Tensor, ...]:
    """Logits, what is known of them, and weights, of which some are 0."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n_rows, n_items, dtype=torch.float64, generator=generator)
    known = torch.randint(-1, 2, (n_rows, n_items), generator=generator)
    weight = torch.randint(0, 3, (n_rows, n_items), generator=generator) / 2
    return logits, known, weight


def value_and_gradient(loss, logits, known, weight=None):
    logits = logits.clone().requires_grad_()
    value = loss(logits, known, weight)
    value.sum().backward()
    return value.detach(), logits.grad


def element(logit, known, **constants):
    """The loss of one logit, in double precision."""
    loss = MissingInformationLoss(reduction="none", **constants)
    return loss(torch.tensor([logit], dtype=torch.float64), torch.tensor([known])).item()


def logit(preference):
    return math.log(preference / (1 - preference))


def test_each_term_by_hand():
    assert element(logit(0.25), 1) == pytest.approx(0.75)
    assert element(logit(0.25), -1) == pytest.approx(0.25)
    assert element(logit(0.9), 0) == pytest.approx(1e6 * 0.4**20)
    assert element(logit(0.1), 0) == pytest.approx(1e6 * 0.4**20)
    assert element(logit(0.25), 1, adopted_exponent=2) == pytest.approx(0.75**2)
    assert element(logit(0.25), -1, rejected_exponent=3) == pytest.approx(0.25**3)
    assert element(logit(0.75), 0, missing_weight=64, missing_exponent=2) == pytest.approx(0.25)
    assert element(0.0, 0) == 0


def test_the_walls_have_their_full_height_at_0_and_at_1():
    assert element(-800.0, 0) == element(800.0, 0) == 1e6 / 2**20
    assert element(-800.0, 1) == element(800.0, -1) == 1
    assert element(800.0, 1) == element(-800.0, -1) == 0


@pytest.mark.parametrize("case", CASES)
def test_it_equals_the_loss_that_milrec_fits_with(case):
    logits, known, weight = random_batch()
    ours = value_and_gradient(MissingInformationLoss(reduction="sum", **CASES[case]), logits, known, weight)

    def by_settings(logits, known, weight):
        targets = Targets(weight * (known == 1), weight * (known == -1), weight * (known == 0))
        return MissingInformationSettings(**CASES[case])(logits, logits.sigmoid(), targets).sum()

    theirs = value_and_gradient(by_settings, logits, known, weight)
    assert torch.allclose(ours[0], theirs[0], rtol=1e-12)
    assert torch.allclose(ours[1], theirs[1], rtol=1e-9, atol=1e-14)


def test_it_has_the_names_defaults_and_ranges_of_the_settings():
    settings, loss = MissingInformationSettings(), MissingInformationLoss()
    names = [name for name in MissingInformationSettings.model_fields if name != "loss"]
    assert {name: getattr(settings, name) for name in names} == {name: getattr(loss, name) for name in names}
    for name in names:
        lowest = 0 if name.endswith("_weight") else 1
        assert getattr(MissingInformationLoss(**{name: lowest}), name) == lowest
        for value in (lowest - 0.01, math.nan, math.inf):
            with pytest.raises(ValueError, match=name):
                MissingInformationSettings(**{name: value})
            with pytest.raises(ValueError, match=f"{name} must be a finite number of at least {lowest}, not {value}"):
                MissingInformationLoss(**{name: value})


@pytest.mark.parametrize("case", CASES)
def test_its_gradient_passes_autograds_check(case):
    logits, known, weight = random_batch(n_rows=3, n_items=5)
    loss = MissingInformationLoss(**CASES[case])
    inputs = logits.requires_grad_(), known, weight.double().requires_grad_()
    assert torch.autograd.gradcheck(loss, inputs)
    assert torch.autograd.gradgradcheck(loss, inputs)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_logit_of_0_has_the_exact_gradient(case, dtype):
    loss = MissingInformationLoss(reduction="none", **CASES[case])
    _, slopes = value_and_gradient(loss, torch.zeros(3, dtype=dtype), torch.tensor([1, 0, -1]))
    expected = [-loss.adopted_exponent * 0.5 ** (loss.adopted_exponent + 1), 0]
    expected += [loss.rejected_weight * loss.rejected_exponent * 0.5 ** (loss.rejected_exponent + 1)]
    assert slopes.tolist() == pytest.approx(expected, rel=4e-3)
    assert slopes[1] == 0


def test_an_item_far_on_the_wrong_side_still_has_a_slope_in_single_precision():
    """q rounds to 0 or 1 there, but q·(1-q), the slope of q, does not round to 0."""
    logits, known = torch.tensor([-25.0, -25.0, 25.0, 25.0]), torch.tensor([1, 0, 0, -1])
    loss = MissingInformationLoss(reduction="none")
    _, slopes = value_and_gradient(loss, logits, known)
    _, exact = value_and_gradient(loss, logits.double(), known)
    assert slopes.tolist() == pytest.approx(exact.tolist(), rel=1e-5)
    assert slopes.sign().tolist() == [-1, -1, 1, 1]


def test_every_reduction_by_hand():
    logits = torch.tensor([[logit(0.25), logit(0.75), 0.0], [logit(0.75), 0.0, logit(0.75)]])
    known = torch.tensor([[1, 0, 1], [-1, 1, 0]])
    weight = torch.tensor([[1, 2, 1], [1, 1, 0]])
    values = torch.tensor([[0.75, 2 * 0.25, 0.5], [0.75, 0.5, 0]])

    def value(reduction):
        loss = MissingInformationLoss(missing_weight=64, missing_exponent=2, reduction=reduction)
        return loss(logits, known, weight)

    assert torch.allclose(value("none"), values)
    assert value("sum").item() == pytest.approx(3.0)
    assert value("mean").item() == pytest.approx(3.0 / 6)
    assert value("batchmean").item() == pytest.approx(3.0 / 2)


def test_the_mean_of_nothing_is_nan_as_with_torchs_own_losses():
    for reduction in ("mean", "batchmean"):
        assert MissingInformationLoss(reduction=reduction)(torch.zeros(0, 3), torch.zeros(0, 3)).isnan()


def test_a_weight_multiplies_elements_and_0_leaves_them_out():
    logits, known, _ = random_batch()
    loss = MissingInformationLoss(reduction="none")
    plain = loss(logits, known)
    for weight in (torch.rand(7, 1), torch.rand(11), torch.tensor(0.5), torch.rand(7, 11) < 0.5):
        assert torch.allclose(loss(logits, known, weight), plain * weight)
    left_out = torch.zeros(7, 11)
    _, slopes = value_and_gradient(loss, logits, known, left_out)
    assert not slopes.any()


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float16, torch.float32, torch.float64])
def test_known_may_have_any_type_that_holds_minus_1(dtype):
    logits, known, _ = random_batch()
    loss = MissingInformationLoss()
    assert loss(logits, known.to(dtype)) == loss(logits, known)


def test_any_shape_will_do():
    logits, known, _ = random_batch(n_rows=12, n_items=5)
    loss = MissingInformationLoss()
    assert loss(logits.view(3, 4, 5), known.view(3, 4, 5)).item() == pytest.approx(loss(logits, known).item())
    assert loss(logits.flatten(), known.flatten()).item() == pytest.approx(loss(logits, known).item())
    assert loss(logits[0, 0], known[0, 0]).shape == ()


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (torch.tensor([0, 2]), "2"),
        (torch.tensor([0.5, 1]), "0.5"),
        (torch.tensor([0, -2]), "-2"),
        (torch.tensor([math.nan, 0]), "nan"),
        (torch.tensor([0, 255], dtype=torch.uint8), "255"),  # -1, wrapped around
    ],
)
def test_known_is_1_0_or_minus_1(known, found):
    message = rf"known must be 1 \(adopted\), 0 \(missing\) or -1 \(rejected\), but it holds {found}"
    with pytest.raises(ValueError, match=message):
        MissingInformationLoss()(torch.zeros(2), known)


def test_what_does_not_fit_is_an_error_that_says_so():
    loss, logits = MissingInformationLoss(), torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"known has shape \(3,\), but logits have shape \(2, 3\)"):
        loss(logits, torch.zeros(3))
    for shape in [(2,), (3, 3), (1, 2, 3)]:
        with pytest.raises(ValueError, match=r"weight has shape .*, which does not broadcast to .*\(2, 3\)"):
            loss(logits, torch.zeros(2, 3), torch.ones(shape))
    with pytest.raises(ValueError, match=r"logits must be floating point, not torch\.int64"):
        loss(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3))


def test_a_weight_may_be_a_number_but_not_a_list():
    logits, known = torch.randn(2, 3), torch.tensor([[1, 0, -1], [0, 0, 1]])
    loss = MissingInformationLoss(reduction="none")
    assert torch.equal(loss(logits, known, 2), loss(logits, known, torch.full((2, 3), 2.0)))
    for weight, name in (([1.0, 2.0, 3.0], "list"), (True, "bool")):
        with pytest.raises(ValueError, match=f"weight must be a tensor, a number or None, not {name}"):
            loss(logits, known, weight)


def test_a_mean_over_rows_needs_rows():
    with pytest.raises(ValueError, match="reduction 'batchmean' needs rows, but logits have no dimension"):
        MissingInformationLoss(reduction="batchmean")(torch.tensor(1.0), torch.tensor(1))


def test_an_unknown_reduction_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown reduction 'avg'; known reductions: batchmean, mean, none, sum"):
        MissingInformationLoss(reduction="avg")


def autocast(dtype):
    return nullcontext() if dtype is None else torch.autocast("cpu", dtype=dtype)


@pytest.mark.parametrize("cast", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@given(
    values=st.lists(
        st.floats(-HALF_MAX, HALF_MAX, width=16) | st.sampled_from([0.0, 1e4, -1e4, HALF_MAX, -HALF_MAX]), min_size=1
    ),
    known=st.sampled_from([1, 0, -1]),
    case=st.sampled_from(sorted(CASES)),
)
@settings(max_examples=60, deadline=None)
def test_value_and_gradient_are_finite_in_every_precision(dtype, cast, values, known, case):
    logits = torch.tensor(values, dtype=dtype, requires_grad=True)
    with autocast(cast):
        value = MissingInformationLoss(reduction="none", **CASES[case])(logits, torch.full((len(values),), known))
    value.sum().backward()
    assert value.dtype == torch.float32 and logits.grad.dtype == dtype
    assert value.isfinite().all() and logits.grad.isfinite().all()


@pytest.mark.parametrize("cast", [None, torch.bfloat16])
@given(values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
@settings(max_examples=60, deadline=None)
def test_value_and_gradient_are_finite_for_all_that_single_precision_holds(cast, values):
    for known in (1, 0, -1):
        logits = torch.tensor(values, requires_grad=True)
        with autocast(cast):
            value = MissingInformationLoss(reduction="sum")(logits, torch.full((len(values),), known))
        value.backward()
        assert value.isfinite() and logits.grad.isfinite().all()


@pytest.mark.parametrize("dtype", LOW_PRECISION)
@pytest.mark.parametrize("cast", [None, *LOW_PRECISION])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "batchmean"])
def test_low_precision_has_the_value_of_single_precision(dtype, cast, reduction):
    logits, known, weight = random_batch(seed=3)
    low = logits.to(dtype)
    loss = MissingInformationLoss(reduction=reduction)
    exact = value_and_gradient(loss, low.float(), known, weight)
    with autocast(cast):
        value, slopes = value_and_gradient(loss, low, known, weight.to(dtype))
    assert torch.equal(value, exact[0])
    assert torch.equal(slopes, exact[1].to(dtype))


def test_double_precision_stays_double_under_autocast():
    logits, known, _ = random_batch()
    loss = MissingInformationLoss()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(logits, known)
    assert value.dtype == torch.float64 and value == loss(logits, known)


@pytest.mark.parametrize("exponent", [1.0, 2.5, 10.0, 40.0])
def test_no_slope_exceeds_the_documented_bound(exponent):
    logits = torch.linspace(-30, 30, 6001, dtype=torch.float64)
    loss = MissingInformationLoss(
        reduction="none",
        missing_weight=7 * 4**exponent,  # walls of height 7
        missing_exponent=exponent,
        adopted_exponent=exponent,
        rejected_exponent=exponent,
    )
    for known, height in ((1, 1), (0, 7), (-1, 1)):
        _, slopes = value_and_gradient(loss, logits, torch.full(logits.shape, known))
        assert slopes.abs().max() < 0.39 * height


def test_a_gradient_in_half_precision_is_infinite_only_where_it_really_is_too_large():
    logits, known = torch.linspace(-9, 9, 721, dtype=torch.float16), torch.zeros(721)
    steepest = MissingInformationLoss(missing_weight=160_000 * 4, missing_exponent=1, reduction="sum")
    assert value_and_gradient(steepest, logits, known)[1].isfinite().all()
    beyond = MissingInformationLoss(missing_weight=1e6, missing_exponent=1, reduction="sum")
    _, slopes = value_and_gradient(beyond, logits, known)
    _, exact = value_and_gradient(beyond, logits.double(), known)
    assert slopes.isinf().any() and not slopes.isnan().any()
    assert (exact[slopes.isinf()].abs() > HALF_MAX).all()


def test_it_is_a_module_without_state_that_shows_its_settings():
    loss = MissingInformationLoss(missing_weight=5e5, missing_exponent=8, reduction="batchmean")
    assert not loss.state_dict() and not list(loss.parameters())
    assert repr(copy.deepcopy(loss)) == (
        "MissingInformationLoss(missing_weight=500000, missing_exponent=8, adopted_exponent=1, rejected_exponent=1, "
        "rejected_weight=1, reduction='batchmean')"
    )


def test_the_draw_by_hand():
    known = torch.tensor([[1, 0, 0, -1, 0], [1, 1, 0, 1, -1], [0, 0, 0, 0, 0], [1, 1, -1, 1, 1]])
    weight = sample_missing(known, 2)
    assert weight.dtype == torch.float32
    assert weight[known != 0].tolist() == [1.0] * 11
    assert (weight * (known == 0)).sum(dim=1).tolist() == [2, 1, 2, 0]
    assert torch.equal(sample_missing(known, 99), torch.ones(4, 5))


@given(known=st.data(), n_drawn=st.integers(1, 12), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_every_row_has_as_many_missing_items_as_are_asked_for_or_all_it_has(known, n_drawn, seed):
    shape = known.draw(st.tuples(st.integers(1, 6), st.integers(1, 9)))
    flat = known.draw(st.lists(st.sampled_from([1, 0, -1]), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    rows = torch.tensor(flat, dtype=torch.int8).view(shape)
    weight = sample_missing(rows, n_drawn, torch.Generator().manual_seed(seed))
    assert ((weight == 0) | (weight == 1)).all() and (weight[rows != 0] == 1).all()
    n_missing = (rows == 0).sum(dim=1)
    drawn = (weight * (rows == 0)).sum(dim=1)
    assert torch.equal(drawn.long(), n_missing.clamp(max=n_drawn))
    assert torch.allclose((expected_weight(rows, n_drawn) * (rows == 0)).sum(dim=1), drawn)


def test_the_last_dimension_is_the_items():
    known = torch.tensor([1, 0, 0, 0, -1])
    assert sample_missing(known, 2).sum() == 4
    stacked = known.expand(2, 3, 5)
    assert sample_missing(stacked, 2).sum(dim=-1).tolist() == [[4.0] * 3] * 2
    assert torch.equal(expected_weight(stacked, 2), expected_weight(known, 2).expand(2, 3, 5))


def test_the_draw_is_the_generators():
    known = random_batch(n_rows=20, n_items=50)[1]
    first, same, other = (sample_missing(known, 5, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, same) and not torch.equal(first, other)
    state = torch.get_rng_state()
    sample_missing(known, 5, torch.Generator())
    assert torch.equal(torch.get_rng_state(), state)
    sample_missing(known, 5)
    assert not torch.equal(torch.get_rng_state(), state)


def test_all_sets_of_missing_items_are_equally_likely():
    known = torch.tensor([1, 0, 0, -1, 0, 0]).expand(6000, 6)
    weight = sample_missing(known, 2, torch.Generator().manual_seed(0))
    _, counts = torch.unique(weight, dim=0, return_counts=True)
    assert len(counts) == 6  # pairs of 4 missing items
    assert chisquare(counts.numpy()).pvalue > 0.01


def test_the_expected_weight_is_the_mean_over_many_draws():
    known = torch.tensor([[1, 0, 0, -1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 0, 1], [1, -1, 1, 1, 1]])
    expected = expected_weight(known, 2)
    assert expected[0].tolist() == pytest.approx([1, 2 / 3, 2 / 3, 1, 2 / 3])
    assert expected[1:].tolist() == [[pytest.approx(0.4)] * 5, [1.0] * 5, [1.0] * 5]
    drawn = sample_missing(known.expand(4000, 4, 5), 2, torch.Generator().manual_seed(0)).mean(dim=0)
    assert torch.allclose(drawn, expected, atol=0.04)


@pytest.mark.parametrize("draw", [sample_missing, expected_weight])
@pytest.mark.parametrize("n_drawn", [0, -3, 2.5, True])
def test_at_least_one_missing_item_is_drawn(draw, n_drawn):
    with pytest.raises(ValueError, match=f"n_drawn must be a whole number of at least 1, not {n_drawn}"):
        draw(torch.zeros(2, 3), n_drawn)


@pytest.mark.parametrize("n_users", [1, 2, 7, 10])
@pytest.mark.parametrize("target_factor", [0.01, 1, 2.5, 50])
def test_as_many_missing_items_are_drawn_as_in_milrecs_own_fits(n_users, target_factor):
    adopted = np.random.default_rng(n_users).random((n_users, 30)) < 0.4
    by_fit = n_missing_drawn_by_fit(csr_array(adopted.astype(np.float32)), target_factor)
    assert n_missing_drawn(torch.from_numpy(adopted).sum(dim=1), target_factor) == by_fit
    assert n_missing_drawn(torch.tensor([3, 1, 2, 40]), 2) == 5


def test_the_module_needs_torch_and_nothing_else():
    program = (
        "import sys, torch; before = set(sys.modules); import milrec.torch; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names); "
        "assert new == {'milrec'}, new; assert not {'pydantic', 'numba'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_package_knows_the_module_without_loading_it():
    program = (
        "import sys, milrec; assert 'torch' not in sys.modules; "
        "assert milrec.torch.MissingInformationLoss is not milrec.MissingInformationLoss; "
        "from milrec import *; import torch; assert torch is not milrec.torch and torch is sys.modules['torch']"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_settings_value_keeps_its_name():
    assert milrec.MissingInformationLoss is MissingInformationSettings
