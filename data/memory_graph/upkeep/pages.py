"""Reader of table rows from the pages of an SQLite file, without its B-trees.

For damaged files. The ``.recover`` command of SQLite's shell is no substitute: it needs a build
option that Debian's shell lacks, saves nothing once the first page is overwritten, and pads a text
that the end of the file cuts with zeros. File format: https://www.sqlite.org/fileformat2.html,
sections 1.6 (pages) and 2.1 (records).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

Value = int | float | str | bytes | None
COPIES = 4
"""Largest share of the file that rows take on pages behind their own: a page that is not used any
more names pages that another one names too."""
MAX_COLUMNS = 100
LEAF = 13
"""First byte of a page with rows of a table."""
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""Size of an integer in bytes by serial type."""


class _Budget:
    """Bytes that rows may still take: a forged file names the same pages again and again.

    Args:
        left: so many at first.
    """

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, size: int) -> None:
        """Take bytes.

        Raises:
            ValueError: there are not as many.
        """
        if size > self.left:
            raise ValueError("more than there can be")
        self.left -= size


def rows(path: str | Path) -> Iterator[tuple[int, list[Value]]]:
    """Yield row id and columns of every complete row of any table.

    The cells of a page take no more than the page, and what continues on other pages no more than
    ``COPIES`` times the file, whatever the file says.
    """
    with Path(path).open("rb") as file:
        if file.seek(0, 2) < 512:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            size = _page_size(raw)
            usable = size - (raw[20] if raw[20] <= 32 else 0)
            elsewhere = _Budget(COPIES * len(raw))
            for begin in range(0, len(raw) - size + 1, size):
                yield from _rows_of_page(raw, begin, size, usable, elsewhere)


def _page_size(raw: mmap.mmap) -> int:
    size = int.from_bytes(raw[16:18], "big")
    size = 65536 if size == 1 else size
    return size if size >= 512 and size & (size - 1) == 0 else 4096


def _rows_of_page(
    raw: mmap.mmap, begin: int, size: int, usable: int, elsewhere: _Budget
) -> Iterator[tuple[int, list[Value]]]:
    page = raw[begin : begin + size]
    head = 100 if begin == 0 else 0
    if page[head] != LEAF:
        return
    here = _Budget(size)
    count = int.from_bytes(page[head + 3 : head + 5], "big")
    pointers = page[head + 8 : head + 8 + 2 * count]
    cells = (int.from_bytes(pointers[at : at + 2], "big") for at in range(0, len(pointers), 2))
    for pointer in dict.fromkeys(cells):
        try:
            length, cell = _varint(page, pointer)
            row_id, cell = _varint(page, cell)
            if row_id >= 2**63:
                continue
            payload = _payload(raw, page[cell:usable], length, size, usable, here, elsewhere)
            yield row_id, _record(payload)
        except (IndexError, ValueError, struct.error):  # overwritten
            continue


def _varint(data: bytes, begin: int) -> tuple[int, int]:
    """Return an integer of one to nine bytes and the position behind it."""
    value = 0
    for step in range(8):
        byte = data[begin + step]
        value = value << 7 | byte & 127
        if byte < 128:
            return value, begin + step + 1
    return value << 8 | data[begin + 8], begin + 9


def _payload(
    raw: mmap.mmap,
    cell: bytes,
    length: int,
    size: int,
    usable: int,
    local: _Budget,
    elsewhere: _Budget,
) -> bytes:
    """Return the bytes of a record, which may continue on a chain of overflow pages.

    Raises:
        ValueError: the record is longer than the file (the chain may be a circle), or the chain
            leaves the file.
    """
    if length > len(raw):
        raise ValueError("longer than the file")
    most, least = usable - 35, (usable - 12) * 32 // 255 - 23
    if length <= most:
        local.take(length)
        return cell[:length]
    here = least + (length - least) % (usable - 4)
    here = here if here <= most else least
    local.take(here)
    elsewhere.take(length - here)
    parts, left, page = [cell[:here]], length - here, cell[here : here + 4]
    while left > 0:
        begin = (int.from_bytes(page, "big") - 1) * size
        if begin < size or begin + size > len(raw):
            raise ValueError("the chain leaves the file")
        page = raw[begin : begin + 4]
        parts.append(raw[begin + 4 : begin + 4 + min(left, usable - 4)])
        left -= len(parts[-1])
    return b"".join(parts)


def _record(payload: bytes) -> list[Value]:
    end, position = _varint(payload, 0)
    body = end
    values: list[Value] = []
    while position < end:
        kind, position = _varint(payload, position)
        if len(values) == MAX_COLUMNS:
            raise ValueError("no table has so many columns")
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
