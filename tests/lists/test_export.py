"""Files of lists, written and read back."""

import pyarrow as pa
import pytest

import milrec
from commands import succeeds
from milrec.errors import MilrecError
from milrec.lists.export import write_batches


@pytest.fixture(scope="module")
def model():
    plays = {"user": ["01", "01", "2", "2", "3", "3", "3"], "item": ["a", "b", "b", "7", "a", "b", "7"]}
    data = milrec.read(plays, titles={"a": 'a "quoted", title', "7": "2"})
    return milrec.fit(milrec.split_interactions(data, seed=0), model="popularity")


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "jsonl"])
def test_lists_come_back_as_they_were_written(model, ending, tmp_path):
    lists = model.recommend(model.user_ids, n=3).drop_columns("title")
    write_batches(tmp_path / f"lists.{ending}", lists.to_batches(), schema=lists.schema)
    found = milrec.read_lists(tmp_path / f"lists.{ending}")
    assert (
        found.num_rows
        and found.select(["user", "position", "item", "interval"]).to_pylist()
        == lists.select(["user", "position", "item", "interval"]).to_pylist()
    )


def test_a_folder_of_lists_is_read_as_one_table(model, tmp_path):
    model.save(tmp_path / "model")
    succeeds("recommend", "model", "--all", "-n", "3", "--out", "lists/", cwd=tmp_path)
    assert milrec.read_lists(tmp_path / "lists").equals(model.recommend(model.user_ids, n=3))


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "jsonl"])
def test_lists_of_older_versions_get_the_present_names(ending, tmp_path):
    old = pa.table({"user": ["u"], "rank": [1], "item": ["i"], "score": [0.5], "popularity": [3], "tail": ["long"]})
    write_batches(tmp_path / f"old.{ending}", old.to_batches(), schema=old.schema)
    found = milrec.read_lists(tmp_path / f"old.{ending}")
    assert found.column_names == ["user", "position", "item", "score", "popularity", "interval"]


def test_what_is_no_file_of_lists_is_refused(tmp_path):
    (tmp_path / "lists.parquet").write_text("nothing")
    (tmp_path / "lists.txt").write_text("nothing")
    (tmp_path / "empty.csv").write_text("")
    for name in ("lists.parquet", "lists.txt", "empty.csv", "nowhere.csv"):
        with pytest.raises(MilrecError, match=name):
            milrec.read_lists(tmp_path / name)


def test_ids_that_look_like_dates_stay_texts(tmp_path):
    (tmp_path / "lists.jsonl").write_text('{"user": "u", "position": 1, "item": "2020-01-01", "interval": "long"}\n')
    assert milrec.read_lists(tmp_path / "lists.jsonl")["item"].to_pylist() == ["2020-01-01"]
