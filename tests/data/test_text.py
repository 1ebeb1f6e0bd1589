"""Text files: every row is read or the file is refused, whatever quotes and line ends it has."""

import csv
import gzip
import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from milrec.data.reading.blocks import read_rows
from milrec.data.reading.columns import Columns
from milrec.data.reading.csv import text as text_module
from milrec.data.reading.csv.text import Dialect, read_text
from milrec.data.reading.read import read_source
from milrec.data.reading.sources import Allowed
from milrec.data.reading.tables import Rows
from milrec.data.reading.titles import read_titles
from milrec.errors import DataError

MULTILINE = Allowed(multiline=True)


def read_csv(folder: Path, content: str | bytes, allowed: Allowed | None = None, name: str = "table.csv") -> Rows:
    content = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return read_rows(folder / name, Columns(), "csv", allowed)


def pairs(rows: Rows) -> list[tuple[str, str]]:
    return list(zip(rows.users.to_pylist(), rows.items.to_pylist(), strict=True))


# Quotes that are not closed


@pytest.mark.parametrize("allowed", [Allowed(), MULTILINE])
@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
def test_a_quote_that_is_never_closed_is_refused_with_its_line(tmp_path: Path, allowed: Allowed, name: str) -> None:
    content = 'user,item,title\nu1,i1,"Quote\nu2,i2,x\nu3,i3,y'
    with pytest.raises(DataError, match=r"ends inside quotes: the quote in line 2 is never closed"):
        read_csv(tmp_path, content, allowed, name)


def test_a_quote_far_down_that_swallows_the_rest_is_refused(tmp_path: Path) -> None:
    rows = [f"u{row},i{row},t{row}" for row in range(1_002)]
    rows[1] = 'u1,i1,"t1'
    with pytest.raises(DataError, match=r"the quote in line 3 is never closed"):
        read_csv(tmp_path, "\n".join(["user,item,title", *rows]) + "\n")


def test_a_quote_that_a_later_quote_closes_is_refused_too(tmp_path: Path) -> None:
    content = 'user,item,title\nu1,i1,"A\nu2,i2,B\nu3,i3,C"\n'
    with pytest.raises(DataError) as error:
        read_csv(tmp_path, content)
    assert str(error.value) == (
        f"line 2 of '{tmp_path / 'table.csv'}' ends inside quotes; if a field may have several lines, "
        "give `multiline=True`"
    )


def test_an_open_quote_in_the_first_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_csv(tmp_path, 'user,item,"title\nu1,i1,x\nu2,i2,y\n', MULTILINE)


def test_an_open_quote_explains_a_row_that_it_makes_too_long(tmp_path: Path) -> None:
    """The parser says only 'Expected 3 columns, got 5'."""
    with pytest.raises(DataError, match=r"line 2 of .* ends inside quotes"):
        read_csv(tmp_path, 'user,item,title\nu1,i1,"A\nu2",i2,B,C\nu3,i3,D\n')


# Line breaks inside quotes


def test_a_line_break_inside_quotes_is_read_if_it_is_meant(tmp_path: Path) -> None:
    content = 'user,item,title\nu1,i1,"A\r\nB"\n"u\n2",i2,"""\n"\n'
    assert pairs(read_csv(tmp_path, content, MULTILINE)) == [("u1", "i1"), ("u\n2", "i2")]


def test_line_breaks_across_blocks_make_no_row_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "_BLOCK", 128)
    content = "user,item,title\n" + "".join(f'u{row},i{row},"one\ntwo,three,four\n"\n' for row in range(500))
    for name in ("table.csv", "table.csv.gz"):
        rows = read_csv(tmp_path, content, MULTILINE, name)
        assert pairs(rows) == [(f"u{row}", f"i{row}") for row in range(500)]


def test_a_title_may_have_a_hundred_lines_and_no_more(tmp_path: Path) -> None:
    for n_lines, is_read in ((2, True), (100, True), (101, False)):
        title = "\n".join(["line"] * n_lines)
        (tmp_path / "titles.csv").write_text(f'item,title\nx,A\ny,"{title}"\nz,C\n')
        if is_read:
            assert read_titles(tmp_path / "titles.csv")["title"].to_pylist() == ["A", title, "C"]
            continue
        with pytest.raises(DataError, match=r"begins in line 3 of .* has over 100 lines; is a closing quote missing\?"):
            read_titles(tmp_path / "titles.csv")


def test_a_title_with_an_open_quote_is_refused(tmp_path: Path) -> None:
    (tmp_path / "titles.csv").write_text('item,title\nx,"A\ny,B\n')
    with pytest.raises(DataError, match="the quote in line 2 is never closed"):
        read_titles(tmp_path / "titles.csv")


