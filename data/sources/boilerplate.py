"""Leaves out of a web page what is not its content: navigation, notices, advertisements, footers.

Resiliparse (Bevendorff et al. 2018) says which texts belong to the main content. Its rules are made
for running text, so data tables, lists of facts and headings stay where they are no part of a
navigation. Lines that consist of links alone go (Kohlschütter et al. 2010: link density).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from resiliparse.extract.html2text import extract_plain_text
from selectolax.lexbor import LexborHTMLParser, LexborNode

from turngraph.data.sources.html_text import BLOCKS, children
from turngraph.data.warned import reading_logger

logger = reading_logger(__name__)

_LANDMARKS = (
    "nav, footer, aside, dialog, [role=navigation], [role=contentinfo], [role=banner], "
    "[role=search], [role=dialog], [role=complementary]"
)
_LINKS = frozenset({"a", "button"})
_CAPTION = frozenset({"figcaption"})
_TABLE, _CELLS = frozenset({"table"}), frozenset({"td", "th"})
_LISTS = frozenset({"ul", "ol", "dl"})
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_UNSEEN = frozenset({"script", "style", "noscript", "template", "head"})
_MOSTLY = 0.5
_MARK, _BASE = 0x100000, 0x8000
"""First of the private characters that number the texts of a page, two characters a text."""
_NUMBERS = re.compile(f"([{chr(_MARK)}-{chr(_MARK + _BASE - 1)}])" * 2)


@dataclass
class _Text:
    """A text node: the elements around it, the nearest first, and its letters and digits."""

    node: LexborNode
    above: list[LexborNode]
    length: int
    is_main: bool = False

    def within(self, tags: frozenset[str]) -> LexborNode | None:
        return next((node for node in self.above if node.tag in tags), None)


def remove_boilerplate(tree: LexborHTMLParser, name: str) -> int:
    """Remove the texts of a page that are not its content, and return how many these are.

    Args:
        tree: the page; it is changed.
        name: of the file, for messages.

    Raises:
        RecursionError: the page is nested too deep.
    """
    if tree.body is None:
        return 0
    texts = list(_texts(tree.body, []))
    _mark_main(tree, texts)
    if not any(text.is_main for text in texts):
        logger.warning("%s: no main content found, so the whole page is read", name)
        return 0
    left_out = _Rules(tree, texts).left_out()
    for text in left_out:
        text.node.decompose()
    return len(left_out)


def _texts(node: LexborNode, above: list[LexborNode]) -> Iterator[_Text]:
    child = node.child
    above = [node, *above]
    while child is not None:
        if child.tag == "-text":
            if text := (child.text_content or "").strip():
                yield _Text(child, above, sum(map(str.isalnum, text)))
        elif child.tag not in _UNSEEN:
            yield from _texts(child, above)
        child = child.next


def _mark_main(tree: LexborHTMLParser, texts: list[_Text]) -> None:
    """Ask Resiliparse which texts are main content: it gets each with a number that it keeps."""
    for index, text in enumerate(texts):
        high, low = divmod(index, _BASE)
        text.node.insert_before(chr(_MARK + high) + chr(_MARK + low))
    kept = extract_plain_text(tree.html or "", main_content=True, alt_texts=False)
    for high, low in _NUMBERS.findall(kept):
        index = (ord(high) - _MARK) * _BASE + ord(low) - _MARK
        if index < len(texts):
            texts[index].is_main = True
    for text in texts:
        assert text.node.prev is not None
        text.node.prev.decompose()


class _Rules:
    """Rules of a page: what is left out, and what stays though it is no running text."""

    def __init__(self, tree: LexborHTMLParser, texts: list[_Text]) -> None:
        self.texts = texts
        self.landmarks = {node.mem_id for node in tree.css(_LANDMARKS)}
        self.lengths: Counter[int] = Counter()  # of the text in an element
        self.linked: Counter[int] = Counter()  # of that in links and buttons
        self.sentences: set[int] = set()  # elements with running text of the main content
        for text in texts:
            in_link = text.within(_LINKS) is not None
            for node in text.above:
                self.lengths[node.mem_id] += text.length
                self.linked[node.mem_id] += in_link * text.length
            if text.is_main and not in_link and text.within(_LISTS | _HEADINGS) is None:
                self.sentences |= {node.mem_id for node in text.above[:2]}

    def left_out(self) -> list[_Text]:
        """Return the texts to leave out."""
        return [text for text in self.texts if not self._stays(text)]

    def _stays(self, text: _Text) -> bool:
        if text.within(_HEADINGS) is not None:
            return True  # it names what stands below, and becomes no passage of its own
        is_caption = text.within(_CAPTION) is not None
        is_evidence = is_caption or self._in_table(text) or self._in_list(text)
        if any(node.mem_id in self.landmarks for node in text.above):
            return text.is_main and is_evidence
        return is_evidence or (text.is_main and not self._is_row_of_links(text))

    def _in_table(self, text: _Text) -> bool:
        """Return whether a text stands in a table of data, not of layout."""
        table = text.within(_TABLE)
        if table is None or len(table.css("table")) > 1:
            return False
        return any(sum(c.tag in _CELLS for c in children(row)) > 1 for row in table.css("tr"))

    def _in_list(self, text: _Text) -> bool:
        """Return whether a text stands in a list of facts: of more than links, or below a text."""
        lists = [node for node in text.above if node.tag in _LISTS]
        if not lists:
            return False
        is_linked = self.linked[lists[-1].mem_id] > _MOSTLY * self.lengths[lists[-1].mem_id]
        parent = lists[-1].parent
        return not is_linked or (parent is not None and parent.mem_id in self.sentences)

    def _is_row_of_links(self, text: _Text) -> bool:
        block = text.within(BLOCKS)
        return block is not None and self.linked[block.mem_id] == self.lengths[block.mem_id]
