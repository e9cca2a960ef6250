"""Rows straight from the pages of an SQLite file, for what a broken tree no longer leads to.

The file format: https://www.sqlite.org/fileformat2.html, sections 1.6 (pages) and 2.1 (records).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

Value = int | float | str | bytes | None
LEAF = 13
"""First byte of a page that has rows of a table."""
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""Bytes of an integer by its serial type."""


def rows(path: str | Path) -> Iterator[tuple[int, list[Value]]]:
    """Row id and columns of every row that a page of the file has whole, of whichever table."""
    with Path(path).open("rb") as file:
        if file.seek(0, 2) < 512:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            size = _page_size(raw)
            usable = size - (raw[20] if raw[20] <= 32 else 0)
            for begin in range(0, len(raw) - size + 1, size):
                yield from _rows_of_page(raw, begin, size, usable)


def _page_size(raw: mmap.mmap) -> int:
    size = int.from_bytes(raw[16:18], "big")
    size = 65536 if size == 1 else size
    return size if size >= 512 and size & (size - 1) == 0 else 4096


def _rows_of_page(
    raw: mmap.mmap, begin: int, size: int, usable: int
) -> Iterator[tuple[int, list[Value]]]:
    page = raw[begin : begin + size]
    head = 100 if begin == 0 else 0
    if page[head] != LEAF:
        return
    for place in range(int.from_bytes(page[head + 3 : head + 5], "big")):
        pointer = head + 8 + 2 * place
        try:
            length, cell = _varint(page, int.from_bytes(page[pointer : pointer + 2], "big"))
            number, cell = _varint(page, cell)
            yield number, _record(_payload(raw, page[cell:usable], length, size, usable))
        except (IndexError, ValueError, struct.error):  # overwritten
            continue


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for step in range(8):
        byte = data[place + step]
        value = value << 7 | byte & 127
        if byte < 128:
            return value, place + step + 1
    return value << 8 | data[place + 8], place + 9


def _payload(raw: mmap.mmap, cell: bytes, length: int, size: int, usable: int) -> bytes:
    """The bytes of a record; what does not fit its page goes on in a chain of others."""
    most, least = usable - 35, (usable - 12) * 32 // 255 - 23
    if length <= most:
        return cell[:length]
    here = least + (length - least) % (usable - 4)
    here = here if here <= most else least
    parts, left, page = [cell[:here]], length - here, cell[here : here + 4]
    while left > 0:
        begin = (int.from_bytes(page, "big") - 1) * size
        if begin < size or begin + size > len(raw):
            raise ValueError("leads out of the file")
        page = raw[begin : begin + 4]
        parts.append(raw[begin + 4 : begin + 4 + min(left, usable - 4)])
        left -= len(parts[-1])
    return b"".join(parts)


def _record(payload: bytes) -> list[Value]:
    end, place = _varint(payload, 0)
    body, values = end, []
    while place < end:
        kind, place = _varint(payload, place)
        value, body = _value(payload, kind, body)
        values.append(value)
    if body != len(payload):
        raise ValueError("not a record")
    return values


def _value(payload: bytes, kind: int, begin: int) -> tuple[Value, int]:
    if kind in (0, 8, 9):
        return {0: None, 8: 0, 9: 1}[kind], begin
    if kind in _INTEGERS:
        end = begin + _INTEGERS[kind]
        return int.from_bytes(payload[begin:end], "big", signed=True), end
    if kind == 7:
        return struct.unpack(">d", payload[begin : begin + 8])[0], begin + 8
    if kind < 12:
        raise ValueError("no such type")
    end = begin + (kind - 12) // 2
    part = payload[begin:end]
    return part.decode("utf-8") if kind % 2 else part, end
