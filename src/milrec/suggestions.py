"""Did you mean: names and ids that are close to one that is not known."""

from __future__ import annotations

import string
from collections.abc import Container, Iterable, Iterator

_MOST = 3  # that are suggested
_LONGEST = 40  # characters of an id that edits are tried on
_SHORTEST = 3  # characters: of shorter ids, nearly all are one edit apart


def close_names(name: object, known: Iterable[str]) -> list[str]:
    """The name in a short list that looks most like this one, if one does."""
    from difflib import get_close_matches

    return get_close_matches(str(name)[:_LONGEST], sorted(known), n=1, cutoff=0.65)


def close_ids(text: str, known: Container[str]) -> list[str]:
    """Known ids that are a text written otherwise, or else one edit away; the cost does not grow with `known`."""
    if len(text) > _LONGEST:
        return []
    return _found(_written_otherwise(text.strip()), text, known) or _found(_edited(text.strip()), text, known)


def _found(candidates: Iterator[str], text: str, known: Container[str]) -> list[str]:
    found: list[str] = []
    for other in candidates:
        if other != text and other not in found and other in known:
            found.append(other)
            if len(found) == _MOST:
                break
    return found


def did_you_mean(names: Iterable[str]) -> str:
    """The question, with the names in quotes, or nothing if there is nothing to suggest."""
    return did_you_mean_one_of([f"'{name}'" for name in names])


def did_you_mean_one_of(things: list[str]) -> str:
    """The same question about things that are described at more length."""
    *others, last = things or [""]
    if not others:
        return f"did you mean {last}?" if last else ""
    return f"did you mean {', '.join(others)} or {last}?"


def _written_otherwise(plain: str) -> Iterator[str]:
    """The same without space around it, in another case, with more or fewer zeros in front."""
    yield from (plain, plain.lower(), plain.upper(), plain.capitalize(), plain.lstrip("0"))
    yield from (plain.zfill(len(plain) + zeros) for zeros in range(1, 9))


def _edited(plain: str) -> Iterator[str]:
    """What is a typo away, swapped letters first."""
    if len(plain) < _SHORTEST:
        return
    letters = sorted({*plain, *string.digits, *string.ascii_lowercase, *"-_ "})
    places = range(len(plain))
    yield from (plain[:at] + plain[at + 1] + plain[at] + plain[at + 2 :] for at in places[:-1])
    yield from (plain[:at] + plain[at + 1 :] for at in places)
    yield from (plain[:at] + letter + plain[at:] for at in range(len(plain) + 1) for letter in letters)
    yield from (plain[:at] + letter + plain[at + 1 :] for at in places for letter in letters)
