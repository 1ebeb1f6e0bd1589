"""`milrec prepare`, and ids on the command line: what was read is shown, and what is odd is one sentence."""

import gzip
import json
import os

import pytest

from commands import milrec, succeeds
from milrec.data.reading import sources

has_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
PAIRS = "".join(f"u{row % 4},i{row % 7}\n" for row in range(40))


def refuses(*arguments, cwd) -> str:
    done = milrec(*arguments, cwd=cwd)
    assert done.returncode == 1, done
    assert done.stderr.startswith("milrec: ") and done.stderr.count("\n") == 1, done.stderr
    assert len(done.stderr) < 1_000
    return done.stderr


def facts_in(folder) -> dict:
    return json.loads((folder / "milrec.json").read_text())["facts"]


def test_prepare_shows_the_columns_it_read_and_keeps_them(tmp_path):
    (tmp_path / "table.csv").write_text("userId,movieId,Plays,day\na,x,3,1\nb,x,4,2\n")
    shown = succeeds("prepare", "table.csv", "--out", "data", "--value", "Plays", "--time", "day", cwd=tmp_path).stdout
    lines = [line.split(maxsplit=2) for line in shown.splitlines()]
    for what, name in (("user", "userId"), ("item", "movieId"), ("value", "Plays"), ("time", "day")):
        assert [what, "column", name] in lines
        assert facts_in(tmp_path / "data")[f"{what}_column"] == name
    assert "userId" in succeeds("show", "data", cwd=tmp_path).stdout


def test_prepare_shows_how_many_rows_it_left_out(tmp_path):
    (tmp_path / "table.csv").write_text("user,item,test\na,x,0\na,y,1\nb,x,0\n")
    shown = succeeds("prepare", "table.csv", "--out", "data", "--where", "test=0", cwd=tmp_path).stdout
    facts = facts_in(tmp_path / "data")
    assert (facts["rows_in_source"], facts["rows_left_out_by_where"], facts["rows"]) == (3, 1, 2)
    assert "rows left out by where" in shown and "rows in source" in shown


def test_two_columns_of_almost_one_name_are_answered_with_the_option_that_decides(tmp_path):
    (tmp_path / "table.csv").write_text("user,User,item\na,b,x\n")
    sentence = refuses("prepare", "table.csv", "--out", "data", cwd=tmp_path)
    assert sentence == "milrec: 'user' and 'User' are both columns of 'table.csv'; choose one with --user\n"
    succeeds("prepare", "table.csv", "--out", "data", "--user", "User", cwd=tmp_path)


def test_line_breaks_in_quotes_need_the_option_that_says_they_are_meant(tmp_path):
    (tmp_path / "table.csv").write_text('user,item,title\na,x,"A\nB"\nb,x,C\n')
    assert refuses("prepare", "table.csv", "--out", "data", cwd=tmp_path) == (
        "milrec: line 2 of 'table.csv' ends inside quotes; if a field may have several lines, give --multiline\n"
    )
    succeeds("prepare", "table.csv", "--out", "data", "--multiline", cwd=tmp_path)
    assert facts_in(tmp_path / "data")["rows"] == 2


def test_an_open_quote_is_refused_with_or_without_the_option(tmp_path):
    (tmp_path / "table.csv").write_text('user,item,title\nu1,i1,"Quote\nu2,i2,x\nu3,i3,y\n')
    for options in ([], ["--multiline"]):
        sentence = refuses("prepare", "table.csv", "--out", "data", *options, cwd=tmp_path)
        assert "the quote in line 2 is never closed" in sentence


def test_a_file_that_unpacks_to_far_too_much_needs_an_option(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_ANY_FILE", 1 << 16)
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(b"user,item\n" + b"a,b\n" * (1 << 16)))
    assert refuses("prepare", "table.csv.gz", "--out", "data", cwd=tmp_path) == (
        "milrec: 'table.csv.gz' unpacks to more than 100 times its size; if that is right, "
        "give a higher --max-expansion\n"
    )
    succeeds("prepare", "table.csv.gz", "--out", "data", "--max-expansion", 1000, cwd=tmp_path)


