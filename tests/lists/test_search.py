"""Items by title or id, users by the beginning of their id."""

from functools import cache

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milrec
from milrec.errors import SettingsError
from milrec.lists.search.texts import Texts
from milrec.lists.search.words import Vocabulary, typos_forgiven

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
        ("atrix", [1, 2]),  # no such word: a typo is forgiven
        ("matirx", [1, 2]),
        ("the matirx", [1, 2]),
        ("amleie", [3]),
        ("reloded", [2]),
        ("mtarimny", [7]),  # two typos in a long word
        ("matrimonies", []),
        ("wlal e", [6]),  # swapped letters
        ("wal e", [6]),  # the beginning of a word, so no typo
        ("eall a", []),
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
    assert table.column_names == ["item", "title", "popularity", "interval"]
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


def test_of_titles_with_typos_the_closest_come_first_and_then_the_popular():
    vocabulary = Texts(["Alien", "Aliens", "Aline", "Alibi", "Arizona Dream"])
    found, distances = vocabulary.near("alein")
    assert dict(zip(found.tolist(), distances.tolist(), strict=True)) == {0: 1.0, 1: 1.5, 2: 1.5}
    assert vocabulary.near("arizna draem")[0].tolist() == [4]
    assert vocabulary.near("")[0].tolist() == [] and vocabulary.near("!")[0].tolist() == []


def test_the_title_itself_comes_first_then_whole_words_then_beginnings():
    titles = [
        "The Great Tune 61",
        "My Great Tune 6, the Second",
        "the great túne 6",
        "The Great Tune 6: Again",
        "Tunes",
    ]
    found, steps = Texts(titles).matching("The Great Tune 6")
    assert dict(zip(found.tolist(), steps.tolist(), strict=True)) == {0: 3, 1: 2, 2: 0, 3: 1}
    found, steps = Texts(["All Tunes", "Old Tune", "Tunes", "Tune Two", "Tune"]).matching("tune")
    assert found.tolist() == [0, 1, 2, 3, 4] and steps.tolist() == [4, 2, 3, 1, 0]


def test_an_exact_title_comes_before_more_popular_ones():
    pairs = [("Tune 6", 1), ("Tune 61", 9), ("Tune 62", 8), ("A Tune 6", 2)]
    ids = [f"i{place}" for place in range(len(pairs))]
    table = [(f"u{user}", item) for item, (_, n) in zip(ids, pairs, strict=True) for user in range(n)]
    data = milrec.read({"user": [user for user, _ in table], "item": [item for _, item in table]})
    titles = {item: title for item, (title, _) in zip(ids, pairs, strict=True)}
    items = data.items.append_column("title", pa.array([titles[one] for one in data.items["id"].to_pylist()]))
    data = milrec.Interactions(data.adopted, data.rejected, data.users, items)
    tunes = milrec.fit(milrec.split_interactions(data, seed=0, held_out=0.0), "popularity")
    assert tunes.find_items("tune 6")["title"].to_pylist() == ["Tune 6", "A Tune 6", "Tune 61", "Tune 62"]


def test_a_letter_in_the_wrong_place_is_forgiven_like_a_typo():
    assert Texts(["The Great Tune", "The Grand Tune"]).near("grate")[0].tolist() == [0]
    assert Texts(["Great", "Grater"]).near("grate")[1].tolist() == [1.5, 0.5]
    assert Texts(["Team"]).near("meat")[0].tolist() == []  # two letters out of place
    assert Texts(["Abba"]).near("baab")[0].tolist() == []


def test_if_nothing_else_is_found_a_typo_in_an_id_is_forgiven():
    pairs = {"user": ["u1", "u1", "u2"], "item": ["alpha-0012", "beta-0012", "alpha-0012"]}
    data = milrec.read(pairs)
    titles = pa.array(["One", "Two"], type=pa.string())
    data = milrec.Interactions(data.adopted, data.rejected, data.users, data.items.append_column("title", titles))
    recommender = milrec.fit(milrec.split_interactions(data, seed=0, held_out=0.0), "popularity")
    assert recommender.find_items("alpha-0021")["item"].to_pylist() == ["alpha-0012"]
    assert recommender.find_items("ALPHA-0012")["item"].to_pylist() == ["alpha-0012"]
    assert recommender.find_items("gamma-0012")["item"].to_pylist() == []


def test_short_words_must_be_right(titled):
    assert Texts(["Up", "Us", "Heat", "Seat"]).near("uq")[0].tolist() == []
    assert Texts(["Up", "Us", "Heat", "Seat"]).near("beat")[0].tolist() == [2, 3]


