"""Which reader a file gets, and which filters."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import milrec
from conftest import real_data
from milrec.data.filters import Filters
from milrec.data.reading.columns import Columns
from milrec.data.reading.formats import FORMATS
from milrec.data.reading.read import parse_conditions, prepare_source, read_source, recognised_format
from milrec.errors import DataError

FIVE_RATINGS = "userId,movieId,rating,timestamp\n" + "".join(f"1,{movie},5,0\n" for movie in range(1, 6))
MOVIES = "movieId,title,genres\n" + "".join(f"{movie},Title {movie},Drama\n" for movie in range(1, 6))


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# Formats


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.csv", "csv"), ("a.tsv", "csv"), ("a.txt", "csv"), ("a.csv.gz", "csv"), ("a.tsv.gz", "csv"),
        ("A.CSV", "csv"), ("2024.01.sales.csv", "csv"), ("a.parquet", "parquet"), ("a.pq", "parquet"),
        ("u.data", "movielens"), ("ratings.dat", "movielens"), ("usersha1-artmbid-artname-plays.tsv", "lastfm"),
    ],
)  # fmt: skip
def test_a_file_is_recognised_by_its_name(tmp_path: Path, name: str, format: str) -> None:
    assert recognised_format(written(tmp_path / name, "x")) == format


@pytest.mark.parametrize("name", ["data", "a.xlsx", "a.json"])
def test_a_name_that_says_nothing_asks_for_the_format(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        DataError, match="does not show its format; choose a `format`: csv, parquet, movielens, netflix, lastfm"
    ):
        recognised_format(written(tmp_path / name, "x"))


def test_a_folder_without_a_known_data_set_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "thesis.tex", "x")
    with pytest.raises(DataError, match="does not look like a known data set; choose a `format`: csv"):
        recognised_format(tmp_path)


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    source = written(tmp_path / "a.csv", "user,item\na,b\n")
    with pytest.raises(DataError, match=f"unknown format 'excel'; known formats: {', '.join(sorted(FORMATS))}"):
        read_source(source, format="excel")


def test_a_format_that_is_said_goes_before_the_name(tmp_path: Path) -> None:
    source = written(tmp_path / "export", "user,item\nann,x\n")
    format, rows = read_source(source, format="csv")
    assert (format, rows.users.to_pylist()) == ("csv", ["ann"])


@pytest.mark.parametrize("format", ["auto", *FORMATS])
def test_a_source_that_is_not_there_is_named(tmp_path: Path, format: str) -> None:
    with pytest.raises(DataError, match=r"there is no file or folder '.*absent'"):
        read_source(tmp_path / "absent", format=format)


@pytest.mark.parametrize("format", ["movielens", "netflix", "lastfm"])
def test_a_table_said_to_be_an_archive_is_refused(tmp_path: Path, format: str) -> None:
    with pytest.raises(DataError):
        read_source(written(tmp_path / "a.csv", "user,item\na,b\n"), format=format)


@pytest.mark.parametrize("format", ["csv", "lastfm", "movielens", "netflix", "parquet"])
def test_an_empty_folder_is_refused_in_every_format(tmp_path: Path, format: str) -> None:
    with pytest.raises(DataError):
        read_source(tmp_path, format=format)


def test_the_columns_of_an_archive_cannot_be_chosen(tmp_path: Path) -> None:
    written(tmp_path / "ml" / "ratings.csv", FIVE_RATINGS)
    written(tmp_path / "ml" / "movies.csv", MOVIES)
    with pytest.raises(DataError, match="the movielens format has fixed columns"):
        read_source(tmp_path / "ml", columns=Columns(user="userId"))


# Parquet folders


def parquet_folder(path: Path) -> Path:
    path.mkdir()
    ratings = {"user": [1] * 5, "item": range(1, 6), "rating": [4.0, 5, 5, 5, 3], "timestamp": [0] * 5}
    pq.write_table(pa.table(ratings), path / "ratings.parquet")
    pq.write_table(pa.table({"item": [5, 4, 3, 2, 1], "title": list("EDCBA")}), path / "items.parquet")
    return path


def test_a_parquet_folder_has_ratings_and_perhaps_titles(tmp_path: Path) -> None:
    folder = parquet_folder(tmp_path / "shop")
    format, rows = read_source(folder)
    assert format == "parquet"
    assert rows.note is not None and "'rating' is not used" in rows.note
    assert milrec.read(folder).items.to_pydict() == {"id": [1, 2, 3, 4, 5], "title": list("ABCDE")}
    (folder / "items.parquet").unlink()
    assert milrec.read(folder).items.to_pydict() == {"id": [1, 2, 3, 4, 5]}


def test_a_parquet_folder_named_like_movielens_is_movielens(tmp_path: Path) -> None:
    format, _, filters, result = prepare_source(parquet_folder(tmp_path / "ml-mine"), filters={"min_per_user": 4})
    assert (format, filters) == ("movielens", Filters(adopt_min=4, min_per_user=4))
    assert result.interactions.items["title"].to_pylist() == list("ABCD")


def test_items_without_titles_are_passed_over(tmp_path: Path) -> None:
    folder = parquet_folder(tmp_path / "shop")
    pq.write_table(pa.table({"item": [1, 2], "price": [3, 4]}), folder / "items.parquet")
    assert milrec.read(folder).items.column_names == ["id"]


# Filters


def movielens(folder: Path) -> Path:
    written(folder / "ratings.csv", FIVE_RATINGS + "2,1,4,0\n2,2,2,0\n")
    written(folder / "movies.csv", MOVIES)
    return folder


def test_the_filters_of_the_paper_are_the_default_for_its_data_sets(tmp_path: Path) -> None:
    format, rows, filters, result = prepare_source(movielens(tmp_path))
    assert (format, len(rows)) == ("movielens", 7)
    assert filters == Filters(adopt_min=4, min_per_user=5)
    assert result.interactions.users["id"].to_pylist() == [1]


def test_a_filter_that_is_given_replaces_that_of_the_paper_and_no_other(tmp_path: Path) -> None:
    *_, filters, result = prepare_source(
        movielens(tmp_path), filters={"min_per_user": 1, "reject_max": 2, "adopt_min": None}
    )
    assert filters == Filters(adopt_min=4, reject_max=2, min_per_user=1)
    assert result.interactions.users["id"].to_pylist() == [1, 2]
    assert result.interactions.rejected.toarray().tolist() == [[0, 0, 0, 0, 0], [0, 1, 0, 0, 0]]


def test_other_tables_have_no_filters_by_default(tmp_path: Path) -> None:
    source = written(tmp_path / "a.csv", "user,item\na,x\nb,y\n")
    assert prepare_source(source)[2] == Filters()
    assert milrec.read(source).facts()["adopted"] == 2


# milrec.read


def test_a_file_is_read_by_one_call(tmp_path: Path) -> None:
    source = written(tmp_path / "a.csv", "who,what,stars\nann,x,5\nbob,x,1\nbob,y,4\n")
    data = milrec.read(str(source), user="who", item="what", value="stars", adopt_min=4, reject_max=2)
    assert data.users["id"].to_pylist() == ["ann", "bob"]
    assert data.adopted.toarray().tolist() == [[1, 0], [0, 1]]
    assert data.rejected.toarray().tolist() == [[0, 0], [1, 0]]


@pytest.mark.parametrize(
    "table", [pa.table({"user": [2, 1], "item": ["x", "y"]}), {"user": [2, 1], "item": ["x", "y"]}]
)
def test_a_table_in_memory_is_read_by_one_call(table: Any) -> None:
    data = milrec.read(table)
    assert data.users["id"].to_pylist() == [1, 2]
    assert data.adopted.toarray().tolist() == [[0, 1], [1, 0]]


def test_the_latest_rating_stands_when_the_time_column_is_named() -> None:
    table = {
        "user": ["a", "a", "b"],
        "item": ["x", "x", "x"],
        "stars": [5, 1, 5],
        "day": ["2020-01-01", "2020-01-02", "2020-01-01"],
    }
    data = milrec.read(table, value="stars", time="day", adopt_min=4)
    assert data.users["id"].to_pylist() == ["b"]


def test_titles_come_from_a_file_of_their_own(tmp_path: Path) -> None:
    titles = written(tmp_path / "titles.csv", "item,title\ny,Why\nx,Ex\n")
    source = written(tmp_path / "a.csv", "user,item\na,x\na,y\na,z\n")
    for data in (milrec.read(source, titles=titles), milrec.read({"user": "aaa", "item": "xyz"}, titles=titles)):
        assert data.items["title"].to_pylist() == ["Ex", "Why", None]


def test_items_without_a_title_and_repeated_titles_are_counted(tmp_path: Path) -> None:
    titles = written(tmp_path / "titles.csv", "item,title\ny,Why\nx,Ex\ny,Wye\nunseen,U\n")
    source = written(tmp_path / "a.csv", "user,item\na,x\na,y\na,z\n")
    data = milrec.read(source, titles=titles)
    assert data.items["title"].to_pylist() == ["Ex", "Why", None]
    assert (data.reading["items_without_title"], data.reading["titles_repeated"]) == (1, 1)


def test_titles_by_number_find_the_items_of_a_text_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"movie_id": [10, 9], "title": ["Ten", "Nine"]}), tmp_path / "titles.parquet")
    source = written(tmp_path / "a.csv", "user,item\na,9\na,10\n")
    data = milrec.read(source, titles=tmp_path / "titles.parquet")
    assert data.items.to_pydict() == {"id": ["10", "9"], "title": ["Ten", "Nine"]}


def test_a_part_of_a_table_is_read_by_its_mark(tmp_path: Path) -> None:
    table = {"user": list("aabb"), "item": list("xyxy"), "test": [False, True, True, False]}
    assert milrec.read(table, where={"test": 0}).adopted.toarray().tolist() == [[1, 0], [0, 1]]
    pq.write_table(pa.table(table), tmp_path / "ratings.parquet")
    for source in (tmp_path, tmp_path / "ratings.parquet"):
        assert milrec.read(source, where={"test": True}).adopted.toarray().tolist() == [[0, 1], [1, 0]]


def test_rows_of_an_archive_cannot_be_chosen(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="`title` and `where` are only for tables"):
        milrec.read(movielens(tmp_path), where={"rating": 5})


def test_conditions_are_a_mapping() -> None:
    with pytest.raises(DataError, match="`where` must be a mapping of columns to values"):
        milrec.read({"user": [1], "item": [1]}, where="test=0")


def test_conditions_are_read_from_texts() -> None:
    assert parse_conditions([]) == {}
    assert parse_conditions(["test=0", "a b=c=d", "empty="]) == {"test": "0", "a b": "c=d", "empty": ""}
    for text in ("test", "=0", ""):
        with pytest.raises(DataError, match="is not a condition; write COLUMN=VALUE"):
            parse_conditions([text])
    with pytest.raises(DataError, match="column 'test' is given two values"):
        parse_conditions(["test=0", "test=1"])


def test_an_unknown_argument_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        DataError,
        match=r"unknown argument 'min_users' \(did you mean 'min_per_user'\?\); known arguments: adopt_min, format",
    ):
        milrec.read({"user": [1], "item": [1]}, min_users=3)


def test_a_source_with_nothing_left_is_named(tmp_path: Path) -> None:
    source = written(tmp_path / "a.csv", "user,item\na,x\n")
    with pytest.raises(DataError, match=r"a\.csv' has no adopted items left"):
        milrec.read(source, min_per_user=2)


def test_the_order_of_lines_in_a_file_does_not_matter(tmp_path: Path) -> None:
    lines = [f"u{n * 7 % 5},i{n * 3 % 11},{n % 5 + 1}" for n in range(40)]
    for name, order in (("one", lines), ("other", sorted(lines, reverse=True))):
        source = written(tmp_path / f"{name}.csv", "\n".join(["user,item,plays", *order]) + "\n")
        milrec.read(source, value="plays").save(tmp_path / name)
    files = [{file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("one", "other")]
    assert files[0] == files[1]


# Real data


def test_movielens_100k_has_the_counts_its_publisher_gives() -> None:
    """Ratings 1 to 5 stand 6,110, 11,370, 27,145, 34,174 and 21,201 times."""
    folder = real_data("ml-100k")
    format, rows, _, result = prepare_source(folder, filters={"min_per_user": 1, "reject_max": 2})
    assert format == "movielens"
    assert len(rows) == 100_000
    assert result.interactions.adopted.nnz == 34_174 + 21_201
    assert result.counts["rows_neither_adopted_nor_rejected"] == 27_145
    assert result.counts["duplicates_merged"] == 0
    assert result.interactions.rejected.nnz <= 6_110 + 11_370  # less those of items that nobody adopted
    assert "Toy Story (1995)" in result.interactions.items["title"].to_pylist()


def test_jester_has_negative_ratings_that_are_not_mistaken_for_counts() -> None:
    folder = real_data("jester-1")
    with pytest.raises(DataError, match="give `adopt_min`"):
        milrec.read(folder, value="rating")
