"""Parquet files whose columns have every type there is, with gaps, odd numbers and bytes that are not text."""

from __future__ import annotations

import datetime
import decimal
import random
from collections import Counter
from pathlib import Path
from typing import Any

from torture.cases import Case
from torture.commands import command_here, verdict
from torture.damage import NUMBERS, damaged, odd_text
from torture.reading import found_pairs, opened_data, read_here, same_pairs
from torture.tables import parquet_bytes
from torture.verdicts import Outcome, accepted


def make_parquet(chance: random.Random) -> Case:
    import pyarrow as pa

    n_rows = chance.choice((0, 1, 3, 30))
    columns = {"user": _ids(n_rows, chance), "item": _ids(n_rows, chance)}
    options: dict[str, Any] = {}
    if chance.random() < 0.5:
        columns["rating"] = _numbers(n_rows, chance)
        options["value"] = "rating"
        if chance.random() < 0.5:
            columns["time"] = _times(n_rows, chance)
            options |= {"time": "time", "adopt_min": 3}
    if chance.random() < 0.1:
        columns["User"] = _ids(n_rows, chance)
    content = parquet_bytes(pa.table(columns), chance)
    intact = chance.random() < 0.4
    content = content if intact else damaged(content, chance)
    how = chance.choice(("library",) * 4 + ("command",))
    return Case("inputs", "parquet", {"how": how, "intact": intact, "options": options}, {"t.parquet": content})


def _ids(n_rows: int, chance: random.Random) -> Any:
    import pyarrow as pa

    pick = chance.randrange(12)
    texts = [chance.choice(("a", "b", "é", "", odd_text(chance).replace("\ud800", "?")[:200])) for _ in range(n_rows)]
    plain = [f"u{chance.randrange(9)}" for _ in range(n_rows)]
    numbers = [chance.randrange(-5, 50) for _ in range(n_rows)]
    if pick < 3:
        return pa.array(plain)
    if pick < 5:
        return pa.array(numbers, type=chance.choice((pa.int8(), pa.int32(), pa.int64())))
    if pick == 5:
        return pa.array(texts, type=chance.choice((pa.string(), pa.large_string(), pa.string_view())))
    if pick == 6:
        return pa.array(plain).dictionary_encode()
    if pick == 7:
        return pa.array([chance.choice((0, 2**63, 2**64 - 1)) for _ in range(n_rows)], type=pa.uint64())
    if pick == 8:
        return pa.array([None if chance.random() < 0.3 else text for text in plain], type=pa.string())
    if pick == 9:
        return not_utf8(n_rows, chance)
    if pick == 10:
        return pa.array([text.encode() for text in plain], type=chance.choice((pa.binary(), pa.large_binary())))
    odd = ([1.5] * n_rows, [True] * n_rows, [[1]] * n_rows, [{"a": 1}] * n_rows, [None] * n_rows,
           [datetime.date(2024, 1, 31)] * n_rows, [decimal.Decimal("1.5")] * n_rows)  # fmt: skip
    return pa.array(chance.choice(odd))


def not_utf8(n_rows: int, chance: random.Random) -> Any:
    """Texts whose bytes are none."""
    import pyarrow as pa

    bad = [chance.choice((b"ok", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"u1")) for _ in range(n_rows)]
    array = pa.array(bad, type=pa.binary())
    return pa.StringArray.from_buffers(n_rows, array.buffers()[1], array.buffers()[2])


def _numbers(n_rows: int, chance: random.Random) -> Any:
    import pyarrow as pa

    pick = chance.randrange(8)
    if pick < 3:
        return pa.array([chance.randrange(1, 6) for _ in range(n_rows)])
    if pick == 3:
        return pa.array([chance.choice((1.0, 4.5, float("nan"), float("inf"), -1.0, 1e300)) for _ in range(n_rows)])
    if pick == 4:
        whole = [number for number in NUMBERS if -(2**63) <= number < 2**63]
        return pa.array([chance.choice(whole) for _ in range(n_rows)], type=pa.int64())
    if pick == 5:
        return pa.array([decimal.Decimal("4.50")] * n_rows)
    if pick == 6:
        return pa.array([chance.choice((4, None)) for _ in range(n_rows)], type=pa.float32())
    return chance.choice((pa.array(["5"] * n_rows), pa.array([True] * n_rows), pa.nulls(n_rows)))


def _times(n_rows: int, chance: random.Random) -> Any:
    import pyarrow as pa

    pick = chance.randrange(6)
    numbers = [chance.choice((0, 1, 10**9, 1_700_000_000_000_000_001, -(2**62))) for _ in range(n_rows)]
    if pick == 0:
        return pa.array(numbers, type=pa.int64())
    if pick == 1:
        unit, zone = chance.choice(("s", "ms", "us", "ns")), chance.choice((None, "UTC", "Europe/Berlin", "nowhere"))
        return pa.array([number % 10**9 for number in numbers], type=pa.timestamp(unit, zone))
    if pick == 2:
        return pa.array([datetime.date(chance.randrange(1, 9999), 1, 1) for _ in range(n_rows)])
    if pick == 3:
        return pa.array([number % 86_400 for number in numbers], type=chance.choice((pa.time32("s"), pa.duration("s"))))
    if pick == 4:
        return pa.array([chance.choice(("2024-01-31", "x", "1700000000")) for _ in range(n_rows)])
    return pa.array([number * 1.5 for number in numbers])


def run_parquet(case: Case, place: Path) -> Outcome:
    case.write_files(place)
    options, path = case.facts["options"], place / "t.parquet"
    if case.facts["how"] == "library":
        data, _ = read_here(path, options)
    else:
        given = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
        end = command_here(["prepare", path.name, "--out", "data", *given], place)
        outcome = verdict(end)
        if outcome is not accepted:
            return outcome
        data, _ = opened_data(place / "data")
    if isinstance(data, Outcome):
        return data
    found = found_pairs(data)  # decodes every id
    return _compared(found, path) if case.facts["intact"] and not options else accepted


def _compared(found: dict[tuple[str, str], float], path: Path) -> Outcome:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    try:
        columns = [table[name].to_pylist() for name in ("user", "item")]
    except UnicodeDecodeError:
        return Outcome("silent loss", "accepted, although an id is not UTF-8")
    if any(value is None for column in columns for value in column):
        return Outcome("silent loss", "accepted, although an id is missing")
    return same_pairs(found, Counter(zip(*(map(str, column) for column in columns), strict=True)))
