"""Leaves out of a web page what is not its content: navigation, notices, advertisements, footers.

Resiliparse (Bevendorff et al. 2018) says which texts belong to the main content. Its rules are made
for running text, so data tables, lists of facts and headings stay where they are no part of a
navigation. Lines that consist of links alone go (Kohlschütter et al. 2010: link density).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from resiliparse.extract.html2text import extract_plain_text
from selectolax.lexbor import LexborHTMLParser, LexborNode

from turngraph.data.sources.html_text import BLOCKS, HEADINGS, TOGGLES, children
from turngraph.data.warned import reading_logger

logger = reading_logger(__name__)

_LANDMARKS = (
    "nav, footer, aside, dialog, [role=navigation], [role=contentinfo], [role=banner], "
    "[role=search], [role=dialog], [role=complementary]"
)
_LINKS = frozenset({"a", "button"})
_CELLS = frozenset({"td", "th"})
_LISTS = frozenset({"ul", "ol", "dl"})
_UNSEEN = frozenset({"script", "style", "noscript", "template", "head"})
_MOSTLY = 0.5
_MARK, _BASE = 0x100000, 0x8000
"""First of the private characters that number the texts of a page, two characters a text."""
_NUMBERS = re.compile(f"([{chr(_MARK)}-{chr(_MARK + _BASE - 1)}])" * 2)


class _Where(NamedTuple):
    """Context of a text: the nearest elements of their kind around it, and the outermost list."""

    parents: tuple[LexborNode, ...] = ()  # the nearest first, at most two
    block: LexborNode | None = None
    table: LexborNode | None = None
    top_list: LexborNode | None = None
    in_link: bool = False
    in_heading: bool = False
    in_caption: bool = False
    in_landmark: bool = False

    def inside(self, node: LexborNode, is_landmark: bool, is_toggle: bool) -> _Where:
        """Return the context of the texts of an element in this context."""
        tag = node.tag or ""
        return _Where(
            parents=(node, *self.parents[:1]),
            block=node if tag in BLOCKS else self.block,
            table=node if tag == "table" else self.table,
            top_list=self.top_list or (node if tag in _LISTS else None),
            in_link=self.in_link or (tag in _LINKS and not is_toggle),
            in_heading=self.in_heading or is_toggle or tag in HEADINGS,
            in_caption=self.in_caption or tag == "figcaption",
            in_landmark=self.in_landmark or is_landmark,
        )


@dataclass
class _Text:
    """A text node, and its context."""

    node: LexborNode
    where: _Where
    is_main: bool = False


def remove_boilerplate(tree: LexborHTMLParser, name: str) -> int:
    """Remove the texts of a page that are not its content, and return how many these are.

    Args:
        tree: the page; it is changed.
        name: name of the file, for messages.

    Raises:
        RecursionError: the page is nested too deep.
    """
    if tree.body is None:
        return 0
    rules = _Rules(tree, tree.body)
    _mark_main(tree, rules.texts)
    if not any(text.is_main for text in rules.texts):
        logger.warning("%s: no main content found, so the whole page is read", name)
        return 0
    left_out = rules.left_out()
    for text in left_out:
        text.node.decompose()
    for heading in tree.css(", ".join(HEADINGS)):
        if not heading.text(strip=True):
            heading.decompose()
    return len(left_out)


def _mark_main(tree: LexborHTMLParser, texts: list[_Text]) -> None:
    """Mark the texts that Resiliparse keeps as main content; each is numbered in its input."""
    for index, text in enumerate(texts):
        high, low = divmod(index, _BASE)
        text.node.insert_before(chr(_MARK + high) + chr(_MARK + low))
    main_text = extract_plain_text(tree.html or "", main_content=True, alt_texts=False)
    for high, low in _NUMBERS.findall(main_text):
        index = (ord(high) - _MARK) * _BASE + ord(low) - _MARK
        if index < len(texts):
            texts[index].is_main = True
    for text in texts:
        assert text.node.prev is not None
        text.node.prev.decompose()


class _Rules:
    """Decides which texts of a page are left out, and which stay although not running text."""

    def __init__(self, tree: LexborHTMLParser, body: LexborNode) -> None:
        self.texts: list[_Text] = []
        self.landmarks = {node.mem_id for node in tree.css(_LANDMARKS)}
        self.toggles = {node.mem_id for node in tree.css(TOGGLES)}
        self.lengths: dict[int, int] = {}  # letters and digits in an element
        self.linked: dict[int, int] = {}  # those in links and buttons
        self.outer_tables: set[int] = set()  # that hold other tables
        self.data_tables: dict[int, bool] = {}
        self.sentences: set[int] = set()  # elements with running text of the main content
        self._look(body, _Where())

    def _look(self, node: LexborNode, outside: _Where) -> tuple[int, int]:
        """Collect the texts of an element; return how long they are, and those in links."""
        id_ = node.mem_id
        where = outside.inside(node, id_ in self.landmarks, id_ in self.toggles)
        if node.tag == "table" and outside.table is not None:
            self.outer_tables.add(outside.table.mem_id)
        length = linked = 0
        for child in children(node):
            if child.tag == "-text":
                if text := (child.text_content or "").strip():
                    self.texts.append(_Text(child, where))
                    more = sum(map(str.isalnum, text))
                    length, linked = length + more, linked + where.in_link * more
            elif child.tag not in _UNSEEN:
                more, more_linked = self._look(child, where)
                length, linked = length + more, linked + more_linked
        self.lengths[id_], self.linked[id_] = length, linked
        return length, linked

    def left_out(self) -> list[_Text]:
        """Return the texts to leave out, once it is known which are main content."""
        for text in self.texts:
            where = text.where
            if text.is_main and not (where.in_link or where.top_list or where.in_heading):
                self.sentences |= {node.mem_id for node in where.parents}
        return [text for text in self.texts if not self._stays(text)]

    def _stays(self, text: _Text) -> bool:
        where = text.where
        if where.in_heading and not where.in_landmark:
            return True  # a heading begins the passages below it, and is none itself
        is_evidence = where.in_caption or self._in_table(where) or self._in_list(where)
        if where.in_landmark:
            return text.is_main and is_evidence
        return is_evidence or (text.is_main and not self._is_row_of_links(where))

    def _in_table(self, where: _Where) -> bool:
        """Return whether a text stands in a table of data, not of layout."""
        table = where.table
        if table is None or table.mem_id in self.outer_tables:
            return False
        if table.mem_id not in self.data_tables:
            widths = (sum(c.tag in _CELLS for c in children(row)) for row in table.css("tr"))
            self.data_tables[table.mem_id] = any(width > 1 for width in widths)
        return self.data_tables[table.mem_id]

    def _in_list(self, where: _Where) -> bool:
        """Return whether a text stands in a list of facts: of more than links, or below a text."""
        if where.top_list is None:
            return False
        id_, parent = where.top_list.mem_id, where.top_list.parent
        is_linked = self.linked[id_] > _MOSTLY * self.lengths[id_]
        return not is_linked or (parent is not None and parent.mem_id in self.sentences)

    def _is_row_of_links(self, where: _Where) -> bool:
        block = where.block
        return block is not None and self.linked[block.mem_id] == self.lengths[block.mem_id]
