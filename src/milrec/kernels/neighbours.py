"""Compiled loops over items that occur together: for EASE over neighbourhoods, and for items like another.

For EASE, items are numbered by popularity, the most adopted first. `pairs` is X in both directions, (item_indptr,
users, user_indptr, items), with the items of a user ascending. `memory` is what a worker keeps from item to item.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from milrec.kernels.gram import SETTLED, UNSETTLED
from milrec.kernels.jit import compiled, inlined

f4, i4 = np.float32, np.int32


def working_memory(n_items: int, n_neighbours: int) -> tuple[npt.NDArray[Any], ...]:
    """(counts, items, scores, places) over all items, zeroed; (square, vectors) over a neighbourhood."""
    over_items = (np.zeros(n_items, i4), np.zeros(n_items, i4), np.zeros(n_items), np.zeros(n_items, i4))
    return *over_items, np.zeros((n_neighbours, n_neighbours), f4), np.zeros((6, n_neighbours))


@inlined
def _gathered(item, limit, pairs, counts, seen):
    """Which items below a limit occur together with an item, into `seen`, and how often, into `counts`; how many."""
    item_indptr, users, user_indptr, items = pairs
    n = 0
    for c in range(item_indptr[item], item_indptr[item + 1]):
        user = users[c]
        for d in range(user_indptr[user], user_indptr[user + 1]):
            other = items[d]
            if other >= limit:
                break
            if counts[other] == 0:
                seen[n] = other
                n += 1
            counts[other] += 1
    return n


@compiled
def count_together(low, high, pairs, lengths, memory):
    """lengths[i] = how many more popular items occur together with item i, for items low … high-1."""
    counts, seen = memory[0], memory[1]
    for i in range(low, high):
        lengths[i] = _gathered(i, i, pairs, counts, seen)
        for other in seen[: lengths[i]]:
            counts[other] = 0


@compiled
def fill_together(low, high, pairs, indptr, others, often, memory):
    """Which more popular items occur together with item i, and how often, for items low … high-1."""
    counts, seen = memory[0], memory[1]
    for i in range(low, high):
        n = _gathered(i, i, pairs, counts, seen)
        for c in range(n):
            other = seen[c]
            others[indptr[i] + c], often[indptr[i] + c] = other, counts[other]
            counts[other] = 0


@inlined
def _chosen(own, n, seen, counts, adopters, scores, chosen):
    """The items most like an item by their cosine, ascending: by G_ij² / G_ii. Of equal ones the more popular."""
    n_chosen, m = chosen.size, 0
    for c in range(n):
        item = seen[c]
        if item != own:
            seen[m], scores[m] = item, float(counts[item]) * counts[item] / adopters[item]
            m += 1
    if m < n_chosen:
        chosen[:m] = seen[:m]
        item = 0
        while m < n_chosen:
            if counts[item] == 0 and item != own:
                chosen[m] = item
                m += 1
            item += 1
    else:
        least = np.partition(scores[:m], m - n_chosen)[m - n_chosen]
        n_above = n_equal = 0
        for c in range(m):
            if scores[c] > least:
                chosen[n_above] = seen[c]
                n_above += 1
            elif scores[c] == least:
                seen[n_equal] = seen[c]
                n_equal += 1
        equal = seen[:n_equal]
        equal.sort()
        chosen[n_above:] = equal[: n_chosen - n_above]
    chosen.sort()


@inlined
def _squared(chosen, together, places, square):
    """How often the chosen items occur together, off the diagonal of a square."""
    indptr, others, often = together
    square[:] = 0
    for p in range(chosen.size):
        places[chosen[p]] = p + 1
    for p in range(chosen.size):
        for c in range(indptr[chosen[p]], indptr[chosen[p] + 1]):
            q = places[others[c]]
            if q:
                square[p, q - 1] = square[q - 1, p] = often[c]
    for p in range(chosen.size):
        places[chosen[p]] = 0


@inlined
def _solved(square, diagonal, right, weight, vectors, tolerance, most_steps):
    """(square + diagonal)·weight = right by conjugate gradients, preconditioned by the diagonal: steps, or -1."""
    n = right.size
    residual, direction, image = vectors[0], vectors[1], vectors[2]
    size = 0.0
    for p in range(n):
        weight[p] = 0.0
        residual[p] = right[p]
        direction[p] = right[p] / diagonal[p]
        size += right[p] * direction[p]
    enough = tolerance * tolerance * size
    for step in range(most_steps):
        if size <= enough:
            return step
        slope = 0.0
        for p in range(n):
            total = diagonal[p] * direction[p]
            row = square[p]
            for q in range(n):
                total += row[q] * direction[q]
            image[p] = total
            slope += total * direction[p]
        length = size / slope
        before, size = size, 0.0
        for p in range(n):
            weight[p] += length * direction[p]
            residual[p] -= length * image[p]
            size += residual[p] * residual[p] / diagonal[p]
        for p in range(n):
            direction[p] = residual[p] / diagonal[p] + size / before * direction[p]
    return -1


@compiled
def neighbour_weights(low, high, pairs, together, adopters, limits, found, memory):
    """Weights to items j from low to high-1 from their neighbours, by ridge regression over these alone.

    `limits` is (λ, tolerance, most steps), `found` (neighbours, weights, endings) by item.
    """
    regularization, tolerance, most_steps = limits
    neighbours, weights, endings = found
    counts, seen, scores, places, square, vectors = memory
    right, diagonal, weight = vectors[3], vectors[4], vectors[5]
    for j in range(low, high):
        chosen = neighbours[j]
        n = _gathered(j, counts.size, pairs, counts, seen)
        touched = seen[:n].copy()
        _chosen(j, n, seen, counts, adopters, scores, chosen)
        for p in range(chosen.size):
            right[p], diagonal[p] = counts[chosen[p]], adopters[chosen[p]] + regularization
        for item in touched:
            counts[item] = 0
        _squared(chosen, together, places, square)
        steps = _solved(square, diagonal, right, weight, vectors, tolerance, most_steps)
        endings[j] = UNSETTLED if steps < 0 else SETTLED
        weights[j] = weight


@compiled
def rows_by_source(order, neighbours, weights):
    """Weights by the item that they lead from, the items numbered as in `order`: (indptr, items, values), without 0."""
    n_items = order.size
    indptr, ranks = np.zeros(n_items + 1, dtype=np.int64), np.empty(n_items, dtype=np.int64)
    for j in range(n_items):
        ranks[order[j]] = j
        for p in range(neighbours.shape[1]):
            if weights[j, p] != 0:
                indptr[order[neighbours[j, p]] + 1] += 1
    for i in range(n_items):
        indptr[i + 1] += indptr[i]
    places = indptr[:-1].copy()
    items, values = np.empty(indptr[-1], dtype=i4), np.empty(indptr[-1], dtype=f4)
    for item in range(n_items):
        j = ranks[item]
        for p in range(neighbours.shape[1]):
            if weights[j, p] != 0:
                source = order[neighbours[j, p]]
                items[places[source]], values[places[source]] = item, weights[j, p]
                places[source] += 1
    return indptr, items, values


@compiled
def adopters_by_item(indptr, items, n_items):
    """The users of each item, ascending: (indptr, users)."""
    starts = np.zeros(n_items + 1, dtype=np.int64)
    for c in range(items.size):
        starts[items[c] + 1] += 1
    for i in range(n_items):
        starts[i + 1] += starts[i]
    places, users = starts[:-1].copy(), np.empty(items.size, dtype=i4)
    for user in range(indptr.size - 1):
        for c in range(indptr[user], indptr[user + 1]):
            users[places[items[c]]] = user
            places[items[c]] += 1
    return starts, users


@compiled
def votes_together(users, indptr, items, counts, votes):
    """counts[j] += how many of these users adopted item j; votes[j] += 1 / (how many items each of them adopted)."""
    for user in users:
        low, high = indptr[user], indptr[user + 1]
        vote = 1.0 / (high - low)
        for c in range(low, high):
            counts[items[c]] += 1
            votes[items[c]] += vote
