"""Plain names of models, for people: a loss or a method in words in place of "CE_Point lin-sig".

Only the names that milrec's own recipes use are put into words. A name that somebody chose is kept as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from milrec.report.paper import key


@dataclass(frozen=True)
class PlainName:
    """A model's name as a heading, and as it is said within a sentence."""

    title: str
    spoken: str


_PLAIN = {  # by `paper.key`
    "millinsig": PlainName("MIL", "MIL"),
    "milsigsig": PlainName("MIL, sigmoid", "MIL with a sigmoid encoder"),
    "cepointlinsig": PlainName("Cross-entropy", "cross-entropy"),
    "cepointsigsig": PlainName("Cross-entropy, sigmoid", "cross-entropy with a sigmoid encoder"),
    "cepairlinsig": PlainName("Pair-wise cross-entropy", "pair-wise cross-entropy"),
    "cepairsigsig": PlainName("Pair-wise, sigmoid", "pair-wise cross-entropy with a sigmoid encoder"),
    "multitanhlin": PlainName("Multinomial loss", "the multinomial loss"),
    "multivaepr": PlainName("Multinomial VAE", "the multinomial VAE"),
    "mfsquare": PlainName("Factorization, square loss", "factorization with the square loss"),
    "mfce": PlainName("Factorization, cross-entropy", "factorization with cross-entropy"),
    "mfmil": PlainName("Factorization, MIL", "factorization with MIL"),
    "popularity": PlainName("Popularity", "popularity"),
}


def plain_names(names: Sequence[str]) -> dict[str, PlainName]:
    """For each model of a run; those that would share a plain name keep their own."""
    found = {name: _PLAIN.get(key(name)) or _own(name) for name in names}
    titles = Counter(one.title for one in found.values())
    return {name: one if titles[one.title] == 1 else _own(name) for name, one in found.items()}


def _own(name: str) -> PlainName:
    """A name that somebody chose: in a sentence it needs quotes, unless it is one word that looks like a name."""
    bare = name[:1].isupper() and all(letter.isalnum() or letter in "-_" for letter in name)
    return PlainName(name, name if bare else f"“{name}”")
