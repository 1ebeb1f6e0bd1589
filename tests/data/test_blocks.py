"""A mistake in a table is named by its line in the file, or by its row where there are no lines, in whatever block."""

import csv
import gzip
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milrec
from milrec.data.preparation import Wanted, prepare_folder
from milrec.data.reading import tables
from milrec.data.reading.columns import Columns
from milrec.data.reading.csv import mistakes, text
from milrec.data.reading.csv.row_count import line_of_row
from milrec.data.reading.sources import Allowed
from milrec.data.reading.titles import read_titles
from milrec.errors import DataError

COUNTED = Columns(value="plays")
BOUGHT = Columns(value="plays", where={"kind": "buy"})
N_ROWS = 200
WRONG = 151  # a row, counted from 0, after many that `where` leaves out: line 153 of a text


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request, monkeypatch) -> None:
    if request.param == "many blocks":
        monkeypatch.setattr(text, "_BLOCK", 256)
        monkeypatch.setattr(mistakes, "_PIECE", 100)
        monkeypatch.setattr(tables, "_ROWS_TOGETHER", 16)


def columns_with(name: str, wrong: object) -> dict[str, list[object]]:
    """Every second row is a purchase, and so is the wrong one."""
    found: dict[str, list[object]] = {
        "user": [f"u{row}" for row in range(N_ROWS)],
        "item": ["x"] * N_ROWS,
        "plays": [3] * N_ROWS,
        "kind": ["play" if row % 2 == 0 else "buy" for row in range(N_ROWS)],
    }
    found[name][WRONG] = wrong
    return found


def written(path: Path, columns: dict[str, list[object]]) -> Path:
    content = io.StringIO(newline="")
    rows = csv.writer(content, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(zip(*columns.values(), strict=True))
    plain = content.getvalue().encode()
    path.write_bytes(gzip.compress(plain) if path.suffix == ".gz" else plain)
    return path


def refusals(source: Path, columns: Columns, out: Path, allowed: Allowed | None = None) -> set[str]:
    """What is said when a table is read into memory, and when it is read by way of the disk."""
    allowed = allowed or Allowed()
    with pytest.raises(DataError) as in_memory:
        milrec.read(source, value=columns.value, where=columns.where, multiline=allowed.multiline)
    with pytest.raises(DataError) as by_disk:
        prepare_folder(source, Wanted(columns=columns, allowed=allowed), out, lambda rows: None)
    return {str(in_memory.value), str(by_disk.value)}


CASES = [
    ("user", "", "{place} has an empty id in column 'user' of {table}"),
    ("plays", "", "column 'plays' of {table} has no number in {place}; remove or repair such rows"),
    ("plays", "many", "column 'plays' of {file} has text 'many' in {place}; a number is needed"),
    (
        "plays", 2**53,
        "column 'plays' of {table} has 9007199254740992 in {place}; values must be below 2^53 "
        "(is it a column of ids or times?)",
    ),
    (
        "plays", -3,
        "the count in {place} of {file} is -3; counts cannot be negative (if these are ratings, give `adopt_min`)",
    ),
    ("plays", 1e-300, "the count in {place} of {file} is 1e-300, which 32 bits cannot hold"),
]  # fmt: skip


@pytest.mark.parametrize("columns", [COUNTED, BOUGHT], ids=["all", "where"])
@pytest.mark.parametrize("name", ["plays.csv", "plays.csv.gz"])
@pytest.mark.parametrize(("column", "wrong", "sentence"), CASES)
def test_a_mistake_in_a_text_is_named_by_its_line(blocks, tmp_path, columns, name, column, wrong, sentence):
    source = written(tmp_path / name, columns_with(column, wrong))
    table = f"'{source}' where kind=buy" if columns.where else f"'{source}'"
    expected = sentence.format(place=f"line {WRONG + 2}", file=f"'{source}'", table=table)
    assert refusals(source, columns, tmp_path / "d") == {expected}


@pytest.mark.parametrize("columns", [COUNTED, BOUGHT], ids=["all", "where"])
@pytest.mark.parametrize(("column", "wrong", "sentence"), [case for case in CASES if case[1] in ("", -3)])
def test_a_mistake_in_a_parquet_file_is_named_by_its_row(blocks, tmp_path, columns, column, wrong, sentence):
    found = columns_with(column, None if (column, wrong) == ("plays", "") else wrong)
    source = tmp_path / "plays.parquet"
    pq.write_table(pa.table(found), source)
    table = f"'{source}' where kind=buy" if columns.where else f"'{source}'"
    expected = sentence.format(place=f"row {WRONG + 1}", file=f"'{source}'", table=table)
    assert refusals(source, columns, tmp_path / "d") == {expected}


@pytest.mark.parametrize("where", [{}, {"kind": "buy"}])
def test_a_mistake_in_a_table_in_memory_is_named_by_its_row_before_conditions(where):
    with pytest.raises(DataError, match=f"the count in row {WRONG + 1} of the table is -3; "):
        milrec.read(columns_with("plays", -3), value="plays", where=where)
    with pytest.raises(DataError, match=f"^row {WRONG + 1} has an empty id in column 'item' of the table"):
        milrec.read(columns_with("item", ""), where=where)


def test_lines_are_counted_with_the_header_with_blank_lines_and_with_breaks_inside_quotes(blocks, tmp_path):
    source = tmp_path / "plays.csv"
    source.write_bytes(b'\xef\xbb\xbf\r\nuser,item,plays\r\n\r\nann,"a\r\nlong\r\nname",2\r\n\r\nbob,x,-1\r\n')
    (said,) = refusals(source, COUNTED, tmp_path / "d", Allowed(multiline=True))
    assert said.startswith(f"the count in line 8 of '{source}' is -1; ")


def test_of_several_files_the_one_with_the_mistake_is_named(blocks, tmp_path):
    folder = tmp_path / "events"
    folder.mkdir()
    for number in range(3):
        written(folder / f"part-{number}.csv", columns_with("plays", -3 if number == 1 else 3))
    (said,) = refusals(folder, BOUGHT, tmp_path / "d")
    assert said.startswith(f"the count in line {WRONG + 2} of '{folder / 'part-1.csv'}' is -3; ")


def test_a_title_without_an_item_is_named_by_its_line(tmp_path):
    (tmp_path / "titles.csv").write_text('item,title\nx,"A\nB"\n,C\n')
    with pytest.raises(DataError, match=r"^line 4 has an empty id in column 'item' of "):
        read_titles(tmp_path / "titles.csv")


@given(
    st.lists(st.sampled_from(['a,"b\nc"', "a,b", "", 'a,"x""\r\n"', '"a",b']), min_size=1, max_size=12),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(1, 9),
)
def test_the_line_of_a_row_is_the_one_that_pythons_csv_module_counts(rows, end, size):
    whole = "".join(row + end for row in ["user,item", *rows])
    reader = csv.reader(io.StringIO(whole, newline=""))
    expected, line = [], 1
    for row in reader:
        if row:
            expected.append(line)
        line = reader.line_num + 1
    content = whole.encode()
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    assert [line_of_row(pieces, b",", row) for row in range(len(expected))] == expected
