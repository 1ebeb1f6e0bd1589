"""Scores → lists: ties, masks, and no dependence on who else is scored."""

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.sparse import csr_array

from milrec.data.interactions import Interactions
from milrec.data.splits import Audience
from milrec.errors import SettingsError
from milrec.lists import scores
from milrec.lists.decisions import top_items as best
from milrec.lists.fold_in import FoldIn
from milrec.lists.scores import Scorer, dial_shift, leave_out, lists_for, logits_of
from milrec.metrics.tail import log_popularity
from milrec.models.contract import ROWS
from milrec.models.inputs import Users
from milrec.models.known import build_model
from milrec.training.presets import settings_for
from random_rows import random_rows

N_USERS, N_ITEMS = 150, 37


def single(rows) -> np.ndarray:
    return np.array(rows, dtype=np.float32)


def nothing(n_users=1, n_items=4) -> csr_array:
    return csr_array((n_users, n_items), dtype=np.float32)


def top_items(scores, n):
    items, values = best(scores, n)
    assert np.array_equal(values[items >= 0], np.take_along_axis(scores, np.maximum(items, 0), axis=1)[items >= 0] + 0)
    assert np.isneginf(values[items < 0]).all()
    return items


def plainly_sorted(scores: np.ndarray, n: int) -> np.ndarray:
    """What top_items must give: a full stable sort, cut, with -1 for what may not be listed."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :n]
    return np.where(np.isneginf(np.take_along_axis(scores, order, axis=1)), -1, order)


def assert_best(items, logits):
    """Lists are in order by the logits, but for their rounding, and no better item is left out."""
    expected = plainly_sorted(logits, items.shape[1])
    listed = items >= 0
    assert np.array_equal(listed, expected >= 0)
    slack = 1e-5 * (1 + np.abs(np.where(np.isneginf(logits), 0, logits)).max())
    found, wanted = (np.take_along_axis(logits, np.maximum(order, 0), axis=1)[listed] for order in (items, expected))
    assert np.abs(found - wanted).max(initial=0.0) <= slack
    assert all(len(set(row[row >= 0].tolist())) == (row >= 0).sum() for row in items)


def test_the_best_items_come_first():
    assert top_items(single([[0.1, 0.9, -3.0, 0.5]]), 3).tolist() == [[1, 3, 0]]


def test_equal_scores_come_in_item_order():
    assert top_items(single([[1, 2, 1, 2, 1, 2]]), 4).tolist() == [[1, 3, 5, 0]]
    assert top_items(np.zeros((2, 50), dtype=np.float32), 7).tolist() == [[0, 1, 2, 3, 4, 5, 6]] * 2


def test_where_no_item_is_left_a_list_has_minus_1():
    assert top_items(single([[-np.inf, 2, -np.inf, 5], [-np.inf] * 4]), 3).tolist() == [[3, 1, -1], [-1, -1, -1]]


def test_a_list_is_not_longer_than_the_catalogue():
    assert top_items(single([[1, 2]]), 10).tolist() == [[1, 0]]
    assert top_items(np.zeros((3, 0), dtype=np.float32), 10).shape == (3, 0)
    assert top_items(np.zeros((0, 5), dtype=np.float32), 2).shape == (0, 2)


@hypothesis_settings(deadline=None, derandomize=True, max_examples=300)
@given(
    scores=arrays(
        np.float32,
        array_shapes(min_dims=2, max_dims=2, max_side=12),
        elements=st.sampled_from(single([-np.inf, -1.5, -0.0, 0.0, 0.25, 7.0]).tolist()),
    ),
    n=st.integers(1, 14),
)
def test_lists_with_many_ties_are_those_of_a_stable_sort(scores, n):
    assert top_items(scores, n).tolist() == plainly_sorted(scores, n).tolist()


@hypothesis_settings(deadline=None, derandomize=True, max_examples=100)
@given(
    scores=arrays(
        np.float32,
        array_shapes(min_dims=2, max_dims=2, max_side=12),
        elements=st.floats(-(2.0**99), 2.0**99, width=32),
    ),
    n=st.integers(1, 14),
)
def test_lists_of_any_scores_are_those_of_a_stable_sort(scores, n):
    assert top_items(scores, n).tolist() == plainly_sorted(scores, n).tolist()


def test_lists_of_a_large_catalogue_with_ties_at_the_cut_are_those_of_a_stable_sort():
    scores = np.random.default_rng(0).integers(0, 40, (30, 3000)).astype(np.float32)
    for n in (1, 20, 200):
        assert np.array_equal(top_items(scores, n), plainly_sorted(scores, n))


def test_making_lists_leaves_the_scores_as_they_are():
    scores = single([[3, 1, 3, 3]])
    top_items(scores, 2)
    assert scores.tolist() == [[3, 1, 3, 3]]


def test_what_a_user_has_or_rejected_is_masked():
    audience = Audience(
        adopted=nothing(2),
        rejected=csr_array(single([[0, 1, 0, 0], [0, 0, 0, 0]])),
        removed=csr_array(single([[1, 0, 0, 0], [0, 0, 0, 2]])),
        rows=None,
    )
    scores = single([[1, 2, 3, 4], [5, 6, 7, 8]])
    second = scores[1:].copy()
    leave_out(scores, audience, slice(0, 2))
    minus = -np.inf
    assert scores.tolist() == [[minus, minus, 3, 4], [5, 6, 7, minus]]
    leave_out(second, audience, slice(1, 2))
    assert second.tolist() == [[5, 6, 7, minus]]


def an_audience(known: bool) -> Audience:
    random = np.random.default_rng(0)
    kinds = random.choice(3, (N_USERS, N_ITEMS), p=[0.7, 0.2, 0.1])
    kinds[3] = 0  # a user of whom nothing is known
    adopted, rejected = (csr_array((kinds == kind).astype(np.float32)) for kind in (1, 2))
    return Audience(adopted, rejected, adopted, np.arange(N_USERS) if known else None)


def scorer_of(model, settings) -> Scorer:
    """The model as if it had been fitted to these users."""
    everybody = an_audience(True)
    ids = (pa.table({"id": np.arange(n)}) for n in (N_USERS, N_ITEMS))
    return Scorer(model, settings, Interactions(everybody.adopted, everybody.rejected, *ids))


def scored(model, settings, audience, n=10, shift=None) -> tuple[np.ndarray, np.ndarray]:
    """Everybody's logits, as a watcher sees them while lists are made, and listed items; the same without a watcher."""
    logits = np.full((audience.n_users, N_ITEMS), np.nan, dtype=np.float32)

    def look(block, shown):
        logits[block] = shown

    seen, unseen = (
        np.concatenate([part.items for part in lists_for(scorer_of(model, settings), audience, n, watch, shift)])
        for watch in (look, None)
    )
    assert np.array_equal(seen, unseen)
    return logits, seen


