"""A simulated catalogue is the same for the same seed, heavy-tailed, and consistent with its own truth."""

import dataclasses

import numpy as np
import pytest

import milrec
from milrec.data.interactions import Interactions
from milrec.data.simulation import GENRES, Simulation, simulate
from milrec.errors import DataError, SettingsError
from milrec.metrics.tail import gini

SMALL = Simulation(n_users=120, n_items=80, mean_shown=40)


def same(one: Interactions, other: Interactions) -> bool:
    if not (one.users.equals(other.users) and one.items.equals(other.items)):
        return False
    pairs = [(one.adopted, other.adopted), (one.rejected, other.rejected)]
    assert one.truth is not None and other.truth is not None
    truths = zip(vars(one.truth).values(), vars(other.truth).values(), strict=True)
    return all((left != right).nnz == 0 for left, right in pairs) and all((a == b).all() for a, b in truths)


# Seeds


def test_the_same_seed_gives_the_same_data() -> None:
    assert same(simulate(SMALL, seed=3), simulate(SMALL, seed=3))


def test_another_seed_gives_other_data() -> None:
    one, other = simulate(SMALL, seed=3), simulate(SMALL, seed=4)
    assert not one.items.equals(other.items)
    assert one.adopted.shape != other.adopted.shape or (one.adopted != other.adopted).nnz > 0


def test_the_seeds_of_others_play_no_part() -> None:
    np.random.seed(1)  # noqa: NPY002 - somebody else's seed
    one = simulate(SMALL, seed=3)
    np.random.seed(2)  # noqa: NPY002
    assert same(one, simulate(SMALL, seed=3))


# Sizes


def test_the_catalogue_has_about_the_size_asked_for(small_catalogue: Interactions) -> None:
    """300 users and 120 items were asked for; users with fewer than 5 items and items without adopters go."""
    assert 200 <= small_catalogue.n_users <= 300
    assert 110 <= small_catalogue.n_items <= 120
    assert np.diff(small_catalogue.adopted.indptr).min() >= 5
    assert small_catalogue.popularity().min() >= 1


def test_adopted_and_rejected_pairs_are_distinct_and_of_weight_1(small_catalogue: Interactions) -> None:
    assert set(small_catalogue.adopted.data.tolist()) == {1.0}
    assert set(small_catalogue.rejected.data.tolist()) == {1.0}
    assert small_catalogue.adopted.multiply(small_catalogue.rejected).nnz == 0


def test_the_more_is_shown_the_more_is_adopted() -> None:
    few, many = (simulate(dataclasses.replace(SMALL, mean_shown=shown), seed=0) for shown in (20, 60))
    assert many.adopted.nnz > 1.5 * few.adopted.nnz


def test_nothing_is_rejected_where_nobody_says_so() -> None:
    assert simulate(dataclasses.replace(SMALL, rejection_rate=0), seed=0).rejected.nnz == 0
    assert simulate(dataclasses.replace(SMALL, rejection_rate=1), seed=0).rejected.nnz > 0


def test_users_beyond_the_first_block_of_2000_are_like_the_others() -> None:
    data = simulate(Simulation(n_users=2_500, n_items=100, mean_shown=60), seed=0)
    numbers = np.array([int(name.removeprefix("u")) for name in data.users["id"].to_pylist()])
    first, second = (numbers <= 2_000), (numbers > 2_000)
    assert len(set(numbers)) == data.n_users
    assert first.sum() / 2_000 == pytest.approx(second.sum() / 500, abs=0.1)  # as many have five items
    adopted = np.diff(data.adopted.indptr)
    assert adopted[first].mean() == pytest.approx(adopted[second].mean(), rel=0.2)


@pytest.mark.parametrize(("n_users", "n_items"), [(1, 10), (10, 1), (0, 0), (-5, 10)])
def test_too_small_a_catalogue_is_refused(n_users: int, n_items: int) -> None:
    with pytest.raises(SettingsError, match="needs at least 2 users and 2 items"):
        Simulation(n_users=n_users, n_items=n_items)


