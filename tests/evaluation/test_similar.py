"""Lists of similar items, judged by what users adopted together in a held-out part."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import milrec
from conftest import real_data
from milrec.data.splits import Audience, HeldOut
from milrec.errors import DataError, SettingsError
from milrec.evaluation.similar import judge_similar
from milrec.lists.nearness import CoAdoption

LISTS = {0: [1], 1: [0, 2], 2: [3], 3: []}
POPULARITY = np.array([1, 4, 16, 100])


def held_out(rows: list[list[int]], n_items: int = 4) -> HeldOut:
    users = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    items = np.array([item for row in rows for item in row], dtype=np.int64)
    targets = csr_array((np.ones(len(items), dtype=np.float32), (users, items)), shape=(len(rows), n_items))
    nothing = csr_array(targets.shape, dtype=np.float32)
    return HeldOut(Audience(nothing, nothing, nothing, np.arange(len(rows))), targets, nothing, 0)


def similar(item: int) -> np.ndarray:
    return np.array(LISTS[item], dtype=np.int64)


def test_a_pair_counts_once_in_each_direction_and_less_the_more_popular_its_second_item_is():
    found = judge_similar(similar, held_out([[0, 1], [0, 1, 2], [3]]), POPULARITY, n=2)
    first = 1.0  # 0 is listed for 1, and 1 for 0
    second = (1 + 1 / 2 + 1 / 4) / (2 * (1 + 1 / 2 + 1 / 4))  # 0→1, 1→0, 1→2, out of these and 0→2, 2→0, 2→1
    assert found.measures["similar_hit_rate@2"] == pytest.approx((first + second) / 2)
    assert found.measures["similar_plain_hit_rate@2"] == pytest.approx((1 + 3 / 6) / 2)
    assert (found.n_users, found.n_items, found.n_pairs) == (2, 3, 8)


def test_only_the_first_items_of_a_list_count():
    found = judge_similar(similar, held_out([[1, 2], [0, 1]]), POPULARITY, n=1)
    assert found.per_user["similar_plain_hit_rate@1"].tolist() == [0.0, 1.0]


def test_the_interval_holds_the_mean_and_is_the_same_every_time():
    part = held_out([[0, 1], [1, 2], [2, 3], [0, 1, 2, 3]] * 10)
    first, second = (judge_similar(similar, part, POPULARITY, n=2) for _ in range(2))
    low, high = first.intervals["similar_hit_rate@2"]
    assert low < first.measures["similar_hit_rate@2"] < high
    assert first.as_json() == second.as_json()


def test_without_two_held_out_items_of_a_user_there_is_nothing_to_judge():
    with pytest.raises(DataError, match="no user has two held-out items"):
        judge_similar(similar, held_out([[0], [1]]), POPULARITY)


def test_ease_is_judged_and_popularity_is_refused(small_catalogue):
    split = milrec.split_interactions(small_catalogue, seed=0)
    model = milrec.fit(split, "ease")
    found = model.evaluate_similar(split, n=5)
    assert set(found.measures) == {"similar_hit_rate@5", "similar_plain_hit_rate@5"}
    assert all(0 < value < 1 for value in found.measures.values())
    assert model.evaluate_similar(split, "validation", n=5).measures != found.measures
    with pytest.raises(SettingsError, match="a popularity model has no item factors"):
        milrec.fit(split, "popularity").evaluate_similar(split)


def test_on_movielens_similar_items_are_no_worse_than_shrunk_co_occurrence():
    split = milrec.split_interactions(milrec.read(real_data("ml-100k")), seed=0)
    popularity, together = split.train.popularity(), CoAdoption(split.train.adopted)

    def co_occurrence(item: int) -> np.ndarray:
        counts = together.with_item(item).counts.astype(np.float64)
        return np.argsort(-counts / np.sqrt(popularity) * counts / (counts + 30), kind="stable")[:20]

    bar = judge_similar(co_occurrence, split.test, popularity)
    found = milrec.fit(split, "ease-sparse").evaluate_similar(split)
    assert found.measures["similar_hit_rate@20"] >= bar.measures["similar_hit_rate@20"]
