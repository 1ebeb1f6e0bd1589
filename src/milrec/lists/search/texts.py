"""Texts that can be searched by the beginnings of their words; if nothing is found, by words like them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milrec.lists.search.words import Vocabulary

_WORD = re.compile(r"[^\W_]+")
_MOST_WORDS = 4  # of a search that typos are forgiven in
_MOST_TEXTS = 100_000  # with more, typos are not forgiven: a search would take too long
_NOTHING, _SPACE = (pa.scalar(text, type=pa.large_string()) for text in ("", " "))
Numbers = npt.NDArray[np.int64]


class Texts:
    """Texts that can be searched: they are put into a searchable form once."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._words = pa.array([spaced(text) for text in texts], type=pa.large_string())
        self._plain = pa.array([text.strip() for text in texts], type=pa.large_string())

    def matching(self, text: str) -> tuple[Numbers, Numbers]:
        """The numbers of the texts that contain all words, or words that begin like them, and how far each is.

        0 is the text itself; 1 and 2 hold all words whole; 3 and 4 hold longer words. In both pairs, the first begins
        with what is wanted. A text without a letter or a digit, such as `!!!`, is looked for as it is.
        """
        wanted = spaced(text)
        if not wanted:
            sought = whole(text).strip()
            found = _where(pc.match_substring(self._plain, sought))
            return found, _steps(self._plain.take(pa.array(found)), sought, np.ones(len(found), dtype=bool))
        words = set(wanted.split())
        found = _where(_all(pc.match_substring(self._words, f" {word}") for word in words))
        some = self._words.take(pa.array(found))
        ended = pc.binary_join_element_wise(some, _NOTHING, _SPACE)  # a space after the last word, too
        complete = _all(pc.match_substring(ended, f" {word} ") for word in words)
        return found, _steps(some, wanted, complete.to_numpy(zero_copy_only=False))

    def near(self, text: str) -> tuple[Numbers, npt.NDArray[np.float64]]:
        """The numbers of the texts that contain words like all of these, and how far each text is from them."""
        wanted = dict.fromkeys(spaced(text).split())
        if not 0 < len(wanted) <= _MOST_WORDS or len(self._words) > _MOST_TEXTS:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        vocabulary, holders = self._index
        total = np.zeros(len(self._words))
        for word in wanted:
            nearest = np.full(len(self._words), np.inf)
            for number, distance in zip(*vocabulary.near(word), strict=True):
                texts = holders.of(number)
                nearest[texts] = np.minimum(nearest[texts], distance)
            total += nearest
            if np.isinf(total).all():
                break
        found = np.flatnonzero(np.isfinite(total))
        return found, total[found]

    @cached_property
    def _index(self) -> tuple[Vocabulary, Holders]:
        """The distinct words, and which texts each is in."""
        lists = pc.split_pattern(pc.utf8_ltrim_whitespace(self._words), " ")
        words = pc.list_flatten(lists).dictionary_encode()
        holders = Holders(words.indices.to_numpy(), pc.list_parent_indices(lists).to_numpy(), len(words.dictionary))
        return Vocabulary(words.dictionary.to_pylist()), holders


class Holders:
    """The texts that each word is in."""

    def __init__(self, words: npt.NDArray[np.int32], texts: Numbers, n_words: int) -> None:
        self._texts = texts[np.argsort(words, kind="stable")]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(words, minlength=n_words))])

    def of(self, word: int) -> Numbers:
        return self._texts[self._starts[word] : self._starts[word + 1]]


def _all(matches: Iterable[pa.BooleanArray]) -> pa.BooleanArray:
    return reduce(pc.and_, matches)


def _where(matches: pa.BooleanArray) -> Numbers:
    numbers: Numbers = pc.indices_nonzero(matches).to_numpy().astype(np.int64)
    return numbers


def _steps(texts: pa.Array, wanted: str, complete: npt.NDArray[np.bool_]) -> Numbers:
    same, begins = (test(texts, wanted).to_numpy(zero_copy_only=False) for test in (pc.equal, pc.starts_with))
    return np.where(same, 0, 1 + ~begins + 2 * ~complete)


def whole(text: str) -> str:
    """The same text with a question mark for each half of a character: JSON may contain halves, Arrow may not."""
    return text.encode(errors="replace").decode()


def spaced(text: str) -> str:
    """The words of a text, without case and accents, each after a space."""
    if text.isascii():
        return "".join(f" {word}" for word in _WORD.findall(text.lower()))
    letters = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return "".join(f" {word}" for word in _WORD.findall(plain.casefold()))
