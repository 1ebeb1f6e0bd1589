"""Lists of all users as a partitioned data set: a Parquet file for each shard, and a manifest with their hashes.

Readers of such folders (Arrow, Spark, DuckDB, pandas) leave out files whose name begins with `_`, as the manifest's
does. It is written last: a folder without it is not finished.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from milrec.disk.files import (
    draft_folder,
    leftovers,
    read_text,
    replace_folder,
    restore_folder,
    sweep,
    sync_file,
    system_errors,
)
from milrec.disk.locks import only_writer
from milrec.errors import FolderError, SettingsError
from milrec.lists.export import Grouped, check_list_file
from milrec.lists.shards import SHARD
from milrec.storage import file_hash, is_url

MANIFEST = "_milrec.json"
_KIND = {"format": "milrec", "kind": "lists", "version": 1}


@dataclass(frozen=True)
class Part:
    """A file of a data set, as its manifest has it."""

    file: str
    first_user: int  # their numbers in the model
    users: int
    rows: int
    bytes: int
    sha256: str


def is_dataset(out: str) -> bool:
    """Whether lists go to a folder, or to object storage, rather than to one file."""
    return out.endswith("/") or is_url(out)


def check_list_place(out: str | None, everybody: bool) -> None:
    """Refuse a place that cannot be written to, before any list is made."""
    if out is None:
        return
    if not is_dataset(out):
        check_list_file(Path(out))
    elif not everybody:
        raise SettingsError(f"'{out}' is a folder, which is for the lists of all users; name a file for a few")
    elif not is_url(out):
        refuse_in_the_way(Path(out).resolve())


def part_name(number: int) -> str:
    return f"part-{number:05d}.parquet"


def write_part(path: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema, users: range) -> Part:
    """The lists of a shard as a file, which is safe on the disk; what the manifest says about it."""
    rows = 0
    writer = Grouped(pq.ParquetWriter(path, schema), schema)
    try:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    finally:
        writer.close()
    sync_file(path)
    return Part(path.name, users.start, len(users), rows, path.stat().st_size, file_hash(path))


def manifest_text(parts: Iterable[Part], model: str) -> str:
    """What is in the data set, and by which model."""
    listed = [asdict(part) for part in parts]
    total = {name: sum(part[name] for part in listed) for name in ("users", "rows")}
    content = {**_KIND, "model": model, **total, "users_of_a_part": SHARD, "parts": listed}
    return json.dumps(content, indent=1) + "\n"


def write_manifest(folder: Path, parts: Iterable[Part], model: str) -> None:
    path = folder / MANIFEST
    path.write_text(manifest_text(parts, model), encoding="utf-8")
    sync_file(path)


@contextmanager
def new_dataset(place: Path) -> Iterator[Path]:
    """A folder for the parts and the manifest, which appears at its place, complete, if the block succeeds.

    An older data set there is replaced; anything else is never touched.
    """
    place = place.resolve()
    refuse_in_the_way(place)
    with only_writer(place), system_errors(place):
        if not place.exists() and (retired := leftovers(place, "old")):
            restore_folder(retired[0], place)  # a process was killed while it replaced the data set
        sweep(place)
        draft = draft_folder(place)
        try:
            yield draft
            replace_folder(draft, place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def refuse_in_the_way(place: Path) -> None:
    """Before lists are made: the place must be free, or hold lists."""
    if not place.parent.is_dir():
        raise FolderError(f"folder '{place.parent}' does not exist; create it, or write '{place.name}/' elsewhere")
    if place.exists() and not place.is_dir():
        raise FolderError(f"'{place}' is a file; name a folder for the lists")
    if place.is_dir() and any(place.iterdir()) and not _holds_nothing_else(place):
        raise FolderError(f"'{place}' holds files that are not milrec lists; choose another place")


def _holds_nothing_else(place: Path) -> bool:
    """Whether a folder holds lists of milrec, and not a single file of somebody's beside them."""
    try:
        found: Any = json.loads(read_text(place / MANIFEST))
        ours = {MANIFEST, *(part["file"] for part in found["parts"])}
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return False
    is_ours = {name: found.get(name) for name in _KIND} == _KIND
    return is_ours and all(path.name in ours and path.is_file() for path in place.iterdir())
