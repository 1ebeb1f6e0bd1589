"""Ids of users or items → their numbers; an unknown one is an error, which can say what may have been meant."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milrec.data.interactions import refuse_ids
from milrec.errors import UnknownIdError, cut
from milrec.suggestions import close_ids, did_you_mean


class Ids:
    """The ids of users or items; the number of each is looked up in a mapping that is made once."""

    def __init__(self, column: pa.ChunkedArray, what: str) -> None:
        self.column, self.what = column, what

    @cached_property
    def values(self) -> list[Any]:
        ids: list[Any] = self.column.to_pylist()
        return ids

    @cached_property
    def known(self) -> dict[str, int]:
        """The number of each id, by its text."""
        return {str(one): number for number, one in enumerate(self.values)}

    def numbers(self, ids: Iterable[Any]) -> npt.NDArray[np.int32]:
        """The numbers of ids; an unknown id is an error that names it."""
        wanted = list(ids)
        try:
            return np.array([self.known[str(one)] for one in wanted], dtype=np.int32)
        except KeyError:
            refuse_ids([one for one in wanted if str(one) not in self.known], self.column.type, self.what)

    def among(self, ids: Iterable[Any]) -> npt.NDArray[np.int32]:
        """The numbers of those ids that are known."""
        found = (self.known.get(str(one)) for one in ids)
        return np.array([number for number in found if number is not None], dtype=np.int32)

    def close(self, text: str) -> npt.NDArray[np.int64]:
        """The numbers of a few ids that are a typo away from a text."""
        return np.array([self.known[one] for one in close_ids(text, self.known)], dtype=np.int64)

    def suggested(self, error: UnknownIdError) -> UnknownIdError:
        """The same error, naming ids that are close to the unknown one, if there are any."""
        close = close_ids(error.unknown, self.known)
        return self.refusal(error.unknown, did_you_mean(map(cut, close))) if close else error

    def refuse(self, ids: Iterable[Any]) -> None:
        """Refuse unknown ids, for somebody who may see all of them: the error names those that are close."""
        try:
            self.numbers(ids)
        except UnknownIdError as error:
            raise self.suggested(error) from None

    def refusal(self, unknown: str, cure: str) -> UnknownIdError:
        return UnknownIdError(f"unknown {self.what} '{cut(unknown)}'; {cure}")


class UserIds(Ids):
    """The ids of users."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        super().__init__(column, "user")

    def numbers(self, ids: Iterable[Any]) -> npt.NDArray[np.int32]:
        """The numbers of users; an unknown id is an error that names it, and nobody else."""
        try:
            return super().numbers(ids)
        except UnknownIdError as error:
            raise UnknownIdError(
                f"{error}; for a new user, give adopted items and no user", error.unknown, error.what
            ) from None
