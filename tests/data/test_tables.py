"""CSV, TSV and Parquet tables are read exactly, or refused with the line or row and the cure."""

import datetime
import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import milrec
from milrec.data.reading.blocks import read_rows
from milrec.data.reading.columns import Columns
from milrec.data.reading.csv.text import first_line
from milrec.data.reading.tables import Rows, rows_of
from milrec.data.reading.titles import read_titles
from milrec.errors import DataError

RATED = Columns(value="rating")


def read_text(folder: Path, text: str | bytes, columns: Columns | None = None, name: str = "table.csv") -> Rows:
    content = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return read_rows(folder / name, columns or Columns(), "csv")


def read_parquet(folder: Path, columns: dict[str, Any], chosen: Columns | None = None) -> Rows:
    pq.write_table(pa.table(columns), folder / "table.parquet")
    return read_rows(folder / "table.parquet", chosen or Columns(), "parquet")


def pairs(rows: Rows) -> list[tuple[Any, Any]]:
    return list(zip(rows.users.to_pylist(), rows.items.to_pylist(), strict=True))


# Which columns


def test_a_table_of_users_and_items_is_read(tmp_path: Path) -> None:
    rows = read_text(tmp_path, "user,item\nann,x\nbob,y\n")
    assert pairs(rows) == [("ann", "x"), ("bob", "y")]
    assert len(rows) == 2
    assert rows.values is None and rows.times is None and rows.item_table is None and rows.note is None


@pytest.mark.parametrize(
    "header",
    ["user,item", "userId,movieId", "User_ID,ITEM_ID", "customer,product", "visitor_id,track_id", " user , item "],
)
def test_common_names_of_columns_are_recognised(tmp_path: Path, header: str) -> None:
    assert pairs(read_text(tmp_path, f"{header}\nann,x\n")) == [("ann", "x")]


def test_columns_are_found_by_name_and_not_by_place(tmp_path: Path) -> None:
    rows = read_text(tmp_path, "when,item,rating,user\n7,x,4.5,ann\n", Columns(value="rating", time="when"))
    assert pairs(rows) == [("ann", "x")]
    assert rows.values is not None and rows.values.tolist() == [4.5]
    assert rows.times is not None and rows.times.tolist() == [7]


def test_columns_of_any_name_can_be_chosen(tmp_path: Path) -> None:
    rows = read_text(tmp_path, "Käufer,Ware,user\nann,x,9\n", Columns(user="Käufer", item="Ware"))
    assert pairs(rows) == [("ann", "x")]


def test_a_column_that_is_not_there_is_named_beside_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"table\.csv' has no column 'stars'; its columns are user, item, rating"):
        read_text(tmp_path, "user,item,rating\na,b,5\n", Columns(value="stars"))


@pytest.mark.parametrize(("header", "missing"), [("user,thing", "item"), ("who,item", "user"), ("a,b", "user")])
def test_a_table_without_a_known_user_or_item_column_says_how_to_name_it(
    tmp_path: Path, header: str, missing: str
) -> None:
    with pytest.raises(DataError, match=f"recognised as holding {missing}s; name one of .* with `{missing}`"):
        read_text(tmp_path, f"{header}\na,b\n")


def test_the_same_column_cannot_be_two_things(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the same column is named twice: item, item"):
        read_text(tmp_path, "user,item\na,b\n", Columns(user="item"))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has two columns named 'user'"):
        read_text(tmp_path, "user,item,user\na,b,c\n")
    with pytest.raises(DataError, match="has two columns named 'item'"):
        rows_of(pa.table([["a"], ["b"], ["c"]], names=["user", "item", "item"]), Columns())


def test_a_rating_column_that_is_not_used_is_pointed_out(tmp_path: Path) -> None:
    note = read_text(tmp_path, "user,item,Rating\na,b,5\n").note
    assert note is not None
    assert "column 'Rating' is not used and every row counts as adopted" in note
    assert "`value='Rating'` and `adopt_min=4`" in note


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("user,item,rating\na,b,5\n", RATED),
        ("user,item,colour\na,b,red\n", Columns()),
        ("user,item,count\na,b,5\n", Columns(time="count")),
        ("user,item,name\na,b,5\n", Columns()),
    ],
)
def test_there_is_no_note_where_nothing_is_left_unused(tmp_path: Path, text: str, columns: Columns) -> None:
    assert read_text(tmp_path, text, columns).note is None


# Ids


