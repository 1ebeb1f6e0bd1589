"""Lists as tables: user, position, item, title, score, probability, popularity, interval; reasons and unmet rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from milrec.data.reading.formats import LIST_ENDINGS
from milrec.errors import FolderError, SettingsError
from milrec.interrupts import pause_point
from milrec.lists.catalogue import Catalogue
from milrec.storage import check_place, new_file

_POSITION, _SCORE = pa.field("position", pa.int32()), pa.field("score", pa.float32())
_PROBABILITY = pa.field("probability", pa.float32())
_REASONS, _UNMET = pa.field("reasons", pa.string()), pa.field("unmet", pa.string())
_PRESENT_NAMES = {"rank": "position", "tail": "interval"}  # what columns were called before milrec 0.2
_TEXTS = ("user", "item", "title", "reasons", "unmet")  # that may look like numbers in a text file

if TYPE_CHECKING:  # a wrong file name is refused before torch is loaded
    from milrec.lists.answer import Listed
    from milrec.lists.query import Asked, Wanted


def list_schema(catalogue: Catalogue, wish: Wanted, users: bool, probable: bool) -> pa.Schema:
    """The columns of a table of lists; `reasons` and `unmet` are text, which every kind of file can hold.

    `probable`: the model has probabilities.
    """
    item, *title, popularity, interval = catalogue.columns.schema
    fields = [pa.field("user", catalogue.users.type)] if users else []
    fields += [_POSITION, item, *title, _SCORE, *([_PROBABILITY] if probable else []), popularity, interval]
    fields += [_REASONS] if wish.reasons else []
    fields += [_UNMET] if wish.rules or wish.reasons else []
    return pa.schema(fields)


def with_unmet(schema: pa.Schema) -> pa.Schema:
    """The same columns and `unmet`, if it is not among them."""
    return schema if _UNMET.name in schema.names else schema.append(_UNMET)


def list_batch(
    catalogue: Catalogue, asked: Sequence[Asked], lists: Sequence[Listed], schema: pa.Schema
) -> pa.RecordBatch:
    """The lists, one below the other."""
    lengths = [len(one.items) for one in lists]
    columns = item_columns(catalogue, np.concatenate([one.items for one in lists]))
    columns["position"] = _column(np.concatenate([np.arange(1, n + 1, dtype=np.int32) for n in lengths]), pa.int32())
    columns["score"] = _column(np.concatenate([one.scores for one in lists]), pa.float32())
    if "probability" in schema.names:
        chances = [one.probabilities for one in lists if one.probabilities is not None]
        columns["probability"] = _column(np.concatenate(chances), pa.float32())
    if "user" in schema.names:
        rows = np.repeat(np.array([one.row for one in asked], dtype=np.int64), lengths)
        columns["user"] = catalogue.users.take(_column(rows, pa.int64()))
    if "reasons" in schema.names:
        texts = [text for who, one in zip(asked, lists, strict=True) for text in _texts(catalogue, who, one)]
        columns["reasons"] = pa.array(texts, type=pa.string())
    if "unmet" in schema.names:
        unmet = [text for one in lists for text in ["; ".join(one.unmet)] * len(one.items)]
        columns["unmet"] = pa.array(unmet, type=pa.string())
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def item_columns(catalogue: Catalogue, items: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
    """Item, title (where known), popularity, interval."""
    rows = catalogue.columns.take(_column(items, pa.int64()))
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def _column(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """An array as it is in memory; `pa.array` first finds out what it may be, which takes longer than a list."""
    plain = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(plain), [None, pa.py_buffer(plain)])


def _texts(catalogue: Catalogue, asked: Asked, listed: Listed) -> list[str]:
    """For each item its reasons: `Alien (0.41); Heat (0.2)`."""

    def name(place: int) -> str:
        item = int(asked.adopted[place])
        return catalogue.titles[item] or str(catalogue.item_ids[item])

    return ["; ".join(f"{name(place)} ({weight:.3g})" for place, weight in why) for why in listed.reasons]


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


def read_lists(path: str | Path) -> pa.Table:
    """Lists from a file (.parquet, .csv, .tsv, .jsonl) or a folder that `milrec recommend` wrote, of any version.

    Columns have their present names, `position` and `interval`. Ids in .csv and .tsv files are texts.
    """
    path = Path(path)
    if not path.exists():
        raise FolderError(f"there is no file or folder '{path}'")
    if not path.is_dir():
        check_list_file(path)
    try:
        found = _read(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FolderError(f"'{path}' cannot be read as lists ({str(error).splitlines()[0]})") from None
    return found.rename_columns([_PRESENT_NAMES.get(name, name) for name in found.column_names])


def _read(path: Path) -> pa.Table:
    if path.is_dir() or path.suffix == ".parquet":
        return pq.read_table(path)
    if path.suffix == ".jsonl":
        with path.open(encoding="utf-8") as lines:
            return pa.Table.from_pylist([json.loads(line) for line in lines])  # texts stay texts, also those like dates
    delimiter = "\t" if path.suffix == ".tsv" else ","
    parsing = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    return csv.read_csv(path, None, parsing, csv.ConvertOptions(column_types=dict.fromkeys(_TEXTS, pa.string())))


def check_list_file(path: Path) -> None:
    """Refuse a file whose ending or folder is not known, before any list is made."""
    check_place(path)
    if path.suffix not in LIST_ENDINGS:
        raise SettingsError(f"the name of '{path}' does not show its format; known endings: {', '.join(LIST_ENDINGS)}")


def write_batches(
    path: Path,
    batches: Iterable[pa.RecordBatch],
    report: Callable[[int], None] | None = None,
    schema: pa.Schema | None = None,
) -> int:
    """Write batches to a file, which appears when everything is written; returns the number of rows.

    `report` is called with the number of users that are done.
    """
    check_list_file(path)
    rows = users = 0
    with new_file(path) as draft:
        coming = iter(batches)
        first = next(coming, None)
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
                first = next(coming, None)
        finally:
            writer.close()
    return rows


def _writer(path: Path, suffix: str, schema: pa.Schema) -> _Writer:
    if suffix == ".parquet":
        return Grouped(pq.ParquetWriter(path, schema), schema)
    if suffix == ".jsonl":
        return _JsonLines(path)
    delimiter = "\t" if suffix == ".tsv" else ","
    writer: Any = csv.CSVWriter(
        path, schema, write_options=csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
    )
    result: _Writer = writer
    return result


class Grouped:
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
