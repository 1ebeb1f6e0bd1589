"""Lists as tables: user, rank, item, title (where known), score, popularity, tail, and reasons and unmet rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milrec.answering import Listed
from milrec.asking import Asked, Wanted
from milrec.catalogue import TAIL_NAMES, Catalogue
from milrec.interactions import Interactions


def list_schema(train: Interactions, wish: Wanted, users: bool) -> pa.Schema:
    """`reasons` and `unmet` are texts, so that every kind of file can hold them."""
    fields = [("user", train.users["id"].type)] if users else []
    fields += [("rank", pa.int32()), ("item", train.items["id"].type)]
    if "title" in train.items.column_names:
        fields.append(("title", train.items["title"].type))
    fields += [("score", pa.float32()), ("popularity", pa.int32()), ("tail", pa.string())]
    fields += [("reasons", pa.string())] if wish.reasons else []
    fields += [("unmet", pa.string())] if wish.rules or wish.reasons else []
    return pa.schema(fields)


def list_batch(
    train: Interactions, catalogue: Catalogue, asked: Sequence[Asked], lists: Sequence[Listed], schema: pa.Schema
) -> pa.RecordBatch:
    """Lists below each other."""
    lengths = [len(one.items) for one in lists]
    items = np.concatenate([one.items for one in lists])
    columns: dict[str, Any] = {"rank": np.concatenate([np.arange(1, n + 1) for n in lengths]).astype(np.int32)}
    if "user" in schema.names:
        rows = pa.array(np.repeat([one.row for one in asked], lengths).astype(np.int64))
        columns["user"] = train.users["id"].take(rows).combine_chunks()
    columns |= item_columns(train, catalogue, items)
    columns["score"] = np.concatenate([one.scores for one in lists])
    if "reasons" in schema.names:
        columns["reasons"] = [
            text for who, one in zip(asked, lists, strict=True) for text in _texts(catalogue, who, one)
        ]
    if "unmet" in schema.names:
        columns["unmet"] = [text for one in lists for text in ["; ".join(one.unmet)] * len(one.items)]
    return pa.RecordBatch.from_pydict({name: columns[name] for name in schema.names}, schema=schema)


def item_columns(train: Interactions, catalogue: Catalogue, items: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
    """Item, title (where known), popularity, tail."""
    table = train.items.take(pa.array(items))
    columns = {"item": table["id"].combine_chunks()}
    if "title" in table.column_names:
        columns["title"] = table["title"].combine_chunks()
    columns["popularity"] = pa.array(catalogue.popularity[items].astype(np.int32))
    columns["tail"] = pa.array(TAIL_NAMES).take(pa.array(catalogue.intervals[items]))
    return columns


def _texts(catalogue: Catalogue, asked: Asked, listed: Listed) -> list[str]:
    """For each item its reasons: `Alien (0.41); Heat (0.2)`."""

    def name(place: int) -> str:
        item = int(asked.adopted[place])
        return catalogue.titles[item] or str(catalogue.item_ids[item])

    return ["; ".join(f"{name(place)} ({weight:.3g})" for place, weight in why) for why in listed.reasons]