@pytest.mark.parametrize(
    "name",
    [
        "007", " x ", "a b", "Ünïcødé", "日本語", "🎬", "a,b", 'say "hi"',
        "it's", "NA", "null", "nan", "None", "1e5", "1.0", "-", "a|b;c",
    ],
)  # fmt: skip
def test_an_id_in_a_text_file_comes_back_exactly(tmp_path: Path, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    assert pairs(read_text(tmp_path, f"user,item\n{quoted},x\ny,{quoted}\n")) == [(name, "x"), ("y", name)]


any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r\n"), min_size=1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(any_text, any_text), min_size=1, max_size=5))
@example([("007", "a,b"), ('"', "\t"), ("\ufeff", "\x85")])
def test_any_text_on_one_line_can_be_an_id(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("ids")
    lines = [",".join('"' + name.replace('"', '""') + '"' for name in row) for row in [("user", "item"), *rows]]
    assert pairs(read_text(folder, "\n".join(lines) + "\n")) == rows


def test_unquoted_ids_keep_their_spaces_and_zeros(tmp_path: Path) -> None:
    assert pairs(read_text(tmp_path, "user,item\n 007 ,00\n")) == [(" 007 ", "00")]


@pytest.mark.parametrize("row", [",b", '"",b', "a,", 'a,""'])
def test_an_empty_id_is_refused_with_its_line(tmp_path: Path, row: str) -> None:
    with pytest.raises(DataError, match=r"line 3 has an empty id in column '(user|item)' of"):
        read_text(tmp_path, f"user,item\na,b\n{row}\n")


# Shapes of text files


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_the_delimiter_is_found_in_the_first_line(tmp_path: Path, delimiter: str) -> None:
    text = delimiter.join(["user", "item", "rating"]) + "\n" + delimiter.join(["ann", "a b", "4.5"]) + "\n"
    rows = read_text(tmp_path, text, RATED)
    assert pairs(rows) == [("ann", "a b")]
    assert rows.values is not None and rows.values.tolist() == [4.5]


def test_a_tsv_file_is_separated_by_tabs_whatever_its_first_line_holds(tmp_path: Path) -> None:
    rows = read_text(tmp_path, "user\titem\tprice, net, in €\na\tb\t1\n", name="table.tsv")
    assert pairs(rows) == [("a", "b")]


@pytest.mark.parametrize("name", ["table.csv.gz", "table.tsv.gz"])
def test_a_compressed_table_is_read(tmp_path: Path, name: str) -> None:
    delimiter = "\t" if "tsv" in name else ","
    text = f"user{delimiter}item\nann{delimiter}x\n"
    assert pairs(read_text(tmp_path, text, name=name)) == [("ann", "x")]


def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path: Path) -> None:
    assert pairs(read_text(tmp_path, b"\xef\xbb\xbfuser,item\nann,x\n")) == [("ann", "x")]
    assert pairs(read_text(tmp_path, b"\xef\xbb\xbfuser;item\nann;x\n", Columns(user="user"))) == [("ann", "x")]


@pytest.mark.parametrize(
    "text", ["user,item\r\na,b\r\n", "user,item\na,b", "user,item\n\na,b\n\n", '"user","item"\n"a","b"\n']
)
def test_line_ends_blank_lines_and_quotes_do_not_matter(tmp_path: Path, text: str) -> None:
    assert pairs(read_text(tmp_path, text)) == [("a", "b")]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file '.*absent\.csv'"):
        read_rows(tmp_path / "absent.csv", Columns(), "csv")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"table\.csv' is empty"):
        read_text(tmp_path, "")


@pytest.mark.parametrize("text", ["\n", "\n\n\n", " \n"])
def test_a_file_of_blank_lines_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"table\.csv'"):
        read_text(tmp_path, text)


def test_a_table_with_a_header_only_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"table\.csv' has no rows"):
        read_text(tmp_path, "user,item\n")


def test_a_header_without_a_line_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"table\.csv'"):
        read_text(tmp_path, "user,item")


@pytest.mark.parametrize("row", ["a,b", "a,b,5,6"])
@pytest.mark.parametrize("columns", [Columns(), RATED])
def test_a_row_with_too_few_or_too_many_entries_is_refused(tmp_path: Path, row: str, columns: Columns) -> None:
    with pytest.raises(DataError, match=r"line 3 of '.*table\.csv' has [24] columns instead of 3 \('a,b.*'\); repair"):
        read_text(tmp_path, f"user,item,rating\na,b,5\n{row}\n", columns)


@pytest.mark.parametrize("columns", [Columns(), RATED])
def test_a_ragged_row_far_down_is_refused(tmp_path: Path, columns: Columns) -> None:
    with pytest.raises(
        DataError, match=r"line 200,002 of .* has 2 columns instead of 3 \('a,b'\); repair or remove it$"
    ):
        read_text(tmp_path, "user,item,rating\n" + "a,b,5\n" * 200_000 + "a,b\n", columns)


def test_a_table_in_another_encoding_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 2 of '.*table\.csv' is not valid UTF-8; save the file as UTF-8"):
        read_text(tmp_path, "user,item\nMüller,b\n".encode("latin-1"))


def test_a_header_in_another_encoding_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_text(tmp_path, "user,item,größe\na,b,1\n".encode("latin-1"))


