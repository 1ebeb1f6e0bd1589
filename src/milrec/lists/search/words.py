"""Words within a typo or two of a word: letters that are missing, too many, wrong or in the wrong place.

Of a vocabulary, only words that share enough letters with the wanted one are compared with it, all of these at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_COMPARED = 24  # letters of a word that are looked at
_ONE, _TWO = 4, 8  # letters that a word has at least for one typo to be forgiven, and for two
_PREFIX = 0.5  # what it counts if a word only begins like that: less than a typo
_MOVED = 1.5  # what it counts if one letter is far from its place: between a typo and two
Vectors = npt.NDArray[np.int64]


class Vocabulary:
    """Distinct words, ready to be compared with one that may be misspelt."""

    def __init__(self, words: list[str]) -> None:
        self._words, cut = words, [word[:_COMPARED] for word in words]
        self._lengths = np.array([len(word) for word in cut], dtype=np.int8)
        codes = np.frombuffer("".join(cut).encode("utf-32-le"), dtype=np.uint32)
        starts = np.cumsum(self._lengths, dtype=np.int64) - self._lengths
        self._letters = np.zeros((_COMPARED, len(words)), dtype=np.uint32)  # 0 after the end of a word
        self._masks = np.zeros(len(words), dtype=np.uint64)
        for at in range(int(self._lengths.max(initial=0))):
            long = np.flatnonzero(self._lengths > at)
            self._letters[at, long] = letters = codes[starts[long] + at]
            self._masks[long] |= _bits(letters)

    def near(self, word: str) -> tuple[Vectors, npt.NDArray[np.float64]]:
        """The numbers of the words like this one, or that begin like it, and how far each is from it."""
        wanted = np.array([ord(letter) for letter in word[:_COMPARED]], dtype=np.uint32)
        typos = typos_forgiven(word)
        missing = np.bitwise_count(_mask(wanted) & ~self._masks)  # each letter that a word lacks is a typo
        some = np.flatnonzero((missing <= typos) & (self._lengths >= len(wanted) - typos))
        some, distances = _distances(wanted, self._letters[: len(wanted) + typos], some, typos)
        lengths, width = self._lengths[some], len(distances) - 1
        whole = np.where(lengths <= width, distances[np.minimum(lengths, width), np.arange(len(some))], typos + 1)
        beyond = np.arange(width + 1)[:, None] > lengths
        begins = np.where(beyond, typos + 1, distances).min(axis=0) + _PREFIX
        nearest = np.full(len(self._words), np.inf)
        nearest[some] = np.minimum(whole, begins)
        if typos:
            moved = [other for other in self._anagrams(wanted) if _one_moved(word, self._words[other])]
            nearest[moved] = np.minimum(nearest[moved], _MOVED)
        close = np.flatnonzero(nearest < typos + 1)
        return close, nearest[close]

    def _anagrams(self, wanted: npt.NDArray[np.uint32]) -> Vectors:
        """The numbers of the words with the same letters in another order."""
        same = np.flatnonzero((self._lengths == len(wanted)) & (self._masks == _mask(wanted)))
        ordered = np.sort(self._letters[: len(wanted), same], axis=0)
        found: Vectors = same[(ordered == np.sort(wanted)[:, None]).all(axis=0)]
        return found


def _one_moved(one: str, other: str) -> bool:
    """Whether two anagrams differ in the place of a single letter."""
    return not _short_of_one(one).isdisjoint(_short_of_one(other))


def _short_of_one(word: str) -> set[str]:
    return {word[:at] + word[at + 1 :] for at in range(len(word))}


def _bits(letters: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    return np.uint64(1) << (letters % 64).astype(np.uint64)


def _mask(letters: npt.NDArray[np.uint32]) -> np.uint64:
    mask: np.uint64 = np.bitwise_or.reduce(_bits(letters), initial=np.uint64(0))
    return mask


def typos_forgiven(word: str) -> int:
    """None in a short word, one in a longer one, two in a long one."""
    return (len(word) >= _ONE) + (len(word) >= _TWO)


def _distances(
    wanted: npt.NDArray[np.uint32], letters: npt.NDArray[np.uint32], some: Vectors, most: int
) -> tuple[Vectors, npt.NDArray[np.int8]]:
    """Edits between a word and the beginnings of some others, (length + 1, n_words); two swapped letters are one edit.

    Words that no beginning of which is near are left out, as soon as this is certain. More edits than `most` are too
    many, whatever their number: so of the lengths of beginnings, only those near the word's own are looked at.
    """
    width = min(len(letters), len(wanted) + most)
    letters = letters[:width, some]
    row = np.repeat(np.arange(width + 1, dtype=np.int8)[:, None], len(some), axis=1)
    above = np.full_like(row, most + 1)
    for at, letter in enumerate(wanted):
        before, above, row = above, row, np.full_like(row, most + 1)
        row[0] = at + 1
        for to in range(max(0, at - most), min(width, at + most + 1)):
            edits = np.minimum(above[to] + (letters[to] != letter), np.minimum(above[to + 1], row[to]) + 1)
            if at and to:
                swapped = (letters[to] == wanted[at - 1]) & (letters[to - 1] == letter)
                edits = np.where(swapped, np.minimum(edits, before[to - 1] + 1), edits)
            row[to + 1] = edits
        near = np.minimum(row.min(axis=0), above.min(axis=0) + 1) <= most
        some, letters, above, row = some[near], letters[:, near], above[:, near], row[:, near]
    return some, row
