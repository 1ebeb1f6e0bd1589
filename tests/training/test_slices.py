"""Steps in slices: the same weights whoever computes which slice, and those of whole steps up to rounding."""

import queue
import threading

import numpy as np
import pytest
import torch

from milrec.data.splits import split_interactions
from milrec.errors import SettingsError
from milrec.evaluation.validation import validation_measure
from milrec.models.known import build_model
from milrec.training.loop import advance, fit
from milrec.training.presets import settings_for
from milrec.training.progress import Watch
from milrec.training.settings import fit_settings
from milrec.training.steps.slopes import Slope, Slopes, sum_in_order
from own_encoders import Gated, Plays

QUICK = {"n_factors": 6, "batch_size": 40, "iterations": 8, "target_factor": 2, "measure": "ndcg@10", "patience": 0}
CASES = [
    ("dae", "mil", {"target_set": "shared"}),
    ("dae", "mil", {"target_set": "expectation", "start_bias": "rest"}),
    ("dae", "pairwise", {"target_set": "per_user"}),
    ("dae", "square", {"target_set": "all"}),
    ("cdae", "pointwise", {"target_set": "shared"}),
    ("mf", "mil", {"target_set": "expectation"}),
    ("vae", "multinomial", {"n_hidden": 7, "target_factor": None}),
]
EVERY_CASE = pytest.mark.parametrize(("model", "loss", "values"), CASES, ids=lambda value: str(value))


class Ring:
    """Several threads that share the slices of a step; the owner of a slice gives it to all others."""

    def __init__(self, n_workers):
        self.n_workers = n_workers
        self.boxes: list = [queue.Queue() for _ in range(n_workers)]

    def member(self, rank):
        ring = self

        class Member:
            def own(self, n_slices):
                return range(rank, n_slices, ring.n_workers)

            def total(self, slices, made):
                mine = {batch.place: made(batch) for batch in slices.slices}
                for place, slopes in mine.items():
                    for box in ring.boxes:
                        box.put((slices.iteration, place, slopes))
                got: dict = {}
                while len(got) < slices.n_slices:
                    iteration, place, slopes = ring.boxes[rank].get(timeout=60)
                    if iteration > slices.iteration:  # of a member that is ahead
                        ring.boxes[rank].put((iteration, place, slopes))
                        continue
                    got[place] = Slopes(
                        slopes.loss,
                        {name: Slope(one.rows, one.values.clone()) for name, one in slopes.by_weight.items()},
                    )
                return sum_in_order(got[place] for place in range(slices.n_slices))

        return Member()


def settings_of(model, loss, values):
    given = {key: value for key, value in {**QUICK, **values}.items() if value is not None}
    return settings_for(model, loss, given)


def weights(split, settings, checkpoint=None, exchange=None, seed=3):
    model = build_model(settings.model, split.train.n_users, split.train.n_items)
    validate = validation_measure(settings.measure, settings, split.train, split.validation)
    watch = Watch(validate, checkpoint)
    if exchange is None:
        fit(model, split.train, settings, seed, watch)
    else:
        advance(model, split.train, settings, seed, watch, exchange).restore_best()
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def assert_same(one, other):
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.fixture(scope="module")
def split(small_catalogue):
    return split_interactions(small_catalogue, 0)