def test_a_file_that_is_no_table_at_all_is_refused(tmp_path: Path) -> None:
    for content in (bytes(range(256)) * 4, b"\x00" * 50, b"PK\x03\x04" + b"\x07" * 50):
        with pytest.raises(DataError):
            read_text(tmp_path, content)


def test_a_compressed_table_that_is_damaged_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress("".join(f"u{row},i{row * 7}\n" for row in range(500)).encode())
    damaged = [whole[: len(whole) // 2], b"user,item\na,b\n", whole[:-1]]
    damaged += [whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :] for place in range(12, 300, 7)]
    for content in damaged:
        (tmp_path / "table.csv.gz").write_bytes(content)
        with pytest.raises(DataError):
            read_rows(tmp_path / "table.csv.gz", Columns(user="u0", item="i0"), "csv")


# Numbers


@pytest.mark.parametrize("text", ["five", "4,5", "*", "1 2", "5 stars", "0x5"])
def test_text_in_a_number_column_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(
        DataError, match=r"column 'rating' of '.*' has text '.*' in line 4; a number is needed"
    ) as error:
        read_text(tmp_path, f"user;item;rating\na;b;5\nc;d;4\ne;f;{text}\n", RATED)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize("text", ["", "nan", "NaN", "NA", "null"])
def test_a_missing_number_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"column 'rating' of .* has no number in line 3; remove or repair such rows"):
        read_text(tmp_path, f"user,item,rating\na,b,5\nc,d,{text}\n", RATED)


@pytest.mark.parametrize(("text", "shown"), [("inf", "inf"), ("-inf", "-inf"), ("Infinity", "inf"), ("1e999", "inf")])
def test_an_infinite_number_is_refused_with_its_line(tmp_path: Path, text: str, shown: str) -> None:
    with pytest.raises(DataError, match=f"column 'rating' of .* has {shown} in line 3"):
        read_text(tmp_path, f"user,item,rating\na,b,5\nc,d,{text}\n", RATED)


@pytest.mark.parametrize(
    ("text", "number"), [("4", 4), ("4.5", 4.5), (" 4 ", 4), ("-1", -1), ("1e3", 1000), (".5", 0.5)]
)
def test_numbers_are_read_as_they_are_written(tmp_path: Path, text: str, number: float) -> None:
    rows = read_text(tmp_path, f"user,item,rating\na,b,{text}\n", RATED)
    assert rows.values is not None and rows.values.tolist() == [number]


# Times


def times(rows: Rows) -> np.ndarray[Any, Any]:
    assert rows.times is not None
    return rows.times


def test_times_as_numbers_are_read_as_numbers(tmp_path: Path) -> None:
    rows = read_text(tmp_path, "user,item,time\na,b,964982703\nc,d,1.5\n", Columns(time="time"))
    assert times(rows).tolist() == [964982703, 1.5]


@pytest.mark.parametrize(
    ("text", "seconds_later"),
    [
        ("2020-01-01 00:00:00", 0),
        ("2020-01-01T00:00:01", 1),
        ("2020-01-02", 86_400),
        ("2020-01-01 10:30", 37_800),
        ("2020-01-01T00:00:00.5", 0.5),
        ("2020-01-01T00:00:01Z", 1),
        ("2020-01-01T02:00:01+02:00", 1),
    ],
)
def test_times_as_iso_texts_are_read_in_microseconds(tmp_path: Path, text: str, seconds_later: float) -> None:
    rows = read_text(tmp_path, f"user,item,time\na,b,{text}\n", Columns(time="time"))
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC).timestamp()
    assert times(rows).tolist() == [(start + seconds_later) * 1e6]


@pytest.mark.parametrize("text", ["yesterday", "", "2020-13-01", "01.02.2020"])
def test_times_that_are_not_understood_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError) as refused:
        read_text(tmp_path, f"user,item,time\na,b,2020-01-01\nc,d,{text}\n", Columns(time="time"))
    said = f"has '{text}' in line 3; a time is needed: a number, or a date like 2020-01-31 or 2020-01-31T08:30:00"
    assert str(refused.value).endswith(said)


def test_times_of_two_kinds_are_refused_where_the_second_begins(tmp_path: Path) -> None:
    days = "\n".join(f"a,i{day},2020-01-{day:02}" for day in range(1, 29))
    with pytest.raises(DataError, match=r"has '1577836800' in line 30, which is not written like the times before it"):
        read_text(tmp_path, f"user,item,time\n{days}\nb,c,1577836800\nd,e,2020-02-01\n", Columns(time="time"))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([5, 9]), [5, 9]),
        (pa.array([5.5, 9.5]), [5.5, 9.5]),
        (pa.array([5, 9], pa.timestamp("us")), [5, 9]),
        (pa.array([5, 9], pa.timestamp("s")), [5_000, 9_000]),  # in milliseconds, as Parquet keeps it
        (pa.array([5, 9], pa.timestamp("us", tz="Europe/Madrid")), [5, 9]),
        (pa.array([5_000, 9_000], pa.timestamp("ns")), [5_000, 9_000]),
        (pa.array([0, 1], pa.date32()), [0, 86_400e6]),
        (pa.array(["1970-01-01", "1970-01-02"]), [0, 86_400e6]),
    ],
)
def test_times_in_a_parquet_file_may_be_numbers_dates_timestamps_or_texts(
    tmp_path: Path, column: pa.Array, expected: list[float]
) -> None:
    rows = read_parquet(tmp_path, {"user": [1, 2], "item": [3, 4], "t": column}, Columns(time="t"))
    assert times(rows).tolist() == expected


