"""Arrow, safetensors and manifest files with contents that milrec would never write, and hashes that are right.

Whoever can write to a folder can do this. The format is that of docs/security.md; `signed` must agree with it, and the
campaign checks that first: an untouched folder that was signed again must be accepted.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
from typing import Any

from torture.damage import NUMBERS, changed_json, damaged, json_bytes, odd_text, odd_value, overwritten
from torture.parquet import not_utf8

Files = dict[str, bytes]
MANIFEST = "milrec.json"


def signed(files: Files) -> Files:
    """The files of a folder with sizes and hashes that are right, also of the manifest itself."""
    manifest = _plain(files.get(MANIFEST, b""))
    if not isinstance(manifest, dict):
        return files
    listed = manifest.get("files")
    if isinstance(listed, dict):
        for name in listed:
            if name in files and isinstance(listed[name], dict):
                content = files[name]
                listed[name] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    said = {name: value for name, value in manifest.items() if name != "sha256"}
    try:
        own = hashlib.sha256(json.dumps(json.loads(json.dumps(said)), sort_keys=True).encode()).hexdigest()
        return {**files, MANIFEST: json_bytes({**said, "sha256": own})}
    except (ValueError, RecursionError, TypeError):
        return files


def _plain(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def forged_manifest(content: bytes, chance: random.Random) -> bytes:
    """Other facts: wrong types, odd numbers, missing and unknown keys."""
    manifest = json.loads(content)
    if chance.random() < 0.85:
        manifest["facts"] = changed_json(manifest["facts"], chance)
        return json_bytes(manifest)
    return json_bytes(changed_json(manifest, chance))


def forged_arrow(content: bytes, chance: random.Random) -> bytes:
    """Another table, or the same with other offsets, lengths and counts."""
    if chance.random() < 0.5:
        for _ in range(chance.choice((1, 1, 2, 4))):
            content = overwritten(content, chance)
        return content
    if chance.random() < 0.2:
        return damaged(content, chance)
    return _other_table(content, chance)


def _other_table(content: bytes, chance: random.Random) -> bytes:
    import pyarrow as pa
    import pyarrow.feather as feather

    table = feather.read_table(io.BytesIO(content))
    try:
        table = _other_pairs(table, chance) if "weight" in table.column_names else _other_ids(table, chance)
        out = io.BytesIO()
        kinds = ("uncompressed", "uncompressed", "lz4", "zstd")
        feather.write_feather(table, out, compression=chance.choice(kinds), chunksize=chance.choice((1, 7, 1 << 20)))
        return out.getvalue()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError, ValueError, TypeError):
        return damaged(content, chance)  # Arrow cannot write this


def _other_pairs(table: Any, chance: random.Random) -> Any:
    import pyarrow as pa

    name = chance.choice(table.column_names)
    place = table.column_names.index(name)
    values = table[name].to_pylist()
    pick = chance.randrange(8)
    if pick == 0:
        return table.drop([name])
    if pick == 1:
        return table.append_column(odd_text(chance)[:40].replace("\ud800", "?"), table[name])
    if pick == 2:
        return table.cast(
            pa.schema(
                [
                    pa.field(one, pa.int64() if one == name else table.schema.field(one).type)
                    for one in table.column_names
                ]
            )
        )
    if pick == 3:
        return table.take(pa.array(chance.sample(range(len(values)), len(values)), type=pa.int64()))
    if pick == 4:
        return table.slice(chance.randrange(len(values) + 1))
    if pick == 5 and values:
        return pa.concat_tables([table, table.slice(0, 1)])
    odd: tuple[Any, ...] = (None, 0, -1, 2**31 - 1, -(2**31), 25, 40)
    if name == "weight":
        odd = (None, 0.0, -1.0, float("nan"), float("inf"), 1e-45, 3e38)
    for _ in range(chance.choice((1, 3))):
        if values:
            values[chance.randrange(len(values))] = chance.choice(odd)
    return table.set_column(place, name, pa.array(values, type=table[name].type))


def _other_ids(table: Any, chance: random.Random) -> Any:
    import pyarrow as pa

    name = chance.choice(table.column_names)
    place = table.column_names.index(name)
    n_rows = table.num_rows
    pick = chance.randrange(9)
    if pick == 0:
        return table.drop([name])
    if pick == 1:
        return table.slice(0, chance.randrange(n_rows + 1))
    if pick == 2:
        return pa.concat_tables([table, table])
    if pick == 3:
        return table.set_column(place, name, not_utf8(n_rows, chance).cast(pa.large_string(), safe=False))
    if pick == 4:
        return table.set_column(place, name, _lying_texts(n_rows, chance))
    if pick == 5:
        return table.set_column(place, name, pa.array(range(n_rows), type=chance.choice((pa.int64(), pa.int32()))))
    values = table[name].to_pylist()
    for _ in range(chance.choice((1, n_rows))):
        values[chance.randrange(n_rows)] = chance.choice((None, "", odd_text(chance).replace("\ud800", "?")))
    return table.set_column(place, name, pa.array(values, type=chance.choice((pa.large_string(), pa.string()))))


def _lying_texts(n_rows: int, chance: random.Random) -> Any:
    """Texts whose offsets lead elsewhere: back, past the end, or nowhere."""
    import pyarrow as pa

    offsets = [2 * number for number in range(n_rows + 1)]
    for _ in range(chance.choice((1, 2))):
        offsets[chance.randrange(1, n_rows)] = chance.choice((0, 2 * n_rows - 1, 2 * n_rows))
    packed = pa.py_buffer(struct.pack(f"<{n_rows + 1}q", *offsets))
    return pa.LargeStringArray.from_buffers(n_rows, packed, pa.py_buffer(b"ab" * n_rows))


def forged_safetensors(content: bytes, chance: random.Random) -> bytes:
    """Another header: names, types, shapes and offsets; or other numbers under a header that is right."""
    size = int.from_bytes(content[:8], "little")
    pick = chance.randrange(6)
    if pick == 0:
        return struct.pack("<Q", chance.choice(NUMBERS) % 2**64) + content[8:]
    if pick == 1:
        return damaged(content, chance)
    if pick == 2:
        return content[: 8 + size] + _odd_floats(content[8 + size :], chance)
    header = json.loads(content[8 : 8 + size])
    if pick == 3:
        entry = header[chance.choice([name for name in header if name != "__metadata__"])]
        key, odd = chance.choice(
            (
                ("dtype", ("F64", "F16", "BF16", "I64", "BOOL", "F8_E4M3", "X")),
                ("shape", ([], [0], [2**32, 2**32], [-1])),
            )
        )
        entry[key] = chance.choice(odd)
    else:
        header = changed_json(header, chance)
    written = json_bytes(header)
    return struct.pack("<Q", len(written)) + written + content[8 + size :]


def _odd_floats(body: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 20))):
        place = 4 * chance.randrange(max(len(body) // 4, 1))
        number = chance.choice((float("nan"), float("inf"), -3e38, 1e-45, 0.0))
        body = body[:place] + struct.pack("<f", number) + body[place + 4 :]
    return body


def forged_json(content: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.2:
        return damaged(content, chance)
    if chance.random() < 0.05:
        return chance.choice((json_bytes(odd_value(chance)), b"[" * 100_000, b'{"a":' * 5_000 + b"1" + b"}" * 5_000))
    return json_bytes(changed_json(json.loads(content), chance))


def forged(name: str, content: bytes, chance: random.Random) -> bytes:
    """A file of a folder, changed as its format allows."""
    if name == MANIFEST:
        return forged_manifest(content, chance)
    if name.endswith(".arrow"):
        return forged_arrow(content, chance)
    if name.endswith(".safetensors"):
        return forged_safetensors(content, chance)
    return forged_json(content, chance) if name.endswith(".json") else damaged(content, chance)
