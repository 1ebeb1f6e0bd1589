"""Interactions: who adopted, and who rejected, what.

Inside, users and items are row and column numbers of sparse matrices; ids are kept in two small sorted tables, so that
the numbers never depend on the order of the rows that were read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from safetensors.numpy import save_file
from scipy.sparse import csr_array

from milrec.data.pairs import empty_pairs, item_counts, read_pairs, take, with_numbers, write_pairs
from milrec.data.stored import read_arrays, read_counts, read_ids, read_pair_columns, write_table
from milrec.errors import DataError, FolderError, SettingsError, UnknownIdError, counted, cut
from milrec.storage import Draft, Manifest, check_files, new_folder, opened_folder

_TOGETHER = 1 << 16  # ids, or numbers, that are hashed at a time
_TRUTH = "truth.safetensors"
ADOPTERS = "adopters.arrow"  # in place of users and pairs, in a model folder without them
_MOST_USERS = 2**31 - 1  # that 32 bits can number
Numbers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Truth:
    """The true preferences of a simulated catalogue: σ(user_factors · item_factors + item_offsets)."""

    user_factors: npt.NDArray[np.float32]  # (n_users, n_traits)
    item_factors: npt.NDArray[np.float32]  # (n_items, n_traits)
    item_offsets: npt.NDArray[np.float32]  # (n_items,)

    def preference(self, users: Numbers | slice) -> npt.NDArray[np.float64]:
        """In double precision, so that rounding does not show how many users were asked for at once."""
        logits = self.user_factors[users].astype(np.float64) @ self.item_factors.T.astype(np.float64)
        preference: npt.NDArray[np.float64] = 1 / (1 + np.exp(-(logits + self.item_offsets)))  # (n_users, n_items)
        return preference

    def pair_preference(self, users: Numbers, items: Numbers) -> npt.NDArray[np.float32]:
        logits = np.einsum("pt,pt->p", self.user_factors[users], self.item_factors[items]) + self.item_offsets[items]
        preference: npt.NDArray[np.float32] = 1 / (1 + np.exp(-logits))
        return preference


@dataclass(frozen=True, eq=False)
class Interactions:
    """Adopted and rejected entries of users × items, with ids, titles and, for simulated data, the truth."""

    adopted: csr_array  # (n_users, n_items) weights, above 0
    rejected: csr_array  # (n_users, n_items) 1 where rejected
    users: pa.Table  # column id
    items: pa.Table  # columns id and, if known, title and genres
    truth: Truth | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)  # which columns were read, and what became of the rows
    adopters: npt.NDArray[np.int64] | None = None  # of each item, where the users themselves are left out

    def __repr__(self) -> str:
        counts = ((self.n_users, "user"), (self.n_items, "item"), (self.adopted.nnz, "adopted pair"))
        return f"<Interactions: {', '.join(counted(number, name) for number, name in counts)}>"

    @property
    def n_users(self) -> int:
        return int(self.adopted.shape[0])

    @property
    def n_items(self) -> int:
        return int(self.adopted.shape[1])

    def popularity(self) -> npt.NDArray[np.int64]:
        """Adopters per item."""
        if self.adopters is not None:
            return self.adopters
        return item_counts(self.adopted)

    def items_per_user(self) -> npt.NDArray[np.int64]:
        """How many items each user adopted or rejected."""
        counts: npt.NDArray[np.int64] = np.diff(self.adopted.indptr).astype(np.int64) + np.diff(self.rejected.indptr)
        return counts

    def subset(self, users: npt.NDArray[np.bool_], items: npt.NDArray[np.bool_]) -> Interactions:
        """Only the users and items whose mask is true."""
        rows, columns = np.flatnonzero(users), np.flatnonzero(items)
        truth = self.truth and replace(
            self.truth,
            user_factors=self.truth.user_factors[rows],
            item_factors=self.truth.item_factors[columns],
            item_offsets=self.truth.item_offsets[columns],
        )
        return Interactions(
            adopted=take(self.adopted, rows, columns),
            rejected=take(self.rejected, rows, columns),
            users=self.users.take(pa.array(rows)),
            items=self.items.take(pa.array(columns)),
            truth=truth,
        )

    @property
    def has_users(self) -> bool:
        return self.adopters is None

    def without_users(self) -> Interactions:
        """The items and how many users adopted each, and nothing about any single user."""
        nothing = empty_pairs((0, self.n_items))
        return Interactions(nothing, nothing, self.users.slice(0, 0), self.items, adopters=self.popularity())

    def fingerprint(self) -> str:
        """A hash of the ids and the pairs; two sets are the same if they share it."""
        digest = hashlib.sha256()
        for ids in (self.users["id"], self.items["id"]):
            for text in _json_pieces(ids):
                digest.update(text.encode())
        for pairs in (self.adopted, self.rejected):
            for part, kind in ((pairs.indptr, np.int64), (pairs.indices, np.int32), (pairs.data, np.float32)):
                for start in range(0, len(part), _TOGETHER):
                    digest.update(np.ascontiguousarray(part[start : start + _TOGETHER], dtype=kind).data)
        return digest.hexdigest()

    def facts(self) -> dict[str, Any]:
        """The numbers a person wants to see first."""
        if not self.has_users:
            return {"items": self.n_items}
        return data_facts(self.n_users, self.n_items, int(self.adopted.nnz), int(self.rejected.nnz))

    def save(self, path: str | Path, facts: dict[str, Any] | None = None, replace: bool = False) -> None:
        """Write a data folder; it appears whole or not at all."""
        with new_folder(Path(path), "data", replace) as draft:
            self.write_into(draft)
            draft.facts.update({**self.facts(), **self.reading, **(facts or {})})

    @classmethod
    def load(cls, path: str | Path) -> Interactions:
        """Open a data folder; its pairs are mapped into memory, not copied."""
        with opened_folder(Path(path), "data") as manifest:
            return cls.read_from(manifest)

    def write_into(self, draft: Draft) -> None:
        """Write the tables, matrices and truth into a folder that is being made."""
        write_table(draft.path / "items.arrow", self.items)
        if self.adopters is not None:
            draft.version = 2  # version 1 always has users
            write_table(draft.path / ADOPTERS, pa.table({"adopters": pa.array(self.adopters, type=pa.int64())}))
            return
        write_table(draft.path / "users.arrow", self.users)
        write_pairs(draft.path / "adopted.arrow", self.adopted)
        write_pairs(draft.path / "rejected.arrow", self.rejected)
        if self.truth is not None:
            save_file(vars(self.truth), draft.path / _TRUTH)

    @classmethod
    def read_without_users(cls, manifest: Manifest) -> Interactions:
        """Of a model folder that was written without its users."""
        check_files(manifest, ["items.arrow", ADOPTERS])
        items = read_ids(manifest.path / "items.arrow")
        nothing, nobody = empty_pairs((0, items.num_rows)), pa.table({"id": pa.array([], type=pa.large_string())})
        adopters = read_counts(manifest.path / ADOPTERS, items.num_rows)
        return cls(nothing, nothing, nobody, items, adopters=adopters)

    @classmethod
    def read_items(cls, manifest: Manifest) -> Interactions:
        """The items, and how many users adopted each: all that a search needs, without a look at any single user."""
        if ADOPTERS in manifest.hashes:
            return cls.read_without_users(manifest)
        check_files(manifest, ["items.arrow", "adopted.arrow"])
        items = read_ids(manifest.path / "items.arrow")
        _, adopted, _ = read_pair_columns(manifest.path / "adopted.arrow", (_MOST_USERS, items.num_rows))
        nothing, nobody = empty_pairs((0, items.num_rows)), pa.table({"id": pa.array([], type=pa.large_string())})
        return cls(nothing, nothing, nobody, items, adopters=np.bincount(adopted, minlength=items.num_rows))

    @classmethod
    def read_from(cls, manifest: Manifest) -> Interactions:
        check_files(manifest, ["users.arrow", "items.arrow", "adopted.arrow", "rejected.arrow"])
        users, items = read_ids(manifest.path / "users.arrow"), read_ids(manifest.path / "items.arrow")
        shape = (users.num_rows, items.num_rows)
        return cls(
            adopted=read_pairs(manifest.path / "adopted.arrow", shape),
            rejected=read_pairs(manifest.path / "rejected.arrow", shape),
            users=users,
            items=items,
            truth=_read_truth(manifest, shape) if _TRUTH in manifest.hashes else None,
        )


def _json_pieces(ids: pa.ChunkedArray) -> Iterator[str]:
    """The list of all ids as JSON, a piece at a time."""
    for start in range(0, len(ids), _TOGETHER):
        text = json.dumps(ids.slice(start, _TOGETHER).to_pylist())
        yield ("[" if start == 0 else ", ") + text[1:-1]
    yield "]" if len(ids) else "[]"


def data_facts(n_users: int, n_items: int, n_adopted: int, n_rejected: int) -> dict[str, Any]:
    """The numbers of a data set, by name."""
    cells = n_users * n_items
    return {
        "users": n_users,
        "items": n_items,
        "adopted": n_adopted,
        "rejected": n_rejected,
        "density": round(n_adopted / cells, 6) if cells else None,
    }


def generator(seed: int, stream: int) -> np.random.Generator:
    """Random numbers for a seed, independent for each use (`stream`)."""
    return np.random.default_rng([checked_seed(seed), stream])


def checked_seed(seed: Any) -> int:
    """A seed that every generator takes."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise SettingsError(f"a seed must be a whole number of 0 or more, below 2^63, not {seed!r:.40}")
    return int(seed)


