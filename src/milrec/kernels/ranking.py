"""Compiled loops over scores: products, masks, the best items of each user, hits in lists, counts of preferences."""

from __future__ import annotations

import numpy as np

from milrec.kernels.jit import compiled, compiled_without_nan, inlined
from milrec.kernels.losses import dot

f4, i4, i8 = np.float32, np.int32, np.int64
_STRIDE = 32  # scores whose maximum is found first


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


@inlined
def order_key(score, item):
    """A number that is larger for a better score and, among equals, for an earlier item."""
    bits = i8(f4(score).view(i4))
    ordered = bits if bits >= 0 else i8(-2147483648) - bits  # -0 becomes 0
    return (ordered << i8(32)) | i8(2147483647 - item)


@inlined
def largest_of_strides(row, largest):
    """The largest of every `_STRIDE` scores, none of which may be NaN."""
    whole = row.size // _STRIDE
    for s in range(whole):
        top = row[s * _STRIDE]
        for j in range(_STRIDE):
            top = max(top, row[s * _STRIDE + j])
        largest[s] = top
    if whole < largest.size:
        largest[whole] = row[whole * _STRIDE :].max()


@compiled_without_nan
def top_lists(scores, n, lists):
    """The n best items of each user, best first, equal scores in item order; -1 where no item is left.

    Of every `_STRIDE` scores the largest is found first. The n-th largest of these is not above the n-th best score, so
    few items besides the listed ones have to be sorted.
    """
    n_items = scores.shape[1]
    n_strides = -(-n_items // _STRIDE)
    largest = np.empty(n_strides, dtype=f4)
    keys = np.empty(n_items, dtype=i8)
    for user in range(scores.shape[0]):
        row = scores[user]
        largest_of_strides(row, largest)
        bound = np.partition(largest, n_strides - n)[n_strides - n] if n <= n_strides else f4(-np.inf)
        n_keys = 0
        for s in range(n_strides):
            if largest[s] >= bound and largest[s] > -np.inf:
                for j in range(s * _STRIDE, min((s + 1) * _STRIDE, n_items)):
                    if row[j] >= bound and row[j] > -np.inf:
                        keys[n_keys] = order_key(row[j], j)
                        n_keys += 1
        own = keys[:n_keys]
        own.sort()
        for place in range(n):
            if place < n_keys:
                lists[user, place] = i8(2147483647) - (own[n_keys - 1 - place] & i8(0xFFFFFFFF))
            else:
                lists[user, place] = -1


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
