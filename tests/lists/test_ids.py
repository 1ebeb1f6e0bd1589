"""An unknown id is an error that says what may have been meant."""

from typing import Any

import pyarrow as pa
import pytest

import milrec
from milrec.errors import SettingsError, UnknownIdError, unknown
from milrec.lists.catalogue import refuse_unknown
from milrec.lists.query import Query
from milrec.lists.search.ids import Ids
from milrec.suggestions import close_ids, close_names, did_you_mean


@pytest.fixture(scope="module")
def recommender() -> milrec.Recommender:
    users = [f"u{number:04d}" for number in range(30)]
    rows = [(user, item) for place, user in enumerate(users) for item in (1, 2, 30) if (place + item) % 3]
    data = milrec.read({"user": [user for user, _ in rows], "item": [item for _, item in rows]})
    titles = pa.array(["Toy Story (1995)", "Heat (1995)", "Alien"], type=pa.string())
    items = data.items.append_column("title", titles)
    data = milrec.Interactions(data.adopted, data.rejected, data.users, items)
    return milrec.fit(milrec.split_interactions(data, seed=0, held_out=0.0), "popularity")


@pytest.mark.parametrize(
    ("user", "sentence"),
    [
        ("u001", "unknown user 'u001'; did you mean 'u0001', 'u0011' or 'u0021'?"),
        ("U0007", "unknown user 'U0007'; did you mean 'u0007'?"),
        ("u00012", "unknown user 'u00012'; did you mean 'u0012', 'u0002' or 'u0001'?"),
        (" u0005 ", "unknown user ' u0005 '; did you mean 'u0005'?"),
        ("nobody", "unknown user 'nobody'; for a new user, give adopted items and no user"),
    ],
)
def test_an_unknown_user_is_told_of_close_ids_in_the_library_but_not_over_http(recommender, user, sentence):
    for ask in (recommender.recommend, recommender.recommend_arrays, lambda users: recommender.user_items(users[0])):
        with pytest.raises(UnknownIdError) as found:
            ask([user])
        assert str(found.value) == sentence
    with pytest.raises(UnknownIdError) as found:
        recommender.ask(Query(user))  # what the server asks
    assert str(found.value) == f"unknown user '{user}'; for a new user, give adopted items and no user"


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        ("Toy Story (1995)", "unknown item 'Toy Story (1995)'; its id is '1'"),
        ("toy story (1995)", "unknown item 'toy story (1995)'; its id is '1'"),
        ("001", "unknown item '001'; did you mean '1'?"),
        ("Toy Stroy", "unknown item 'Toy Stroy'; did you mean 'Toy Story (1995)' (id '1')?"),
        ("1995", "unknown item '1995'; did you mean 'Toy Story (1995)' (id '1') or 'Heat (1995)' (id '2')?"),
        ("zzz", "unknown item 'zzz': the items here are whole numbers"),
    ],
)
def test_a_title_in_place_of_an_id_is_answered_with_its_id(recommender, item, sentence):
    with pytest.raises(UnknownIdError) as found:
        recommender.recommend_new([item])
    assert str(found.value) == sentence


def test_of_items_with_the_same_title_the_most_popular_is_named_whatever_the_case():
    users, items = zip(*[(user, item) for item, n in ((1, 1), (2, 3), (3, 2)) for user in range(n)], strict=True)
    data = milrec.read({"user": list(users), "item": list(items)})
    titled = data.items.append_column("title", pa.array([" ÄON ", "äon", None], type=pa.large_string()))
    data = milrec.Interactions(data.adopted, data.rejected, data.users, titled)
    known = milrec.fit(milrec.split_interactions(data, seed=0, held_out=0.0), "popularity")
    with pytest.raises(UnknownIdError, match="unknown item ' Äon'; its id is '2'"):
        known.recommend_new([" Äon"])
    with pytest.raises(UnknownIdError, match="unknown item ' '"):
        known.recommend_new([" "])


