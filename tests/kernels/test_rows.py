"""Compiled loops over sparse rows against scipy, numpy and plain loops."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import chisquare

from milrec.kernels.jit import ADOPTED, MISSING, REJECTED
from milrec.kernels.rows import (
    draw_missing,
    known_among,
    merged_cells,
    merged_items,
    taken_rows,
    transposed,
    weighted_rows,
)
from milrec.kernels.sparse import Rows

N_USERS, N_ITEMS = 9, 40
SEEDS = pytest.mark.parametrize("seed", range(4))


def matrix(seed, density=0.3, n_users=N_USERS) -> csr_array:
    """A sparse matrix with an empty row at either end and one in the middle."""
    random = np.random.default_rng(seed)
    dense = random.random((n_users, N_ITEMS)) * (random.random((n_users, N_ITEMS)) < density)
    dense[[0, n_users // 2, -1]] = 0
    return csr_array(dense.astype(np.float32))


def disjoint(seed):
    """Adopted, rejected and exceptional items of users, none of them twice."""
    role = np.random.default_rng(seed).integers(0, 6, (N_USERS, N_ITEMS))
    role[0], role[4] = 5, 0  # nothing is known of user 0; user 4 has adopted everything
    return [Rows.of(csr_array((role == n).astype(np.float32)), np.arange(N_USERS)) for n in range(3)]


def of_user(rows, user):
    return rows.items[rows.indptr[user] : rows.indptr[user + 1]]


@SEEDS
@pytest.mark.parametrize("users", [[], [0], [3, 1, 8], [2, 2, 0, 2], range(N_USERS)])
def test_rows_are_taken_as_scipy_takes_them(seed, users):
    whole, users = matrix(seed), np.array(users, dtype=np.int64)
    expected = whole[users]
    indptr, items, values = taken_rows(whole.indptr, whole.indices, whole.data, users)
    assert (indptr == expected.indptr).all() and (items == expected.indices).all() and (values == expected.data).all()
    assert (indptr.dtype, items.dtype, values.dtype) == (np.int64, np.int32, np.float32)
    rows = Rows.of(whole, users)
    assert (rows.dense(N_ITEMS) == expected.toarray()).all()
    assert rows.n_rows == len(users) and (rows.counts == np.diff(expected.indptr)).all()


def test_rows_are_taken_from_a_matrix_of_any_kind_of_number():
    whole = csr_array(np.array([[0, 2, 0], [3, 0, 4]], dtype=np.int64))
    whole.indptr, whole.indices = whole.indptr.astype(np.int64), whole.indices.astype(np.int64)
    assert Rows.of(whole, np.array([1, 0], dtype=np.int32)).dense(3).tolist() == [[3, 0, 4], [0, 2, 0]]


@SEEDS
def test_merged_items_are_those_of_both_in_order(seed):
    one, other, _ = disjoint(seed)
    indptr, items = merged_items(one.indptr, one.items, other.indptr, other.items)
    assert items.dtype == np.int32 and indptr[0] == 0 and indptr[-1] == len(items)
    for user in range(N_USERS):
        both = sorted([*of_user(one, user), *of_user(other, user)])
        assert items[indptr[user] : indptr[user + 1]].tolist() == both


@SEEDS
def test_merged_cells_keep_role_and_weight_of_every_item(seed):
    adopted, rejected, other = disjoint(seed)
    values = np.random.default_rng(seed).random(len(other.items)).astype(np.float32)
    indptr, items, roles, weights = merged_cells(
        *(adopted.indptr, adopted.items, rejected.indptr, rejected.items, other.indptr, other.items, values)
    )
    assert len(items) == len(roles) == len(weights) == indptr[-1]
    for user in range(N_USERS):
        own = slice(indptr[user], indptr[user + 1])
        expected = [(item, ADOPTED, 0) for item in of_user(adopted, user)]
        expected += [(item, REJECTED, 0) for item in of_user(rejected, user)]
        its_values = values[other.indptr[user] : other.indptr[user + 1]]
        expected += [(item, MISSING, value) for item, value in zip(of_user(other, user), its_values, strict=True)]
        assert list(zip(items[own], roles[own], weights[own], strict=True)) == sorted(expected)


def test_merged_cells_of_nothing_are_nothing():
    nothing = Rows.none(3)
    parts = merged_cells(*(nothing.indptr, nothing.items) * 3, nothing.values)
    assert [len(part) for part in parts] == [4, 0, 0, 0]


@SEEDS
@pytest.mark.parametrize("n_drawn", [1, 11, N_ITEMS])
def test_known_items_among_drawn_columns_are_found(seed, n_drawn):
    adopted, rejected, _ = disjoint(seed)
    drawn = np.sort(np.random.default_rng(seed).choice(N_ITEMS, n_drawn, replace=False)).astype(np.int32)
    counts = np.zeros(N_ITEMS, dtype=np.int64)
    indptr, columns, roles, weights = known_among(
        adopted.indptr, adopted.items, rejected.indptr, rejected.items, drawn, counts
    )
    for user in range(N_USERS):
        own = [*of_user(adopted, user), *of_user(rejected, user)]
        assert columns[indptr[user] : indptr[user + 1]].tolist() == np.flatnonzero(np.isin(drawn, own)).tolist()
    assert len(columns) == len(roles) == len(weights) == indptr[-1]
    assert (roles == MISSING).all() and not weights.any() and not counts.any()


@SEEDS
@pytest.mark.parametrize("first_rows", [[], [7], [39, 0, 20], range(N_ITEMS)])
def test_pairs_are_turned_as_scipy_turns_them(seed, first_rows):
    whole = Rows.of(matrix(seed, 0.1), np.arange(N_USERS))
    first_rows = np.array(first_rows, dtype=np.int32)
    counts = np.zeros(N_ITEMS, dtype=np.int64)
    rows, indptr, users, values = transposed(whole.users, whole.items, whole.values, first_rows, counts)
    assert not counts.any()
    assert (rows[: len(first_rows)] == first_rows).all()
    assert sorted(rows) == sorted({*first_rows, *whole.items})
    assert len(indptr) == len(rows) + 1 and indptr[-1] == len(users) == len(values) == len(whole.items)
    turned = np.zeros((N_ITEMS, N_USERS), dtype=np.float32)
    for row, low, high in zip(rows, indptr, indptr[1:], strict=False):
        assert (np.diff(users[low:high]) > 0).all()
        turned[row, users[low:high]] = values[low:high]
    assert (turned == csr_array(whole.dense(N_ITEMS)).T.toarray()).all()


def test_a_pair_that_occurs_twice_is_kept_twice():
    counts = np.zeros(3, dtype=np.int64)
    pairs = np.array([0, 1, 0]), np.array([2, 0, 2], dtype=np.int32), np.array([1, 2, 3], dtype=np.float32)
    rows, indptr, users, values = transposed(*pairs, np.zeros(0, dtype=np.int32), counts)
    assert (rows.tolist(), indptr.tolist()) == ([2, 0], [0, 2, 3])
    assert (users.tolist(), values.tolist()) == ([0, 0, 1], [1, 3, 2])


@SEEDS
def test_weighted_rows_are_a_dense_product(seed):
    whole = matrix(seed)
    weight = np.random.default_rng(seed).standard_normal((N_ITEMS, 5)).astype(np.float32)
    out = np.ones((N_USERS, 5), dtype=np.float32)
    weighted_rows(0, 4, weight, whole.indptr, whole.indices, whole.data, out)
    assert (out[4:] == 1).all()
    weighted_rows(4, N_USERS, weight, whole.indptr, whole.indices, whole.data, out)
    assert out == pytest.approx(1 + whole.toarray() @ weight, rel=1e-5, abs=1e-5)


def drawn_for(known, n_drawn, n_items=N_ITEMS, seed=0):
    """By user the items that are drawn, whichever way they are named."""
    marks = np.zeros(n_items, dtype=np.int8)
    random = np.random.default_rng(seed)
    indptr, items, drawn = draw_missing(random, known.indptr, known.items, n_items, n_drawn, marks)
    assert not marks.any() and indptr[0] == 0 and indptr[-1] == len(items)
    named = [items[low:high] for low, high in pairwise(indptr)]
    missing = [np.setdiff1d(np.arange(n_items), of_user(known, user)) for user in range(known.n_rows)]
    for own, absent, whether in zip(named, missing, drawn, strict=True):
        assert (np.diff(own) > 0).all() and np.isin(own, absent).all()
        assert 2 * len(own) <= len(absent)  # the shorter of the two is named
        n_taken = min(n_drawn, len(absent))
        assert len(own) == (n_taken if whether else len(absent) - n_taken)
    result = [
        own if whether else np.setdiff1d(absent, own)
        for own, absent, whether in zip(named, missing, drawn, strict=True)
    ]
    return result, drawn


@SEEDS
@pytest.mark.parametrize("n_drawn", [1, 5, 15, 16, 30, 39, 40, 1000])
def test_missing_items_are_drawn_in_the_asked_number_and_never_known(seed, n_drawn):
    whole = Rows.of(matrix(seed), np.arange(N_USERS))
    everything = Rows.of(csr_array(np.ones((1, N_ITEMS), dtype=np.float32)), np.zeros(1, dtype=np.int64))
    for known in (whole, everything):
        result, _ = drawn_for(known, n_drawn, seed=seed)
        for user, own in enumerate(result):
            mine = of_user(known, user)
            assert len(own) == min(n_drawn, N_ITEMS - len(mine))
            assert not np.isin(own, mine).any()


def test_where_more_than_half_is_drawn_the_others_are_named():
    known = Rows.none(3)
    for n_drawn, whether in ((1, True), (20, True), (21, False), (40, False)):
        assert (drawn_for(known, n_drawn)[1] == whether).all()


@pytest.mark.parametrize("n_drawn", [2, 4])
def test_all_sets_of_missing_items_are_equally_likely(n_drawn):
    n_users, n_items = 6000, 8
    dense = np.zeros((n_users, n_items), dtype=np.float32)
    dense[:, [1, 6]] = 1
    known = Rows.of(csr_array(dense), np.arange(n_users))
    result, _ = drawn_for(known, n_drawn, n_items)
    sets, counts = np.unique(np.stack(result), axis=0, return_counts=True)
    assert [tuple(one) for one in sets] == list(combinations([0, 2, 3, 4, 5, 7], n_drawn))
    assert chisquare(counts).pvalue > 1e-3


def test_the_same_generator_draws_the_same_and_another_does_not():
    known = Rows.of(matrix(0), np.arange(N_USERS))
    one, same, other = (np.concatenate(drawn_for(known, 5, seed=seed)[0]).tolist() for seed in (1, 1, 2))
    assert one == same != other
