"""Which files a table consists of: one, all of a folder, or those that a pattern such as 'events/*.csv.gz' matches."""

from __future__ import annotations

import glob
from pathlib import Path

from milrec.data.reading.formats import PARQUET_ENDINGS, TEXT_ENDINGS
from milrec.errors import DataError

_MOST_FILES = 100_000
_PATTERN = frozenset("*?[")


def is_pattern(source: Path) -> bool:
    """Whether a source that is not there is a pattern of names."""
    return not source.exists() and not _PATTERN.isdisjoint(str(source))


def table_files(source: Path) -> list[Path]:
    """The files of a table, in the order of their names; hidden ones and those that begin with _ are left out."""
    if source.is_file():
        return [source]
    if is_pattern(source):
        found = sorted(Path(name) for name in glob.glob(str(source), recursive=True))  # noqa: PTH207 - any pattern
    else:
        found = sorted(source.rglob("*"))
    files = [file for file in found if file.is_file() and not _is_hidden(file, source)]
    if not files:
        held = "no file's name fits" if is_pattern(source) else "there is no file in"
        raise DataError(f"{held} '{source}'")
    if len(files) > _MOST_FILES:
        raise DataError(f"'{source}' has over {_MOST_FILES:,} files; join some of them first")
    return files


def table_format(source: Path) -> str | None:
    """csv or parquet, if the names of all files show the same; None otherwise."""
    found = {_format(file) for file in table_files(source)}
    return found.pop() if len(found) == 1 else None


def _format(file: Path) -> str | None:
    name = file.name.lower()
    return "csv" if name.endswith(TEXT_ENDINGS) else "parquet" if name.endswith(PARQUET_ENDINGS) else None


def _is_hidden(file: Path, source: Path) -> bool:
    """Such as _SUCCESS, .part-0.csv.crc, or anything in a folder of such a name."""
    own = file.relative_to(source).parts if source.is_dir() else (file.name,)
    return any(part.startswith(("_", ".")) for part in own)
