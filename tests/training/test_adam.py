"""Adam against torch's own, by rows against the whole, compiled against readable."""

import numpy as np
import pytest
import torch

from milrec.kernels.sparse import Transposed
from milrec.kernels.threads import thread_pool
from milrec.training.steps.adam import BETA1, BETA2, EPSILON, Adam, RowGradient, matrix

N_ROWS, N_COLUMNS, N_BATCH = 12, 5, 6
RATE, DECAY = 0.01, 0.03
SHAPES = pytest.mark.parametrize("shape", [(N_ROWS, N_COLUMNS), (N_ROWS,)], ids=["weight", "bias"])
MANY = 6000  # steps after which β₂^step is next to nothing


def start(shape=(N_ROWS, N_COLUMNS)) -> Adam:
    return Adam({"w": torch.randn(shape, generator=torch.Generator().manual_seed(0))})


def gradients(n, shape=(N_ROWS, N_COLUMNS), seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for _ in range(n)]


def state(adam: Adam):
    return [adam.parameters["w"], adam.mean["w"], adam.square["w"]]


def settled() -> Adam:
    """An optimiser after very many steps, with moments as of gradients of one size."""
    adam = start()
    adam.step = MANY
    adam.last["w"].fill_(MANY)
    adam.mean["w"].copy_(gradients(1)[0])
    adam.square["w"].copy_(gradients(1, seed=2)[0].square() + 0.5)
    return adam


def assert_same(one: Adam, other: Adam, tolerance=1e-6):
    for own, expected in zip(state(one), state(other), strict=True):
        assert own.numpy() == pytest.approx(expected.numpy(), rel=tolerance, abs=tolerance)
    assert torch.equal(one.last["w"], other.last["w"])


def parted(gradient, rows, n_dense) -> RowGradient:
    """A gradient of rows as sparse pairs, and for the first rows half of it as a dense part."""
    wanted = gradient.view(len(gradient), -1)[rows].numpy()
    left = np.random.default_rng(0).standard_normal((N_BATCH, wanted.shape[1])).astype(np.float32)
    left[:3] = 0
    dense = 0.5 * wanted[:n_dense]
    rest = wanted.copy()
    rest[:n_dense] -= dense
    # one user per row whose `left` is what is wanted, and one user of no account
    left = np.concatenate([left, rest]).astype(np.float32)
    users = np.stack([np.zeros(len(rows)), N_BATCH + np.arange(len(rows))], axis=1).astype(np.int32).ravel()
    coefficients = np.tile(np.array([7, 1], dtype=np.float32), len(rows))
    indptr = 2 * np.arange(len(rows) + 1)
    return RowGradient(Transposed(rows.astype(np.int32), indptr, users, coefficients), left, dense.astype(np.float32))


def compiled(adam: Adam, gradient, rows=None, n_dense=4, decay=DECAY, number=1):
    rows = np.random.default_rng(3).permutation(len(gradient)) if rows is None else rows
    with thread_pool(number) as pool:
        pool.run(adam.row_tasks("w", parted(gradient, rows, n_dense), RATE, decay))


@SHAPES
@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_a_step_is_that_of_torch(shape, decay):
    adam = start(shape)
    weight = torch.nn.Parameter(adam.parameters["w"].clone())
    theirs = torch.optim.Adam([weight], lr=RATE, betas=(BETA1, BETA2), eps=EPSILON, weight_decay=decay)
    for gradient in gradients(20, shape):
        adam.step += 1
        adam.update("w", gradient, RATE, decay)
        weight.grad = gradient.clone()
        theirs.step()
        assert adam.parameters["w"].numpy() == pytest.approx(weight.detach().numpy(), rel=1e-5, abs=1e-6)
    assert (adam.last["w"] == 20).all() and adam.last["w"].shape == (N_ROWS,)


def test_a_varying_learning_rate_is_that_of_torch():
    adam = start()
    weight = torch.nn.Parameter(adam.parameters["w"].clone())
    theirs = torch.optim.Adam([weight], betas=(BETA1, BETA2), eps=EPSILON, weight_decay=DECAY)
    for place, gradient in enumerate(gradients(20)):
        adam.step += 1
        adam.update("w", gradient, RATE / (1 + place), DECAY)
        theirs.param_groups[0]["lr"] = RATE / (1 + place)
        weight.grad = gradient.clone()
        theirs.step()
    assert adam.parameters["w"].numpy() == pytest.approx(weight.detach().numpy(), rel=1e-5, abs=1e-6)


@SHAPES
def test_touching_all_rows_at_every_step_is_the_same_as_a_whole_step(shape):
    whole, by_rows = start(shape), start(shape)
    rows = torch.randperm(N_ROWS, generator=torch.Generator().manual_seed(4))
    for gradient in gradients(20, shape):
        whole.step += 1
        by_rows.step += 1
        whole.update("w", gradient, RATE, DECAY)
        by_rows.update_touched("w", matrix(gradient)[rows], rows, RATE, DECAY)
        assert_same(by_rows, whole, 1e-5)


@SHAPES
@pytest.mark.parametrize("n_dense", [0, 4, N_ROWS])
@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_the_compiled_step_is_the_readable_one(shape, n_dense, decay):
    readable, fast = start(shape), start(shape)
    for gradient in gradients(20, shape):
        readable.step += 1
        fast.step += 1
        readable.update("w", gradient, RATE, decay)
        compiled(fast, gradient, n_dense=n_dense, decay=decay)
        assert_same(fast, readable, 1e-5)


