"""Compiled loops over scores: products, masks, hits in lists, counts of preferences. See `candidates` for lists."""

from __future__ import annotations

import numpy as np

from milrec.kernels.jit import compiled
from milrec.kernels.losses import dot

f4, i4, i8 = np.float32, np.int32, np.int64


@compiled
def row_products(left, right, out):
    """out[i, j] = left[i] · right[j], summed in the same order for every i."""
    for i in range(len(left)):
        for j in range(len(right)):
            out[i, j] = dot(left[i], right[j])


@compiled
def add_bias(logits, bias):
    for user in range(logits.shape[0]):
        row = logits[user]
        for j in range(row.size):
            row[j] += bias[j]


@compiled
def hide(scores, indptr, items):
    """Set each user's items to -inf; `indptr` is the users' part of a longer one."""
    for user in range(indptr.size - 1):
        for c in range(indptr[user], indptr[user + 1]):
            scores[user, items[c]] = -np.inf


@compiled
def found_in_lists(lists, indptr, items, n_items):
    """Whether each place of each list holds one of the user's items."""
    found = np.zeros(lists.shape, dtype=np.bool_)
    marks = np.zeros(n_items, dtype=np.bool_)
    for user in range(lists.shape[0]):
        for c in range(indptr[user], indptr[user + 1]):
            marks[items[c]] = True
        for place in range(lists.shape[1]):
            if lists[user, place] >= 0:
                found[user, place] = marks[lists[user, place]]
        for c in range(indptr[user], indptr[user + 1]):
            marks[items[c]] = False
    return found


@compiled
def count_resampled(random, counts):
    """For each row, how often each of its places is drawn if as many are drawn as there are, each equally likely."""
    n = counts.shape[1]
    times = np.empty(n, dtype=i4)
    for sample in range(counts.shape[0]):
        times[:] = 0
        for place in random.integers(0, n, size=n):
            times[place] += i4(1)
        counts[sample] = times


@compiled
def counts_below(logits, thresholds):
    """How many of all users' logits together lie below each threshold."""
    counts = np.zeros(thresholds.size, dtype=i8)
    for user in range(logits.shape[0]):
        row = logits[user]
        for t in range(thresholds.size):
            threshold = thresholds[t]
            n = i4(0)
            for j in range(row.size):
                n += i4(1) if row[j] < threshold else i4(0)
            counts[t] += n
    return counts


@compiled
def ordered_shares(logits, indptr, items, lower_indptr, lower_items, shares):
    """Of all pairs of a user's item and lower item, the share in which the item's logit is larger; equals count half.

    A user without a pair keeps what `shares` holds. Both `indptr` are the users' part of a longer one.
    """
    for user in range(logits.shape[0]):
        row = logits[user]
        twice = i8(0)
        for c in range(indptr[user], indptr[user + 1]):
            own = row[items[c]]
            for d in range(lower_indptr[user], lower_indptr[user + 1]):
                other = row[lower_items[d]]
                twice += i8(2) if own > other else i8(1) if own == other else i8(0)
        n_pairs = (indptr[user + 1] - indptr[user]) * (lower_indptr[user + 1] - lower_indptr[user])
        if n_pairs > 0:
            shares[user] = twice / (2 * n_pairs)


@compiled
def count_by_odds(logits, table, low, scale, shifts, counts):
    """How many logits fall into each bin: a logit's place in `table` gives its bin, and a user's shift is added.

    `table` begins at the logit `low` and has `scale` places for each unit of it; places and bins beyond an end count at
    that end. What is hidden (-inf) is not counted.
    """
    last_place, last_bin = table.size - 1, counts.size - 1
    for user in range(logits.shape[0]):
        row, shift = logits[user], shifts[user]
        for j in range(row.size):
            if row[j] > -np.inf:
                place = min(max((row[j] - low) * scale, f4(0.0)), f4(last_place))
                found = table[i4(place)] + shift
                counts[i4(min(max(found, f4(0.0)), f4(last_bin)))] += i8(1)
