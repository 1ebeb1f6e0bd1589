"""CSV, TSV, gzip and Parquet tables: valid small ones, changed in their structure and in their bytes.

What is accepted is compared with Python's csv module, or with the Parquet file's own columns.
"""

from __future__ import annotations

import gzip
import io
import random
from pathlib import Path
from typing import Any

from torture.cases import Case
from torture.commands import command_here, verdict
from torture.damage import damaged, odd_text, utf8
from torture.reading import compared, opened_data, read_here, same_titles
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
    how = chance.choice(("library",) * 6 + ("command", "multiline"))
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
        options["where"] = {"test": chance.choice(("0", "1", "true", "", "01", as_argument(odd_text(chance)[:50])))}
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
    found = compared(data, content, facts, counted)
    return same_titles(data, case.files["titles.csv"]) if found is accepted and "titles" in options else found


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
