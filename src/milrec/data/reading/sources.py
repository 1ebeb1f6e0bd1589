"""Files, and named files in a folder, a zip or a tar archive, read in place; damage is an error, never a shorter file.

What is packed is read piece by piece, and refused once it turns out to hold far more than a file of its size should.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import pyarrow as pa

from milrec.errors import DataError, cut

SMALL = 1 << 24  # bytes of a file that is read whole: titles, genres, the ratings of one movie
_ANY_FILE = 1 << 26  # bytes that any packed file may unpack to, however small it is
_MOST_FILES = 100_000  # in a folder
_DAMAGE = (
    EOFError, OSError, RuntimeError, NotImplementedError, KeyError, IndexError, OverflowError, UnicodeDecodeError,
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error,
)  # fmt: skip
_PACKERS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}


@dataclass(frozen=True)
class Allowed:
    """What a source may hold only if the caller says that it is meant."""

    multiline: bool = False  # line breaks inside quotes, in a table of interactions
    max_expansion: float = 100  # how many times its own size a packed file may unpack to

    def __post_init__(self) -> None:
        if not isinstance(self.max_expansion, int | float) or not self.max_expansion >= 1:
            raise DataError(f"`max_expansion` must be a number, 1 or more, not {self.max_expansion!r}")


@dataclass
class Allowance:
    """How much a packed file may still unpack to."""

    path: Path
    times: float
    left: float

    @classmethod
    def of(cls, path: Path, times: float) -> Allowance:
        return cls(path, times, max(path.stat().st_size * times, _ANY_FILE))

    def take(self, n_bytes: float) -> None:
        self.left -= n_bytes
        if self.left < 0:
            raise DataError(
                f"'{self.path}' unpacks to more than {self.times:g} times its size; if that is right, "
                "give a higher `max_expansion`"
            )


class Unpacked:
    """A packed file, or one of an archive, that takes what is read from it off an allowance."""

    def __init__(self, file: Any, allowance: Allowance) -> None:
        self._file = file
        self._allowance = allowance

    def read(self, size: int = -1) -> bytes:
        most = int(min(self._allowance.left, 1 << 40)) + 1
        content: bytes = self._file.read(most if size < 0 else min(size, most))
        self._allowance.take(len(content))
        return content


class UnpackedTar:
    """The same for a packed tar archive, in which places are sought: it may not reach further than the allowance."""

    def __init__(self, file: Any, allowance: Allowance) -> None:
        self._file = file
        self._end = int(min(allowance.left, 1 << 62))
        self._allowance = allowance

    def read(self, size: int = -1) -> bytes:
        most = self._end + 1 - self.tell()
        content: bytes = self._file.read(most if size < 0 else min(size, most))
        self._refuse_beyond(self.tell())
        return content

    def seek(self, place: int) -> int:
        reached = int(self._file.seek(min(place, self._end + 1)))
        self._refuse_beyond(reached)
        return reached

    def tell(self) -> int:
        return int(self._file.tell())

    def _refuse_beyond(self, place: int) -> None:
        if place > self._end:
            self._allowance.take(place)


def refuse_special(path: Path) -> None:
    """Devices, pipes and sockets never end, or cannot be read twice."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"'{path}' is neither a file nor a folder; save what it holds as a file first")


def refuse_no_file(path: Path) -> None:
    """One file is needed, with something in it."""
    refuse_special(path)
    if path.is_dir():
        raise DataError(f"'{path}' is a folder; a file is needed")
    if not path.is_file():
        raise DataError(f"there is no file '{path}'")
    if path.stat().st_size == 0:
        raise DataError(f"'{path}' is empty")


@contextmanager
def open_file(path: Path, max_expansion: float) -> Iterator[Any]:
    """A file, unpacked as it is read if its name or its first bytes say that it is packed."""
    try:
        with path.open("rb") as file:
            zipped = path.suffix.lower() == ".gz" or file.read(2) == b"\x1f\x8b"
        with pa.input_stream(str(path), compression="gzip" if zipped else "detect") as stream:
            packed = isinstance(stream, pa.CompressedInputStream)
            yield Unpacked(stream, Allowance.of(path, max_expansion)) if packed else stream
    except OSError as error:
        raise DataError(f"'{path}' cannot be read ({_reason(error)})") from None


@contextmanager
def damage_reported(path: Path) -> Iterator[None]:
    """Turn the errors that damaged archives raise into one sentence."""
    try:
        yield
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk or the rights, not the archive
            raise DataError(f"'{path}' cannot be read ({_reason(error)})") from None
        raise DataError(f"'{path}' is damaged or not an archive ({_reason(error)}); download it again") from None