NANOSECONDS = [1_500_000_000_123_456_788, 1_500_000_000_123_456_789]  # one and the same as floating-point numbers


@pytest.mark.parametrize(
    "column",
    [
        pa.array(NANOSECONDS, pa.timestamp("ns")),
        pa.array(NANOSECONDS),
        pa.array([str(time) for time in NANOSECONDS]),
        pa.array([f"+{time}" for time in NANOSECONDS]),
        pa.array([Decimal(time) for time in NANOSECONDS]),
        pa.array([2**64 - 2, 2**64 - 1], pa.uint64()),
        pa.array(["2020-01-01T00:00:00.123456788", "2020-01-01T00:00:00.123456789"]),
        pa.array(["2020-01-01T00:00:00.123456788Z", "2020-01-01T00:00:00.123456789Z"]),
        pa.array([2**53, 2**53 + 1]),
    ],
    ids=lambda column: str(column.type),
)
def test_times_a_nanosecond_apart_keep_their_order(tmp_path: Path, column: pa.Array) -> None:
    rows = read_parquet(tmp_path, {"user": [1, 2], "item": [3, 4], "t": column}, Columns(time="t"))
    assert times(rows)[0] < times(rows)[1]
    assert times(rows)[0] + type(times(rows)[0])(1) == times(rows)[1]


def test_the_last_of_two_ratings_a_nanosecond_apart_counts() -> None:
    for first, second in ((5, 1), (1, 5)):
        table = {"user": ["a", "a", "b"], "item": ["x", "x", "y"], "stars": [first, second, 5]}
        for column in (NANOSECONDS, [str(time) for time in NANOSECONDS]):
            data = milrec.read({**table, "t": [*column, column[0]]}, value="stars", time="t", adopt_min=4)
            assert ("a" in data.users["id"].to_pylist()) == (second == 5)


@pytest.mark.parametrize("column", [["1500000000123456788", "1.5"], ["99999999999999999999", "1"]])
def test_times_that_would_lose_digits_are_refused(column: list[str]) -> None:
    with pytest.raises(DataError, match=r"column 't' of the table has '.*' in row [12]"):
        rows_of({"user": [1, 2], "item": [3, 4], "t": column}, Columns(time="t"))


@pytest.mark.parametrize(
    "column", [pa.array([1, None]), pa.array([1, None], pa.timestamp("us")), pa.array([True, False])]
)
def test_missing_times_are_refused(column: pa.Array) -> None:
    with pytest.raises(DataError, match="column 't'"):
        rows_of(pa.table({"user": [1, 2], "item": [3, 4], "t": column}), Columns(time="t"))


@pytest.mark.parametrize("column", [pa.array([1, 2], pa.time32("s")), pa.array([1, 2], pa.duration("s"))])
def test_times_of_day_and_durations_are_refused(column: pa.Array) -> None:
    with pytest.raises(DataError, match="column 't'"):
        rows_of(pa.table({"user": [1, 2], "item": [3, 4], "t": column}), Columns(time="t"))


# Parquet


@pytest.mark.parametrize(
    "column",
    [
        pa.array([7, -8]), pa.array([7, 8], pa.int8()), pa.array([7, 8], pa.uint64()),
        pa.array([7, 8], pa.int32()).dictionary_encode(),
    ],
)  # fmt: skip
def test_whole_numbers_in_a_parquet_file_stay_whole_numbers(tmp_path: Path, column: pa.Array) -> None:
    rows = read_parquet(tmp_path, {"user": column, "item": ["x", "y"]})
    assert rows.users.type == pa.int64()
    assert rows.users.to_pylist() == column.to_pylist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["007", " é"]), pa.array(["007", " é"], pa.large_string()),
        pa.array(["007", " é"]).dictionary_encode(), pa.array(["007", " é"], pa.large_string()).dictionary_encode(),
    ],
)  # fmt: skip
def test_texts_in_a_parquet_file_stay_texts(tmp_path: Path, column: pa.Array) -> None:
    rows = read_parquet(tmp_path, {"user": column, "item": [1, 2]})
    assert rows.users.type == pa.large_string()
    assert rows.users.to_pylist() == ["007", " é"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, 2.0]), pa.array([True, False]), pa.array([b"a", b"b"]), pa.array([[1], [2]]),
        pa.array([1.0, 2.0]).dictionary_encode(), pa.array([1, 2], pa.date32()),
    ],
)  # fmt: skip
def test_ids_are_texts_or_whole_numbers(tmp_path: Path, column: pa.Array) -> None:
    with pytest.raises(DataError, match=r"ids of type .*; ids must be text or whole numbers"):
        read_parquet(tmp_path, {"user": column, "item": [1, 2]})


