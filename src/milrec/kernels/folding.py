"""Compiled loops for folding in users: the slopes of a user's loss by the latent, over all items.

Users take turns on each block of items while its weights are in the cache. Nothing of one user enters what is computed
for another, and every sum has one order: a user's latent has the same bits alone or together with others.
"""

from __future__ import annotations

import numpy as np

from milrec.kernels.jit import ADOPTED, REJECTED, compiled, inlined
from milrec.kernels.losses import (
    PAIR_LOGITS,
    block_slopes,
    cells_within,
    dot,
    exp,
    log,
    multinomial_slopes,
    pair_cell,
    softmax_sums,
)

LINEAR, SIGMOID, TANH, RELU = 0, 1, 2, 3  # activations of an encoder
_BLOCK = 256  # items whose weights are used by all users before the next ones are read
_USERS = 8  # users whose logits for all items are kept at once, if the loss needs them

f4 = np.float32


@inlined
def logits_of_items(latent, weight, z):
    """z[j] = latent · weight[j], four items at a time."""
    fours = len(weight) - len(weight) % 4
    for j in range(0, fours, 4):
        first, second, third, fourth = weight[j], weight[j + 1], weight[j + 2], weight[j + 3]
        a, b, c, d = f4(0.0), f4(0.0), f4(0.0), f4(0.0)
        for i in range(latent.size):
            a += latent[i] * first[i]
            b += latent[i] * second[i]
            c += latent[i] * third[i]
            d += latent[i] * fourth[i]
        z[j], z[j + 1], z[j + 2], z[j + 3] = a, b, c, d
    for j in range(fours, len(weight)):
        z[j] = dot(latent, weight[j])


@inlined
def add_slopes(z, weight, slopes):
    """slopes += Σ z[j] · weight[j], four items at a time."""
    fours = len(weight) - len(weight) % 4
    for j in range(0, fours, 4):
        first, second, third, fourth = weight[j], weight[j + 1], weight[j + 2], weight[j + 3]
        a, b, c, d = z[j], z[j + 1], z[j + 2], z[j + 3]
        for i in range(slopes.size):
            slopes[i] += a * first[i] + b * second[i] + c * third[i] + d * fourth[i]
    for j in range(fours, len(weight)):
        row, own = weight[j], z[j]
        for i in range(slopes.size):
            slopes[i] += own * row[i]


@compiled
def slopes_of_users(kind, p, latent, decoder, missing, cells, values, slopes):
    """The loss of each user, and its derivative by the latent, for all losses except the two below."""
    weight, bias = decoder
    indptr, columns, roles, weights = cells
    memory, unused, ones = np.empty(_BLOCK, dtype=f4), np.empty(_BLOCK, dtype=f4), np.ones(_BLOCK, dtype=f4)
    slopes[:], values[:] = f4(0.0), 0.0
    for start in range(0, len(weight), _BLOCK):
        block = weight[start : start + _BLOCK]
        n = len(block)
        z = memory[:n].reshape((1, n))
        for user in range(len(latent)):
            logits_of_items(latent[user], block, z[0])
            own = (indptr[user : user + 2], columns, roles, weights)
            here = (start, missing[user : user + 1], ones[:n], ones[:1])
            values[user] += block_slopes(kind, p, z, bias[start : start + n], *here, own, unused[:n])
            add_slopes(z[0], block, slopes[user])


@compiled
def multinomial_slopes_of_users(latent, decoder, cells, values, slopes):
    """The same for the multinomial loss, which needs all logits of a user before the first slope."""
    weight, bias = decoder
    indptr, columns, roles, weights = cells
    memory, unused = np.empty((min(len(latent), _USERS), len(weight)), dtype=f4), np.empty(len(weight), dtype=f4)
    largest, normaliser, one = np.empty(1, dtype=f4), np.empty(1, dtype=f4), np.ones(1, dtype=f4)
    slopes[:] = f4(0.0)
    for first in range(0, len(latent), _USERS):
        users = range(first, min(first + _USERS, len(latent)))
        for start in range(0, len(weight), _BLOCK):
            for user in users:
                z = memory[user - first, start : start + _BLOCK]
                logits_of_items(latent[user], weight[start : start + _BLOCK], z)
        for user in users:
            row = memory[user - first].reshape((1, len(weight)))
            softmax_sums(row, bias, largest, normaliser)
            normaliser[0] = largest[0] + np.log(normaliser[0])
            own = (indptr[user : user + 2], columns, roles, weights)
            values[user] = multinomial_slopes(row, 0, normaliser, one, own, unused)
        for start in range(0, len(weight), _BLOCK):
            for user in users:
                z = memory[user - first, start : start + _BLOCK]
                add_slopes(z, weight[start : start + _BLOCK], slopes[user])


