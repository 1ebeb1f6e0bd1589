"""Rows become interactions: what is adopted, what is rejected, what is merged and what is left out."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milrec.data.filters import Filters, Prepared, prepare
from milrec.data.interactions import Interactions
from milrec.data.reading.columns import Columns
from milrec.data.reading.tables import Rows, rows_of
from milrec.errors import DataError


def prepared(pairs: str, filters: Filters | None = None, **columns: Any) -> Prepared:
    """Prepare pairs written as 'ax bx': user a with item x, user b with item x."""
    users, items = zip(*pairs.split(), strict=True)
    chosen = Columns(value="value" if "value" in columns else None, time="time" if "time" in columns else None)
    return prepare(rows_of({"user": users, "item": items, **columns}, chosen), filters or Filters())


def cells(data: Interactions, which: str = "adopted") -> dict[str, float]:
    """The pairs of a matrix as 'ax' → weight."""
    users, items = data.users["id"].to_pylist(), data.items["id"].to_pylist()
    matrix = getattr(data, which).tocoo()
    return {users[u] + items[i]: float(w) for u, i, w in zip(matrix.row, matrix.col, matrix.data, strict=True)}


# Rows without a value, and counts


def test_without_a_value_every_row_is_adopted() -> None:
    result = prepared("bx ay ax")
    assert cells(result.interactions) == {"ax": 1, "ay": 1, "bx": 1}
    assert cells(result.interactions, "rejected") == {}
    assert result.counts == {
        "rows_in_source": 3,
        "rows": 3,
        "rows_neither_adopted_nor_rejected": 0,
        "duplicates_merged": 0,
        "rejections_contradicted": 0,
        "users_left_out": 0,
        "items_left_out": 0,
    }


def test_users_and_items_are_numbered_in_the_order_of_their_ids() -> None:
    data = prepared("cz by ax").interactions
    assert data.users["id"].to_pylist() == ["a", "b", "c"]
    assert data.items["id"].to_pylist() == ["x", "y", "z"]


def test_one_user_and_one_item_are_enough() -> None:
    data = prepared("ax").interactions
    assert (data.n_users, data.n_items) == (1, 1)
    assert data.adopted.toarray().tolist() == [[1]]


def test_duplicates_are_merged_and_counted() -> None:
    result = prepared("ax ax bx ax")
    assert cells(result.interactions) == {"ax": 3, "bx": 1}
    assert result.counts["duplicates_merged"] == 2


def test_counts_of_duplicates_are_summed() -> None:
    result = prepared("ax bx ax", value=[2, 5, 0.5])
    assert cells(result.interactions) == {"ax": 2.5, "bx": 5}
    assert result.counts["duplicates_merged"] == 1


def test_a_count_of_zero_is_not_an_adoption() -> None:
    result = prepared("ax ay by", value=[3, 0, 1])
    assert cells(result.interactions) == {"ax": 3, "by": 1}
    assert result.counts["rows_neither_adopted_nor_rejected"] == 1


def test_a_zero_beside_a_count_adds_nothing() -> None:
    assert cells(prepared("ax ax", value=[0, 4]).interactions) == {"ax": 4}


def test_who_has_only_zero_counts_is_left_out() -> None:
    result = prepared("ax by", value=[1, 0])
    assert result.interactions.users["id"].to_pylist() == ["a"]
    assert (result.counts["users_left_out"], result.counts["items_left_out"]) == (1, 1)


def test_a_negative_count_is_refused_with_its_row_and_the_cure() -> None:
    with pytest.raises(
        DataError, match=r"the count in row 2 of the table is -2; .*\(if these are ratings, give `adopt_min`\)"
    ):
        prepared("ax ay", value=[1, -2])


def test_counts_of_zero_alone_are_refused() -> None:
    with pytest.raises(DataError, match="no adopted items left"):
        prepared("ax ay", value=[0, 0])


@pytest.mark.parametrize("count", [1e60, 1e-60])
def test_a_count_that_cannot_be_kept_is_refused(count: float) -> None:
    """Weights are kept in 32 bits: beyond them a count would become infinite, or no adoption at all."""
    with pytest.raises(DataError):
        prepared("ax ay", value=[1, count])


# Ratings


def test_ratings_from_adopt_min_on_are_adopted_and_up_to_reject_max_rejected() -> None:
    result = prepared("av aw ax ay az", Filters(adopt_min=4, reject_max=2), value=[5, 4, 3, 2, 1])
    assert cells(result.interactions) == {"av": 1, "aw": 1}  # a rating is no weight
    assert result.counts["rows_neither_adopted_nor_rejected"] == 1
    assert result.counts["items_left_out"] == 3  # nobody adopted x, y and z


def test_a_rejection_is_kept_where_somebody_else_adopted_the_item() -> None:
    data = prepared("ax ay bx by", Filters(adopt_min=4, reject_max=2), value=[5, 1, 2, 4]).interactions
    assert cells(data) == {"ax": 1, "by": 1}
    assert cells(data, "rejected") == {"ay": 1, "bx": 1}


def test_with_adopt_min_alone_nothing_is_rejected() -> None:
    data = prepared("ax ay bx", Filters(adopt_min=3.5), value=[3.5, 3.4, 5]).interactions
    assert cells(data) == {"ax": 1, "bx": 1}
    assert cells(data, "rejected") == {}


def test_with_reject_max_alone_everything_above_it_is_adopted() -> None:
    data = prepared("ax ay bx by", Filters(reject_max=0), value=[-3, 0.1, 2, 0]).interactions
    assert cells(data) == {"ay": 1, "bx": 1}
    assert cells(data, "rejected") == {"ax": 1, "by": 1}


def test_negative_ratings_are_ratings() -> None:
    data = prepared("ax bx", Filters(adopt_min=-5), value=[-5, -6]).interactions
    assert cells(data) == {"ax": 1}


def test_thresholds_need_a_value_column() -> None:
    for filters in (Filters(adopt_min=4), Filters(reject_max=2)):
        with pytest.raises(DataError, match="`reject_max` need a column of values; name it with `value`"):
            prepared("ax", filters)


@pytest.mark.parametrize("reject_max", [4, 5])
def test_what_is_adopted_cannot_be_rejected_too(reject_max: float) -> None:
    with pytest.raises(DataError, match=f"`reject_max` {reject_max} must be below `adopt_min` 4"):
        Filters(adopt_min=4, reject_max=reject_max)


@pytest.mark.parametrize("filters", [{"min_per_user": 0}, {"min_per_item": -1}, {"min_per_item": -3}])
def test_minima_that_cannot_be_are_refused(filters: dict[str, int]) -> None:
    with pytest.raises(DataError, match="`min_per_user` must be at least 1, and `min_per_item` at least 0"):
        Filters(**filters)


def test_items_that_are_only_rejected_stay_where_no_adopter_is_asked_for() -> None:
    """x is adopted, y only rejected, z neither."""
    for min_per_item, items in ((0, ["x", "y"]), (1, ["x"])):
        filters = Filters(adopt_min=4, reject_max=2, min_per_item=min_per_item)
        data = prepared("ax ay az", filters, value=[5, 1, 3]).interactions
        assert data.items["id"].to_pylist() == items
        assert data.rejected.nnz == len(items) - 1


@pytest.mark.parametrize("limit", [float("inf"), float("-inf"), float("nan"), "4"])
@pytest.mark.parametrize("name", ["adopt_min", "reject_max", "min_per_user", "min_per_item"])
def test_limits_are_finite_numbers(name: str, limit: Any) -> None:
    with pytest.raises(DataError, match=f"`{name}` must be a finite number, not"):
        Filters(**{name: limit})


def test_thresholds_that_nothing_passes_are_refused() -> None:
    with pytest.raises(DataError, match="the table has no adopted items left; check the thresholds and filters"):
        prepared("ax ay", Filters(adopt_min=10), value=[1, 5])


# Several ratings of one pair


def test_without_times_an_adoption_outweighs_a_rejection_and_is_counted() -> None:
    result = prepared("ax ax bx bx", Filters(adopt_min=4, reject_max=2), value=[1, 5, 4, 4])
    assert cells(result.interactions) == {"ax": 1, "bx": 2}  # two adopting rows make a weight of 2
    assert cells(result.interactions, "rejected") == {}
    assert result.counts["rejections_contradicted"] == 1
    assert result.counts["duplicates_merged"] == 2


def test_two_rejections_of_one_pair_are_one() -> None:
    data = prepared("ax ax bx", Filters(adopt_min=4, reject_max=2), value=[1, 2, 5])
    assert data.interactions.users["id"].to_pylist() == ["b"]  # who adopts nothing is left out
    data = prepared("ax ax ay bx", Filters(adopt_min=4, reject_max=2), value=[1, 2, 5, 5])
    assert cells(data.interactions, "rejected") == {"ax": 1}


@pytest.mark.parametrize(("values", "expected"), [([1, 5], {"ax": 1}), ([5, 1], {})])
def test_where_times_are_known_the_latest_rating_stands(values: list[int], expected: dict[str, float]) -> None:
    filters = Filters(adopt_min=4, reject_max=2)
    result = prepared("ax ax ay bx", filters, value=[*values, 4, 4], time=[10, 20, 0, 0])
    assert cells(result.interactions) == {**expected, "ay": 1, "bx": 1}
    assert cells(result.interactions, "rejected") == ({} if expected else {"ax": 1})
    assert result.counts["rejections_contradicted"] == 0
    assert result.counts["duplicates_merged"] == 1


def test_the_latest_rating_is_found_by_time_and_not_by_row() -> None:
    data = prepared("ax ax ax bx", Filters(adopt_min=4), value=[3, 5, 2, 4], time=[2, 3, 1, 0]).interactions
    assert cells(data) == {"ax": 1, "bx": 1}
    data = prepared("ax ax ax bx", Filters(adopt_min=4), value=[5, 3, 5, 4], time=[2, 3, 1, 0]).interactions
    assert cells(data) == {"bx": 1}


def test_of_two_ratings_at_the_same_time_the_higher_stands() -> None:
    for values in ([5, 1], [1, 5]):
        data = prepared("ax ax", Filters(adopt_min=4, reject_max=2), value=values, time=[7, 7]).interactions
        assert cells(data) == {"ax": 1}


def test_counts_are_summed_even_where_times_are_known() -> None:
    """A count is no rating: five plays today do not undo the three of yesterday."""
    data = prepared("ax ax bx", value=[3, 5, 1], time=[1, 2, 1]).interactions
    assert cells(data) == {"ax": 8, "bx": 1}


def test_adoptions_without_a_value_are_merged_even_where_times_are_known() -> None:
    assert cells(prepared("ax ax bx", time=[1, 2, 1]).interactions) == {"ax": 2, "bx": 1}


# Users and items with too little


def test_items_are_left_out_first_and_users_second_and_each_once() -> None:
    # z has one adopter and goes.
    result = prepared("ax ay bx cy cz", Filters(min_per_item=2, min_per_user=1))
    assert cells(result.interactions) == {"ax": 1, "ay": 1, "bx": 1, "cy": 1}
    # z goes; then b and c, with one item each, go; x and y have one adopter each now, and stay.
    result = prepared("ax ay bx cy cz", Filters(min_per_item=2, min_per_user=2))
    assert cells(result.interactions) == {"ax": 1, "ay": 1}
    assert (result.counts["users_left_out"], result.counts["items_left_out"]) == (2, 1)


def test_users_are_counted_after_items_have_been_left_out() -> None:
    # a has two items, but y goes for want of adopters, so that a has too few.
    result = prepared("ax ay bx bz cx cz", Filters(min_per_item=2, min_per_user=2))
    assert cells(result.interactions) == {"bx": 1, "bz": 1, "cx": 1, "cz": 1}


def test_an_item_needs_distinct_adopters() -> None:
    result = prepared("ax ax ax ay by", Filters(min_per_item=2))
    assert cells(result.interactions) == {"ay": 1, "by": 1}


def test_an_item_left_without_adopters_is_left_out_with_its_rejections() -> None:
    # a goes for want of items, and x, which a alone adopted, goes with b's rejection of it.
    filters = Filters(adopt_min=4, reject_max=2, min_per_user=2)
    result = prepared("ax bx by bz", filters, value=[5, 1, 5, 5])
    assert result.interactions.items["id"].to_pylist() == ["y", "z"]
    assert cells(result.interactions, "rejected") == {}


def test_rejections_do_not_make_an_item_popular_nor_a_user_busy() -> None:
    filters = Filters(adopt_min=4, reject_max=2, min_per_item=2, min_per_user=2)
    result = prepared("ax ay bx by cx cy cz", filters, value=[5, 5, 5, 5, 1, 5, 5])
    assert cells(result.interactions) == {"ax": 1, "ay": 1, "bx": 1, "by": 1}


# Titles


def known_items(ids: Any, titles: list[str]) -> pa.Table:
    return pa.table({"id": ids, "title": pa.array(titles, pa.large_string())})


def with_titles(items: Any, table: pa.Table) -> list[tuple[Any, str | None]]:
    rows = rows_of({"user": ["a"] * len(items), "item": items}, Columns())
    data = prepare(Rows(rows.users, rows.items, item_table=table), Filters()).interactions
    return list(zip(data.items["id"].to_pylist(), data.items["title"].to_pylist(), strict=True))


def test_titles_go_to_their_items_and_an_item_without_one_has_none() -> None:
    table = known_items(pa.array(["y", "x", "unused"], pa.large_string()), ["Y", "X", "U"])
    assert with_titles(["x", "y", "z"], table) == [("x", "X"), ("y", "Y"), ("z", None)]


def test_titles_find_numbers_by_their_texts_and_the_other_way_round() -> None:
    assert with_titles(["10", "9"], known_items(pa.array([9, 10]), ["nine", "ten"])) == [("10", "ten"), ("9", "nine")]
    texts = known_items(pa.array(["9", "10", "x"], pa.large_string()), ["nine", "ten", "ex"])
    assert with_titles([10, 9], texts) == [(9, "nine"), (10, "ten")]


# The order of rows

row = st.tuples(
    st.sampled_from("abcd"), st.sampled_from("wxyz"), st.integers(0, 50).map(lambda n: n / 10), st.integers(0, 3)
)
filters_of_any_kind = st.builds(
    Filters,
    adopt_min=st.sampled_from([None, 2.5, 4]),
    reject_max=st.sampled_from([None, 1, 2]),
    min_per_item=st.integers(0, 2),
    min_per_user=st.integers(1, 2),
)


def outcome(rows: list[tuple[str, str, float, int]], filters: Filters, with_times: bool) -> Any:
    users, items, values, times = zip(*rows, strict=True)
    table = {"user": users, "item": items, "value": values, "time": times}
    try:
        result = prepare(rows_of(table, Columns(value="value", time="time" if with_times else None)), filters)
    except DataError as error:
        return str(error)
    data = result.interactions
    arrays = [part for matrix in (data.adopted, data.rejected) for part in (matrix.data, matrix.indices, matrix.indptr)]
    return result.counts, data.users.to_pydict(), data.items.to_pydict(), [array.tobytes() for array in arrays]


@settings(deadline=None)
@given(st.lists(row, min_size=1, max_size=30), filters_of_any_kind, st.booleans(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_no_bit_of_the_interactions(
    rows: list[tuple[str, str, float, int]], filters: Filters, with_times: bool, random: Any
) -> None:
    shuffled = random.sample(rows, len(rows))
    assert outcome(rows, filters, with_times) == outcome(shuffled, filters, with_times)


@settings(deadline=None)
@given(st.lists(row, min_size=1, max_size=30), st.booleans())
def test_no_pair_is_both_adopted_and_rejected_and_no_row_is_lost_from_the_counts(
    rows: list[tuple[str, str, float, int]], with_times: bool
) -> None:
    users, items, values, times = zip(*[*rows, ("e", "w", 5.0, 0)], strict=True)  # there is always one adoption
    table = {"user": users, "item": items, "value": values, "time": times}
    chosen = Columns(value="value", time="time" if with_times else None)
    result = prepare(rows_of(table, chosen), Filters(adopt_min=4, reject_max=2))
    data = result.interactions
    assert not (data.adopted.toarray().astype(bool) & data.rejected.toarray().astype(bool)).any()
    assert data.popularity().min() >= 1
    assert np.diff(data.adopted.indptr).min() >= 1
    assert set(data.rejected.data.tolist()) <= {1.0}
    assert data.n_users + result.counts["users_left_out"] == len(set(users))
    assert data.n_items + result.counts["items_left_out"] == len(set(items))
    said = {(user, item) for user, item, value in zip(users, items, values, strict=True) if not 2 < value < 4}
    silent = result.counts["rows_neither_adopted_nor_rejected"]
    assert result.counts["rows"] - silent - result.counts["duplicates_merged"] == len(said)
