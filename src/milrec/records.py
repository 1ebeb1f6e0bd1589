"""Parts of files that milrec writes and reads back: typed, checked, and open to what a newer version adds."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from milrec.errors import FolderError
from milrec.settings import Settings

Count = Annotated[int, Field(ge=0, le=2**53)]  # what every reader of JSON can hold exactly
Rank = Annotated[int, Field(ge=1, le=2**53)]
Number = Annotated[float, Field(ge=-1e15, le=1e15)]  # no figure of ours comes near; beyond it sums and scales overflow

T = TypeVar("T")
TailName = Literal["short", "medium", "long"]
TAIL_NAMES: tuple[TailName, ...] = ("short", "medium", "long")


class Record(Settings):
    """A part of a file that runs write: fields that an older run did not write stay unset, unknown ones are kept."""

    model_config = ConfigDict(extra="allow")

    def as_json(self) -> dict[str, Any]:
        """Plain values, as they are written."""
        return self.model_dump(mode="json", exclude_unset=True)


class ByTail(Record, Generic[T]):
    """Something for each interval of the popularity tail."""

    short: T
    medium: T
    long: T

    def of(self, tail: TailName) -> T:
        return {"short": self.short, "medium": self.medium, "long": self.long}[tail]


def damaged(error: ValidationError, where: str) -> FolderError:
    """One sentence about the first thing that is wrong with a file."""
    return FolderError(f"{where} is damaged at {first_wrong(error)}")


def first_wrong(error: ValidationError) -> str:
    """Where the first mistake is, and what it is."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return f"'{place:.200}': {message[0].lower()}{message[1:200]}"
