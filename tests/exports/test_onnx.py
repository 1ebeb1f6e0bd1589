"""Models as ONNX files: what onnxruntime computes from them is what milrec computes."""

import json
import sys
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from scipy.sparse import csr_array

import milrec
from commands import milrec as command
from commands import succeeds
from milrec.errors import SettingsError
from own_encoders import Gated

SMALL = {"n_factors": 8, "iterations": 20}
SETTINGS = {
    "dae": {"model": "dae", **SMALL},
    "dae by square loss": {"model": "dae", "loss": "square", "encoder": "tanh", **SMALL},
    "dae of counts": {"model": "dae", "input_weights": "counts", "encoder": "sigmoid", **SMALL},
    "dae of logs": {"model": "dae", "input_weights": "log", "encoder": "relu", **SMALL},
    "dae of rare items": {"model": "dae", "input_exponent": 0.5, "input_weights": "log", **SMALL},
    "dae of rejections, too": {"model": "dae", "reads_rejected": True, **SMALL},
    "cdae": {"model": "cdae", **SMALL},
    "vae": {"model": "vae", "n_hidden": 12, **SMALL},
    "mf": {"model": "mf", **SMALL},
    "wmf": {"model": "wmf", "n_factors": 8},
    "ease": {"model": "ease"},
    "slim": {"model": "slim"},
}


@pytest.fixture(scope="module")
def split():
    random = np.random.default_rng(0)
    users, items = np.nonzero(random.random((40, 25)) < 0.35)
    plays = {"user": users, "item": [f"i{item}" for item in items], "plays": random.integers(1, 9, len(users))}
    data = milrec.read(plays, value="plays", titles={"i0": "Zero"})
    free = (random.random((40, 25)) < 0.2) & ~(data.adopted.toarray() > 0)
    return milrec.split_interactions(replace(data, rejected=csr_array(free.astype(np.float32))), seed=0)


def computed(path, adopted, users, rejected=None):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    refused = np.zeros_like(adopted) if rejected is None else rejected
    given = {"adopted": adopted, "rejected": refused, "user": users}
    kinds = {"adopted": np.float32, "rejected": np.float32, "user": np.int64}
    given = {name: value.astype(kinds[name]) for name, value in given.items()}
    logits = session.run(["logits"], {one.name: given[one.name] for one in session.get_inputs()})[0]
    return logits, json.loads(session.get_modelmeta().custom_metadata_map["milrec"])


def assert_same_scores(table, logits, item_ids):
    """Within 1e-5 of the largest score of the list."""
    found = [logits[item_ids.index(item)] for item in table["item"].to_pylist()]
    scores = table["score"].to_numpy()
    assert len(found) > 5 and np.abs(found - scores).max() <= 1e-5 * np.abs(scores).max()


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_onnxruntime_computes_the_scores_of_known_users(split, settings, tmp_path):
    model = milrec.fit(split, **settings)
    model.to_onnx(tmp_path / "model.onnx")
    train = model.fitted.train
    adopted, rejected = train.adopted.toarray(), train.rejected.toarray()
    logits, facts = computed(tmp_path / "model.onnx", adopted, np.arange(train.n_users), rejected)
    assert logits.shape == (train.n_users, train.n_items) and logits.dtype == np.float32
    assert facts["model"] == settings["model"] and facts["items"] == model.item_ids and "Zero" in facts["titles"]
    for row in (0, 7, train.n_users - 1):
        assert_same_scores(model.recommend([model.user_ids[row]], n=25), logits[row], facts["items"])


@pytest.mark.parametrize("name", ["dae of logs", "dae of rare items", "dae of rejections, too", "cdae", "vae", "ease"])
def test_onnxruntime_computes_the_scores_of_new_users_and_of_one_without_items(split, name, tmp_path):
    model = milrec.fit(split, **SETTINGS[name])
    model.to_onnx(tmp_path / "model.onnx")
    taste = {model.item_ids[2]: 3, model.item_ids[5]: 1}
    adopted = np.zeros((2, len(model.item_ids)))
    adopted[0, [2, 5]] = 3, 1
    logits, facts = computed(tmp_path / "model.onnx", adopted, np.full(2, len(model.user_ids)))
    assert_same_scores(model.recommend_new(taste, n=25), logits[0], facts["items"])
    assert np.isfinite(logits).all()


def test_the_same_model_is_the_same_file(split, tmp_path):
    for name in ("one.onnx", "two.onnx"):
        milrec.fit(split, **SETTINGS["dae"]).to_onnx(tmp_path / name)
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


@pytest.mark.parametrize("model", ["popularity", "ease-sparse", Gated])
def test_models_without_an_onnx_form_are_refused_and_leave_no_file(split, model, tmp_path):
    short = {"iterations": 3} if model is Gated else {}
    with pytest.raises(SettingsError, match=r"cannot be exported to ONNX; dae, cdae, vae, mf, wmf, ease and slim can$"):
        milrec.fit(split, model, **short).to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_other_endings_large_models_and_a_missing_package_are_refused(split, tmp_path, monkeypatch):
    model = milrec.fit(split, model="ease")
    with pytest.raises(SettingsError, match=r"does not end in \.onnx"):
        model.to_onnx(tmp_path / "model.bin")
    with monkeypatch.context() as patch:
        patch.setattr("milrec.exports.onnx._LARGEST", 100)
        with pytest.raises(SettingsError, match="an ONNX file holds at most 2 GiB"):
            model.to_onnx(tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(SettingsError, match=r"pip install 'milrec\[onnx\]'"):
        model.to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_the_command_writes_the_same_file(split, tmp_path):
    model = milrec.fit(split, model="ease")
    model.save(tmp_path / "ease")
    model.to_onnx(tmp_path / "own.onnx")
    done = succeeds("export", "ease", "--out", "model.onnx", cwd=tmp_path)
    assert done.stdout == "ease, 25 items → model.onnx\n"
    assert (tmp_path / "model.onnx").read_bytes() == (tmp_path / "own.onnx").read_bytes()
    wrong = command("export", "ease", "--out", "model.txt", cwd=tmp_path)
    assert wrong.returncode == 1 and wrong.stderr == "milrec: 'model.txt' does not end in .onnx\n"
