"""Models without gradient descent: right by hand, by NumPy, by scikit-learn and by implicit."""

import builtins
import hashlib
import json
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_matrix

import milrec
from milrec.errors import FitError, FolderError, SettingsError
from milrec.kernels import inverse, threads
from milrec.kernels.gram import ease_rows, inverse_rows
from milrec.kernels.sparse import Rows
from milrec.models.contract import ROWS
from milrec.models.inputs import Users
from milrec.models.item_to_item import SparseItemToItem
from milrec.models.settings import EaseSettings, PopularitySettings, SlimSettings, SparseEaseSettings, WmfSettings
from milrec.storage import MANIFEST
from milrec.training import closed_form
from milrec.training.closed_form import check_memory
from milrec.training.presets import settings_for
from milrec.training.progress import Progress
from milrec.training.settings import fit_settings

WITHOUT_LOSS = ("ease", "ease-sparse", "slim", "wmf", "popularity")
ITEM_TO_ITEM = pytest.mark.parametrize("model", ["ease", "ease-sparse", "slim"])


def random_pairs(n_users=60, n_items=25, density=0.25, seed=0) -> np.ndarray:
    """A 0/1 matrix in which everybody has an item, and every item somebody."""
    dense = np.random.default_rng(seed).random((n_users, n_items)) < density
    every = np.arange(max(n_users, n_items))
    dense[every % n_users, every % n_items] = True
    return dense.astype(np.float64)


def split_of(dense: np.ndarray, counts: float = 1.0) -> milrec.Split:
    """All of a matrix to learn from; users and items are named by their numbers."""
    users, items = np.nonzero(dense)
    data = milrec.read({"user": users, "item": items, "plays": np.full(len(users), counts)}, value="plays")
    return milrec.split_interactions(data, seed=0, held_out=0.0)


def item_weight(recommender) -> np.ndarray:
    model = recommender.fitted.model
    if isinstance(model, SparseItemToItem):
        indptr, items, values = model.rows
        return csr_matrix((values, items, indptr), shape=(model.n_items, model.n_items)).toarray()
    return model.item_weight.numpy()


def weights(recommender) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in recommender.fitted.model.tensors().items()}


def solved(dense: np.ndarray, regularization: float) -> np.ndarray:
    inverse = np.linalg.inv(dense.T @ dense + regularization * np.eye(dense.shape[1]))
    weight = -inverse / np.diag(inverse)
    np.fill_diagonal(weight, 0)
    return weight


def slim_objective(dense: np.ndarray, item: int, column: np.ndarray, l1: float, l2: float) -> float:
    error = dense[:, item] - dense @ column
    return float(error @ error / 2 + l2 / 2 * column @ column + l1 * np.abs(column).sum())


# EASE


def test_ease_of_two_items_by_hand():
    """X'X + λI = [[3, 1], [1, 4]] with λ = 1; P = [[4, -1], [-1, 3]] / 11; B = -P_ij / P_jj."""
    found = item_weight(milrec.fit(split_of(np.array([[1, 1], [1, 0], [0, 1], [0, 1]])), "ease", regularization=1))
    assert found == pytest.approx(np.array([[0, 1 / 3], [1 / 4, 0]]))


def noted_calls(monkeypatch, name, kernel) -> list[tuple]:
    """The arguments of each call that a fit makes of a kernel."""
    seen: list[tuple] = []

    def noted(*parts):
        seen.append(parts)
        return kernel(*parts)

    monkeypatch.setattr(closed_form, name, noted)
    return seen


@pytest.mark.parametrize("users", [1, 12, 13, 60])
@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("regularization", [0.5, 20, 500])
def test_ease_is_the_closed_form(monkeypatch, users, precision, regularization):
    """With 12 users or fewer and 25 items by way of a matrix over users."""
    if precision == "single":
        monkeypatch.setattr(closed_form, "_DOUBLE_PRECISION", 0)
    seen = noted_calls(monkeypatch, "inverse_rows", inverse_rows)
    dense = random_pairs(users)
    found = item_weight(milrec.fit(split_of(dense), "ease", regularization=regularization))
    assert found == pytest.approx(solved(dense, regularization), rel=1e-4, abs=1e-6)
    assert not np.diag(found).any()
    assert bool(seen) == (users <= 12)


