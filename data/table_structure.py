"""Recovers structure from linearised evidence: titles, and the headers and cells of rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from turngraph.data.types import Evidence

_HEADER = re.compile(r", ([^,]{1,60}?) is (?=\S)")
MAX_LEAD_PARTS = 4
"""Maximum number of comma-separated parts of a title with its caption or section."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with its header in a linearised row, "Header is Cell", by offsets in characters.

    Args:
        header: the header's text.
        start: start of the header.
        middle: end of the header, exclusive.
        cell: start of the cell.
        end: end of the cell, exclusive.
    """

    header: str
    start: int
    middle: int
    cell: int
    end: int


@lru_cache(maxsize=1 << 13)
def row_cells(text: str) -> tuple[Cell, ...]:
    """Return the cells of a row that ``data.linearise.linearise_row`` wrote."""
    headers = list(_HEADER.finditer(text))
    ends = [*(match.start() for match in headers[1:]), len(text)]
    return tuple(
        Cell(match[1], match.start(1), match.end(1), match.end(), end)
        # without headers, ends still has one item
        for match, end in zip(headers, ends, strict=False)
    )


def cells_of(passage: Evidence) -> tuple[Cell, ...]:
    """Return the cells of a table row; none for any other passage."""
    return row_cells(passage.text) if passage.source == "table" else ()


def lead_of(passage: Evidence) -> str:
    """Return a row's title and caption, before its first header; the text of other passages."""
    cells = cells_of(passage)
    return passage.text[: cells[0].start - 2] if cells else passage.text


def repeated_spans(passages: Sequence[Evidence]) -> list[list[tuple[int, int]]]:
    """Return the spans of each passage, in characters, that repeat earlier passages.

    They are the first parts of its lead that the previous passage has too, and the headers that an
    earlier row has too.

    Args:
        passages: E_t, best first.
    """
    before: list[str] = []
    headers: set[str] = set()
    repeated = []
    for passage in passages:
        cells, parts = cells_of(passage), lead_of(passage).split(", ")
        same = _num_same(before, parts[: MAX_LEAD_PARTS if cells else len(parts) - 1])
        spans = [(0, len(", ".join(parts[:same])) + 1)] if same else []  # + 1: the comma
        spans += [(c.start - 1, c.cell - 1) for c in cells if c.header in headers]  # " X is"
        headers.update(cell.header for cell in cells)
        before = parts
        repeated.append(spans)
    return repeated


def _num_same(before: Sequence[str], parts: Sequence[str]) -> int:
    same = 0
    for old, new in zip(before[:MAX_LEAD_PARTS], parts, strict=False):
        if old != new:
            break
        same += 1
    return same