def a_model(settings):
    model = build_model(settings.model, N_USERS, N_ITEMS)
    if settings.loss is not None:
        model.initialise(0)
    elif settings.model.model == "popularity":
        with torch.no_grad():
            model.decoder_bias.copy_(torch.arange(N_ITEMS) % 5)
    elif settings.model.model == "ease-sparse":
        model.take(random_rows(N_ITEMS))
    else:
        for value in model.parameters():
            value.copy_(torch.randn(value.shape, generator=torch.Generator().manual_seed(0)))
    return model


FEW_DRAWN = {"target_factor": 1.25}  # 9 missing items of about 30 are drawn
SCORED = [
    ("dae", "mil", {"encoder": "linear"}, True),
    ("dae", "mil", {"encoder": "sigmoid", "input_weights": "log"}, False),
    ("dae", "multinomial", {"encoder": "tanh"}, True),
    ("dae", "square", {"encoder": "relu"}, False),
    ("mf", "mil", {}, True),
    ("mf", "mil", FEW_DRAWN, False),
    ("mf", "pairwise", FEW_DRAWN, False),
    ("popularity", None, {}, True),
    ("ease", None, {}, True),
    ("ease-sparse", None, {}, True),
    ("slim", None, {}, False),
    ("wmf", None, {"n_factors": 13}, True),
    ("wmf", None, {"n_factors": 13}, False),
]