@pytest.mark.parametrize(("block", "band"), [(1, 1), (1, 40), (7, 3), (7, 10), (25, 8), (24, 24)])
def test_ease_is_the_closed_form_by_blocks_of_any_size(monkeypatch, block, band):
    monkeypatch.setattr(inverse, "_BLOCK", block)
    monkeypatch.setattr(inverse, "_BAND", band)
    dense = random_pairs()
    steps: list[Progress] = []
    fitted = milrec.fit(split_of(dense), "ease", regularization=20, report=steps.append)
    assert item_weight(fitted) == pytest.approx(solved(dense, 20), rel=1e-5, abs=1e-6)
    blocks = -(-25 // block)
    assert [(step.iteration, step.total) for step in steps] == [(n, blocks + 1) for n in range(blocks + 2)]


def test_ease_in_single_precision_holds_one_matrix(monkeypatch):
    """The inverse is found in the memory of the weights themselves."""
    monkeypatch.setattr(closed_form, "_DOUBLE_PRECISION", 0)
    seen = noted_calls(monkeypatch, "ease_rows", ease_rows)
    milrec.fit(split_of(random_pairs()), "ease")
    assert seen and all(np.shares_memory(parts[2], parts[4]) for parts in seen)


def test_ease_in_single_precision_that_cannot_be_solved_is_an_error(monkeypatch):
    monkeypatch.setattr(closed_form, "_DOUBLE_PRECISION", 0)
    alike = np.ones((50, 3))
    with pytest.raises(FitError, match="EASE has no solution in single precision; raise regularization"):
        milrec.fit(split_of(alike), "ease", regularization=1e-12)


# Sparse EASE


def over_neighbours(dense: np.ndarray, regularization: float, neighbours: int) -> np.ndarray:
    """Each column from the items with the highest cosine; of equal ones the more popular, then the first."""
    gram = dense.T @ dense
    adopters = np.diag(gram)
    weight = np.zeros_like(gram)
    for item in range(len(gram)):
        cosines = gram[item] ** 2 / np.maximum(adopters, 1)
        order = sorted((i for i in range(len(gram)) if i != item), key=lambda i: (-cosines[i], -adopters[i], i))
        own = order[:neighbours]
        ridge = gram[np.ix_(own, own)] + regularization * np.eye(len(own))
        weight[own, item] = np.linalg.solve(ridge, gram[own, item])
    return weight


def test_sparse_ease_of_three_items_and_one_neighbour_by_hand():
    """G = [[3, 2, 0], [2, 2, 0], [0, 0, 1]] and λ = 1: w_10 = 2 / (2 + 1), w_01 = 2 / (3 + 1), nothing for item 2."""
    split = split_of(np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1]]))
    found = item_weight(milrec.fit(split, "ease-sparse", regularization=1, neighbours=1))
    assert found == pytest.approx(np.array([[0, 2 / 4, 0], [2 / 3, 0, 0], [0, 0, 0]]))


@pytest.mark.parametrize("users", [1, 12, 60])
@pytest.mark.parametrize("regularization", [0.5, 20, 500])
@pytest.mark.parametrize("neighbours", [24, 1000])
def test_sparse_ease_with_all_items_as_neighbours_is_ease(users, regularization, neighbours):
    dense = random_pairs(users)
    values = {"regularization": regularization, "neighbours": neighbours}
    found = item_weight(milrec.fit(split_of(dense), "ease-sparse", **values))
    assert found == pytest.approx(solved(dense, regularization), rel=1e-5, abs=1e-5)
    assert not np.diag(found).any()


