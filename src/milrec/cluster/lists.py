"""`recommend --all` on a cluster: a part for each shard of users, put together in order.

Parts of one file are Arrow files in a folder beside it, and are written into it, in order, as they arrive: the file is
byte for byte that of one machine. Parts of a data set are its files.
"""

from __future__ import annotations

import json
import sys
import tempfile
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from milrec.cluster.places import empty_place, joined_place, local_folder, refuse_used, send_file, send_text
from milrec.cluster.session import Cluster, Told
from milrec.cluster.tasks import Note
from milrec.data.interactions import Interactions
from milrec.disk.files import sync_file
from milrec.errors import ClusterError
from milrec.lists.export import write_batches
from milrec.lists.partitions import MANIFEST, Part, manifest_text, new_dataset, part_name, write_manifest, write_part
from milrec.lists.rules import rule_of
from milrec.lists.shards import shards
from milrec.models.encoders import import_encoder
from milrec.recommender import Recommender
from milrec.storage import file_hash, is_url, new_file, open_folder


@dataclass(frozen=True)
class ListOrder:
    """Which lists are wanted, in plain values: they travel as JSON."""

    model: str  # place
    model_hash: str
    known: str | None  # place of a data folder: what users have there is not listed
    known_hash: str | None
    copied: bool  # whether nodes copy folders before they use them
    n: int
    wishes: dict[str, Any]
    classes: list[str] = field(default_factory=list)  # MODULE:CLASS of encoders that are not milrec's
    folder: str = ""  # where their modules may lie

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))

    @property
    def read(self) -> list[str]:
        """The places that nodes read from."""
        return [self.model, *([] if self.known is None else [self.known])]


@dataclass(frozen=True)
class Counts:
    """What came of it."""

    rows: int
    unmet: int  # lists that could not be all that was asked for


def plain_wishes(wishes: dict[str, Any]) -> dict[str, Any]:
    """Wishes as JSON can hold them."""
    listed = {name: None if wishes.get(name) is None else list(wishes[name]) for name in ("allow", "exclude")}
    rules = [rule_of(rule).model_dump() for rule in wishes.get("rules", ())]
    return {**wishes, **listed, "rules": rules}


def write_file(cluster: Cluster, order: ListOrder, n_users: int, out: Path, told: Told) -> Counts:
    """Lists of all users in one file."""
    unmet = 0
    with (
        new_file(out) as draft,
        tempfile.TemporaryDirectory(prefix=".parts-", dir=draft.parent, ignore_cleanup_errors=True) as folder,
    ):
        cluster.check([Path(folder)], order.read)

        def batches() -> Generator[pa.RecordBatch]:
            nonlocal unmet
            for name, digest, own_unmet in _parts(cluster, "lists", order, n_users, folder, told):
                unmet += own_unmet
                yield from _checked_batches(Path(folder) / name, digest)
                (Path(folder) / name).unlink()

        whole = draft.with_name(f"whole{out.suffix}")
        with closing(batches()) as coming:
            rows = write_batches(whole, coming)
        whole.replace(draft)
    return Counts(rows, unmet)


def write_dataset(cluster: Cluster, order: ListOrder, n_users: int, out: str, told: Told) -> Counts:
    """Lists of all users as a partitioned data set, in a shared folder or in object storage."""
    if is_url(out):
        refuse_used(out)
        cluster.check([], order.read)
        try:
            parts, unmet = _dataset_parts(cluster, order, n_users, out, told)
            send_text(manifest_text(parts, order.model_hash), joined_place(out, MANIFEST))
        except BaseException:
            empty_place(out)
            raise
    else:
        with new_dataset(Path(out)) as draft:
            cluster.check([draft], order.read)
            parts, unmet = _dataset_parts(cluster, order, n_users, str(draft), told)
            for part in parts:
                _refuse_changed(draft / part.file, part.sha256)
            write_manifest(draft, parts, order.model_hash)
    return Counts(sum(part.rows for part in parts), unmet)


def _dataset_parts(cluster: Cluster, order: ListOrder, n_users: int, out: str, told: Told) -> tuple[list[Part], int]:
    found = list(_parts(cluster, "dataset", order, n_users, out, told))
    return [Part(**part) for part, _ in found], sum(unmet for _, unmet in found)


