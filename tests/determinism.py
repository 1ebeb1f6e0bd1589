"""A program that checks, on the CPU as it is set up by the environment, that results have one value.

A list depends neither on the users it is made with, nor on its place among them, nor on the number of threads; the
weights of EASE, whole or sparse, do not depend on the number of threads. `test_determinism` runs it under several
settings of torch and MKL, which are read when they are loaded.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy.sparse import csr_array
from threadpoolctl import ThreadpoolController

import milrec
from milrec.data.splits import Audience
from milrec.kernels.products import steady_product
from milrec.lists.query import Query
from milrec.lists.scores import Scorer, lists_for
from milrec.models.known import build_model
from milrec.training import closed_form
from milrec.training.presets import settings_for
from random_rows import random_rows

N_USERS = 70  # a whole block of 64, and a few more
PLACES = ([0], [64], [69, 3], [31, 30, 64, 0, 5, 31, 12, 69, 8])
SHAPES = [
    *[(width, 37) for width in (1, 2, 3, 5, 7, 10, 13)],
    *[(5, n_items) for n_items in (1, 3, 7, 11)],
    (13, 1029),
]
KINDS = [
    ("dae", "mil", {"encoder": "sigmoid", "input_weights": "log"}),
    ("cdae", "pointwise", {"encoder": "tanh"}),
    ("vae", None, {}),
    ("mf", "mil", {"encoder": "tanh"}),
    ("mf", "pairwise", {}),
    ("mf", "multinomial", {}),
    ("wmf", None, {}),
]
WITHOUT_FACTORS = ["ease", "ease-sparse", "slim", "popularity"]
_LIBRARIES = ThreadpoolController()


@contextmanager
def threads(number: int) -> Iterator[None]:
    """So many cores for milrec, torch and the BLAS of NumPy, whatever the machine has."""
    before = torch.get_num_threads()
    cores = mock.patch.object(os, "sched_getaffinity", return_value=range(number), create=True)
    environment = mock.patch.dict(os.environ, {"OMP_NUM_THREADS": str(number)})
    with cores, environment, _LIBRARIES.limit(limits=number, user_api="blas"):
        torch.set_num_threads(number)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def an_audience(n_items: int, known: bool) -> Audience:
    share = min(0.2, 10 / n_items)  # of the items that a user adopted; half as many are rejected
    kinds = np.random.default_rng(0).choice(3, (N_USERS, n_items), p=[1 - 1.5 * share, share, share / 2])
    kinds[3] = 0  # a user of whom nothing is known
    plays = np.random.default_rng(1).integers(1, 900, kinds.shape)
    adopted = csr_array(((kinds == 1) * plays).astype(np.float32))
    rejected = csr_array((kinds == 2).astype(np.float32))
    return Audience(adopted, rejected, adopted, np.arange(N_USERS) if known else None)


def a_model(settings, n_items):
    model = build_model(settings.model, N_USERS, n_items)
    if settings.model.model == "ease-sparse":
        model.take(random_rows(n_items))
    if settings.loss is not None:
        model.initialise(0)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(1)))
    return model


def scored(scorer: Scorer, audience: Audience) -> tuple[np.ndarray, np.ndarray]:
    """Everybody's logits and lists."""
    logits = np.full((audience.n_users, scorer.model.n_items), np.nan, dtype=np.float32)

    def look(block, shown):
        logits[block] = shown

    parts = list(lists_for(scorer, audience, 10, look))
    return logits, np.concatenate([part.items for part in parts])


def check_lists(kind, loss, values, n_items, known) -> None:
    settings = settings_for(kind, loss, values)
    audience = an_audience(n_items, known)
    popularity = np.ones(n_items, dtype=np.int64)
    train: Any = SimpleNamespace(adopted=audience.adopted, popularity=lambda: popularity)
    scorer = Scorer(a_model(settings, n_items), settings, train)
    logits, items = scored(scorer, audience)
    assert np.isfinite(logits).all()
    named = f"{kind} {loss} {values}, {n_items} items, {'known' if known else 'new'} users"
    for places in PLACES:
        own, listed = scored(scorer, audience.part(np.array(places)))
        assert np.array_equal(own, logits[places]) and np.array_equal(listed, items[places]), f"{named}: {places}"
    for number in (1, 3):
        with threads(number):
            own, listed = scored(scorer, audience)
        assert np.array_equal(own, logits) and np.array_equal(listed, items), f"{named}: {number} threads"


