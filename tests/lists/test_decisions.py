"""Whatever proposes scores, the same list is decided: that of a full sort by dot products of one order."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from milrec.kernels.candidates import decide, fixed_dot, quantize
from milrec.lists import decisions
from milrec.lists.decisions import Decoder

f4 = np.float32


def plain_dot(a: np.ndarray, b: np.ndarray) -> np.float32:
    """The products, and then sums of halves, in single precision."""
    width = 1 << max(len(a) - 1, 0).bit_length()
    values = np.zeros(width, dtype=f4)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        values[: len(a)] = a * b
        while len(values) > 1:
            values = values[: len(values) // 2] + values[len(values) // 2 :]
    return values[0]


def expected(decoder: Decoder, latent: np.ndarray, n: int, shift: np.ndarray, hidden: np.ndarray):
    """A full sort."""
    with np.errstate(over="ignore", invalid="ignore"):
        scores = np.array([plain_dot(latent, row) for row in decoder.weight], dtype=f4)
        scores = (scores + decoder.bias) + shift
    scores[hidden] = -np.inf
    scores[np.isnan(scores)] = -np.inf
    order = np.lexsort((np.arange(len(scores)), -scores))[:n]
    listed = np.isfinite(scores[order]) | (scores[order] > 0)
    return np.where(listed, order, -1), np.where(listed, scores[order], -np.inf)


def decided(decoder, latents, n, shift, hidden):
    """Lists of users who are asked for together."""
    proposed = decoder.propose(latents, np.full((len(latents), len(decoder.weight)), np.nan, dtype=f4))
    proposed.logits[:] += shift
    proposed.logits[:, hidden] = -np.inf
    return decoder.decide(proposed, n, shift)


def ordered(decoder, latents, n, shift, hidden):
    """The same without scores."""
    proposed = decoder.propose(latents, np.full((len(latents), len(decoder.weight)), np.nan, dtype=f4))
    proposed.logits[:] += shift
    proposed.logits[:, hidden] = -np.inf
    return decoder.decide_order(proposed, n, shift)


def near_ties(random, n_items, width):
    """Rows that differ in their last bits, or not at all."""
    weight = np.repeat(random.standard_normal((1, width)), n_items, axis=0).astype(f4)
    bits = weight.view(np.int32)
    bits += random.integers(-1, 2, bits.shape, dtype=np.int32)
    return weight


def cancelling(random, n_items, width):
    """Large terms whose sum is small: the order of summation matters most."""
    half = random.standard_normal((n_items, -(-width // 2))) * 1e4
    weight = np.concatenate([half, -half], axis=1)[:, :width] + 1e-3 * random.standard_normal((n_items, width))
    return weight.astype(f4)


def of_many_sizes(random, n_items, width):
    return (random.standard_normal((n_items, width)) * 10.0 ** random.integers(-6, 6, (n_items, 1))).astype(f4)


def denormal(random, n_items, width):
    return (random.standard_normal((n_items, width)) * 1e-41).astype(f4)


def overflowing(random, n_items, width):
    return (random.standard_normal((n_items, width)) * 5e37).astype(f4)


def with_zeros(random, n_items, width):
    return (random.standard_normal((n_items, width)) * random.integers(0, 2, (n_items, 1))).astype(f4)


WEIGHTS = [near_ties, cancelling, of_many_sizes, denormal, overflowing, with_zeros]
SIZES = [1.0, 1e-20, 1e-42, 1e20]


@pytest.mark.parametrize("weights", WEIGHTS)
@hypothesis_settings(deadline=None, derandomize=True, max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    n_items=st.integers(1, 150),
    width=st.sampled_from([1, 2, 3, 16, 33, 200]),
    n=st.integers(1, 40),
    size=st.sampled_from(SIZES),
    dial=st.sampled_from([0.0, 0.5, 1e6, 1e30]),
)
def test_a_list_is_that_of_a_full_sort_whoever_else_is_asked_for(weights, seed, n_items, width, n, size, dial):
    random = np.random.default_rng(seed)
    with np.errstate(under="ignore"):
        latents = (random.standard_normal((12, width)) * size).astype(f4)
        latents[1] = np.abs(latents[0, 0])  # equal entries
        latents[2] = 0
    decoder = Decoder(weights(random, n_items, width), random.standard_normal(n_items).astype(f4))
    shift = (-dial * np.log(random.integers(1, 1000, n_items))).astype(f4)
    hidden = random.random(n_items) < 0.2
    n = min(n, n_items)
    wanted = [expected(decoder, latent, n, shift, hidden) for latent in latents]
    for together in ([0], [1], [2], [5, 0, 1], range(12)):
        items, scores = decided(decoder, latents[list(together)], n, shift, hidden)
        for place, user in enumerate(together):
            assert items[place].tolist() == wanted[user][0].tolist()
            assert np.array_equal(scores[place], wanted[user][1] + 0)
        assert np.array_equal(ordered(decoder, latents[list(together)], n, shift, hidden), items)


@hypothesis_settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 70))
def test_the_dot_product_is_summed_by_halves(seed, width):
    random = np.random.default_rng(seed)
    a, b = (random.standard_normal((2, width)) * 10.0 ** random.integers(-3, 4, (2, width))).astype(f4)
    memory = np.zeros(1 << max(width - 1, 0).bit_length(), dtype=f4)
    assert fixed_dot(a, b, memory) == plain_dot(a, b) == fixed_dot(a, b, memory)


def test_rounded_weights_are_as_near_as_they_say():
    weight = np.random.default_rng(0).standard_normal((300, 40)).astype(f4)
    weight[7], weight[8] = 0, 1e-44
    numbers, scales = np.empty(weight.shape, dtype=np.int8), np.empty(300, dtype=f4)
    furthest = quantize(weight, numbers, scales)
    distances = np.linalg.norm(weight - scales[:, None].astype(np.float64) * numbers, axis=1)
    assert distances.max() == pytest.approx(furthest, rel=1e-6) and furthest < 0.02 * np.linalg.norm(weight[0])
    assert not numbers[7].any() and np.abs(numbers).max() == 127


def test_few_items_are_looked_at_twice(monkeypatch):
    """The margins are honest, but no larger than they have to be: a list of 20 out of 5,000 looks at few more."""
    random = np.random.default_rng(0)
    decoder = Decoder(random.standard_normal((5000, 64)).astype(f4), np.zeros(5000, dtype=f4))
    slacks = []

    def noted(proposed, slack, *others):
        slacks.append(slack)
        decide(proposed, slack, *others)

    monkeypatch.setattr(decisions, "decide", noted)
    latents = random.standard_normal((30, 64)).astype(f4)
    for few in (latents[:1], latents):
        proposed = decoder.propose(few, np.empty((len(few), 5000), dtype=f4))
        decoder.decide(proposed, 20, None)
        near = proposed.logits >= np.sort(proposed.logits, axis=1)[:, -20:][:, :1] - slacks[-1][:, None]
        assert near.sum(axis=1).max() < (120 if len(few) == 1 else 22)


def test_proposals_of_any_product_will_do():
    random = np.random.default_rng(1)
    decoder = Decoder(random.standard_normal((400, 50)).astype(f4), random.standard_normal(400).astype(f4))
    latents = random.standard_normal((10, 50)).astype(f4)
    plain = decoder.decide(decoder.propose(latents, np.empty((10, 400), dtype=f4)), 30, None)
    for product in (latents.astype(np.float64) @ decoder.weight.T.astype(np.float64), latents @ decoder.weight.T):
        logits = (product + decoder.bias).astype(f4)
        found = decoder.decide(decoder.proposed(latents, logits), 30, None)
        assert all(np.array_equal(one, other) for one, other in zip(plain, found, strict=True))


PROGRAM = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from test_decisions import WEIGHTS, Decoder, decided, f4, np
found = hashlib.sha256()
for weights in WEIGHTS:
    for width in (3, 33, 200):
        random = np.random.default_rng(width)
        decoder = Decoder(weights(random, 120, width), random.standard_normal(120).astype(f4))
        latents, shift = random.standard_normal((12, width)).astype(f4), np.zeros(120, dtype=f4)
        for together in (latents[:1], latents):
            for part in decided(decoder, together, 30, shift, np.zeros(120, dtype=bool)):
                found.update(part[:1].tobytes())
print(found.hexdigest())
"""
SETS = ["x86-64", "haswell"]  # instruction sets that numba can compile for: SSE2, AVX2; otherwise all that the CPU has
NEEDED = {"x86-64": set[str](), "haswell": {"avx2", "fma"}}


def test_lists_are_the_same_bytes_under_each_instruction_set_of_the_cpu():
    facts = Path("/proc/cpuinfo")
    flags = set(facts.read_text(encoding="utf-8").split()) if facts.exists() else set()
    able = [name for name in SETS if platform.machine() == "x86_64" and NEEDED[name] <= flags]
    found = set()
    for name in [None, *able]:
        environment = {**os.environ, **({"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ""} if name else {})}
        command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1
