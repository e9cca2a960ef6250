"""Reads a saved Wikipedia page as evidence: sentences, list items, table and infobox rows.

Left out, and counted in ``Page.left_out``: navigation boxes and sidebars (they list other
pages and state nothing about this one: on SQA's dev pages 7 % more passages but 40 % more links),
tables of contents, maintenance notices, hidden metadata, "Main article" lines, lists of references,
and sections that only point elsewhere ("See also", "External links").
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from selectolax.lexbor import LexborHTMLParser, LexborNode

from turngraph.configs.user_error import UserError
from turngraph.data.linearise import (
    MAX_LEAD,
    cut_lead,
    linearise_row,
    linearise_sentence,
    sentence_spans,
)
from turngraph.data.sources.document import (
    TOO_DEEP,
    PassageLimit,
    Unreadable,
    day_of,
    passage_spans,
)
from turngraph.data.sources.html_text import (
    BLOCKS,
    HEADINGS,
    STRUCK,
    TextWriter,
    children,
    inline_text,
    opened_parts,
    read_cells,
    table_groups,
)
from turngraph.data.sources.infobox import read_infobox
from turngraph.data.sources.page_entities import PageNames, Passage, resolve_entities
from turngraph.data.sources.table_grid import (
    MAX_SLOTS,
    Grid,
    Note,
    RichText,
    anchors,
    is_value,
    iter_rows,
    read_grid,
)
from turngraph.data.types import Evidence, Source

logger = logging.getLogger(__name__)

# Elements that are left out, by the name under which they are counted.
LEFT_OUT = {
    "navigation boxes": ".navbox, .vertical-navbox, .navbar, .sidebar, .portal, .infobox .noprint",
    "tables of contents": "#toc, .toc, .toclimit",
    "notices": ".metadata, .ambox, .mbox-small, .dablink, .hatnote, .rellink, .stub",
    "hidden metadata": ".persondata, #coordinates, .Z3988",
    "reference lists": "ol.references, .reflist, .refbegin",
}
# Parts that no reader sees or that are not text: never counted.
_UNSEEN = (
    "script, style, noscript, template, sup.reference, .Inline-Template, .editsection, "
    ".mw-editsection, .magnify, .sortkey, a.autonumber, "
    # A script opens a NavContent.
    "[style*='display:none']:not(.NavContent), [style*='display: none']:not(.NavContent), "
    "[style*='visibility:hidden'], [style*='visibility: hidden']"
)
_POINTING = frozenset(
    {"see also", "external links", "references", "further reading", "footnotes", "citations"}
)
_LISTS = frozenset({"ul", "ol", "dl"})
_BELOW_HEADINGS = 7
_MAX_CONTEXT = 60


@dataclass(slots=True)
class PageTable:
    """A table of the page.

    Args:
        name: prefix of its passages' ids: "t3" or "i0".
        wikitable: its index among the page's tables of class ``wikitable``.
        grid: the text of every slot, header rows included.
    """

    name: str
    wikitable: int | None
    grid: list[list[str]]


@dataclass(slots=True)
class RawPage:
    """A page before its entities are resolved; ``problems`` says what could not be read."""

    title: str
    name: str
    limit: PassageLimit | None = None
    with_path: bool = False
    joined: bool = False
    passages: list[Passage] = field(default_factory=list)
    day: str = ""
    days: list[str] = field(default_factory=list)
    tables: list[PageTable] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add(self, passage: Passage) -> None:
        """Add a passage, which counts for the limit."""
        if self.limit is not None:
            self.limit.count(passage.text)
        self.passages.append(passage)
        self.days.append(self.day)

    def report(self, problem: str) -> None:
        """Log an unreadable element and count it."""
        logger.warning("%s: %s", self.name, problem)
        self.problems.append(problem)


@dataclass(slots=True)
class Page:
    """A page as evidence.

    Args:
        title: the page's title.
        evidence: its passages in the order of the page.
        days: of each passage, the heading above that is a date; "" if none is.
        names: entity ids and labels, for answers too.
        left_out: number of elements of each kind that were left out on purpose.
        problems: elements that could not be read, each logged as a warning.
    """

    title: str
    evidence: list[Evidence]
    days: list[str]
    names: PageNames
    left_out: Counter[str]
    problems: list[str]


def read_page(
    html: str, title: str, name: str, limit: PassageLimit | None, with_path: bool
) -> Page:
    """Read a user's page as evidence with entities; short sentences of a paragraph share a passage.

    What is struck through is left out, as it does not hold.

    Args:
        html: the page or its body.
        title: the page's title, the prefix of every passage; a long one is cut.
        name: the file, for messages.
        limit: counts the passages.
        with_path: begin every passage with all headings above it, and with what opens its part of
            the page. Otherwise only list items begin with a heading, the nearest.

    Raises:
        Unreadable: the page is nested too deep, or its passages are too long.
    """
    return finish_page(_parsed(html, RawPage(cut_lead(title), name, limit, with_path, True)))


def finish_page(raw: RawPage) -> Page:
    """Resolve the entities of a page whose passages are complete."""
    evidence, names = resolve_entities(raw.title, raw.passages)
    return Page(raw.title, evidence, raw.days, names, raw.left_out, raw.problems)


def parse_page(html: str, title: str, name: str) -> RawPage:
    """Read a page's passages, one a sentence, before their entities are resolved.

    Args:
        html, title, name: as in ``read_page``.

    Raises:
        Unreadable: the page is nested too deep.
    """
    return _parsed(html, RawPage(cut_lead(title), name))


def _parsed(html: str, page: RawPage) -> RawPage:
    tree = LexborHTMLParser(html)
    if tree.body is None:
        return page
    try:
        _Reader(page, tree).walk(tree.body)
    except RecursionError:
        raise Unreadable(page.name, TOO_DEEP) from None
    return page


class _Reader:
    """Walks the blocks of a page in order and writes passages."""

    def __init__(self, page: RawPage, tree: LexborHTMLParser) -> None:
        self.page = page
        unseen = ", ".join((_UNSEEN, *STRUCK)) if page.joined else _UNSEEN
        self.unseen = {node.mem_id for node in tree.css(unseen)}
        for kind, selector in LEFT_OUT.items():
            left_out = {node.mem_id for node in tree.css(selector)}
            self.unseen |= left_out
            page.left_out[kind] += len(left_out)
        wikitables = [node.mem_id for node in tree.css("table.wikitable")]
        self.wikitables = {mem_id: number for number, mem_id in enumerate(wikitables)}
        self.wraps_block = set(_inline_wrappers(tree))
        self.headings: dict[float, str] = {}
        opened = opened_parts(tree, self.unseen) if page.with_path else {}
        texts = {part: inline_text(node, self.unseen).text for part, node in opened.items()}
        self.opened_by = {part: text for part, text in texts.items() if len(text) <= MAX_LEAD}
        self.unseen |= {opened[part].mem_id for part in self.opened_by}
        self.counts: Counter[str] = Counter()
        self.slots_left = MAX_SLOTS

    def walk(self, node: LexborNode) -> None:
        """Add the passages of a container: its blocks, and the texts between them."""
        if node.mem_id in self.unseen:
            return
        writer = TextWriter(False, self.unseen)
        for child in children(node):
            if child.tag in BLOCKS or child.mem_id in self.wraps_block:
                self._sentences(writer.finish())
                self._block(child)
            else:
                writer.inline(child)
        self._sentences(writer.finish())

    def _block(self, node: LexborNode) -> None:
        if node.mem_id in self.unseen:
            return
        if opener := self.opened_by.pop(node.mem_id, ""):
            above = self.headings
            self._heading(max(above, default=0) + 0.5, opener)
            self._block(node)
            self.headings = above
        elif node.tag in HEADINGS:
            self._heading(int(node.tag[1]), inline_text(node, self.unseen).text)
        elif node.tag == "table":
            self._table(node)
        elif node.tag in _LISTS:
            self._list(node, "" if self.page.with_path else self.section)
        else:
            self.walk(node)

    def _heading(self, level: float, text: str) -> None:
        self.headings = {above: name for above, name in self.headings.items() if above < level}
        self.headings[level] = cut_lead(text)
        self.page.day = day_of(self.headings.values())

    @property
    def section(self) -> str:
        """The nearest heading above, or all of them."""
        if self.page.with_path:
            return ", ".join(name for name in self.headings.values() if name)
        return self.headings[max(self.headings)] if self.headings else ""

    def _below_headings(self, context: str) -> str:
        """Return a context after the headings above it, if passages have them."""
        return ", ".join(filter(None, (self.section, context))) if self.page.with_path else context

    def _sentences(self, rich: RichText, context: str = "") -> None:
        context = self._below_headings(context)
        spans = passage_spans if self.page.joined else sentence_spans
        for start, end in spans(rich.text):
            said = rich.text[start:end]
            if not is_value(said):
                continue
            if any(text.lower() in _POINTING for text in self.headings.values()):
                self.page.left_out["lines of sections that point elsewhere"] += 1
                continue
            text = linearise_sentence(self.page.title, said, context)
            self._add(self._next("s"), text, "text", anchors(rich, start, end), [])

    def _next(self, kind: str) -> str:
        self.counts[kind] += 1
        return f"{kind}{self.counts[kind] - 1}"

    def _add(
        self, id_: str, text: str, source: Source, links: list[tuple[str, str]], values: list[str]
    ) -> None:
        self.page.add(Passage(id_, text, source, links, values))

    def _list(self, node: LexborNode, context: str) -> None:
        term, explained = "", True
        for item in children(node):
            if item.mem_id in self.unseen:
                continue
            if item.tag == "dt":
                if not explained:
                    self._sentences(RichText(term), context)
                term, explained = inline_text(item, self.unseen).text, False
            elif item.tag in ("li", "dd"):
                self._item(item, cut_lead(term) or context)
                explained = True
            elif item.tag in BLOCKS:
                self._block(item)
        if not explained:  # a bold line used as a heading
            self._heading(_BELOW_HEADINGS, term)

    def _item(self, node: LexborNode, context: str) -> None:
        writer = TextWriter(False, self.unseen)
        nested = []
        for child in children(node):
            if child.tag in _LISTS or child.tag == "table":
                nested.append(child)
            else:
                writer.inline(child)
        rich = writer.finish()
        self._sentences(rich, context)
        below = rich.text if rich.text and len(rich.text) <= _MAX_CONTEXT else context
        for child in nested:
            if child.tag == "table":
                self._block(child)
            elif child.mem_id not in self.unseen:
                self._list(child, below)

    def _table(self, node: LexborNode) -> None:
        classes = (node.attributes.get("class") or "").split()
        if "infobox" in classes and node.mem_id not in self.wikitables:
            is_first = not self.counts["i"]
            name = self._next("i")
            read_infobox(node, self.page.title, name, self.unseen, self.page.add, is_first)
        elif self._is_layout(node, classes):
            for part in children(node):
                for row in [part] if part.tag == "caption" else children(part):
                    self.walk(row)
        else:
            self._data_table(node)

    def _is_layout(self, node: LexborNode, classes: list[str]) -> bool:
        """Return whether a table only arranges other blocks on the page."""
        nested = [table.mem_id for table in node.css("table") if table.mem_id != node.mem_id]
        if node.mem_id in self.wikitables:
            return any(mem_id in self.wikitables for mem_id in nested)
        rows = [row for _, rows in table_groups(node) for row in rows]
        widths = [sum(cell.tag in ("td", "th") for cell in children(row)) for row in rows]
        if nested or "multicol" in classes or max(widths, default=0) <= 1:
            return True
        return len(rows) == 1 and node.css_first("ul, ol, p") is not None

    def _data_table(self, node: LexborNode) -> None:
        name = self._next("t")
        rows = []
        for in_head, table_rows in table_groups(node):
            for row in table_rows:
                if row.mem_id not in self.unseen:
                    cells, bad = read_cells(row, in_head, self.unseen)
                    rows.append(cells)
                    for span in bad:
                        self.page.report(f"table {name}, row {len(rows)}: {span} read as 1")
        try:
            grid, num_further = read_grid(rows, self.slots_left)
            self.slots_left -= num_further
        except UserError as error:
            self.page.report(f"table {name} cannot be read: {error}")
            return
        texts = [[slot.content.text if slot else "" for slot in line] for line in grid]
        wikitable = self.wikitables.get(node.mem_id)
        self.page.tables.append(PageTable(name, wikitable, texts))
        self._rows(name, grid, self._caption(node), wikitable is not None)

    def _caption(self, node: LexborNode) -> str:
        """Return a table's caption; without one its section, if the page has other tables."""
        caption = next((child for child in children(node) if child.tag == "caption"), None)
        content = inline_text(caption, self.unseen) if caption is not None else None
        if content is not None and content.text:
            if len(content.text) <= _MAX_CONTEXT:
                return self._below_headings(content.text)
            self._sentences(content)
        return self.section if self.page.with_path or len(self.wikitables) > 1 else ""

    def _rows(self, name: str, grid: Grid, caption: str, first_row_is_header: bool) -> None:
        for row in iter_rows(grid, first_row_is_header):
            id_ = f"{name}r{row.index}"
            if isinstance(row, Note):
                text = linearise_sentence(self.page.title, row.content.text)
                self._add(id_, text, "table", anchors(row.content), [row.content.text])
                continue
            about = ", ".join(dict.fromkeys(filter(None, (caption, row.group))))
            contents = [cell.content for cell in row.cells]
            texts = [content.text for content in contents]
            text = linearise_row(self.page.title, row.headers, texts, about)
            links = [pair for content in contents for pair in anchors(content)]
            values = [value for content in contents for value in content.values()]
            self._add(id_, text, "table", links, values)


def _inline_wrappers(tree: LexborHTMLParser) -> Iterator[int]:
    """Return ``mem_id`` of inline elements that hold a table or a list (a span around a block)."""
    for node in tree.css("table, ul, ol, dl"):
        parent = node.parent
        while parent is not None and parent.tag not in BLOCKS:
            yield parent.mem_id
            parent = parent.parent
