"""The paper's equations and tables, each written once more in plain NumPy, and its claim on real data.

Equations and tables are counted as in the paper's source (arXiv 1805.00121): weight decay is equation 9, recall
equation 15; the distribution of preferences is table 6, the interval cuts table 7, the top-200 shares table 8.
"""

import math

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import milrec
from conftest import real_data
from milrec.kernels.sparse import Rows
from milrec.losses import (
    MissingInformationLoss,
    MultinomialLoss,
    PairwiseCrossEntropy,
    PointwiseCrossEntropy,
    SquareLoss,
    Targets,
)
from milrec.metrics.ranking import find_hits, ndcg, novelties, novelty_ndcg, recall
from milrec.metrics.tail import interval_counts, interval_cuts, list_shares, preference_shares, tail_intervals
from milrec.models.inputs import unit_rows
from milrec.models.known import build_model
from milrec.models.settings import AutoencoderSettings, FactorizationSettings
from milrec.training.batches import Batch
from milrec.training.presets import settings_for
from milrec.training.sections import TargetSettings
from milrec.training.steps.readable import batch_loss
from milrec.training.steps.step import decay_slopes
from milrec.training.targets import Draws, dense_targets, draw_targets, n_missing_drawn

N_USERS, N_ITEMS = 9, 14
MIL_GRID = [(5e1, 2), (1e3, 4), (2e4, 6), (5e5, 10), (1e6, 10), (5e6, 10), (5e9, 15)]


@pytest.fixture
def known():
    """p: 1 adopted, 0 missing, -1 rejected; everybody has adopted something."""
    p = np.random.default_rng(0).choice([1, 0, -1], (N_USERS, N_ITEMS), p=[0.3, 0.6, 0.1])
    p[:, 0] = 1
    return p


@pytest.fixture
def logits():
    return np.random.default_rng(1).normal(0, 2, (N_USERS, N_ITEMS))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rows(dense) -> Rows:
    """Sparse rows of a plain matrix."""
    return Rows.of(csr_array(np.asarray(dense, dtype=np.float32)), np.arange(len(dense)))


def losses(loss, logits, preference, p, missing=None, partner=None) -> np.ndarray:
    """milrec's loss of each user; every missing item counts unless stated otherwise."""
    missing = p == 0 if missing is None else missing
    adopted, rejected, drawn = (torch.from_numpy(np.asarray(q, dtype=np.float64)) for q in (p == 1, p == -1, missing))
    targets = Targets(adopted, rejected, drawn, None if partner is None else torch.from_numpy(partner))
    return loss(torch.from_numpy(logits), torch.from_numpy(preference), targets).numpy()


def test_equation_1_square_loss_with_confidence(known, logits):
    a, p, q = 6.0, np.maximum(known, 0), logits
    confidence = a * p
    expected = ((confidence + 1) / 2 * (p - q) ** 2).sum(axis=1)
    assert losses(SquareLoss(confidence=a), logits, q, p) == pytest.approx(expected)


def test_equation_2_cross_entropy_with_confidence(known, logits):
    a, p, q = 6.0, np.maximum(known, 0), sigmoid(logits)
    expected = (-a * p * np.log(q) - (1 - p) * np.log(1 - q)).sum(axis=1)
    assert losses(PointwiseCrossEntropy(confidence=a), logits, q, p) == pytest.approx(expected)