def test_an_id_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="that 64 bits cannot hold; store such ids as text"):
        read_parquet(tmp_path, {"user": pa.array([1, 2**63], pa.uint64()), "item": [1, 2]})


@pytest.mark.parametrize(
    "column", [pa.array([1, None]), pa.array(["a", None]), pa.array(["a", None]).dictionary_encode()]
)
def test_a_missing_id_is_refused_with_its_row(tmp_path: Path, column: pa.Array) -> None:
    with pytest.raises(DataError, match="row 2 has no id in column 'user'"):
        read_parquet(tmp_path, {"user": column, "item": [1, 2]})


@pytest.mark.parametrize(
    ("column", "numbers"),
    [
        (pa.array([4, 5]), [4, 5]),
        (pa.array([4.5, 5], pa.float32()), [4.5, 5]),
        (pa.array([Decimal("4.5"), Decimal("5.0")]), [4.5, 5]),
    ],
)
def test_values_in_a_parquet_file_may_be_any_numbers(tmp_path: Path, column: pa.Array, numbers: list[float]) -> None:
    rows = read_parquet(tmp_path, {"user": [1, 2], "item": [1, 2], "rating": column}, RATED)
    assert rows.values is not None and rows.values.tolist() == numbers


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2**53 + 1]), pa.array([1, 2**64 - 1], pa.uint64()), pa.array([1, -(2**53)]),
        pa.array([Decimal(1), Decimal(2**60)]),
    ],
)  # fmt: skip
def test_whole_numbers_that_would_lose_digits_are_refused_with_their_row(tmp_path: Path, column: pa.Array) -> None:
    sentence = r"column 'rating' of '.*' has -?[0-9.e+]+ in {}; values must be below 2\^53 \(is it a column"
    with pytest.raises(DataError, match=sentence.format("row 2")):
        read_parquet(tmp_path, {"user": [1, 2], "item": [1, 2], "rating": column}, RATED)
    text = "".join(f"a,b,{number}\n" for number in column.to_pylist())
    with pytest.raises(DataError, match=sentence.format("line 3")):
        read_text(tmp_path, "user,item,rating\n" + text, RATED)


@pytest.mark.parametrize("column", [pa.array(["4", "5"]), pa.array([True, False])])
def test_values_that_are_no_numbers_are_refused(tmp_path: Path, column: pa.Array) -> None:
    with pytest.raises(DataError, match=r"column 'rating' of .* holds (string|bool); a number is needed"):
        read_parquet(tmp_path, {"user": [1, 2], "item": [1, 2], "rating": column}, RATED)


@pytest.mark.parametrize("broken", [float("nan"), None])
def test_a_missing_value_in_a_parquet_file_is_refused_with_its_row(tmp_path: Path, broken: float | None) -> None:
    with pytest.raises(DataError, match="has no number in row 2"):
        read_parquet(tmp_path, {"user": [1, 2], "item": [1, 2], "rating": [1.0, broken]}, RATED)


@pytest.mark.parametrize("content", [b"user,item\na,b\n", b"PAR1" + b"x" * 20 + b"PAR1", b"PAR1"])
def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "table.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"table\.parquet' cannot be read as parquet"):
        read_rows(tmp_path / "table.parquet", Columns(), "parquet")


def test_a_parquet_file_with_damaged_numbers_is_not_read_as_text(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    table = pa.table({"user": [1] * 100, "item": range(100), "rating": [float(n) for n in range(100)]})
    pq.write_table(table, path, compression="gzip", use_dictionary=False)
    content, place = path.read_bytes(), pq.ParquetFile(path).metadata.row_group(0).column(2).data_page_offset
    n_refused = 0
    for start in range(place, place + 60):
        path.write_bytes(content[:start] + b"\xff" * 5 + content[start + 5 :])
        try:
            read_rows(path, RATED, "parquet")
        except DataError:
            n_refused += 1
    assert n_refused > 20


def not_utf8(good: str, kind: pa.DataType) -> pa.Array:
    """A good text, then one that is not UTF-8; Parquet and Arrow keep both as they are."""
    return pa.array([good.encode(), b"caf\xe9"]).cast(pa.binary()).view(pa.string()).cast(kind)


@pytest.mark.parametrize("place", ["user", "item"])
@pytest.mark.parametrize("as_file", [True, False])
def test_ids_that_are_not_utf8_are_refused_with_their_row(tmp_path: Path, place: str, as_file: bool) -> None:
    columns: dict[str, Any] = {"user": ["a", "b"], "item": ["x", "y"], place: not_utf8("é", pa.string())}
    pq.write_table(pa.table(columns), tmp_path / "table.parquet")
    source: Any = tmp_path / "table.parquet" if as_file else pa.table(columns)
    with pytest.raises(DataError, match=f"row 2 of column '{place}' of .* is not valid UTF-8; save it as UTF-8"):
        milrec.read(source)


def test_ids_in_a_dictionary_that_are_not_utf8_are_refused() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0, 1]), not_utf8("é", pa.string()))
    with pytest.raises(DataError, match="row 3 of column 'user' of the table is not valid UTF-8"):
        rows_of(pa.table({"user": column, "item": [1, 2, 3]}), Columns())


