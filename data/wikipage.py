"""A saved Wikipedia page as evidence: sentences, list items, table rows and infobox rows.

Left out by choice, and counted in ``Page.left_out``: navigation boxes and sidebars (they list other
pages and state nothing about this one; on SQA's pages they would double the pool), tables of
contents, maintenance notices, hidden metadata, "Main article" lines, lists of references, and
sections that only point elsewhere ("See also", "External links").
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from selectolax.lexbor import LexborHTMLParser, LexborNode

from data.linearise import linearise_infobox, linearise_row, linearise_sentence, sentence_spans
from data.page_entities import PageNames, Piece, resolve_entities
from data.table_grid import Cell, Grid, Link, Note, RichText, Row, iter_rows, read_grid
from data.types import Evidence

logger = logging.getLogger(__name__)

# What is left out, by the name under which it is counted.
LEFT_OUT = {
    "navigation boxes": ".navbox, .vertical-navbox, .navbar, .sidebar, .portal, .infobox .noprint",
    "tables of contents": "#toc, .toc, .toclimit",
    "notices": ".metadata, .ambox, .mbox-small, .dablink, .hatnote, .rellink, .stub, .sistersitebox",
    "hidden metadata": ".persondata, #coordinates, .Z3988",
    "reference lists": "ol.references, .reflist, .refbegin",
}
# Parts of a text that no reader sees or that are not part of it: never counted.
_UNSEEN = (
    "script, style, noscript, template, sup.reference, .Inline-Template, .editsection, "
    ".mw-editsection, .magnify, [style*='display:none'], [style*='display: none'], "
    "[style*='visibility:hidden'], [style*='visibility: hidden'], .sortkey"
)
_POINTING = frozenset(
    {"see also", "external links", "references", "further reading", "footnotes", "citations"}
)
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_LISTS = frozenset({"ul", "ol", "dl"})
_MAX_CONTEXT = 60


@dataclass(slots=True)
class PageTable:
    """A table of the page.

    Args:
        name: the beginning of its pieces' ids: "t3" or "i0".
        wikitable: its number among the page's tables of class ``wikitable``, from 0.
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
    pieces: list[Piece] = field(default_factory=list)
    tables: list[PageTable] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def report(self, problem: str) -> None:
        """Log something that could not be read, and keep it for the count."""
        logger.warning("%s: %s", self.name, problem)
        self.problems.append(problem)

    def drop_table(self, table: PageTable) -> None:
        """Take the rows of a table out of the page."""
        self.pieces = [p for p in self.pieces if not p.id.startswith(f"{table.name}r")]


@dataclass(slots=True)
class Page:
    """A page as evidence.

    Args:
        title: the page's title.
        evidence: its pieces in the order of the page.
        names: entity ids and labels, for answers too.
        left_out: how many elements of each kind were left out by choice.
        problems: what could not be read, each logged as a warning.
    """

    title: str
    evidence: list[Evidence]
    names: PageNames
    left_out: Counter[str]
    problems: list[str]


def read_page(html: str, title: str, name: str) -> Page:
    """A page's evidence with entities.

    Args:
        html: the page or its body.
        title: the page's title, the prefix of every piece.
        name: the file, for messages.

    Raises:
        ValueError: the page is nested too deep to be read.
    """
    return finish_page(parse_page(html, title, name))


def finish_page(raw: RawPage) -> Page:
    """Resolve the entities of a page whose pieces are complete."""
    evidence, names = resolve_entities(raw.title, raw.pieces)
    return Page(raw.title, evidence, names, raw.left_out, raw.problems)


def parse_page(html: str, title: str, name: str) -> RawPage:
    """A page's pieces before their entities are resolved; see ``read_page``."""
    page = RawPage(title, name)
    tree = LexborHTMLParser(html)
    if tree.body is None:
        return page
    try:
        _Reader(page, tree).walk(tree.body)
    except RecursionError:
        raise ValueError(f"{name}: nested too deep to be read") from None
    return page


class _Reader:
    """Walks the blocks of a page in order and writes pieces."""

    def __init__(self, page: RawPage, tree: LexborHTMLParser) -> None:
        self.page = page
        self.unseen = {node.mem_id for node in tree.css(_UNSEEN)}
        self.left_out: dict[int, str] = {}
        for kind, selector in LEFT_OUT.items():
            self.left_out |= {node.mem_id: kind for node in tree.css(selector)}
        self.unseen.update(self.left_out)
        wikitables = tree.css("table.wikitable")
        self.wikitables = {node.mem_id: number for number, node in enumerate(wikitables)}
        self.section = ""
        self.numbers: Counter[str] = Counter()

    def walk(self, node: LexborNode) -> None:
        """Write the pieces of a container: its blocks, and the texts between them."""
        writer = TextWriter(False, self.unseen)
        for child in children(node):
            if child.tag not in BLOCKS and not self._holds_table(child):
                writer.inline(child)
            else:
                self._sentences(writer.finish())
                self._block(child)
        self._sentences(writer.finish())

    def _holds_table(self, node: LexborNode) -> bool:
        return node.child is not None and node.tag != "a" and node.css_first("table, ul") is not None

    def _block(self, node: LexborNode) -> None:
        if node.mem_id in self.unseen:
            if kind := self.left_out.get(node.mem_id):
                self.page.left_out[kind] += 1
        elif node.tag in _HEADINGS:
            self.section = inline_text(node, self.unseen).text
        elif self.section.lower() in _POINTING and node.tag != "table":
            self.page.left_out["sections that point elsewhere"] += node.tag in _LISTS
        elif node.tag in _LISTS:
            self._list(node, self.section)
        elif node.tag == "table":
            self._table(node)
        else:
            self.walk(node)

    def _piece(self, kind: str, text: str, content: list[RichText], values: list[str]) -> None:
        pass
