"""Titles from a table in memory, and from a column of the interactions."""

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import milrec
from commands import milrec as command
from commands import succeeds
from milrec.errors import DataError, ReadingWarning

PLAYS = {"user": ["a", "b", "b", "c"], "item": [1, 1, 2, 3], "title": ["", "One", "Two", " "], "plays": [1, 2, 3, 4]}
MAKERS = {
    "mapping": dict,
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "stream": lambda columns: pa.table(columns).to_reader(),
    "duckdb": lambda columns: duckdb.from_arrow(pa.table(columns)),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_every_kind_of_table_in_memory_is_read_with_its_column_of_titles(make):
    found = milrec.read(make(PLAYS), value="plays", title="title")
    assert found.items.to_pydict() == {"id": [1, 2, 3], "title": ["One", "Two", None]}
    assert found.adopted.sum() == 10


def test_categories_of_pandas_and_polars_are_ids():
    plain = milrec.read({"user": ["a", "b"], "item": ["x", "y"]})
    frame = pd.DataFrame({"user": pd.Categorical(["a", "b"]), "item": ["x", "y"]})
    assert milrec.read(frame).fingerprint() == plain.fingerprint()
    assert milrec.read(pl.from_pandas(frame)).fingerprint() == plain.fingerprint()


@pytest.mark.parametrize(
    "titles",
    [
        {1: "One", 2: "Two"},
        {"1": "One", "2": "Two"},
        {"item": [1, 2], "name": ["One", "Two"]},
        pd.DataFrame({"item_id": [2, 1], "title": ["Two", "One"]}),
        pl.DataFrame({"item": [2, 1], "title": ["Two", "One"]}),
    ],
    ids=["by item", "by text", "columns", "pandas", "polars"],
)
def test_titles_may_be_in_memory(titles):
    assert milrec.read(PLAYS, titles=titles).items["title"].to_pylist() == ["One", "Two", None]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"titles": 7}, "`titles` cannot be of type 'int'"),
        ({"titles": {"item": [1]}}, "`titles` needs an item column and a title column; its columns are item"),
        ({"titles": {1: "One", 2: 7}}, "`titles` has a title that is not text"),
        ({"titles": {(1, 2): "x", "a": "y"}}, "neither all text nor all whole numbers"),
        ({"titles": {1: "One"}, "title": "title"}, "not both"),
        ({"title": "name"}, "the table has no column 'name'"),
        ({"title": "item"}, "the same column is named twice: user, item, item"),
    ],
)
def test_titles_that_cannot_be_read_are_refused_in_a_sentence(given, sentence):
    with pytest.raises(DataError) as caught:
        milrec.read(PLAYS, **given)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("nothing", [None, float("nan"), pd.NA])
def test_a_missing_title_is_none(nothing):
    found = milrec.read(PLAYS, titles={1: "One", 2: nothing})
    assert found.items["title"].to_pylist() == ["One", None, None]


def test_no_titles_at_all_are_fine():
    assert milrec.read(PLAYS, titles={}).items["title"].to_pylist() == [None, None, None]


def test_rows_that_are_left_out_have_no_titles_and_need_no_ids(tmp_path):
    rows = ["user,item,test,title", "a,x,0,X", "b,y,0,Y", "b,x,1,other", "c,,1,Z"]
    (tmp_path / "rows.csv").write_text("\n".join(rows))
    frame = pd.read_csv(tmp_path / "rows.csv", keep_default_na=False)
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "rows.parquet")
    for source in (frame, tmp_path / "rows.csv", tmp_path / "rows.parquet"):
        found = milrec.read(source, where={"test": 0}, title="title")
        assert found.items.to_pydict() == {"id": ["x", "y"], "title": ["X", "Y"]}
        assert "note" not in found.reading
    succeeds("prepare", "rows.csv", "--out", "data", "--title", "title", "--where", "test=0", cwd=tmp_path)
    assert milrec.Interactions.load(tmp_path / "data").items["title"].to_pylist() == ["X", "Y"]


def test_a_column_of_titles_that_is_not_used_is_noted_wherever_the_table_comes_from(tmp_path):
    table = pa.table(PLAYS)
    (tmp_path / "folder").mkdir()
    pq.write_table(table, tmp_path / "folder" / "ratings.parquet")
    pq.write_table(table, tmp_path / "plays.parquet")
    note = "column 'title' looks like item titles; use it with `title='title'`"
    for source in (table, table.to_pandas(), tmp_path / "plays.parquet", tmp_path / "folder"):
        assert milrec.read(source, value="plays").reading["note"] == note
        assert "note" not in milrec.read(source, value="plays", titles={1: "One"}).reading
        assert "column 'plays' is not used" in milrec.read(source).reading["note"]
    for source in ("plays.parquet", "folder"):
        done = succeeds("prepare", source, "--value", "plays", "--out", f"{source}-data", cwd=tmp_path)
        assert done.stderr.count("column 'title' looks like item titles; use it with --title title") == 1
        assert "looks like" not in done.stdout


def test_a_column_that_is_not_used_is_warned_of_in_python(tmp_path):
    pq.write_table(pa.table(PLAYS), tmp_path / "plays.parquet")
    for source in (PLAYS, tmp_path / "plays.parquet"):
        with pytest.warns(ReadingWarning, match="column 'title' looks like item titles; use it with `title='title'`"):
            milrec.read(source, value="plays")


def test_a_query_of_polars_that_was_not_run_is_refused():
    with pytest.raises(DataError, match="has not been run yet; give its result"):
        milrec.read(pl.LazyFrame(PLAYS))


def test_prepare_mentions_a_column_of_titles_and_reads_it_when_it_is_named(tmp_path):
    rows = ["user,item,title", "a,1,One", "b,1,Uno", "b,2,", "c,2,Two"]
    (tmp_path / "plays.csv").write_text("\n".join(rows))
    done = succeeds("prepare", "plays.csv", "--out", "plain", cwd=tmp_path)
    assert "note: column 'title' looks like item titles; use it with --title title\n" in done.stderr
    done = succeeds("prepare", "plays.csv", "--out", "titled", "--title", "title", cwd=tmp_path)
    assert "note: 1 item has more than one title; the first one counts\n" in done.stderr
    found = milrec.Interactions.load(tmp_path / "titled").items.to_pydict()
    assert found == {"id": ["1", "2"], "title": ["One", "Two"]}
    assert milrec.read(tmp_path / "plays.csv", title="title").items.to_pydict() == found
    done = command("prepare", "plays.csv", "--out", "both", "--title", "title", "--titles", "plays.csv", cwd=tmp_path)
    assert done.returncode == 1
    assert "give either --title, a column, or --titles" in done.stderr