@pytest.mark.parametrize(("model", "loss", "values", "known"), SCORED)
def test_lists_do_not_depend_on_how_many_users_are_scored_together(model, loss, values, known):
    settings = settings_for(model, loss, {"n_factors": 13, **values} if loss else values)
    model, audience = a_model(settings), an_audience(known)
    together, items = scored(model, settings, audience)
    assert together.shape == (N_USERS, N_ITEMS)
    for user in (0, 3, 1, 63, 64, 99, 128, 149):
        alone, own_items = scored(model, settings, audience.part(np.array([user])))
        assert np.array_equal(alone[0], together[user])
        assert np.array_equal(own_items[0], items[user])
    shuffled = np.random.default_rng(1).permutation(N_USERS)[:90]
    logits, others = scored(model, settings, audience.part(shuffled))
    assert np.array_equal(logits, together[shuffled]) and np.array_equal(others, items[shuffled])


@pytest.mark.parametrize(("model", "loss", "values", "known"), SCORED)
def test_lists_are_the_best_of_what_is_left(model, loss, values, known):
    settings = settings_for(model, loss, {"n_factors": 13, **values} if loss else values)
    model, audience = a_model(settings), an_audience(known)
    logits, items = scored(model, settings, audience, 20)
    leave_out(logits, audience, slice(0, N_USERS))
    assert_best(items, logits)


@pytest.mark.parametrize("known", [True, False])
def test_the_logits_of_a_block_are_those_that_whoever_looks_on_is_shown(known):
    settings = settings_for("mf", "mil", {"n_factors": 3, **FEW_DRAWN})
    model, audience = a_model(settings), an_audience(known)
    scorer = scorer_of(model, settings)
    shown, _ = scored(model, settings, audience)
    for block in (slice(0, ROWS), slice(ROWS, 2 * ROWS), slice(2 * ROWS, N_USERS), slice(5, 6)):
        assert np.array_equal(logits_of(scorer, Users.of(audience, block)), shown[block])


def test_no_more_users_are_folded_in_than_are_asked_for(monkeypatch):
    """A single new user costs one fold-in, not a whole block; and his latent is that among 64."""
    settings = settings_for("mf", "mil", {"n_factors": 3, **FEW_DRAWN})
    scorer, audience = scorer_of(a_model(settings), settings), an_audience(False)
    assert scorer.encode_new is not None
    many = scorer.encode_new(Users.of(audience, slice(0, ROWS)))
    assert many.shape == (ROWS, 3)
    whole, folded = FoldIn.latents, []

    def kept(self, users):
        folded.append(whole(self, users))
        return folded[-1]

    monkeypatch.setattr(FoldIn, "latents", kept)
    for user in (0, 9, 63):
        logits_of(scorer, Users.of(audience, slice(user, user + 1)))
        assert torch.equal(folded[-1], many[user : user + 1])
    assert len(folded) == 3