def test_typos_are_looked_for_no_further_once_no_text_can_match(monkeypatch):
    asked, near = [], Vocabulary.near

    def noted(self, word):
        asked.append(word)
        return near(self, word)

    monkeypatch.setattr(Vocabulary, "near", noted)
    assert Texts(["Alien", "Heat"]).near("zzzz alein heta")[0].tolist() == []
    assert asked == ["zzzz"]
    assert Texts(["Alien Heat"]).near("alein heta")[0].tolist() == [0]
    assert asked[1:] == ["alein", "heta"]


def test_a_long_search_or_a_large_catalogue_has_to_be_spelt_right(monkeypatch):
    titles = Texts(["Alien", "one two three four"])
    assert titles.near("one two trhee fuor")[0].tolist() == [1]
    assert titles.near("one two trhee fuor alein")[0].tolist() == []
    monkeypatch.setattr("milrec.lists.search.texts._MOST_TEXTS", 1)
    assert titles.near("alein")[0].tolist() == [] and titles.matching("alien")[0].tolist() == [0]


@given(word=st.text("ab", min_size=12, max_size=30), typo=st.integers(0, 11))
def test_words_longer_than_what_is_compared_are_near_to_themselves_with_a_typo(word, typo):
    found, distances = Vocabulary([word]).near(f"{word[:typo]}x{word[typo + 1 :]}")
    assert found.tolist() == [0] and distances.tolist() == [1.0]


@given(word=st.text("abcd", min_size=4, max_size=9), others=st.lists(st.text("abcd", min_size=1, max_size=10)))
def test_words_are_near_if_and_only_if_few_edits_make_one_of_them_the_beginning_of_the_other(word, others):
    vocabulary, typos = Vocabulary(others), typos_forgiven(word)
    found = dict(zip(*(part.tolist() for part in vocabulary.near(word)), strict=True))
    for number, other in enumerate(others):
        begins = min(edits(word, other[:length]) for length in range(len(other) + 1)) + 0.5
        nearest = min(edits(word, other), begins, 1.5 if one_letter_moves(word, other) else begins)
        assert found.get(number) == (nearest if nearest < typos + 1 else None), (word, other)


def one_letter_moves(word: str, other: str) -> bool:
    """By the definition: a letter is taken out and put in somewhere else."""
    places = range(len(word))
    rests = [(word[:at] + word[at + 1 :], word[at]) for at in places]
    return any(rest[:to] + letter + rest[to:] == other for rest, letter in rests for to in places)


@cache
def edits(one: str, other: str) -> int:
    """Letters left out, put in, replaced or swapped with the next: by the definition, slowly."""
    if not one or not other:
        return len(one) + len(other)
    last = [edits(one[:-1], other) + 1, edits(one, other[:-1]) + 1]
    last.append(edits(one[:-1], other[:-1]) + (one[-1] != other[-1]))
    if one[-2:] == other[-2:][::-1] and len(one) > 1 and len(other) > 1:
        last.append(edits(one[:-2], other[:-2]) + 1)
    return min(last)


def test_a_search_for_nothing_at_all_is_refused(titled):
    for search in (titled.find_items, titled.find_users):
        with pytest.raises(SettingsError, match="a whole number of 1 or more, not 0"):
            search("a", 0)


@given(text=st.text(max_size=20), titles=st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_every_text_is_found_by_itself_and_no_text_does_harm(text, titles):
    texts = Texts(titles)
    found, steps = texts.matching(text)
    assert len(found) == len(steps) and all(0 <= number < len(titles) for number in found)
    for number, title in enumerate(titles):
        found, steps = texts.matching(title)
        assert steps[found.tolist().index(number)] == 0


def test_space_around_a_title_does_not_count():
    found, steps = Texts(["\r{", "a {", "{ a"]).matching("\r{")
    assert found.tolist() == [0, 1, 2] and steps.tolist() == [0, 2, 1]


def test_no_column_of_a_table_hides_a_method_of_pandas(checkerboard):
    pandas = pytest.importorskip("pandas")
    recommender = milrec.fit(milrec.split_interactions(checkerboard, seed=0), model="ease")
    one = recommender.item_ids[0]
    tables = [
        recommender.recommend(recommender.user_ids[:2], n=3, reasons=1),
        recommender.recommend_new([one], n=3),
        recommender.similar_items(one),
        recommender.find_items(str(one)),
        recommender.user_items(recommender.user_ids[0]),
    ]
    for table in tables:
        assert not [name for name in table.column_names if hasattr(pandas.DataFrame, name)]
