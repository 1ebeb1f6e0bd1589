"""`prepare` on a cluster: nodes read the files of a table, and merge the rows of users, a group of each at a time.

If a node finds something wrong with a file, the files are read here, in order: the error is then the one that a single
machine finds first.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from milrec.cluster.session import Cluster
from milrec.cluster.tasks import Note
from milrec.data.filters import Filters, ValueChecks
from milrec.data.reading.blocks import Blocks
from milrec.data.reading.columns import Columns
from milrec.data.reading.sources import Allowed
from milrec.data.streaming.collection import Bundle
from milrec.data.streaming.pairs import Here, MergedBundle, merge
from milrec.data.streaming.pieces import Piece, Report
from milrec.data.streaming.spill import Spill
from milrec.errors import ClusterError, DataError

_MOST_PIECES = 1_000


@dataclass(frozen=True)
class Nodes:
    """The nodes of a cluster, as hands that prepare a table."""

    cluster: Cluster

    def read(self, blocks: Blocks, filters: Filters, spill: Spill, report: Report) -> list[Piece]:
        groups = _groups([file.resolve() for file in blocks.files])
        self.cluster.check([spill.folder], [str(groups[0][0])])
        asked = json.dumps(
            {
                "columns": asdict(blocks.columns),
                "kind": blocks.kind,
                "allowed": asdict(blocks.allowed),
                "filters": asdict(filters),
            }
        )
        calls = [(asked, [str(file) for file in group], str(spill.folder)) for group in groups]
        try:
            found = list(self.cluster.in_order("read", calls, partial(_told, report)))
        except DataError:
            return Here().read(blocks, filters, spill, report)
        checks = ValueChecks(filters, blocks.place)
        pieces = []
        for one in found:
            if not blocks.add(one["blocks"]):
                Here().read(Blocks(blocks.files, blocks.wanted, blocks.kind, blocks.allowed), filters, spill, report)
                raise DataError(f"{blocks.source} have ids of different types")
            checks.add(one["checks"])
            if one["blocks"]["n_rows"]:
                pieces.append(spill.kept(Piece.opened(Path(one["folder"]), blocks.columns, one["piece"])))
        checks.end()
        blocks.end()
        return pieces

    def merged(self, bundles: Sequence[Bundle], filters: Filters, spill: Spill, n_items: int) -> Iterator[MergedBundle]:
        asked = json.dumps(asdict(filters))
        calls = [(asked, n_items, {**asdict(one), "folder": str(one.folder)}, str(spill.folder)) for one in bundles]
        for found in self.cluster.in_order("merge", calls):
            n_ignored, n_duplicates, n_contradicted = found["n_merged"]
            n_merged = (n_ignored, n_duplicates, n_contradicted)
            yield MergedBundle(Path(found["folder"]), found["sizes"], found["adopters"], n_merged)


def _groups(files: Sequence[Path]) -> list[list[Path]]:
    """Files one by one; if there are very many, neighbours together."""
    size = -(-len(files) // _MOST_PIECES)
    return [list(files[start : start + size]) for start in range(0, len(files), size)]


def _told(report: Report, notes: dict[str, Any]) -> None:
    report(sum(rows for name, rows in notes.items() if name.startswith("read-")))


# ---- on the nodes ----


def read_files(note: Note, asked: str, files: list[str], folder: str) -> dict[str, Any]:
    """Some files of a table → a piece in a new folder; what is known about it."""
    given = json.loads(asked)
    for file in files:
        if not Path(file).exists():
            raise ClusterError(f"a node does not see '{file}'; use a folder that all nodes share")
    columns, filters = Columns(**given["columns"]), Filters(**given["filters"])
    blocks = Blocks([Path(file) for file in files], columns, given["kind"], Allowed(**given["allowed"]))
    checks, place = ValueChecks(filters, blocks.place), _new(folder, "piece")
    with _removed_on_error(place):
        piece = Piece.new(place, blocks.columns)
        try:
            piece.read(blocks, checks, note)
        finally:
            piece.close()
    return {"folder": str(place), "piece": piece.facts(), "blocks": blocks.facts(), "checks": checks.facts()}


def merge_bundle(note: Note, asked: str, n_items: int, bundle: dict[str, Any], folder: str) -> dict[str, Any]:
    """The rows of some users → their pairs, in a new folder."""
    place = _new(folder, "merged")
    with _removed_on_error(place):
        own = Bundle(**{**bundle, "folder": Path(bundle["folder"])})
        found = merge(own, Filters(**json.loads(asked)), n_items, place)
    adopters: np.ndarray[Any, Any] = found.adopters
    return {"folder": str(place), "sizes": found.sizes, "adopters": adopters, "n_merged": list(found.n_merged)}


def _new(folder: str, kind: str) -> Path:
    """A folder of its own for each attempt: one that was cut short leaves nothing that is used."""
    place = Path(folder) / f"{kind}-{uuid.uuid4().hex}"
    place.mkdir()
    return place


@contextmanager
def _removed_on_error(place: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