@pytest.mark.parametrize("at_once", [64, 100, 2048])
def test_lists_cover_every_user_once_and_in_order(monkeypatch, at_once):
    monkeypatch.setattr(scores, "_USERS_AT_ONCE", at_once)
    settings = settings_for("dae", "mil", {"n_factors": 3})
    parts = list(lists_for(scorer_of(a_model(settings), settings), an_audience(True), 5))
    assert [user for part in parts for user in range(part.users.start, part.users.stop)] == list(range(N_USERS))
    assert all(part.items.shape == (part.users.stop - part.users.start, 5) for part in parts)
    assert len(parts) == -(-N_USERS // at_once)


def test_nobody_has_no_lists():
    settings = settings_for("dae", "mil", {"n_factors": 3})
    nobody = an_audience(True).part(np.zeros(0, dtype=np.int64))
    assert list(lists_for(scorer_of(a_model(settings), settings), nobody, 10)) == []


def test_the_logits_are_those_of_the_model():
    settings = settings_for("dae", "mil", {"n_factors": 5})
    model, audience = a_model(settings), an_audience(True)
    dense = audience.adopted.toarray()
    inputs = dense / np.maximum(np.sqrt(dense.sum(axis=1, keepdims=True)), 1)
    with torch.no_grad():
        expected = model.decode(model.latent(torch.from_numpy(inputs) @ model.encoder_weight)).numpy()
    assert scored(model, settings, audience)[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("model", ["dae", "mf"])
def test_whoever_reads_the_lists_is_not_put_into_inference_mode(model):
    settings = settings_for(model, "mil", {"n_factors": 3})
    for _ in lists_for(scorer_of(a_model(settings), settings), an_audience(True), 10):
        assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()


def test_lists_that_are_not_read_to_the_end_leave_nothing_behind(monkeypatch):
    before = set(threading.enumerate())  # a server of other tests may be running
    monkeypatch.setattr(scores, "_USERS_AT_ONCE", 64)
    settings = settings_for("dae", "mil", {"n_factors": 3, "threads": 2})
    scorer, audience = scorer_of(a_model(settings), settings), an_audience(True)

    def left_behind() -> tuple[bool, bool, int]:
        torch.set_num_threads(1)
        first, second = (lists_for(scorer, audience, 10) for _ in range(2))
        assert isinstance(first, Generator) and isinstance(second, Generator)
        next(first)
        next(second)
        second.close()
        first.close()
        return torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch.get_num_threads()

    with ThreadPoolExecutor(1) as thread:  # the mode is a thread's own: what is left behind ends with it
        assert thread.submit(left_behind).result() == (False, True, 1)
    assert not [one.name for one in set(threading.enumerate()) - before if one.name.startswith("milrec")]


def test_the_dial_by_hand():
    shift = dial_shift(0.5, log_popularity(np.array([1, 10, 1000])))
    assert shift.dtype == np.float32 and shift == pytest.approx([0, -0.5 * np.log(10), -0.5 * np.log(1000)])
    assert dial_shift(-2, log_popularity(np.array([1, 10]))) == pytest.approx([0, 2 * np.log(10)])
    assert (
        dial_shift(0, log_popularity(np.array([1, 10]))) is None
        and dial_shift(-0.0, log_popularity(np.array([1, 10]))) is None
    )
    assert dial_shift(1, log_popularity(np.array([0, 1]))).tolist() == [
        0,
        0,
    ]  # nobody's item, in data that is no split's


@pytest.mark.parametrize("dial", [np.nan, np.inf, -np.inf, "much", None])
def test_a_dial_is_a_finite_number(dial):
    with pytest.raises(SettingsError, match="the dial must be a finite number, not "):
        dial_shift(dial, log_popularity(np.array([1, 2])))


@pytest.mark.parametrize(
    ("model", "loss", "values", "known"),
    [case for case in SCORED if case[0] != "mf" or case[3]],  # folding in is slow, and the dial comes after it
)
@pytest.mark.parametrize("dial", [0.7, -3.0, 1e300, -1e300])
def test_a_dial_ranks_by_the_logit_less_its_part_and_shows_the_models_own_logits(model, loss, values, known, dial):
    settings = settings_for(model, loss, {"n_factors": 13, **values} if loss else values)
    model, audience = a_model(settings), an_audience(known)
    shift = dial_shift(dial, log_popularity(np.random.default_rng(2).integers(1, 500, N_ITEMS)))
    plain, _ = scored(model, settings, audience)
    shown, items = scored(model, settings, audience, N_ITEMS, shift=shift)
    assert np.array_equal(shown, plain)
    turned = plain + shift
    leave_out(turned, audience, slice(0, N_USERS))
    assert_best(items, turned)


@pytest.mark.parametrize(("dial", "order"), [(1e6, [3, 1, 0, 2]), (1e300, [3, 1, 0, 2]), (-1e300, [2, 0, 1, 3])])
def test_a_large_dial_orders_by_rarity_and_one_far_below_0_by_popularity(dial, order):
    settings = settings_for("popularity")
    model = build_model(settings.model, 1, 4)
    model.decoder_bias.copy_(torch.tensor([5.0, 3.0, 900.0, 1.0]))
    shift = dial_shift(dial, log_popularity(np.array([5, 3, 900, 1])))
    audience = Audience(nothing(), nothing(), nothing(), np.arange(1))
    (lists,) = lists_for(scorer_of(model, settings), audience, 4, shift=shift)
    assert lists.items.tolist() == [order]