def test_movielens_tables_follow_the_same_rules(tmp_path: Path) -> None:
    ratings, movies = "userId,movieId,rating,timestamp\n1,2,5,0\n", 'movieId,title,genres\n2,"A\nB",C\n'
    (tmp_path / "movies.csv").write_text(movies)
    (tmp_path / "ratings.csv").write_text(ratings)
    _, rows = read_source(tmp_path)
    assert rows.item_table is not None and rows.item_table["title"].to_pylist() == ["A\nB"]
    (tmp_path / "ratings.csv").write_text(ratings + '1,3,5,"0\n1,4,5,0"\n')
    with pytest.raises(DataError, match=r"line 3 of 'ratings\.csv' in .* ends inside quotes"):
        read_source(tmp_path)
    (tmp_path / "ratings.csv").write_text(ratings)
    (tmp_path / "movies.csv").write_text(movies + '3,"C,D\n')
    with pytest.raises(DataError, match=r"'movies\.csv' in .* the quote in line 4 is never closed"):
        read_source(tmp_path)


# Against Python's csv module


@settings(max_examples=250, deadline=None)
@given(
    st.lists(
        st.sampled_from(["u", "ü", ",", ",", '"', '""', '",', ',"', "\n", "\n", "\r\n", "\r", "x,y\n"]), max_size=40
    ),
    st.booleans(),
    st.sampled_from([64, 100, 1 << 24]),
)
@example(["u", ",", "u", '"', "\n", "u", '"', ",", '"', "x,y\n", "u", '"', "\n"], False, 64)
def test_a_text_is_read_as_the_csv_module_reads_it_or_refused(
    tmp_path_factory: pytest.TempPathFactory, fragments: list[str], multiline: bool, block: int
) -> None:
    content = "user,item\n" + "".join(fragments)
    truth = [row for row in csv.reader(io.StringIO(content, newline="")) if row][1:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "_BLOCK", block)
        try:
            rows = read_csv(tmp_path_factory.mktemp("text"), content, Allowed(multiline=multiline))
        except DataError:
            return
    assert pairs(rows) == [tuple(row) for row in truth]


plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(plain, plain), min_size=1, max_size=8),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([200, 1 << 24]),
)
def test_what_the_csv_module_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], quoting: int, end: str, block: int
) -> None:
    assume(quoting == csv.QUOTE_ALL or not {"\r", "\n"} & set("".join(map("".join, rows))))  # which it may leave bare
    file = io.StringIO(newline="")
    csv.writer(file, quoting=quoting, lineterminator=end).writerows([("user", "item"), *rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "_BLOCK", block)
        assert pairs(read_csv(tmp_path_factory.mktemp("text"), file.getvalue(), MULTILINE)) == rows


def test_rows_that_the_parser_loses_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pyarrow.csv.open_csv

    def without_the_first(*given: Any) -> pa.RecordBatchReader:
        table = whole(*given).read_all()[1:]
        return table.to_reader()

    monkeypatch.setattr(pyarrow.csv, "open_csv", without_the_first)
    with pytest.raises(DataError, match=r"has 3 rows, but the parser found 2; check its quotes and line ends"):
        read_csv(tmp_path, "user,item\na,b\nc,d\ne,f\n")


# The first row


def test_blank_lines_may_come_before_the_names(tmp_path: Path) -> None:
    assert pairs(read_csv(tmp_path, "\r\n\nuser;item\na;b\n")) == [("a", "b")]


def test_a_first_row_longer_than_a_piece_is_read(tmp_path: Path) -> None:
    names = ["user", "item", *(f"a long name of column {number}" for number in range(5_000))]
    content = ",".join(names) + "\n" + ",".join(["x"] * len(names)) + "\n"
    assert len(content) > 1 << 16
    assert pairs(read_csv(tmp_path, content)) == [("x", "x")]


def test_a_file_without_lines_is_refused_as_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "_BLOCK", 1 << 17)
    with pytest.raises(DataError, match=r"the first row of .* is over 0 MiB; is it a table"):
        read_csv(tmp_path, b"user,item," + b"x," * (1 << 17))
    monkeypatch.setattr(text_module, "_BLOCK", 1 << 18)
    with pytest.raises(DataError, match=r"the first row of .* cannot be read"):
        read_csv(tmp_path, b"x" * (1 << 18))


def test_a_row_longer_than_a_block_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "_BLOCK", 1 << 10)
    with pytest.raises(DataError, match="it has a row of over"):
        read_csv(tmp_path, "user,item\n" + "a,b\n" * 10 + "a," + "b" * 5_000 + "\n")


