"""Compiled loops over logits: the losses' values and slopes. A slope is the derivative of the loss by a logit.

Each loss is here a second time, as numba compiles it; the formulas are in `milrec.losses`, and tests compare the two.
"""

from __future__ import annotations

import numpy as np

from milrec.kernels.jit import ADOPTED, MISSING, REJECTED, compiled, inlined

SQUARE_LINEAR, SQUARE_SIGMOID, POINTWISE, MIL, MULTINOMIAL = 0, 1, 2, 3, 4
PAIR_LOGITS, PAIR_SIGMOID, PAIR_LINEAR = 5, 6, 7  # pair-wise: difference of logits, of preferences by decoder

f4, i4, u4, u8 = np.float32, np.int32, np.uint32, np.uint64


@inlined
def exp(x):
    """e^x in single precision (Cephes), good to 2e-7; x is kept in [-60, 88], since tiny numbers are slow."""
    x = min(max(x, f4(-60.0)), f4(88.0))
    n = np.floor(x * f4(1.44269504088896341) + f4(0.5))
    r = x - n * f4(0.693359375) + n * f4(2.12194440e-4)
    p = f4(1.9875691500e-4)
    p = p * r + f4(1.3981999507e-3)
    p = p * r + f4(8.3334519073e-3)
    p = p * r + f4(4.1665795894e-2)
    p = p * r + f4(1.6666665459e-1)
    p = p * r + f4(5.0000001201e-1)
    return (p * r * r + r + f4(1.0)) * i4((i4(n) + i4(127)) << i4(23)).view(f4)


@inlined
def log(x):
    """ln x in single precision (Cephes) for x > 0; ln 0 is about -87."""
    bits = f4(x).view(i4)
    e = f4((bits >> i4(23)) - i4(126))
    m = i4((bits & i4(0x007FFFFF)) | i4(0x3F000000)).view(f4)
    low = m < f4(0.707106781186547524)
    e = e - f4(1.0) if low else e
    m = m + m - f4(1.0) if low else m - f4(1.0)
    p = f4(7.0376836292e-2)
    p = p * m + f4(-1.1514610310e-1)
    p = p * m + f4(1.1676998740e-1)
    p = p * m + f4(-1.2420140846e-1)
    p = p * m + f4(1.4249322787e-1)
    p = p * m + f4(-1.6668057665e-1)
    p = p * m + f4(2.0000714765e-1)
    p = p * m + f4(-2.4999993993e-1)
    p = p * m + f4(3.3333331174e-1)
    square = m * m
    return m + (m * square * p - f4(2.12194440e-4) * e - f4(0.5) * square) + f4(0.693359375) * e


@inlined
def sigmoid(z):
    return f4(1.0) / (f4(1.0) + exp(-z))


@inlined
def missing_row(kind, z, weight, p, power):
    """Overwrite a row of logits with the slopes of missing items, each with its weight; return their loss.

    Loops are short, with one function each and parameters in registers: so the compiler does eight numbers at a time.
    """
    one, first, second = f4(1.0), p[0], p[1]
    total = f4(0.0)
    if kind == SQUARE_LINEAR:
        for j in range(z.size):
            total += second * weight[j] * z[j] * z[j]
            z[j] = f4(2.0) * second * weight[j] * z[j]
        return total
    for j in range(z.size):
        z[j] = sigmoid(z[j])
    if kind == SQUARE_SIGMOID:
        for j in range(z.size):
            q = z[j]
            total += second * weight[j] * q * q
            z[j] = f4(2.0) * second * weight[j] * q * q * (one - q)
    elif kind == POINTWISE:
        for j in range(z.size):
            total -= weight[j] * log(one - min(max(z[j], second), one - second))
        for j in range(z.size):
            q = z[j]
            z[j] = weight[j] * q if second <= q <= one - second else f4(0.0)
    else:
        for j in range(z.size):
            power[j] = log((z[j] - f4(0.5)) * (z[j] - f4(0.5)))
        for j in range(z.size):
            power[j] = exp((second - one) * power[j])  # (d²)^(γ-1)
        for j in range(z.size):
            q = z[j]
            d = q - f4(0.5)
            wall = first * weight[j] * power[j]
            total += wall * d * d
            z[j] = f4(2.0) * second * wall * d * q * (one - q)
    return total


