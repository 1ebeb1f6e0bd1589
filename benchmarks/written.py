"""python -m benchmarks.written: what it costs to write an answer down, by the ways that there are.

orjson and msgspec are measured where they are installed; milrec does not need them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from benchmarks.clock import in_turns
from benchmarks.served import model_folder
from milrec.lists.answer import answer_of
from milrec.lists.query import Query
from milrec.recommender import Recommender
from milrec.server.answers import RecommendAnswer
from milrec.server.written import Writer

_SIZES = ((20, 0), (1_000, 0), (1_000, 3))  # items and reasons
_TIMES = 200_000  # items for each figure
_STANDARD = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.written", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-serve"), help="folder for the model")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    recommender = Recommender.load(model_folder(out))
    table = Table("µs", *(f"{n:,} items, {reasons} reasons" for n, reasons in _SIZES))
    columns = [_microseconds(recommender, n, reasons) for n, reasons in _SIZES]
    for name in columns[0]:
        table.add_row(name, *(f"{column[name]:,.0f}" for column in columns))
    Console().print(table)


def _microseconds(recommender: Recommender, n: int, reasons: int) -> dict[str, float]:
    """For lists of several users, one after another."""
    asked = [recommender.ask(Query(user, n=n, reasons=reasons)) for user in recommender.user_ids[:20]]
    lists = list(zip(asked, recommender.listed(asked), strict=True))
    tables = [_table(answer_of(recommender.catalogue, one, listed)) for one, listed in lists]
    writer, form = Writer("model", recommender.catalogue), TypeAdapter(RecommendAnswer)
    assert writer.written(*lists[0]) == _STANDARD(tables[0])
    ways: dict[str, Callable[[], Any]] = {
        "milrec: straight from the list": lambda: [writer.written(*one).encode() for one in lists],
        "the table that all others need first": lambda: [
            _table(answer_of(recommender.catalogue, *one)) for one in lists
        ],
        "+ json of the standard library": lambda: [_STANDARD(one).encode() for one in tables],
        "+ pydantic, as a response model": lambda: [form.dump_json(form.validate_python(one)) for one in tables],
    }
    for package, write in (("orjson", "dumps"), ("msgspec", "json.encode")):
        if find_spec(package) is not None:
            found: Any = import_module(package)
            for part in write.split("."):
                found = getattr(found, part)
            ways[f"+ {package}"] = lambda encode=found: [encode(one) for one in tables]  # type: ignore[misc]
    rounds = max(_TIMES // (n * len(lists) * (1 + reasons)), 5)
    return {name: 1e6 * spent / len(lists) for name, spent in in_turns(ways, rounds).items()}


def _table(answer: Any) -> dict[str, Any]:
    items = [
        {
            "rank": one.rank,
            "item": str(one.item),
            "title": one.title,
            "score": one.score,
            "probability": one.probability,
            "popularity": one.popularity,
            "tail": one.tail,
            "place": one.place,
            "reasons": [{"item": str(r.item), "title": r.title, "weight": r.weight} for r in one.reasons],
        }
        for one in answer.items
    ]
    return {
        "model": "model",
        "items": items,
        "unmet": list(answer.unmet),
        "shares": answer.shares,
        "mean_popularity": answer.mean_popularity,
        "expected_hits": answer.expected_hits,
        "price": None,
    }


if __name__ == "__main__":
    main()
