"""Lists as a file that opens in the tools people have: Parquet, CSV, TSV or JSON lines, streamed batch by batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from milrec.errors import SettingsError
from milrec.folders import check_place, new_file
from milrec.interrupting import pause_point

SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl")


class _Writer(Protocol):
    def write_batch(self, batch: pa.RecordBatch) -> None: ...
    def close(self) -> None: ...


class _JsonLines:
    def __init__(self, path: Path) -> None:
        self.file = path.open("w", encoding="utf-8")

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self.file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist())

    def close(self) -> None:
        self.file.close()


def check_list_file(path: Path) -> None:
    """Refuse a name that says no known format, or a place that does not exist, before lists are made."""
    check_place(path)
    if path.suffix not in SUFFIXES:
        raise SettingsError(f"the format of '{path}' is not known by its name; known endings: {', '.join(SUFFIXES)}")


def write_batches(
    path: Path,
    batches: Iterator[pa.RecordBatch],
    report: Callable[[int], None] | None = None,
    schema: pa.Schema | None = None,
) -> int:
    """Write batches to a file that appears when all is written; returns the number of rows.

    `report` is told how many users are done.
    """
    check_list_file(path)
    rows = users = 0
    with new_file(path) as draft:
        first = next(batches, None)
        known = schema or (first.schema if first is not None else pa.schema([]))
        writer = _writer(draft, path.suffix, known)
        try:
            while first is not None:
                writer.write_batch(first)
                rows += first.num_rows
                users += len(first.column("user").unique()) if "user" in first.schema.names else 1
                if report is not None:
                    report(users)
                pause_point("write lists")
                first = next(batches, None)
        finally:
            writer.close()
    return rows


def _writer(path: Path, suffix: str, schema: pa.Schema) -> _Writer:
    if suffix == ".parquet":
        return _Grouped(pq.ParquetWriter(path, schema), schema)
    if suffix == ".jsonl":
        return _JsonLines(path)
    delimiter = "\t" if suffix == ".tsv" else ","
    writer: Any = csv.CSVWriter(
        path, schema, write_options=csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
    )
    result: _Writer = writer
    return result


class _Grouped:
    """Parquet row groups of a useful size, however small the batches are."""

    def __init__(self, writer: Any, schema: pa.Schema, rows: int = 1 << 17) -> None:
        self.writer, self.schema, self.rows = writer, schema, rows
        self.waiting: list[pa.RecordBatch] = []

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self.waiting.append(batch)
        if sum(one.num_rows for one in self.waiting) >= self.rows:
            self._flush()

    def close(self) -> None:
        self._flush()
        self.writer.close()

    def _flush(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting, schema=self.schema).combine_chunks())
            self.waiting = []
