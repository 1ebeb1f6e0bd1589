"""Tables by way of the disk: the same bytes as in memory, however rows are cut into blocks, bundles and files."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import milrec
from commands import milrec as command
from commands import succeeds
from milrec.data.preparation import Wanted, prepare_folder
from milrec.data.reading.columns import Columns
from milrec.data.reading.csv import text
from milrec.data.reading.parts import table_files, table_format
from milrec.data.streaming import collection, ids, pairs, pieces
from milrec.errors import DataError
from milrec.storage import open_folder


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows at a time, so that little data goes all the ways of large data."""
    monkeypatch.setattr(pieces, "_ROWS_TOGETHER", 7)
    monkeypatch.setattr(collection, "_ROWS_OF_A_BUNDLE", 9)
    monkeypatch.setattr(collection, "_MOST_BUNDLES", 5)
    monkeypatch.setattr(ids, "_TOGETHER", 6)
    monkeypatch.setattr(pairs, "_PAIRS_TOGETHER", 5)


def written(path: Path, rows: list[tuple[Any, ...]], names: str = "user,item,rating,time") -> Path:
    lines = [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join([names, *lines]) + "\n", encoding="utf-8")
    return path


def by_disk(source: Path, out: Path, columns: Columns, **filters: Any) -> milrec.Interactions:
    prepare_folder(source, Wanted(columns=columns, filters=filters), out, lambda rows: None, replace=True)
    return milrec.Interactions.load(out)


def same(source: Path, place: Path, columns: Columns, **filters: Any) -> None:
    """In memory and by way of the disk: the same files, byte for byte, and the same counts."""
    given = {name: limit for name, limit in filters.items() if limit is not None}
    try:
        data = milrec.read(
            source, user=columns.user, item=columns.item, value=columns.value, time=columns.time,
            where=columns.where, **given,
        )  # fmt: skip
    except DataError as error:
        with pytest.raises(DataError) as other:
            by_disk(source, place / "disk", columns, **filters)
        assert str(other.value) == str(error)  # noqa: PT017 - both ways say the same
        return
    data.save(place / "memory", replace=True)
    by_disk(source, place / "disk", columns, **filters)
    memory, disk = (open_folder(place / name, "data") for name in ("memory", "disk"))
    assert disk.hashes == memory.hashes
    assert {name: disk.facts[name] for name in memory.facts} == memory.facts


ROWS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("uvwxyz"), st.integers(0, 5), st.integers(0, 3)),
    min_size=1,
    max_size=60,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(rows=ROWS, adopt=st.sampled_from([None, 3]), reject=st.sampled_from([None, 1]), data=st.data())
def test_the_same_bytes_as_in_memory(small_pieces, tmp_path_factory, rows, adopt, reject, data):
    place = tmp_path_factory.mktemp("rows")
    value, time = data.draw(st.sampled_from([None, "rating"])), data.draw(st.sampled_from([None, "time"]))
    limits = {"min_per_user": data.draw(st.integers(1, 3)), "min_per_item": data.draw(st.integers(0, 3))}
    where = data.draw(st.sampled_from([{}, {"rating": 4}]))
    columns = Columns(value=value, time=time, where=where)
    same(written(place / "t.csv", rows), place, columns, adopt_min=adopt, reject_max=reject, **limits)


def test_counts_are_summed_in_the_same_order(small_pieces, tmp_path):
    random = np.random.default_rng(0)
    rows = [(f"u{random.integers(5)}", f"i{random.integers(4)}", random.random() * 1e3 + 0.1, 0) for _ in range(300)]
    same(written(tmp_path / "t.csv", rows), tmp_path, Columns(value="rating"))


