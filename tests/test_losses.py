"""Every loss on cases computed by hand, and its gradient against autograd's check and finite differences."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from milrec.kernels.sparse import Rows
from milrec.losses import (
    MissingInformationLoss,
    MultinomialLoss,
    PairwiseCrossEntropy,
    PointwiseCrossEntropy,
    SquareLoss,
    Targets,
)
from milrec.training.targets import Draws, dense_targets, draw_targets

ADOPTED = [[1, 0, 0, 1, 0], [0, 1, 0, 0, 0]]
REJECTED = [[0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]
MISSING = [[0, 1, 0, 0, 0.25], [0.5, 0, 1, 0, 0]]
PARTNER = [[0, 3, 0, 0, 0], [1, 1, 1, 1, 1]]
LOGITS = [[0.7, -1.1, 0.3, -0.4, 1.9], [-0.2, 0.9, 1.3, -2.0, 0.6]]

CASES = {  # loss, decoder, with partners
    "square": (SquareLoss(), "linear", False),
    "square through a sigmoid": (SquareLoss(), "sigmoid", False),
    "square with confidence": (SquareLoss(confidence=7), "linear", False),
    "pointwise": (PointwiseCrossEntropy(), "sigmoid", False),
    "pointwise with confidence": (PointwiseCrossEntropy(confidence=7), "sigmoid", False),
    "pairs of logits, drawn": (PairwiseCrossEntropy(), "sigmoid", True),
    "pairs of logits, expected": (PairwiseCrossEntropy(), "sigmoid", False),
    "pairs of preferences, drawn": (PairwiseCrossEntropy(difference="preferences"), "sigmoid", True),
    "pairs of preferences, expected": (PairwiseCrossEntropy(difference="preferences"), "sigmoid", False),
    "multinomial": (MultinomialLoss(), "linear", False),
    "mil": (MissingInformationLoss(), "sigmoid", False),
    "mil with soft walls": (MissingInformationLoss(missing_weight=50, missing_exponent=2), "sigmoid", False),
    "mil with other exponents": (
        MissingInformationLoss(missing_exponent=2.5, adopted_exponent=1.5, rejected_exponent=2.2),
        "sigmoid",
        False,
    ),
}


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def known(adopted, missing=None, rejected=None, partner=None) -> Targets:
    """Targets from plain rows; what is left out is nothing."""
    nothing = [[0] * len(adopted[0])] * len(adopted)
    return Targets(
        double(adopted),
        double(rejected or nothing),
        double(missing or nothing),
        None if partner is None else torch.tensor(partner),
    )


def drawn_partners(adopted, random) -> torch.Tensor:
    """The partners that a fit would draw for every item."""
    rows = Rows.of(csr_array(np.array(adopted, dtype=np.float32)), np.arange(len(adopted)))
    n_items = len(adopted[0])
    drawn = draw_targets(rows, Rows.none(rows.n_rows), None, Draws.by_popularity(np.ones(n_items), 1), random)
    partner = dense_targets(drawn, n_items, True).partner
    assert partner is not None
    return partner


def value_of(loss, preference, targets) -> list[float]:
    """The loss of given preferences, for losses that do not look at logits."""
    preference = double(preference)
    return loss(torch.full_like(preference, math.nan), preference, targets).tolist()


def value_of_logits(loss, logits, targets, decoder="sigmoid"):
    logits = logits if isinstance(logits, torch.Tensor) else double(logits)
    return loss(logits, logits.sigmoid() if decoder == "sigmoid" else logits, targets)


def test_square_loss_by_hand():
    targets = known([[1, 0, 0]], missing=[[0, 1, 0]], rejected=[[0, 0, 1]])
    assert value_of(SquareLoss(), [[0.2, 0.6, 0.5]], targets) == pytest.approx([0.64 + 0.36 + 0.25])


def test_square_loss_with_confidence_weighs_adopted_by_half_of_a_plus_1_and_missing_by_a_half():
    targets = known([[1, 0, 0]], missing=[[0, 1, 0]], rejected=[[0, 0, 1]])
    loss = SquareLoss(confidence=3)
    assert value_of(loss, [[0.2, 0.6, 0.5]], targets) == pytest.approx([2 * 0.64 + 0.5 * 0.36 + 0.25])


def test_pointwise_cross_entropy_by_hand():
    targets = known([[1, 0, 0]], missing=[[0, 1, 0]], rejected=[[0, 0, 1]])
    expected = -math.log(0.5) - math.log(0.75) - math.log(0.8)
    assert value_of(PointwiseCrossEntropy(), [[0.5, 0.25, 0.2]], targets) == pytest.approx([expected])


def test_pointwise_cross_entropy_with_confidence_weighs_adopted_items_only():
    targets = known([[1, 0, 0]], missing=[[0, 1, 0]], rejected=[[0, 0, 1]])
    expected = -4 * math.log(0.5) - math.log(0.75) - math.log(0.8)
    assert value_of(PointwiseCrossEntropy(confidence=4), [[0.5, 0.25, 0.2]], targets) == pytest.approx([expected])


@pytest.mark.parametrize("epsilon", [1e-5, 1e-2])
def test_pointwise_cross_entropy_keeps_preferences_within_epsilon_of_0_and_1(epsilon):
    loss = PointwiseCrossEntropy(epsilon=epsilon)
    adopted, missing = known([[1]]), known([[0]], missing=[[1]])
    for preference in (0.0, epsilon / 2, epsilon):
        assert value_of(loss, [[preference]], adopted) == pytest.approx([-math.log(epsilon)])
        assert value_of(loss, [[1 - preference]], missing) == pytest.approx([-math.log(epsilon)])
        assert value_of(loss, [[1 - preference]], adopted) == pytest.approx([-math.log(1 - epsilon)])


def test_pointwise_cross_entropy_is_finite_in_single_precision_at_0_and_1():
    targets = Targets(torch.ones(1, 2), torch.zeros(1, 2), torch.ones(1, 2))
    preference = torch.tensor([[0.0, 1.0]], requires_grad=True)
    value = PointwiseCrossEntropy()(preference, preference, targets)
    value.sum().backward()
    assert value.isfinite().all() and preference.grad.isfinite().all()


def test_pairs_of_logits_by_hand():
    targets = known([[1, 0, 0]], missing=[[0, 1, 0]], rejected=[[0, 0, 1]], partner=[[0, 0, 0]])
    expected = math.log(1 + math.exp(-(2.0 - 0.5))) + math.log(1 + math.exp(-(2.0 + 1.0)))
    loss = PairwiseCrossEntropy()
    assert value_of_logits(loss, [[2.0, 0.5, -1.0]], targets).tolist() == pytest.approx([expected])


def test_pairs_of_preferences_by_hand():
    targets = known([[1, 0, 0]], missing=[[0, 1, 0]], rejected=[[0, 0, 1]], partner=[[0, 0, 0]])
    loss = PairwiseCrossEntropy(difference="preferences")
    assert value_of(loss, [[0.9, 0.4, 0.65]], targets) == pytest.approx([math.log(2) + math.log(4)])


def test_each_missing_item_is_paired_with_its_own_partner():
    targets = known([[1, 1, 0, 0]], missing=[[0, 0, 1, 1]], partner=[[0, 0, 1, 0]])
    loss = PairwiseCrossEntropy(difference="preferences")
    assert value_of(loss, [[0.75, 0.6, 0.5, 0.25]], targets) == pytest.approx([-math.log(0.1) - math.log(0.5)])


def test_pairs_of_preferences_in_the_wrong_order_are_flat():
    """Decision D5: no gradient where the difference is negative; the logits have one."""
    targets = known([[1, 0]], missing=[[0, 1]], partner=[[0, 0]])
    for difference, flat in (("preferences", True), ("logits", False)):
        logits = double([[-1.0, 1.0]]).requires_grad_()
        value = value_of_logits(PairwiseCrossEntropy(difference=difference), logits, targets)
        value.sum().backward()
        assert bool((logits.grad == 0).all()) == flat
        if flat:
            assert value.item() == pytest.approx(-math.log(1e-5))
        else:
            assert logits.grad[0, 0] < 0 < logits.grad[0, 1]


def test_pairs_of_logits_are_stable_for_any_size():
    targets = known([[1, 0]], missing=[[0, 1]], partner=[[0, 0]])
    right = value_of_logits(PairwiseCrossEntropy(), [[1e4, -1e4]], targets)
    wrong = value_of_logits(PairwiseCrossEntropy(), [[-1e4, 1e4]], targets)
    assert right.item() == 0 and wrong.item() == pytest.approx(2e4)


@pytest.mark.parametrize("difference", ["logits", "preferences"])
def test_the_expected_pair_loss_is_the_mean_over_all_partners(difference):
    loss = PairwiseCrossEntropy(difference=difference)
    targets = known(ADOPTED, MISSING, REJECTED)
    expected = value_of_logits(loss, LOGITS, targets)
    for user, adopted in enumerate(ADOPTED):
        values = []
        for partner in np.flatnonzero(adopted):
            paired = known(ADOPTED, MISSING, REJECTED, partner=np.full((2, 5), partner).tolist())
            values.append(value_of_logits(loss, LOGITS, paired)[user].item())
        assert expected[user].item() == pytest.approx(np.mean(values), rel=1e-12)


def test_the_expected_pair_loss_is_the_mean_over_many_drawn_partners():
    random = np.random.default_rng(0)
    loss, n_draws = PairwiseCrossEntropy(), 4000
    drawn = np.zeros(2)
    for _ in range(n_draws):
        partner = drawn_partners(ADOPTED, random)
        targets = known(ADOPTED, MISSING, REJECTED)
        targets = Targets(targets.adopted, targets.rejected, targets.missing, partner)
        drawn += value_of_logits(loss, LOGITS, targets).numpy() / n_draws
    assert drawn == pytest.approx(value_of_logits(loss, LOGITS, known(ADOPTED, MISSING, REJECTED)).numpy(), abs=0.02)


def test_a_user_without_adopted_items_has_no_pairs_drawn_or_expected():
    """A split can leave a user without training items; nothing may be learned from pairs that do not exist."""
    adopted = np.zeros((1, 4), dtype=np.float32)
    missing = [[1, 1, 1, 1]]
    logits = [[0.5, -1.0, 2.0, 0.0]]
    expected = known(adopted.tolist(), missing)
    partner = drawn_partners(adopted, np.random.default_rng(0))
    drawn = Targets(expected.adopted, expected.rejected, expected.missing, partner)
    assert value_of_logits(PairwiseCrossEntropy(), logits, expected).item() == 0
    assert value_of_logits(PairwiseCrossEntropy(), logits, drawn).item() == 0


def test_the_multinomial_loss_by_hand():
    logits = [[math.log(1), math.log(2), math.log(5)]]
    value = value_of_logits(MultinomialLoss(), logits, known([[0, 1, 1]]), "linear")
    assert value.tolist() == pytest.approx([-math.log(2 / 8) - math.log(5 / 8)])


def test_the_multinomial_loss_is_torchs_cross_entropy():
    logits, adopted = double(LOGITS), double(ADOPTED)
    theirs = torch.nn.functional.cross_entropy(logits, adopted, reduction="none")
    assert torch.allclose(MultinomialLoss()(logits, logits, known(ADOPTED)), theirs, rtol=1e-12)
    one_hot = torch.tensor([3, 1])
    singles = torch.nn.functional.one_hot(one_hot, 5).tolist()
    theirs = torch.nn.functional.cross_entropy(logits, one_hot, reduction="none")
    assert torch.allclose(MultinomialLoss()(logits, logits, known(singles)), theirs, rtol=1e-12)


def test_the_multinomial_loss_says_nothing_of_rejected_and_drawn_items():
    bare = value_of_logits(MultinomialLoss(), LOGITS, known(ADOPTED), "linear")
    full = value_of_logits(MultinomialLoss(), LOGITS, known(ADOPTED, MISSING, REJECTED), "linear")
    assert torch.equal(bare, full)


def test_mil_of_an_adopted_item_falls_from_1_to_0():
    loss = MissingInformationLoss()
    values = [value_of(loss, [[q]], known([[1]]))[0] for q in (0, 0.25, 0.5, 1)]
    assert values == pytest.approx([1, 0.75, 0.5, 0])
    squared = MissingInformationLoss(adopted_exponent=2)
    assert value_of(squared, [[0.25]], known([[1]])) == pytest.approx([0.5625])


def test_mil_of_a_missing_item_has_a_wall_of_full_height_at_0_and_at_1():
    """Decision D1: the wall is A·(½)^(2γ), not half of it."""
    loss = MissingInformationLoss(missing_weight=64, missing_exponent=2)
    missing = known([[0]], missing=[[1]])
    values = [value_of(loss, [[q]], missing)[0] for q in (0, 0.25, 0.5, 0.75, 1)]
    assert values == pytest.approx([4, 0.25, 0, 0.25, 4])


def test_mil_with_the_papers_best_settings_by_hand():
    missing = known([[0]], missing=[[1]])
    values = [value_of(MissingInformationLoss(), [[q]], missing)[0] for q in (0, 0.1, 0.9, 1)]
    assert values == pytest.approx([1e6 / 2**20, 1e6 * 0.4**20, 1e6 * 0.4**20, 1e6 / 2**20])


def test_mil_of_a_rejected_item_rises_from_0_to_1():
    """Decision D2: the rejected term is positive, so that a rejected item is drawn to 0."""
    loss = MissingInformationLoss()
    rejected = known([[0]], rejected=[[1]])
    values = [value_of(loss, [[q]], rejected)[0] for q in (0, 0.25, 0.5, 1)]
    assert values == pytest.approx([0, 0.25, 0.5, 1])
    squared = MissingInformationLoss(rejected_exponent=2)
    assert value_of(squared, [[0.25]], rejected) == pytest.approx([0.0625])


def test_a_rejection_of_mil_counts_as_much_as_its_weight_says():
    rejected = known([[0]], rejected=[[1]])
    for weight in (0, 0.3, 2):
        light = MissingInformationLoss(rejected_weight=weight, rejected_exponent=2)
        assert value_of(light, [[0.5]], rejected) == pytest.approx([weight * 0.25])
    assert "rejected_weight" not in MissingInformationLoss().model_dump()  # folders of before are of the same fit
    assert MissingInformationLoss(rejected_weight=0.3).model_dump()["rejected_weight"] == 0.3


def test_mil_draws_adopted_up_rejected_down_and_missing_to_the_middle():
    preference = double([[0.5, 0.5, 0.02, 0.98]]).requires_grad_()
    targets = known([[1, 0, 0, 0]], missing=[[0, 0, 1, 1]], rejected=[[0, 1, 0, 0]])
    MissingInformationLoss()(preference, preference, targets).sum().backward()
    slopes = preference.grad[0].tolist()
    assert slopes[0] == pytest.approx(-1) and slopes[1] == pytest.approx(1)
    assert slopes[2] == pytest.approx(-20e6 * 0.48**19) and slopes[3] == pytest.approx(20e6 * 0.48**19)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mil_with_exponents_that_are_not_whole_numbers_has_no_nan(dtype):
    preference = torch.tensor([[0.0, 0.2, 0.5, 0.8, 1.0]], dtype=dtype, requires_grad=True)
    loss = MissingInformationLoss(missing_exponent=2.5, adopted_exponent=1.5, rejected_exponent=1.5)
    everything = torch.ones(1, 5, dtype=dtype)
    value = loss(preference, preference, Targets(everything, everything, everything))
    value.sum().backward()
    assert value.isfinite().all() and preference.grad.isfinite().all()
    below, above = loss.missing_term(preference.detach())[0, [1, 3]].tolist()
    assert below == pytest.approx(1e6 * 0.3**5, rel=1e-5) and above == pytest.approx(below, rel=1e-5)


@pytest.mark.parametrize("weight", [0.0, 0.3, 2.0])
@pytest.mark.parametrize(
    "loss", [SquareLoss(), PointwiseCrossEntropy(), PairwiseCrossEntropy(), MissingInformationLoss(missing_weight=50)]
)
def test_a_missing_term_counts_by_its_weight(loss, weight):
    partner = [[0, 0, 0]]
    logits = [[1.0, -0.5, 0.2]]

    def value(missing):
        return value_of_logits(loss, logits, known([[1, 0, 0]], missing=[[0, missing, 1]], partner=partner)).item()

    assert value(weight) - value(0) == pytest.approx(weight * (value(1) - value(0)))


@pytest.mark.parametrize("case", CASES)
def test_a_loss_is_one_number_per_user(case):
    loss, decoder, partners = CASES[case]
    targets = known(ADOPTED, MISSING, REJECTED, PARTNER if partners else None)
    together = value_of_logits(loss, LOGITS, targets, decoder)
    assert together.shape == (2,)
    for user in range(2):
        adopted, missing, rejected = ([matrix[user]] for matrix in (ADOPTED, MISSING, REJECTED))
        targets = known(adopted, missing, rejected, [PARTNER[user]] if partners else None)
        alone = value_of_logits(loss, [LOGITS[user]], targets, decoder)
        assert alone.item() == pytest.approx(together[user].item(), rel=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_passes_the_check_of_autograd(case):
    loss, decoder, partners = CASES[case]
    targets = known(ADOPTED, MISSING, REJECTED, PARTNER if partners else None)
    logits = double(LOGITS).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: value_of_logits(loss, x, targets, decoder), (logits,))


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_finite_differences(case):
    loss, decoder, partners = CASES[case]
    targets = known(ADOPTED, MISSING, REJECTED, PARTNER if partners else None)
    logits = double(LOGITS).requires_grad_()
    value_of_logits(loss, logits, targets, decoder).sum().backward()
    step = 1e-5
    slopes = np.zeros((2, 5))
    for user in range(2):
        for item in range(5):
            sides = []
            for direction in (1, -1):
                moved = np.array(LOGITS)
                moved[user, item] += direction * step
                sides.append(value_of_logits(loss, moved.tolist(), targets, decoder).sum().item())
            slopes[user, item] = (sides[0] - sides[1]) / (2 * step)
    assert logits.grad.numpy() == pytest.approx(slopes, rel=1e-5, abs=1e-7)


def test_the_losses_and_presets_load_without_torch():
    program = "import sys, milrec.losses, milrec.training.presets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
