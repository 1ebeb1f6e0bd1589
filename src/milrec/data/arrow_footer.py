"""Whether an Arrow file is compressed: read from its footer and headers, before anything is unpacked.

milrec writes its Arrow files uncompressed, so that they can be mapped. One that unpacks to more than its own size did
not come from milrec, and a small one could fill the memory. pyarrow does not say it beforehand; the few numbers that do
are looked up here, in the flatbuffers of Arrow's format (format/File.fbs and Message.fbs).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from mmap import mmap

_MAGIC = b"ARROW1"
_BLOCK = 24  # bytes: offset, length of the header, length of the body
_DICTIONARIES, _RECORD_BATCHES = 2, 3  # fields of the footer
_HEADER_TYPE, _HEADER = 1, 2  # fields of a message
_DICTIONARY_BATCH, _DATA, _COMPRESSION = 2, 1, 3


def is_compressed(file: mmap) -> bool:
    """Whether any part of an Arrow file is compressed; a ValueError if it is not an Arrow file."""
    try:
        return any(_part_is_compressed(file, offset) for offset in _parts(file))
    except (struct.error, IndexError, OverflowError):
        raise ValueError("its parts are not where they should be") from None


def _parts(file: mmap) -> Iterator[int]:
    """Where the parts of a file begin."""
    if file[-len(_MAGIC) :] != _MAGIC:
        raise ValueError("it does not end as an Arrow file does")
    footer = len(file) - len(_MAGIC) - 4 - _number(file, "<i", len(file) - len(_MAGIC) - 4)
    root = footer + _number(file, "<I", footer)
    for field in (_DICTIONARIES, _RECORD_BATCHES):
        place = _place_of(file, root, field)
        if place is not None:
            blocks = place + _number(file, "<I", place)
            for number in range(_number(file, "<I", blocks)):
                yield _number(file, "<q", blocks + 4 + _BLOCK * number)


def _part_is_compressed(file: mmap, offset: int) -> bool:
    start = offset + (8 if file[offset : offset + 4] == b"\xff\xff\xff\xff" else 4)
    message = start + _number(file, "<I", start)
    kind, header = _place_of(file, message, _HEADER_TYPE), _place_of(file, message, _HEADER)
    if kind is None or header is None:
        raise ValueError("one of its parts has no header")
    batch = header + _number(file, "<I", header)
    if file[kind] == _DICTIONARY_BATCH:
        data = _place_of(file, batch, _DATA)
        if data is None:
            return False
        batch = data + _number(file, "<I", data)
    return _place_of(file, batch, _COMPRESSION) is not None


def _place_of(file: mmap, table: int, field: int) -> int | None:
    """Where a field of a table is; None if the table does not have it."""
    fields = table - _number(file, "<i", table)
    if 4 + 2 * field >= _number(file, "<H", fields):
        return None
    offset = _number(file, "<H", fields + 4 + 2 * field)
    return table + offset if offset else None


def _number(file: mmap, kind: str, place: int) -> int:
    if place < 0:  # struct counts these from the end
        raise IndexError(place)
    found: int = struct.unpack_from(kind, file, place)[0]
    return found
