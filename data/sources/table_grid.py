"""Reads tables with spans: cells to a grid, and the grid to rows under their headers.

It does not depend on HTML: a reader gives each table row as a list of cells.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from turngraph.configs.user_error import UserError
from turngraph.data.linearise import cut_lead

MAX_COLUMNS = 1000
MAX_SLOTS = 500_000
"""Most slots of all tables of a page, in addition to one for each of their cells."""
MAX_HEADER_ROWS = 20
"""Most header rows at the top of a table; further ones are read as rows, because every row repeats
the headers."""
_YEARS = re.compile(r"(?:1\d|20)\d\d(?:[–-]\d{2,4})?")
_MAX_GROUP_LABEL = 80
_DASHES = "-‐‑‒–—―−⁃ "  # dashes mark an empty cell on Wikipedia


@dataclass(slots=True)
class Link:
    """A link inside a text: the span of its anchor, in characters, and the page it names."""

    start: int
    end: int
    target: str


@dataclass(slots=True)
class RichText:
    """A text with its links in order and, if line breaks or list items divide it, its lines."""

    text: str
    links: list[Link] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def values(self) -> list[str]:
        """The texts that can be an entity: the whole text, and each of its lines."""
        texts = [self.text, *self.lines] if len(self.lines) > 1 else [self.text]
        return list(filter(is_value, texts))


def is_value(text: str) -> bool:
    """Return whether a text can be an entity: it has a letter or a digit."""
    return any(map(str.isalnum, text))


def anchors(rich: RichText, start: int = 0, end: int | None = None) -> list[tuple[str, str]]:
    """Return (anchor text, target) of the links that begin inside a span of the text."""
    end = len(rich.text) if end is None else end
    first, last = (bisect_left(rich.links, at, key=_start) for at in (start, end))
    return [(rich.text[link.start : link.end], link.target) for link in rich.links[first:last]]


def _start(link: Link) -> int:
    return link.start


@dataclass(slots=True)
class Cell:
    """A cell in the source: its text, and how many columns and rows it spans.

    Args:
        content: the text as a value.
        header: the text as a header, which joins lines differently.
        is_header: the cell is marked as a header, or all of it is bold.
        colspan: number of columns that it covers.
        rowspan: number of rows that it covers; 0: all rows to the end.
    """

    content: RichText
    header: str
    is_header: bool
    colspan: int = 1
    rowspan: int = 1


Grid = list[list[Cell | None]]
Headers = list[list[Cell]]


@dataclass(slots=True)
class Row:
    """A row with its headers, one entry per cell (a cell that spans columns occurs once).

    Header levels that the previous cell already names are left out: under "Peak positions" over
    "GER" and "UK" the headers are "Peak positions GER" and "UK".

    Args:
        index: the row's number in the grid, from 0.
        headers: a header for each cell, "" if it has none.
        cells: the cells that are not empty or a dash.
        group: the full-width row above it ("Group A"), "" if there is none.
    """

    index: int
    headers: list[str]
    cells: list[Cell]
    group: str = ""


@dataclass(slots=True)
class Note:
    """A full-width row that is not a group label but a text."""

    index: int
    content: RichText


def read_grid(rows: Sequence[Sequence[Cell]], most: int = MAX_SLOTS) -> tuple[Grid, int]:
    """Return the grid of a table, and the number of its slots beyond one for each cell.

    A slot holds the cell that covers it, or None.

    Args:
        rows: the cells of each row.
        most: largest number of slots beyond one for each cell.

    Raises:
        UserError: the table has more slots than that.
    """
    grid: Grid = []
    open_cells: dict[int, tuple[Cell, int]] = {}
    num_cells = width = 0
    for number, cells in enumerate(rows):
        line = _fill_row(cells, open_cells, len(rows) - number)
        grid.append(line)
        num_cells, width = num_cells + len(cells), max(width, len(line))
        if len(grid) * width - num_cells > most:
            raise UserError(f"spans and short rows give more than {MAX_SLOTS} further cells a page")
    for line in grid:
        line.extend([None] * (width - len(line)))
    return grid, max(len(grid) * width - num_cells, 0)


def _fill_row(
    cells: Sequence[Cell], open_cells: dict[int, tuple[Cell, int]], rows_left: int
) -> list[Cell | None]:
    """Fill one row; ``open_cells`` maps columns to cells from above and their rows left."""
    line: dict[int, Cell] = {}
    for column, (cell, left) in list(open_cells.items()):
        line[column] = cell
        if left > 1:
            open_cells[column] = (cell, left - 1)
        else:
            del open_cells[column]
    column = 0
    for cell in cells:
        while column in line:
            column += 1
        rowspan = cell.rowspan or rows_left
        for covered in range(column, min(column + cell.colspan, MAX_COLUMNS)):
            line[covered] = cell
            if rowspan > 1:
                open_cells[covered] = (cell, rowspan - 1)
        column += cell.colspan
    return [line.get(column) for column in range(max(line, default=-1) + 1)]


def iter_rows(grid: Grid, first_row_is_header: bool = False) -> Iterator[Row | Note]:
    """Yield the rows of a grid with their headers, levels joined ("Regular season GP").

    A repeated header row is left out, a different one replaces the headers of the rows below it,
    and a short full-width row groups the rows below it.

    Args:
        grid: from ``read_grid``.
        first_row_is_header: if no row is marked as header, use the first if it has no numbers.
    """
    num_headers = count_header_rows(grid)
    if first_row_is_header and all(map(_is_full_width, grid[:num_headers])):
        num_headers += _looks_like_header(grid, num_headers)
    headers = _column_headers(grid[:num_headers])
    group = _top_label(grid[:num_headers])
    for index in range(num_headers, len(grid)):
        line = grid[index]
        cells = _distinct(line)
        if not cells:
            continue
        if _is_full_width(line):
            if _is_group_label(grid, index):
                group = cells[0].header
            else:
                yield Note(index, cells[0].content)
        elif _is_new_header(grid, index, headers):
            headers = _column_headers([line])
        elif not _repeats_header(line, headers):
            row = _row(index, line, headers, group)
            if row.cells:
                yield row


def count_header_rows(grid: Grid) -> int:
    """Return how many rows at the top are headers; later ones count only under a span."""
    count = 0
    while count < min(len(grid) - 1, MAX_HEADER_ROWS) and _all_headers(grid[count]):
        if count and not _is_full_width(grid[count - 1]) and not _goes_on(grid, count):
            break
        count += 1
    return count


def _goes_on(grid: Grid, index: int) -> bool:
    above, line = grid[index - 1], grid[index]
    spans = any(cell.colspan > 1 for cell in _distinct(above))
    return spans or any(a is b is not None for a, b in zip(above, line, strict=True))


def _distinct(line: Sequence[Cell | None]) -> list[Cell]:
    """Return the cells of a row that are not empty, each once."""
    return list({id(cell): cell for cell in line if cell and cell.content.text}.values())


def _all_headers(line: Sequence[Cell | None]) -> bool:
    cells = _distinct(line)
    return bool(cells) and all(cell.is_header for cell in cells)


def _is_full_width(line: Sequence[Cell | None]) -> bool:
    """Return whether one cell covers most of the row and more than one column, alone."""
    cells = _distinct(line)
    covered = sum(slot is cells[0] for slot in line) if len(cells) == 1 else 0
    return covered > 1 and 2 * covered > len(line)


def _looks_like_header(grid: Grid, index: int) -> bool:
    """Return whether an unmarked row is a header: texts without numbers, or years but the first."""
    if index + 1 >= len(grid):
        return False
    texts = [cell.header for cell in _distinct(grid[index])]
    numbers = any(char.isdigit() for text in texts for char in text)
    years = sum(_YEARS.fullmatch(text) is not None for text in texts[-len(texts) + 1 :])
    return len(texts) > 1 and (not numbers or 2 <= years >= len(texts) - 1)


def _is_group_label(grid: Grid, index: int) -> bool:
    below = index + 1 < len(grid) and not _is_full_width(grid[index + 1])
    return below and len(_distinct(grid[index])[0].content.text) <= _MAX_GROUP_LABEL


def _top_label(lines: Grid) -> str:
    """Return the full-width label above the column headers."""
    labels = [cell.header for line in lines if _is_full_width(line) for cell in _distinct(line)]
    return labels[-1] if labels else ""


def _column_headers(lines: Grid) -> Headers:
    """Return the header cells above each column from top to bottom, each once, with text."""
    lines = [line for line in lines if not _is_full_width(line)]
    width = len(lines[0]) if lines else 0
    return [_distinct([line[column] for line in lines]) for column in range(width)]


def _is_new_header(grid: Grid, index: int, headers: Headers) -> bool:
    """Return whether a row inside the table has new headers for the columns below it."""
    line = grid[index]
    if index + 1 >= len(grid) or not _all_headers(line) or _all_headers(grid[index + 1]):
        return False
    cells = _distinct(line)
    numeric = any(char.isdigit() for cell in cells for char in cell.header)
    fits = not numeric or not any(headers)  # a row of totals is often marked as a header
    return len(cells) > 1 and fits and not _repeats_header(line, headers)


def _repeats_header(line: Sequence[Cell | None], headers: Headers) -> bool:
    texts = [cell.header if cell else "" for cell in line]
    above = [_header_text(levels) for levels in headers]
    return len(set(texts)) > 1 and texts == above


def _header_text(levels: Sequence[Cell]) -> str:
    return cut_lead(" ".join(dict.fromkeys(cell.header for cell in levels)))


def _row(index: int, line: Sequence[Cell | None], headers: Headers, group: str) -> Row:
    row = Row(index, [], [], group)
    said: list[Cell] = []
    covered: dict[int, list[int]] = {}
    for column, slot in enumerate(line if headers else ()):
        covered.setdefault(id(slot), []).append(column)
    for cell in _distinct(line):
        if not cell.content.text.strip(_DASHES):
            continue
        columns = covered.get(id(cell), [])
        levels = headers[columns[0]] if columns else []
        names = [_header_text(_unsaid(levels, said))]
        names += [headers[column][-1].header for column in columns[1:] if headers[column]]
        row.headers.append(_span_header([name for name in dict.fromkeys(names) if name]))
        row.cells.append(cell)
        said = levels
    return row


def _unsaid(levels: list[Cell], said: list[Cell]) -> list[Cell]:
    """Return the header levels that the previous cell did not name: "Peak GER is 44, UK is 91"."""
    same = 0
    while same < min(len(levels), len(said)) and levels[same] is said[same]:
        same += 1
    return levels[same:]


def _span_header(names: list[str]) -> str:
    """Return the header of a cell over several columns: from the first to the last of theirs."""
    if len(names) <= 1:
        return "".join(names)
    return f"{names[0]} {'and' if len(names) == 2 else 'to'} {names[-1]}"
