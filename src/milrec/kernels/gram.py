"""Compiled loops over pairs of items: how often they occur together, and the weights of EASE and SLIM."""

from __future__ import annotations

import numpy as np

from milrec.kernels.jit import compiled

SETTLED, UNSETTLED = 1, -1  # how a descent ended


@compiled
def gram_rows(low, high, item_indptr, users, user_indptr, items, gram):
    """gram[i, j] += users who adopted both, for items i from low to high-1: rows of X'X."""
    for i in range(low, high):
        own = gram[i]
        for c in range(item_indptr[i], item_indptr[i + 1]):
            user = users[c]
            for d in range(user_indptr[user], user_indptr[user + 1]):
                own[items[d]] += 1


@compiled
def mirror_rows(low, high, square):
    """square[j, i] = square[i, j] for rows i from low to high-1 and j below i."""
    for i in range(low, high):
        for j in range(i):
            square[j, i] = square[i, j]


@compiled
def inverse_rows(low, high, item_indptr, users, user_indptr, items, middle, regularization, inverse):
    """Rows low to high-1 of (I - X'MX) / λ, up to the diagonal; summed in double precision."""
    for i in range(low, high):
        part, row = np.zeros(len(middle)), np.zeros(i + 1)
        for c in range(item_indptr[i], item_indptr[i + 1]):
            own = middle[users[c]]
            for user in range(len(part)):
                part[user] += own[user]
        for user in range(len(part)):
            for d in range(user_indptr[user], user_indptr[user + 1]):
                if items[d] <= i:
                    row[items[d]] += part[user]
        for j in range(i):
            inverse[i, j] = -row[j] / regularization
        inverse[i, i] = (1 - row[i]) / regularization


@compiled
def ease_rows(low, high, inverse, diagonal, weight):
    """weight[i, j] = -P_ij / P_jj and the mirrored cell, for items i from low to high-1 and j below i.

    `inverse` holds P below its diagonal; `weight` may be the same memory, since each pair is read before it is written.
    """
    for i in range(low, high):
        weight[i, i] = 0
        for j in range(i):
            cell = inverse[i, j]
            weight[i, j] = -cell / diagonal[j]
            weight[j, i] = -cell / diagonal[i]


@compiled
def slim_columns(low, high, gram, diagonal, l1, l2, tolerance, most_sweeps, weight, endings):
    """Weights to items j from low to high-1, by coordinate descent from zero.

    For one weight with the others fixed the minimum is max(0, (slope_i + G_ii·w_i - l1) / (G_ii + l2)), where
    slope_i = G_ij - Σ_k G_ik·w_k. Where G_ij ≤ l1 it is 0 whatever the others are, since no weight is negative.
    """
    n_items = len(gram)
    slopes, own = np.empty(n_items), np.empty(n_items)
    candidates = np.empty(n_items, dtype=np.int64)
    for j in range(low, high):
        n = 0
        for i in range(n_items):
            slopes[i], own[i] = gram[j, i], 0.0
            if i != j and gram[j, i] > l1:
                candidates[n] = i
                n += 1
        endings[j] = UNSETTLED
        for _ in range(most_sweeps):
            change = largest = 0.0
            for i in candidates[:n]:
                before = own[i]
                after = max(0.0, (slopes[i] + diagonal[i] * before - l1) / (diagonal[i] + l2))
                largest = max(largest, after)
                if after != before:
                    own[i], step, row = after, after - before, gram[i]
                    change = max(change, abs(step))
                    for k in range(n_items):
                        slopes[k] -= step * row[k]
            if change <= tolerance * largest:
                endings[j] = SETTLED
                break
        for i in candidates[:n]:
            weight[i, j] = own[i]
