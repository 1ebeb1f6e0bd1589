"""Compiled loops over sparse rows: cutting, merging, transposing, multiplying and drawing them, and Adam by rows."""

from __future__ import annotations

import numpy as np

from milrec.kernels.jit import ADOPTED, MISSING, REJECTED, compiled

f4, i4 = np.float32, np.int32


@compiled
def taken_rows(indptr, items, values, users):
    """Some rows of a sparse matrix: (indptr, items, values)."""
    starts = np.empty(users.size + 1, dtype=np.int64)
    starts[0] = 0
    for n in range(users.size):
        starts[n + 1] = starts[n] + indptr[users[n] + 1] - indptr[users[n]]
    taken, kept = np.empty(starts[-1], dtype=i4), np.empty(starts[-1], dtype=f4)
    for n in range(users.size):
        first = indptr[users[n]]
        for c in range(starts[n + 1] - starts[n]):
            taken[starts[n] + c], kept[starts[n] + c] = items[first + c], values[first + c]
    return starts, taken, kept


@compiled
def merged_items(indptr, items, other_indptr, other_items):
    """The items of two sets of rows in one: (indptr, items), ascending in each row."""
    merged_indptr = indptr + other_indptr
    merged = np.empty(items.size + other_items.size, dtype=i4)
    for user in range(indptr.size - 1):
        own = merged[merged_indptr[user] : merged_indptr[user + 1]]
        n = indptr[user + 1] - indptr[user]
        own[:n] = items[indptr[user] : indptr[user + 1]]
        own[n:] = other_items[other_indptr[user] : other_indptr[user + 1]]
        own.sort()
    return merged_indptr, merged


@compiled
def merged_cells(adopted_indptr, adopted, rejected_indptr, rejected, other_indptr, other, other_values):
    """Adopted, rejected and exceptional missing items in one: (indptr, items, roles, weights), each row ascending."""
    indptr = adopted_indptr + rejected_indptr + other_indptr
    items, roles = np.empty(indptr[-1], dtype=i4), np.empty(indptr[-1], dtype=np.int8)
    weights = np.zeros(indptr[-1], dtype=f4)
    for user in range(indptr.size - 1):
        a, r, o = adopted_indptr[user], rejected_indptr[user], other_indptr[user]
        for c in range(indptr[user], indptr[user + 1]):
            next_adopted = adopted[a] if a < adopted_indptr[user + 1] else i4(2147483647)
            next_rejected = rejected[r] if r < rejected_indptr[user + 1] else i4(2147483647)
            next_other = other[o] if o < other_indptr[user + 1] else i4(2147483647)
            if next_adopted < next_rejected and next_adopted < next_other:
                items[c], roles[c] = next_adopted, ADOPTED
                a += 1
            elif next_rejected < next_other:
                items[c], roles[c] = next_rejected, REJECTED
                r += 1
            else:
                items[c], roles[c], weights[c] = next_other, MISSING, other_values[o]
                o += 1
    return indptr, items, roles, weights


@compiled
def known_among(adopted_indptr, adopted, rejected_indptr, rejected, drawn, counts):
    """Cells that take known items out of drawn columns: (indptr, columns, roles, weights), all missing with weight 0.

    `counts` is a zeroed array over all items, and is left zeroed.
    """
    starts = np.zeros(adopted_indptr.size, dtype=np.int64)
    columns = np.empty(adopted.size + rejected.size, dtype=i4)
    for place in range(drawn.size):
        counts[drawn[place]] = place + 1
    n = 0
    for user in range(adopted_indptr.size - 1):
        for indptr, items in ((adopted_indptr, adopted), (rejected_indptr, rejected)):
            for c in range(indptr[user], indptr[user + 1]):
                if counts[items[c]]:
                    columns[n] = counts[items[c]] - 1
                    n += 1
        columns[starts[user] : n].sort()
        starts[user + 1] = n
    for item in drawn:
        counts[item] = 0
    return starts, columns[:n], np.zeros(n, dtype=np.int8), np.zeros(n, dtype=f4)


@compiled
def weighted_rows(low, high, weight, indptr, rows, coefficients, out):
    """out[user] += Σ coefficient · weight[row] over the user's pairs, for users low … high-1."""
    for user in range(low, high):
        own = out[user]
        for c in range(indptr[user], indptr[user + 1]):
            row, coefficient = weight[rows[c]], coefficients[c]
            for d in range(own.size):
                own[d] += coefficient * row[d]


@compiled
def added_sparse_rows(indptr, columns, values, user_indptr, rows, out):
    """out[user] += Σ row over the user's rows of a sparse weight, one row after the other."""
    for user in range(user_indptr.size - 1):
        own = out[user]
        for c in range(user_indptr[user], user_indptr[user + 1]):
            for d in range(indptr[rows[c]], indptr[rows[c] + 1]):
                own[columns[d]] += values[d]


@compiled
def cells_of_rows(indptr, columns, values, rows, wanted):
    """Some columns of some rows of a sparse weight, (n_rows, n_wanted); the columns of a row are ascending."""
    cells = np.zeros((rows.size, wanted.size))
    for r in range(rows.size):
        own = columns[indptr[rows[r]] : indptr[rows[r] + 1]]
        for w in range(wanted.size):
            place = np.searchsorted(own, wanted[w])
            if place < own.size and own[place] == wanted[w]:
                cells[r, w] = values[indptr[rows[r]] + place]
    return cells