def refuse_ids(missing: list[Any], id_type: pa.DataType, what: str) -> NoReturn:
    """The error about ids that are not there; it names them."""
    names = [str(_as_id(value, id_type, what)) for value in missing]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    named = ", ".join(_quoted(name) for name in names[:5])
    raise UnknownIdError(f"unknown {what if len(names) == 1 else f'{what}s'} {named}{more}", names[0], what)


def sorted_ids(ids: pa.ChunkedArray) -> tuple[pa.Array, npt.NDArray[np.int32]]:
    """The distinct ids in order, and for each row the number of its id among them."""
    distinct = pc.unique(ids)
    distinct = distinct.take(pc.sort_indices(distinct))
    numbers = pc.index_in(ids, value_set=distinct)
    return distinct, numbers.to_numpy().astype(np.int32)


def numbers_in(ids: pa.ChunkedArray, known: pa.ChunkedArray, what: str) -> npt.NDArray[np.int64]:
    """The numbers of ids among the ids of another set; -1 for an id that it does not have."""
    if ids.type != known.type:
        kinds = ["whole numbers" if pa.types.is_integer(one.type) else "text" for one in (known, ids)]
        raise DataError(f"{what} ids are {kinds[0]} in one set and {kinds[1]} in the other; prepare both the same way")
    found = pc.index_in(ids, value_set=known.combine_chunks())
    numbers: npt.NDArray[np.int64] = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    return numbers


