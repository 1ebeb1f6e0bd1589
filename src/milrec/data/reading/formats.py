"""The formats that milrec reads and writes, and the file name endings that show them.

This module imports almost nothing, because `--help` lists these names and should be quick.
"""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """How to read a source of interactions."""

    auto = "auto"  # by its name, or by the files inside
    csv = "csv"
    parquet = "parquet"
    movielens = "movielens"
    netflix = "netflix"
    lastfm = "lastfm"


FORMATS = tuple(format.value for format in Format if format is not Format.auto)
TEXT_ENDINGS = tuple(f"{kind}{packed}" for kind in (".csv", ".tsv", ".txt") for packed in ("", ".gz", ".zst"))
PARQUET_ENDINGS = (".parquet", ".pq")
ARCHIVE_ENDINGS = (".zip", ".tar", ".tgz", ".tar.gz", ".gz")
LIST_ENDINGS = (".parquet", ".csv", ".tsv", ".jsonl")  # of files that lists are written to
ANY_LIST_ENDING = f"{', '.join(LIST_ENDINGS[:-1])} or {LIST_ENDINGS[-1]}"
