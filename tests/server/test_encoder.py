"""Somebody's own encoder behind the server."""

import pytest

import milrec
from milrec.errors import FolderError
from milrec.server.copies import Folders
from milrec.server.registry import Registry
from own_encoders import Gated
from serving import answers_of


@pytest.fixture
def folder(small_catalogue, tmp_path):
    split = milrec.split_interactions(small_catalogue, seed=0)
    milrec.fit(split, Gated, n_factors=4, iterations=4).save(tmp_path / "gated")
    return tmp_path / "gated"


def test_a_server_answers_with_an_encoder_that_was_named(folder):
    registry = Registry(Folders({"gated": folder}), together=4, models=[Gated])
    try:
        served = registry.model("gated")
        item = served.recommender.item_ids[0]
        (answer,) = answers_of(registry, milrec.Query(adopted=[item], n=3, reasons=1))
        (row,) = {served.recommender.recommend_new([item], n=1)["item"][0].as_py()}
        assert answer["items"][0]["item"] == row and len(answer["items"]) == 3
        assert registry.reload("gated").fingerprint == served.fingerprint
    finally:
        registry.stop()


def test_a_server_refuses_an_encoder_that_was_not_named(folder):
    with pytest.raises(FolderError, match="that is not one of milrec's; name its class with `models`"):
        Registry(Folders({"gated": folder}), together=4)