@pytest.mark.parametrize("place", ["item", "title", "genres"])
def test_titles_that_are_not_utf8_are_refused_with_their_row(tmp_path: Path, place: str) -> None:
    columns: dict[str, Any] = {"item": ["x", "y"], "title": ["A", "B"], "genres": ["C", "D"]}
    pq.write_table(pa.table(columns | {place: not_utf8("é", pa.string())}), tmp_path / "titles.parquet")
    with pytest.raises(DataError, match=f"row 2 of column '{place}' of .* is not valid UTF-8"):
        read_titles(tmp_path / "titles.parquet")


def test_a_table_in_memory_with_impossible_offsets_is_refused() -> None:
    offsets = pa.array([0, 3, 1], pa.int32()).buffers()[1]
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])
    with pytest.raises(DataError, match="column 'user' of the table is damaged"):
        rows_of(pa.table({"user": column, "item": [1, 2]}), Columns())


def test_a_parquet_file_without_rows_or_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no rows"):
        read_parquet(tmp_path, {"user": pa.array([], pa.int64()), "item": pa.array([], pa.int64())})
    pq.write_table(pa.table([[1], [2], [3]], names=["user", "item", "user"]), tmp_path / "twice.parquet")
    with pytest.raises(DataError, match="has two columns named 'user'"):
        read_rows(tmp_path / "twice.parquet", Columns(), "parquet")


# Tables in memory


def test_a_mapping_of_columns_is_a_table() -> None:
    rows = rows_of({"user": np.array([1, 2]), "item": ["x", "y"], "rating": [4, 5.5]}, RATED)
    assert pairs(rows) == [(1, "x"), (2, "y")]
    assert rows.values is not None and rows.values.tolist() == [4, 5.5]


class Frame:
    """Stands for a pandas or polars frame: something that gives itself as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.table({"user": ["a"], "item": ["x"]}).__arrow_c_stream__(requested_schema)


def test_a_frame_of_another_library_is_a_table() -> None:
    assert pairs(rows_of(Frame(), Columns())) == [("a", "x")]


@pytest.mark.parametrize(
    "table",
    [
        5, None, object(), [1, 2], {"user": [1], "item": [1, 2]}, {"user": ["a", 1], "item": [1, 2]}, [{"user": 1}],
        {"user": [2**70], "item": [1]}, {"user": ["\udc80"], "item": [1]},
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(DataError, match=r"the table cannot be of type|column '(user|item)' of the table has"):
        rows_of(table, Columns())


MIXED = np.array([None, 1, "x"], dtype=object)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rating": MIXED}, "column 'rating' of the table has text 'x' in row 3 but the number 1 in row 2; its values"),
        (
            {"user": MIXED},
            "column 'user' of the table has text 'x' in row 3 but the number 1 in row 2; its",
        ),
        ({"item": ["i", "j", 7]}, "column 'item' of the table has the number 7 in row 3 but text 'i' in row 1; "),
        ({"item": ["i", "j", ["k"]]}, "column 'item' of the table has a value of type 'list' in row 3 but text 'i' in"),
        ({"item": ["i", "j"]}, "column 'item' of the table has 2 rows but column 'user' has 3; columns must be of one"),
        ({"item": 7}, "column 'item' of the table is 7; it must be a list, one value for each row"),
        ({"item": np.ones((3, 2))}, "column 'item' of the table has 2 dimensions; it must have one"),
        ({"user": [1, 2**70, 3]}, f"column 'user' of the table has {2**70} in row 2, which 64 bits cannot hold"),
        (
            {"user": ["a", "\udc80", "b"]},
            r"column 'user' of the table has '\udc80' in row 2, which is not Unicode",
        ),
        ({"item": [object()] * 3}, "column 'item' of the table holds values of type 'object'; text or numbers are"),
    ],
)
@pytest.mark.parametrize("frame", [dict, pd.DataFrame])
def test_a_column_that_cannot_be_taken_over_is_named_with_the_row(frame: Any, change: Any, sentence: str) -> None:
    columns = {"user": ["a", "b", "c"], "item": ["i", "j", "k"], "rating": [1, 2, 3]} | change
    try:
        table = frame(columns)
    except ValueError:
        return  # pandas has no such frames
    if frame is pd.DataFrame and change == {"item": 7}:
        return  # pandas repeats the number
    with pytest.raises(DataError) as caught:
        rows_of(table, RATED)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("table", [{}, {"user": [1]}])
def test_a_table_in_memory_needs_a_user_and_an_item_column(table: Any) -> None:
    with pytest.raises(DataError, match="no column of the table is recognised as holding"):
        rows_of(table, Columns())


def test_a_table_in_memory_without_rows_is_refused() -> None:
    with pytest.raises(DataError, match="the table has no rows"):
        rows_of({"user": [], "item": []}, Columns())


# Titles


def test_titles_and_genres_are_read_from_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "movies.csv").write_text(
        'movieId,title,genres\n007,"Misérables, Les (1995)",Drama|Music\n8,"Say ""Hi""",\n', encoding="utf-8"
    )
    assert read_titles(tmp_path / "movies.csv").to_pydict() == {
        "id": ["007", "8"],
        "title": ["Misérables, Les (1995)", 'Say "Hi"'],
        "genres": ["Drama|Music", ""],
    }