@has_pipes
@pytest.mark.parametrize("option", ["--titles", "source"])
def test_a_device_or_a_pipe_is_refused_at_once(tmp_path, option):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "table.csv").write_text("user,item\na,x\n")
    for special in ("/dev/zero", "pipe.csv"):
        arguments = [special] if option == "source" else ["table.csv", "--titles", special]
        assert "is neither a file nor a folder" in refuses("prepare", *arguments, "--out", "data", cwd=tmp_path)


def test_a_damaged_parquet_file_is_one_sentence(tmp_path):
    (tmp_path / "table.parquet").write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
    for options in ([], ["--format", "csv"], ["--value", "rating"]):
        assert "table.parquet" in refuses("prepare", "table.parquet", "--out", "data", *options, cwd=tmp_path)


def test_odd_names_of_columns_do_not_reach_the_terminal(tmp_path):
    (tmp_path / "table.csv").write_text('"a\x1b[2Jb","c\td"\n1,2\n,3\n')
    assert "a\\x1b[2Jb, c\\td" in refuses("prepare", "table.csv", "--out", "data", cwd=tmp_path)
    named = ["--user", "a\x1b[2Jb", "--item", "c\td"]
    assert "column 'a\\x1b[2Jb' of" in refuses("prepare", "table.csv", "--out", "data", *named, cwd=tmp_path)
    condition = ["--where", "c\td=x\ny"]
    assert "has c\\td=x\\ny" in refuses("prepare", "table.csv", "--out", "data", *named, *condition, cwd=tmp_path)


@pytest.fixture(scope="module")
def popular(tmp_path_factory):
    folder = tmp_path_factory.mktemp("popular")
    (folder / "table.csv").write_text("user,item\n" + PAIRS)
    succeeds("prepare", "table.csv", "--out", "data", cwd=folder)
    succeeds("split", "data", "--out", "split", cwd=folder)
    succeeds("fit", "split", "--out", "model", "--model", "popularity", cwd=folder)
    return folder


@pytest.mark.parametrize("option", ["--adopted", "--rejected"])
@pytest.mark.parametrize("ids", ["i1\ni2", "i1\ri2", '"i1', '"i1"i2', '"i1" ,i2'])
def test_ids_that_are_not_separated_by_commas_are_refused(popular, option, ids):
    others = ["--adopted", "i1"] if option == "--rejected" else []
    sentence = refuses("recommend", "model", *others, option, ids, cwd=popular)
    assert f"{option} needs ids separated by commas, with quotes only around a whole id" in sentence


@pytest.mark.parametrize("odd", ["i1\ni2", "\x1b[2J", "i\t", "x" * 5_000, "\udc80"])
def test_unknown_ids_are_shown_on_one_line(popular, odd):
    quoted = '"' + odd + '"'
    for arguments in (["--user", odd], ["--adopted", quoted], ["--adopted", "i1", "--rejected", quoted]):
        sentence = refuses("recommend", "model", *arguments, cwd=popular)
        assert "unknown" in sentence and "\x1b" not in sentence


@pytest.mark.parametrize("option", ["--allow", "--exclude"])
def test_ids_in_a_file_end_with_their_lines_and_nothing_else(popular, option):
    """Python's splitlines takes more for a line end than a line feed: such an id would be cut in two."""
    (popular / "ids.txt").write_bytes("i1\r\ni\u2028x\x0by\ni2".encode())
    done = succeeds("recommend", "model", "--user", "u1", option, "ids.txt", cwd=popular)
    assert f"1 of 3 ids in the {option[2:]} file are not in the catalogue" in done.stderr
    assert "is not a file with one id per line" in refuses(
        "recommend", "model", "--user", "u1", option, ".", cwd=popular
    )
