"""Mutations that know nothing of a format: of bytes, of lines of text, of JSON."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import Any

NUMBERS = (0, 1, -1, 2, 7, 255, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**45, 2**53 + 1, 2**63 - 1, -(2**63), 2**64)
TEXTS = (
    "", " ", "\0", "\n", "\r", "\r\n", "\t", '"', '""', "'", ",", ";", "|", "::", "\\", "\x1b[2J\x1b[31m", "\u202e",
    "\ufeff", "é", "ß", "日本", "😀", "\ud800", "e\u0301", "NaN", "nan", "inf", "-inf", "Infinity", "null", "NULL",
    "None", "NA", "true", "-0", "+1", "1e400", "1e-400", "0x10", "1_000", "1,5", "１", "٣", "9" * 400, "007", "1.0",
    "1e3", "9007199254740993", "18446744073709551616", "../../etc/passwd", "%s%n", "{0}", "$(id)", "=1+1", "a" * 70_000,
)  # fmt: skip


def flipped(content: bytes, chance: random.Random) -> bytes:
    """One to eight bits turned."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def without_a_piece(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content) + 1)
    return content[:start] + content[start + chance.choice((1, 2, 7, 64)) :]


def inserted(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content) + 1)
    piece = chance.choice((b"\0", b'"', b"\n", b"\r", b"\xff", b"\xef\xbb\xbf", b",", b"\t", b":", b"\x1a", b" "))
    return content[:start] + piece * chance.choice((1, 1, 1, 2, 1000)) + content[start:]


def repeated(content: bytes, chance: random.Random) -> bytes:
    """A piece twice."""
    start = chance.randrange(len(content) + 1)
    end = min(start + chance.choice((1, 8, 64, 512)), len(content))
    return content[:end] + content[start:]


def overwritten(content: bytes, chance: random.Random) -> bytes:
    """A whole number of 2, 4 or 8 bytes replaced by an odd one."""
    size = chance.choice((2, 4, 8))
    if len(content) < size:
        return content
    start = chance.randrange(len(content) - size + 1)
    start -= start % size if chance.random() < 0.8 else 0
    number = chance.choice(NUMBERS) % (1 << (8 * size))
    return content[:start] + struct.pack("<Q", number)[:size] + content[start + size :]


def swapped(content: bytes, chance: random.Random) -> bytes:
    """Two pieces in each other's place."""
    first, second = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    size = min(chance.choice((1, 8, 64)), second - first)
    left, right = content[first : first + size], content[second : second + size]
    return content[:first] + right + content[first + size : second] + left + content[second + size :]


def nothing(content: bytes, chance: random.Random) -> bytes:
    return chance.choice((b"", b"\n", b"\0" * 64, chance.randbytes(200)))


BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    flipped, flipped, flipped, cut, without_a_piece, inserted, inserted, repeated, overwritten, overwritten, swapped,
    nothing,
)  # fmt: skip


def damaged(content: bytes, chance: random.Random) -> bytes:
    """One to three mutations of bytes."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        content = chance.choice(BYTES)(content, chance)
    return content


def odd_text(chance: random.Random) -> str:
    return "".join(chance.choice(TEXTS) for _ in range(chance.choice((1, 1, 2, 4))))


def utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def odd_value(chance: random.Random, depth: int = 0) -> Any:
    """Something in JSON that is not what was expected."""
    pick = chance.randrange(9 if depth < 3 else 6)
    if pick == 0:
        return chance.choice((None, True, False))
    if pick == 1:
        return chance.choice(NUMBERS)
    if pick == 2:
        return chance.choice((0.5, -1.5, 1e308, 5e-324, float("inf"), float("-inf"), float("nan")))
    if pick in (3, 4):
        return odd_text(chance).replace("\ud800", "?")
    if pick == 5:
        return chance.choice(([], {}, "x", [[]], {"": None}))
    if pick == 6:
        return [odd_value(chance, depth + 1) for _ in range(chance.choice((1, 2, 5)))]
    if pick == 7:
        return {odd_text(chance)[:50].replace("\ud800", "?"): odd_value(chance, depth + 1)}
    nested: Any = []
    for _ in range(chance.choice((10, 100, 400))):
        nested = [nested]
    return nested


def places_in(value: Any, found: list[tuple[Any, Any]] | None = None) -> list[tuple[Any, Any]]:
    """Every place in a value of JSON: the object or list that holds it, and its key or index."""
    found = [] if found is None else found
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        found.append((value, key))
        places_in(inner, found)
    return found


def changed_json(value: Any, chance: random.Random) -> Any:
    """A value of JSON with one to three changes; the argument is changed too."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places = places_in(value)
        if not places or chance.random() < 0.02:
            return odd_value(chance)
        holder, key = chance.choice(places)
        pick = chance.randrange(8)
        if pick == 0:
            del holder[key]
        elif pick == 1 and isinstance(holder, dict):
            holder[str(key) + chance.choice(("_", " ", "\0", "s"))] = holder.pop(key)
        elif pick == 2:
            other, place = chance.choice(places)
            if not isinstance(other, list) or place < len(other):
                holder[key] = json.loads(json.dumps(other[place])) if place in _keys(other) else None
        elif pick == 3 and isinstance(holder, list):
            holder.insert(key, odd_value(chance))
        elif pick == 4 and isinstance(holder[key], int | float):
            holder[key] = _odd_number(holder[key], chance)
        else:
            holder[key] = odd_value(chance)
    return value


def _keys(holder: Any) -> Any:
    return holder if isinstance(holder, dict) else range(len(holder))


def _odd_number(number: float, chance: random.Random) -> float | str:
    changes: tuple[float | str, ...] = (
        number + 1, number - 1, -number, number + 0.5, number * 1e6, str(number), chance.choice(NUMBERS),
    )  # fmt: skip
    return chance.choice(changes)


def json_bytes(value: Any) -> bytes:
    """As JSON, with NaN, infinities and lone surrogates as Python would write them."""
    return utf8(json.dumps(value, indent=1, ensure_ascii=False))