@hypothesis_settings(deadline=None, derandomize=True, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    n_items=st.integers(1, 40),
    density=st.sampled_from([0.02, 0.1, 0.4]),
    regularization=st.sampled_from([0.5, 10.0, 200.0]),
    neighbours=st.integers(1, 12),
)
def test_sparse_ease_solves_each_item_from_its_neighbours(seed, n_items, density, regularization, neighbours):
    dense = random_pairs(30, n_items, density, seed)
    split, values = split_of(dense), {"regularization": regularization, "neighbours": neighbours}
    model = milrec.fit(split, "ease-sparse", **values)
    assert item_weight(model) == pytest.approx(over_neighbours(dense, regularization, neighbours), rel=1e-4, abs=1e-5)
    assert model.fitted.model.flaw() is None
    with mock.patch.object(threads, "available", return_value=1 + seed % 3):
        assert weights(milrec.fit(split, "ease-sparse", **values)) == weights(model)


def test_sparse_ease_that_does_not_settle_is_an_error(monkeypatch):
    monkeypatch.setattr(closed_form, "_MOST_STEPS", 2)
    sentence = r"weights of 'ease-sparse' have not settled after 2 steps; raise regularization \(now 0.001\)"
    with pytest.raises(FitError, match=sentence):
        milrec.fit(split_of(random_pairs()), "ease-sparse", regularization=1e-3)


def test_sparse_ease_whose_pairs_of_items_memory_cannot_hold_is_refused(a_gibibyte):
    """25 items with 24 neighbours need 16 bytes a weight, those of each worker, and 8 bytes a pair of items."""
    split, needed = split_of(random_pairs()), 16 * 25 * 25 + 4 * threads.available() * 25**2
    a_gibibyte.write_text(f"MemAvailable: {needed // 1024 + 1} kB\n")
    with pytest.raises(FitError, match=r"for 25 items, and 0\.0 GiB are available; .*, or fit dae or mf"):
        milrec.fit(split, "ease-sparse")


# SLIM


def test_slim_of_two_items_by_hand():
    """G = [[2, 1], [1, 3]]: w_01 = (1 - ½) / (2 + 2) and w_10 = (1 - ½) / (3 + 2)."""
    split = split_of(np.array([[1, 1], [1, 0], [0, 1], [0, 1]]))
    found = item_weight(milrec.fit(split, "slim", l1=0.5, l2=2))
    assert found == pytest.approx(np.array([[0, 1 / 8], [1 / 10, 0]]))


@pytest.mark.parametrize(("l1", "l2"), [(0.1, 0.5), (1, 1), (2, 10), (0.5, 50)])
def test_slim_is_the_elastic_net_of_scikit_learn(l1, l2):
    from sklearn.linear_model import ElasticNet

    dense = random_pairs(seed=1)
    found = item_weight(milrec.fit(split_of(dense), "slim", l1=l1, l2=l2))
    n_users, n_items = dense.shape
    net = ElasticNet(
        alpha=(l1 + l2) / n_users, l1_ratio=l1 / (l1 + l2), positive=True, fit_intercept=False, tol=1e-9, max_iter=10**5
    )
    for item in range(n_items):
        others = np.delete(np.arange(n_items), item)
        assert found[others, item] == pytest.approx(net.fit(dense[:, others], dense[:, item]).coef_, abs=2e-5)
        assert found[item, item] == 0


@hypothesis_settings(deadline=None, derandomize=True, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    n_items=st.integers(1, 12),
    l1=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    l2=st.sampled_from([0.5, 3.0, 40.0]),
)
def test_no_small_change_makes_slim_better(seed, n_items, l1, l2):
    """The conditions of Karush, Kuhn and Tucker: slope 0 where a weight is above 0, not below 0 where it is 0."""
    dense = random_pairs(20, n_items, 0.4, seed)
    found = item_weight(milrec.fit(split_of(dense), "slim", l1=l1, l2=l2)).astype(np.float64)
    assert (found >= 0).all() and not np.diag(found).any()
    slopes = dense.T @ (dense @ found - dense) + l2 * found + l1
    free = ~np.eye(n_items, dtype=bool)
    assert np.abs(slopes[free & (found > 0)]).max(initial=0) < 1e-3
    assert slopes[free & (found == 0)].min(initial=0) > -1e-3


