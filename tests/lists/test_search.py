"""Items by title or id, users by the beginning of their id."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milrec
from milrec.errors import SettingsError
from milrec.lists.catalogue import Texts

TITLES = {
    1: "The Matrix",
    2: "Matrix Reloaded, The",
    3: "Amélie",
    4: "Straße nach Süden",
    5: "!!!",
    6: "Wall-E",
    7: "Matrimony",
    8: None,
    12: "Twelve",
}
POPULARITY = {1: 4, 2: 3, 3: 2, 4: 1, 5: 1, 6: 1, 7: 5, 8: 2, 12: 6}


def catalogue(titles) -> milrec.Recommender:
    pairs = [(f"u{user}", item) for item, adopters in POPULARITY.items() for user in range(adopters)]
    table = {"user": [user for user, _ in pairs], "item": [item for _, item in pairs]}
    data = milrec.read(pa.table(table))
    if titles:
        ids = data.items["id"].to_pylist()
        items = data.items.append_column("title", pa.array([TITLES[one] for one in ids], type=pa.string()))
        data = milrec.Interactions(data.adopted, data.rejected, data.users, items)
    return milrec.fit(milrec.split_interactions(data, seed=0, held_out=0.0), "popularity")


@pytest.fixture(scope="module")
def titled():
    return catalogue(titles=True)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("matrix", [2, 1]),  # a title that begins with it before a more popular one
        ("MATR", [7, 2, 1]),
        ("the matr", [1, 2]),  # all words, in any order
        ("amelie", [3]),
        ("AMÉLIE", [3]),
        ("strasse sud", [4]),
        ("wall e", [6]),
        ("wall-e", [6]),
        ("atrix", []),
        ("matrix nothing", []),
        ("!!!", [5]),
        ("1", [1]),  # an id
        (" 12 ", [12]),
        ("8", [8]),  # what has no title goes by its id
        ("", [12, 7, 1, 2, 3, 8, 4, 5, 6]),
        (".*", []),
        ("\ud800", []),  # half a character, as JSON may hold
    ],
)
def test_items_are_found_by_the_beginnings_of_words(titled, text, items):
    table = titled.find_items(text)
    assert table.column_names == ["item", "title", "popularity", "tail"]
    assert table["item"].to_pylist() == items
    assert table["popularity"].to_pylist() == [POPULARITY[item] for item in items]
    assert titled.find_items(text, 1)["item"].to_pylist() == items[:1]


def test_without_titles_items_are_found_by_id():
    bare = catalogue(titles=False)
    assert bare.find_items("1")["item"].to_pylist() == [1, 12]
    assert bare.find_items("12")["item"].to_pylist() == [12]


def test_users_are_found_by_the_beginning_of_their_id(titled):
    assert titled.find_users("u") == [f"u{user}" for user in range(6)]
    assert titled.find_users("u", 2) == ["u0", "u1"]
    assert titled.find_users("u3") == ["u3"] and titled.find_users("3") == titled.find_users("\ud800") == []
    numbers = milrec.read({"user": [5, 50, 500, 51, 7], "item": [1, 1, 1, 1, 1]})
    recommender = milrec.fit(milrec.split_interactions(numbers, seed=0, held_out=0.0), "popularity")
    assert recommender.find_users("50") == [50, 500]
    assert recommender.find_users("5", 2) == [5, 50]
    assert recommender.find_users("500") == [500]


def test_a_search_for_nothing_at_all_is_refused(titled):
    for search in (titled.find_items, titled.find_users):
        with pytest.raises(SettingsError, match="a whole number from 1 up, not 0"):
            search("a", 0)


@given(text=st.text(max_size=20), titles=st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_every_text_is_found_by_itself_and_no_text_does_harm(text, titles):
    texts = Texts(titles)
    found, begins = texts.matching(text)
    assert len(found) == len(begins) and all(0 <= number < len(titles) for number in found)
    for number, title in enumerate(titles):
        found, begins = texts.matching(title)
        assert begins[found.tolist().index(number)] or not title.strip()


def test_space_around_a_title_does_not_count():
    found, begins = Texts(["\r{", "a {"]).matching("\r{")
    assert found.tolist() == [0, 1] and begins.tolist() == [True, False]