def test_ids_are_refused_before_the_weights_are_read(recommender, tmp_path):
    recommender.save(tmp_path / "model")
    (tmp_path / "model" / "weights.safetensors").unlink()
    with pytest.raises(UnknownIdError, match="did you mean 'u0001'"):
        refuse_unknown(tmp_path / "model", users=["u001"])
    with pytest.raises(UnknownIdError, match="its id is '30'"):
        refuse_unknown(tmp_path / "model", items=["alien"])
    refuse_unknown(tmp_path / "model", users=["u0001"], items=[1, "30"])


def test_close_ids_cost_the_same_whatever_is_known():
    class Known:
        asked = 0

        def __contains__(self, one: object) -> bool:
            self.asked += 1
            return False

    known = Known()
    assert close_ids("a" * 40, known) == [] and known.asked < 5000
    assert close_ids("a" * 41, known) == []
    assert close_ids("ab", {"ac", "abc"}) == []  # too short to guess at


def test_a_space_left_out_is_a_typo_like_others():
    assert close_ids("user3", {"user 3", "user 4"}) == ["user 3"]


def test_suggestions_read_as_a_question():
    assert did_you_mean([]) == ""
    assert did_you_mean(["a"]) == "did you mean 'a'?"
    assert did_you_mean(["a", "b", "c"]) == "did you mean 'a', 'b' or 'c'?"
    assert close_names("popularty", ["popularity", "ease"]) == ["popularity"]
    assert unknown("loss", "mill", ["mil"]) == "unknown loss 'mill' (did you mean 'mil'?); known losses: mil"
    assert unknown("model", "x", ["dae"]) == "unknown model 'x'; known models: dae"


def test_a_misspelt_setting_names_the_one_that_was_meant():
    with pytest.raises(SettingsError, match=r"unknown setting 'epoch' .*\(did you mean 'epochs'\?\); known settings: "):
        milrec.settings_for("dae", values={"epoch": 3})
    with pytest.raises(SettingsError, match=r"unknown model 'eas' \(did you mean 'ease'"):
        milrec.settings_for("eas")


def ids(what: str, *values: Any) -> Ids:
    return Ids(pa.chunked_array([pa.array(values)]), what)


def test_ids_are_found_in_the_order_asked_for() -> None:
    assert ids("user", "a", "b", "c").numbers(["c", "a", "c"]).tolist() == [2, 0, 2]
    assert ids("user", "a", "b", "c").numbers([]).tolist() == []


def test_the_text_of_a_whole_number_finds_it_and_the_other_way_round() -> None:
    assert ids("item", 7, 8).numbers(["8", 7]).tolist() == [1, 0]
    assert ids("item", "7", "8").numbers([8, "7"]).tolist() == [1, 0]


def test_an_unknown_id_is_named() -> None:
    with pytest.raises(UnknownIdError, match=r"^unknown users 'x', 'y'$"):
        ids("user", "a", "b").numbers(["x", "a", "y"])
    with pytest.raises(UnknownIdError, match=r"'u4' and 2 more$"):
        ids("user", "a", "b").numbers([f"u{number}" for number in range(7)])
    with pytest.raises(UnknownIdError, match="unknown item 'Alien': the items here are whole numbers"):
        ids("item", 1, 2).numbers(["Alien"])


@pytest.mark.parametrize("wanted", [None, 1.0, True, "", " ", "1.0", "0x1"])
def test_what_is_no_whole_number_is_unknown_among_whole_numbers(wanted: Any) -> None:
    with pytest.raises(UnknownIdError):
        ids("item", 0, 1, 2).numbers([wanted])


@pytest.mark.parametrize("wanted", [10**20, -(10**20), str(2**63)])
def test_a_number_beyond_64_bits_is_an_unknown_id(wanted: Any) -> None:
    with pytest.raises(UnknownIdError):
        ids("item", 0, 1, 2).numbers([wanted])


def test_a_text_that_is_not_unicode_is_an_unknown_id() -> None:
    """JSON can say "\\ud800", so a request to the server can too."""
    with pytest.raises(UnknownIdError):
        ids("item", "a", "b").numbers(["\ud800"])