def renumbered(pairs: csr_array, whose: Interactions, other: Interactions) -> csr_array:
    """Pairs in the numbers that another set uses for the same ids; ids that it does not have are left out."""
    users = numbers_in(whose.users["id"], other.users["id"], "user")
    items = numbers_in(whose.items["id"], other.items["id"], "item")
    return with_numbers(pairs, users, items, other.adopted.shape)


def _read_truth(manifest: Manifest, shape: tuple[int, int]) -> Truth:
    path = manifest.path / _TRUTH
    check_files(manifest, [_TRUTH])
    truth = Truth(*read_arrays(path, ("user_factors", "item_factors", "item_offsets")))
    n_traits = truth.user_factors.shape[-1:]
    shapes = [(shape[0], *n_traits), (shape[1], *n_traits), (shape[1],)]
    if [array.shape for array in (truth.user_factors, truth.item_factors, truth.item_offsets)] != shapes:
        raise FolderError(f"'{path}' does not have the shape of the data")
    return truth


def _as_id(value: Any, id_type: pa.DataType, what: str) -> Any:
    """An id as it is stored: if ids are numbers, the text of a number finds it, and the other way round."""
    text = str(value)
    if not pa.types.is_integer(id_type):
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise UnknownIdError(f"unknown {what} {_quoted(text)}: it is not Unicode text", text, what)
        return text
    try:
        number = int(text)
    except ValueError:
        raise UnknownIdError(
            f"unknown {what} {_quoted(text)}: the {what}s here are whole numbers", text, what
        ) from None
    if str(number) != text or not -(2**63) <= number < 2**63:
        raise UnknownIdError(f"unknown {what} {_quoted(text)}", text, what)
    return number


def _quoted(text: str) -> str:
    return f"'{cut(text)}'"


def check_not_empty(interactions: Interactions, source: str) -> Interactions:
    if interactions.adopted.nnz == 0:
        raise DataError(f"{source} has no adopted items left; check the thresholds and filters")
    return interactions
