"""Columns of numbers on disk: appended to block by block, then mapped into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]


class DiskColumns:
    """Columns of the same length, a file for each."""

    def __init__(self, folder: Path, types: dict[str, npt.DTypeLike]) -> None:
        folder.mkdir(parents=True)
        self.folder, self.types = folder, types
        self.ends = [0]  # where each block ends, after a first 0
        self._files = {name: (folder / name).open("wb") for name in types}

    @classmethod
    def opened(cls, folder: Path, types: dict[str, npt.DTypeLike], ends: list[int]) -> DiskColumns:
        """Columns that were written before, perhaps by another process."""
        found = cls.__new__(cls)
        found.folder, found.types, found.ends, found._files = folder, types, ends, {}
        return found

    def append(self, **columns: Numbers | None) -> None:
        """The next block."""
        lengths = {self._write(name, columns[name]) for name in self.types}
        self.ends.append(self.ends[-1] + lengths.pop())

    def _write(self, name: str, column: Numbers | None) -> int:
        assert column is not None
        plain = np.ascontiguousarray(column, dtype=self.types[name])
        self._files[name].write(plain.view(np.uint8).data)
        return len(plain)

    def __len__(self) -> int:
        return self.ends[-1]

    def mapped(self) -> dict[str, Numbers]:
        """All of it; nothing is appended any more."""
        self.close()
        return {name: self._mapped(name) for name in self.types}

    def _mapped(self, name: str) -> Numbers:
        if not len(self):
            return np.empty(0, dtype=self.types[name])
        return np.memmap(self.folder / name, dtype=self.types[name], mode="r").view(np.ndarray)

    def remove(self) -> None:
        """Give the room on the disk back; what is mapped stays readable."""
        self.close()
        for name in self.types:
            (self.folder / name).unlink()

    def close(self) -> None:
        for file in self._files.values():
            file.close()