@inlined
def known_cell(kind, role, z, p):
    """(loss, slope) of an adopted or a rejected item."""
    one, two = f4(1.0), f4(2.0)
    if kind == SQUARE_LINEAR:
        if role == ADOPTED:
            return p[0] * (one - z) * (one - z), two * p[0] * (z - one)
        return z * z, two * z
    q = sigmoid(z)
    rise = q * (one - q)  # dq/dz
    if kind == SQUARE_SIGMOID:
        if role == ADOPTED:
            return p[0] * (one - q) * (one - q), two * p[0] * (q - one) * rise
        return q * q, two * q * rise
    if kind == POINTWISE:
        kept = min(max(q, p[1]), one - p[1])
        inside = one if q == kept else f4(0.0)
        if role == ADOPTED:
            return -p[0] * log(kept), p[0] * (q - one) * inside
        return -log(one - kept), q * inside
    base, exponent, sign = (one - q, p[2], -one) if role == ADOPTED else (q, p[3], p[4])
    power = exp((exponent - one) * log(base))
    return abs(sign) * power * base, sign * exponent * power * rise


@inlined
def pair_cell(kind, adopted, other, p):
    """(loss, slope of the adopted item, slope of the other) of one pair, from their logits."""
    one = f4(1.0)
    if kind == PAIR_LOGITS:
        d = adopted - other
        small = exp(-abs(d))
        wrong = (small if d > f4(0.0) else one) / (one + small)  # σ(-d)
        return max(-d, f4(0.0)) + log(one + small), -wrong, wrong
    if kind == PAIR_SIGMOID:
        q, r = sigmoid(adopted), sigmoid(other)
        rise, other_rise = q * (one - q), r * (one - r)
    else:
        q, r, rise, other_rise = adopted, other, one, one
    d = q - r
    kept = min(max(d, p[0]), one - p[0])
    if d != kept:
        return -log(kept), f4(0.0), f4(0.0)
    return -log(kept), -rise / d, other_rise / d


@inlined
def partner_place(key, item, n):
    """Which of a user's n adopted items is paired with an item: a hash of both, as good as a random draw."""
    x = u4(key) ^ u4(u4(item) * u4(0x9E3779B1))
    x ^= x >> u4(16)
    x = u4(x * u4(0x85EBCA6B))
    x ^= x >> u4(13)
    x = u4(x * u4(0xC2B2AE35))
    x ^= x >> u4(16)
    return np.int64((u8(x) * u8(n)) >> u8(32))


@compiled
def partner_places(key, n_items, n):
    """The places of all items' partners."""
    places = np.empty(n_items, dtype=np.int64)
    for item in range(n_items):
        places[item] = partner_place(key, item, n)
    return places


@inlined
def cells_within(indptr, columns, user, start, stop):
    """Which of a user's cells, in ascending columns, are in columns start … stop-1."""
    own = columns[indptr[user] : indptr[user + 1]]
    return indptr[user] + np.searchsorted(own, start), indptr[user] + np.searchsorted(own, stop)


@compiled
def block_slopes(kind, p, z, bias, start, weight, counts, shares, cells, bias_slopes):
    """Overwrite a block of logits (n_users, n_columns) with slopes, and sum them into bias_slopes; return its loss.

    Missing items have the user's `weight` times the column's `counts`, except in `cells` (indptr, columns, roles,
    weights): by user, in ascending columns, adopted and rejected items (with the user's share in
    the loss, `shares`) and missing ones with a weight of their own.
    """
    indptr, columns, roles, weights = cells
    n = z.shape[1]
    row_weight, power, kept = np.empty(n, dtype=f4), np.empty(n, dtype=f4), np.empty(n, dtype=f4)
    bias_slopes[:] = f4(0.0)
    total = 0.0
    for user in range(z.shape[0]):
        row = z[user]
        for j in range(n):
            row[j] += bias[j]
            row_weight[j] = weight[user] * counts[j]
        low, high = cells_within(indptr, columns, user, start, start + n)
        for c in range(low, high):
            place = columns[c] - start
            kept[c - low] = row[place]
            row_weight[place] = weights[c] if roles[c] == MISSING else f4(0.0)
        total += missing_row(kind, row, row_weight, p, power)
        for c in range(low, high):
            if roles[c] != MISSING:
                value, slope = known_cell(kind, roles[c], kept[c - low], p)
                total += shares[user] * value
                row[columns[c] - start] = shares[user] * slope
        for j in range(n):
            bias_slopes[j] += row[j]
    return total


