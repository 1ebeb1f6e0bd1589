"""CSV, TSV, gzip and Parquet tables: valid small ones, changed in their structure and in their bytes.

What is accepted is compared with Python's csv module, or with the Parquet file's own columns.
"""

from __future__ import annotations

import gzip
import io
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from torture import oracle
from torture.cases import Case
from torture.commands import command_here, verdict
from torture.damage import damaged, odd_text, utf8
from torture.verdicts import Outcome, accepted

_NAMES = ("t.csv", "t.csv", "t.csv", "t.tsv", "t.txt", "t.csv.gz", "t.tsv.gz")
_TIMES = (
    "0", "1700000000", "1700000000000000001", "1700000000000000002", "-5", "2024-01-31", "2024-02-30",
    "2024-01-31T10:00:00Z", "2024-01-31 10:00:00.123456789", "31/01/2024", "1e9", "9999-12-31", "0001-01-01",
    "2024-01-31T10:00:00+25:00", "",
)  # fmt: skip
_VALUES = (
    "1", "2", "3", "4", "5", "4.5", "0", "0.1", "1e3", "7 ", "+3", "-1", "", "nan", "1e39", "9007199254740993", "x",
)  # fmt: skip


def make_table(chance: random.Random) -> Case:
    """A text table and how to read it; most are changed in their bytes too."""
    name = chance.choice(_NAMES)
    names, options = _columns(chance)
    if chance.random() < 0.001:
        facts: dict[str, Any] = {
            "name": "t.csv",
            "how": "multiline",
            "options": {},
            "width": chance.choice((100, 257, 1000)),
        }
        return Case("inputs", "table", facts)
    content = _text(names, _rows(names, chance), name, chance)
    if chance.random() < 0.6:
        content = damaged(content, chance)
    if name.endswith(".gz"):
        content = gzip.compress(content, mtime=0)
        content = damaged(content, chance) if chance.random() < 0.3 else content
    files = {name: content}
    if chance.random() < 0.1:
        options["titles"] = "titles.csv"
        files["titles.csv"] = _titles(chance)
    how = chance.choice(("library", "library", "library", "command", "multiline"))
    return Case("inputs", "table", {"name": name, "how": how, "options": options}, files)


def _columns(chance: random.Random) -> tuple[list[str], dict[str, Any]]:
    """Names of columns, and the options to read them."""
    user, item = chance.choice(
        (("user", "item"), ("user", "item"), ("userId", "movieId"), ("who", "what"), ("User", "item"))
    )
    names, options = [user, item], dict[str, Any]()
    if user == "who" or chance.random() < 0.2:
        options |= {"user": user, "item": item}
    for name in ("rating", "time", "title", "test"):
        if chance.random() < 0.3:
            names.append(name)
    if "rating" in names and chance.random() < 0.7:
        options["value"] = "rating"
        if "time" in names:
            options |= {"time": "time", "adopt_min": 4, "reject_max": 3, "min_per_item": 0}
    if "test" in names and chance.random() < 0.5:
        options["where"] = {"test": chance.choice(("0", "1", "true", "", "01", odd_text(chance)[:50]))}
    if chance.random() < 0.03:
        names += [chance.choice(("User", "ITEM ", " user", "item_id", user, "", odd_text(chance)[:100]))]
    if chance.random() < 0.01:
        names += [f"c{number}" for number in range(chance.choice((50, 500, 2000)))]
    if chance.random() < 0.3:
        chance.shuffle(names)
    return names, options


def _rows(names: list[str], chance: random.Random) -> list[list[str]]:
    pool = [f"u{number}" for number in range(chance.choice((1, 3, 9)))] + [
        " padded ",
        "007",
        "é",
        "a,b",
        'say "x"',
        "NA",
    ]
    odd = chance.random() < 0.15
    rows = []
    for _ in range(chance.choice((0, 1, 2, 5, 20, 60))):
        rows.append([_field(name, pool, odd and chance.random() < 0.1, chance) for name in names])
    return rows


def _field(name: str, pool: list[str], odd: bool, chance: random.Random) -> str:
    if odd:
        return odd_text(chance)
    if name == "rating":
        return chance.choice(_VALUES[: chance.choice((5, 5, 5, 10, len(_VALUES)))])
    if name == "time":
        return chance.choice(_TIMES[: chance.choice((4, 4, 4, 5, len(_TIMES)))])
    if name == "test":
        return chance.choice(("0", "1", "01", "true", "False", "x", ""))
    if name == "title":
        return chance.choice(("A title", "Two\nlines", 'A "quoted" one', "", "semi;colon"))
    return chance.choice(pool)


