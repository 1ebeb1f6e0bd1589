"""Compiled loops that choose the best items of a user: a fast product proposes, a product of one fixed order decides.

Products of different shapes round differently, so a proposed score only says where the deciding one lies: at most a
margin away. Every item that could be among the best is scored again by `fixed_dot`, whose order of summation depends on
nothing but the number of factors. So a list is the same whichever product proposed it.
"""

from __future__ import annotations

import numpy as np

from milrec.kernels.jit import compiled, compiled_as_written, compiled_without_nan, inlined

f4, f8, i4, i8 = np.float32, np.float64, np.int32, np.int64
_STRIDE = 32  # scores whose maximum is found first


@compiled
def quantize(weight, numbers, scales):
    """numbers[j] · scales[j] ≈ weight[j], in whole numbers from -127 to 127; returns the largest distance of a row."""
    furthest = f8(0.0)
    for j in range(len(weight)):
        row, largest, distance = weight[j], f4(0.0), f8(0.0)
        for i in range(row.size):
            largest = max(largest, abs(row[i]))
        scale = f4(largest / f4(127.0))
        scales[j] = scale
        for i in range(row.size):
            number = round(row[i] / scale) if scale > 0 else 0.0
            numbers[j, i] = max(min(number, 127), -127)
            distance += (f8(row[i]) - f8(scale) * f8(numbers[j, i])) ** 2
        furthest = max(furthest, distance)
    return np.sqrt(furthest)


@compiled
def propose(latents, latent_scales, numbers, scales, bias, out):
    """out[i, j] ≈ latent[i] · weight[j] + bias[j] by whole numbers: passes over a quarter of the weights' bytes."""
    for user in range(len(latents)):
        latent, latent_scale, own = latents[user], latent_scales[user], out[user]
        totals = own.view(i4)  # whole sums first: a compiler finds the instruction for them only in a loop of their own
        for j in range(len(numbers)):
            row, total = numbers[j], i4(0)
            for i in range(latent.size):
                total += i4(latent[i]) * i4(row[i])
            totals[j] = total
        for j in range(own.size):
            own[j] = f4(totals[j]) * (scales[j] * latent_scale) + bias[j]


@compiled
def largest_square(weight):
    """The largest ‖weight[j]‖² of all rows, nearly."""
    largest = f8(0.0)
    for j in range(len(weight)):
        row, total = weight[j], f8(0.0)
        for i in range(row.size):
            total += f8(row[i]) * f8(row[i])
        largest = max(largest, total)
    return largest


@compiled_as_written
def fixed_dot(a, b, memory):
    """a · b: products first, then sums of halves; `memory` has a power of two of numbers, 0 from a.size on."""
    for i in range(a.size):
        memory[i] = a[i] * b[i]
    half = memory.size // 2
    while half >= 1:
        low, high = memory[:half], memory[half : 2 * half]
        for i in range(half):
            low[i] += high[i]
        half //= 2
    return memory[0]


@inlined
def order_key(score, item):
    """A number that is larger for a better score and, among equals, for an earlier item."""
    bits = i8(f4(score).view(i4))
    ordered = bits if bits >= 0 else i8(-2147483648) - bits  # -0 becomes 0
    return (ordered << i8(32)) | i8(2147483647 - item)


@inlined
def item_of_key(key):
    return i8(2147483647) - (key & i8(0xFFFFFFFF))


@inlined
def score_of_key(key):
    ordered = key >> i8(32)
    return i4(ordered if ordered >= 0 else i8(-2147483648) - ordered).view(f4)


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


@inlined
def nth_largest(scores, n, keys):
    """The n-th largest of some scores, none of which may be NaN, by halving: counting is fast, and never branches.

    `keys` is memory for as many whole numbers, in the order of the scores.
    """
    bits = scores.view(i4)
    low, high = i8(2147483647), i8(-2147483648)
    for j in range(bits.size):
        key = bits[j] if bits[j] >= 0 else i4(-2147483648) - bits[j]
        keys[j] = key
        low, high = min(low, i8(key)), max(high, i8(key))
    while low < high:
        middle = (low + high + 1) >> 1
        least, count = i4(middle), i4(0)
        for j in range(bits.size):
            count += i4(1) if keys[j] >= least else i4(0)
        if count >= n:
            low = middle
        else:
            high = middle - 1
    return i4(low if low >= 0 else i8(-2147483648) - low).view(f4)


@inlined
def lowest(bound, slack):
    """A score in single precision that is at most bound - slack, and above -inf."""
    low = f8(bound) - slack
    return np.nextafter(f4(low), f4(-np.inf)) if low > -3e38 else f4(-3.4028234663852886e38)


@compiled_without_nan
def candidates(row, n, slack, largest, found):
    """Write the items whose proposed score is at most `slack` below the n-th best into `found`; returns their number.

    Of a few scores each the largest is found first: the n-th largest of these is not above the n-th best score.
    """
    largest_of_strides(row, largest)
    bound = nth_largest(largest, n, np.empty(largest.size, dtype=i4)) if n <= largest.size else f4(-np.inf)
    low = lowest(bound, slack)
    count = 0
    for s in range(largest.size):
        if largest[s] >= low:
            for j in range(s * _STRIDE, min((s + 1) * _STRIDE, row.size)):
                found[count] = j  # what is not kept is written over
                count += 1 if row[j] >= low else 0
    if count <= n:
        return count
    scores = np.empty(count, dtype=f4)
    for place in range(count):
        scores[place] = row[found[place]]
    low = lowest(nth_largest(scores, n, np.empty(count, dtype=i4)), slack)
    kept = 0
    for place in range(count):
        found[kept] = found[place]
        kept += 1 if scores[place] >= low else 0
    return kept