@compiled
def pair_block_slopes(
    kind, p, z, bias, start, items, weight, counts, shares, cells, pairs, bias_slopes, partner_slopes
):
    """The same for the pair-wise losses: each missing or rejected item with a partner among the adopted ones.

    `pairs` are (indptr, adopted logits, keys) by user; the adopted items' slopes are added to `partner_slopes`. An
    `items` array names the columns' items; if it is empty, columns are items.
    """
    indptr, columns, roles, weights = cells
    adopted_indptr, adopted_logits, keys = pairs
    n = z.shape[1]
    row_weight = np.empty(n, dtype=f4)
    bias_slopes[:] = f4(0.0)
    total = 0.0
    for user in range(z.shape[0]):
        row = z[user]
        first = adopted_indptr[user]
        n_adopted = adopted_indptr[user + 1] - first
        own_weight = weight[user] if n_adopted else f4(0.0)
        for j in range(n):
            row_weight[j] = own_weight * counts[j]
        low, high = cells_within(indptr, columns, user, start, start + n)
        for c in range(low, high):
            own = shares[user] if roles[c] == REJECTED else weights[c]
            row_weight[columns[c] - start] = own if n_adopted and roles[c] != ADOPTED else f4(0.0)
        for j in range(n):
            if row_weight[j] == f4(0.0):
                row[j] = f4(0.0)
                continue
            item = items[start + j] if items.size else start + j
            partner = first + partner_place(keys[user], item, n_adopted)
            value, up, down = pair_cell(kind, adopted_logits[partner], row[j] + bias[j], p)
            total += row_weight[j] * value
            partner_slopes[partner] += row_weight[j] * up
            row[j] = row_weight[j] * down
            bias_slopes[j] += row[j]
    return total


@compiled
def softmax_sums(z, bias, largest, sums):
    """Add the bias to a block of logits; per user its largest logit, and Σ exp(logit - largest)."""
    for user in range(z.shape[0]):
        row = z[user]
        top = f4(-np.inf)
        for j in range(row.size):
            row[j] += bias[j]
            top = max(top, row[j])
        total = f4(0.0)
        for j in range(row.size):
            total += exp(row[j] - top)
        largest[user], sums[user] = top, total


@compiled
def multinomial_slopes(z, start, normaliser, shares, cells, bias_slopes):
    """Overwrite a block of logits with n_adopted·softmax - adopted; `normaliser` is ln Σ exp by user."""
    indptr, columns, roles, _ = cells
    n = z.shape[1]
    kept = np.empty(n, dtype=f4)
    bias_slopes[:] = f4(0.0)
    total = 0.0
    for user in range(z.shape[0]):
        row = z[user]
        low, high = cells_within(indptr, columns, user, start, start + n)
        n_adopted = f4(0.0)
        for c in range(indptr[user], indptr[user + 1]):
            n_adopted += f4(1.0) if roles[c] == ADOPTED else f4(0.0)
        for c in range(low, high):
            kept[c - low] = row[columns[c] - start]
        share = shares[user]
        scale = share * n_adopted
        for j in range(n):
            row[j] = scale * exp(row[j] - normaliser[user])
        for c in range(low, high):
            if roles[c] == ADOPTED:
                total += share * (normaliser[user] - kept[c - low])
                row[columns[c] - start] -= share
        for j in range(n):
            bias_slopes[j] += row[j]
    return total


@inlined
def dot(a, b):
    total = f4(0.0)
    for d in range(a.size):
        total += a[d] * b[d]
    return total


@compiled
def pair_logits(low, high, latent, weight, bias, indptr, items, logits):
    """logits of sparse pairs (user, item), by dot products, for users low … high-1."""
    for user in range(low, high):
        for c in range(indptr[user], indptr[user + 1]):
            logits[c] = dot(latent[user], weight[items[c]]) + bias[items[c]]


@compiled
def known_pairs(low, high, kind, role, p, shares, latent, weight, bias, indptr, items, slopes, latent_slopes, values):
    """Adopted or rejected pairs of users low … high-1: their slopes, those of the latents, and the users' losses."""
    for user in range(low, high):
        own = latent_slopes[user]
        for c in range(indptr[user], indptr[user + 1]):
            row = weight[items[c]]
            value, slope = known_cell(kind, role, dot(latent[user], row) + bias[items[c]], p)
            slope *= shares[user]
            values[user] += shares[user] * value
            slopes[c] = slope
            for d in range(own.size):
                own[d] += slope * row[d]


@compiled
def rejected_pair_slopes(kind, p, shares, pairs, indptr, items, logits, slopes, partner_slopes):
    """Pair-wise losses: the slopes of rejected items, and of their partners; returns their loss."""
    adopted_indptr, adopted_logits, keys = pairs
    total = 0.0
    slopes[:] = f4(0.0)
    for user in range(indptr.size - 1):
        n_adopted = adopted_indptr[user + 1] - adopted_indptr[user]
        for c in range(indptr[user], indptr[user + 1]):
            if n_adopted:
                partner = adopted_indptr[user] + partner_place(keys[user], items[c], n_adopted)
                value, up, down = pair_cell(kind, adopted_logits[partner], logits[c], p)
                total += shares[user] * value
                partner_slopes[partner] += shares[user] * up
                slopes[c] = shares[user] * down
    return total