def _text(names: list[str], rows: list[list[str]], name: str, chance: random.Random) -> bytes:
    delimiter = "\t" if ".tsv" in name else chance.choice((",", ",", ",", "\t", ";", "|"))
    end = chance.choice(("\n", "\n", "\n", "\r\n", "\r"))
    always = chance.random() < 0.15
    never = chance.random() < 0.05

    def written(field: str) -> str:
        special = any(character in field for character in (delimiter, '"', "\n", "\r"))
        if never or not (special or always):
            return field
        return '"' + field.replace('"', '""') + '"'

    lines = [delimiter.join(map(written, row)) for row in [names, *rows]]
    text = end.join(lines) + (end if chance.random() < 0.8 else "")
    encoding = chance.choice(("utf-8",) * 8 + ("utf-8-sig", "latin-1", "utf-16"))
    return utf8(text) if encoding == "utf-8" else text.encode(encoding, "replace")


def several_blocks(width: int) -> bytes:
    """More than the 16 MiB that are read at a time, with quoted line breaks."""
    block = "".join(f'u{number % 97},i{number % 89},"{"x" * width}\nnobody,nothing,lines"\n' for number in range(1000))
    return ("user,item,title\n" + block * ((17 << 20) // len(block))).encode()


def _titles(chance: random.Random) -> bytes:
    rows = [f"u{number},Title {number}" for number in range(8)] + ["u9,\x1b[2Jgone", '007,"two\nlines"', "é,"]
    content = "\n".join(["item,title", *rows]).encode()
    return damaged(content, chance) if chance.random() < 0.7 else content


def run_table(case: Case, place: Path) -> Outcome:
    """Read the table and compare what was accepted with what is there."""
    case.write_files(place)
    facts, name = case.facts, case.facts["name"]
    content = several_blocks(facts["width"]) if "width" in facts else case.files[name]
    (place / name).write_bytes(content)
    options = {**facts["options"]}
    if "titles" in options:
        options["titles"] = place / options["titles"]
    if facts["how"] == "library":
        data, counted = read_here(place / name, options)
    else:
        end = command_here(["prepare", name, "--out", "data", *_as_options(facts), *_conditions(facts)], place)
        outcome = verdict(end)
        if outcome is not accepted:
            return outcome
        data, counted = opened_data(place / "data")
    if isinstance(data, Outcome):
        return data
    return compared(data, content, facts, counted)


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
    """A refusal, if it is one sentence."""
    text = str(error)
    if not text or "\n" in text or len(text) > 3_000:
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


def _as_options(facts: dict[str, Any]) -> list[str]:
    own = {name: value for name, value in facts["options"].items() if name != "where"}
    options = [text for name, value in own.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    return [*options, "--multiline"] if facts["how"] == "multiline" else options


def _conditions(facts: dict[str, Any]) -> list[str]:
    """As a shell would pass them on: no NUL, and bytes that are no text in Python's disguise."""
    where = facts["options"].get("where", {}).items()
    return [as_argument(text) for name, value in where for text in ("--where", f"{name}={value}")]


def as_argument(text: str) -> str:
    return text.replace("\0", "").replace("\ud800", "\udcff")


def compared(data: Any, content: bytes, facts: dict[str, Any], counted: int) -> Outcome:
    """Whether all rows of a text table arrived, and only those."""
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
    user = options.get("user") or next((name for name in ("user", "userId", "User") if name in names), None)
    item = options.get("item") or next((name for name in ("item", "movieId") if name in names), None)
    if user is None or item is None or names.count(user) > 1 or names.count(item) > 1:
        return None
    return user, item


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


def parquet_bytes(table: Any, chance: random.Random) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    how = {
        "compression": chance.choice(("none", "snappy", "gzip", "zstd")),
        "use_dictionary": chance.random() < 0.5,
        "data_page_version": chance.choice(("1.0", "2.0")),
        "row_group_size": chance.choice((2, 1000)),
    }
    try:
        pq.write_table(table, out, **how)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pq.write_table(pa.table({"user": ["a"], "item": ["b"]}), out)
    return out.getvalue()