def test_whole_numbers_as_ids_and_titles(small_pieces, tmp_path):
    random = np.random.default_rng(1)
    table = pa.table({"user": random.integers(-9, 40, 200), "item": random.integers(0, 30, 200)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=11)
    same(tmp_path / "t.parquet", tmp_path, Columns(), min_per_user=2)
    written(tmp_path / "items.csv", [(number, f"Title {number}") for number in range(0, 30, 2)], "item,title")
    data = milrec.read(tmp_path / "t.parquet", titles=tmp_path / "items.csv")
    wanted = Wanted(titles=tmp_path / "items.csv")
    found = prepare_folder(tmp_path / "t.parquet", wanted, tmp_path / "disk", lambda rows: None, replace=True)
    assert milrec.Interactions.load(tmp_path / "disk").items.equals(data.items)
    assert found.facts["items_without_title"] == data.items["title"].null_count > 0


@pytest.mark.parametrize(
    "times",
    [
        ["1", "2.5", "3"],
        ["2020-01-01", "2020-01-01 00:00:00.000000001", "2021-05-05"],
        ["2020-01-01T00:00:00Z", "2020-01-01T00:00:00.123456789Z", "2021-05-05T00:00:00Z"],
        ["7", "+8", "-9"],
        [str(2**60), str(2**60 + 1), str(2**60 - 1)],
    ],
)
def test_times_of_several_kinds_are_brought_into_one(small_pieces, tmp_path, monkeypatch, times):
    """Blocks of 64 bytes: whole numbers fill some, and fractions others."""
    monkeypatch.setattr(text, "_BLOCK", 64)
    random = np.random.default_rng(2)
    order = [times[min(number // 20, len(times) - 1)] for number in range(60)]
    rows = [(f"u{random.integers(4)}", f"i{random.integers(3)}", random.integers(1, 6), time) for time in order]
    same(written(tmp_path / "t.csv", rows), tmp_path, Columns(value="rating", time="time"), adopt_min=4, reject_max=2)


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        (["1", "2020-01-01"], "holds times of two kinds, dates and whole numbers; write all of them in one way"),
        ([str(2**60), "1.5"], "has '1.5' in line 22, which is not written like the times before it"),
        (["2020-01-01", "2020-01-01T00:00:00Z"], "holds times of two kinds, dates and dates with a time zone"),
    ],
)
def test_times_that_do_not_go_together_are_refused(small_pieces, tmp_path, monkeypatch, times, sentence):
    monkeypatch.setattr(text, "_BLOCK", 64)
    rows = [("u", "i", 5, times[number // 20]) for number in range(40)]
    with pytest.raises(DataError, match=sentence):
        by_disk(written(tmp_path / "t.csv", rows), tmp_path / "d", Columns(value="rating", time="time"), adopt_min=4)
    assert not (tmp_path / "d").exists()


# Many files


def parts(folder: Path, n: int = 3) -> list[tuple[Any, ...]]:
    folder.mkdir()
    random = np.random.default_rng(3)
    rows = [(f"u{random.integers(9)}", f"i{random.integers(7)}", random.integers(1, 6), 0) for _ in range(90)]
    for number in range(n):
        written(folder / f"part-{number}.csv", rows[number::n])
    return rows


@pytest.mark.parametrize("name", ["events", "events/*.csv", "events/part-?.csv"])
def test_a_folder_or_a_pattern_is_one_table(small_pieces, tmp_path, name):
    rows = parts(tmp_path / "events")
    (tmp_path / "events" / "_SUCCESS").touch()
    (tmp_path / "events" / ".part-0.csv.crc").write_bytes(b"\0")
    whole = milrec.read(written(tmp_path / "whole.csv", rows), value="rating", adopt_min=3)
    found = by_disk(tmp_path / name, tmp_path / "d", Columns(value="rating"), adopt_min=3)
    assert found.fingerprint() == whole.fingerprint()
    assert milrec.read(tmp_path / name, value="rating", adopt_min=3).fingerprint() == whole.fingerprint()


def test_packed_parts_and_parts_without_rows_are_read(small_pieces, tmp_path):
    rows = parts(tmp_path / "events")
    plain = tmp_path / "events" / "part-1.csv"
    (tmp_path / "events" / "part-1.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    with pa.output_stream(str(tmp_path / "events" / "part-2.csv.zst"), compression="zstd") as packed:
        packed.write((tmp_path / "events" / "part-2.csv").read_bytes())
    written(tmp_path / "events" / "part-2.csv", [])
    whole = milrec.read(written(tmp_path / "whole.csv", rows))
    assert by_disk(tmp_path / "events", tmp_path / "d", Columns()).fingerprint() == whole.fingerprint()


def test_what_is_wrong_with_a_part_is_said_about_it(tmp_path):
    parts(tmp_path / "events")
    cases = [
        ([("a", "b", 1, 0), ("", "b", 1, 0)], "user,item,rating,time", "line 3 has an empty id in column 'user'"),
        ([("a", "b", 1, 0)], "person,item,rating,time", "part-9.csv' has no column 'user'"),
        ([("a", "b", "x", 0)], "user,item,rating,time", "column 'rating' of '.*part-9.csv' has text 'x' in line 2"),
    ]  # fmt: skip
    for rows, names, sentence in cases:
        written(tmp_path / "events" / "part-9.csv", rows, names)
        with pytest.raises(DataError, match=sentence):
            by_disk(tmp_path / "events", tmp_path / "d", Columns(value="rating"))
        assert not (tmp_path / "d").exists()


def test_parts_with_ids_of_two_kinds_are_refused(tmp_path):
    folder = tmp_path / "events"
    folder.mkdir()
    pq.write_table(pa.table({"user": ["1"], "item": ["2"]}), folder / "a.parquet")
    pq.write_table(pa.table({"user": [1], "item": ["2"]}), folder / "b.parquet")
    with pytest.raises(DataError, match=r"column 'user' of '.*b.parquet' holds whole numbers, where .* hold text"):
        by_disk(folder, tmp_path / "d", Columns())


def test_parts_of_several_formats_ask_for_one(tmp_path):
    parts(tmp_path / "events", 1)
    pq.write_table(pa.table({"user": ["1"], "item": ["2"]}), tmp_path / "events" / "b.parquet")
    assert table_format(tmp_path / "events") is None
    with pytest.raises(DataError, match="does not look like a known data set; choose a `format`"):
        by_disk(tmp_path / "events", tmp_path / "d", Columns())


def test_a_pattern_that_fits_nothing_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no file's name fits '.*\*.csv'"):
        table_files(tmp_path / "*.csv")


# On the command line


def test_a_pattern_is_prepared_on_the_command_line(tmp_path):
    rows = parts(tmp_path / "events")
    done = succeeds("prepare", "events/*.csv", "--value", "rating", "--adopt-min", "3", "--out", "d", cwd=tmp_path)
    assert "90" in done.stdout
    facts = json.loads((tmp_path / "d" / "milrec.json").read_text())["facts"]
    assert facts["rows_in_source"] == len(rows) and facts["source"] == "*.csv" and facts["format"] == "csv"
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == [
        "adopted.arrow", "items.arrow", "milrec.json", "rejected.arrow", "users.arrow",
    ]  # fmt: skip
    done = command("prepare", "nothing/*.csv", "--out", "e", cwd=tmp_path)
    assert done.returncode == 1 and "no file's name fits 'nothing/*.csv'" in done.stderr