def test_slim_with_more_l1_has_fewer_weights_and_with_less_l2_fits_closer():
    dense = random_pairs()
    split = split_of(dense)
    found = {l1: item_weight(milrec.fit(split, "slim", l1=l1, l2=1)) for l1 in (0, 2, 1000)}
    assert np.count_nonzero(found[0]) > np.count_nonzero(found[2]) > np.count_nonzero(found[1000]) == 0
    loose = item_weight(milrec.fit(split, "slim", l1=0, l2=30))
    errors = [slim_objective(dense, 3, weight[:, 3], 0, 0) for weight in (found[0], loose)]
    assert errors[0] < errors[1]


def test_slim_that_does_not_settle_is_an_error(monkeypatch):
    monkeypatch.setattr(closed_form, "_MOST_SWEEPS", 2)
    with pytest.raises(FitError, match=r"not settled after 2 sweeps; raise l2 \(now 0.001\)"):
        milrec.fit(split_of(random_pairs()), "slim", l1=0, l2=1e-3)


def test_items_that_never_occur_together_have_no_weight():
    apart = np.kron(np.eye(2), np.ones((3, 2)))
    for model in ("ease", "ease-sparse", "slim"):
        found = item_weight(milrec.fit(split_of(apart), model))
        assert not found[:2, 2:].any() and not found[2:, :2].any() and found[0, 1] > 0


# Weighted matrix factorization


def wmf_loss(dense: np.ndarray, model, confidence: float, regularization: float) -> float:
    users, items = (value.detach().double().numpy() for value in (model.encoder_weight, model.decoder_weight))
    error = np.where(dense > 0, confidence, 1) * (dense - users @ items.T) ** 2
    return float(error.sum() + regularization * ((users**2).sum() + (items**2).sum()))


def test_the_loss_of_wmf_falls():
    dense = random_pairs()
    split, values = split_of(dense), {"confidence": 5.0, "regularization": 0.5}
    losses = [
        wmf_loss(dense, milrec.fit(split, "wmf", n_factors=6, iterations=n, **values).fitted.model, **values)
        for n in (1, 3, 15)
    ]
    nothing = 5.0 * dense.sum()
    assert nothing > losses[0] > losses[1] > losses[2]


def implicit_model(dense, model, confidence, regularization):
    from implicit.cpu.als import AlternatingLeastSquares
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        twin = AlternatingLeastSquares(
            factors=model.settings.n_factors,
            regularization=regularization,
            alpha=confidence,
            iterations=model.settings.iterations,
            num_threads=1,
            random_state=3,
        )
        twin.fit(csr_matrix(dense.astype(np.float32)), show_progress=False)
    return twin


@pytest.mark.parametrize(("confidence", "regularization"), [(1.0, 0.01), (8.0, 1.0), (0.5, 0.1)])
def test_wmf_has_the_factors_of_implicit_and_folds_in_as_it_does(confidence, regularization):
    dense = random_pairs()
    split = split_of(dense, counts=4)  # what users adopted counts, not how often
    values = {"n_factors": 6, "confidence": confidence, "regularization": regularization}
    model = milrec.fit(split, "wmf", seed=3, **values).fitted.model
    twin = implicit_model(dense, model, confidence, regularization)
    assert np.array_equal(model.encoder_weight.numpy(), twin.user_factors)
    assert np.array_equal(model.decoder_weight.numpy(), twin.item_factors)

    strangers = random_pairs(8, dense.shape[1], 0.2, seed=9)
    strangers[2] = 0
    pairs = csr_matrix(strangers.astype(np.float32))
    found = model.folded(Rows.of(pairs, np.arange(8))).numpy()
    assert not found[2].any()
    someone = np.flatnonzero(strangers.any(axis=1))
    expected = twin.recalculate_user(someone, csr_matrix(pairs[someone]))
    assert found[someone] == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_a_folded_in_user_of_wmf_by_the_formula():
    dense = random_pairs()
    model = milrec.fit(split_of(dense), "wmf", n_factors=4, confidence=3, regularization=0.2).fitted.model
    items = model.decoder_weight.double().numpy()
    weight = np.diag(np.where(dense[7] > 0, 3.0, 1.0))
    expected = np.linalg.solve(items.T @ weight @ items + 0.2 * np.eye(4), items.T @ weight @ dense[7])
    found = model.folded(Rows.of(csr_matrix(dense.astype(np.float32)), np.array([7])))
    assert found[0].numpy() == pytest.approx(expected, rel=1e-6)


