"""What was read, and whether it is what was there: every row, no other, and refusals of one sentence."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from torture import oracle
from torture.verdicts import Outcome, accepted


def read_here(path: Path, options: dict[str, Any]) -> tuple[Any, int]:
    """Interactions, or that they were refused; the library says nothing of rows that it dropped."""
    import milrec

    try:
        return milrec.read(path, **options), 0
    except milrec.MilrecError as error:
        return refusal(error), 0
    except MemoryError:
        return Outcome("refused", "there is not enough memory"), 0


def refusal(error: Exception) -> Outcome:
    """A refusal, if it is not too long; a value in it may have line breaks, which the command line takes care of."""
    text = str(error)
    if not text or len(text) > 3_000:
        return Outcome("not one sentence", f"{type(error).__name__} of {len(text)} characters: {text[:300]!r}")
    return Outcome("refused", text)


def opened_data(folder: Path) -> tuple[Any, int]:
    """Interactions from a data folder, and how many rows it says were dropped."""
    import milrec

    return milrec.Interactions.load(folder), rows_dropped(facts_of(folder))


def facts_of(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / "milrec.json").read_text(encoding="utf-8"))["facts"]
    return facts


def rows_dropped(facts: dict[str, Any]) -> int:
    """How many rows the facts of a data folder count as dropped."""
    others = ("rows_in_source", "rows_neither_adopted_nor_rejected")
    return sum(count for name, count in facts.items() if name.startswith("rows_") and name not in others)


def compared(data: Any, content: bytes, facts: dict[str, Any], counted: int) -> Outcome:
    """Whether all rows of a text table arrived, and only those; `counted` are those that were dropped with a word."""
    options = facts["options"]
    try:
        table = oracle.read_table(content, facts["name"])
        columns = _chosen(table.names, options)
        if columns is None:
            return accepted
        for name, value in options.get("where", {}).items():
            table = table.where(name, value)
        if table.ragged and counted < table.ragged:
            raise oracle.Unreadable(f"{table.ragged} rows have another number of fields")
        if "adopt_min" in options:
            return _same_ratings(data, table, columns, options)
        if "value" in options:
            return _same_sums(found_pairs(data), oracle.pair_sums(table, *columns, options["value"]))
        return same_pairs(found_pairs(data), oracle.pair_counts(table, *columns))
    except oracle.Unreadable as error:
        return Outcome("silent loss", f"accepted, although {error}")


def _chosen(names: list[str], options: dict[str, Any]) -> tuple[str, str] | None:
    """The columns of users and items; None where it is a matter of taste which they are."""
    wanted = [*(options.get(one) for one in ("user", "item", "value", "time")), *options.get("where", {})]
    if any(name is not None and names.count(name) != 1 for name in wanted):
        raise oracle.Unreadable("a column that is needed is missing, or there twice")
    user = options.get("user") or _recognised(names, "user", "userid")
    item = options.get("item") or _recognised(names, "item", "itemid", "movieid")
    return None if user is None or item is None else (user, item)


def _recognised(names: list[str], plain: str, *others: str) -> str | None:
    """The plain name if it is there, otherwise the only one that could be meant."""
    if names.count(plain) == 1:
        return plain
    meant = [name for name in names if re.sub("[ _]", "", name.lower()) in (plain, *others)]
    return meant[0] if len(meant) == 1 else None


def found_pairs(data: Any) -> dict[oracle.Pair, float]:
    users, items = (table["id"].to_pylist() for table in (data.users, data.items))
    pairs = data.adopted.tocoo()
    rows = zip(pairs.row.tolist(), pairs.col.tolist(), pairs.data.tolist(), strict=True)
    return {(str(users[user]), str(items[item])): weight for user, item, weight in rows}


def same_pairs(found: dict[oracle.Pair, float], expected: Counter[oracle.Pair]) -> Outcome:
    if sum(found.values()) != sum(expected.values()):
        return Outcome("silent loss", f"{sum(found.values()):g} rows of {sum(expected.values())}")
    if found != expected:
        return Outcome("silent loss", f"other pairs: {_difference(found, expected)}")
    return accepted


def _same_sums(found: dict[oracle.Pair, float], expected: dict[oracle.Pair, float]) -> Outcome:
    if found.keys() != expected.keys():
        return Outcome("silent loss", f"other pairs: {_difference(found, expected)}")
    wrong = [pair for pair, total in expected.items() if abs(found[pair] - total) > 1e-6 * total]
    return Outcome("silent loss", f"another value for {wrong[0]!r:.200}") if wrong else accepted


def _same_ratings(data: Any, table: oracle.Table, columns: tuple[str, str], options: dict[str, Any]) -> Outcome:
    latest = oracle.latest_values(table, (*columns, options["value"], options["time"]))
    if latest is None:
        return accepted
    expected = {pair for pair, rating in latest.items() if rating >= options["adopt_min"]}
    found = found_pairs(data).keys()
    return accepted if found == expected else Outcome("silent loss", f"other ratings: {_difference(found, expected)}")


def _difference(found: Any, expected: Any) -> str:
    missing, added = [pair for pair in expected if pair not in found], [pair for pair in found if pair not in expected]
    return f"{len(missing)} missing {missing[:2]!r:.150}, {len(added)} added {added[:2]!r:.150}"


def same_titles(data: Any, content: bytes) -> Outcome:
    """Whether items have the titles of a table in which their id occurs once."""
    try:
        table = oracle.read_table(content, "titles.csv")
    except oracle.Unreadable as error:
        return Outcome("silent loss", f"titles are accepted, although {error}")
    if table.names != ["item", "title"] or "title" not in data.items.column_names:
        return accepted
    if table.ragged:
        return Outcome("silent loss", f"titles are accepted, although {table.ragged} rows have other fields")
    times = Counter(table.column("item"))
    known = {item: title for item, title in table.rows if times[item] == 1 and title}
    for item, title in zip(data.items["id"].to_pylist(), data.items["title"].to_pylist(), strict=True):
        if str(item) in known and title != known[str(item)]:
            return Outcome("silent loss", f"item {item!r:.50} has the title {title!r:.100}")
    return accepted