def check_products() -> None:
    """Rows turned round by some places give the same rows, in shapes that any BLAS may treat in its own way."""
    random = torch.Generator().manual_seed(2)
    for width in (*range(1, 14), 50, 200):
        left = torch.randn(64, width, generator=random)
        for n_columns in (*range(1, 14), 37, 1024):
            right = torch.randn(n_columns, width, generator=random).T
            straight = steady_product(left, right)
            assert torch.allclose(straight, left @ right, atol=1e-3)
            for places in (1, 5, 32):
                turned = steady_product(left.roll(places, 0), right).roll(-places, 0)
                assert torch.equal(turned, straight), f"a product of 64 × {width} and {width} × {n_columns}"


def check_ease() -> None:
    """By items and by users, in double and in single precision; more rows than a block and a band."""
    for n_users, n_items in ((400, 1100), (900, 1100)):
        users, items = np.nonzero(np.random.default_rng(3).random((n_users, n_items)) < 0.02)
        split = milrec.split_interactions(milrec.read({"user": users, "item": items}), seed=0, held_out=0.0)
        for most in (10_000, 0):
            found = []
            for number in (1, 2, 3):
                with threads(number), mock.patch.object(closed_form, "_DOUBLE_PRECISION", most):
                    found.append(milrec.fit(split, "ease").fitted.model.item_weight.numpy().tobytes())
            assert found[0] == found[1] == found[2], f"EASE of {n_users} users and {n_items} items, {most}"
        found = []
        for number in (1, 2, 3):
            with threads(number):
                rows = milrec.fit(split, "ease-sparse", neighbours=20).fitted.model.rows
                found.append(b"".join(part.tobytes() for part in rows))
        assert found[0] == found[1] == found[2], f"sparse EASE of {n_users} users and {n_items} items"


def check_answers() -> None:
    """Lists with reasons, dials and rules, and similar items, of models that have been fitted."""
    data = milrec.simulate(milrec.Simulation(n_users=80, n_items=60, mean_shown=30), seed=0)
    split = milrec.split_interactions(data, seed=0)
    fits = [(kind, loss, {"n_factors": 6, **({} if kind == "wmf" else {"epochs": 1})}) for kind, loss, _ in KINDS]
    for kind, loss, values in [*fits, *((kind, None, {}) for kind in WITHOUT_FACTORS)]:
        recommender = milrec.fit(split, kind, loss, **values)
        users, ids = recommender.user_ids, recommender.item_ids
        queries = [Query(user=user, n=9, reasons=2) for user in users[:3]]
        queries += [Query(adopted=ids[at : at + 4], rejected=ids[at + 9 : at + 10], n=7, reasons=3) for at in range(5)]
        queries += [Query(user=users[7], n=5, dial=0.5, rules=["long >= 30%"]), Query(adopted=[], n=4)]
        asked = [recommender.ask(query) for query in queries]
        answers = recommender.answer(asked)
        assert [recommender.answer([one])[0] for one in asked] == answers, f"{kind} {loss}: alone"
        assert recommender.answer(asked[::-1])[::-1] == answers, f"{kind} {loss}: the other way round"
        similar = None if kind == "popularity" else recommender.similar_items(ids[4])
        for number in (1, 2, 3):
            with threads(number):
                assert recommender.answer(asked) == answers, f"{kind} {loss}: {number} threads"
                assert similar is None or recommender.similar_items(ids[4]).equals(similar)


def main() -> None:
    check_products()
    for known in (True, False):
        for kind, loss, values in KINDS:
            for width, n_items in SHAPES:
                own = {"n_hidden": width, "n_factors": 1 + width // 2} if kind == "vae" else {"n_factors": width}
                check_lists(kind, loss, {**values, **own}, n_items, known)
        for kind in WITHOUT_FACTORS:
            check_lists(kind, None, {}, 37, known)
    check_ease()
    check_answers()


if __name__ == "__main__":
    main()
    sys.stdout.write(f"{torch.backends.cpu.get_cpu_capability()}\n")