def test_without_implicit_wmf_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("implicit"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FitError, match=r"model 'wmf' needs the package implicit: pip install 'milrec\[wmf\]'"):
        milrec.fit(split_of(random_pairs()), "wmf")


def test_factors_that_are_no_numbers_are_an_error():
    with pytest.raises(FitError, match="the factors are not finite"):
        milrec.fit(split_of(random_pairs()), "wmf", n_factors=4, confidence=1e38)


# What they share


@pytest.mark.parametrize("model", WITHOUT_LOSS)
def test_a_fit_gives_the_same_bytes_at_any_number_of_workers(monkeypatch, model):
    """The workers are milrec's and implicit's threads; those of BLAS, which EASE uses as well, are as they are."""
    split = split_of(random_pairs(300, 140, 0.1))
    found = []
    for number in (1, 2, 2, 3):
        monkeypatch.setattr(threads, "available", lambda number=number: number)
        monkeypatch.setattr(closed_form, "available", lambda number=number: number)
        found.append(weights(milrec.fit(split, model)))
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("n_users", [300, 60])
@pytest.mark.parametrize("precision", ["double", "single"])
def test_ease_gives_the_same_bytes_at_any_number_of_threads(monkeypatch, n_users, precision):
    """Over many blocks and bands, of items and (with 60 users) of users; torch's own threads do not matter either."""
    monkeypatch.setattr(inverse, "_BLOCK", 16)
    monkeypatch.setattr(inverse, "_BAND", 24)
    if precision == "single":
        monkeypatch.setattr(closed_form, "_DOUBLE_PRECISION", 0)
    split, before, found = split_of(random_pairs(n_users, 140, 0.1)), torch.get_num_threads(), []
    try:
        for number in (1, 2, 3, 3):
            monkeypatch.setattr(threads, "available", lambda number=number: number)
            torch.set_num_threads(number)
            found.append(weights(milrec.fit(split, "ease", regularization=5)))
    finally:
        torch.set_num_threads(before)
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("model", WITHOUT_LOSS)
def test_another_seed_gives_another_model_only_where_the_settings_say_so(model):
    split = split_of(random_pairs())
    first, second = (weights(milrec.fit(split, model, seed=seed)) for seed in (0, 1))
    assert (first != second) == settings_for(model).seeded


def test_models_that_are_fitted_by_gradient_descent_depend_on_the_seed():
    assert settings_for("dae").seeded and settings_for("mf").seeded and settings_for("mil-lin-sig").seeded


@pytest.mark.parametrize("model", ["ease", "ease-sparse", "slim", "wmf"])
def test_a_fit_says_how_far_it_is(model):
    seen: list[Progress] = []
    milrec.fit(split_of(random_pairs()), model, report=seen.append)
    assert seen[0].iteration == 0 and seen[-1].iteration == seen[-1].total
    assert [now.iteration for now in seen] == sorted(now.iteration for now in seen)
    assert all(now.epoch is None and now.loss is None for now in seen)


@ITEM_TO_ITEM
def test_a_user_is_scored_by_the_sum_of_the_rows_of_what_he_adopted(model):
    dense = random_pairs()
    recommender = milrec.fit(split_of(dense, counts=3), model)
    table = recommender.recommend([5], n=100)
    expected = dense[5] @ item_weight(recommender)
    logits = torch.full((ROWS, dense.shape[1]), np.nan)
    user = Users(Rows.of(recommender.fitted.train.adopted, np.array([5])), Rows.none(1), None)
    recommender.fitted.model.write_logits(user, logits)
    assert logits[0].numpy() == pytest.approx(expected)
    listed = table["item"].to_numpy()
    assert sorted(listed) == np.flatnonzero(dense[5] == 0).tolist()
    assert table["score"].to_numpy() == pytest.approx(expected[listed], abs=1e-6)


@ITEM_TO_ITEM
def test_a_new_user_with_the_items_of_a_known_one_gets_the_same_list(model):
    dense = random_pairs()
    recommender = milrec.fit(split_of(dense), model)
    new = recommender.recommend_new(np.flatnonzero(dense[5]).tolist(), n=100)
    assert new.equals(recommender.recommend([5], n=100).drop_columns("user"))


