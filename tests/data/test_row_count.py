"""Rows are counted as Python's csv module counts them, however the text is cut into pieces."""

import csv
import io

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from milrec.data.reading.csv import row_count
from milrec.data.reading.csv.row_count import RowCounter

fragments = st.sampled_from(["a", "é", ",", ",", '"', '"', '""', ',"', '",', "\n", "\r", "\r\n", "\n\n", " ", "\0"])
texts = st.lists(fragments, max_size=40).map("".join)


def rows_of_csv(text: str) -> int:
    return sum(bool(row) for row in csv.reader(io.StringIO(text, newline="")))


def counted(text: str | bytes, delimiter: bytes | None = b",", step: int = 1 << 20) -> RowCounter:
    content = text.encode() if isinstance(text, str) else text
    counter = RowCounter(delimiter)
    for start in range(0, len(content), step):
        counter.feed(content[start : start + step])
    counter.end()
    return counter


@settings(max_examples=400, deadline=None)
@given(texts, st.integers(1, 30), st.integers(1, 30))
@example('a,"""\n', 3, 3)
@example('"a""\n"\n', 4, 2)
@example('b"b,b\n"\n', 1, 1)
@example('\r,""\n"\n\n', 2, 5)
def test_rows_are_counted_as_the_csv_module_counts_them(text: str, step: int, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_count, "_PIECE", piece)
        assert counted(text, step=step).rows == rows_of_csv(text)


@settings(max_examples=200, deadline=None)
@given(texts, st.integers(1, 30), st.integers(1, 30))
@example('\n,aa,\na",\r"""a\r""b', 5, 1)
def test_what_is_said_about_quotes_does_not_depend_on_the_pieces(text: str, step: int, piece: int) -> None:
    whole = counted(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_count, "_PIECE", piece)
        parts = counted(text, step=step)
    for name in ("rows", "unclosed", "first_break", "most_lines", "longest_opened"):
        assert getattr(parts, name) == getattr(whole, name), name


@settings(max_examples=200, deadline=None)
@given(texts)
def test_a_quote_is_open_at_the_end_if_the_csv_module_misses_its_end(text: str) -> None:
    try:
        list(csv.reader(io.StringIO(text, newline=""), strict=True))
        ends_open = False
    except csv.Error as error:
        if "unexpected end of data" not in str(error):
            return  # a quote that the strict module takes for a mistake, and the other one takes as it is
        ends_open = True
    assert (counted(text).unclosed is not None) == ends_open


@pytest.mark.parametrize(
    ("text", "n_rows"),
    [
        ("", 0), ("\n", 0), ("\r\n\r\n", 0), ("a", 1), ("a\n", 1), ("a\r\nb\r\n", 2), ("a\rb\rc", 3), ("a\n\n\nb", 2),
        ('"a\nb"', 1), ('"a""\nb"\nc', 2), ('a"\n"b"', 2), (' "a\nb"', 2), ('"a"\n"b"', 2), ('x,"\n', 1),
    ],
)  # fmt: skip
def test_rows_of_small_texts(text: str, n_rows: int) -> None:
    assert counted(text).rows == n_rows


def test_a_byte_order_mark_comes_before_the_first_field() -> None:
    for step in (1, 2, 3, 10):
        assert counted(b'\xef\xbb\xbf"a\nb"\nc', step=step).rows == 2
    assert counted(b"\xef\xbb\xbf\n").rows == 0
    assert counted(b"\xef\xbb").rows == 1


def test_without_quotes_a_quote_is_a_letter() -> None:
    assert counted('"a\nb"\n"\n', delimiter=None).rows == 3
    assert counted('"a\nb', delimiter=None).unclosed is None


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_line_of_a_quote_is_known(end: str) -> None:
    open_text = end.join(["user,item", "a,b", 'c,"d', "e,f"])
    assert counted(open_text).unclosed == 3
    broken = end.join(["user,item", "a,b", "", 'c,"d', 'e",f', 'g,"h', "", '"'])
    counter = counted(broken)
    assert (counter.unclosed, counter.first_break, counter.most_lines, counter.longest_opened) == (None, 4, 3, 6)
