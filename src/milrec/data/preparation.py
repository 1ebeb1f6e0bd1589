"""A source of the user → a data folder, with thresholds and filters, and counts of what was left out.

Tables (CSV, TSV, Parquet; one file or many) are worked through by way of the disk, whatever their size; the archives of
public data sets are read into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from milrec.data.filters import Filters
from milrec.data.reading.blocks import Blocks
from milrec.data.reading.columns import Columns, unused_title
from milrec.data.reading.parts import table_files
from milrec.data.reading.read import (
    TABLES,
    checked_format,
    chosen_filters,
    is_rated_folder,
    joined_notes,
    prepare_source,
    refuse_both,
)
from milrec.data.reading.sources import Allowed
from milrec.data.reading.titles import file_titles, read_titles
from milrec.data.streaming.pairs import Hands, Here, Work, stream
from milrec.errors import DataError
from milrec.storage import Draft, new_folder


@dataclass(frozen=True)
class Wanted:
    """How a source is to be read, and what of it is to be kept."""

    format: str = "auto"
    columns: Columns = field(default_factory=Columns)
    titles: Path | None = None
    filters: Mapping[str, float | int | None] = field(default_factory=dict)  # None: by default
    allowed: Allowed = field(default_factory=Allowed)


@dataclass(frozen=True)
class Prepared:
    """What a data folder holds, and how it came about."""

    filters: Filters
    facts: dict[str, Any]  # where it comes from, and what became of the rows
    sizes: dict[str, Any]  # users, items and pairs

    @property
    def note(self) -> str | None:
        """Something that the user should know."""
        return self.facts.get("note")


def prepare_folder(
    source: Path,
    wanted: Wanted,
    out: Path,
    report: Callable[[int], None],
    replace: bool = False,
    hands: Hands | None = None,
) -> Prepared:
    """Read a source into a data folder; `report` is told how many rows of a table have been read.

    `hands` read the files of a table and merge its rows; by default this process does.
    """
    format = checked_format(source, wanted.format, wanted.columns, wanted.allowed)
    if format in TABLES and not is_rated_folder(source, format):
        with new_folder(out, "data", replace) as draft:
            return _by_way_of_disk(source, format, wanted, draft, Work(draft.path, hands or Here(), report))
    if hands is not None:
        raise DataError(f"'{source}' is not a table of CSV, TSV or Parquet files; leave `cluster` out")
    read_as, _, filters, prepared = prepare_source(
        source, format, wanted.columns, wanted.titles, dict(wanted.filters), wanted.allowed
    )
    facts = _facts(source, read_as, wanted, filters, prepared.interactions.reading)
    prepared.interactions.save(out, facts, replace=replace)
    return Prepared(filters, facts, prepared.interactions.facts())


def _by_way_of_disk(source: Path, format: str, wanted: Wanted, draft: Draft, work: Work) -> Prepared:
    filters = chosen_filters(format, wanted.filters)
    refuse_both(wanted.columns, wanted.titles)
    blocks = Blocks(table_files(source), wanted.columns, format, wanted.allowed)
    titles, about_titles = _titles(blocks, wanted)
    found = stream(blocks, filters, titles, work)
    note = joined_notes(blocks.note, about_titles)
    reading = {**blocks.columns.facts(), **found.counts, **({} if note is None else {"note": note})}
    facts = _facts(source, format, wanted, filters, reading)
    draft.facts.update({**found.facts, **reading, **facts})
    return Prepared(filters, facts, found.facts)


def _titles(blocks: Blocks, wanted: Wanted) -> tuple[pa.Table | None, str | None]:
    """The table of titles, if one is wanted, and what the user should know about titles."""
    if wanted.titles is not None:
        return read_titles(wanted.titles, wanted.columns.item, wanted.allowed), None
    if wanted.columns.title is None:
        return None, unused_title(blocks.columns, blocks.names)
    found = file_titles(blocks.files, blocks.columns, blocks.kind, wanted.allowed)
    return found.table, found.note


def _facts(source: Path, format: str, wanted: Wanted, filters: Filters, reading: Mapping[str, Any]) -> dict[str, Any]:
    asked = {"where": dict(wanted.columns.where)} if wanted.columns.where else {}
    return {"source": source.name, "format": format, **asked, "filters": filters.chosen(), **reading}