@dataclass(frozen=True)
class Source:
    """Named files in a folder, a zip or a tar archive."""

    path: Path
    max_expansion: float = Allowed.max_expansion

    @cached_property
    def names(self) -> list[str]:
        """Paths inside the source, sorted. A tar archive is read to its end once, which checks it."""
        refuse_special(self.path)
        if not self.path.exists():
            raise DataError(f"there is no file or folder '{self.path}'")
        if self.path.is_dir():
            return _names_in_folder(self.path)
        with damage_reported(self.path):
            if zipfile.is_zipfile(self.path):
                with zipfile.ZipFile(self.path) as archive:
                    stated = sum(entry.file_size for entry in archive.infolist())
                    Allowance.of(self.path, self.max_expansion).take(stated)  # before any of it is unpacked
                    return _each_once([(info.filename, not info.is_dir()) for info in archive.infolist()], self.path)
            with self._tar() as tar:
                found = [(member.name, member.isfile()) for member in tar]
                assert tar.fileobj is not None
                tar.fileobj.seek(max(tar.offset - tarfile.BLOCKSIZE, 0))
                _Remembered(tar.fileobj).refuse_cut_short()
                return _each_once(found, self.path)

    def find(self, base_name: str) -> str | None:
        """The path inside the source of the file with this name, in any folder."""
        return next(iter(self._each_named(lambda base: base == base_name)), None)

    def beginning(self, start: str) -> list[str]:
        """The paths of the files whose names begin like this."""
        return self._each_named(lambda base: base.startswith(start))

    def _each_named(self, wanted: Callable[[str], bool]) -> list[str]:
        """Of two files of one name in different folders, which is meant?"""
        found: dict[str, str] = {}
        for name in self.names:
            base = PurePosixPath(name).name
            if wanted(base) and found.setdefault(base, name) != name:
                both = f"'{cut(found[base])}' and '{cut(name)}'"
                raise DataError(f"'{self.path}' has two files '{cut(base)}': {both}")
        return list(found.values())

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
                with zipfile.ZipFile(self.path) as archive, archive.open(name) as entry:
                    yield self._limited(entry)
            else:
                with self._tar() as tar:
                    member = next(member for member in tar if member.name == name and member.isfile())
                    yield self._limited(tar.extractfile(member))

    def contents(self, names: list[str]) -> Iterator[bytes]:
        """The contents of many small files, the archive opened once."""
        wanted = set(names)
        with damage_reported(self.path):
            if self.path.is_dir():
                for name in names:
                    with (self.path / name).open("rb") as file:
                        yield self.small(file, name)
            elif zipfile.is_zipfile(self.path):
                with zipfile.ZipFile(self.path) as archive:
                    for name in names:
                        with archive.open(name) as entry:
                            yield self.small(self._limited(entry), name)
            else:
                with self._tar() as tar:
                    yield from self._small_in(tar, wanted.__contains__, self._allowance)

    def contents_in_tar(self, name: str, wanted: Callable[[str], bool]) -> Iterator[bytes]:
        """The contents of small files in a tar archive that is a file of this source."""
        allowance = Allowance.of(self.path / name, self.max_expansion) if self.path.is_dir() else self._allowance
        with self.open(name) as file:
            remembered = _Remembered(file)
            with tarfile.open(fileobj=cast(IO[bytes], remembered), mode="r|") as tar:
                yield from self._small_in(tar, wanted, allowance)
                remembered.refuse_cut_short()

    def _small_in(self, tar: tarfile.TarFile, wanted: Callable[[str], bool], allowance: Allowance) -> Iterator[bytes]:
        """The contents of some files of a tar archive, in its own order."""
        for member in tar:
            if member.isfile() and wanted(member.name) and (file := tar.extractfile(member)):
                yield self.small(cast(IO[bytes], Unpacked(file, allowance)), member.name)

    def small(self, file: IO[bytes], name: str) -> bytes:
        """The content of a file that is read whole."""
        content = file.read(SMALL + 1)
        if len(content) > SMALL:
            raise DataError(f"'{cut(name)}' in '{self.path}' is over {SMALL >> 20} MiB, too large for such a file")
        return content

    def lines(self, name: str, *encodings: str) -> list[str]:
        """The lines of a small text file, in the first encoding that works."""
        with self.open(name) as file:
            content = self.small(file, name)
        for encoding in encodings:
            try:
                return [line.rstrip("\r") for line in content.decode(encoding).split("\n") if line.strip()]
            except UnicodeDecodeError:
                continue
        raise DataError(f"'{name}' in '{self.path}' is not text in {' or '.join(encodings)}")

    @cached_property
    def _allowance(self) -> Allowance:
        return Allowance.of(self.path, self.max_expansion)

    def _limited(self, file: Any) -> IO[bytes]:
        return cast(IO[bytes], Unpacked(file, self._allowance))

    @contextmanager
    def _tar(self) -> Iterator[tarfile.TarFile]:
        with self.path.open("rb") as packed:
            start = packed.read(6)
            packed.seek(0)
            unpack = next((unpack for magic, unpack in _PACKERS.items() if start.startswith(magic)), None)
            if unpack is None:
                with tarfile.open(fileobj=packed, mode="r:") as tar:
                    yield tar
                return
            limited = UnpackedTar(unpack(packed), Allowance.of(self.path, self.max_expansion))
            with tarfile.open(fileobj=cast(IO[bytes], limited), mode="r:") as tar:
                yield tar


def _names_in_folder(folder: Path) -> list[str]:
    files = (str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    found = sorted(islice(files, _MOST_FILES + 1))
    if len(found) > _MOST_FILES:
        raise DataError(f"'{folder}' has over {_MOST_FILES:,} files; name the folder of the data set itself")
    return found


def _each_once(entries: list[tuple[str, bool]], path: Path) -> list[str]:
    """The names of files, sorted; of two entries of one name, such as a file and a link, none can be trusted."""
    counts = Counter(name for name, _ in entries)
    names = sorted(name for name, is_file in entries if is_file)
    twice = next((name for name in names if counts[name] > 1), None)
    if twice is not None:
        raise DataError(f"'{path}' has two entries named '{cut(twice)}'")
    return names


class _Remembered:
    """A tar archive that is read once, front to back, and its last bytes."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._last = b""

    def read(self, size: int) -> bytes:
        content: bytes = self._file.read(size)
        self._last = (self._last + content[-2 * tarfile.BLOCKSIZE :])[-2 * tarfile.BLOCKSIZE :]
        return content

    def refuse_cut_short(self) -> None:
        """A whole archive ends with two empty blocks; a gzip stream is checked only when it is read to its end."""
        while self.read(1 << 20):
            pass
        if len(self._last) < 2 * tarfile.BLOCKSIZE or any(self._last):
            raise EOFError("it is cut short")


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return cut((str(error).splitlines() or ["it ends too early"])[0].rstrip(": "), most=200)
