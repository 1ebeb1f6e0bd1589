"""Splits: of the right sizes, without overlap, complete, and independent of the order of rows."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import milrec
from milrec.data.interactions import Interactions
from milrec.data.sample_size import or_over_interactions, too_few, too_small, uncertainty
from milrec.data.splits import HeldOut, Split, split_given, split_interactions, split_users
from milrec.errors import DataError, FolderError, MilrecError, SettingsError, SmallDataWarning
from milrec.storage import MANIFEST


def full(n_users: int, n_items: int) -> Interactions:
    """Everybody adopts everything: no item can be missing from the training part of a large enough split."""
    users, items = np.divmod(np.arange(n_users * n_items), n_items)
    return milrec.read({"user": users, "item": items})


def rated(n_users: int, n_items: int) -> Interactions:
    """Adopted and rejected pairs in turn."""
    users, items = np.divmod(np.arange(n_users * n_items), n_items)
    return milrec.read(
        {"user": users, "item": items, "rating": (users + items) % 3}, value="rating", adopt_min=2, reject_max=0
    )


def pairs(matrix: csr_array, data: Interactions) -> set[tuple[int, Any]]:
    """Pairs as (row, item id), so that they can be compared between catalogues."""
    ids, found = data.items["id"].to_pylist(), matrix.tocoo()
    return {(int(user), ids[item]) for user, item in zip(found.row, found.col, strict=True)}


def matrices(split: Split) -> dict[str, csr_array]:
    found = {"train": split.train.adopted, "train rejected": split.train.rejected}
    for name in ("validation", "test"):
        part: HeldOut = getattr(split, name)
        found[f"{name} targets"] = part.targets
        found[f"{name} rejected targets"] = part.rejected_targets
        found[f"{name} adopted"] = part.audience.adopted
        found[f"{name} rejected"] = part.audience.rejected
        found[f"{name} removed"] = part.audience.removed
    return found


def assert_same(one: Split, other: Split) -> None:
    assert one.train.users.equals(other.train.users)
    assert one.train.items.equals(other.train.items)
    for name, matrix in matrices(one).items():
        twin = matrices(other)[name]
        assert matrix.shape == twin.shape, name
        assert (matrix.toarray() == twin.toarray()).all(), name
    assert one.facts() == other.facts()
    for part, twin_part in ((one.validation, other.validation), (one.test, other.test)):
        rows, twin_rows = part.audience.rows, twin_part.audience.rows
        assert (rows is None) == (twin_rows is None)
        assert rows is None or twin_rows is None or rows.tolist() == twin_rows.tolist()


def differ(one: Split, other: Split) -> bool:
    return one.train.adopted.shape != other.train.adopted.shape or (one.train.adopted != other.train.adopted).nnz > 0


# Over interactions


def test_eighty_ten_and_ten_percent_of_the_pairs() -> None:
    split = split_interactions(full(10, 10), seed=0)
    assert split.protocol == "interactions"
    assert (split.train.adopted.nnz, split.validation.targets.nnz, split.test.targets.nnz) == (80, 10, 10)
    assert split.train.n_users == 10


def test_sizes_are_rounded_and_training_has_the_rest() -> None:
    split = split_interactions(full(11, 5), seed=0)  # 55 pairs: a tenth is 5.5, rounded to 6 (the even one)
    held = [part.targets.nnz + part.dropped_targets for part in (split.validation, split.test)]
    assert (split.train.adopted.nnz, held) == (43, [6, 6])


def test_another_share_can_be_held_out() -> None:
    split = split_interactions(full(10, 10), seed=0, held_out=0.25)
    assert (split.train.adopted.nnz, split.validation.targets.nnz, split.test.targets.nnz) == (50, 25, 25)


def test_rejected_pairs_are_divided_in_the_same_way() -> None:
    split = split_interactions(rated(30, 10), seed=0)  # 100 adopted and 100 rejected pairs
    assert split.train.adopted.nnz == 80
    assert split.train.rejected.nnz == 80
    assert (split.validation.rejected_targets.nnz, split.test.rejected_targets.nnz) == (10, 10)


def test_validation_lists_leave_out_training_and_test_lists_validation_too() -> None:
    split = split_interactions(full(10, 10), seed=0)
    train, validation = split.train.adopted.toarray() > 0, split.validation.targets.toarray() > 0
    assert (split.validation.audience.removed.toarray() > 0).tolist() == train.tolist()
    assert (split.test.audience.removed.toarray() > 0).tolist() == (train | validation).tolist()
    for part in (split.validation, split.test):
        assert (part.audience.adopted.toarray() > 0).tolist() == train.tolist()  # D7: training items only
        assert part.audience.rows is not None and part.audience.rows.tolist() == list(range(10))


def test_weights_go_with_their_pairs() -> None:
    users, items = np.divmod(np.arange(100), 10)
    data = milrec.read({"user": users, "item": items, "plays": np.arange(1, 101)}, value="plays")
    split = split_interactions(data, seed=0)
    whole = split.train.adopted + split.validation.targets + split.test.targets
    assert (whole.toarray() == np.arange(1, 101).reshape(10, 10)).all()


def test_pairs_of_items_without_a_training_pair_are_dropped_and_counted() -> None:
    """D6. Ten users with an item of their own: whatever is held out, its item is not in the training part."""
    data = milrec.read({"user": range(10), "item": range(10)})
    split = split_interactions(data, seed=0)
    assert (split.train.n_users, split.train.n_items, split.train.adopted.nnz) == (10, 8, 8)
    assert (split.validation.targets.nnz, split.validation.dropped_targets) == (0, 1)
    assert (split.test.targets.nnz, split.test.dropped_targets) == (0, 1)
    assert split.train.popularity().tolist() == [1] * 8
    assert split.facts()["test_dropped_targets"] == 1
    assert split.facts()["test_users"] == 0


def test_rejections_of_items_outside_the_catalogue_go_too() -> None:
    split = split_interactions(rated(3, 3), seed=2)
    for matrix in matrices(split).values():
        assert matrix.shape == (split.train.n_users, split.train.n_items)


def test_titles_and_truth_follow_the_catalogue(small_catalogue: Interactions) -> None:
    split = split_interactions(small_catalogue, seed=0)
    truth = split.train.truth
    assert truth is not None and small_catalogue.truth is not None
    assert len(truth.item_factors) == split.train.n_items
    kept = np.isin(small_catalogue.items["id"].to_pylist(), split.train.items["id"].to_pylist())
    assert (truth.item_offsets == small_catalogue.truth.item_offsets[kept]).all()
    assert split.train.items["title"].to_pylist() == small_catalogue.items["title"].filter(kept).to_pylist()


def test_two_pairs_are_too_few_for_a_tenth_and_all_stay_in_training() -> None:
    split = split_interactions(milrec.read({"user": [1, 1], "item": [1, 2]}), seed=0)  # round(0.2) = 0
    assert (split.train.adopted.nnz, split.validation.targets.nnz, split.test.targets.nnz) == (2, 0, 0)
    assert split.facts()["test_users"] == 0


def test_one_user_can_be_split() -> None:
    split = split_interactions(full(1, 10), seed=0)
    assert split.train.adopted.shape == (1, 8)
    assert split.validation.dropped_targets + split.test.dropped_targets == 2


def test_a_split_that_leaves_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(DataError, match="too few to split"):
        split_interactions(milrec.read({"user": [1, 1], "item": [1, 2]}), seed=0, held_out=0.5)


@pytest.mark.parametrize("held_out", [-0.1, 0.6, 1.0, 5.0, float("nan")])
def test_a_share_that_cannot_be_held_out_twice_is_refused(held_out: float) -> None:
    with pytest.raises(MilrecError, match=r"held.out"):
        split_interactions(full(10, 10), seed=0, held_out=held_out)


# Over users


def test_most_items_of_a_held_out_user_are_told_and_a_fifth_is_to_be_found() -> None:
    split = split_users(full(20, 10), seed=0)
    assert split.protocol == "users"
    assert split.train.n_users == 16
    for part in (split.validation, split.test):
        assert part.audience.n_users == 2
        assert np.diff(part.audience.adopted.indptr).tolist() == [8, 8]
        assert np.diff(part.targets.indptr).tolist() == [2, 2]
        assert part.dropped_targets == 0
        assert part.rejected_targets.nnz == 0


@pytest.mark.parametrize(
    ("n_items", "given", "to_find"), [(1, 1, 0), (2, 1, 1), (3, 2, 1), (5, 4, 1), (8, 6, 2), (13, 10, 3)]
)
def test_of_two_items_or_more_one_is_given_and_one_is_to_be_found(n_items: int, given: int, to_find: int) -> None:
    split = split_users(full(3, n_items), seed=0, held_out=1)
    for part in (split.validation, split.test):
        assert (part.audience.adopted.nnz, part.targets.nnz) == (given, to_find)


def test_another_share_can_be_given() -> None:
    split = split_users(full(10, 10), seed=0, given=0.5)
    assert (split.test.audience.adopted.nnz, split.test.targets.nnz) == (5, 5)


def test_the_old_name_of_the_share_still_works() -> None:
    with pytest.warns(DeprecationWarning, match="told is now called given"):
        old = split_users(full(10, 10), seed=0, told=0.5)
    assert old.test.targets.nnz == 5


def test_what_is_given_is_known_and_never_listed() -> None:
    split = split_users(full(20, 10), seed=0)
    for part in (split.validation, split.test):
        assert part.audience.rows is None
        given, to_find = part.audience.adopted.toarray(), part.targets.toarray()
        assert (part.audience.removed.toarray() == given).all()
        assert ((given > 0) ^ (to_find > 0)).all()  # every item is one or the other


def test_no_user_is_in_two_parts() -> None:
    """User u plays every item u + 1 times, so that the weights say who is who."""
    users, items = np.divmod(np.arange(200), 10)
    split = split_users(milrec.read({"user": users, "item": items, "plays": users + 1}, value="plays"), seed=0)
    learning = (split.train.adopted.max(axis=1).toarray().ravel() - 1).astype(int).tolist()
    assert split.train.users["id"].to_pylist() == learning
    strangers = [
        (part.audience.adopted.max(axis=1).toarray().ravel() - 1).astype(int).tolist()
        for part in (split.validation, split.test)
    ]
    assert sorted(learning + strangers[0] + strangers[1]) == list(range(20))
    assert [len(group) for group in strangers] == [2, 2]


def test_known_rejections_of_a_held_out_user_are_kept() -> None:
    split = split_users(rated(30, 9), seed=0, held_out=3)  # everybody rejects 3 of 9 items
    for part in (split.validation, split.test):
        assert np.diff(part.audience.rejected.indptr).tolist() == [3, 3, 3]


def test_items_that_nobody_in_training_has_are_dropped_and_counted() -> None:
    """D6. All share items 0 to 4; everybody has an item of her own, which is dropped when she is held out."""
    users = np.repeat(np.arange(10), 6)
    items = np.where(np.tile(np.arange(6), 10) < 5, np.tile(np.arange(6), 10), 100 + users)
    split = split_users(milrec.read({"user": users, "item": items}), seed=0, held_out=2)
    assert split.train.n_items == 5 + 6
    for part in (split.validation, split.test):
        assert part.dropped_targets == 2
        assert np.diff(part.audience.adopted.indptr).tolist() == [4, 4]  # four given and one to find of the five shared
        assert np.diff(part.targets.indptr).tolist() == [1, 1]


@pytest.mark.parametrize(("n_users", "held_out"), [(1, None), (9, None), (1, 1), (2, 1), (10, 5), (10, 0), (10, -1)])
def test_too_few_users_are_refused(n_users: int, held_out: int | None) -> None:
    with pytest.raises(DataError, match=f"{n_users} users are too few to hold out"):
        split_users(full(n_users, 4), seed=0, held_out=held_out)


@pytest.mark.parametrize("n_users", [10, 19, 20])
def test_a_tenth_of_the_users_is_held_out_by_default(n_users: int) -> None:
    split = split_users(full(n_users, 4), seed=0)
    assert (split.validation.audience.n_users, split.test.audience.n_users) == (n_users // 10, n_users // 10)


@pytest.mark.parametrize("given", [-0.5, 1.5, float("nan")])
def test_a_share_that_cannot_be_told_is_refused(given: float) -> None:
    with pytest.raises(MilrecError, match="given"):
        split_users(full(20, 10), seed=0, given=given)


# With a given test part


def later(users: list[Any], items: list[Any], ratings: list[float] | None = None) -> Interactions:
    """A test part: ratings of 4 adopted, of 0 rejected."""
    ratings = ratings or [4] * len(users)
    table = {"user": users, "item": items, "rating": ratings}
    return milrec.read(table, value="rating", adopt_min=4, reject_max=0, min_per_item=0)


def given_split(data: Interactions, seed: int) -> Split:
    """The pairs of the first two users with even items are the test part, all other pairs the data."""
    users, items = np.indices(data.adopted.shape)
    later = (users < 2) & (items % 2 == 0)
    parts = [
        replace(
            data, adopted=csr_array(data.adopted.toarray() * mask), rejected=csr_array(data.rejected.toarray() * mask)
        )
        for mask in (~later, later)
    ]
    return split_given(parts[0], parts[1], seed)


def test_a_given_test_part_is_what_is_to_be_found() -> None:
    data = milrec.read({"user": list("aabbcc"), "item": list("xyyzzx")})
    split = split_given(data, later(list("ab"), list("zx")), seed=0, held_out=0)
    assert split.protocol == "given"
    assert split.train.fingerprint() == data.fingerprint()
    assert pairs(split.test.targets, split.train) == {(0, "z"), (1, "x")}
    assert (split.validation.targets.nnz, split.test.dropped_targets) == (0, 0)
    assert split.left_out == {"test_unknown_users": 0, "test_pairs_of_unknown_users": 0, "test_pairs_in_data": 0}
    assert repr(split) == "<Split with a given test part, seed 0: 6 pairs to learn from>"


def test_what_of_a_given_test_part_is_of_no_use_is_dropped_and_counted() -> None:
    data = later(list("aaabbb"), list("xyzxyw"), [4, 4, 0, 4, 4, 0])  # a rejected z, b rejected w: both fall out (D6)
    test = later(list("aaaaabdde"), list("xyzwvzxyx"), [4, 0, 4, 4, 4, 4, 4, 4, 0])
    assert test.users["id"].to_pylist() == ["a", "b", "d"]  # e adopted nothing
    with pytest.raises(
        DataError, match=r"no adopted pair .* of 7, 2 have users .*, 2 are in the data too, 3 have items"
    ):
        split_given(data, test, seed=0, held_out=0)
    more = later(list("aaabbbc"), list("xyzxywz"), [4, 4, 0, 4, 4, 0, 4])
    split = split_given(more, test, seed=0, held_out=0)
    assert pairs(split.test.targets, split.train) == {(1, "z")}
    assert split.left_out == {"test_unknown_users": 1, "test_pairs_of_unknown_users": 2, "test_pairs_in_data": 2}
    assert split.test.dropped_targets == 2  # a adopts w and v
    assert {**split.facts(), **split.left_out} == split.facts()


def test_rejected_pairs_of_a_given_test_part_had_better_not_be_found() -> None:
    data = milrec.read({"user": list("aabbcc"), "item": list("xyyzzx")})
    test = later(list("abc") + list("abd"), list("zxy") + list("xxx"), [4, 0, 0, 0, 0, 0])
    split = split_given(data, test, seed=0, held_out=0)
    assert pairs(split.test.targets, split.train) == {(0, "z")}
    kept = {
        (split.train.users["id"][user].as_py(), item) for user, item in pairs(split.test.rejected_targets, split.train)
    }
    assert kept == set()  # who adopts nothing is left out of the test part
    test = later(list("abcbcb"), list("zxyxyy"), [4, 4, 4, 4, 4, 0])
    assert split_given(data, test, seed=0, held_out=0).test.rejected_targets.nnz == 0  # b has y
    test = later(list("abcbb"), list("zxyxw"), [4, 4, 4, 4, 0])
    with_w = milrec.read({"user": list("aabbccc"), "item": list("xyyzzxw")})
    split = split_given(with_w, test, seed=0, held_out=0)
    assert pairs(split.test.rejected_targets, split.train) == {(1, "w")}


def test_a_share_of_the_data_is_for_validation_and_never_listed_on_test() -> None:
    data = rated(30, 10)  # 100 adopted, 100 rejected and 100 missing pairs
    missing = np.argwhere((data.adopted + data.rejected).toarray() == 0)
    split = split_given(data, milrec.read({"user": missing[:, 0], "item": missing[:, 1]}), seed=0, held_out=0.2)
    assert (split.train.adopted.nnz, split.validation.targets.nnz) == (80, 20)
    assert (split.train.rejected.nnz, split.validation.rejected_targets.nnz) == (80, 20)
    assert split.test.targets.nnz == 100
    parts = split.train.adopted, split.validation.targets, split.validation.rejected_targets
    seen = sum(part.toarray() for part in parts)
    assert ((split.test.audience.removed.toarray() > 0) == (seen > 0)).all()
    assert (split.validation.audience.removed.toarray() == split.train.adopted.toarray()).all()
    assert split.test.audience.rows is not None and split.test.audience.rows.tolist() == list(range(30))


@pytest.mark.parametrize("held_out", [-0.1, 1.0, 3, float("nan")])
def test_a_share_that_cannot_be_held_out_is_refused(held_out: float) -> None:
    with pytest.raises(MilrecError, match="`held_out` must be a share"):
        split_given(full(4, 4), later([0], [9]), seed=0, held_out=held_out)


def test_a_share_that_leaves_nothing_to_learn_from_is_refused() -> None:
    data = milrec.read({"user": [1, 1], "item": [1, 2]})
    with pytest.raises(DataError, match="too few to split"):
        split_given(data, later([1], [3]), seed=0, held_out=0.9)


@pytest.mark.parametrize("what", ["user", "item"])
def test_ids_of_two_types_are_refused(what: str) -> None:
    table = {"user": [1, 2], "item": [1, 2]}
    texts = {**table, what: ["1", "2"]}
    with pytest.raises(DataError, match=f"{what} ids are whole numbers in one set and text in the other"):
        split_given(milrec.read(table), milrec.read(texts), seed=0)


# Validation joined to training


@pytest.mark.parametrize("split", [split_interactions, given_split])
def test_validation_can_be_joined_to_training(split: Any) -> None:
    apart = split(rated(40, 12), seed=3)
    joined = apart.joined()
    for name in ("adopted", "rejected"):
        kept_back = apart.validation.targets if name == "adopted" else apart.validation.rejected_targets
        whole = getattr(apart.train, name).toarray() + kept_back.toarray()
        assert (getattr(joined.train, name).toarray() == whole).all()
        assert (getattr(joined.test.audience, name).toarray() == whole).all()
    assert joined.train.users.equals(apart.train.users) and joined.train.items.equals(apart.train.items)
    assert joined.validation.targets.nnz == joined.validation.rejected_targets.nnz == 0
    assert (joined.test.targets != apart.test.targets).nnz == 0
    assert (joined.test.rejected_targets != apart.test.rejected_targets).nnz == 0
    assert joined.test.dropped_targets == apart.test.dropped_targets
    hidden = [part.test.audience.removed + part.test.audience.rejected for part in (joined, apart)]
    assert ((hidden[0].toarray() > 0) == (hidden[1].toarray() > 0)).all()
    assert (joined.protocol, joined.seed, joined.left_out) == (apart.protocol, apart.seed, apart.left_out)


def test_where_there_is_no_validation_of_known_users_nothing_is_joined() -> None:
    with pytest.raises(DataError, match="holds out users for validation"):
        split_users(full(20, 10), seed=0).joined()
    with pytest.raises(DataError, match="no validation part"):
        split_interactions(full(4, 4), seed=0, held_out=0).joined()


# Seeds and order


@pytest.mark.parametrize("split", [split_interactions, split_users, given_split])
def test_the_same_seed_gives_the_same_split_and_another_seed_another(split: Any) -> None:
    data = rated(40, 12)
    assert_same(split(data, seed=7), split(data, seed=7))
    assert differ(split(data, seed=7), split(data, seed=8))


@pytest.mark.parametrize("split", [split_interactions, split_users, given_split])
def test_a_split_does_not_depend_on_the_order_of_rows(split: Any) -> None:
    random = np.random.default_rng(0)
    table = {
        "user": random.integers(30, size=600),
        "item": random.integers(25, size=600),
        "rating": random.integers(1, 6, size=600),
        "time": random.integers(50, size=600),
    }
    order = random.permutation(600)
    one, other = (
        split(milrec.read(rows, value="rating", time="time", adopt_min=4, reject_max=2), seed=1)
        for rows in (table, {name: column[order] for name, column in table.items()})
    )
    assert_same(one, other)


def test_a_split_of_a_folder_is_that_of_what_was_saved(tmp_path: Path) -> None:
    data = rated(30, 10)
    data.save(tmp_path / "data")
    for split in (split_interactions, split_users):
        assert_same(split(Interactions.load(tmp_path / "data"), seed=1), split(data, seed=1))


def test_a_part_of_an_audience_keeps_its_rows_together() -> None:
    audience = split_interactions(full(10, 10), seed=0).test.audience
    part = audience.part(np.array([7, 2]))
    assert part.n_users == 2
    assert part.rows is not None and part.rows.tolist() == [7, 2]
    for name in ("adopted", "rejected", "removed"):
        assert (getattr(part, name).toarray() == getattr(audience, name).toarray()[[7, 2]]).all()


def test_a_part_of_strangers_has_no_rows() -> None:
    part = split_users(full(20, 10), seed=0).test.audience.part(slice(1, 2))
    assert (part.n_users, part.rows) == (1, None)


# Any data

some_pairs = st.sets(st.tuples(st.integers(0, 11), st.integers(0, 7)), min_size=12, max_size=60)


def with_rejections(cells: set[tuple[int, int]]) -> Interactions:
    users, items = zip(*sorted(cells), strict=True)
    ratings = [(user * 5 + item * 3) % 4 for user, item in sorted(cells)]
    return milrec.read(
        {"user": [*users, 0, 1], "item": [*items, 50, 50], "rating": [*ratings, 3, 3]},
        value="rating", adopt_min=2, reject_max=0,
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(some_pairs, st.integers(0, 5), st.sampled_from([0.1, 0.2, 0.3]))
def test_every_pair_is_in_exactly_one_part(cells: set[tuple[int, int]], seed: int, held_out: float) -> None:
    data = with_rejections(cells)
    split = split_interactions(data, seed, held_out)
    n, size = data.adopted.nnz, round(data.adopted.nnz * held_out)
    assert split.train.adopted.nnz == n - 2 * size
    for part in (split.validation, split.test):
        assert part.targets.nnz + part.dropped_targets == size
    train, validation, test = (
        pairs(matrix, split.train) for matrix in (split.train.adopted, split.validation.targets, split.test.targets)
    )
    assert not (train & validation or train & test or validation & test)
    catalogue = set(split.train.items["id"].to_pylist())
    assert split.train.popularity().min() >= 1
    assert train | validation | test <= pairs(data.adopted, data)
    dropped = pairs(data.adopted, data) - train - validation - test
    assert len(dropped) == split.validation.dropped_targets + split.test.dropped_targets
    assert not any(item in catalogue for _, item in dropped)
    rejected = [
        pairs(matrix, split.train)
        for matrix in (split.train.rejected, split.validation.rejected_targets, split.test.rejected_targets)
    ]
    assert sum(map(len, rejected)) == len(set.union(*rejected))
    assert set.union(*rejected) == {pair for pair in pairs(data.rejected, data) if pair[1] in catalogue}


@settings(max_examples=60, deadline=None)
@given(some_pairs, some_pairs, st.integers(0, 5), st.sampled_from([0, 0.1, 0.3]))
def test_every_pair_of_a_given_test_part_is_to_be_found_or_counted(
    cells: set[tuple[int, int]], later_cells: set[tuple[int, int]], seed: int, held_out: float
) -> None:
    data, test = with_rejections(cells), with_rejections({(user + 3, item + 2) for user, item in later_cells})
    try:
        split = split_given(data, test, seed, held_out)
    except DataError:
        return  # nothing is left to be found
    assert split.train.adopted.nnz == data.adopted.nnz - round(data.adopted.nnz * held_out)
    counted = split.left_out["test_pairs_of_unknown_users"] + split.left_out["test_pairs_in_data"]
    assert split.test.targets.nnz + split.test.dropped_targets + counted == test.adopted.nnz

    def named(matrix: csr_array, whose: Interactions) -> set[tuple[Any, Any]]:
        return {(whose.users["id"][user].as_py(), item) for user, item in pairs(matrix, whose)}

    known = named(data.adopted, data) | named(data.rejected, data)
    users, catalogue = set(data.users["id"].to_pylist()), set(split.train.items["id"].to_pylist())
    for found, whole in (
        (split.test.targets, test.adopted),
        (split.test.rejected_targets, test.rejected),
    ):
        expected = {pair for pair in named(whole, test) - known if pair[0] in users and pair[1] in catalogue}
        assert named(found, split.train) == expected


@settings(max_examples=40, deadline=None)
@given(some_pairs, st.integers(0, 5), st.integers(1, 2))
def test_every_user_is_in_exactly_one_part(cells: set[tuple[int, int]], seed: int, held_out: int) -> None:
    everyone = [(user, item + 10) for user in range(12) for item in (user % 3, 3)]  # each of 12 users has two items
    users, items = zip(*sorted(cells | set(everyone)), strict=True)
    data = milrec.read({"user": users, "item": items})
    split = split_users(data, seed, held_out)
    assert split.train.n_users == data.n_users - 2 * held_out
    assert split.train.popularity().min() >= 1
    total = split.train.adopted.nnz
    for part in (split.validation, split.test):
        assert part.audience.n_users == held_out
        assert part.audience.adopted.multiply(part.targets).nnz == 0
        known = np.diff(part.audience.adopted.indptr) + np.diff(part.targets.indptr)
        fifth = np.where(known > 1, np.maximum(np.rint(known * 0.2), 1), 0)
        assert np.diff(part.targets.indptr).tolist() == fifth.tolist()
        total += int(known.sum()) + part.dropped_targets
    assert total == data.adopted.nnz


# Folders


@pytest.mark.parametrize("split", [split_interactions, split_users, given_split])
def test_a_split_comes_back_from_a_folder_exactly(tmp_path: Path, split: Any, small_catalogue: Interactions) -> None:
    for number, data in enumerate([rated(40, 12), small_catalogue]):
        saved = split(data, seed=5)
        saved.save(tmp_path / str(number), facts={"source": "a test"})
        assert_same(Split.load(tmp_path / str(number)), saved)


@pytest.mark.parametrize("split", [split_interactions, split_users])
def test_a_split_with_nothing_to_find_comes_back_too(tmp_path: Path, split: Any) -> None:
    saved = split(milrec.read({"user": range(10), "item": range(10)}), seed=0)
    saved.save(tmp_path / "split")
    assert_same(Split.load(tmp_path / "split"), saved)


def test_the_facts_of_a_split_are_counted() -> None:
    facts = split_users(full(20, 10), seed=3).facts()
    assert facts == {
        "protocol": "users", "seed": 3, "users": 16, "items": 10, "adopted": 160, "rejected": 0, "density": 1.0,
        "validation_users_in_part": 2, "validation_users": 2, "validation_targets": 4, "validation_dropped_targets": 0,
        "test_users_in_part": 2, "test_users": 2, "test_targets": 4, "test_dropped_targets": 0,
    }  # fmt: skip


def test_a_data_folder_is_no_split_folder(tmp_path: Path) -> None:
    full(3, 3).save(tmp_path / "data")
    with pytest.raises(FolderError, match="is a data folder; a split folder is needed"):
        Split.load(tmp_path / "data")


@pytest.mark.parametrize("file", ["test_targets.arrow", "validation_rejected_targets.arrow", "test_adopted.arrow"])
def test_a_split_folder_with_a_damaged_file_is_refused(tmp_path: Path, file: str) -> None:
    split_users(full(20, 10), seed=0).save(tmp_path / "split")
    content = (tmp_path / "split" / file).read_bytes()
    (tmp_path / "split" / file).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(FolderError, match=f"file '{file}' has changed since it was saved"):
        Split.load(tmp_path / "split")


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": "time"}, {"protocol": None}, {"protocol": []}, {"seed": "0"}, {"seed": None},
        {"test_users_in_part": 1}, {"test_users_in_part": "two"}, {"test_users_in_part": None},
        {"test_users_in_part": -1}, {"test_dropped_targets": "none"}, {"protocol": "given"},
    ],
    ids=str,
)  # fmt: skip
def test_facts_that_cannot_be_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    split_users(full(20, 10), seed=0).save(tmp_path / "split")
    manifest = json.loads((tmp_path / "split" / MANIFEST).read_text())
    manifest["facts"] |= change
    del manifest["sha256"]
    (tmp_path / "split" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(FolderError):
        Split.load(tmp_path / "split")


def test_what_held_out_users_lists_must_find_can_be_cut_off(small_catalogue):
    """`int(.2·n)`, as in the code of Liang et al. 2018, instead of the nearest number."""
    for rounding, wanted in (("nearest", lambda n: max(round(0.2 * n), 1)), ("down", lambda n: int(0.2 * n))):
        part = split_users(small_catalogue, seed=0, rounding=rounding).test
        told, hidden = np.diff(part.audience.adopted.indptr), np.diff(part.targets.indptr)
        several = told + hidden > 1
        assert hidden[several].tolist() == [wanted(int(n)) for n in (told + hidden)[several]]
    with pytest.raises(SettingsError, match="unknown rounding 'up'; known roundings: down, nearest"):
        split_users(small_catalogue, seed=0, rounding="up")


# Too few users to judge


def people(n_users: int, n_each: int) -> Interactions:
    """Users with a few of a hundred items each."""
    pairs = [(user, (7 * user + 13 * place) % 100) for user in range(n_users) for place in range(n_each)]
    return milrec.read({"user": [user for user, _ in pairs], "item": [item for _, item in pairs]})


def warned_of(split, *arguments, **values) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SmallDataWarning)
        split(*arguments, **values)
    return [str(one.message) for one in caught]


def test_a_split_that_judges_few_users_says_so_at_once():
    (sentence,) = warned_of(split_interactions, people(547, 1), 0)
    judged = int((np.diff(split_interactions(people(547, 1), 0).test.targets.indptr) > 0).sum())
    assert judged < 100
    assert sentence.startswith(f"only {judged} of 547 users have a held-out test item, so measures may be off by ±0.")
    (sentence,) = warned_of(split_users, people(300, 10), 0)
    assert sentence.startswith("only 30 users have a held-out test item, so measures may be off by ±0.18; ")
    assert sentence.endswith("use more data, or split over interactions, which judges about 195 of 300 users")


def test_a_split_over_users_points_to_the_other_protocol_only_where_it_judges_more():
    (sentence,) = warned_of(split_users, people(15, 1), 0)
    assert sentence.endswith(", or split over interactions, which judges about 2 of 15 users")
    assert or_over_interactions(60, np.full(200, 3)) == ""


def test_a_split_without_users_for_validation_says_what_that_means_for_a_fit():
    consequence = "no user has a held-out validation item, so a fit cannot stop early and has no probabilities"
    (sentence,) = warned_of(split_interactions, people(3, 2), 0)
    assert sentence.startswith("no user has a held-out test item, so ")
    assert f"; {consequence}; use more data, or hold out" in sentence
    (sentence,) = warned_of(split_interactions, people(30, 3), 0)
    assert "validation item, so early stopping and probabilities are unreliable; use more data" in sentence


def test_a_split_that_judges_nobody_says_so():
    (sentence,) = warned_of(split_interactions, people(3, 2), 0)
    assert sentence.startswith("no user has a held-out test item, so no model can be measured on the test part")


def test_a_split_that_judges_a_small_share_says_so():
    (sentence,) = warned_of(split_interactions, people(3000, 1), 0, 0.05)
    assert sentence.endswith("measures say little about the others; use more data, or hold out more of it (`held_out`)")


def test_a_split_of_enough_users_or_with_nothing_held_out_on_purpose_is_quiet():
    assert warned_of(split_interactions, people(200, 20), 0) == []
    assert warned_of(split_interactions, people(3, 2), 0, held_out=0.0) == []
    data, later = people(200, 20), people(200, 25)
    assert warned_of(split_given, data, later, 0) == [] and warned_of(split_given, data, later, 0, held_out=0.0) == []


def test_a_hundred_users_are_enough_for_a_tenth_either_way():
    assert uncertainty(100) < 0.1 < uncertainty(95)
    assert too_few("test", 100, 100) is None and too_few("test", 99, 99) is not None
    assert too_small("plays.csv", 1000, 1000) is None
    assert too_small("plays.csv", 547, 220) == (
        "'plays.csv' is small: after a split, at most 22 of 547 users can be judged, "
        "and 100 are needed for measures within ±0.1"
    )


def test_a_table_that_was_not_read_is_refused():
    for split in (milrec.split_interactions, milrec.split_users):
        with pytest.raises(DataError, match="a split is made of interactions, not of dict"):
            split({"user": [1], "item": [2]}, seed=0)


def test_validation_like_the_test_part_has_its_share_of_popular_and_of_rare_items() -> None:
    """Of the popular half of 40 items the test part has three times as many pairs as of the others."""
    users, items = np.indices((200, 40))
    have = users < np.where(items < 20, 160, 80)
    later_share = np.where(items < 20, 0.3, 0.1)
    tested = have & (np.random.default_rng(0).random(have.shape) < later_share)
    data, test = (milrec.read({"user": users[mask], "item": items[mask]}) for mask in (have & ~tested, tested))
    split = split_given(data, test, seed=0, held_out=0.1, like_test=True)
    assert split.validation.targets.nnz == pytest.approx(0.1 * data.adopted.nnz, abs=3)
    popular, rare = split.validation.targets.toarray()[:, :20].sum(), split.validation.targets.toarray()[:, 20:].sum()
    of_popular, of_rare = tested[:, :20].sum() / have[:, :20].sum(), tested[:, 20:].sum() / have[:, 20:].sum()
    kept = (have & ~tested)[:, :20].sum(), (have & ~tested)[:, 20:].sum()
    assert (popular / kept[0]) / (rare / kept[1]) == pytest.approx(of_popular / of_rare, rel=0.02)
    assert split.facts()["validation_like_test"] is True
    again = split_given(data, test, seed=0, held_out=0.1, like_test=True)
    assert (again.validation.targets != split.validation.targets).nnz == 0
    plain = split_given(data, test, seed=0, held_out=0.1)
    assert "validation_like_test" not in plain.facts()
    assert plain.test.targets.nnz == split.test.targets.nnz


def test_validation_like_the_test_part_is_read_back(tmp_path: Path) -> None:
    data = rated(30, 10)
    missing = np.argwhere((data.adopted + data.rejected).toarray() == 0)
    test = milrec.read({"user": missing[:, 0], "item": missing[:, 1]})
    split = split_given(data, test, seed=0, held_out=0.2, like_test=True)
    assert split.validation.targets.nnz == pytest.approx(20, abs=2)
    split.save(tmp_path / "split")
    assert Split.load(tmp_path / "split").facts() == split.facts()


def test_no_validation_part_can_be_like_the_test_part_too() -> None:
    data = milrec.read({"user": list("aabbcc"), "item": list("xyyzzx")})
    split = split_given(data, later(list("ab"), list("zx")), seed=0, held_out=0, like_test=True)
    assert (split.train.adopted.nnz, split.validation.targets.nnz) == (6, 0)
