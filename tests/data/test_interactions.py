"""Adopted and rejected pairs, their ids, and the data folder that keeps them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from scipy.sparse import csr_array

import milrec
from milrec.data.interactions import Interactions, Truth, check_not_empty, sorted_ids
from milrec.data.pairs import empty_pairs, pair_users, pairs_matrix, take
from milrec.errors import DataError, FolderError
from milrec.storage import new_folder, open_folder


def small(ids: str = "text") -> Interactions:
    """Three users, four items, four adopted pairs (one of weight 2) and one rejected pair."""
    adopted = np.array([[2, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]])
    rejected = np.array([[0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    users: list[Any] = ["ann", "bob", "cid"]
    items: list[Any] = ["é", " k", "01", '"q"']
    if ids == "numbers":
        users, items = [1, 2, 30], [-1, 0, 5, 2**62]
    id_type = pa.int64() if ids == "numbers" else pa.large_string()
    return Interactions(
        csr_array(adopted.astype(np.float32)),
        csr_array(rejected.astype(np.float32)),
        pa.table({"id": pa.array(users, id_type)}),
        pa.table({"id": pa.array(items, id_type), "title": pa.array(["A", None, "C, D", ""], pa.large_string())}),
    )


def with_truth(data: Interactions) -> Interactions:
    truth = Truth(
        user_factors=np.array([[1, 0], [0, 1], [0, 0]], dtype=np.float32),
        item_factors=np.array([[1, 2], [3, 4], [5, 6], [7, 8]], dtype=np.float32),
        item_offsets=np.array([0, -3, -5, 0], dtype=np.float32),
    )
    return Interactions(data.adopted, data.rejected, data.users, data.items, truth)


def assert_same(one: Interactions, other: Interactions) -> None:
    assert (one.adopted.toarray() == other.adopted.toarray()).all()
    assert (one.rejected.toarray() == other.rejected.toarray()).all()
    assert one.users.equals(other.users)
    assert one.items.equals(other.items)
    assert (one.truth is None) == (other.truth is None)
    if one.truth is not None and other.truth is not None:
        for name, array in vars(one.truth).items():
            assert (array == getattr(other.truth, name)).all()


def ids(*values: Any) -> pa.ChunkedArray:
    kind = pa.int64() if values and isinstance(values[0], int) else pa.large_string()
    return pa.chunked_array([pa.array(values, kind)])


# What is known of a small matrix


def test_sizes_popularity_and_facts_are_counted() -> None:
    data = small()
    assert (data.n_users, data.n_items) == (3, 4)
    assert data.popularity().tolist() == [2, 0, 1, 1]  # adopters, whatever the weights
    assert data.facts() == {"users": 3, "items": 4, "adopted": 4, "rejected": 1, "density": 0.333333}  # 4 of 12


def test_a_subset_keeps_ids_pairs_and_truth_together() -> None:
    part = with_truth(small()).subset(np.array([True, True, False]), np.array([True, False, False, True]))
    assert part.adopted.toarray().tolist() == [[2, 0], [0, 1]]
    assert part.rejected.toarray().tolist() == [[0, 0], [0, 0]]
    assert part.users["id"].to_pylist() == ["ann", "bob"]
    assert part.items["title"].to_pylist() == ["A", ""]
    assert part.truth is not None
    assert part.truth.user_factors.tolist() == [[1, 0], [0, 1]]
    assert part.truth.item_factors.tolist() == [[1, 2], [7, 8]]
    assert part.truth.item_offsets.tolist() == [0, 0]


def test_a_subset_without_anyone_is_empty_and_has_no_density() -> None:
    part = small().subset(np.zeros(3, dtype=bool), np.ones(4, dtype=bool))
    assert part.facts() == {"users": 0, "items": 4, "adopted": 0, "rejected": 0, "density": None}


def test_the_true_preference_is_the_sigmoid_of_factors_and_offset() -> None:
    truth = with_truth(small()).truth
    assert truth is not None
    # user 0: logits 1, 3 - 3, 5 - 5, 7;  user 1: logits 2, 4 - 3, 6 - 5, 8
    expected = 1 / (1 + np.exp(-np.array([[1.0, 0, 0, 7], [2, 1, 1, 8]])))
    assert truth.preference(slice(0, 2)) == pytest.approx(expected)
    assert truth.preference(np.array([1])) == pytest.approx(expected[1:])
    assert truth.pair_preference(np.array([0, 1, 0]), np.array([1, 3, 0])) == pytest.approx(
        [0.5, expected[1, 3], expected[0, 0]]
    )


def test_interactions_without_adopted_pairs_are_refused() -> None:
    empty = small().subset(np.ones(3, dtype=bool), np.array([False, True, False, False]))
    with pytest.raises(DataError, match="the table has no adopted items left; check the thresholds and filters"):
        check_not_empty(empty, "the table")


# Matrices of pairs


def test_duplicate_pairs_are_merged_and_their_weights_summed() -> None:
    matrix = pairs_matrix(np.array([1, 0, 1]), np.array([2, 0, 2]), np.array([1.0, 5.0, 2.5]), (2, 3))
    assert matrix.toarray().tolist() == [[5, 0, 0], [0, 0, 3.5]]
    assert matrix.nnz == 2


def test_a_matrix_without_pairs_is_a_matrix() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert pairs_matrix(nothing, nothing, np.zeros(0), (2, 3)).toarray().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert pairs_matrix(nothing, nothing, np.zeros(0), (2, 0)).shape == (2, 0)
    assert empty_pairs((2, 3)).nnz == 0


entries = st.tuples(st.integers(0, 3), st.integers(0, 4), st.floats(1e-3, 1e6, allow_nan=False, allow_subnormal=False))


@settings(deadline=None)
@given(st.lists(entries, min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_the_order_of_pairs_changes_no_bit_of_the_matrix(rows: list[tuple[int, int, float]], random: Any) -> None:
    def matrix(order: list[tuple[int, int, float]]) -> csr_array:
        users, items, weights = (np.array(column) for column in zip(*order, strict=True))
        return pairs_matrix(users, items, weights, (4, 5))

    one, other = matrix(rows), matrix(random.sample(rows, len(rows)))
    assert one.data.tobytes() == other.data.tobytes()
    assert one.indices.tolist() == other.indices.tolist()
    assert one.indptr.tolist() == other.indptr.tolist()
    cells = [user * 5 + item for user, item, _ in rows]
    assert one.nnz == len(set(cells))
    assert one.sum(dtype=np.float64) == pytest.approx(sum(weight for _, _, weight in rows), rel=1e-5)


def test_every_pair_knows_its_user() -> None:
    assert pair_users(small().adopted).tolist() == [0, 0, 1, 2]


def test_rows_are_taken_in_the_given_order() -> None:
    pairs = csr_array(np.array([[1, 2, 0], [0, 3, 4]], dtype=np.float32))
    assert take(pairs, np.array([1]), np.array([1, 2])).toarray().tolist() == [[3, 4]]
    assert take(pairs, np.array([1, 0]), np.array([0, 1, 2])).toarray().tolist() == [[0, 3, 4], [1, 2, 0]]


# Ids


def test_ids_are_sorted_and_rows_numbered_by_them() -> None:
    distinct, numbers = sorted_ids(ids("b", "a", "b", "10", "9"))
    assert distinct.to_pylist() == ["10", "9", "a", "b"]
    assert numbers.tolist() == [3, 2, 3, 0, 1]


def test_whole_numbers_are_sorted_as_numbers() -> None:
    distinct, numbers = sorted_ids(pa.chunked_array([pa.array([10, 9]), pa.array([-1, 9])]))
    assert distinct.to_pylist() == [-1, 9, 10]
    assert numbers.tolist() == [2, 1, 0, 1]


# The data folder


@pytest.mark.parametrize("kind", ["text", "numbers"])
def test_interactions_come_back_from_a_folder_exactly(tmp_path: Path, kind: str) -> None:
    small(kind).save(tmp_path / "data")
    assert_same(Interactions.load(tmp_path / "data"), small(kind))


def test_the_truth_of_a_simulation_comes_back_exactly(tmp_path: Path, small_catalogue: Interactions) -> None:
    small_catalogue.save(tmp_path / "data")
    assert_same(Interactions.load(tmp_path / "data"), small_catalogue)


def test_the_facts_of_a_data_folder_can_be_added_to(tmp_path: Path) -> None:
    small().save(tmp_path / "data", facts={"source": "by hand"})
    assert open_folder(tmp_path / "data", "data").facts == {**small().facts(), "source": "by hand"}


def test_a_data_folder_is_replaced_only_when_it_is_said(tmp_path: Path) -> None:
    small("text").save(tmp_path / "data")
    with pytest.raises(FolderError, match="already holds a data folder"):
        small("numbers").save(tmp_path / "data")
    small("numbers").save(tmp_path / "data", replace=True)
    assert_same(Interactions.load(tmp_path / "data"), small("numbers"))


def test_equal_interactions_have_equal_fingerprints(tmp_path: Path) -> None:
    for name in ("one", "other"):
        milrec.simulate(milrec.Simulation(n_users=50, n_items=30, mean_shown=20), seed=3).save(tmp_path / name)
    one, other = (open_folder(tmp_path / name, "data").fingerprint() for name in ("one", "other"))
    assert one == other


def test_loaded_pairs_are_mapped_into_memory_and_not_copied(tmp_path: Path) -> None:
    small().save(tmp_path / "data")
    loaded = Interactions.load(tmp_path / "data")
    assert not loaded.adopted.data.flags.writeable  # the file is mapped to be read
    assert loaded.adopted.indices.dtype == np.int32  # as in the file: another type would be a copy


def rewritten(folder: Path, file: str, write: Any) -> Path:
    """A data folder in which one file is another one, with a manifest that vouches for it."""
    with new_folder(folder, "data") as draft:
        with_truth(small()).write_into(draft)
        (draft.path / file).unlink()
        write(draft.path / file)
    return folder


def arrow(columns: dict[str, Any]) -> Any:
    return lambda path: feather.write_feather(pa.table(columns), path, compression="uncompressed")


def pairs(users: list[int], items: list[int], weights: list[float]) -> Any:
    return arrow(
        {
            "user": pa.array(users, pa.int32()),
            "item": pa.array(items, pa.int32()),
            "weight": pa.array(weights, pa.float32()),
        }
    )


def test_a_hand_made_file_of_pairs_is_read(tmp_path: Path) -> None:
    """So that the refusals below are refusals of what they name."""
    loaded = Interactions.load(rewritten(tmp_path / "data", "adopted.arrow", pairs([0, 2], [3, 0], [1, 2])))
    assert loaded.adopted.toarray().tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [2, 0, 0, 0]]


@pytest.mark.parametrize(
    "write",
    [
        pairs([0, 3], [0, 0], [1, 1]),
        pairs([-1, 0], [0, 0], [1, 1]),
        pairs([0, 1], [0, 4], [1, 1]),
        pairs([0, 1], [-1, 0], [1, 1]),
        pairs([1, 0], [0, 0], [1, 1]),
        pairs([0, 0], [1, 0], [1, 1]),
        pairs([0, 0], [1, 1], [1, 1]),
        pairs([0, 1], [0, 0], [1, 0]),
        pairs([0, 1], [0, 0], [1, -1]),
        pairs([0, 1], [0, 0], [1, float("nan")]),
        pairs([0, 1], [0, 0], [1, float("inf")]),
    ],
    ids=[
        "user too large", "user below 0", "item too large", "item below 0", "users out of order",
        "items out of order", "twice", "weight 0", "weight below 0", "weight NaN", "weight infinite",
    ],
)  # fmt: skip
def test_impossible_pairs_are_refused(tmp_path: Path, write: Any) -> None:
    folder = rewritten(tmp_path / "data", "adopted.arrow", write)
    with pytest.raises(FolderError, match="holds impossible pairs"):
        Interactions.load(folder)


@pytest.mark.parametrize(
    "columns",
    [
        {"user": [0], "item": [0], "weight": [1.0]},  # int64 and double
        {"user": pa.array([0], pa.int32()), "item": pa.array([0], pa.int32())},
        {"a": pa.array([0], pa.int32()), "b": pa.array([0], pa.int32()), "c": pa.array([1], pa.float32())},
    ],
)
def test_a_file_with_other_columns_is_no_file_of_pairs(tmp_path: Path, columns: dict[str, Any]) -> None:
    folder = rewritten(tmp_path / "data", "rejected.arrow", arrow(columns))
    with pytest.raises(FolderError, match="is not a file of pairs"):
        Interactions.load(folder)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"name": ["a", "b", "c"]}, "has no column 'id'"),
        ({"id": pa.array(["a", "b", "a"], pa.large_string())}, "has the same id twice"),
        ({"id": [1.0, 2.0, 3.0]}, "has ids of type double"),
        ({"id": pa.array(["a", None, "c"], pa.large_string())}, "without gaps is needed"),
    ],
)
def test_a_table_of_users_that_cannot_be_is_refused(tmp_path: Path, columns: dict[str, Any], sentence: str) -> None:
    folder = rewritten(tmp_path / "data", "users.arrow", arrow(columns))
    with pytest.raises(FolderError, match=sentence):
        Interactions.load(folder)


@pytest.mark.parametrize("file", ["users.arrow", "items.arrow", "adopted.arrow", "rejected.arrow", "truth.safetensors"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not this", b"ARROW1\x00\x00" + b"\xff" * 40])
def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path, file: str, content: bytes) -> None:
    folder = rewritten(tmp_path / "data", file, lambda path: path.write_bytes(content))
    with pytest.raises(FolderError):
        Interactions.load(folder)


@pytest.mark.parametrize("file", ["users.arrow", "items.arrow", "adopted.arrow", "rejected.arrow"])
def test_a_manifest_that_does_not_list_a_needed_file_is_refused(tmp_path: Path, file: str) -> None:
    with new_folder(tmp_path / "data", "data") as draft:
        small().write_into(draft)
        (draft.path / file).unlink()
    with pytest.raises(FolderError, match=f"does not list '{file}'"):
        Interactions.load(tmp_path / "data")


@pytest.mark.parametrize(
    "arrays",
    [
        {"user_factors": (3, 2), "item_factors": (4, 2)},
        {"user_factors": (3, 2), "item_factors": (4, 2), "item_offsets": (4,), "more": (1,)},
        {"user_factors": (2, 2), "item_factors": (4, 2), "item_offsets": (4,)},
        {"user_factors": (3, 2), "item_factors": (4, 2), "item_offsets": (3,)},
        {"user_factors": (3, 2), "item_factors": (4, 3), "item_offsets": (4,)},
    ],
    ids=["one missing", "one too many", "another number of users", "another number of items", "traits that differ"],
)
def test_a_truth_that_does_not_fit_is_refused(tmp_path: Path, arrays: dict[str, tuple[int, ...]]) -> None:
    zeros = {name: np.zeros(shape, dtype=np.float32) for name, shape in arrays.items()}
    folder = rewritten(tmp_path / "data", "truth.safetensors", lambda path: save_file(zeros, path))
    with pytest.raises(FolderError, match=r"truth\.safetensors"):
        Interactions.load(folder)


def test_counts_are_shown_in_good_english():
    assert repr(milrec.read({"user": ["a"], "item": ["x"]})) == "<Interactions: 1 user, 1 item, 1 adopted pair>"
    assert "2 users, 1 item, 2 adopted pairs" in repr(milrec.read({"user": ["a", "b"], "item": ["x", "x"]}))