@compiled_as_written
def decide(proposed, slacks, latents, decoder, items, scores):
    """The best items of each user, best first, equal scores in item order, and their scores; -1 where none is left.

    What is proposed as -inf is not listed. `decoder` is a weight, a bias and a shift for each item.
    """
    weight, bias, shift = decoder
    n, width, n_items = items.shape[1], 1, proposed.shape[1]
    while width < latents.shape[1]:
        width *= 2
    memory = np.zeros(width, dtype=f4)
    largest = np.empty(-(-n_items // _STRIDE), dtype=f4)
    found, keys = np.empty(n_items, dtype=i4), np.empty(n_items, dtype=i8)
    for user in range(len(proposed)):
        count = candidates(proposed[user], n, slacks[user], largest, found)
        n_keys = 0
        for place in range(count):
            j = found[place]
            score = f4(f4(fixed_dot(latents[user], weight[j], memory) + bias[j]) + shift[j])
            if score > -np.inf:  # NaN neither
                keys[n_keys] = order_key(score, j)
                n_keys += 1
        own = keys[:n_keys]
        own.sort()
        fill_list(own, items[user], scores[user])


@compiled_as_written
def decide_order(proposed, slacks, latents, decoder, items):
    """The same without scores: only items whose order the proposed ones leave open are scored again."""
    weight, bias, shift = decoder
    width, n_items = 1, proposed.shape[1]
    while width < latents.shape[1]:
        width *= 2
    memory = np.zeros(width, dtype=f4)
    largest = np.empty(-(-n_items // _STRIDE), dtype=f4)
    found, keys = np.empty(n_items, dtype=i4), np.empty(n_items, dtype=i8)
    for user in range(len(proposed)):
        row, slack = proposed[user], slacks[user]
        count = candidates(row, items.shape[1], slack, largest, found)
        for place in range(count):
            keys[place] = order_key(row[found[place]], found[place])
        keys[:count].sort()
        kept = first = 0
        above = row[item_of_key(keys[0])] if count else f4(0.0)
        for place in range(count):
            here = above
            above = row[item_of_key(keys[place + 1])] if place < count - 1 else f4(np.inf)
            if f8(above) - f8(here) <= slack < np.inf or (slack == np.inf and place < count - 1):
                continue  # the order of these two is open
            if first == place and slack < np.inf:
                keys[kept] = keys[place]
                kept += 1
            else:
                start = kept
                for one in range(first, place + 1):
                    j = item_of_key(keys[one])
                    score = f4(f4(fixed_dot(latents[user], weight[j], memory) + bias[j]) + shift[j])
                    if score > -np.inf:
                        keys[kept] = order_key(score, j)
                        kept += 1
                keys[start:kept].sort()
            first = place + 1
        fill_items(keys[:kept], items[user])


@compiled_without_nan
def top_lists(scores, items, values):
    """The same from scores that need no second look."""
    n_items = scores.shape[1]
    largest = np.empty(-(-n_items // _STRIDE), dtype=f4)
    found, keys = np.empty(n_items, dtype=i4), np.empty(n_items, dtype=i8)
    for user in range(len(scores)):
        count = candidates(scores[user], items.shape[1], f8(0.0), largest, found)
        for place in range(count):
            keys[place] = order_key(scores[user, found[place]], found[place])
        own = keys[:count]
        own.sort()
        fill_list(own, items[user], values[user])


@compiled_without_nan
def top_lists_by_place(scores, order, places, items, values):
    """The same with equal scores in another order: `places` has the place of each item in it, `order` the reverse."""
    n_items = scores.shape[1]
    largest = np.empty(-(-n_items // _STRIDE), dtype=f4)
    found, keys = np.empty(n_items, dtype=i4), np.empty(n_items, dtype=i8)
    for user in range(len(scores)):
        count = candidates(scores[user], items.shape[1], f8(0.0), largest, found)
        for one in range(count):
            keys[one] = order_key(scores[user, found[one]], places[found[one]])
        own = keys[:count]
        own.sort()
        fill_list(own, items[user], values[user])
        for one in range(min(count, items.shape[1])):
            items[user, one] = order[items[user, one]]


@inlined
def fill_items(keys, items):
    """A list from ascending keys: the best items have the last ones."""
    for place in range(items.size):
        items[place] = item_of_key(keys[keys.size - 1 - place]) if place < keys.size else -1


@inlined
def fill_list(keys, items, scores):
    """The same with scores."""
    for place in range(items.size):
        key = keys[keys.size - 1 - place] if place < keys.size else i8(0)
        items[place] = item_of_key(key) if place < keys.size else -1
        scores[place] = score_of_key(key) if place < keys.size else f4(-np.inf)