def test_a_compressed_file_is_known_by_its_name_or_its_bytes(tmp_path: Path) -> None:
    for name in ("table.csv.gz", "TABLE.CSV.GZ", "packed.csv"):
        (tmp_path / name).write_bytes(gzip.compress(b"user,item\na,b\n"))
        assert pairs(read_rows(tmp_path / name, Columns(), "csv")) == [("a", "b")]


def test_a_parquet_file_is_never_read_as_text(tmp_path: Path) -> None:
    (tmp_path / "table.parquet").write_text("user,item\na,b\n")
    (tmp_path / "table.csv").write_bytes(b"PAR1,user,item\nx,a,b\n")
    for name in ("table.parquet", "table.csv"):
        with pytest.raises(DataError, match="is a Parquet file, perhaps a damaged one"):
            read_source(tmp_path / name, format="csv")


# Rows that are skipped


def skipped(content: bytes, block: int = 1 << 24) -> tuple[list[tuple[str, ...]], int]:
    dialect = Dialect("\t", quotes=False, names=("a", "b", "c"), skips_ragged=True)
    convert = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys("abc", pa.string()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "_BLOCK", block)
        table, n_skipped = read_text(lambda: io.BytesIO(content), "the text", dialect, convert)
    return [tuple(row.values()) for row in table.to_pylist()], n_skipped


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("block", [40, 1 << 24])
def test_rows_with_too_few_or_too_many_fields_are_skipped_and_counted(end: bytes, block: int) -> None:
    rows = [b"1\t2\t3", b"1\t2", b"", b'4\t"5\t6', b"1\t2\t3\t4", b"\xff\xfe\t2", b"nothing", b"7\t8\t9"]
    expected = [("1", "2", "3"), ("4", '"5', "6"), ("7", "8", "9")]
    for content in (end.join(rows), end.join(rows) + end):
        assert skipped(content, block) == (expected, 4)


def test_every_row_is_read_or_skipped() -> None:
    random_bytes = random.Random(0)
    for _ in range(50):
        rows = [bytes(random_bytes.choices(b"ab\t\t\xe9", k=random_bytes.randint(1, 8))) for _ in range(30)]
        good = [row for row in rows if row.count(b"\t") == 2]
        if any(b"\xe9" in row for row in good) or not good:
            continue
        read, n_skipped = skipped(b"\n".join(rows), block=64)
        assert read == [tuple(row.decode().split("\t")) for row in good]
        assert len(read) + n_skipped == len(rows)


# Where a mistake is


def refusal(folder: Path, content: str | bytes, allowed: Allowed | None = None, name: str = "table.csv") -> str:
    with pytest.raises(DataError) as error:
        read_csv(folder, content, allowed, name)
    return str(error.value).replace(f"{folder}/", "")


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_ragged_line_is_named_by_its_number_in_the_file(tmp_path: Path, name: str, end: str) -> None:
    lines = ["", "user,item,x", "", "a,b,1", '"c,d",e,2', "f,g", "h,i,3"]
    expected = f"line 6 of '{name}' has 2 columns instead of 3 ('f,g'); repair or remove it"
    assert refusal(tmp_path, "\ufeff" + end.join(lines), name=name) == expected
    lines[5] = "f,g,4,5"
    expected = (
        f"line 6 of '{name}' has 4 columns instead of 3 ('f,g,4,5'); repair or remove it, or put fields with a ','"
    )
    assert refusal(tmp_path, end.join(lines), name=name) == f"{expected} in quotes"


def test_lines_are_counted_within_quotes_too(tmp_path: Path) -> None:
    content = 'user,item,title\na,b,"one\ntwo\nthree"\nc\n'
    assert refusal(tmp_path, content, MULTILINE).startswith("line 5 of 'table.csv' has 1 column instead of 3 ('c')")


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_a_line_in_another_encoding_is_named(tmp_path: Path, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milrec.data.reading.csv.mistakes._PIECE", piece)
    expected = "line 4 of 'table.csv' is not valid UTF-8; save the file as UTF-8"
    assert refusal(tmp_path, b"user,item\r\n\r\na,\xc3\xa9\r\nb,\xe9\r\nc,d") == expected
    assert (
        refusal(tmp_path, b"\nus\xe9r,item\na,b\n")
        == "line 2 of 'table.csv' is not valid UTF-8; save the file as UTF-8"
    )


def test_the_line_of_a_mistake_in_an_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n2,A,B\n")
    for row, said in (
        ("1,3", "line 3 of 'ratings.csv' in .* has 2 columns"),
        ("1,3,bad,1", "has text 'bad' in line 3"),
    ):
        (tmp_path / "ratings.csv").write_text(f"userId,movieId,rating,timestamp\n1,2,5,0\n{row}\n")
        with pytest.raises(DataError, match=said):
            read_source(tmp_path)