@EVERY_CASE
def test_workers_that_share_slices_find_the_weights_of_one_alone(split, model, loss, values):
    settings = settings_of(model, loss, {**values, "slices": 5})
    alone = weights(split, settings)
    for n_workers in (1, 2, 3):
        ring = Ring(n_workers)
        found: dict = {}

        def work(rank, ring=ring, found=found):
            found[rank] = weights(split, settings, exchange=ring.member(rank))

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(n_workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == n_workers
        for own in found.values():
            assert_same(alone, own)


@EVERY_CASE
def test_the_readable_engine_agrees(split, model, loss, values):
    settings = settings_of(model, loss, {**values, "slices": 3, "learning_rate": 1e-3, "schedule": "constant"})
    fast = weights(split, settings.with_values({"iterations": 2}))
    readable = weights(split, settings.with_values({"iterations": 2, "engine": "readable"}))
    for name, value in fast.items():
        far = (value - readable[name]).abs() > 2e-4  # where a gradient is nothing but rounding, Adam makes a step of it
        assert far.double().mean() < 0.02, name


def test_one_slice_taken_as_several_would_be_changes_nothing(split):
    settings = settings_of("dae", "mil", {"target_set": "shared"})
    assert_same(weights(split, settings), weights(split, settings, exchange=Ring(1).member(0)))


def test_without_draws_slices_are_the_whole_step_up_to_rounding(split):
    still = {"target_set": "expectation", "corruption": 0, "learning_rate": 1e-3, "iterations": 1}
    whole, sliced = (weights(split, settings_of("dae", "mil", {**still, "slices": n})) for n in (1, 4))
    for name, value in whole.items():
        np.testing.assert_allclose(value.numpy(), sliced[name].numpy(), atol=2e-4)


def test_a_resumed_fit_in_slices_equals_an_unbroken_one(split, tmp_path):
    settings, checkpoint = settings_of("dae", "mil", {"slices": 3}), tmp_path / "checkpoint.safetensors"

    def interrupt(progress):
        if progress.iteration == 5:
            raise KeyboardInterrupt

    model = build_model(settings.model, split.train.n_users, split.train.n_items)
    validate = validation_measure(settings.measure, settings, split.train, split.validation)
    with pytest.raises(KeyboardInterrupt):
        fit(model, split.train, settings, 3, Watch(validate, checkpoint, interrupt))
    assert checkpoint.exists()
    assert_same(weights(split, settings), weights(split, settings, checkpoint))


def test_more_slices_than_users_are_as_many_as_there_are(split):
    settings = settings_of("dae", "mil", {"target_set": "shared", "slices": 1000, "batch_size": 10, "iterations": 2})
    assert weights(split, settings)


def test_models_that_draw_or_keep_running_means(split):
    settings = settings_for(Gated, "mil", {"slices": 2, "iterations": 2})
    model = build_model(settings.model, split.train.n_users, split.train.n_items)
    assert advance(model, split.train, settings, 0, Watch()).iteration == 2
    settings = settings_for(Plays, "mil", {"slices": 2, "iterations": 2})
    model = build_model(settings.model, split.train.n_users, split.train.n_items)
    with pytest.raises(SettingsError, match="set slices=1"):
        fit(model, split.train, settings, 0, Watch())


def test_one_slice_is_not_a_setting_that_older_folders_lack():
    one, two = (settings_for("dae", "mil", {"slices": n}) for n in (1, 2))
    assert "slices" not in one.model_dump()["training"] and two.model_dump()["training"]["slices"] == 2
    assert fit_settings(one.model_dump()) == one and fit_settings(two.model_dump()) == two


def test_gradients_that_share_memory_are_scaled_once():
    shared = torch.ones(2, 1)
    halves = Slopes(1.0, {"a": Slope(None, shared), "b": Slope(None, shared)}).times(0.5)
    assert [slope.values.tolist() for slope in halves.by_weight.values()] == [[[0.5], [0.5]]] * 2


def test_rows_are_added_in_the_order_of_slices():
    def slopes(loss, rows, values):
        return Slopes(loss, {"w": Slope(np.array(rows, dtype=np.int32), torch.tensor(values)[:, None])})

    total = sum_in_order([slopes(1.0, [4, 1], [1.0, 2.0]), slopes(0.5, [1, 7], [0.25, 8.0])])
    found = total.by_weight["w"]
    assert (total.loss, found.rows.tolist(), found.values[:, 0].tolist()) == (1.5, [1, 4, 7], [2.25, 1.0, 8.0])
