"""Matrices of pairs: in blocks of a few rows, and in files, they are what scipy makes of them in one go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import milrec
from milrec.data import pairs as module
from milrec.data.interactions import Interactions
from milrec.data.pairs import added, item_counts, pair_users, pairs_where, take, with_numbers, without


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    """Blocks of two pairs, and files from three numbers on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_TOGETHER", 2)
        patch.setattr(module, "_LARGE", 3)
        yield


@st.composite
def matrices(draw: st.DrawFn, shape: tuple[int, int] | None = None) -> csr_array:
    n_rows, n_columns = shape or (draw(st.integers(1, 7)), draw(st.integers(1, 6)))
    cells = draw(st.lists(st.integers(0, 5), min_size=n_rows * n_columns, max_size=n_rows * n_columns))
    return csr_array(np.array(cells, dtype=np.float32).reshape(n_rows, n_columns) % 3)


@st.composite
def two(draw: st.DrawFn) -> tuple[csr_array, csr_array]:
    first = draw(matrices())
    return first, draw(matrices(first.shape))


def same(found: csr_array, expected: csr_array) -> None:
    assert found.shape == expected.shape
    assert found.has_canonical_format and found.dtype == np.float32 and found.indices.dtype == np.int32
    np.testing.assert_array_equal(found.toarray(), expected.toarray())
    assert found.nnz == expected.count_nonzero()


@given(matrices(), st.data())
def test_rows_and_columns_are_taken(pairs: csr_array, data: st.DataObject) -> None:
    rows = np.array(data.draw(st.lists(st.integers(0, pairs.shape[0] - 1))), dtype=np.int64)
    columns = np.array(sorted(data.draw(st.sets(st.integers(0, pairs.shape[1] - 1)))), dtype=np.int64)
    same(take(pairs, rows, columns), csr_array(pairs.toarray()[np.ix_(rows, columns)]))


@given(matrices(), st.data())
def test_pairs_are_chosen_by_a_mask(pairs: csr_array, data: st.DataObject) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=pairs.nnz, max_size=pairs.nnz)), dtype=bool)
    dense = pairs.toarray()
    dense[dense > 0] *= mask
    same(pairs_where(pairs, mask), csr_array(dense))


@given(two())
def test_sums_and_differences(matrices: tuple[csr_array, csr_array]) -> None:
    one, other = matrices
    same(added(one, other), csr_array(one.toarray() + other.toarray()))
    same(without(one, other), csr_array(one.toarray() * (other.toarray() == 0)))


@given(matrices())
def test_users_and_items_are_counted(pairs: csr_array) -> None:
    np.testing.assert_array_equal(pair_users(pairs), np.nonzero(pairs.toarray())[0])
    np.testing.assert_array_equal(item_counts(pairs), (pairs.toarray() > 0).sum(axis=0))


@given(matrices(), st.data())
def test_pairs_by_other_numbers(pairs: csr_array, data: st.DataObject) -> None:
    def numbers(size: int, in_order: bool) -> np.ndarray:
        chosen = data.draw(st.lists(st.integers(0, 9), min_size=size, max_size=size, unique=True))
        own = np.array(sorted(chosen) if in_order else chosen, dtype=np.int64)
        own[np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=bool)] = -1
        return own

    in_order = data.draw(st.booleans())
    users, items = (numbers(size, in_order) for size in pairs.shape)
    expected = np.zeros((10, 10), dtype=np.float32)
    for user, item in zip(*pairs.nonzero(), strict=True):
        if users[user] >= 0 and items[item] >= 0:
            expected[users[user], items[item]] = pairs[user, item]
    same(with_numbers(pairs, users, items, (10, 10)), csr_array(expected))


def test_a_fit_of_large_data_has_the_same_weights(small_catalogue: Interactions, tmp_path: Path) -> None:
    """Everything that is derived lies in files here; nothing does, where there is room for it in memory."""

    def weights(name: str) -> dict[str, np.ndarray]:
        milrec.split_interactions(small_catalogue, seed=0).save(tmp_path / name)
        split = milrec.Split.load(tmp_path / name)
        fitted = milrec.fit(split, n_factors=6, iterations=10).fitted
        return {name: value.numpy() for name, value in fitted.model.saved_tensors().items()}

    in_files = weights("in-files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_TOGETHER", 1 << 22)
        patch.setattr(module, "_LARGE", 1 << 24)
        in_memory = weights("in-memory")
    for name, values in in_memory.items():
        np.testing.assert_array_equal(in_files[name], values)
