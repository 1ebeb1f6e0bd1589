"""Named files in a folder, a zip or a tar archive, read in place; damage is an error, never a shorter file."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO

from milrec.errors import DataError

_DAMAGE = (EOFError, OSError, RuntimeError, NotImplementedError, tarfile.TarError, zipfile.BadZipFile, zlib.error)


@contextmanager
def damage_reported(path: Path) -> Iterator[None]:
    """Turn the errors that damaged archives raise into one sentence."""
    try:
        yield
    except _DAMAGE as error:
        reason = (str(error).splitlines() or ["it ends too early"])[0].rstrip(": ")
        raise DataError(f"'{path}' is damaged or not an archive ({reason}); download it again") from None


class Source:
    """Named files in a folder, a zip or a tar archive."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def names(self) -> list[str]:
        """Paths inside the source, sorted. A tar archive is read to its end once, which checks it."""
        if not self.path.exists():
            raise DataError(f"there is no file or folder '{self.path}'")
        if self.path.is_dir():
            return sorted(str(file.relative_to(self.path)) for file in self.path.rglob("*") if file.is_file())
        with damage_reported(self.path):
            if zipfile.is_zipfile(self.path):
                with zipfile.ZipFile(self.path) as archive:
                    return sorted(archive.namelist())
            with tarfile.open(self.path) as tar:
                found = sorted(member.name for member in tar if member.isfile())
                _refuse_cut_short(tar)
                return found

    def find(self, base_name: str) -> str | None:
        """The path inside the source of a file with this name, in any folder."""
        return next((name for name in self.names if PurePosixPath(name).name == base_name), None)

    def needed(self, base_name: str) -> str:
        found = self.find(base_name)
        if found is None:
            raise DataError(f"'{self.path}' has no file '{base_name}'")
        return found

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        with damage_reported(self.path):
            if self.path.is_dir():
                with (self.path / name).open("rb") as file:
                    yield file
            elif zipfile.is_zipfile(self.path):
                with zipfile.ZipFile(self.path) as archive, archive.open(name) as file:
                    yield file
            else:
                with tarfile.open(self.path) as tar:
                    member = tar.extractfile(name)
                    if member is None:
                        raise DataError(f"'{self.path}' has no file '{name}'")
                    yield member

    def contents(self, names: list[str]) -> Iterator[bytes]:
        """The contents of many small files, the archive opened once."""
        wanted = set(names)
        with damage_reported(self.path):
            if self.path.is_dir():
                yield from ((self.path / name).read_bytes() for name in names)
            elif zipfile.is_zipfile(self.path):
                with zipfile.ZipFile(self.path) as archive:
                    yield from (archive.read(name) for name in names)
            else:
                with tarfile.open(self.path) as tar:
                    yield from (content for name, content in tar_contents(tar) if name in wanted)

    def lines(self, name: str, *encodings: str) -> list[str]:
        """The lines of a small text file, in the first encoding that works."""
        with self.open(name) as file:
            content = file.read()
        for encoding in encodings:
            try:
                return [line.rstrip("\r") for line in content.decode(encoding).split("\n") if line.strip()]
            except UnicodeDecodeError:
                continue
        raise DataError(f"'{name}' in '{self.path}' is not text in {' or '.join(encodings)}")


def tar_contents(tar: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of a tar archive, in its own order."""
    for member in tar:
        if member.isfile():
            file = tar.extractfile(member)
            yield member.name, file.read() if file else b""


def _refuse_cut_short(tar: tarfile.TarFile) -> None:
    """A whole tar archive ends with two empty blocks; a gzip stream is checked only when it is read to its end."""
    file = tar.fileobj
    assert file is not None
    end = b""
    file.seek(max(tar.offset - tarfile.BLOCKSIZE, 0))
    while chunk := file.read(1 << 20):
        end = (end + chunk)[-2 * tarfile.BLOCKSIZE :]
    if len(end) < 2 * tarfile.BLOCKSIZE or any(end):
        raise EOFError("it is cut short")