@compiled
def transposed(pair_users, items, coefficients, first_rows, counts):
    """Pairs by item instead of by user: (items, indptr, users, coefficients).

    The items are `first_rows`, whether they occur or not, and then the others that occur, in order of appearance.
    `counts` is a zeroed array over all items, and is left zeroed.
    """
    n_first = first_rows.size
    rows = np.empty(n_first + items.size, dtype=i4)
    rows[:n_first] = first_rows
    for row in first_rows:
        counts[row] = 1
    n_rows = n_first
    for c in range(items.size):
        if counts[items[c]] == 0:
            rows[n_rows] = items[c]
            n_rows += 1
        counts[items[c]] += 1
    starts = np.empty(n_rows + 1, dtype=np.int64)
    starts[0] = 0
    for r in range(n_rows):
        starts[r + 1] = starts[r] + counts[rows[r]] - (1 if r < n_first else 0)
        counts[rows[r]] = starts[r]
    users, values = np.empty(items.size, dtype=i4), np.empty(items.size, dtype=f4)
    for c in range(items.size):
        place = counts[items[c]]
        users[place], values[place] = pair_users[c], coefficients[c]
        counts[items[c]] += 1
    for r in range(n_rows):
        counts[rows[r]] = 0
    return rows[:n_rows], starts, users, values


@compiled
def draw_missing(random, known_indptr, known_items, n_items, n_drawn, marks):
    """For each user `n_drawn` missing items, all sets equally likely: (indptr, items, whether they are drawn).

    If more than half of the missing items are drawn, those that are not drawn are named instead. `marks` is a zeroed
    array over all items, and is left zeroed.
    """
    n_users = known_indptr.size - 1
    indptr = np.zeros(n_users + 1, dtype=np.int64)
    drawn = np.empty(n_users, dtype=np.bool_)
    for user in range(n_users):
        n_missing = n_items - (known_indptr[user + 1] - known_indptr[user])
        n_taken = min(n_drawn, n_missing)
        drawn[user] = 2 * n_taken <= n_missing
        indptr[user + 1] = indptr[user] + (n_taken if drawn[user] else n_missing - n_taken)
    items = np.empty(indptr[-1], dtype=i4)
    for user in range(n_users):
        known = known_items[known_indptr[user] : known_indptr[user + 1]]
        own = items[indptr[user] : indptr[user + 1]]
        for item in known:
            marks[item] = 1
        for c in range(own.size):
            item = int(random.random() * n_items)
            while marks[item]:
                item = int(random.random() * n_items)
            marks[item] = 1
            own[c] = item
        for item in known:
            marks[item] = 0
        for item in own:
            marks[item] = 0
        own.sort()
    return indptr, items, drawn


@compiled
def gathered_rows(low, high, gradient, out):
    """Rows low … high-1 of a gradient, as `adam_rows` takes it, spelled out."""
    _, indptr, users, coefficients, left, dense = gradient
    for r in range(low, high):
        gathered = out[r]
        if r < dense.shape[0]:
            gathered[:] = dense[r]
        else:
            gathered[:] = f4(0.0)
        for c in range(indptr[r], indptr[r + 1]):
            own, coefficient = left[users[c]], coefficients[c]
            for d in range(gathered.size):
                gathered[d] += coefficient * own[d]


@compiled
def adam_rows(weight, moments, gradient, low, high, step, rate, decay, beta1, beta2, epsilon):
    """One step of Adam on rows low … high-1 of a gradient; each row catches up on the steps since its last one.

    `gradient` is (rows, indptr, users, coefficients, left, dense): Σ coefficient · left[user], and for the first rows
    also a dense part. `moments` is (mean, square, last step) by row; `decay` is by row too.
    """
    mean, square, last = moments
    rows, indptr, users, coefficients, left, dense = gradient
    epsilon = f4(epsilon)
    unbias1, unbias2 = f4(1.0 - beta1**step), f4(np.sqrt(1.0 - beta2**step))
    gathered = np.empty(weight.shape[1], dtype=f4)
    ratio = beta1 / np.sqrt(beta2)
    for r in range(low, high):
        row = rows[r]
        if r < dense.shape[0]:
            gathered[:] = dense[r]
        else:
            gathered[:] = f4(0.0)
        for c in range(indptr[r], indptr[r + 1]):
            own, coefficient = left[users[c]], coefficients[c]
            for d in range(gathered.size):
                gathered[d] += coefficient * own[d]
        idle = step - last[row]
        last[row] = step
        keep1, keep2 = f4(beta1), f4(beta2)
        drift = f4(0.0)
        if idle > 1:
            keep1, keep2 = f4(beta1**idle), f4(beta2**idle)
            drift = f4(ratio * (1.0 - ratio ** (idle - 1)) / (1.0 - ratio) * rate / unbias1)
        w, m, v = weight[row], mean[row], square[row]
        size, owed = f4(rate / unbias1), f4(decay[row] * idle)
        for d in range(gathered.size):
            w[d] -= drift * m[d] / (np.sqrt(v[d]) / unbias2 + epsilon)
            g = gathered[d] + owed * w[d]
            m[d] = keep1 * m[d] + f4(1.0 - beta1) * g
            v[d] = keep2 * v[d] + f4(1.0 - beta2) * g * g
            w[d] -= size * m[d] / (np.sqrt(v[d]) / unbias2 + epsilon)
