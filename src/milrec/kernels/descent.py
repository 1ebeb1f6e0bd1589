"""A compiled descent for many small smooth functions at once, each on its own: L-BFGS with steps that must go down."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from milrec.kernels.jit import compiled, inlined

_RECALLED = 8  # steps that the next direction is made of
_MEMORY = _RECALLED + 1  # one more, which may be found useless
_FIRST_STEP = 0.1  # length of the first step, relative to that of the point, plus 1
_LEAST_GAIN = 1e-4  # of what the slope at its start promises: what a step must gain
_NOISE = 2e-6  # of a value, from sums in single precision
_NEAR = 1e-4  # a step is small if it promises less than this share of what has been gained
_SMALL_STEPS = 2  # in a row, after which a descent ends: after a steep place a single one may only seem small
_SHORTEST = 1e-6  # of a direction's length

Doubles = npt.NDArray[np.float64]


class Descent(NamedTuple):
    """The state of n descents in so many dimensions."""

    points: Doubles  # (n, width) where each is
    values: Doubles  # (n,) of its function there
    slopes: Doubles  # (n, width) there
    tried: Doubles  # (n, width) where slopes are wanted next
    directions: Doubles  # (n, width)
    sizes: Doubles  # (n,) of the step that is tried
    moves: Doubles  # (n, memory, width) the last steps
    changes: Doubles  # (n, memory, width) of the slopes during these
    counts: npt.NDArray[np.int64]  # (n,) steps taken; -1 before the first slopes are known
    gained: Doubles  # (n,) how far it has come down
    small: npt.NDArray[np.int64]  # (n,) small steps in a row
    done: npt.NDArray[np.bool_]  # (n,)


def new_descent(start: Doubles) -> Descent:
    """A descent for each row of `start`."""
    n, width = start.shape
    return Descent(
        points=start.copy(),
        values=np.zeros(n),
        slopes=np.zeros((n, width)),
        tried=start.copy(),
        directions=np.zeros((n, width)),
        sizes=np.zeros(n),
        moves=np.zeros((n, _MEMORY, width)),
        changes=np.zeros((n, _MEMORY, width)),
        counts=np.full(n, -1, dtype=np.int64),
        gained=np.zeros(n),
        small=np.zeros(n, dtype=np.int64),
        done=np.zeros(n, dtype=np.bool_),
    )


@compiled
def descend(state, values, slopes):
    """Take the values and slopes at the points that are tried, and set those to try next; True if there are none."""
    for one in range(len(state.points)):
        if state.done[one]:
            continue
        if state.counts[one] >= 0 and shortened(state, one, values[one]):
            continue
        take_step(state, one, values[one], slopes[one])
        turn(state, one)
        if not state.done[one]:
            for i in range(state.tried.shape[1]):
                state.tried[one, i] = state.points[one, i] + state.sizes[one] * state.directions[one, i]
    return state.done.all()


@inlined
def along(a, b):
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@compiled
def shortened(state, one, value):
    """Whether the step was too long; then a shorter one is tried, to the bottom of a parabola through what is known."""
    size, known = state.sizes[one], state.values[one]
    first = size * along(state.slopes[one], state.directions[one])  # what the slope promises, below 0
    if value <= known + _LEAST_GAIN * first + _NOISE * abs(known) or size < _SHORTEST:
        return False
    rise = value - known - first
    state.sizes[one] *= min(max(-0.5 * first / rise, 0.1), 0.5) if rise < np.inf else 0.1
    for i in range(state.tried.shape[1]):
        state.tried[one, i] = state.points[one, i] + state.sizes[one] * state.directions[one, i]
    return True


@compiled
def take_step(state, one, value, slopes):
    """Go to the point that was tried, and remember the way if it bends upwards."""
    count = state.counts[one]
    move, change = state.moves[one, count % _MEMORY], state.changes[one, count % _MEMORY]
    for i in range(slopes.size):
        move[i] = state.tried[one, i] - state.points[one, i]
        change[i] = slopes[i] - state.slopes[one, i]
    if count >= 0:
        state.gained[one] += state.values[one] - value
    if count < 0 or along(move, change) > 0:
        state.counts[one] += 1
    state.values[one] = value
    for i in range(slopes.size):
        state.points[one, i], state.slopes[one, i] = state.tried[one, i], slopes[i]


@compiled
def turn(state, one):
    """The next direction, by the two loops of L-BFGS, and the size of its first step."""
    n, way = state.counts[one], state.directions[one]
    way[:] = state.slopes[one]
    parts = np.zeros(_MEMORY)
    for back in range(n - 1, max(n - _RECALLED, 0) - 1, -1):
        move, change = state.moves[one, back % _MEMORY], state.changes[one, back % _MEMORY]
        parts[back % _MEMORY] = along(move, way) / along(move, change)
        for i in range(way.size):
            way[i] -= parts[back % _MEMORY] * change[i]
    if n > 0:
        move, change = state.moves[one, (n - 1) % _MEMORY], state.changes[one, (n - 1) % _MEMORY]
        scale = along(move, change) / along(change, change)
    else:
        steepness, distance = np.sqrt(along(way, way)), np.sqrt(along(state.points[one], state.points[one]))
        scale = _FIRST_STEP * (1.0 + distance) / steepness if steepness > 0 else 0.0
    for i in range(way.size):
        way[i] *= scale
    for forth in range(max(n - _RECALLED, 0), n):
        move, change = state.moves[one, forth % _MEMORY], state.changes[one, forth % _MEMORY]
        part = parts[forth % _MEMORY] - along(change, way) / along(move, change)
        for i in range(way.size):
            way[i] += part * move[i]
    for i in range(way.size):
        way[i] = -way[i]
    state.sizes[one] = 1.0
    promised = -0.5 * along(state.slopes[one], way)
    state.small[one] = 0 if promised > _NEAR * state.gained[one] else state.small[one] + 1
    state.done[one] = state.small[one] >= _SMALL_STEPS or not promised > 0