def test_equation_2_keeps_preferences_between_epsilon_and_its_complement(known):
    p, q = np.maximum(known, 0), np.tile([0.0, 1.0], (N_USERS, N_ITEMS // 2))
    kept = np.clip(q, 1e-5, 1 - 1e-5)
    expected = (-p * np.log(kept) - (1 - p) * np.log(1 - kept)).sum(axis=1)
    assert losses(PointwiseCrossEntropy(), q, q, p) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["square", "pointwise"])
def test_equation_4_sums_over_the_target_set_with_a_confidence_of_1_and_averages_over_users(known, name):
    """The model, the target set and the loss together, on a batch that is drawn as a fit draws it."""
    settings = settings_for("dae", name, {"n_factors": 3, "target_set": "per_user", "target_factor": 2})
    model = build_model(settings.model, N_USERS, N_ITEMS)
    model.initialise(0)
    adopted = (known == 1).astype(np.float32)
    targets = draw_targets(
        rows(adopted),
        Rows.none(N_USERS),
        settings.target_set,
        Draws.by_popularity(np.ones(N_ITEMS), 5),
        np.random.default_rng(0),
    )
    missing = dense_targets(targets, N_ITEMS, pairs=False).missing.numpy()
    inputs = adopted / np.sqrt(adopted.sum(axis=1, keepdims=True))
    everything = np.arange(N_ITEMS, dtype=np.int32)
    transposed = rows(inputs).transposed(everything, np.zeros(N_ITEMS, dtype=np.int64))
    batch = Batch(0, rows(inputs), transposed, targets)
    w, b, w_out, b_out = (
        value.detach().double().numpy()
        for value in (model.encoder_weight, model.encoder_bias, model.decoder_weight, model.decoder_bias)
    )
    total = 0.0
    for user in range(N_USERS):
        q = sigmoid(w_out @ (w.T @ inputs[user] + b) + b_out)
        drawn = np.flatnonzero(missing[user])
        assert len(drawn) == 5 and not adopted[user, drawn].any()
        for item in [*np.flatnonzero(adopted[user]), *drawn]:
            p = adopted[user, item]
            if name == "square":
                total += (1 + 1) / 2 * (p - q[item]) ** 2
            else:
                total += -1 * np.log(q[item]) if p else -np.log(1 - q[item])
    assert batch_loss(model, batch, settings).item() == pytest.approx(total / N_USERS, rel=1e-5)


def test_equation_5_pairs_of_an_adopted_and_a_missing_item(known, logits):
    """Decision D5: the predicted preference of a pair is the sigmoid of the difference of logits."""
    p = np.maximum(known, 0)
    random = np.random.default_rng(2)
    partner = np.stack([random.choice(np.flatnonzero(row == 1), N_ITEMS) for row in p])
    expected = [
        sum(-np.log(sigmoid(logits[u, partner[u, j]] - logits[u, j])) for j in np.flatnonzero(p[u] == 0))
        for u in range(N_USERS)
    ]
    assert losses(PairwiseCrossEntropy(), logits, sigmoid(logits), p, partner=partner) == pytest.approx(expected)


def test_equation_5_as_it_is_printed_takes_the_difference_of_preferences(known, logits):
    p, q = np.maximum(known, 0), sigmoid(logits)
    partner = np.argmax(p, axis=1)[:, None].repeat(N_ITEMS, axis=1)
    expected = [
        sum(-np.log(np.clip(q[u, partner[u, j]] - q[u, j], 1e-5, 1 - 1e-5)) for j in np.flatnonzero(p[u] == 0))
        for u in range(N_USERS)
    ]
    loss = PairwiseCrossEntropy(difference="preferences")
    assert losses(loss, logits, q, p, partner=partner) == pytest.approx(expected)


def test_equation_6_multinomial_log_likelihood(known, logits):
    p = np.maximum(known, 0)
    probability = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert losses(MultinomialLoss(), logits, logits, p) == pytest.approx(-(p * np.log(probability)).sum(axis=1))


@pytest.mark.parametrize("adopted_exponent", [1, 2])
@pytest.mark.parametrize(("height", "steepness"), MIL_GRID)
def test_equation_7_missing_information_loss(known, logits, height, steepness, adopted_exponent):
    """Decision D1: A at p = 0, as the reduced form has it, where the general one has A/2."""
    p, q = np.maximum(known, 0), sigmoid(logits)
    adopted = 0.5 * p * (1 + p) * (1 - q) ** adopted_exponent
    missing = (1 + p) * (1 - p) * height * (q - 0.5) ** (2 * steepness)
    loss = MissingInformationLoss(missing_weight=height, missing_exponent=steepness, adopted_exponent=adopted_exponent)
    assert losses(loss, logits, q, p) == pytest.approx((adopted + missing).sum(axis=1))


@pytest.mark.parametrize("rejected_exponent", [1, 2, 3])
def test_equation_8_rejected_items(known, logits, rejected_exponent):
    """Decision D2: with a plus, so that rejected items go to 0."""
    p, q = known, sigmoid(logits)
    with_rejected = MissingInformationLoss(rejected_exponent=rejected_exponent)
    term = (0.5 * p * (p - 1) * q**rejected_exponent).sum(axis=1)
    rest = losses(MissingInformationLoss(), logits, q, np.maximum(p, 0), missing=p == 0)
    assert losses(with_rejected, logits, q, p) == pytest.approx(rest + term)
    assert (term >= 0).all() and term.any()


@pytest.mark.parametrize(("height", "steepness"), MIL_GRID)
def test_figure_1_missing_items_may_be_anywhere_but_near_0_and_1(height, steepness):
    loss = MissingInformationLoss(missing_weight=height, missing_exponent=steepness)
    q = torch.linspace(0, 1, 101, dtype=torch.float64)
    term = loss.missing_term(q).numpy()
    assert term == pytest.approx(height * np.abs(q.numpy() - 0.5) ** (2 * steepness))
    assert term[0] == pytest.approx(term[-1]) == pytest.approx(height / 4**steepness)
    assert 0.4 < term[0] < 5  # the walls are about as high as the adopted term, whatever their steepness
    assert term[40:61].max() < 0.01 * term[0]
    assert (np.diff(term[:51]) < 0).all() and (np.diff(term[50:]) > 0).all()


def slopes_of_decay(model, decay) -> dict[str, float]:
    """Slope of a weight decay per unit of weight, by finite differences along each of the two weights."""
    names = ("encoder_weight", "decoder_weight")
    weights = {name: getattr(model, name).detach().double().numpy() for name in names}
    slopes, step = {}, 1e-4
    for name in names:
        up, down = (decay(*{**weights, name: (1 + sign * step) * weights[name]}.values()) for sign in (1, -1))
        slopes[name] = (up - down) / (2 * step) / np.linalg.norm(weights[name]) ** 2
    return slopes


def test_equation_9_weight_decay():
    model = build_model(AutoencoderSettings(n_factors=4), N_USERS, N_ITEMS)
    model.initialise(0)
    settings = settings_for("dae", "mil", {"n_factors": 4, "weight_decay": 0.3, "weight_decay_form": "plain"})
    slopes = slopes_of_decay(model, lambda w, w_out: 0.3 * (np.linalg.norm(w) ** 2 + np.linalg.norm(w_out) ** 2))
    assert decay_slopes(model, settings) == pytest.approx(slopes, rel=1e-6)


def test_weight_decay_by_popularity():
    model = build_model(AutoencoderSettings(n_factors=4), N_USERS, N_ITEMS)
    model.initialise(0)
    popularity = np.arange(N_ITEMS)
    model.meet(popularity)
    settings = settings_for("dae", "mil", {"weight_decay": 0.3, "weight_decay_form": "popularity"})
    slopes = decay_slopes(model, settings)
    assert set(slopes) == {"encoder_weight", "decoder_weight"}
    for weight in slopes.values():
        assert weight == pytest.approx(2 * 0.3 * popularity / popularity.sum())


@pytest.mark.parametrize("weights", ["binary", "counts"])
def test_equations_10_and_11_a_user_is_the_weighted_sum_of_one_hot_items_normalised(weights):
    counts = np.random.default_rng(0).poisson(0.7, (N_USERS, N_ITEMS))
    one_hot = np.eye(N_ITEMS)
    seen = unit_rows(rows(counts), weights).dense(N_ITEMS)
    for user in range(N_USERS):
        items = np.flatnonzero(counts[user])
        vector = sum((counts[user, i] if weights == "counts" else 1) * one_hot[i] for i in items)
        assert seen[user] == pytest.approx(vector / np.linalg.norm(vector), abs=1e-6)


@pytest.mark.parametrize("encoder", ["linear", "sigmoid", "tanh", "relu"])
@pytest.mark.parametrize("decoder", ["linear", "sigmoid"])
def test_equations_12_and_13_autoencoder(encoder, decoder):
    activation = {"linear": lambda x: x, "sigmoid": sigmoid, "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}
    model = build_model(AutoencoderSettings(n_factors=4, encoder=encoder, decoder=decoder), N_USERS, N_ITEMS)
    model.initialise(0)
    w, b, w_out, b_out = (
        value.detach().double().numpy()
        for value in (model.encoder_weight, model.encoder_bias, model.decoder_weight, model.decoder_bias)
    )
    v = np.random.default_rng(0).random((N_USERS, N_ITEMS))
    with torch.no_grad():
        latent = model.latent(model.enter(rows(v)))
        q = model.preference(model.decode(latent)).numpy()
    for user in range(N_USERS):
        h = activation[encoder](w.T @ v[user] + b)
        assert q[user] == pytest.approx(activation[decoder](w_out @ h + b_out), abs=1e-5)


def test_equation_14_weight_decay_scaled_by_users_items_and_factors():
    model = build_model(FactorizationSettings(n_factors=4), N_USERS, N_ITEMS)
    model.initialise(0)
    settings = settings_for("mf", "mil", {"n_factors": 4, "weight_decay": 70, "weight_decay_form": "scaled"})
    slopes = slopes_of_decay(
        model, lambda w, w_out: 70 / 4 * (np.linalg.norm(w) ** 2 / N_USERS + np.linalg.norm(w_out) ** 2 / N_ITEMS)
    )
    assert decay_slopes(model, settings) == pytest.approx(slopes, rel=1e-6)


@pytest.mark.parametrize("factor", [1, 5, 10, 50, 100, 150])
def test_section_3_3_a_target_set_joins_the_adopted_items_with_a_multiple_of_their_median(factor):
    adopted = (np.random.default_rng(0).random((20, 2000)) < 0.005).astype(np.float32)
    adopted[:, 0] = 1
    n_drawn = n_missing_drawn(csr_array(adopted), factor)
    assert n_drawn == round(factor * np.median(adopted.sum(axis=1)))
    settings = TargetSettings(target_factor=factor)
    drawn = draw_targets(
        rows(adopted), Rows.none(20), settings, Draws.by_popularity(np.ones(2000), n_drawn), np.random.default_rng(1)
    )
    targets = dense_targets(drawn, 2000, pairs=False)
    missing = targets.missing.numpy()
    assert np.array_equal(targets.adopted.numpy(), adopted)
    assert missing.sum(axis=1).tolist() == np.minimum(n_drawn, 2000 - adopted.sum(axis=1)).tolist()
    assert not (missing * adopted).any()


def some_lists():
    """Lists, test items (between 1 and 12 of 40) and popularity, at random."""
    random = np.random.default_rng(0)
    lists = np.stack([random.permutation(40)[:25] for _ in range(30)])
    tests = [random.permutation(40)[: random.integers(1, 13)] for _ in range(30)]
    return lists, tests, random.zipf(1.5, 40).clip(max=1000)


@pytest.mark.parametrize("k", [1, 5, 20])
def test_equation_15_recall(k):
    lists, tests, _ = some_lists()
    expected = [
        sum(item in test for item in ranked[:k]) / min(k, len(test)) for ranked, test in zip(lists, tests, strict=True)
    ]
    assert recall(find_hits(lists, tests), k) == pytest.approx(expected)


@pytest.mark.parametrize("k", [1, 5, 20])
def test_equations_16_and_17_ndcg(k):
    lists, tests, _ = some_lists()
    expected = []
    for ranked, test in zip(lists, tests, strict=True):
        gained = sum((ranked[s - 1] in test) / math.log2(s + 1) for s in range(1, k + 1))
        ideal = sum(1 / math.log2(s + 1) for s in range(1, min(k, len(test)) + 1))
        expected.append(gained / ideal)
    assert ndcg(find_hits(lists, tests), k) == pytest.approx(expected)


@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("ideal", ["sorted", "maximum"])
def test_equations_18_and_19_novelty_ndcg(k, ideal):
    """Decision D4: the ideal as the text has it (in descending order), or as the formula has it (the maximum)."""
    lists, tests, popularity = some_lists()
    share = popularity / popularity.sum()
    expected = []
    for ranked, test in zip(lists, tests, strict=True):
        gained = -sum(
            (ranked[s - 1] in test) * math.log(share[ranked[s - 1]]) / math.log2(s + 1) for s in range(1, k + 1)
        )
        own = sorted((-math.log(share[item]) for item in test), reverse=True)
        places = range(1, min(k, len(test)) + 1)
        best = sum((own[s - 1] if ideal == "sorted" else own[0]) / math.log2(s + 1) for s in places)
        expected.append(gained / best)
    values = novelty_ndcg(find_hits(lists, tests), novelties(popularity), k, ideal=ideal)
    assert values == pytest.approx(expected)


def test_table_6_distribution_of_predicted_preferences():
    preference = np.random.default_rng(0).beta(0.5, 0.8, (30, 200))
    preference[0, :7] = [0.0, 0.01, 0.25, 0.5, 0.7, 0.9, 1.0]  # each belongs to the interval that it opens
    bounds = [(0.9, 1.0), (0.7, 0.9), (0.5, 0.7), (0.25, 0.5), (0.01, 0.25), (0.0, 0.01)]  # as the table lists them
    expected = [
        np.mean([np.mean([low <= q < high or q == high == 1.0 for q in row]) for row in preference])
        for low, high in bounds
    ]
    assert preference_shares(preference).mean(axis=0)[::-1] == pytest.approx(expected)
    assert sum(expected) == pytest.approx(1)


def test_table_7_interval_cuts():
    popularity = np.random.default_rng(0).zipf(1.4, 300).clip(max=5000)
    ordered = sorted(popularity, reverse=True)
    n33 = next(n for n in range(1, 301) if sum(ordered[:n]) >= sum(ordered) / 3)
    n66 = next(n for n in range(1, 301) if sum(ordered[:n]) >= 2 * sum(ordered) / 3)
    assert interval_cuts(popularity) == (n33, n66)
    counts = np.bincount(tail_intervals(popularity), minlength=3)
    assert counts.tolist() == [n33, n66 - n33, 300 - n66]


def test_table_8_and_figure_2_top_200_within_popularity_intervals():
    random = np.random.default_rng(0)
    popularity = random.zipf(1.4, 600).clip(max=5000)
    lists = np.stack([random.permutation(600)[:200] for _ in range(25)])
    order = sorted(range(600), key=lambda item: (-popularity[item], item))
    n33, n66 = interval_cuts(popularity)
    parts = [set(order[:n33]), set(order[n33:n66]), set(order[n66:])]
    shares = [[sum(item in part for item in row) / 200 for part in parts] for row in lists]
    by_place = [[sum(row[place] in part for row in lists) for place in range(200)] for part in parts]
    intervals = tail_intervals(popularity)
    assert list_shares(lists, intervals) == pytest.approx(np.array(shares))
    assert interval_counts(lists, intervals).tolist() == by_place


@pytest.fixture(scope="module")
def on_real_data():
    """MIL and point-wise cross-entropy on MovieLens-100k, each stopped where its validation is best."""
    data = milrec.read(real_data("ml-100k"), adopt_min=4, min_per_user=5)
    split = milrec.split_interactions(data, seed=0)
    values = {"n_factors": 50, "epochs": 80, "batch_size": 100, "learning_rate": 1e-2, "schedule": "constant"}
    values |= {"averaging": 0, "slack": 0, "validate_every": None, "patience": 2}
    results = {loss: milrec.fit(split, "dae", loss, **values).evaluate(split) for loss in ("mil", "pointwise")}
    return {**results, "popularity": milrec.fit(split, "popularity").evaluate(split)}


def test_table_8_mil_recommends_fewer_short_tail_items_than_cross_entropy(on_real_data):
    mil, pointwise, popularity = (on_real_data[name].top_shares for name in ("mil", "pointwise", "popularity"))
    assert mil["short"] < pointwise["short"] < popularity["short"]
    assert mil["long"] > pointwise["long"] > popularity["long"]


def test_table_6_cross_entropy_gives_most_items_hardly_any_preference_and_mil_does_not(on_real_data):
    nearly_none, low = np.array(on_real_data["pointwise"].preference_distribution[:2])
    assert nearly_none + low > 50
    nearly_none, low = np.array(on_real_data["mil"].preference_distribution[:2])
    assert nearly_none < 1 and nearly_none + low < 25


def test_tables_2_to_4_both_find_more_than_popularity_and_mil_is_level_with_cross_entropy(on_real_data):
    values = {name: result.measures["ndcg@100"] for name, result in on_real_data.items()}
    assert min(values["mil"], values["pointwise"]) > 1.3 * values["popularity"]
    assert values["mil"] == pytest.approx(values["pointwise"], rel=0.1)
