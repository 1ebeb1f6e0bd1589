"""milrec beside other libraries: the judge is right, the script runs, and the page says what the kept results say."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiments.peers import page
from experiments.peers.environments import PACKAGES, name_of
from experiments.peers.judge import Judge
from experiments.peers.snippets import models_of, task_lines, task_source
from experiments.peers.trial import format_of, table_of, tried

import milrec

ROOT = Path(__file__).resolve().parents[1]


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> None:
    users, items = zip(*pairs, strict=True)
    pq.write_table(pa.table({"user": list(users), "item": list(items)}), path)


def judged(tmp_path: Path, lists: dict[str, list]) -> dict[str, float]:
    """Ann has b, bob has a and b; a and b are popular, and c, the long tail, is what both should find."""
    write_pairs(tmp_path / "train.parquet", [("ann", "b"), ("bob", "a"), ("bob", "b"), ("cid", "a"), ("dan", "a"),
                                             ("dan", "b"), ("eve", "c"), ("eve", "b")])  # fmt: skip
    write_pairs(tmp_path / "test.parquet", [("bob", "c"), ("ann", "c")])
    pq.write_table(table_of(lists), tmp_path / "lists.parquet")
    return Judge.of(tmp_path).measures(tmp_path / "lists.parquet")


def test_the_judge_finds_the_measures_that_are_known_by_hand(tmp_path):
    found = judged(tmp_path, {"user": ["ann", "ann", "bob"], "item": ["a", "c", "c"]})
    assert found["recall@20"] == 1
    assert found["ndcg@20"] == found["ndcg@100"] == pytest.approx((1 / np.log2(3) + 1) / 2, abs=1e-4)
    assert found["long_share@20"] == 0.75
    assert found["already_theirs"] == 0


def test_a_user_without_a_list_counts_as_a_miss_and_an_item_that_is_theirs_is_counted(tmp_path):
    found = judged(tmp_path, {"user": ["bob", "bob"], "item": ["b", "c"]})
    assert found["recall@20"] == 0.5
    assert found["already_theirs"] == 1


def test_a_file_is_known_as_a_pickle_by_its_content(tmp_path):
    (tmp_path / "model.bin").write_bytes(pickle.dumps({"a": 1}))
    np.savez(tmp_path / "model.npz", factors=np.ones(2))
    assert [format_of(tmp_path / name) for name in ("model.bin", "model.npz")] == ["pickle", "npz"]


def test_what_a_library_does_not_offer_is_told_apart_from_what_fails():
    class Peer:
        @staticmethod
        def save():
            raise ValueError("no room")

    assert tried(Peer, "list_for_newcomer", lambda make: make()) == {"offered": False}
    assert tried(Peer, "save", lambda save: save()) == {"offered": True, "error": "ValueError: no room"}


@pytest.mark.parametrize("library", sorted({name_of(library) for library in PACKAGES} - {"warprec"}))
def test_the_task_of_a_library_is_short_and_whole(library):
    source = task_source(library)
    assert "def fit(" in source and "def lists(" in source
    assert "def save(" not in source and "newcomer" not in source
    assert 5 < task_lines(library) <= 50
    assert models_of(library)


def test_the_script_does_the_task_in_milrec_and_implicit(tmp_path):
    milrec.simulate(milrec.Simulation(n_users=120, n_items=160), seed=0).save(tmp_path / "data")
    words = ["--data", "data", "--out", "out", "--here", "--checks", "--only", "milrec", "implicit"]
    run = [sys.executable, "-m", "experiments.peers", *words, "--models", "EASE", "ALS"]
    places = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run(
        run, cwd=tmp_path, env={**os.environ, "PYTHONPATH": places}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["libraries"]
    ease, als = found["milrec"]["models"]["EASE"], found["implicit"]["models"]["ALS"]
    assert ease["ndcg@100"] > 0.1 and als["ndcg@100"] > 0.1
    assert ease["already_theirs"] == 0
    for check in ("allowed", "excluded"):
        assert ease["checks"][check] == {"offered": True, "listed": 5, "forbidden": 0}
    assert ease["checks"]["saved"]["formats"] == ["Arrow", "JSON", "safetensors"]
    assert als["checks"]["saved"]["formats"] == ["npz"]
    assert ease["checks"]["same_again"] and als["checks"]["newcomer"]["listed"] == 20


def test_the_script_refuses_what_is_not_a_data_folder_in_one_sentence(tmp_path):
    run = [sys.executable, "-m", "experiments.peers", "--data", str(tmp_path / "nowhere"), "--out", str(tmp_path)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("peers: ") and len(done.stderr.splitlines()) == 1


def test_the_page_says_what_the_kept_results_say():
    text = page.PAGE.read_text(encoding="utf-8")
    assert len(page._BLOCK.findall(text)) >= 5
    assert page.filled_in(text) == text