@pytest.mark.parametrize("suffix", ["parquet", "pq"])
def test_titles_are_read_from_a_parquet_file(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"item": [1, 2], "name": pa.array(["A", None]).dictionary_encode()})
    pq.write_table(table, tmp_path / f"items.{suffix}")
    assert read_titles(tmp_path / f"items.{suffix}").to_pydict() == {"id": [1, 2], "title": ["A", None]}


def test_the_item_column_of_a_table_of_titles_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "wares.csv").write_text("id,ware,title\n1,x,A\n")
    assert read_titles(tmp_path / "wares.csv", "ware")["id"].to_pylist() == ["x"]
    assert read_titles(tmp_path / "wares.csv")["id"].to_pylist() == ["1"]


@pytest.mark.parametrize("header", ["item,colour", "colour,title", "a,b"])
def test_a_table_of_titles_needs_an_item_and_a_title_column(tmp_path: Path, header: str) -> None:
    (tmp_path / "wares.csv").write_text(f"{header}\n1,2\n")
    with pytest.raises(DataError, match="needs an item column and a title column; its columns are"):
        read_titles(tmp_path / "wares.csv")


def test_titles_that_are_no_texts_are_refused(tmp_path: Path) -> None:
    for column in (pa.array([["A"], ["B"]]), pa.array([b"\xff", b"B"])):
        pq.write_table(pa.table({"item": [1, 2], "title": column}), tmp_path / "items.parquet")
        with pytest.raises(DataError):
            read_titles(tmp_path / "items.parquet")


# Which rows


def kept_users(columns: dict[str, Any], where: dict[str, Any]) -> list[Any]:
    n = len(next(iter(columns.values())))
    table = {"user": range(n), "item": ["x"] * n, **columns}
    rows: list[Any] = rows_of(table, Columns(where=where)).users.to_pylist()
    return rows


@pytest.mark.parametrize(
    ("column", "wanted", "kept"),
    [
        (pa.array([True, False, None, True]), True, [0, 3]),
        (pa.array([True, False, None, True]), "false", [1]),
        (pa.array([True, False, None, True]), 0, [1]),
        (pa.array([True, False, None, True]), "1", [0, 3]),
        (pa.array([0, 1, None, 2], pa.int8()), 0, [0]),
        (pa.array([0, 1, None, 2]), "1.0", [1]),
        (pa.array([0, 1, None, 2]), True, [1]),
        (pa.array([2**63 - 1, 2**63 - 2]), 2**63 - 2, [1]),
        (pa.array([0.5, 4.0, None, float("nan")]), 4, [1]),
        (pa.array([0.5, 4.0, None, float("nan")]), "0.50", [0]),
        (pa.array([Decimal("0.5"), Decimal("4.0")]), "4", [1]),
        (pa.array(["train", "test", None, "Test"]), "test", [1]),
        (pa.array(["007", "7", "7.0", "+7"]), 7, [1, 2, 3]),
        (pa.array(["True", "false", "1", "yes"]), True, [0, 2]),
        (pa.array(["", "x", " "]), "", [0]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "a", [0, 2]),
        (pa.array([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]), "2020-01-02", [1]),
    ],
    ids=str,
)
def test_rows_are_kept_by_the_value_of_a_column(column: pa.Array, wanted: Any, kept: list[int]) -> None:
    assert kept_users({"mark": column}, {"mark": wanted}) == kept


def test_several_conditions_must_all_hold() -> None:
    columns = {"part": ["a", "a", "b", "b"], "year": [1, 2, 1, 2]}
    assert kept_users(columns, {"part": "b", "year": 2}) == [3]
    with pytest.raises(DataError, match="no row of the table where part=a has year=3; the column holds 1, 2"):
        kept_users(columns, {"part": "a", "year": 3})


