"""What is needed on the way lies in a folder of its own: its files are closed, and it is removed, whatever happens."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy.typing as npt

from milrec.data.streaming.columns import DiskColumns
from milrec.data.streaming.pieces import Piece


@dataclass(frozen=True)
class Spill:
    """A folder for columns of numbers and blocks of ids."""

    folder: Path
    _open: ExitStack = field(default_factory=ExitStack)

    def columns(self, name: str, types: dict[str, npt.DTypeLike]) -> DiskColumns:
        made = DiskColumns(self.folder / name, types)
        self._open.callback(made.close)
        return made

    def kept(self, piece: Piece) -> Piece:
        self._open.callback(piece.close)
        return piece


@contextmanager
def spilling(folder: Path) -> Iterator[Spill]:
    """A new folder for the time of a block."""
    folder.mkdir()
    spill = Spill(folder)
    try:
        with spill._open:
            yield spill
    finally:
        shutil.rmtree(folder, ignore_errors=True)