@compiled
def pair_slopes_of_users(kind, p, latent, decoder, missing, cells, adopted, values, slopes):
    """The same for the pair-wise losses: each missing or rejected item against the mean over all adopted ones."""
    weight, bias = decoder
    adopted_indptr, adopted_items = adopted
    logits, partner_slopes = np.empty(len(adopted_items), dtype=f4), np.zeros(len(adopted_items), dtype=f4)
    slopes[:], values[:] = f4(0.0), 0.0
    for user in range(len(latent)):
        for c in range(adopted_indptr[user], adopted_indptr[user + 1]):
            logits[c] = dot(latent[user], weight[adopted_items[c]]) + bias[adopted_items[c]]
    memory, row_weight, sums = np.empty(_BLOCK, dtype=f4), np.empty(_BLOCK, dtype=f4), np.empty(_BLOCK, dtype=f4)
    for start in range(0, len(weight), _BLOCK):
        block = weight[start : start + _BLOCK]
        n = len(block)
        z = memory[:n]
        for user in range(len(latent)):
            own = slice(adopted_indptr[user], adopted_indptr[user + 1])
            pair_weights(user, start, missing[user], cells, row_weight[:n])
            logits_of_items(latent[user], block, z)
            for j in range(n):
                z[j] += bias[start + j]
            own_logits, own_slopes = logits[own], partner_slopes[own]
            values[user] += mean_pair_slopes(kind, p, z, row_weight[:n], own_logits, own_slopes, sums[:n])
            add_slopes(z, block, slopes[user])
    for user in range(len(latent)):
        for c in range(adopted_indptr[user], adopted_indptr[user + 1]):
            row = weight[adopted_items[c]]
            for i in range(row.size):
                slopes[user, i] += partner_slopes[c] * row[i]


@inlined
def pair_weights(user, start, missing, cells, row_weight):
    """The weights of a block's items as the lower ones of a pair."""
    indptr, columns, roles, weights = cells
    row_weight[:] = missing
    low, high = cells_within(indptr, columns, user, start, start + row_weight.size)
    for c in range(low, high):
        role = roles[c]
        own = f4(1.0) if role == REJECTED else weights[c]
        row_weight[columns[c] - start] = f4(0.0) if role == ADOPTED else own


@inlined
def mean_pair_slopes(kind, p, z, row_weight, adopted_logits, partner_slopes, sums):
    """Overwrite logits with slopes, and add to those of the adopted items; returns the loss."""
    sums[:] = f4(0.0)
    share, total = f4(1.0) / f4(max(adopted_logits.size, 1)), f4(0.0)
    for a in range(adopted_logits.size):
        logit, partner, loss = adopted_logits[a], f4(0.0), f4(0.0)
        if kind == PAIR_LOGITS:  # a short loop, so that the compiler makes several numbers at a time
            for j in range(z.size):
                x = z[j] - logit
                small = exp(-abs(x))
                loss += row_weight[j] * (max(x, f4(0.0)) + log(f4(1.0) + small))
                wrong = row_weight[j] * (f4(1.0) if x > f4(0.0) else small) / (f4(1.0) + small)
                partner -= wrong
                sums[j] += wrong
        else:
            for j in range(z.size):
                value, up, down = pair_cell(kind, logit, z[j], p)
                loss += row_weight[j] * value
                partner += row_weight[j] * up
                sums[j] += row_weight[j] * down
        partner_slopes[a] += share * partner
        total += share * loss
    for j in range(z.size):
        z[j] = share * sums[j]
    return total


@compiled
def latents_of_rows(activation, rows, bias, latent):
    """latent = s(row + bias), number by number."""
    for user in range(len(rows)):
        for i in range(bias.size):
            x = f4(rows[user, i] + bias[i])
            if activation == SIGMOID:
                x = f4(1.0) / (f4(1.0) + np.exp(-x))
            elif activation == TANH:
                x = np.tanh(x)
            elif activation == RELU:
                x = max(x, f4(0.0))
            latent[user, i] = x


@compiled
def slopes_of_rows(activation, rows, latent, values, slopes, decay):
    """The derivative of each user's loss by the row, from that by the latent; λ‖row‖² is added to both."""
    found = np.empty(rows.shape)
    for user in range(len(rows)):
        for i in range(latent.shape[1]):
            h, slope = latent[user, i], slopes[user, i]
            if activation == SIGMOID:
                slope *= h * (f4(1.0) - h)
            elif activation == TANH:
                slope *= f4(1.0) - h * h
            elif activation == RELU:
                slope = slope if h > f4(0.0) else f4(0.0)
            found[user, i] = slope + 2 * decay * rows[user, i]
            values[user] += decay * rows[user, i] ** 2
    return found