def test_a_catalogue_in_which_nobody_can_adopt_five_items_is_refused() -> None:
    with pytest.raises(DataError, match=r"the simulation.* has no adopted items left"):
        simulate(Simulation(n_users=2, n_items=2), seed=0)


@pytest.mark.parametrize(
    "setting",
    [
        {"mean_shown": -1.0},
        {"mean_shown": float("nan")},
        {"rejection_rate": 1.5},
        {"rejection_rate": -0.5},
        {"browsing": 2.0},
    ],
)
def test_a_setting_out_of_range_is_refused(setting: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        simulate(dataclasses.replace(SMALL, **setting), seed=0)


# Titles


def test_ids_titles_and_genres_are_texts_that_a_person_can_read(small_catalogue: Interactions) -> None:
    assert small_catalogue.users["id"].to_pylist() == sorted(small_catalogue.users["id"].to_pylist())
    assert small_catalogue.items["id"].to_pylist()[0].startswith("i")
    for title, genres in zip(*(small_catalogue.items[name].to_pylist() for name in ("title", "genres")), strict=True):
        assert title.startswith("The ") and title.endswith(")")
        assert 1 <= len(genres.split("|")) <= 2
        assert set(genres.split("|")) <= set(GENRES)


def test_titles_are_distinct_even_where_there_are_thousands() -> None:
    titles = simulate(Simulation(n_users=200, n_items=5_000, mean_shown=400), seed=1).items["title"].to_pylist()
    assert len(titles) > 3_500
    assert len(set(titles)) == len(titles)


# The truth


def test_the_truth_has_a_row_for_every_user_and_item(small_catalogue: Interactions) -> None:
    truth = small_catalogue.truth
    assert truth is not None
    assert truth.user_factors.shape == (small_catalogue.n_users, len(GENRES))
    assert truth.item_factors.shape == (small_catalogue.n_items, len(GENRES))
    assert truth.item_offsets.shape == (small_catalogue.n_items,)
    preference = truth.preference(slice(None))
    assert preference.shape == small_catalogue.adopted.shape
    assert preference.min() > 0 and preference.max() < 1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_adopted_pairs_are_truly_preferred_and_rejected_ones_are_not(seed: int) -> None:
    data = simulate(Simulation(n_users=300, n_items=120, mean_shown=60), seed=seed)
    assert data.truth is not None
    preference = data.truth.preference(slice(None))
    adopted, rejected = data.adopted.toarray() > 0, data.rejected.toarray() > 0
    missing = ~adopted & ~rejected
    assert preference[adopted].mean() > preference[missing].mean() + 0.2
    assert preference[rejected].mean() < preference[missing].mean()


def test_many_missing_items_would_have_been_liked(small_catalogue: Interactions) -> None:
    """The reason for it all: missing is not disliked."""
    assert small_catalogue.truth is not None
    missing = (small_catalogue.adopted + small_catalogue.rejected).toarray() == 0
    liked = small_catalogue.truth.preference(slice(None)) > 0.5
    assert 0.1 < liked[missing].mean() < 0.5


def test_popularity_is_heavy_tailed() -> None:
    data = milrec.simulate(Simulation(n_users=400, n_items=400, mean_shown=100), seed=0)
    popularity = np.sort(data.popularity())[::-1]
    top_tenth = popularity[: len(popularity) // 10].sum() / popularity.sum()
    assert top_tenth > 0.3  # a tenth of the items has more than three times its share
    assert np.median(popularity) < 0.75 * popularity.mean()
    assert gini(popularity) > 0.45


def test_without_an_exposure_exponent_the_tail_is_lighter() -> None:
    heavy, light = (
        simulate(Simulation(n_users=300, n_items=300, mean_shown=60, exposure_exponent=exponent), seed=0)
        for exponent in (0.9, 0.0)
    )
    assert gini(heavy.popularity()) > gini(light.popularity()) + 0.1