@SHAPES
@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_the_compiled_step_on_some_rows_is_the_readable_one_idle_steps_included(shape, decay):
    readable, fast = start(shape), start(shape)
    random = np.random.default_rng(5)
    for gradient in gradients(60, shape):
        rows = random.permutation(N_ROWS)[: random.integers(1, 5)]
        before = [part.clone() for part in state(fast)]
        readable.step += 1
        fast.step += 1
        readable.update_touched("w", matrix(gradient)[torch.from_numpy(rows)], torch.from_numpy(rows), RATE, decay)
        compiled(fast, gradient, rows, n_dense=1, decay=decay)
        assert_same(fast, readable, 2e-5)
        others = np.setdiff1d(np.arange(N_ROWS), rows)
        for own, was in zip(state(fast), before, strict=True):
            assert torch.equal(own[others], was[others])
    assert len(set(fast.last["w"].tolist())) > 1


def test_an_empty_set_of_rows_changes_nothing():
    adam = settled()
    before = [part.clone() for part in state(adam)]
    adam.step += 1
    compiled(adam, gradients(1)[0], rows=np.zeros(0, dtype=np.int64), n_dense=0)
    adam.update_touched(
        "w", matrix(gradients(1)[0])[torch.zeros(0, dtype=torch.long)], torch.zeros(0, dtype=torch.long), RATE, DECAY
    )
    assert all(torch.equal(own, was) for own, was in zip(state(adam), before, strict=True))
    assert (adam.last["w"] == MANY).all()


def test_many_rows_in_several_tasks_are_the_same_for_any_number_of_workers():
    n_rows, n_columns = 7000, 90
    results = []
    for number in (1, 2, 3):
        adam = Adam({"w": torch.ones(n_rows, n_columns)})
        gradient = torch.randn(n_rows, n_columns, generator=torch.Generator().manual_seed(0))
        part = parted(gradient, np.arange(n_rows), 100)
        for _ in range(2):
            adam.step += 1
            tasks = adam.row_tasks("w", part, RATE, DECAY)
            assert len(tasks) > 1
            with thread_pool(number) as pool:
                pool.run(tasks)
        assert (adam.last["w"] == 2).all()
        results.append(adam.parameters["w"].numpy().tobytes())
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("how", ["readable", "compiled"])
@pytest.mark.parametrize("idle", [1, 2, 5, 40, 300])
def test_an_idle_row_drifts_on_as_if_its_gradient_had_been_zero(how, idle):
    dense, touched = settled(), settled()
    begin, last = dense.parameters["w"].clone(), gradients(1, seed=9)[0]
    for step in range(1, idle + 1):
        dense.step += 1
        dense.update("w", last if step == idle else torch.zeros_like(last), RATE, 0.0)
    touched.step += idle
    if how == "readable":
        touched.update_touched("w", matrix(last)[torch.arange(N_ROWS)], torch.arange(N_ROWS), RATE, 0.0)
    else:
        compiled(touched, last, decay=0.0)
    moved, expected = touched.parameters["w"] - begin, dense.parameters["w"] - begin
    assert expected.abs().max() > RATE / 2
    assert (moved - expected).abs().max() < 3e-3 * expected.abs().max()
    assert touched.mean["w"].numpy() == pytest.approx(dense.mean["w"].numpy(), rel=1e-4, abs=1e-6)
    assert touched.square["w"].numpy() == pytest.approx(dense.square["w"].numpy(), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("how", ["readable", "compiled"])
@pytest.mark.parametrize("idle", [1, 2, 7, 30])
def test_a_row_owes_the_weight_decay_of_all_its_idle_steps(how, idle):
    adam = start()
    weight = adam.parameters["w"].clone()
    adam.step = idle
    nothing = torch.zeros(N_ROWS, N_COLUMNS)
    if how == "readable":
        adam.update_touched("w", matrix(nothing)[torch.arange(N_ROWS)], torch.arange(N_ROWS), RATE, DECAY)
    else:
        compiled(adam, nothing)
    owed = idle * DECAY * weight  # no moments yet, so no drift
    assert adam.mean["w"].numpy() == pytest.approx(((1 - BETA1) * owed).numpy(), rel=1e-5)
    assert adam.square["w"].numpy() == pytest.approx(((1 - BETA2) * owed.square()).numpy(), rel=1e-4)
    assert (adam.parameters["w"].abs() < weight.abs()).all()
    assert (adam.last["w"] == idle).all()


@pytest.mark.parametrize("how", ["readable", "compiled"])
def test_the_step_at_which_a_row_was_last_touched_is_kept(how):
    adam = start()
    for step, rows in enumerate(([0, 3], [3], [], [11, 0]), start=1):
        adam.step = step
        gradient = gradients(1)[0]
        if how == "readable":
            adam.update_touched(
                "w",
                matrix(gradient)[torch.tensor(rows, dtype=torch.long)],
                torch.tensor(rows, dtype=torch.long),
                RATE,
                DECAY,
            )
        else:
            compiled(adam, gradient, np.array(rows, dtype=np.int64), n_dense=0)
    assert adam.last["w"].tolist() == [4, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 4]
    assert adam.parts()["last"]["w"] is adam.last["w"]


def test_only_the_named_weight_is_updated():
    adam = Adam({"a": torch.ones(3, 2), "b": torch.ones(3)})
    adam.step += 1
    adam.update("b", torch.ones(3), RATE, 0.0)
    assert (adam.parameters["a"] == 1).all() and (adam.last["a"] == 0).all() and (adam.mean["a"] == 0).all()
    assert (adam.parameters["b"] < 1).all() and (adam.last["b"] == 1).all()
