"""Reads the rows of an infobox as passages, nested tables included."""

from __future__ import annotations

from collections.abc import Callable

from selectolax.lexbor import LexborNode

from turngraph.data.linearise import cut_lead, linearise_infobox, linearise_row
from turngraph.data.normalise import normalise_text
from turngraph.data.sources.html_text import outer_tables, read_cells, table_groups
from turngraph.data.sources.page_entities import Passage
from turngraph.data.sources.table_grid import Cell, RichText, anchors, is_value

_BULLETS = "•·–—- "
_MIN_STATEMENT_WORDS = 3  # a heading that is a statement: "Studio album by The Beatles"


def read_infobox(
    table: LexborNode,
    title: str,
    name: str,
    unseen: set[int],
    add: Callable[[Passage], None],
    is_first: bool = True,
) -> None:
    """Add the passages of an infobox, with ids ``{name}r0``, ``{name}r1``, ...

    Args:
        table: the infobox.
        title: the page's title.
        name: prefix of the passages' ids.
        unseen: ``mem_id`` of elements to leave out; nested tables are added to it.
        add: takes each passage.
        is_first: the page's first infobox is about the page. A later one is about its heading,
            which each of its passages then names.
    """
    _Infobox(title, name, unseen, add, is_first).read(table)


class _Infobox:
    def __init__(
        self,
        title: str,
        name: str,
        unseen: set[int],
        add: Callable[[Passage], None],
        is_first: bool,
    ) -> None:
        self.title, self.name, self.unseen, self.is_first = title, name, unseen, is_first
        self.take, self.num_passages = add, 0
        self.about = self.section = ""
        self.headers: list[str] = []
        self.has_heading = False

    def read(self, table: LexborNode) -> None:
        for in_head, rows in table_groups(table):
            for row in rows:
                if row.mem_id in self.unseen:
                    continue
                nested = [t for t in outer_tables(row) if t.mem_id not in self.unseen]
                self.unseen.update(inner.mem_id for inner in nested)
                self._row(read_cells(row, in_head, self.unseen)[0])
                for inner in nested:
                    self.read(inner)

    def _row(self, cells: list[Cell]) -> None:
        cells = [cell for cell in cells if is_value(cell.content.text)]
        contents = [cell.content for cell in cells]
        if len(cells) == 1:
            self._single(cells[0])
        elif len(cells) == 2 and not (cells[0].is_header and cells[1].is_header):
            key = contents[0].text
            section = self.section if not key[0].isalpha() else ""
            self._add(section, key.strip(_BULLETS).removesuffix(":"), contents[1].text, contents, 1)
        elif cells and all(cell.is_header for cell in cells):
            self.headers = [cell.header for cell in cells]
        elif cells:
            headers = self.headers if len(self.headers) == len(cells) else [""] * len(cells)
            row = linearise_row("", headers, [content.text for content in contents])
            self._add(self.section, "", row, contents, 0)

    def _single(self, cell: Cell) -> None:
        """Read a cell alone in its row: the infobox's heading, a section's, or a text."""
        text = cell.content.text
        if not self.has_heading and (cell.is_header or not self.num_passages):
            self.has_heading = True
            if normalise_text(text) != normalise_text(self.title):
                self._add("", "", text, [cell.content], 0)
                self.about = "" if self.is_first else cut_lead(text)
        elif cell.is_header:
            self.section = cell.header
            if cell.content.links and len(text.split()) >= _MIN_STATEMENT_WORDS:
                self._add("", "", text, [cell.content], 0)
        else:
            self._add(self.section, "", text, [cell.content], 0)

    def _add(
        self, section: str, key: str, value: str, contents: list[RichText], first_value: int
    ) -> None:
        about = ", ".join(part for part in (self.about, section) if part and part != value)
        values = [text for content in contents[first_value:] for text in content.values()]
        self.take(
            Passage(
                f"{self.name}r{self.num_passages}",
                linearise_infobox(self.title, cut_lead(key), value, about),
                "infobox",
                [pair for content in contents for pair in anchors(content)],
                values,
            )
        )
        self.num_passages += 1
