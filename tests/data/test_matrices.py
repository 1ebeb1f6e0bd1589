"""SciPy sparse matrices as interactions."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sparse

import milrec
from milrec.errors import DataError

CELLS = np.array([[2.0, 0, 1], [0, 0, 0], [0, 3, 0]])
KINDS = [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_matrix, sparse.csr_array, sparse.csc_array, sparse.coo_array]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_matrix_with_ids_is_the_table_of_its_cells(kind):
    found = milrec.read(kind(CELLS), user_ids=["ann", "bob", "cy"], item_ids=np.array(["x", "y", "z"]))
    table = {"user": ["ann", "ann", "cy"], "item": ["x", "z", "y"], "plays": [2, 1, 3]}
    assert found.fingerprint() == milrec.read(table, value="plays").fingerprint()


def test_without_ids_rows_and_columns_go_by_their_numbers():
    found = milrec.read(sparse.csr_array(CELLS.astype(bool)))
    assert found.users["id"].to_pylist() == [0, 2] and found.items["id"].to_pylist() == [0, 1, 2]
    assert found.adopted.toarray().tolist() == [[1, 0, 1], [0, 1, 0]]


def test_a_stored_zero_is_a_value_like_any_other():
    cells = sparse.coo_array(([0.0, 5.0, 4.0], ([0, 0, 1], [0, 1, 1])), shape=(2, 2))
    assert milrec.read(cells).adopted.nnz == 2
    rated = milrec.read(cells, adopt_min=4, reject_max=2, min_per_item=0)
    assert rated.rejected.toarray().tolist() == [[1, 0], [0, 0]]


def test_cells_that_are_stored_twice_are_summed_and_the_matrix_stays_as_it_is():
    cells = sparse.coo_array(([1.0, 2.0], ([0, 0], [0, 0])), shape=(1, 1))
    assert milrec.read(cells).adopted.toarray().tolist() == [[3]]
    assert cells.nnz == 2


@pytest.mark.parametrize("count", [256, 300])
def test_small_whole_numbers_are_summed_without_running_over(count):
    ones, places = np.ones(count, dtype=np.uint8), np.zeros(count, dtype=np.int64)
    cells = sparse.coo_array((ones, (places, places)), shape=(1, 1))
    assert milrec.read(cells).adopted.toarray().tolist() == [[count]]
    stored_twice = sparse.csr_array((ones, places, [0, count]), shape=(1, 1))
    assert milrec.read(stored_twice).adopted.toarray().tolist() == [[count]] and stored_twice.nnz == count


@pytest.mark.parametrize("kind", [sparse.coo_array, sparse.csr_array])
def test_true_that_is_stored_twice_is_true(kind):
    places = ([True, True], [0, 0], [0, 2]) if kind is sparse.csr_array else ([True, True], ([0, 0], [0, 0]))
    assert milrec.read(kind(places, shape=(1, 1))).adopted.toarray().tolist() == [[1]]


def test_columns_without_cells_take_no_memory():
    cells = sparse.csr_array(([1.0, 2.0], [3, 10**9], [0, 1, 2]), shape=(2, 2 * 10**9))
    tracemalloc.start()
    try:
        assert milrec.read(cells).items["id"].to_pylist() == [3, 10**9]
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


def test_a_matrix_can_have_titles():
    found = milrec.read(sparse.csr_array(CELLS), item_ids=["x", "y", "z"], titles={"x": "Xanadu", "z": "Zulu"})
    assert found.items["title"].to_pylist() == ["Xanadu", None, "Zulu"]


def with_cell(value: float) -> sparse.csr_array:
    cells = sparse.csr_array(CELLS)
    cells.data[1] = value
    return cells


@pytest.mark.parametrize(
    ("matrix", "given", "sentence"),
    [
        (with_cell(np.nan), {}, "the matrix has no number in cell [0, 2]; repair or remove such cells"),
        (with_cell(np.inf), {}, "the matrix has inf in cell [0, 2]"),
        (with_cell(-1), {}, "the matrix has -1 in cell [0, 2]; counts cannot be negative"),
        (with_cell(2.0**60), {}, "cell [0, 2]; values end at 2^53"),
        (with_cell(1e-300), {}, "the count in cell [0, 2] of the matrix is 1e-300, which 32 bits cannot hold"),
        (sparse.csr_array(CELLS), {"user_ids": ["a", None, "c"]}, "entry 2 has no id in user_ids"),
        (sparse.csr_array((3, 3)), {}, "the matrix has no stored cells"),
        (sparse.csr_array(CELLS.astype(complex)), {}, "the matrix holds complex128; numbers are needed"),
        (sparse.coo_array(np.ones(3)), {}, "the matrix has 1 dimension; "),
        (sparse.coo_array(np.ones((2, 2, 2))), {}, "the matrix has 3 dimensions; "),
        (sparse.csr_array(CELLS), {"user_ids": ["a"]}, "user_ids has 1 id, and the matrix has 3 rows"),
        (sparse.csr_array(CELLS), {"item_ids": ["a", "b", "a"]}, "item_ids has 'a' twice"),
        (sparse.csr_array(CELLS), {"item_ids": [1.5, 2, 3]}, "ids must be text or whole numbers"),
        (sparse.csr_array(CELLS), {"item_ids": 5}, "must be a list of texts or of whole numbers, not 5"),
        (sparse.csr_array(CELLS), {"user": "user"}, "a matrix has no columns to name"),
        (pa.table({"user": [1], "item": [2]}), {"user_ids": [1]}, "user_ids and item_ids are for a sparse matrix"),
        (np.ones((2, 2)), {}, "the table cannot be of type 'ndarray'"),
        (np.ones((2, 2)), {}, "or a SciPy sparse matrix: scipy.sparse.csr_array(matrix)"),
        (sparse.csr_array(CELLS), {"items": ["a"]}, "unknown argument 'items'; the ids of a sparse matrix are given"),
        (sparse.csr_array(CELLS), {"users": ["a"]}, "with user_ids"),
    ],
)
def test_a_matrix_that_cannot_be_read_is_refused_in_a_sentence(matrix, given, sentence):
    with pytest.raises(DataError) as caught:
        milrec.read(matrix, **given)
    assert sentence in str(caught.value)
