"""Search by title: all words of a text, each as the beginning of a word, whatever their case and accents."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_WORD = re.compile(r"[^\W_]+")


class Texts:
    """Texts in the form that they are searched in, made once."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._words = pa.array([_spaced(text) for text in texts], type=pa.large_string())
        self._plain = pa.array([text.strip() for text in texts], type=pa.large_string())

    def matching(self, text: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The texts that have all words, and whether each begins with them.

        Where there is no letter and no digit to search by, as in `!!!`, the text itself is looked for.
        """
        wanted = _spaced(text)
        if not wanted:
            sought = whole(text).strip()
            found = pc.indices_nonzero(pc.match_substring(self._plain, sought)).to_numpy().astype(np.int64)
            return found, pc.starts_with(self._plain.take(pa.array(found)), sought).to_numpy(zero_copy_only=False)
        matches = pa.array(np.ones(len(self._words), dtype=bool))
        for word in set(wanted.split()):
            matches = pc.and_(matches, pc.match_substring(self._words, f" {word}"))
        found = pc.indices_nonzero(matches).to_numpy().astype(np.int64)
        return found, pc.starts_with(self._words.take(pa.array(found)), wanted).to_numpy(zero_copy_only=False)


def whole(text: str) -> str:
    """The same with a question mark for each half of a character, as JSON may hold: Arrow takes whole ones only."""
    return text.encode(errors="replace").decode()


def _spaced(text: str) -> str:
    """The words of a text without case and accents, each with a space before it."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return "".join(f" {word}" for word in _WORD.findall(plain.casefold()))