def test_rows_of_a_text_file_are_kept_by_a_column_that_is_otherwise_not_read(tmp_path: Path) -> None:
    text = "user,item,test,plays\nann,x,0,3\nbob,y,1,4\nann,y,0,5\n"
    rows = read_text(tmp_path, text, Columns(value="plays", where={"test": 0}))
    assert pairs(rows) == [("ann", "x"), ("ann", "y")]
    assert rows.values is not None and rows.values.tolist() == [3, 5]


def test_rows_may_be_kept_by_the_columns_that_are_read(tmp_path: Path) -> None:
    text = "user,item,rating\nann,x,5\nbob,y,4\nann,y,5.0\n"
    assert pairs(read_text(tmp_path, text, Columns(value="rating", where={"rating": 5, "user": "ann"}))) == [
        ("ann", "x"),
        ("ann", "y"),
    ]
    unused = read_text(tmp_path, text, Columns(where={"rating": "5"}))
    assert (pairs(unused), unused.note) == ([("ann", "x"), ("ann", "y")], None)


def test_what_is_wrong_in_rows_that_are_left_out_does_no_harm(tmp_path: Path) -> None:
    text = "user,item,kind,hours\nann,x,play,2\nbob,y,buy,\n"
    rows = read_text(tmp_path, text, Columns(value="hours", where={"kind": "play"}))
    assert rows.values is not None and rows.values.tolist() == [2]
    with pytest.raises(DataError, match=r"column 'hours' of '.*' where kind=buy has no number in line 3"):
        read_text(tmp_path, text, Columns(value="hours", where={"kind": "buy"}))


def test_a_condition_on_a_column_that_is_not_there_lists_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no column 'tset'; its columns are user, item, test"):
        read_text(tmp_path, "user,item,test\na,x,0\n", Columns(where={"tset": 0}))


def test_a_condition_that_no_row_meets_shows_some_values(tmp_path: Path) -> None:
    text = "user,item,week\n" + "".join(f"a,x,{week}\n" for week in range(1, 9))
    with pytest.raises(
        DataError, match=r"no row of '.*table.csv' has week=9; the column holds 1, 2, 3, 4, 5 and others"
    ):
        read_text(tmp_path, text, Columns(where={"week": 9}))
    with pytest.raises(DataError, match="has mark=1; the column holds nothing"):
        kept_users({"mark": pa.array([None, None], pa.int64())}, {"mark": 1})


def test_a_column_of_lists_cannot_be_compared() -> None:
    with pytest.raises(DataError, match=r"column 'tags' of the table holds list.*, which cannot be compared"):
        kept_users({"tags": pa.array([["a"], ["b"]])}, {"tags": "a"})


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2], pa.timestamp("ns")),
        pa.array([2**62, 1], pa.timestamp("s")),
        pa.array([1, 2], pa.timestamp("us", tz="Nowhere/Else")),
    ],
)
def test_a_condition_on_times_that_python_cannot_hold_is_a_sentence(column: pa.Array) -> None:
    with pytest.raises(DataError, match=r"column 'when' of the table holds timestamp.*, which cannot be compared"):
        kept_users({"when": column}, {"when": "2020-01-01"})


def test_rows_that_a_condition_leaves_out_are_counted() -> None:
    rows = rows_of({"user": "abc", "item": "xyz", "test": [0, 1, 1]}, Columns(where={"test": 0}))
    assert (len(rows), rows.n_in_source, rows.dropped) == (1, 3, {"rows_left_out_by_where": 2})
    assert rows_of({"user": "abc", "item": "xyz"}, Columns()).dropped == {}


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=20), st.data())
def test_rows_of_whole_numbers_are_kept_exactly(marks: list[int], data: Any) -> None:
    wanted = data.draw(st.sampled_from(marks))
    expected = [row for row, mark in enumerate(marks) if mark == wanted]
    assert kept_users({"mark": pa.array(marks)}, {"mark": wanted}) == expected
    assert kept_users({"mark": pa.array(map(str, marks))}, {"mark": str(wanted)}) == expected


def test_what_the_parser_finds_wrong_is_said_in_plain_words():
    wide = pa.ArrowInvalid("CSV parse error: Row #3: Expected 2 columns, got 3: a,b,c")
    assert first_line(wide) == "a row has 3 fields where the others have 2: 'a,b,c'"
    text = pa.ArrowInvalid("In CSV column #0: Row #2: CSV conversion error to int64: invalid value 'x'")
    assert first_line(text) == "'x' is not a number"
    code = pa.ArrowInvalid("In CSV column #1: CSV conversion error to string: invalid UTF8 data")
    assert first_line(code) == "it is not valid UTF-8; save it as UTF-8"
