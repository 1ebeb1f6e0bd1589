"""Which columns are read is never a guess between two."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import milrec
from milrec.data.reading.columns import Columns, chosen_columns, listed, refuse_repeated, title_columns
from milrec.data.reading.tables import rows_of
from milrec.data.reading.titles import read_titles
from milrec.errors import DataError, cut
from milrec.storage import open_folder


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["user", "User", "item"], "'user' and 'User' are both columns of the table; choose one with `user`"),
        (["item", "userId", "USERID"], "'userId' and 'USERID' are both columns of the table; choose one with `user`"),
        (["user", "item", " item "], "'item' and ' item ' are both columns of the table; choose one with `item`"),
    ],
)
def test_columns_that_differ_only_in_case_or_spaces_are_not_chosen_between(names: list[str], sentence: str) -> None:
    with pytest.raises(DataError) as error:
        chosen_columns(Columns(), names, "the table")
    assert str(error.value) == sentence


def test_a_column_that_is_named_exactly_is_read(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("user,User,item\na,b,x\n")
    assert milrec.read(tmp_path / "table.csv", user="User").users["id"].to_pylist() == ["b"]
    assert milrec.read(tmp_path / "table.csv", user="user").users["id"].to_pylist() == ["a"]
    with pytest.raises(DataError, match="'user' and 'User' are both columns"):
        milrec.read(tmp_path / "table.csv")


def test_the_first_known_name_is_chosen_and_said() -> None:
    rows = rows_of({"customer": [1], "User_ID": [2], "item": [3], "n": [4], "t": [5]}, Columns(value="n", time="t"))
    assert rows.users.to_pylist() == [2]
    assert rows.columns.facts() == {
        "user_column": "User_ID", "item_column": "item", "value_column": "n", "time_column": "t",
    }  # fmt: skip


def test_the_library_says_which_columns_it_read_and_keeps_them_in_the_folder(tmp_path: Path) -> None:
    data = milrec.read({"userId": [1, 1], "movieId": [2, 3], "test": [0, 1]}, where={"test": 0})
    expected = {"user_column": "userId", "item_column": "movieId", "rows_in_source": 2, "rows_left_out_by_where": 1}
    assert {name: data.reading[name] for name in expected} == expected
    data.save(tmp_path / "data")
    facts = open_folder(tmp_path / "data", "data").facts
    assert {name: facts[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["item", "Item", "title"], "'item' and 'Item' are both columns of the table; choose one with `item`"),
        (["item", "title", "Title"], "'title' and 'Title' are both columns of the table; rename one of them"),
        (["item", "title", "genre", "Genre"], "'genre' and 'Genre' are both columns of the table; rename one of them"),
    ],
)
def test_columns_of_titles_are_not_chosen_between_either(names: list[str], sentence: str) -> None:
    with pytest.raises(DataError) as error:
        title_columns(None, names, "the table")
    assert str(error.value) == sentence


def test_the_item_column_of_titles_may_be_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"item": [1], "Item": [2], "title": ["A"]}), tmp_path / "titles.parquet")
    assert read_titles(tmp_path / "titles.parquet", "Item")["id"].to_pylist() == [2]
    with pytest.raises(DataError, match="'item' and 'Item' are both columns"):
        read_titles(tmp_path / "titles.parquet")


class Name(str):
    """A name that counts how often it is compared with another."""

    __slots__ = ()
    __hash__ = str.__hash__
    n_compared = 0

    def __eq__(self, other: Any) -> bool:
        Name.n_compared += 1
        return str.__eq__(self, other)


def test_names_of_20_000_columns_are_looked_up_and_not_compared_with_each_other() -> None:
    """Once 400 million comparisons: ten seconds for a small file."""
    names = [Name(f"column {number}") for number in range(20_000)]
    names += [Name("user"), Name("item")]
    Name.n_compared = 0
    refuse_repeated(names, "the table")
    assert chosen_columns(Columns(), names, "the table").user == "user"
    assert Name.n_compared < 10 * len(names)


def test_a_table_of_20_000_columns_is_read(tmp_path: Path) -> None:
    wide = [f"c{number}" for number in range(20_000)]
    (tmp_path / "wide.csv").write_text(",".join(["user", "item", *wide]) + "\n" + ",".join(["a", "b", *wide]) + "\n")
    assert milrec.read(tmp_path / "wide.csv").users["id"].to_pylist() == ["a"]
    with pytest.raises(DataError) as error:
        milrec.read(tmp_path / "wide.csv", user="nobody")
    assert str(error.value).endswith("c17 and 19,982 more")


def test_a_text_from_a_file_is_shown_on_one_line_and_not_in_full() -> None:
    assert cut("naïve 日本") == "naïve 日本"
    assert cut("a\nb\x1b[2J\udc80") == "a\\nb\\x1b[2J\\udc80"
    assert cut("x" * 100) == "x" * 79 + "…"
    assert listed(["a", "b\t", "c"], most=2) == "a, b\\t and 1 more"
