"""Folders that milrec 0.1.0 wrote (commit 4fdcde2) open, and give the lists that it gave."""

import json
from pathlib import Path

import pytest

import milrec

FOLDERS = Path(__file__).parent / "fixtures" / "milrec-0.1.0"
EXPECTED = json.loads((FOLDERS / "expected.json").read_text(encoding="utf-8"))


PRESENT_NAMES = {"rank": "position", "tail": "interval"}  # of columns, which were called so in 0.1.0


def plain(row: dict) -> dict:
    """A row without what another CPU may round differently."""
    row = {PRESENT_NAMES.get(name, name): value for name, value in row.items()}
    return {**row, "score": None, "reasons": row.get("reasons", "").rpartition(" (")[0]}


def same(found: list[dict], expected: list[dict]) -> None:
    """The same rows; scores as far as another CPU may round them."""
    assert [plain(row) for row in found] == [plain(row) for row in expected]
    assert [row["score"] for row in found] == pytest.approx([row["score"] for row in expected], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_model_folder_of_the_first_version_gives_the_same_lists(name):
    model, expected = milrec.load(FOLDERS / name), EXPECTED[name]
    same(model.recommend(model.user_ids[:6], n=4, reasons=1, dial=0.2).to_pylist(), expected["known"])
    items = model.item_ids
    same(model.recommend_new(items[:3], rejected=items[4:5], n=4).to_pylist(), expected["new"])


@pytest.mark.parametrize("name", EXPECTED)
def test_a_split_folder_of_the_first_version_judges_its_models_as_before(name):
    split = milrec.Split.load(FOLDERS / "split")
    measured = milrec.load(FOLDERS / name).evaluate(split).measures["ndcg@20"]
    assert measured == pytest.approx(EXPECTED[name]["ndcg@20"], abs=1e-9)


def test_a_data_folder_of_the_first_version_splits_as_before():
    data, split = milrec.Interactions.load(FOLDERS / "data"), milrec.Split.load(FOLDERS / "split")
    again = milrec.split_interactions(data, seed=1)
    assert again.train.fingerprint() == split.train.fingerprint()
    assert (again.test.targets != split.test.targets).nnz == 0