def _parts(cluster: Cluster, task: str, order: ListOrder, n_users: int, out: str, told: Told) -> Iterator[Any]:
    """What a task gives for each shard, in order."""
    groups, text = shards(n_users), order.text
    calls = [(text, number, users.start, users.stop, out) for number, users in enumerate(groups)]
    return cluster.in_shards(task, calls, [len(users) for users in groups], told)


def _checked_batches(path: Path, digest: str) -> Iterator[pa.RecordBatch]:
    _refuse_changed(path, digest)
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def _refuse_changed(path: Path, digest: str) -> None:
    if not path.exists():
        raise ClusterError(f"a node wrote '{path}', but it cannot be seen from here; use a folder that all nodes share")
    if file_hash(path) != digest:
        raise ClusterError(f"'{path}' has changed since a node wrote it: its hash differs")


# ---- on the nodes ----


def make_arrow_part(note: Note, text: str, number: int, first: int, last: int, folder: str) -> tuple[str, str, int]:
    """The lists of some users as an Arrow file in a folder: its name, its hash, and how many could not be as asked."""
    made = _Made.of(text, range(first, last), note)
    with _attempt(Path(folder) / f"part-{number:05d}.arrow") as draft:
        digest = _write_arrow(draft, made.batches, made.schema)
    return f"part-{number:05d}.arrow", digest, len(made.unmet)


def make_dataset_part(
    note: Note, text: str, number: int, first: int, last: int, out: str
) -> tuple[dict[str, Any], int]:
    """The lists of some users as a part of a data set: its entry in the manifest; how many could not be as asked."""
    users = range(first, last)
    made = _Made.of(text, users, note)
    if is_url(out):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / part_name(number)
            part = write_part(path, made.batches, made.schema, users)
            send_file(path, joined_place(out, path.name))
    else:
        with _attempt(Path(out) / part_name(number)) as draft:
            part = write_part(draft, made.batches, made.schema, users)
    return {**asdict(part), "file": part_name(number)}, len(made.unmet)


@dataclass(frozen=True)
class _Made:
    """The lists of some users, as they come."""

    batches: Iterator[pa.RecordBatch]
    schema: pa.Schema
    unmet: list[str]  # what could not be met, for each list of which that is true

    @classmethod
    def of(cls, text: str, users: range, note: Note) -> _Made:
        order, recommender = ListOrder(**json.loads(text)), _recommender(text)
        unmet: list[str] = []
        batches = recommender.recommend_all(order.n, lambda who, why: unmet.append(why), users, **order.wishes)
        return cls(_noting(batches, users, note), recommender.list_schema(order.n, **order.wishes), unmet)


@contextmanager
def _attempt(place: Path) -> Iterator[Path]:
    """A file that appears at its place if the block succeeds. Each attempt has a name of its own and no lock: one whose
    node has died may hold it for long.
    """
    draft = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
    try:
        yield draft
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)


def _noting(batches: Iterator[pa.RecordBatch], users: range, note: Note) -> Iterator[pa.RecordBatch]:
    """The same, noting how many users are done."""
    done = 0
    for batch in batches:
        yield batch
        done += len(batch.column("user").unique())
        note(min(done, len(users)))


def _write_arrow(path: Path, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> str:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    sync_file(path)
    return file_hash(path)


@lru_cache(maxsize=1)
def _recommender(text: str) -> Recommender:
    """The model of an order: a process keeps it for the next shard."""
    order = ListOrder(**json.loads(text))
    encoders = named_encoders(order.classes, order.folder)
    recommender = Recommender.load(local_folder(order.model, "model", order.model_hash, order.copied), encoders)
    if order.known is not None:
        data = local_folder(order.known, "data", order.known_hash, order.copied)
        recommender = recommender.leaving_out(Interactions.read_from(open_folder(data, "data")))
    return recommender


def named_encoders(classes: Sequence[str], folder: str) -> list[type[Any]]:
    """The encoders that somebody named; their modules may lie in a folder of theirs."""
    if classes and folder and folder not in sys.path:
        sys.path.append(folder)
    return [import_encoder(path) for path in classes]