def test_a_new_user_of_wmf_gets_much_of_the_list_of_a_known_one_with_the_same_items(small_catalogue):
    split = milrec.split_interactions(small_catalogue, seed=0, held_out=0.0)
    recommender = milrec.fit(split, "wmf", n_factors=8, regularization=1.0)
    shared = []
    for user, row in list(zip(recommender.user_ids, split.train.adopted, strict=True))[:30]:
        known = recommender.recommend([user], n=10)["item"].to_pylist()
        new = recommender.recommend_new([recommender.item_ids[item] for item in row.indices], n=10)["item"].to_pylist()
        shared.append(len(set(known) & set(new)))
    assert np.mean(shared) > 8


@pytest.mark.parametrize("model", ["ease", "ease-sparse", "slim", "wmf"])
def test_on_a_checkerboard_the_withheld_item_comes_first(checkerboard, model):
    split = milrec.split_interactions(checkerboard, seed=0, held_out=0.0)
    values = {"n_factors": 2} if model == "wmf" else {}
    recommender = milrec.fit(split, model, **values)
    for user in (0, 7, 33):
        withheld = 2 * ((user // 2) % 10) + user % 2
        assert recommender.recommend([user], n=1)["item"].to_pylist() == [withheld]
        adopted = [item for item in range(20) if (item + user) % 2 == 0 and item != withheld]
        assert recommender.recommend_new(adopted, n=1)["item"].to_pylist() == [withheld]


@pytest.mark.parametrize("model", ["ease", "ease-sparse", "slim", "wmf"])
def test_similar_items_of_a_checkerboard_have_its_colour(checkerboard, model):
    split = milrec.split_interactions(checkerboard, seed=0, held_out=0.0)
    recommender = milrec.fit(split, model, **({"n_factors": 2} if model == "wmf" else {}))
    table = recommender.similar_items(4, n=9)
    assert sorted(table["item"].to_pylist()) == [0, 2, 6, 8, 10, 12, 14, 16, 18]
    assert table.column_names[-1] == "blend"
    if model != "wmf":
        assert recommender.similar_items(4, n=20).num_rows == 9, "an item without a tie is listed"


def test_only_models_with_predicted_preferences_have_a_distribution_of_them(small_catalogue):
    split = milrec.split_interactions(small_catalogue, seed=0)
    found = {model: milrec.fit(split, model).evaluate(split).preference_distribution for model in WITHOUT_LOSS}
    assert found.pop("wmf") is not None
    assert all(distribution is None for distribution in found.values())


def test_they_beat_popularity_on_real_tastes(small_catalogue):
    split = milrec.split_interactions(small_catalogue, seed=0)
    ndcg = {
        model: milrec.fit(split, model).evaluate(split).measures["ndcg@20"] for model in ("ease", "ease-sparse", "slim")
    }
    popularity = milrec.fit(split, "popularity").evaluate(split).measures["ndcg@20"]
    assert min(ndcg.values()) > popularity


# Settings, memory, folders


@pytest.mark.parametrize(
    ("model", "values"),
    [
        ("ease", {"regularization": 0}),
        ("ease", {"regularization": float("inf")}),
        ("ease-sparse", {"regularization": 0}),
        ("ease-sparse", {"neighbours": 0}),
        ("ease-sparse", {"neighbours": 20_001}),
        ("slim", {"l1": -1}),
        ("slim", {"l2": 0}),
        ("wmf", {"n_factors": 0}),
        ("wmf", {"iterations": 0}),
        ("wmf", {"regularization": 0}),
        ("wmf", {"confidence": 0}),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_name(model, values):
    (name,) = values
    with pytest.raises(SettingsError, match=f"setting '{name}' is {values[name]}; it must be "):
        settings_for(model, values=values)


@pytest.mark.parametrize("model", WITHOUT_LOSS)
def test_a_model_without_a_loss_takes_none_and_no_training(model):
    settings = settings_for(model)
    assert (settings.loss, settings.target_set, settings.training) == (None, None, None)
    assert fit_settings(settings.model_dump()) == settings
    with pytest.raises(SettingsError, match=f"model '{model}' has no loss; leave `loss` out"):
        settings_for(model, "mil")
    with pytest.raises(SettingsError, match=f"unknown setting 'epochs' for {model}; known settings: "):
        settings_for(model, values={"epochs": 3})
    with pytest.raises(SettingsError, match=f"model '{model}' has no loss, no target set and no training"):
        fit_settings({"model": {"model": model}, "loss": {"loss": "mil"}})


def test_texts_become_the_numbers_of_their_fields():
    assert settings_for("ease", None, {"regularization": "200"}).model == EaseSettings(regularization=200)
    assert settings_for("slim", None, {"l1": "0", "l2": "7.5"}).model == SlimSettings(l1=0, l2=7.5)
    assert settings_for("wmf", None, {"iterations": "3"}).model == WmfSettings(iterations=3)


@pytest.fixture
def a_gibibyte(monkeypatch, tmp_path):
    facts = tmp_path / "meminfo"
    facts.write_text("MemTotal:       99999999 kB\nMemAvailable:    1048576 kB\n")
    monkeypatch.setattr(closed_form, "_MEMORY_FACTS", facts)
    return facts


@pytest.mark.parametrize(
    ("settings", "users", "fits", "too_many"),
    [
        (EaseSettings(), 10**6, 9_459, 9_460),
        (EaseSettings(), 10**6, 16_384, 16_385),
        (EaseSettings(), 4_000, 15_376, 15_377),
        (SlimSettings(), 10**6, 11_585, 11_586),
        (SparseEaseSettings(neighbours=64), 10**6, 1_048_544, 1_048_545),
    ],
)
def test_a_catalogue_that_memory_cannot_hold_is_refused(monkeypatch, a_gibibyte, settings, users, fits, too_many):
    monkeypatch.setattr(closed_form, "available", lambda: 2)
    check_memory(settings, users, fits)
    sentence = f"model '{settings.model}' needs 1.0 GiB of memory for {too_many:,} items, and 1.0 GiB are available"
    with pytest.raises(FitError, match=sentence):
        check_memory(settings, users, too_many)


def test_other_models_hold_no_matrix_of_items_by_items(a_gibibyte):
    for settings in (WmfSettings(), PopularitySettings(), settings_for("dae").model):
        check_memory(settings, 10**9, 10**9)


@pytest.mark.parametrize("text", ["", "MemAvailable:\n", "MemAvailable: much kB\n", None])
def test_where_the_memory_is_not_known_nothing_is_refused(a_gibibyte, text):
    if text is None:
        a_gibibyte.unlink()
    else:
        a_gibibyte.write_text(text)
    check_memory(EaseSettings(), 10**9, 10**9)


def test_a_fit_that_memory_cannot_hold_is_refused_before_anything_is_made(monkeypatch, a_gibibyte):
    a_gibibyte.write_text("MemAvailable: 1 kB\n")
    monkeypatch.setattr("milrec.training.settings.build_model", lambda *parts: pytest.fail("a model was built"))
    with pytest.raises(FitError, match=r"model 'ease' needs 0\.0 GiB of memory for 25 items"):
        milrec.fit(split_of(random_pairs()), "ease")


@pytest.mark.parametrize("model", ["ease", "slim", "wmf"])
@pytest.mark.parametrize("change", ["shape", "name", "nan"])
def test_foreign_weights_are_refused_even_when_the_manifest_vouches_for_them(tmp_path, model, change):
    milrec.fit(split_of(random_pairs()), model).save(tmp_path / "model")
    file = tmp_path / "model" / "weights.safetensors"
    found = load_file(file)
    name = sorted(found)[0]
    if change == "shape":
        found[name] = found[name][1:].contiguous()
    elif change == "name":
        found["other"] = found.pop(name)
    else:
        found[name][0, 0] = float("nan")
    save_file(found, file)
    manifest = json.loads((tmp_path / "model" / MANIFEST).read_text())
    content = file.read_bytes()
    manifest["files"][file.name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    del manifest["sha256"]
    (tmp_path / "model" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(FolderError, match=r"does not hold the weights|are not finite"):
        milrec.load(tmp_path / "model")
