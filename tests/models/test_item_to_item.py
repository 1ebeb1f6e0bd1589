"""Weights from item to item: logits from any number of rows, few weights as sparse rows, and what a file may hold."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_array

import milrec
from forging import reseal
from milrec.errors import FolderError
from milrec.kernels.sparse import Rows
from milrec.models.inputs import Users
from milrec.models.item_to_item import ItemToItem, SparseItemToItem
from milrec.models.settings import EaseSettings, SparseEaseSettings
from random_rows import random_rows

N_ITEMS = 40


@pytest.fixture
def sparse() -> SparseItemToItem:
    model = SparseItemToItem(SparseEaseSettings(), N_ITEMS)
    model.take(random_rows(N_ITEMS))
    return model


@pytest.fixture
def dense(sparse) -> ItemToItem:
    """The same weights, held as a whole matrix."""
    model = ItemToItem(EaseSettings(), N_ITEMS)
    indptr, items, values = sparse.rows
    model.item_weight.copy_(torch.from_numpy(csr_array((values, items, indptr), shape=(N_ITEMS, N_ITEMS)).toarray()))
    return model


def users() -> Users:
    """One without items, one with one, and one with several, each a new user."""
    adopted = [np.array(items, dtype=np.int32) for items in ([], [7], [0, 7, 21, 39])]
    return Users(Rows.stacked(adopted), Rows.none(3), None)


def logits_of(model, n_rows) -> torch.Tensor:
    out = torch.full((n_rows, N_ITEMS), np.nan)
    model.write_logits(users(), out)
    return out


def test_sparse_and_whole_matrices_score_explain_and_compare_alike(sparse, dense):
    first, second = logits_of(sparse, 3), logits_of(dense, 3)
    assert first.numpy().tobytes() == second.numpy().tobytes() and not first[0].any() and first[2].any()
    user, listed = users().adopted, np.array([21, 3, 39, 0])
    someone = Users(user.cut(2, 3), Rows.none(1), None)
    assert np.array_equal(sparse.parts(someone, listed), dense.parts(someone, listed))
    for item in range(N_ITEMS):
        assert np.array_equal(sparse.likeness()(item), dense.likeness()(item))


def test_items_are_alike_by_way_of_others_too():
    """0 gives .5 to 1, and 1 gives .25 to 2. First 2 gets 4·.5·.25 by way of 1, and then as much again."""
    model = ItemToItem(EaseSettings(), 4)
    model.item_weight.data[0, 1], model.item_weight.data[1, 2], model.item_weight.data[0, 3] = 0.5, 0.25, -1
    assert model.likeness()(0).tolist() == [0, 0.5, 1, -1]
    assert model.likeness()(1).tolist() == [0, 0, 0.25, 0]


def test_parts_add_up_to_the_logits(sparse):
    someone = Users(users().adopted.cut(2, 3), Rows.none(1), None)
    parts = sparse.parts(someone, np.arange(N_ITEMS))
    assert parts.shape == (4, N_ITEMS)
    assert parts.sum(axis=0) == pytest.approx(logits_of(sparse, 3)[2].numpy(), abs=1e-6)


@pytest.mark.parametrize("n_rows", [3, 4, 64])
def test_only_the_rows_of_the_users_are_written(sparse, dense, n_rows):
    for model in (sparse, dense):
        logits = logits_of(model, n_rows)
        assert logits[:3].isfinite().all() and logits[3:].isnan().all()
        assert logits[:3].numpy().tobytes() == logits_of(model, 3).numpy().tobytes()


def test_a_model_that_was_just_built_has_no_weights_and_scores_everything_0():
    model = SparseItemToItem(SparseEaseSettings(), N_ITEMS)
    assert model.flaw() is None and model.n_items == N_ITEMS
    assert not logits_of(model, 3).any()
    assert not (model.likeness()(3) > 0).any()


# What a file may hold


@pytest.fixture(scope="module")
def folder(tmp_path_factory, small_catalogue):
    place = tmp_path_factory.mktemp("folder") / "model"
    milrec.fit(milrec.split_interactions(small_catalogue, seed=0), "ease-sparse", neighbours=5).save(place)
    return place


def test_a_folder_holds_few_weights_by_the_item_that_they_lead_from(folder):
    model = milrec.load(folder).fitted.model
    assert isinstance(model, SparseItemToItem)
    found = load_file(folder / "weights.safetensors")
    assert {name: value.dtype for name, value in found.items()} == {
        "weight_indptr": torch.int64,
        "weight_items": torch.int32,
        "item_weight": torch.float32,
    }
    assert 0 < len(found["item_weight"]) == len(found["weight_items"]) <= 5 * model.n_items
    assert (np.bincount(found["weight_items"], minlength=model.n_items) <= 5).all()


def swap_two(found):
    items = found["weight_items"]
    items[0], items[1] = items[1].clone(), items[0].clone()


def twice(found):
    found["weight_items"][1] = found["weight_items"][0]


def to_itself(found):
    indptr, items = found["weight_indptr"], found["weight_items"]
    found["weight_items"], found["item_weight"] = items[:1].clone(), found["item_weight"][:1].clone()
    found["weight_items"][0] = 3
    indptr[:4], indptr[4:] = 0, 1


def change(name, place, value):
    def changed(found):
        found[name][place] = value

    return changed


def cut(name, places):
    def changed(found):
        found[name] = found[name][places].clone()

    return changed


IMPOSSIBLE = {
    "one weight too few": (
        cut("item_weight", slice(1, None)),
        "impossible weights: [0-9]+ weights to [0-9]+ items",
    ),
    "one item too few": (
        cut("weight_items", slice(1, None)),
        "impossible weights: [0-9]+ weights to [0-9]+ items",
    ),
    "beginning late": (change("weight_indptr", 0, 1), "not clear which item they belong to"),
    "ending early": (change("weight_indptr", -1, 1), "not clear which item they belong to"),
    "falling": (change("weight_indptr", 7, 0), "not clear which item they belong to"),
    "far away": (change("weight_indptr", 7, 2**62), "not clear which item they belong to"),
    "far below": (change("weight_indptr", 7, -(2**63)), "not clear which item they belong to"),
    "below the first item": (change("weight_items", 3, -1), "to items that do not exist"),
    "beyond the last item": (change("weight_items", 3, 2**31 - 1), "to items that do not exist"),
    "out of order": (swap_two, "those of an item are out of order"),
    "twice": (twice, "those of an item are out of order"),
    "to itself": (to_itself, "one leads from an item to itself"),
    "not finite": (change("item_weight", 3, float("nan")), "has weights that are not finite"),
    "too few items": (cut("weight_indptr", slice(1, None)), "'weight_indptr' is .* of torch.int64; these settings"),
    "a weight of two dimensions": (
        lambda found: found.update(item_weight=found["item_weight"][:, None].clone()),
        "'item_weight' is .* of torch.float32; these settings",
    ),
    "no dimension": (
        lambda found: found.update(weight_items=torch.tensor(3, dtype=torch.int32)),
        r"'weight_items' is \(\) of torch.int32; these settings",
    ),
    "another type": (
        lambda found: found.update(weight_items=found["weight_items"].long()),
        "'weight_items' is .* of torch.int",
    ),
    "missing": (lambda found: found.pop("weight_items"), "'weight_items' is missing"),
    "one more": (lambda found: found.update(more=torch.zeros(1)), "'more' is .* of torch.float32; these settings"),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_impossible_sparse_weights_are_refused_even_when_the_manifest_vouches_for_them(folder, what):
    forge, sentence = IMPOSSIBLE[what]
    file = folder / "weights.safetensors"
    content = file.read_bytes()
    try:
        found = load_file(file)
        forge(found)
        save_file(found, file)
        reseal(folder)
        with pytest.raises(FolderError, match=sentence) as refusal:
            milrec.load(folder)
        assert "\n" not in str(refusal.value)
    finally:
        file.write_bytes(content)
        reseal(folder)
    milrec.load(folder)
